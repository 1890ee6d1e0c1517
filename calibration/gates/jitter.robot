# SPDX-License-Identifier: Apache-2.0
*** Settings ***
Documentation       A core that forwards packets must be left alone by the operating system.
Resource            gates.resource
Test Tags           jitter    limits    verdicts


*** Test Cases ***
Jitter Of Isolated Cores Is Within Limits
    [Documentation]    Spread of the fixed work, longest gap and share of time lost, of each isolated CPU.
    Given the run of SUT ${SUT} in testbed ${TESTBED}
    And a valid measurement of jitter
    And it is of isolated CPUs
    And the verdicts of the check limits on SUT ${SUT} in testbed ${TESTBED}
    When its figures are held against their limits
    Then everything is as it should be
