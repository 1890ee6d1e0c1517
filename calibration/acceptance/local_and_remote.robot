# SPDX-License-Identifier: Apache-2.0
*** Settings ***
Documentation       A node is nearer to its own memory than to that of other nodes. Where it is not, memory lies elsewhere
...                 than the kernel believes, or a part of it is slow. Nodes with memory alone are not compared: such
...                 memory may be of another kind, and faster.
Resource            gates.resource
Test Tags           local-and-remote


*** Test Cases ***
Own Memory Answers Sooner Than Remote Memory
    Given the run of SUT ${SUT} in testbed ${TESTBED}
    And a valid measurement of latency_matrix
    And several nodes with CPUs and memory
    When own memory of each node is held against that of the others
    Then everything is as it should be

Own Memory Gives More Bandwidth Than Remote Memory
    Given the run of SUT ${SUT} in testbed ${TESTBED}
    And a valid measurement of bandwidth_matrix
    And several nodes with CPUs and memory
    When own memory of each node is held against that of the others
    Then everything is as it should be
