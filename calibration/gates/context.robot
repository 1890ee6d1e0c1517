# SPDX-License-Identifier: Apache-2.0
*** Settings ***
Documentation       A figure describes the machine that was measured. It must be the one that the inventory promises, and
...                 measuring it must not have made it another.
Resource            gates.resource
Test Tags           context


*** Test Cases ***
The SUT Is What The Inventory Promises
    [Documentation]    Kernel, kernel arguments, isolated CPUs and whatever else is declared, as found when the run began.
    Given the run of SUT ${SUT} in testbed ${TESTBED}
    When what was found is held against what the inventory promises
    Then everything is as it should be

The SUT Was Left As It Was Found
    [Documentation]    Each setting that the run changed because the inventory agreed is again what it was before.
    Given the run of SUT ${SUT} in testbed ${TESTBED}
    When its settings after the run are held against those before
    Then everything is as it should be
