# SPDX-License-Identifier: Apache-2.0
"""The subcommands of ``calibration`` that judge, and what they print on a terminal."""
