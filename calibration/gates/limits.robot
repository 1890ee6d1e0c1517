# SPDX-License-Identifier: Apache-2.0
*** Settings ***
Documentation       Metrics that traffic depends on are within their baseline and the limits of the inventory.
Resource            gates.resource
Test Tags           limits    verdicts


*** Test Cases ***
Jitter Of Isolated CPUs Within Limits
    [Documentation]    The operating system must not disturb a core that forwards packets.
    [Tags]    jitter
    Then jitter of isolated CPUs is within its limits on every SUT

Latency Matrix Within Limits
    [Tags]    matrices
    Then every metric of latency_matrix is within its limits on every SUT

Bandwidth Matrix Within Limits
    [Tags]    matrices
    Then every metric of bandwidth_matrix is within its limits on every SUT
