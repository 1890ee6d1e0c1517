# SPDX-License-Identifier: Apache-2.0
"""Hardware counters: which events a captured machine offers, and how they would be opened.

``tables`` has the vendors' events per model, ``encoding`` turns terms into the words of an event source,
``event_choice`` combines the two. The SUT opens the chosen events and decides nothing.
"""
