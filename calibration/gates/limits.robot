# SPDX-License-Identifier: Apache-2.0
*** Settings ***
Documentation       Metrics that traffic depends on are within their baseline and the limits of the inventory.
Resource            gates.resource
Test Tags           limits    verdicts


*** Test Cases ***
Jitter Of Isolated Cores Is Within Limits
    [Documentation]    The operating system must not disturb a core that forwards packets.
    [Tags]    jitter
    Given the run of SUT ${SUT} in testbed ${TESTBED}
    Then jitter of isolated CPUs is within its limits

Each Entry Of The Latency Matrix Is Within Limits
    [Tags]    matrices
    Given the run of SUT ${SUT} in testbed ${TESTBED}
    Then every metric of latency_matrix is within its limits

Each Entry Of The Bandwidth Matrix Is Within Limits
    [Tags]    matrices
    Given the run of SUT ${SUT} in testbed ${TESTBED}
    Then every metric of bandwidth_matrix is within its limits
