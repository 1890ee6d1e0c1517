# SPDX-License-Identifier: Apache-2.0
"""The kernel's event sources (PMUs): ``/sys/bus/event_source/devices``.

Source: ``Documentation/ABI/testing/sysfs-bus-event_source-devices-format`` and ``-events`` of the Linux kernel.
"""

from __future__ import annotations

import re

from calibration.base.cpulists import parse_cpulist
from calibration.base.text import visible
from calibration.context.model import EventAlias, EventSource
from calibration.context.tree import Tree, count

DEVICES = "/sys/bus/event_source/devices"

_EVENT_ATTRIBUTE_SUFFIXES = (".scale", ".unit", ".snapshot", ".per-pkg")
"""Suffixes of the files that describe an event."""

_SCALE = re.compile(r"[0-9]{1,20}(\.[0-9]{0,40})?([eE][-+]?[0-9]{1,3})?", re.ASCII)


WORD_BITS = 64
"""Bits of each word of ``struct perf_event_attr``."""

MAX_CHARACTERS = 4096
"""Longest format; the longest known has 40 characters."""

_FORMAT = re.compile(r"(config[1-4]?):([0-9]{1,2}(?:-[0-9]{1,2})?(?:,[0-9]{1,2}(?:-[0-9]{1,2})?)*)", re.ASCII)


def parse_format(text: str) -> tuple[str, tuple[int, ...]]:
    """Return the word and the bits, lowest bit of the value first, of a format such as ``config1:0-25,40``.

    Raises ``ValueError`` for anything else, for a repeated bit and for a bit that does not exist.
    """
    match = _FORMAT.fullmatch(text.strip()) if len(text) <= MAX_CHARACTERS else None
    if match is None:
        raise ValueError(f"not bits such as config:0-7,32-35: {text[:60]!r}")
    word, ranges = match.groups()
    bits: list[int] = []
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        low, high = int(first), int(last or first)
        if high < low or high >= WORD_BITS:
            raise ValueError(f"not ascending ranges of bits from 0 to {WORD_BITS - 1}: {text[:60]!r}")
        bits.extend(range(low, high + 1))
    if len(set(bits)) < len(bits):
        raise ValueError(f"a bit is named twice: {text[:60]!r}")
    return word, tuple(bits)


def _scale(text: str) -> float:
    if _SCALE.fullmatch(text.strip()) is None or float(text) in (0.0, float("inf")):
        raise ValueError(f"not a positive number: {text[:40]!r}")
    return float(text)


def _format(text: str) -> str:
    parse_format(text)
    return text.strip()


def _read_words(tree: Tree, directory: str) -> dict[str, str]:
    """Return the readable files of a directory, each as one line, by name."""
    found = {visible(name): tree.word(f"{directory}/{name}") for name in tree.names(directory)}
    return {name: word for name, word in found.items() if word is not None}


def _read_source(tree: Tree, name: str) -> EventSource:
    directory = f"{DEVICES}/{name}"
    formats = {field: tree.parse(f"{directory}/format/{field}", _format) for field in tree.names(f"{directory}/format")}
    aliases = {}
    for event in tree.names(f"{directory}/events"):
        terms = None if event.endswith(_EVENT_ATTRIBUTE_SUFFIXES) else tree.word(f"{directory}/events/{event}")
        if terms is not None:
            aliases[visible(event)] = EventAlias(
                terms=terms,
                scale=tree.parse(f"{directory}/events/{event}.scale", _scale),
                unit=tree.word(f"{directory}/events/{event}.unit"),
            )
    return EventSource(
        name=visible(name),
        type=tree.parse(f"{directory}/type", count),
        cpumask=tree.parse(f"{directory}/cpumask", parse_cpulist),
        cpus=tree.parse(f"{directory}/cpus", parse_cpulist),
        formats={visible(field): bits for field, bits in formats.items() if bits is not None},
        aliases=aliases,
        caps=_read_words(tree, f"{directory}/caps"),
    )


def read_event_sources(tree: Tree) -> tuple[EventSource, ...] | None:
    """Return all event sources by name; None if the tree has no such directory."""
    if not tree.is_dir(DEVICES):
        return None
    return tuple(_read_source(tree, name) for name in tree.names(DEVICES))
