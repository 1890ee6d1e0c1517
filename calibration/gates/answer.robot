# SPDX-License-Identifier: Apache-2.0
*** Settings ***
Documentation       The answer on the SUT: the state of the machine, since when, what changed with it, what to do.
Resource            gates.resource
Test Tags           answer    verdicts


*** Test Cases ***
May We Test
    Then SUT ${SUT} of testbed ${TESTBED} may be tested
