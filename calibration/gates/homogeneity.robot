# SPDX-License-Identifier: Apache-2.0
*** Settings ***
Documentation       Servers of one kind in one testbed show the same figures.
Resource            gates.resource
Test Tags           homogeneity    verdicts


*** Test Cases ***
The SUT Is Like The Others Of Its Testbed
    Given the verdicts of the check homogeneity on SUT ${SUT} in testbed ${TESTBED}
    When all figures are looked at
    Then everything is as it should be
