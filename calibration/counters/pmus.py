# SPDX-License-Identifier: Apache-2.0
"""Event sources (PMUs) as the kernel describes them, and how an event's terms become words of a ``perf_event_attr``.

Source: ``Documentation/ABI/testing/sysfs-bus-event_source-devices-format`` and ``-events`` of the Linux kernel, and
``tools/perf/util/pmu.c``, which reads the same files.
"""

from __future__ import annotations

import re

from calibration.errors import InputError
from calibration.model import Model

WORDS = ("config", "config1", "config2", "config3")
"""The words of ``struct perf_event_attr`` that a format may name."""

WORD_BITS = 64

MAX_CHARACTERS = 4096
"""Longest format or list of terms; the longest known has 300 characters."""

_FORMAT = re.compile(r"(config[123]?):([0-9]{1,2}(?:-[0-9]{1,2})?(?:,[0-9]{1,2}(?:-[0-9]{1,2})?)*)", re.ASCII)
_TERM = re.compile(r"([A-Za-z_][A-Za-z0-9_.-]*)(?:=(.*))?", re.ASCII)
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]{1,16}|[0-9]{1,20}", re.ASCII)


class Alias(Model):
    """An event that the kernel knows by name: its terms, and what one count is in which unit."""

    terms: str
    scale: float | None = None
    unit: str | None = None


class EventSource(Model):
    """One directory of ``/sys/bus/event_source/devices``.

    ``cpumask`` are the CPUs on which a system-wide counter of the source is opened, one per package or die; ``cpus``
    those whose threads a core's source counts. ``formats`` are bit ranges in the kernel's notation, such as
    ``config:0-7,32-35``.
    """

    name: str
    type: int | None
    cpumask: tuple[int, ...] | None
    cpus: tuple[int, ...] | None
    formats: dict[str, str]
    aliases: dict[str, Alias]
    caps: dict[str, str]


def parse_format(text: str) -> tuple[str, tuple[int, ...]]:
    """Return the word and the bits, lowest bit of the value first, of a format such as ``config1:0-25,40``.

    Raises ``ValueError`` for anything else, and where a bit is named twice or does not exist.
    """
    match = _FORMAT.fullmatch(text.strip()) if len(text) <= MAX_CHARACTERS else None
    if match is None:
        raise ValueError(f"expected bits such as config:0-7,32-35, found {text[:60]!r}")
    word, ranges = match.groups()
    bits: list[int] = []
    for each in ranges.split(","):
        first, _, last = each.partition("-")
        low, high = int(first), int(last or first)
        if high < low or high >= WORD_BITS:
            raise ValueError(f"expected bits from 0 to {WORD_BITS - 1} in ascending ranges, found {text[:60]!r}")
        bits.extend(range(low, high + 1))
    if len(set(bits)) < len(bits):
        raise ValueError(f"expected each bit once, found {text[:60]!r}")
    return word, tuple(bits)


def parse_terms(text: str) -> dict[str, int]:
    """Return the terms ``event=0x04,umask=0x03,edge`` as numbers; a bare term is 1.

    Raises ``InputError`` for a parameter that the user would have to give (``?``), for a value that is no number, and
    for a term given twice.
    """
    if len(text) > MAX_CHARACTERS:
        raise InputError(f"expected at most {MAX_CHARACTERS} characters of terms, found {len(text)}")
    found: dict[str, int] = {}
    for term in text.strip().split(","):
        match = _TERM.fullmatch(term.strip())
        if match is None:
            raise InputError(f"expected terms such as event=0x04,umask=0x03, found {text[:80]!r}")
        name, value = match.group(1), match.group(2)
        if value == "?":
            raise InputError(f"expected an event without parameters, found {text[:80]!r}, whose {name} is to be given")
        if value is not None and _NUMBER.fullmatch(value) is None:
            raise InputError(f"expected a number as {name} of {text[:80]!r}, found {value[:20]!r}")
        if name in found:
            raise InputError(f"expected each term once, found {name} twice in {text[:80]!r}")
        found[name] = 1 if value is None else int(value, 0) if value[:2].lower() == "0x" else int(value)
    return found


def encode(source: EventSource, terms: str) -> dict[str, int]:
    """Return the words that *terms* are on *source*: ``config`` always, the others where a term is in them.

    The words themselves may be terms. Raises ``InputError`` where the source has no such term, or a value is too large.
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
        if value >> len(bits):
            raise InputError(f"{name}={value:#x} of {terms} does not fit the {len(bits)} bits of {source.name}")
        placed = sum((value >> position & 1) << bit for position, bit in enumerate(bits))
        words[word] = words.get(word, 0) | placed
    return words
