# SPDX-License-Identifier: Apache-2.0
*** Settings ***
Documentation       The SUT still matches its run. Needs an inventory to log in.
Resource            gates.resource
Library             calibration.gates.live.LiveLibrary    inventory=${LIVE}    known_hosts=${KNOWN_HOSTS}
Test Tags           live


*** Variables ***
${LIVE}             ${None}
${KNOWN_HOSTS}      ${None}


*** Test Cases ***
SUT Unchanged Since Run
    [Documentation]    Kernel, kernel command line and microcode are still those of the run.
    Given the run of SUT ${SUT} in testbed ${TESTBED}
    Then SUT ${SUT} of testbed ${TESTBED} is still what was measured
