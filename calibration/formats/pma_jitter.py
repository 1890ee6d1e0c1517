# SPDX-License-Identifier: Apache-2.0
"""Output of PMA jitter 1.8 and 1.9: columns or comma-separated values, headings repeated or once.

Source: the program itself (``jitter.c`` of Intel's PMA tools, BSD licence) and its published outputs.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from calibration.formats.lines import Line, first_of, has_number, shortened
from calibration.formats.readings import Inconsistency, NotRead, Read, Reading, ReadJitter, inconsistency, joined
from calibration.sutprobe.jitter import JitterInterval

BANNER: Final = re.compile(r"Jitter testing program version (\d[\w.]*)", re.IGNORECASE)
HEADER: Final = re.compile(r"^\s*Inst_Min[\s,]+Inst_Max\b", re.IGNORECASE)
HEADING: Final = re.compile(
    r"^inst_min[\s,]+inst_max[\s,]+inst_jitter[\s,]+last_exec[\s,]+abs_min[\s,]+abs_max[\s,]+tmp[\s,]+interval[\s,]+"
    r"sample[ _]no$"
)
SETTINGS: Final = {
    "iterations": re.compile(r"^\s*Iterations=(\d{1,9})\b"),
    "loops": re.compile(r"dummy function (\d{1,9}) times"),
    "executions": re.compile(r"Display is updated every (\d{1,9}) "),
    "cpu": re.compile(r"affinity will be set to core_id:\s*(\d{1,5})\b"),
}
TASKSET: Final = re.compile(r"\btaskset\s{1,9}(?:-\w{0,4}c\w{0,4}|--cpu-list)\s{1,9}(\d{1,5})(?![\d,-])")
"""The one CPU that a command pins its child to."""

TICKS: Final = re.compile(r"^\s*Timings are in (.{1,80})$")
RESET: Final = re.compile(r"\breset\b", re.IGNORECASE)
EXPLANATION: Final = re.compile(
    r"^\s*(?:Inst_Min|Inst_Max|Inst_jitter|last_Exec|Abs_Min|Abs_Max|tmp|Interval|Sample No):\s", re.IGNORECASE
)
COLUMNS: Final = tuple(JitterInterval.model_fields)
"""The columns in order, equal to the fields of an interval."""

TICKS_END: Final = 1 << 64
"""Upper bound of ticks: 64 bits."""

CONTRADICTIONS_SHOWN: Final = 3
"""Rows named per contradiction; the rest is counted."""


def jitter_results(lines: Sequence[Line], command: str | None, understood: set[int]) -> Read:
    """Return the content of *lines*, printed by *command*; add the places of recognised lines to *understood*."""
    return joined(
        [
            _output(output, command, understood)
            for output in _outputs([line for line in lines if line.place not in understood])
        ]
    )


def _outputs(lines: Sequence[Line]) -> Iterator[list[Line]]:
    """Yield the lines of each run of the program, from its banner or first known line."""
    found: list[Line] = []
    begun = rows = False
    for line in lines:
        banner, numbers = BANNER.search(line.text), has_number(line.text)
        preamble = banner or any(form.search(line.text) for form in (HEADER, EXPLANATION, TICKS, *SETTINGS.values()))
        if begun and (banner or (rows and line.gap and not numbers and not preamble and not RESET.search(line.text))):
            yield found
            found, begun, rows = [], False, False
        if found or preamble:
            found.append(line)
        begun = begun or bool(banner or HEADER.match(line.text))
        rows = rows or bool(begun and numbers and not preamble)
    if begun:
        yield found


def _output(lines: Sequence[Line], command: str | None, understood: set[int]) -> Read:
    """Return the content of one run's *lines*; a line with numbers that is not a row is not *understood*."""
    version = ticks = None
    settings: dict[str, int] = {}
    notes: list[str] = []
    missing: list[str] = []
    faults: list[Inconsistency] = []
    intervals: list[JitterInterval] = []
    resets: set[int] = set()
    headed = False
    for line in lines:
        text = line.text.strip()
        understood.add(line.place)
        if EXPLANATION.match(text):
            continue
        if banner := BANNER.search(text):
            version = banner[1]
        elif HEADER.match(text):
            headed = HEADING.match(re.sub(r"\s+", " ", text.lower())) is not None
            if not headed:
                missing.append(f"not the heading of nine columns: {shortened(text)}")
        elif given := {name: int(match[1]) for name, form in SETTINGS.items() if (match := form.search(text))}:
            settings |= given
        elif clock := TICKS.match(text):
            ticks = clock[1]
        elif headed and (row := _row(line, intervals, missing, faults)) is not None:
            intervals.append(row)
        else:
            if RESET.search(text):
                resets.add(len(intervals))
            if has_number(text):
                understood.remove(line.place)
            notes.append(text)
    title = lines[0].text.strip()
    if not intervals:
        gone = NotRead(kind="jitter", what=title, reason="it has no whole interval")
        return Read(not_read=(gone,), inconsistencies=tuple(faults))
    iterations, executions = settings.get("iterations"), settings.get("executions")
    if iterations is not None and len(intervals) < iterations:
        missing.append(f"{len(intervals)} of {iterations} intervals")
    faults += _contradictions(intervals, resets, executions)
    missing = first_of(missing)
    if missing:
        faults.append(inconsistency("TRUNCATED", title, "; ".join(missing)))
    pinned = TASKSET.search(command or "")
    reading = Reading(
        instrument="PMA jitter" if version is None else f"PMA jitter {version}",
        command=command,
        missing=tuple(missing),
        notes=tuple(notes),
        values=ReadJitter(
            cpu=settings.get("cpu", int(pinned[1]) if pinned else None),
            loops=settings.get("loops"),
            executions=executions,
            iterations=iterations,
            ticks=ticks,
            intervals=tuple(intervals),
        ),
    )
    return Read(readings=(reading,), inconsistencies=tuple(faults))


def _row(
    line: Line, before: Sequence[JitterInterval], missing: list[str], faults: list[Inconsistency]
) -> JitterInterval | None:
    """Return the interval in *line*; ``None`` unless it is a complete row."""
    text = line.text.strip()
    bare = text.strip("\"' ,;")
    words = re.split(r"\s*,\s*|\s+", bare)
    ticks = [int(word) for word in words if word.isascii() and word.isdigit() and len(word) <= 20]
    counts = [count for count in ticks if count < TICKS_END]
    if not counts:
        return None
    if len(counts) != len(words) or len(counts) != len(COLUMNS):
        missing.append(f"not a row of {len(COLUMNS)} whole numbers: {shortened(text)}")
        return None
    row = JitterInterval(**dict(zip(COLUMNS, counts, strict=True)))
    follows = before[-1].sample + 1 if before else 1
    if line.last and row.sample != follows:
        missing.append(f"sample {row.sample} in place of {follows}: the row was cut off")
        return None
    where = f"sample {row.sample}"
    if row.sample not in {follows, 1}:
        faults.append(inconsistency("COLUMNS_CONTRADICT", where, f"sample {follows} is missing before it"))
    if bare != text:
        faults.append(inconsistency("STRAY_TEXT", where, f"{text.replace(bare, '')!r} beside the row"))
    return row


def _contradictions(
    intervals: Sequence[JitterInterval], resets: set[int], executions: int | None
) -> Iterator[Inconsistency]:
    """Yield contradictions in *intervals*: columns that do not add up.

    *resets* are the places of the intervals before which the statistics were reset, *executions* the number of runs of
    the timed work per interval.
    """
    found: dict[str, list[str]] = {}
    least, most = intervals[0].inst_min_cycles, intervals[0].inst_max_cycles
    for place, row in enumerate(intervals):
        low, high = row.inst_min_cycles, row.inst_max_cycles
        if place in resets or row.sample == 1:
            least, most = low, high
        least, most = min(least, low), max(most, high)
        equal = {
            "Inst_jitter is not Inst_Max - Inst_Min": (row.inst_jitter_cycles, high - low),
            "Abs_Min is not the least Inst_Min so far": (row.abs_min_cycles, least),
            "Abs_Max is not the largest Inst_Max so far": (row.abs_max_cycles, most),
        }
        wrong = {what: f"{one}, not {other}" for what, (one, other) in equal.items() if one != other}
        if not low <= row.last_exec_cycles <= high:
            wrong["last_Exec lies outside Inst_Min and Inst_Max"] = str(row.last_exec_cycles)
        if executions is not None and row.interval_cycles < executions * low:
            shown = f"{row.interval_cycles} for {executions} of at least {low}"
            wrong["Interval is shorter than its executions"] = shown
        for what, detail in wrong.items():
            found.setdefault(what, []).append(f"sample {row.sample}: {detail}")
    for what, samples in found.items():
        yield inconsistency("COLUMNS_CONTRADICT", what, "; ".join(first_of(samples, CONTRADICTIONS_SHOWN)))
