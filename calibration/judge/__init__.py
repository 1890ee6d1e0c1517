# SPDX-License-Identifier: Apache-2.0
"""Judgement of runs, nights and the SUTs of a testbed."""
