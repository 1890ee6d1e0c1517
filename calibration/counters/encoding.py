# SPDX-License-Identifier: Apache-2.0
"""Encode an event's terms into a ``perf_event_attr``, like ``tools/perf/util/pmu.c`` of the Linux kernel."""

from __future__ import annotations

import re

from calibration.base.errors import InputError
from calibration.context.event_sources import WORD_BITS, parse_format
from calibration.context.model import EventSource

WORDS = ("config", "config1", "config2", "config3")
"""The words of ``struct perf_event_attr`` that sutprobe sets."""

MAX_CHARACTERS = 4096
"""Longest list of terms; the longest known has 300 characters."""

_TERM = re.compile(r"([A-Za-z_][A-Za-z0-9_.-]*)(?:=(.*))?", re.ASCII)
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]{1,16}|[0-9]{1,20}", re.ASCII)


def parse_terms(text: str) -> dict[str, int]:
    """Return the terms ``event=0x04,umask=0x03,edge`` as numbers; a bare term is 1.

    Raises ``InputError`` for a parameter that the user has to give (``?``), a value that is not a number, and a
    repeated term.
    """
    if len(text) > MAX_CHARACTERS:
        raise InputError(f"{len(text)} characters of terms, at most {MAX_CHARACTERS} are read")
    found: dict[str, int] = {}
    for term in text.strip().split(","):
        match = _TERM.fullmatch(term.strip())
        if match is None:
            raise InputError(f"not terms such as event=0x04,umask=0x03: {text[:80]!r}")
        name, value = match.group(1), match.group(2)
        if value == "?":
            raise InputError(f"an event with a parameter, {name}, cannot be opened: {text[:80]!r}")
        if value is not None and _NUMBER.fullmatch(value) is None:
            raise InputError(f"{name} of {text[:80]!r} is not a number: {value[:20]!r}")
        if name in found:
            raise InputError(f"{name} is given twice: {text[:80]!r}")
        found[name] = 1 if value is None else int(value, 0) if value[:2].lower() == "0x" else int(value)
    return found


def encode(source: EventSource, terms: str) -> dict[str, int]:
    """Return the words that *terms* set on *source*: ``config`` always, the others if a term is in them.

    The words themselves may be terms. Raises ``InputError`` if the source has no such term, or a value is too large.
    """
    words = {"config": 0}
    for name, value in parse_terms(terms).items():
        if name in source.formats:
            word, bits = parse_format(source.formats[name])
        elif name in WORDS:
            word, bits = name, tuple(range(WORD_BITS))
        else:
            known = ", ".join(sorted(source.formats)) or "none"
            raise InputError(f"{source.name} has no term {name} (it has {known}), which {terms} needs")
        if word not in WORDS:
            raise InputError(f"{name} of {terms} is in {word} of the kernel's interface, which sutprobe does not set")
        if value >> len(bits):
            raise InputError(f"{name}={value:#x} of {terms} does not fit the {len(bits)} bits of {source.name}")
        placed = sum((value >> position & 1) << bit for position, bit in enumerate(bits))
        words[word] = words.get(word, 0) | placed
    return words
