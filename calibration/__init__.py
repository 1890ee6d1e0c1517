# SPDX-License-Identifier: Apache-2.0
"""Calibration harness for test labs: the controller's side."""

__version__ = "0.1.0"
