# SPDX-License-Identifier: Apache-2.0
*** Settings ***
Documentation       Every headline figure is within the bounds that somebody accepted, or that the inventory sets.
Resource            gates.resource
Test Tags           limits    verdicts


*** Test Cases ***
Every Figure Is Within Limits
    Given the verdicts of the check limits on SUT ${SUT} in testbed ${TESTBED}
    When all figures are looked at
    Then everything is as it should be
