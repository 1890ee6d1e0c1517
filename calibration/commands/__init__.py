# SPDX-License-Identifier: Apache-2.0
"""Subcommands of ``calibration`` that judge and report, and their terminal output."""
