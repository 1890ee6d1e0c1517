# SPDX-License-Identifier: Apache-2.0
"""Hardware counters: what a captured machine offers, and which events would be opened on it with which encodings.

``tables`` is what the vendors say of their models' events, ``encoding`` turns terms into the words of an event source,
``event_choice`` puts the two together. The SUT opens what it is told and decides nothing.
"""
