# SPDX-License-Identifier: Apache-2.0
"""A machine described from its ``/proc`` and ``/sys``, captured or live: ``loader.load(root)`` gives a ``Context``."""
