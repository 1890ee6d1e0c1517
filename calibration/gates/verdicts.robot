# SPDX-License-Identifier: Apache-2.0
*** Settings ***
Documentation       No verdict of the night fails. An undecided verdict is not a pass.
Resource            gates.resource
Test Tags           verdicts


*** Test Cases ***
Run Complete And Valid
    [Documentation]    Everything planned was measured and is valid.
    [Tags]    completeness
    Then the checks complete pass on every SUT

Nothing Missing Since Earlier Nights
    [Documentation]    SUTs and metrics of earlier nights are there tonight, and all files of the SUT can be read.
    [Tags]    completeness
    Then the checks missing, unreadable pass on every SUT

SUT Matches Inventory
    [Documentation]    Kernel, kernel arguments, isolated CPUs, the expected state and other declared expectations, as
    ...    found at the start. What cannot exist on the SUT is noted.
    [Tags]    context
    Then the checks inventory pass on every SUT

Settings Restored
    [Documentation]    Every setting that the run changed is as before.
    [Tags]    context
    Then the checks restored pass on every SUT

No Memory Or Link Errors
    [Documentation]    A corrected error costs time: what was measured is not what the machine can do.
    [Tags]    errors
    Then the checks errors pass on every SUT

Every Metric Within Limits
    [Tags]    limits
    Then the checks limits pass on every SUT

No Metric Contradicts Another
    [Tags]    consistency
    Then the checks consistency pass on every SUT

No Level Has Drifted
    [Tags]    drift
    Then the checks drift pass on every SUT

Night To Night Spread Unchanged
    [Tags]    drift
    Then the checks spread pass on every SUT

No Metric Flips Between Two Levels
    [Tags]    drift
    Then the checks bimodal pass on every SUT

SUT Like The Others Of Its Testbed
    [Tags]    homogeneity
    Then the checks homogeneity pass on every SUT
