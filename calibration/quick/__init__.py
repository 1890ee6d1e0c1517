# SPDX-License-Identifier: Apache-2.0
"""The quick gate: may a SUT be tested? Measures sentinels and compares SUT and readings with what was accepted."""
