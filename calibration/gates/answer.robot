# SPDX-License-Identifier: Apache-2.0
*** Settings ***
Documentation       The answers on the SUTs: the state of the machine, since when, what changed with it, what to do.
Resource            gates.resource
Test Tags           answer    verdicts


*** Test Cases ***
May We Test
    Then every SUT may be tested
