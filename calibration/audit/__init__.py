# SPDX-License-Identifier: Apache-2.0
"""Configuration audit: the settings that a SUT is expected to have, and what a captured SUT has.

An expected state (``expected``) is a list of items. ``readings`` says what a machine has of a setting, ``kinds`` which
settings there are, and ``evaluate`` makes a finding of each item. ``learn`` makes an expected state of a machine.
"""
