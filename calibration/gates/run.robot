# SPDX-License-Identifier: Apache-2.0
*** Settings ***
Documentation       A run says by itself whether it is whole, and whether the machine was the promised one all along.
Resource            gates.resource


*** Test Cases ***
Everything Planned Was Measured And Is Valid
    [Documentation]    What was not measured is not good. Other gates skip what is missing or invalid.
    [Tags]    completeness
    Given the run of SUT ${SUT} in testbed ${TESTBED}
    Then everything planned was measured and is valid

The SUT Is What The Inventory Promises
    [Documentation]    Kernel, kernel arguments, isolated CPUs and whatever else is declared, as found when the run began.
    [Tags]    context
    Given the run of SUT ${SUT} in testbed ${TESTBED}
    Then the SUT was what the inventory promises

The SUT Was Left As It Was Found
    [Documentation]    Each setting that the run changed because the inventory agreed is again what it was before.
    [Tags]    context
    Given the run of SUT ${SUT} in testbed ${TESTBED}
    Then all settings were restored
