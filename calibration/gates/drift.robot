# SPDX-License-Identifier: Apache-2.0
*** Settings ***
Documentation       A server is tonight what it was the nights before.
Resource            gates.resource
Test Tags           drift    verdicts


*** Test Cases ***
No Level Has Drifted
    Given the verdicts of the check drift on SUT ${SUT} in testbed ${TESTBED}
    When all figures are looked at
    Then everything is as it should be

No Figure Spreads Otherwise Than Before
    Given the verdicts of the check spread on SUT ${SUT} in testbed ${TESTBED}
    When all figures are looked at
    Then everything is as it should be

No Figure Flips Between Two Levels
    Given the verdicts of the check bimodal on SUT ${SUT} in testbed ${TESTBED}
    When all figures are looked at
    Then everything is as it should be
