# SPDX-License-Identifier: Apache-2.0
*** Settings ***
Documentation       What the servers of a lab must show each night before anybody trusts a figure of theirs.
...                 Every gate is run once for each SUT of the night. A gate that is skipped was not passed: its
...                 message says what is missing to tell.
Name                Gates of a night
