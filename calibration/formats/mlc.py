# SPDX-License-Identifier: Apache-2.0
"""Output of Intel Memory Latency Checker 3.x: one or several runs, with or without banners.

Based on published outputs of versions 3.1 to 3.13. A section begins with the sentence that says what is measured; its
tables are recognised by their headings and rows by their form, and every other line is kept as a note. A section
without a unit has no values.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from calibration.base.errors import InputError
from calibration.formats.lines import (
    MAX_NOTES,
    RULE,
    Line,
    first_of,
    has_number,
    lines_of,
    number,
    shortened,
    whole_number,
)
from calibration.formats.mlc_sections import (
    HEADER,
    INJECT,
    LOCAL,
    Output,
    Section,
    parse_mix,
    section_end,
    section_kind,
    split_outputs,
)
from calibration.formats.mlc_tables import homed_tables, scaled, tables_in
from calibration.formats.mlc_units import BANDWIDTH_UNIT, LATENCY_UNIT, RATE_WORD, TIME, TIME_WORD, unit_size
from calibration.formats.readings import (
    NotRead,
    Read,
    ReadIdleLatency,
    Reading,
    ReadLoadedLatency,
    ReadLoadedPoint,
    ReadMixes,
    ReadValues,
    inconsistency,
    joined,
    table_reading,
)
from calibration.measurements.loaded_latency import MLC_DELAYS
from calibration.measurements.mlc_program import NAME
from calibration.measurements.traffic import MIXES

IDLE: Final = re.compile(
    r"^(?P<where>.{0,400}?)Each iteration took\s{1,40}(?P<clocks>[\d.,]{1,24}|-)\s{1,40}(?P<clock>[a-z ]{0,60}clocks)"
    rf"\s{{0,40}}\(\s{{0,40}}(?P<time>[\d.,]{{1,24}})\s{{0,40}}{TIME}\s{{0,40}}\)",
    re.IGNORECASE,
)
CPU: Final = re.compile(r"\b(?:cpu|core)[ #:]{0,9}(\d{1,5})\b", re.IGNORECASE)
NODE: Final = re.compile(r"\bnode[ #:]{0,9}(\d{1,5})\b", re.IGNORECASE)
CPUS: Final = ("cpu", "core")
"""Labels of rows that are not nodes."""

BUFFER: Final = re.compile(r"-b(\d{1,12})([mMgG]?)", re.ASCII)
"""The buffer of each thread, in KiB, MiB or GiB."""

LEAST_BUFFER_MIB: Final = 100
"""The smallest that MLC takes by itself."""

NO_UNIT: Final = "no unit given"
MAX_LINES: Final = 20_000
"""Most lines of results in one text: twice a matrix of 8192 CPUs."""


MAX_OUTPUT_LINES: Final = 4_000
"""Most lines of one command's output: latencies of 1024 CPUs have a quarter. Each reading has all of the notes."""

MAX_NOTE_CHARACTERS: Final = 4 << 20
"""Most characters of notes in all readings of one command; usually a few hundred."""


def read_output(content: bytes, argv: Sequence[str]) -> tuple[Reading, ...]:
    """Return the results in the output of the command *argv*. Raises ``InputError`` if there are none, or too many."""
    lines = lines_of(content.decode("utf-8", "replace"), whole=True)
    if len(lines) > MAX_OUTPUT_LINES:
        raise InputError(f"at most {MAX_OUTPUT_LINES} lines of {NAME} are read, it printed {len(lines)}")
    read = mlc_results(lines, shlex.join(argv) or None, set())
    if not read.readings:
        reasons = "; ".join(first_of([gone.reason for gone in read.not_read], 5))
        raise InputError(f"no result in what {NAME} printed{reasons and f': {reasons}'}")
    if sum(len(note) for reading in read.readings for note in reading.notes) > MAX_NOTE_CHARACTERS:
        raise InputError(f"{NAME} printed too much besides its results: at most {MAX_NOTE_CHARACTERS} characters")
    return read.readings


def mlc_results(lines: Sequence[Line], command: str | None, understood: set[int]) -> Read:
    """Return the content of *lines*, printed by *command*; add the places of recognised lines to *understood*."""
    found: list[Read] = []
    count = 0
    for output in split_outputs(lines, command, understood):
        before = {line.place for line in output.before if not has_number(line.text)}
        for section in output.sections:
            section.lines = section.lines[: section_end(section)]
            count += len(section.lines)
            if count > MAX_LINES:
                raise InputError(f"at most {MAX_LINES} lines of {NAME}'s results are read")
            other = _other_quantity(section.kind, output.options)
            values = list(READERS[section.kind](section, output.options)) if other is None else []
            found.append(Read(not_read=(_not_read(section, other),)) if other else _read(section, output, values))
            loose = {line.place for line in section.notes if has_number(line.text)}
            understood |= {line.place for line in section.lines} - loose
            understood |= before if values else set()
    return joined(found)


def _other_quantity(kind: str, options: Sequence[str]) -> str | None:
    """Return why a section has not what its heading says, by the options of the command; None if it has."""
    for option in options:
        if kind in {"bandwidth_matrix", "loaded_latency"} and re.fullmatch(r"-W\d{1,3}", option, re.ASCII):
            return f"{option}: traffic of reads and writes, not of reads alone"
        size = BUFFER.fullmatch(option)
        if kind in {"idle_latency", "latency_matrix"} and size is not None:
            mib = int(size[1]) * {"": 1 / 1024, "m": 1, "g": 1024}[size[2].lower()]
            if mib < LEAST_BUFFER_MIB:
                return f"{option}: caches may hold a buffer of {mib:g} MiB, so that it is no latency of memory"
    return None


def _not_read(section: Section, reason: str) -> NotRead:
    return NotRead(kind=section.kind, what=section.lines[0].text.strip(), reason=reason)


def _read(section: Section, output: Output, values: Sequence[ReadValues]) -> Read:
    """Return the *values* of a *section* as readings, or why it has none."""
    title = section.lines[0].text.strip()
    missing = first_of(section.missing)
    notes = tuple(first_of([line.text.strip() for line in (*output.before, *section.notes)], MAX_NOTES))
    faults = [
        inconsistency("NOT_UNDERSTOOD", title, f"no reader knows the column {shortened(column)}")
        for column in section.columns
    ]
    if missing:
        code = "UNIT_NOT_SAID" if NO_UNIT in missing else "TRUNCATED"
        faults.append(inconsistency(code, title, "; ".join(missing)))
    instrument = NAME if output.version is None else f"{NAME} {output.version}"
    reason = "; ".join(missing) or "no value could be read"
    return Read(
        readings=tuple(
            Reading(instrument=instrument, command=output.command, missing=tuple(missing), notes=notes, values=value)
            for value in values
        ),
        not_read=() if values else (_not_read(section, reason),),
        inconsistencies=tuple(faults),
    )


def _idle_latency(section: Section, _options: Sequence[str]) -> Iterator[ReadValues]:
    for line in section.lines:
        match = IDLE.match(line.text)
        time = number(match["time"]) if match else None
        if match is None or time is None:
            if section_kind(line.text) == "idle_latency":
                section.missing.append(f"no clocks and time with a unit: {shortened(line.text)}")
            else:
                section.notes.append(line)
            continue
        cpu, node = CPU.search(match["where"]), NODE.search(match["where"])
        yield ReadIdleLatency(
            cpu=int(cpu[1]) if cpu else None,
            node=int(node[1]) if node else None,
            latency_ns=time * unit_size(match),
            clocks=number(match["clocks"]),
            clock=match["clock"].strip(),
        )


def _matrix(section: Section, options: Sequence[str]) -> Iterator[ReadValues]:
    tables = tables_in(section, section.lines[1:])
    section.columns += [heading for table in tables for heading in table.more]
    if (scale := _scale(section)) is None:
        section.missing.append(NO_UNIT)
        return
    for table in tables:
        cells = list(scaled(table, scale))
        if section.kind == "bandwidth_matrix" or (table.label not in CPUS and "-a" not in options):
            column = "latency_ns" if section.kind == "latency_matrix" else "bandwidth_mb_s"
            rows = [{"cpu_node": row, "memory_node": node, column: cell} for row, node, cell in cells]
            yield from table_reading(section.kind, rows)
        else:
            for cpu, node, cell in cells:
                if cell is not None:
                    yield ReadIdleLatency(cpu=cpu, node=node, latency_ns=cell, clocks=None, clock=None)


def _mixes(section: Section, _options: Sequence[str]) -> Iterator[ReadValues]:
    scale = _scale(section)
    found: dict[str, float] = {}
    for line in section.lines[1:]:
        mix = parse_mix(line.text)
        if mix is None:
            section.notes.append(line)
            continue
        unit = scale if mix.unit is None else unit_size(mix.unit)
        if mix.name is None:
            section.missing.append(f"not a known mix: {shortened(mix.label)}")
        elif mix.value is None or line.cut:
            section.missing.append(f"{mix.name}: not a bandwidth, or cut off: {shortened(mix.cell)}")
        elif mix.name in found:
            section.missing.append(f"{mix.name}: printed twice")
        elif unit is not None:
            found[mix.name] = mix.value * unit
    if scale is None and not found:
        section.missing.append(NO_UNIT)
    elif absent := [mix for mix in MIXES if mix not in found]:
        section.missing.append(f"no value for {', '.join(absent)}")
    if found:
        yield ReadMixes.model_validate({"kind": section.kind, "bandwidth_mb_s": found})


SWEEP_UNITS: Final = {"latency": TIME_WORD, "bandwidth": RATE_WORD}


def _sweep_columns(words: Sequence[str]) -> list[str]:
    """Return the columns named by *words* of a heading of delays, without units; empty unless both appear once."""
    units = (TIME_WORD, RATE_WORD, re.compile("delay"))
    names = [word for word in words if not any(unit.fullmatch(word) for unit in units)]
    return names if all(names.count(name) == 1 for name in SWEEP_UNITS) else []


def _sweep_scales(words: Sequence[str]) -> dict[str, float]:
    """Return the sizes of the first units of latency and bandwidth among *words* of a heading."""
    matches = ((name, form.fullmatch(word)) for word in reversed(words) for name, form in SWEEP_UNITS.items())
    return {name: unit_size(match) for name, match in matches if match}


def _loaded_latency(section: Section, options: Sequence[str]) -> Iterator[ReadValues]:
    points: dict[int, ReadLoadedPoint] = {}
    columns: list[str] = []
    scales: dict[str, float] = {}
    for line in section.lines[0 if INJECT.match(section.lines[0].text) else 1 :]:
        words = line.text.lower().split()
        delay = whole_number(words[0])
        headings = re.findall(r"[a-z\u00b5\u03bc/%]+", line.text.lower())
        if INJECT.match(line.text) and (named := _sweep_columns(headings)):
            columns, scales = named, _sweep_scales(headings)
            section.columns = [name for name in columns if name not in {"inject", *SWEEP_UNITS}]
        elif columns and words[0] == "delay":
            scales = _sweep_scales(headings)
        elif columns and delay is not None and (line.cut or number(words[-1]) is not None):
            cells = dict(zip(columns, map(number, line.words), strict=False))
            latency, bandwidth = cells.get("latency"), cells.get("bandwidth")
            if delay in points:
                section.missing.append(f"delay {delay}: printed twice")
            elif latency is None or bandwidth is None:
                section.missing.append(f"not a whole row of delay, latency and bandwidth: {shortened(line.text)}")
            elif SWEEP_UNITS.keys() <= scales.keys():
                points[delay] = ReadLoadedPoint(
                    inject_delay=delay,
                    latency_ns=latency * scales["latency"],
                    bandwidth_mb_s=bandwidth * scales["bandwidth"],
                )
        elif not RULE.fullmatch(line.text):
            section.notes.append(line)
    if columns and not SWEEP_UNITS.keys() <= scales.keys():
        section.missing.append(NO_UNIT)
    chosen = any(option.startswith(("-d", "-g")) for option in options)
    if points and not chosen and len(points) < len(MLC_DELAYS) and tuple(points) == MLC_DELAYS[: len(points)]:
        section.missing.append(f"{len(points)} of the {len(MLC_DELAYS)} delays of a sweep")
    if points:
        yield ReadLoadedLatency(points=tuple(points.values()))


def _c2c_latency(section: Section, _options: Sequence[str]) -> Iterator[ReadValues]:
    if (scale := _scale(section)) is None:
        section.missing.append(NO_UNIT)
        return
    local: dict[str, float] = {}
    rest: list[Line] = []
    for line in section.lines[1:]:
        match = LOCAL.match(line.text)
        if match is None:
            rest.append(line)
        elif (value := number(match[2])) is not None and not line.cut:
            local[f"local_{match[1].lower()}"] = value * scale
        elif match[2] != "-":
            section.missing.append(f"local {match[1].upper()}: not a latency, or cut off: {shortened(match[2])}")
    rows: list[dict[str, Any]] = [{"transfer": kind, "latency_ns": local[kind]} for kind in sorted(local)]
    for homed, table in sorted(homed_tables(section, rest).items(), reverse=True):
        rows += [
            {"transfer": f"remote_hitm_{homed}_homed", "writer_node": row, "reader_node": node, "latency_ns": cell}
            for row, node, cell in scaled(table, scale)
            if row in table.columns
        ]
    yield from table_reading(section.kind, rows)


def _scale(section: Section) -> float | None:
    """Return the size in ns or in MB/s of the section's unit; ``None`` if the text does not give it.

    The unit of latencies stands above their table.
    """
    latency = section.kind in {"latency_matrix", "c2c_latency"}
    for line in section.lines:
        rows = section.key(line.text) is not None or HEADER.match(line.text)
        if latency and rows and line is not section.lines[0]:
            return None
        if match := (LATENCY_UNIT if latency else BANDWIDTH_UNIT).search(line.text):
            size_bytes = None if latency else match["bytes"]
            return unit_size(match) if size_bytes is None else int(size_bytes.replace(",", "")) / 1e6
    return None


READERS: Final[Mapping[str, Callable[[Section, Sequence[str]], Iterator[ReadValues]]]] = {
    "idle_latency": _idle_latency,
    "latency_matrix": _matrix,
    "bandwidth_matrix": _matrix,
    "peak_injection_bandwidth": _mixes,
    "max_bandwidth": _mixes,
    "loaded_latency": _loaded_latency,
    "c2c_latency": _c2c_latency,
}
