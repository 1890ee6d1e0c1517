# SPDX-License-Identifier: Apache-2.0
"""Formats of others: what other programs print and other projects keep."""
