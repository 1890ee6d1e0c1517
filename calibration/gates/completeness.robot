# SPDX-License-Identifier: Apache-2.0
*** Settings ***
Documentation       What was not measured is not good. This is the one gate that fails for a figure that is not there or
...                 is invalid; the others skip it.
Resource            gates.resource
Test Tags           completeness


*** Test Cases ***
Everything Planned Was Measured And Is Valid
    [Documentation]    By the run's own account.
    Given the run of SUT ${SUT} in testbed ${TESTBED}
    When what was measured is held against what was planned
    Then everything is as it should be

Nothing That Was There Before Is Missing
    [Documentation]    A SUT or a figure that earlier nights had is there tonight, and every file of the SUT can be read.
    [Tags]    verdicts
    Given the verdicts of the checks missing and unreadable on SUT ${SUT} in testbed ${TESTBED}
    When all figures are looked at
    Then everything is as it should be
