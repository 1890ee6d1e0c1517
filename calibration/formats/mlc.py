# SPDX-License-Identifier: Apache-2.0
"""Output of Intel Memory Latency Checker 3.x: one or several runs, with or without banners.

Based on published outputs of versions 3.1 to 3.13. A section begins with the sentence that says what is measured; its
tables are recognised by their headings and rows by their form, and every other line is kept as a note. A section
without a unit has no values.
"""

import re
import shlex
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from calibration.cpulists import MAX_ID
from calibration.errors import InputError
from calibration.formats.lines import (
    MAX_NOTES,
    RULE,
    SHOWN,
    Line,
    bare_prompt,
    command_after_prompt,
    first_of,
    has_number,
    lines_of,
    number,
    shortened,
    whole_number,
)
from calibration.formats.pma_jitter import BANNER as JITTER
from calibration.formats.pma_jitter import HEADER as JITTER_HEADER
from calibration.formats.readings import (
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
    Row,
    inconsistency,
    joined,
)
from calibration.measurements.traffic import MIXES
from calibration.mlc import NAME

BANNER: Final = re.compile(r"Memory Latency Checker\s{1,4}-?\s{0,4}v(\d[\w.-]{0,40})", re.IGNORECASE)
COMMAND_LINE: Final = re.compile(r"Command line parameters:(.*)", re.IGNORECASE)
PROMPT: Final = re.compile(r"^[^$#>\u276f%]{0,200}[$#>\u276f%]+:?\s*")
PROGRAM: Final = re.compile(r"mlc(?:_\w{1,20})?(?:\.exe)?", re.IGNORECASE)
NOTES: Final = re.compile(
    r"^\s*(?:\*\*\*|Using\b|Bandwidths? (?:are|is) in\b|Latenc(?:y|ies) (?:are|is) in\b|Will take\b|Unable to\b|"
    r"(?:Large|Small|Huge) pages\b|AVX|Script (?:started|done)\b|(?:Numa|Memory|Reader Numa|Writer Numa)\s+node\s*$)",
    re.IGNORECASE,
)
"""Lines about the method of measurement."""

TIME: Final = r"(?a:(?P<unit>n|u|\u00b5|\u03bc|m|nano|micro|milli)s(?:ec(?:ond)?s?)?)"
RATE: Final = r"(?a:(?P<unit>[KMG]i?B)(?:/s(?:ec(?:ond)?)?| per second))"
TIME_WORD: Final = re.compile(rf"\(?{TIME}\)?", re.IGNORECASE)
RATE_WORD: Final = re.compile(rf"\(?{RATE}\)?", re.IGNORECASE)
LATENCY_UNIT: Final = re.compile(rf"(?:\bin |\(){TIME}\b", re.IGNORECASE)
BANDWIDTH_UNIT: Final = re.compile(
    rf"(?:Bandwidths? (?:are|is) in |\((?:in )?){RATE}\b"
    r"(?:\s{0,9}\(1 [KMG]i?B/s(?:ec)? = (?P<bytes>[1-9][\d,]{0,23}) Bytes/s)?",
    re.IGNORECASE,
)
SCALES: Final[Mapping[str, float]] = {
    **dict.fromkeys(("n", "nano"), 1.0),
    **dict.fromkeys(("u", "\u00b5", "\u03bc", "micro"), 1e3),
    **dict.fromkeys(("m", "milli"), 1e6),
    "kb": 1e-3,
    "mb": 1.0,
    "gb": 1e3,
    "kib": 1024e-6,
    "mib": 1.048576,
    "gib": 1073.741824,
}
"""Size of one unit in ns or in MB/s."""

IDLE: Final = re.compile(
    r"^(?P<where>.{0,400}?)Each iteration took\s{1,40}(?P<clocks>[\d.,]{1,24}|-)\s{1,40}(?P<clock>[a-z ]{0,60}clocks)"
    rf"\s{{0,40}}\(\s{{0,40}}(?P<time>[\d.,]{{1,24}})\s{{0,40}}{TIME}\s{{0,40}}\)",
    re.IGNORECASE,
)
CPU: Final = re.compile(r"\b(?:cpu|core)[ #:]{0,9}(\d{1,5})\b", re.IGNORECASE)
NODE: Final = re.compile(r"\bnode[ #:]{0,9}(\d{1,5})\b", re.IGNORECASE)
HEADER: Final = re.compile(
    r"^\s*(?:(?:Writer|Reader)\s{1,9})?(Numa\s{0,9}node|Memory\s{1,9}node|Socket|Node|CPU|Core)\b"
    r"((?:\s{1,40}\d{1,5})*)((?:\s{1,40}[A-Za-z%()/]{1,40}){0,3})\s*$",
    re.IGNORECASE,
)
"""The heading of a table of nodes: label of its rows, the columns' nodes, and headings of other columns."""

CPUS: Final = ("cpu", "core")
"""Labels of rows that are not nodes."""

INJECT: Final = re.compile(r"^\s*Inject\b.{0,80}\bLatency\b.{0,80}\bBandwidth\b", re.IGNORECASE)
HOMED: Final = re.compile(r"homed in (?:the )?(writer|reader)(?:'s)? (?:socket|node|numa node)", re.IGNORECASE)
LOCAL: Final = re.compile(r"^\s*Local Socket\b.{0,80}\b(HITM?)\s{1,9}latency\s*:?\s*(\S*)$", re.IGNORECASE)
NO_UNIT: Final = "no unit given"

MAX_LINES: Final = 20_000
"""Most lines of results in one text: twice a matrix of 8192 CPUs."""

MAX_COLUMNS: Final = 256
"""Linux on the largest machine sold has fewer nodes; a square of as many as fit into a line would fill the memory."""

LARGE: Final = 16
"""A square of more nodes than this is not completed from a few rows."""

MAX_PATH: Final = 200
"""Characters at the end of a word that are searched for the program's name."""

MAX_OUTPUT_LINES: Final = 4_000
"""Most lines of one command's output: latencies of 1024 CPUs have a quarter. Each reading has all of the notes."""

MAX_NOTE_CHARACTERS: Final = 4 << 20
"""Most characters of notes in all readings of one command; usually a few hundred."""

MIX_NAMES: Final = {
    "all reads": "reads",
    "all read": "reads",
    "read only": "reads",
    "read-only": "reads",
    "stream-triad like": "stream_triad",
    "stream triad like": "stream_triad",
    "stream-triad": "stream_triad",
    "all nt writes": "write_nt",
    "1:1 read-nt write": "copy_nt",
}
"""The mixes by MLC's names."""

RATIO: Final = re.compile(r"(\d{1,2}:\d{1,2}) reads?[-/ ]writes?")
"""The other mixes of MLC: reads to writes."""

DELAYS: Final = (0, 2, 8, 15, 50, 100, 200, 300, 400, 500, 700, 1000, 1300, 1700, 2500, 3500, 5000, 9000, 20000)
"""Default delays of a sweep."""


@dataclass
class _Section:
    """The lines of one section, the first its heading, and what its parser leaves besides values.

    ``missing`` says what was unreadable, ``notes`` are lines without a value, ``columns`` are unrecognised headings of
    columns.
    """

    kind: str
    lines: list[Line]
    rows: bool = False
    missing: list[str] = field(default_factory=list)
    notes: list[Line] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)

    def add(self, line: Line) -> None:
        self.lines.append(line)
        self.rows = self.rows or _key(self.kind, line.text) is not None

    def ended(self, line: Line) -> bool:
        """Return whether *line*, the heading of a sweep of delays, begins another section."""
        repeated = not line.gap and _key(self.kind, self.lines[-1].text) is not None
        return self.kind != "loaded_latency" or (self.rows and not repeated)


@dataclass
class _Output:
    """One run of the program: its banner, the lines before the first section, and the sections."""

    command: str | None
    version: str | None = None
    parameters: str | None = None
    before: list[Line] = field(default_factory=list)
    sections: list[_Section] = field(default_factory=list)

    @property
    def options(self) -> list[str]:
        return (self.parameters or self.command or "").split()


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
    for output in _outputs(lines, command, understood):
        before = {line.place for line in output.before if not has_number(line.text)}
        for section in output.sections:
            section.lines = section.lines[: _end(section)]
            count += len(section.lines)
            if count > MAX_LINES:
                raise InputError(f"at most {MAX_LINES} lines of {NAME}'s results are read")
            values = list(READERS[section.kind](section, output.options))
            found.append(_read(section, output, values))
            loose = {line.place for line in section.notes if has_number(line.text)}
            understood |= {line.place for line in section.lines} - loose
            understood |= before if values else set()
    return joined(found)


def _read(section: _Section, output: _Output, values: Sequence[ReadValues]) -> Read:
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
        not_read=() if values else (NotRead(kind=section.kind, what=title, reason=reason),),
        inconsistencies=tuple(faults),
    )


def looks_like_mlc(lines: Sequence[Line]) -> bool:
    """Return whether *lines* have a heading of MLC's, even if nothing is readable."""
    return any(BANNER.search(line.text) or HOMED.search(line.text) or LOCAL.match(line.text) for line in lines)


def _outputs(lines: Sequence[Line], command: str | None, understood: set[int]) -> Iterator[_Output]:
    output = _Output(command)
    jitter = False
    for line in lines:
        sections = output.sections
        if (started := mlc_command(line.text)) is not None:
            yield output
            output = _Output(started)
            understood.add(line.place)
        elif banner := BANNER.search(line.text):
            if sections or output.version is not None:
                yield output
                output = _Output(command)
            output.version = banner[1]
            understood.add(line.place)
        elif parameters := COMMAND_LINE.search(line.text):
            output.parameters = parameters[1].strip()
            understood.add(line.place)
        elif (kind := section_kind(line.text)) is not None:
            again = bool(sections) and sections[-1].kind == kind
            if again and kind == "idle_latency":
                sections[-1].lines.append(line)
            elif again and len(sections[-1].lines) == 1:
                sections[-1].lines.insert(0, line)
            else:
                sections.append(_Section(kind, [line]))
        elif INJECT.match(line.text) and (not sections or sections[-1].ended(line)):
            sections.append(_Section("loaded_latency", [line]))
        elif sections:
            sections[-1].add(line)
        else:
            jitter = jitter or _of_jitter(line.text)
            if not jitter:
                output.before.append(line)
    yield output


def _of_jitter(text: str) -> bool:
    return JITTER.search(text) is not None or JITTER_HEADER.match(text) is not None


def mlc_command(text: str) -> str | None:
    """Return the command in *text* that starts MLC, with or without a prompt; ``None`` for other lines."""
    prompt = PROMPT.match(text)
    after = text[prompt.end() :] if prompt else text
    words = after.strip(" *`").split(maxsplit=40)
    for place, word in enumerate(words[:6]):
        if PROGRAM.fullmatch(re.split(r"[/\\]", word[-MAX_PATH:])[-1]):
            alone = all(option.startswith("-") for option in words[place + 1 :])
            return " ".join(words) if prompt or alone else None
    return None


def section_kind(text: str) -> str | None:
    """Return the kind of the section that *text* begins; an idle latency is a section of one line.

    A heading says what is measured in varying words: it begins with "Measuring", or has the form of a heading.
    """
    lowered = text[: SHOWN * 2].lower().strip(" #*=\t")
    if "each iteration took" in text.lower():
        return "idle_latency"
    words = re.findall(r"[a-z]+", lowered)
    if not words or not (words[0].startswith("measur") or re.search(r"(?:\.\.\.|\)|:)$", lowered)):
        return None
    if len(words) > 16 or words[0] in {"using", "local", "remote", "command", "so", "inject", "delay", "bandwidths"}:
        return None
    found = set(words)
    latency = bool(found & {"latency", "latencies"})
    if latency and "cache" in found:
        return "c2c_latency"
    if latency and found & {"loaded", "load"}:
        return "loaded_latency"
    if found & {"bandwidth", "bandwidths"} and found & {"memory", "system", "injection"}:
        if found & {"between", "nodes", "sockets", "matrix"}:
            return "bandwidth_matrix"
        if found & {"maximum", "max"}:
            return "max_bandwidth"
        return "peak_injection_bandwidth" if "peak" in found else None
    if latency and (found & {"idle", "unloaded", "between", "matrix"} or words[:2] == ["measuring", "latencies"]):
        return "latency_matrix"
    return None


def _key(kind: str, text: str) -> str | None:
    """Return the label of the row *text* in a section of *kind*; ``None`` if it is not a row."""
    if kind == "idle_latency":
        return text if "each iteration took" in text.lower() else None
    if kind in {"peak_injection_bandwidth", "max_bandwidth"}:
        mix = _mix(text)
        return None if mix is None else mix.label
    if kind == "c2c_latency" and (local := LOCAL.match(text)):
        return local[1].lower()
    first = text.split(maxsplit=1)[0]
    return first if first == "-" or number(first) is not None else None


def _end(section: _Section) -> int:
    """Return the number of lines that belong to *section*.

    What follows its rows belongs to something else if it begins with a foreign line after a blank line, if a second
    table follows without a known heading, or if no row follows.
    """
    seen: set[str] = set()
    pause = doubt = None
    for place, line in enumerate(section.lines[1:], 1):
        text = line.text
        key = _key(section.kind, text)
        if command_after_prompt(text) or bare_prompt(text) or _of_jitter(text):
            return place if doubt is None else doubt
        if key is not None:
            if key in seen and pause is not None:
                return pause
            seen.add(key)
            pause = doubt = None
        elif HOMED.search(text):
            if doubt is not None:
                return doubt
            seen.clear()
            pause = None
        elif header := HEADER.match(text):
            if seen and header[2] and (pause is not None or line.gap):
                return place if pause is None else pause
            pause = place if seen and line.gap and pause is None else pause
        elif seen:
            known = NOTES.match(text) or RULE.fullmatch(text)
            pause = place if pause is None else pause
            if not known and line.gap:
                return pause
            doubt = doubt if known or doubt is not None else place
    return len(section.lines) if doubt is None else doubt


class _Mix(NamedTuple):
    """A row of a table of mixes: label, mix, text of the value, value and unit.

    A row of an unknown mix has a value; a row without a value has a known mix.
    """

    label: str
    name: str | None
    cell: str
    value: float | None
    unit: re.Match[str] | None


def _mix(text: str) -> _Mix | None:
    words = text.split(maxsplit=12)
    unit = RATE_WORD.fullmatch(words[-1]) if len(words) > 2 else None
    if unit:
        words.pop()
    if len(words) < 2 and ":" not in text:
        return None
    before, colon, cell = words[-1].rpartition(":")
    if colon and number(cell) is None:
        before, cell = "", words[-1]
    label = " ".join([*words[:-1], before]).strip(" :").lower()
    if not label or not cell:
        return None
    ratio = RATIO.fullmatch(label)
    name = ratio[1] if ratio else MIX_NAMES.get(label)
    value = number(cell)
    if name is None and (value is None or ":" not in text[: text.rfind(cell)]):
        return None
    return _Mix(label, name, cell, value, unit)


def _idle_latency(section: _Section, _options: Sequence[str]) -> Iterator[ReadValues]:
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
            latency_ns=time * _unit(match),
            clocks=number(match["clocks"]),
            clock=match["clock"].strip(),
        )


@dataclass
class _Table:
    """A table of nodes: label of its rows, columns, headings of further columns, and rows in order.

    ``homed`` is whose memory its lines are in, from the sentence above it.
    """

    label: str
    columns: tuple[int, ...]
    more: tuple[str, ...]
    homed: str | None
    rows: dict[int, Row] = field(default_factory=dict)

    @property
    def width(self) -> int:
        return len(self.columns) + len(self.more)

    def row(self, cells: Sequence[float | None]) -> Row:
        """Return the first of *cells* as a row with one cell per column."""
        return (*cells[: len(self.columns)], *(None,) * (len(self.columns) - len(cells)))


def _tables(section: _Section, lines: Sequence[Line]) -> list[_Table]:
    """Return the tables in *lines* of *section*.

    A heading repeated within its table is skipped. Lines wrapped by a terminal are joined.
    """
    tables: list[_Table] = []
    table: _Table | None = None
    homed: str | None = None
    waiting = deque(lines)
    while waiting:
        line = waiting.popleft()
        if match := HOMED.search(line.text):
            table, homed = None, match[1].lower()
        elif header := HEADER.match(line.text):
            columns = tuple(map(int, header[2].split()))
            while 0 < len(columns) <= MAX_COLUMNS and waiting and (more := _more_columns(columns, waiting[0].text)):
                columns += more
                waiting.popleft()
            if not columns or (table is not None and table.columns == columns):
                continue
            table = _Table(header[1].lower(), columns, tuple(header[3].split()), homed)
            if len(set(columns)) < len(columns) or len(columns) > MAX_COLUMNS:
                section.missing.append(f"not a heading of different nodes: {shortened(line.text)}")
                table = None
            else:
                tables.append(table)
        elif table is None or not _take_row(table, _unwrapped(line, waiting, table.width), section.missing):
            section.notes.append(line)
    return tables


def _more_columns(columns: tuple[int, ...], text: str) -> tuple[int, ...]:
    """Return the columns in *text* if it continues a heading that ends with *columns*, else nothing."""
    found = [whole_number(word) for word in text.split()]
    expected = tuple(range(columns[-1] + 1, columns[-1] + 1 + len(found)))
    return expected if found == list(expected) else ()


def _unwrapped(line: Line, waiting: deque[Line], width: int) -> Line:
    """Return *line* joined with the rest of its row of *width* numbers from the *waiting* lines."""
    parts = [line]
    left = width + 1 - len(line.text.split())
    while waiting and 0 < (count := _numbers_only(waiting[0].text)) <= left:
        parts.append(waiting.popleft())
        left -= count
    return parts[-1]._replace(text=" ".join(part.text for part in parts))


def _numbers_only(text: str) -> int:
    """Return the number of numbers in *text* if it is the rest of a row: nothing but numbers."""
    words = text.split()
    rest = all(word == "-" or (number(word) is not None and whole_number(word) is None) for word in words)
    return len(words) if rest else 0


def _take_row(table: _Table, line: Line, missing: list[str]) -> bool:
    """Add *line* to *table* and return whether it is a row of it; unreadable cells go to *missing*."""
    words = line.words
    row = whole_number(words[0]) if words else None
    if row is None or (len(words) == 1 and not line.cut):
        return False
    cells = [number(word) for word in words[1:]]
    fault = None
    not_a_row = f"not {table.width} numbers: {shortened(line.text)}"
    if any(cell is None and word != "-" for cell, word in zip(cells, words[1:], strict=True)):
        if not any(cell is not None for cell in cells):
            return False
        fault = not_a_row
    elif row > MAX_ID:
        fault = f"CPUs and nodes up to {MAX_ID} are read"
    elif row in table.rows:
        fault = "printed twice"
    elif len(cells) > table.width or (len(cells) < table.width and not line.last):
        fault = not_a_row
    elif len(cells) < table.width:
        missing.append(f"row {row}: cut off after {len(cells)} of {table.width} numbers")
    if fault is not None:
        missing.append(f"row {row}: {fault}")
    if row <= MAX_ID:
        table.rows[row] = table.row([] if fault is not None else cells)
    return True


def _matrix(section: _Section, options: Sequence[str]) -> Iterator[ReadValues]:
    tables = _tables(section, section.lines[1:])
    section.columns += [heading for table in tables for heading in table.more]
    if (scale := _scale(section)) is None:
        section.missing.append(NO_UNIT)
        return
    for table in tables:
        rows = {
            row: _scaled_row(cells, scale)
            for row, cells in table.rows.items()
            if any(cell is not None for cell in cells)
        }
        if not rows:
            continue
        nodes, columns, cells = tuple(rows), table.columns, tuple(rows.values())
        if section.kind == "bandwidth_matrix":
            yield ReadBandwidthMatrix(cpu_nodes=nodes, memory_nodes=columns, bandwidth_mb_s=cells)
        elif table.label not in CPUS and "-a" not in options:
            yield ReadLatencyMatrix(cpu_nodes=nodes, memory_nodes=columns, latency_ns=cells)
        else:
            for cpu, row in rows.items():
                for node, cell in zip(columns, row, strict=True):
                    if cell is not None:
                        yield ReadIdleLatency(cpu=cpu, node=node, latency_ns=cell, clocks=None, clock=None)


def _mixes(section: _Section, _options: Sequence[str]) -> Iterator[ReadValues]:
    scale = _scale(section)
    found: dict[str, float] = {}
    for line in section.lines[1:]:
        mix = _mix(line.text)
        if mix is None:
            section.notes.append(line)
            continue
        unit = scale if mix.unit is None else _unit(mix.unit)
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
        kind = ReadMaxBandwidth if section.kind == "max_bandwidth" else ReadPeakInjectionBandwidth
        yield kind(bandwidth_mb_s=found)


SWEEP_UNITS: Final = {"latency": TIME_WORD, "bandwidth": RATE_WORD}


def _sweep_columns(words: Sequence[str]) -> list[str]:
    """Return the columns named by *words* of a heading of delays, without units; empty unless both appear once."""
    units = (TIME_WORD, RATE_WORD, re.compile("delay"))
    names = [word for word in words if not any(unit.fullmatch(word) for unit in units)]
    return names if all(names.count(name) == 1 for name in SWEEP_UNITS) else []


def _sweep_scales(words: Sequence[str]) -> dict[str, float]:
    """Return the sizes of the first units of latency and bandwidth among *words* of a heading."""
    matches = ((name, form.fullmatch(word)) for word in reversed(words) for name, form in SWEEP_UNITS.items())
    return {name: _unit(match) for name, match in matches if match}


def _loaded_latency(section: _Section, options: Sequence[str]) -> Iterator[ReadValues]:
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
    if points and not chosen and len(points) < len(DELAYS) and tuple(points) == DELAYS[: len(points)]:
        section.missing.append(f"{len(points)} of the {len(DELAYS)} delays of a sweep")
    if points:
        yield ReadLoadedLatency(points=tuple(points.values()))


def _c2c_latency(section: _Section, _options: Sequence[str]) -> Iterator[ReadValues]:
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
            local[match[1].lower()] = value * scale
        elif match[2] != "-":
            section.missing.append(f"local {match[1].upper()}: not a latency, or cut off: {shortened(match[2])}")
    tables = _homed_tables(section, rest)
    nodes = next((table.columns for table in tables.values()), ())
    matrices = {
        homed: tuple(_scaled_row(table.rows.get(node, table.row([])), scale) for node in nodes)
        for homed, table in tables.items()
    }
    if not any(cell is not None for matrix in matrices.values() for row in matrix for cell in row):
        nodes, matrices = (), {}
    if local or matrices:
        yield ReadC2cLatency(
            local_hit_ns=local.get("hit"),
            local_hitm_ns=local.get("hitm"),
            nodes=nodes,
            remote_hitm_writer_homed_ns=matrices.get("writer", ()),
            remote_hitm_reader_homed_ns=matrices.get("reader", ()),
        )


def _homed_tables(section: _Section, lines: Sequence[Line]) -> dict[str, _Table]:
    """Return the tables in *lines*, all of the same nodes, by whose memory the lines are in."""
    tables: dict[str, _Table] = {}
    for table in _tables(section, lines):
        nodes, homed = table.columns, table.homed
        if homed is None or homed in tables:
            section.missing.append(f"a table of {len(nodes)} nodes that does not say where its lines are homed")
        elif len(nodes) > LARGE and 4 * len(table.rows) < len(nodes):
            section.missing.append(f"{homed} homed: rows for {len(table.rows)} of {len(nodes)} nodes")
        elif tables and any(other.columns != nodes for other in tables.values()):
            section.missing.append(f"{homed} homed: the nodes are not those of the other table")
        else:
            tables[homed] = table
            if absent := [f"node {node}" for node in nodes if node not in table.rows]:
                section.missing.append(f"{homed} homed: no row for {', '.join(first_of(absent))}")
    headings = [match[1].lower() for line in lines if (match := HOMED.search(line.text))]
    section.missing += [f"{homed} homed: no table" for homed in headings if homed not in tables]
    return tables


def _unit(match: re.Match[str]) -> float:
    """Return the size in ns or in MB/s of the unit in *match*."""
    return SCALES[match["unit"].lower()]


def _scale(section: _Section) -> float | None:
    """Return the size in ns or in MB/s of the section's unit; ``None`` if the text does not give it.

    The unit of latencies stands above their table.
    """
    latency = section.kind in {"latency_matrix", "c2c_latency"}
    for line in section.lines:
        rows = _key(section.kind, line.text) is not None or HEADER.match(line.text)
        if latency and rows and line is not section.lines[0]:
            return None
        if match := (LATENCY_UNIT if latency else BANDWIDTH_UNIT).search(line.text):
            size_bytes = None if latency else match["bytes"]
            return _unit(match) if size_bytes is None else int(size_bytes.replace(",", "")) / 1e6
    return None


def _scaled_row(cells: Row, scale: float) -> Row:
    return tuple(None if cell is None else cell * scale for cell in cells)


READERS: Final[Mapping[str, Callable[[_Section, Sequence[str]], Iterator[ReadValues]]]] = {
    "idle_latency": _idle_latency,
    "latency_matrix": _matrix,
    "bandwidth_matrix": _matrix,
    "peak_injection_bandwidth": _mixes,
    "max_bandwidth": _mixes,
    "loaded_latency": _loaded_latency,
    "c2c_latency": _c2c_latency,
}
