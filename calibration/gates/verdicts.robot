# SPDX-License-Identifier: Apache-2.0
*** Settings ***
Documentation       No verdict of the night fails. An undecided verdict is not a pass.
Resource            gates.resource
Test Tags           verdicts


*** Test Cases ***
Nothing That Was There Before Is Missing
    [Documentation]    SUTs and metrics of earlier nights are there tonight, all files of the SUT can be read, and it was
    ...    restored.
    [Tags]    completeness
    Then the checks missing, unreadable, restored pass on SUT ${SUT} in testbed ${TESTBED}

Every Metric Is Within Limits
    [Tags]    limits
    Then the checks limits pass on SUT ${SUT} in testbed ${TESTBED}

No Metric Contradicts Another
    [Tags]    consistency
    Then the checks consistency pass on SUT ${SUT} in testbed ${TESTBED}

No Level Has Drifted
    [Tags]    drift
    Then the checks drift pass on SUT ${SUT} in testbed ${TESTBED}

Every Metric Has Its Usual Spread
    [Tags]    drift
    Then the checks spread pass on SUT ${SUT} in testbed ${TESTBED}

No Metric Flips Between Two Levels
    [Tags]    drift
    Then the checks bimodal pass on SUT ${SUT} in testbed ${TESTBED}

The SUT Is Like The Others Of Its Testbed
    [Tags]    homogeneity
    Then the checks homogeneity pass on SUT ${SUT} in testbed ${TESTBED}
