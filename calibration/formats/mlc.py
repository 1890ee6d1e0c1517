# SPDX-License-Identifier: Apache-2.0
"""What Intel Memory Latency Checker 3.x prints: one output or several after each other, with or without their banners.

Written from published outputs of the versions 3.1 to 3.13. A section begins with the sentence that says what is
measured; within it tables are recognised by their headings and rows by their form, and every other line is kept as a
note. A figure needs its unit: a section whose text does not say it has no values.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from calibration.formats.lines import Line, believable, lines_of, number, whole_number
from calibration.measurements.base import PROBE
from calibration.measurements.traffic import BUFFERS, MIXES
from calibration.results.readings import (
    Inconsistency,
    NotRead,
    Read,
    ReadBandwidthMatrix,
    ReadC2cLatency,
    ReadIdleLatency,
    Reading,
    ReadLatencyMatrix,
    ReadLoadedLatency,
    ReadLoadedPoint,
    ReadMaxBandwidth,
    ReadPeakInjectionBandwidth,
    ReadValues,
    inconsistency,
    numbered,
)

BANNER: Final = re.compile(r"Intel\(R\) Memory Latency Checker - v(\d[\w.]*)")
COMMAND_LINE: Final = re.compile(r"Command line parameters:\s*(.*)")
PROMPT: Final = re.compile(r"^[^$#>]{0,200}[$#>]\s+(.*\bmlc\S*\s.*)$")

SECTIONS: Final = (
    ("latency_matrix", re.compile(r"Measuring (?:idle )?latencies\b", re.IGNORECASE)),
    ("bandwidth_matrix", re.compile(r"Measuring Memory Bandwidths between nodes", re.IGNORECASE)),
    ("peak_injection_bandwidth", re.compile(r"Measuring Peak Injection Memory Bandwidths?", re.IGNORECASE)),
    ("max_bandwidth", re.compile(r"Measuring Maximum Memory Bandwidths?", re.IGNORECASE)),
    ("loaded_latency", re.compile(r"Measuring Loaded Latencies", re.IGNORECASE)),
    ("c2c_latency", re.compile(r"Measuring cache-to-cache transfer latency", re.IGNORECASE)),
)
"""The sentence that begins the section of each kind."""

IDLE: Final = re.compile(
    r"^(?P<where>.*?)Each iteration took\s+(?P<clocks>[\d.]+|-)\s+(?P<clock>[a-z ]*clocks)\s*"
    r"\(\s*(?P<time>[\d.]+)\s*(?P<unit>ns|us|µs|ms)\s*\)",
    re.IGNORECASE,
)
CPU: Final = re.compile(r"\b(?:cpu|core)[ #:]*(\d{1,5})\b", re.IGNORECASE)
NODE: Final = re.compile(r"\bnode[ #:]*(\d{1,5})\b", re.IGNORECASE)
LATENCY_UNIT: Final = re.compile(r"\(in (ns|us|µs|ms)\)", re.IGNORECASE)
BANDWIDTH_UNIT: Final = re.compile(
    r"Bandwidths? (?:are|is) in ([KMG]i?B)/s(?:ec)?\b(?:\s*\(1 [KMG]i?B/s(?:ec)? = ([\d,]+) Bytes/s(?:ec)?\))?",
    re.IGNORECASE,
)
RATE_UNIT: Final = re.compile(r"([KMG]i?B)/s(?:ec)?", re.IGNORECASE)
TIME_UNIT: Final = re.compile(r"\(?(ns|us|µs|ms)\)?", re.IGNORECASE)
HEADER: Final = re.compile(
    r"^\s*(?:Writer |Reader )?(Numa node|Memory node|Socket|Node|CPU|Core)\b"
    r"((?:\s+\d{1,5})*)((?:\s+[A-Za-z%()/]+){0,3})\s*$",
    re.IGNORECASE,
)
"""The heading of a table of nodes: what its rows are, the columns' nodes, and headings of columns that are no nodes."""

HOMED: Final = re.compile(r"homed in (writer|reader) (?:socket|node)", re.IGNORECASE)
MIX: Final = re.compile(r"^\s*(\S.*?)\s*:\s*(\S+)\s*$")

TO_NS: Final = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6}
TO_MB_S: Final = {"kb": 1e-3, "mb": 1.0, "gb": 1e3, "kib": 1024e-6, "mib": 1.048576, "gib": 1073.741824}

MIX_NAMES: Final = {
    "all reads": "reads",
    "3:1 reads-writes": "3:1",
    "2:1 reads-writes": "2:1",
    "1:1 reads-writes": "1:1",
    "stream-triad like": "stream_triad",
    **{mix: mix for mix in BUFFERS},
}
"""The mixes as MLC names them, and as pages of this project name those that MLC does not have."""

DELAYS: Final = (0, 2, 8, 15, 50, 100, 200, 300, 400, 500, 700, 1000, 1300, 1700, 2500, 3500, 5000, 9000, 20000)
"""The delays of a sweep that was told no others."""


@dataclass
class _Output:
    """What one start of the program printed: its banner, the lines before the first section, and the sections."""

    version: str | None = None
    parameters: str | None = None
    command: str | None = None
    notes: list[str] = field(default_factory=list)
    sections: list["_Section"] = field(default_factory=list)

    @property
    def begun(self) -> bool:
        return self.version is not None or bool(self.sections)

    @property
    def own(self) -> bool:
        """Whether it is the output of this project's own kernel, which pages lay out as MLC does."""
        return self.command is not None and self.command.startswith(f"{PROBE} ")

    @property
    def instrument(self) -> str:
        return PROBE if self.own else "Intel MLC" if self.version is None else f"Intel MLC {self.version}"


@dataclass
class _Section:
    """The lines of one section; the first is its heading."""

    kind: str
    lines: list[Line]


class _Found(NamedTuple):
    """What a section says: its values, what of it is missing, and the lines that are no figures."""

    values: list[ReadValues]
    missing: list[str]
    notes: list[str]


def read_mlc(text: str, *, whole: bool | None = None, command: str | None = None) -> Read:
    """Return what *text* says; nothing where no section of MLC's is recognised in it.

    *command* is the shell line that printed it, where it is not part of the text. *whole* as for ``lines_of``.
    """
    readings: list[Reading] = []
    not_read: list[NotRead] = []
    faults: list[Inconsistency] = []
    for output in _outputs(lines_of(text, whole=whole), command):
        for section in output.sections:
            found = READERS[section.kind](section, output)
            title = section.lines[0].text.strip()
            if not found.values:
                reason = "; ".join(found.missing) or "no figure of it could be read"
                not_read.append(NotRead(kind=section.kind, what=title, reason=reason))
            readings += [
                Reading(
                    id="",
                    instrument=output.instrument,
                    command=output.command,
                    complete=not found.missing,
                    missing=tuple(found.missing),
                    notes=(*output.notes, *found.notes),
                    values=values,
                )
                for values in found.values
            ]
            if found.missing:
                code = "UNIT_NOT_SAID" if NO_UNIT in found.missing else "TRUNCATED"
                faults.append(inconsistency(code, title, "; ".join(found.missing)))
    return Read(readings=numbered(readings), not_read=tuple(not_read), inconsistencies=tuple(faults))


def _outputs(lines: Sequence[Line], command: str | None) -> Iterator[_Output]:
    output = _Output(command=command)
    for line in lines:
        if prompt := PROMPT.match(line.text):
            yield output
            output = _Output(command=prompt[1])
        elif banner := BANNER.search(line.text):
            if output.begun:
                yield output
                output = _Output(command=command)
            output.version = banner[1]
        elif parameters := COMMAND_LINE.search(line.text):
            output.parameters = parameters[1].strip()
        elif (kind := _kind(line.text)) is not None:
            if kind == "idle_latency" and output.sections and output.sections[-1].kind == kind:
                output.sections[-1].lines.append(line)
            else:
                output.sections.append(_Section(kind, [line]))
        elif output.sections:
            output.sections[-1].lines.append(line)
        else:
            output.notes.append(line.text.strip())
    yield output


def _kind(text: str) -> str | None:
    """Return the kind of the section that *text* begins; an idle latency is a section of one line."""
    if "each iteration took" in text.lower():
        return "idle_latency"
    return next((kind for kind, sentence in SECTIONS if sentence.search(text)), None)


def _idle_latency(section: _Section, output: _Output) -> _Found:
    values: list[ReadValues] = []
    missing, notes = [], []
    for line in section.lines:
        match = IDLE.match(line.text)
        clocks, time = (number(match["clocks"]), number(match["time"])) if match else (None, None)
        if match is None or time is None:
            if _kind(line.text) is None:
                notes.append(line.text.strip())
            else:
                missing.append(f"expected clocks and a time with its unit, found {line.text.strip()[:80]!r}")
            continue
        place = match["where"] or " ".join(output.notes if output.own else ())
        cpu, node = CPU.search(place), NODE.search(place)
        values.append(
            ReadIdleLatency(
                cpu=None if cpu is None else int(cpu[1]),
                node=None if node is None else int(node[1]),
                latency_ns=_scaled(time, TO_NS[match["unit"].lower()]),
                clocks=clocks,
                clock=match["clock"].strip(),
                of_many=CPU.search(match["where"]) is not None,
            )
        )
    return _Found(values, missing, notes)


@dataclass
class _Table:
    """A table of nodes: the label of its rows, its columns, and its rows in order."""

    label: str
    columns: tuple[int, ...]
    width: int
    rows: dict[int, tuple[float | None, ...]] = field(default_factory=dict)


def _tables(lines: Sequence[Line], missing: list[str], notes: list[str]) -> Iterator[tuple[_Table, str | None]]:
    """Yield each table in *lines*, and where its lines are homed, as the sentence above it says.

    A heading that is repeated in the middle of its table is passed over.
    """
    table: _Table | None = None
    homed: str | None = None
    seen: list[str] = []
    for line in lines:
        if match := HOMED.search(line.text):
            if table is not None:
                yield table, homed
            table, homed = None, match[1].lower()
        elif header := HEADER.match(line.text):
            columns = tuple(map(int, header[2].split()))
            if not columns or (table is not None and table.columns == columns):
                continue
            if table is not None:
                yield table, homed
            table = _Table(header[1].lower(), columns, len(columns) + len(header[3].split()))
            if len(set(columns)) != len(columns):
                missing.append(f"expected a heading of different nodes, found {line.text.strip()[:80]!r}")
                table = None
        elif table is None or not _row(line, table, seen, missing):
            notes.append(line.text.strip())
    if table is not None:
        yield table, homed


def _row(line: Line, table: _Table, seen: list[str], missing: list[str]) -> bool:
    """Take *line* into *table* and return whether it is a row of it; what of it cannot be read goes to *missing*."""
    tokens = line.text.split()
    row = whole_number(tokens[0])
    texts = tokens[1:]
    figures = [number(each) for each in texts]
    readable = (each == "-" or figure is not None for each, figure in zip(texts, figures, strict=True))
    if row is None or not texts or not all(readable):
        damaged = row is not None and any(figure is not None for figure in figures)
        if damaged and row is not None and row not in table.rows:
            missing.append(f"row {row}: expected {len(table.columns)} figures, found {line.text.strip()[:80]!r}")
            table.rows[row] = (None,) * len(table.columns)
        return damaged
    if row in table.rows:
        missing.append(f"row {row} is there twice")
        table.rows[row] = (None,) * len(table.columns)
        return True
    whole = list(texts)
    short = len(texts) < table.width
    if (line.cut or (line.last and short)) and whole[-1] != "-" and not believable(whole[-1], seen + whole[:-1], 1):
        whole.pop()
        short = True
    if len(texts) > table.width or (short and not line.last):
        missing.append(f"row {row}: expected {table.width} figures, found {len(texts)}")
        whole = []
    elif short:
        missing.append(f"row {row} was cut off after {len(whole)} of {table.width} figures")
    seen += whole
    cells = [number(each) for each in whole[: len(table.columns)]]
    table.rows[row] = (*cells, *(None,) * (len(table.columns) - len(cells)))
    return True


def _matrix(section: _Section, output: _Output) -> _Found:
    missing: list[str] = []
    notes: list[str] = []
    values: list[ReadValues] = []
    if section.kind == "latency_matrix":
        unit = LATENCY_UNIT.search(section.lines[0].text)
        scale = TO_NS[unit[1].lower()] if unit else None
    else:
        scale = _bandwidth_scale(section.lines)
    tables = list(_tables(section.lines[1:], missing, notes))
    if scale is None:
        missing.append(NO_UNIT)
        tables = []
    for table, _ in tables:
        rows = {row: line for row, line in table.rows.items() if any(cell is not None for cell in line)}
        if not rows or scale is None:
            continue
        cells = {row: _scaled_row(line, scale) for row, line in rows.items()}
        per_cpu = table.label in {"cpu", "core"} or "-a" in (output.parameters or output.command or "").split()
        if section.kind == "bandwidth_matrix":
            values.append(
                ReadBandwidthMatrix(
                    cpu_nodes=tuple(cells), memory_nodes=table.columns, bandwidth_mb_s=tuple(cells.values())
                )
            )
        elif per_cpu:
            values += [
                ReadIdleLatency(cpu=cpu, node=node, latency_ns=cell, clocks=None, clock=None, of_many=True)
                for cpu, line in cells.items()
                for node, cell in zip(table.columns, line, strict=True)
                if cell is not None
            ]
        else:
            values.append(
                ReadLatencyMatrix(cpu_nodes=tuple(cells), memory_nodes=table.columns, latency_ns=tuple(cells.values()))
            )
    return _Found(values, missing, notes)


NO_UNIT: Final = "the text does not say the unit of its figures"


def _mixes(section: _Section, output: _Output) -> _Found:
    missing: list[str] = []
    notes: list[str] = []
    found: dict[str, float] = {}
    scale = _bandwidth_scale(section.lines)
    usual = 2 if section.kind == "max_bandwidth" else 1
    seen: list[str] = []
    for line in section.lines[1:]:
        match = MIX.match(line.text)
        mix = MIX_NAMES.get(re.sub(r"\s+", " ", match[1].strip().lower())) if match else None
        value = number(match[2]) if match else None
        if match is None or (mix is None and value is None):
            notes.append(line.text.strip())
        elif mix is None:
            missing.append(f"expected a mix that is known, found {match[1].strip()!r}")
        elif value is None or (line.cut and not believable(match[2], seen, usual)):
            missing.append(f"{mix}: expected its bandwidth, found {match[2][:40]!r}")
        elif mix in found:
            missing.append(f"{mix} is there twice")
        elif scale is not None:
            found[mix] = _scaled(value, scale)
            seen.append(match[2])
    if scale is None:
        missing.append(NO_UNIT)
    elif not output.own and (gone := [mix for mix in MIXES if mix not in found]):
        missing.append(f"no figure for {', '.join(gone)}")
    if not found:
        return _Found([], missing, notes)
    kind = ReadMaxBandwidth if section.kind == "max_bandwidth" else ReadPeakInjectionBandwidth
    plain = any("one forward stream without software prefetch" in note for note in notes)
    return _Found([kind(plain=plain, bandwidth_mb_s=found)], missing, notes)


def _loaded_latency(section: _Section, output: _Output) -> _Found:
    missing: list[str] = []
    notes: list[str] = []
    points: dict[int, ReadLoadedPoint] = {}
    columns: dict[str, int] = {}
    time_scale = rate_scale = None
    seen: dict[str, list[str]] = {"latency": [], "bandwidth": []}
    for line in section.lines[1:]:
        tokens = line.text.lower().split()
        if tokens[0] == "inject" and {"latency", "bandwidth"} <= set(tokens):
            columns = {name: tokens.index(name) for name in ("latency", "bandwidth")}
        elif tokens[0] == "delay" and columns:
            units = {name: tokens[place] if place < len(tokens) else "" for name, place in columns.items()}
            time, rate = TIME_UNIT.fullmatch(units["latency"]), RATE_UNIT.fullmatch(units["bandwidth"])
            time_scale = TO_NS[time[1]] if time else None
            rate_scale = TO_MB_S[rate[1]] if rate else None
        elif columns and (delay := whole_number(tokens[0])) is not None and number(tokens[-1]) is not None:
            texts = {name: tokens[place] for name, place in columns.items() if place < len(tokens)}
            if line.cut and (last := next((name for name, place in columns.items() if place == len(tokens) - 1), None)):
                usual = 2 if last == "latency" else 1
                if not believable(texts[last], seen[last], usual):
                    del texts[last]
            figures = {name: number(each) for name, each in texts.items()}
            latency, bandwidth = figures.get("latency"), figures.get("bandwidth")
            if delay in points:
                missing.append(f"delay {delay} is there twice")
            elif latency is None or bandwidth is None:
                missing.append(f"delay {delay}: expected latency and bandwidth, found {line.text.strip()[:80]!r}")
            elif time_scale is not None and rate_scale is not None:
                points[delay] = ReadLoadedPoint(
                    inject_delay=delay,
                    latency_ns=_scaled(latency, time_scale),
                    bandwidth_mb_s=_scaled(bandwidth, rate_scale),
                )
                for name, each in texts.items():
                    seen[name].append(each)
        elif line.cut and columns and (whole_number(tokens[0]) is not None or len(tokens) == 1):
            missing.append(f"the last row was cut off: {line.text.strip()[:80]!r}")
        elif set(line.text.strip()) != {"="}:
            notes.append(line.text.strip())
    if columns and (time_scale is None or rate_scale is None):
        missing.append(NO_UNIT)
    chosen = output.own or re.search(r"(?:^|\s)-[dg]", output.parameters or output.command or "")
    if points and not chosen and len(points) < len(DELAYS) and tuple(points) == DELAYS[: len(points)]:
        missing.append(f"{len(points)} of the {len(DELAYS)} delays of a sweep")
    return _Found([ReadLoadedLatency(points=tuple(points.values()))] if points else [], missing, notes)


def _c2c_latency(section: _Section, _output: _Output) -> _Found:
    missing: list[str] = []
    notes: list[str] = []
    if (unit := LATENCY_UNIT.search(section.lines[0].text)) is None:
        return _Found([], [NO_UNIT], notes)
    scale = TO_NS[unit[1].lower()]
    local: dict[str, float] = {}
    rest: list[Line] = []
    for line in section.lines[1:]:
        match = re.match(r"^\s*Local Socket .*\b(HITM?)\s+latency\s*(\S*)$", line.text, re.IGNORECASE)
        if match is None:
            rest.append(line)
            continue
        value = number(match[2])
        if value is not None and not (line.cut and not believable(match[2], (), 1)):
            local[match[1].lower()] = _scaled(value, scale)
        elif match[2] != "-":
            missing.append(f"local {match[1].upper()}: expected its latency, found {match[2][:40]!r}")
    matrices: dict[str, _Table] = {}
    for table, homed in _tables(rest, missing, notes):
        if homed is None or homed in matrices:
            missing.append(f"a table of {len(table.columns)} nodes whose lines' home is not said")
            continue
        matrices[homed] = table
        if gone := [node for node in table.columns if node not in table.rows]:
            missing.append(f"no row for {', '.join(f'node {node}' for node in gone)}, {homed} homed")
    nodes = next((table.columns for table in matrices.values()), ())
    for homed in [homed for homed, table in matrices.items() if table.columns != nodes]:
        missing.append(f"expected the same nodes in both tables, found others in the one {homed} homed")
        del matrices[homed]
    headings = [match[1].lower() for line in rest if (match := HOMED.search(line.text))]
    missing += [f"no table of lines {homed} homed" for homed in headings if homed not in matrices]

    def cells(homed: str) -> tuple[tuple[float | None, ...], ...]:
        if homed not in matrices:
            return ()
        rows = matrices[homed].rows
        empty = (None,) * len(nodes)
        return tuple(_scaled_row(rows.get(node, empty), scale) for node in nodes)

    writer, reader = cells("writer"), cells("reader")
    if not local and not any(cell is not None for matrix in (writer, reader) for row in matrix for cell in row):
        return _Found([], missing, notes)
    values = ReadC2cLatency(
        local_hit_ns=local.get("hit"),
        local_hitm_ns=local.get("hitm"),
        nodes=nodes,
        remote_hitm_writer_homed_ns=writer,
        remote_hitm_reader_homed_ns=reader,
    )
    return _Found([values], missing, notes)


def _bandwidth_scale(lines: Sequence[Line]) -> float | None:
    """Return what one unit of the section's figures is in MB/s; ``None`` where the text does not say."""
    for line in lines:
        if match := BANDWIDTH_UNIT.search(line.text):
            if match[2]:
                return int(match[2].replace(",", "")) / 1e6
            return TO_MB_S[match[1].lower()]
    return None


def _scaled(value: float, scale: float) -> float:
    """Return *value* in the unit of the model; one that is in it already keeps its digits."""
    return value if scale == 1 else value * scale


def _scaled_row(cells: Sequence[float | None], scale: float) -> tuple[float | None, ...]:
    return tuple(None if cell is None else _scaled(cell, scale) for cell in cells)


READERS: Final = {
    "idle_latency": _idle_latency,
    "latency_matrix": _matrix,
    "bandwidth_matrix": _matrix,
    "peak_injection_bandwidth": _mixes,
    "max_bandwidth": _mixes,
    "loaded_latency": _loaded_latency,
    "c2c_latency": _c2c_latency,
}
