# SPDX-License-Identifier: Apache-2.0
*** Settings ***
Documentation       May the SUT be tested? Each check is run once per SUT. A skipped check is undecided: it is not passed.
Name                Quick gate
Library             calibration.quick.library.QuickLibrary    checks=${CHECKS}


*** Variables ***
${CHECKS}           ${None}
# Replaced by each SUT
${TESTBED}          ${EMPTY}
${SUT}              ${EMPTY}


*** Test Cases ***
SUT Measured
    [Tags]    measured
    Then the check measured passes on SUT ${SUT} in testbed ${TESTBED}

Settings Restored
    [Documentation]    All settings that the measurement changed are as before.
    [Tags]    restored
    Then the check restored passes on SUT ${SUT} in testbed ${TESTBED}

SUT Matches Inventory
    [Documentation]    Kernel, kernel arguments, isolated CPUs and other declared expectations.
    [Tags]    promises
    Then the check promises passes on SUT ${SUT} in testbed ${TESTBED}

Configuration Unchanged Since Baseline
    [Documentation]    Firmware, kernel, memory, devices and settings are those of the accepted run.
    [Tags]    context
    Then the check context passes on SUT ${SUT} in testbed ${TESTBED}

Idle Latency Within Baseline
    [Tags]    latency
    Then the check latency passes on SUT ${SUT} in testbed ${TESTBED}

Read Bandwidth Within Baseline
    [Tags]    bandwidth
    Then the check bandwidth passes on SUT ${SUT} in testbed ${TESTBED}

Core Clock Within Baseline
    [Tags]    clock
    Then the check clock passes on SUT ${SUT} in testbed ${TESTBED}

Interruptions Within Baseline
    [Tags]    gap
    Then the check gap passes on SUT ${SUT} in testbed ${TESTBED}
