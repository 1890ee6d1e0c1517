# SPDX-License-Identifier: Apache-2.0
"""Benchmarks of sutprobe against its peers on one machine, in alternation."""
