# SPDX-License-Identifier: Apache-2.0
*** Settings ***
Documentation       No figure of a run contradicts another: the maximum is not below the peak, a part does not give more than
...                 the whole, and what was measured twice is the same. The run document says so.
Resource            gates.resource
Test Tags           consistency    verdicts


*** Test Cases ***
No Figure Contradicts Another
    Given the verdicts of the check consistency on SUT ${SUT} in testbed ${TESTBED}
    When all figures are looked at
    Then everything is as it should be
