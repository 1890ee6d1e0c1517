# SPDX-License-Identifier: Apache-2.0
*** Settings ***
Documentation       Gates that every SUT must pass each night. The log of a gate has the SUTs that fail, and why. A
...                 skipped gate is not passed: its log says what is missing.
Name                Gates of a night
