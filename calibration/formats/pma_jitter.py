# SPDX-License-Identifier: Apache-2.0
"""What PMA jitter 1.8 and 1.9 print: columns or comma-separated values, headings repeated or once.

Source: the program itself (``jitter.c`` of Intel's PMA tools, BSD licence) and its published outputs.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from calibration.formats.lines import Line, first_of, has_figure, shortened
from calibration.results.readings import Inconsistency, NotRead, Read, Reading, ReadJitter, inconsistency, numbered
from calibration.sutprobe.jitter import JitterInterval

BANNER: Final = re.compile(r"Jitter testing program version (\d[\w.]*)", re.IGNORECASE)
HEADER: Final = re.compile(r"^\s*Inst_Min[\s,]+Inst_Max\b", re.IGNORECASE)
HEADING: Final = re.compile(
    r"^inst_min[\s,]+inst_max[\s,]+inst_jitter[\s,]+last_exec[\s,]+abs_min[\s,]+abs_max[\s,]+tmp[\s,]+interval[\s,]+"
    r"sample[ _]no$"
)
FACTS: Final = (
    ("iterations", re.compile(r"^\s*Iterations=(\d{1,9})\b")),
    ("loops", re.compile(r"dummy function (\d{1,9}) times")),
    ("executions", re.compile(r"Display is updated every (\d{1,9}) ")),
    ("cpu", re.compile(r"affinity will be set to core_id:\s*(\d{1,5})\b")),
)
TASKSET: Final = re.compile(r"\btaskset\s{1,9}(?:-\w{0,4}c\w{0,4}|--cpu-list)\s{1,9}(\d{1,5})(?![\d,-])")
"""The one CPU that a command pins what it starts to."""

TICKS: Final = re.compile(r"^\s*Timings are in (.{1,80})$")
RESET: Final = re.compile(r"\breset\b", re.IGNORECASE)
EXPLANATION: Final = re.compile(
    r"^\s*(?:Inst_Min|Inst_Max|Inst_jitter|last_Exec|Abs_Min|Abs_Max|tmp|Interval|Sample No):\s", re.IGNORECASE
)
COLUMNS: Final = tuple(JitterInterval.model_fields)
"""The columns in their order: the fields of an interval have it too."""

CONTRADICTIONS_SHOWN: Final = 3
"""So many rows of each contradiction are named; the rest is counted."""


def jitter_results(lines: Sequence[Line], command: str | None, understood: set[int]) -> Read:
    """Return what *lines*, printed by *command*, say, and add the places of those that were read to *understood*."""
    readings: list[Reading] = []
    not_read: list[NotRead] = []
    faults: list[Inconsistency] = []
    for output in _outputs([line for line in lines if line.place not in understood]):
        title = output[0].text.strip()
        reading, found, loose = _output(output, command)
        understood |= {line.place for line in output} - loose
        faults += found
        if reading is None:
            not_read.append(NotRead(kind="jitter", what=title, reason="it has no whole interval"))
            continue
        readings.append(reading)
        if reading.missing:
            faults.append(inconsistency("TRUNCATED", title, "; ".join(reading.missing)))
    return Read(readings=numbered(readings), not_read=tuple(not_read), inconsistencies=tuple(faults))


def _outputs(lines: Sequence[Line]) -> Iterator[list[Line]]:
    """Yield the lines of each start of the program: from its banner, or from what it says first where it has none."""
    found: list[Line] = []
    begun = rows = False
    for line in lines:
        banner, figures = BANNER.search(line.text), has_figure(line.text)
        said = banner or _said(line.text)
        if begun and (banner or (rows and line.gap and not figures and not said and not RESET.search(line.text))):
            yield found
            found, begun, rows = [], False, False
        if found or said:
            found.append(line)
        begun = begun or bool(banner or HEADER.match(line.text))
        rows = rows or bool(begun and figures and not said)
    if begun:
        yield found


def _said(text: str) -> bool:
    """Tell whether *text* is one of the lines above the rows."""
    return bool(
        HEADER.match(text)
        or EXPLANATION.match(text)
        or TICKS.match(text)
        or any(form.search(text) for _, form in FACTS)
    )


def _output(lines: Sequence[Line], command: str | None) -> tuple[Reading | None, list[Inconsistency], set[int]]:
    """Return the reading in *lines*, what contradicts itself in it, and the places of figures that are not in it."""
    version: str | None = None
    facts: dict[str, int] = {}
    ticks: str | None = None
    notes: list[str] = []
    loose: set[int] = set()
    missing: list[str] = []
    faults: list[Inconsistency] = []
    intervals: list[JitterInterval] = []
    resets: set[int] = set()
    headed = False
    for line in lines:
        text = line.text.strip()
        if banner := BANNER.search(text):
            version = banner[1]
        elif HEADER.match(text):
            headed = HEADING.match(re.sub(r"\s+", " ", text.lower())) is not None
            if not headed:
                missing.append(f"expected the heading of nine columns, found {shortened(text)}")
        elif said := [(name, match) for name, form in FACTS if (match := form.search(text))]:
            facts |= {name: int(match[1]) for name, match in said}
        elif clock := TICKS.match(text):
            ticks = clock[1]
        elif EXPLANATION.match(text):
            continue
        elif headed and (row := _row(line, intervals, missing, faults)) is not None:
            intervals.append(row)
        else:
            if RESET.search(text):
                resets.add(len(intervals))
            notes.append(text)
            if has_figure(text):
                loose.add(line.place)
    if not intervals:
        return None, faults, loose
    iterations = facts.get("iterations")
    if iterations is not None and len(intervals) < iterations:
        missing.append(f"expected {iterations} intervals, found {len(intervals)}")
    faults += contradictions(intervals, resets, facts.get("executions"))
    missing = first_of(missing)
    pinned = TASKSET.search(command or "")
    reading = Reading(
        id="",
        instrument="PMA jitter" if version is None else f"PMA jitter {version}",
        command=command,
        complete=not missing,
        missing=tuple(missing),
        notes=tuple(notes),
        values=ReadJitter(
            cpu=facts.get("cpu", int(pinned[1]) if pinned else None),
            loops=facts.get("loops"),
            executions=facts.get("executions"),
            iterations=iterations,
            ticks=ticks,
            intervals=tuple(intervals),
        ),
    )
    return reading, faults, loose


def _row(
    line: Line, before: Sequence[JitterInterval], missing: list[str], faults: list[Inconsistency]
) -> JitterInterval | None:
    """Return the interval that *line* is; ``None`` for a line that is none, or of which a part is missing."""
    text = line.text.strip()
    bare = text.strip("\"' ,;")
    tokens = re.split(r"\s*,\s*|\s+", bare)
    figures = [whole for each in tokens if (whole := _ticks(each)) is not None]
    if not figures:
        return None
    if len(figures) != len(tokens) or len(figures) != len(COLUMNS):
        missing.append(f"expected a row of {len(COLUMNS)} whole numbers, found {shortened(text)}")
        return None
    row = JitterInterval(**dict(zip(COLUMNS, figures, strict=True)))
    follows = before[-1].sample + 1 if before else 1
    if line.last and row.sample != follows:
        missing.append(f"expected sample {follows}, found {row.sample}: the row was cut off")
        return None
    if row.sample not in {follows, 1}:
        faults.append(inconsistency("COLUMNS_CONTRADICT", f"sample {row.sample}", f"expected sample {follows} here"))
    if bare != text:
        faults.append(
            inconsistency("STRAY_TEXT", f"sample {row.sample}", f"found {text.replace(bare, '')!r} beside the row")
        )
    return row


def _ticks(token: str) -> int | None:
    """Return a count of ticks, which the program keeps in 64 bits; ``None`` where *token* is none."""
    ticks = int(token) if token.isascii() and token.isdigit() and len(token) <= 20 else None
    return ticks if ticks is not None and ticks < 1 << 64 else None


def contradictions(
    intervals: Sequence[JitterInterval], resets: set[int], executions: int | None
) -> Iterator[Inconsistency]:
    """Yield what in *intervals* cannot be: columns that follow from each other and do not.

    *resets* are the places of the intervals before which the statistics were reset, *executions* how often the timed
    work ran in one interval.
    """
    found: dict[str, list[str]] = {}

    def say(what: str, sample: int, detail: str) -> None:
        found.setdefault(what, []).append(f"sample {sample}: {detail}")

    least = most = None
    for place, each in enumerate(intervals):
        if each.inst_jitter_cycles != each.inst_max_cycles - each.inst_min_cycles:
            say(
                "Inst_jitter is not Inst_Max - Inst_Min",
                each.sample,
                f"{each.inst_jitter_cycles}, not {each.inst_max_cycles - each.inst_min_cycles}",
            )
        if not each.inst_min_cycles <= each.last_exec_cycles <= each.inst_max_cycles:
            say("last_Exec lies outside Inst_Min and Inst_Max", each.sample, str(each.last_exec_cycles))
        if place in resets or least is None or most is None or (place and each.sample == 1):
            least, most = each.inst_min_cycles, each.inst_max_cycles
        least, most = min(least, each.inst_min_cycles), max(most, each.inst_max_cycles)
        if each.abs_min_cycles != least:
            say("Abs_Min is not the least Inst_Min so far", each.sample, f"{each.abs_min_cycles}, not {least}")
        if each.abs_max_cycles != most:
            say("Abs_Max is not the largest Inst_Max so far", each.sample, f"{each.abs_max_cycles}, not {most}")
        if executions is not None and each.interval_cycles < executions * each.inst_min_cycles:
            say(
                "Interval is shorter than its executions",
                each.sample,
                f"{each.interval_cycles} for {executions} of at least {each.inst_min_cycles}",
            )
    for what, where in found.items():
        more = len(where) - CONTRADICTIONS_SHOWN
        shown = "; ".join(where[:CONTRADICTIONS_SHOWN]) + (f"; and {more} more" if more > 0 else "")
        yield inconsistency("COLUMNS_CONTRADICT", what, shown)
