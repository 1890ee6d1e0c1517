# SPDX-License-Identifier: Apache-2.0
"""Preflight: what is expected of a SUT before measuring, what was found, and the severity of a difference.

Some checks need only one answer of the SUT (``sut_checks``); the others compare its captured context with the
inventory's expectations (``examination``). A check records what was expected and found, passed or not. A failed or
undecided one prevents measuring (``blocking``) or marks all results (``flag``), as declared.
"""
