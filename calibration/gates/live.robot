# SPDX-License-Identifier: Apache-2.0
*** Settings ***
Documentation       Figures of the night speak for a server as long as it is what was measured. Needs an inventory by which
...                 one can log in.
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
    When one logs in to SUT ${SUT} of testbed ${TESTBED}
    And what it is now is held against the run
    Then everything is as it should be


*** Keywords ***
one logs in to SUT ${sut} of testbed ${testbed}
    [Documentation]    As the inventory says, and only if its host key is known.
    ${live}=    Look At SUT    ${testbed}    ${sut}
    VAR    ${NOW}    ${live}    scope=TEST

what it is now is held against the run
    [Documentation]    What it was when it was captured.
    ${findings}=    Check Still As Measured    ${RUN}    ${NOW}
    VAR    ${FINDINGS}    ${findings}    scope=TEST
