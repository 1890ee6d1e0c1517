# SPDX-License-Identifier: Apache-2.0
*** Settings ***
Documentation       Figures of the night speak for a SUT as long as it is what was measured. Needs an inventory to log in by.
Resource            gates.resource
Library             calibration.gates.live.LiveLibrary    inventory=${LIVE}    known_hosts=${KNOWN_HOSTS}
Test Tags           live


*** Variables ***
${LIVE}             ${None}
${KNOWN_HOSTS}      ${None}


*** Test Cases ***
The SUT Is Still What Was Measured
    [Documentation]    Kernel, kernel command line and microcode now are those of the run.
    Given the run of SUT ${SUT} in testbed ${TESTBED}
    Then SUT ${SUT} of testbed ${TESTBED} is still what was measured
