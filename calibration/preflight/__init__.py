# SPDX-License-Identifier: Apache-2.0
"""What is expected of a SUT before it is measured, what was found, and what follows when the two differ.

Some checks need nothing but to ask the SUT once (``sut_checks``); the others compare its captured context with what the
inventory promises (``examination``). A check says what was expected and found whether it is met or not. Not met, or not
established, it keeps the SUT from being measured (``blocking``) or marks every figure (``flag``), as declared.
"""
