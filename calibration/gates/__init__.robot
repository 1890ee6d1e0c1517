# SPDX-License-Identifier: Apache-2.0
*** Settings ***
Documentation       Gates that every SUT must pass each night. Each gate is run once per SUT. A skipped gate is not
...                 passed: its message says what is missing.
Name                Gates of a night
