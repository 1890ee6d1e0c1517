# SPDX-License-Identifier: Apache-2.0
*** Settings ***
Documentation       Each way from the CPUs of a node to the memory of a node is as fast as it was accepted to be.
Resource            gates.resource
Test Tags           matrices    limits    verdicts


*** Test Cases ***
Each Entry Of The Latency Matrix Is Within Limits
    Given the run of SUT ${SUT} in testbed ${TESTBED}
    And a valid measurement of latency_matrix
    And the verdicts of the check limits on SUT ${SUT} in testbed ${TESTBED}
    When its figures are held against their limits
    Then everything is as it should be

Each Entry Of The Bandwidth Matrix Is Within Limits
    Given the run of SUT ${SUT} in testbed ${TESTBED}
    And a valid measurement of bandwidth_matrix
    And the verdicts of the check limits on SUT ${SUT} in testbed ${TESTBED}
    When its figures are held against their limits
    Then everything is as it should be
