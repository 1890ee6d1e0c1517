# SPDX-License-Identifier: Apache-2.0
*** Settings ***
Documentation       The run is complete, and the SUT met the inventory expectations and restored.
Resource            gates.resource


*** Test Cases ***
Everything Planned Was Measured And Is Valid
    [Documentation]    Other gates skip what is missing or invalid.
    [Tags]    completeness
    Given the run of SUT ${SUT} in testbed ${TESTBED}
    Then everything planned was measured and is valid

The SUT Meets The Inventory Expectations
    [Documentation]    Kernel, kernel arguments, isolated CPUs, the expected state and other declared expectations, as
    ...    found at the start. What cannot exist on the SUT is noted.
    [Tags]    context
    Given the run of SUT ${SUT} in testbed ${TESTBED}
    Then the SUT met the inventory expectations

The SUT Was Left As It Was Found
    [Documentation]    Every setting that the run changed was restored.
    [Tags]    context
    Given the run of SUT ${SUT} in testbed ${TESTBED}
    Then all settings were restored

Memory And Links Had No Errors
    [Documentation]    A corrected error costs time: what was measured is not what the machine can do.
    [Tags]    errors
    Given the run of SUT ${SUT} in testbed ${TESTBED}
    Then memory and links had no errors
