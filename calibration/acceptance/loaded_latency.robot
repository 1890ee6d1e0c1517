# SPDX-License-Identifier: Apache-2.0
*** Settings ***
Documentation       Memory that is asked for more does not answer sooner.
Resource            gates.resource
Test Tags           loaded-latency


*** Test Cases ***
Latency Rises With The Load
    [Documentation]    From the longest to the shortest delay latency never falls, and bandwidth rises to one peak, within
    ...    what the placements of each point saw.
    Given the run of SUT ${SUT} in testbed ${TESTBED}
    And a valid measurement of loaded_latency
    When each point of the curve is held against those of less load
    Then everything is as it should be
