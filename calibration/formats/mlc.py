# SPDX-License-Identifier: Apache-2.0
"""What Intel Memory Latency Checker 3.x prints: one output or several after each other, with or without their banners.

Written from published outputs of the versions 3.1 to 3.13. A section begins with the sentence that says what is
measured; within it tables are recognised by their headings and rows by their form, and every other line is kept as a
note. A figure needs its unit: a section whose text does not say it has no values.
"""

import re
from collections import deque
from collections.abc import Iterator, Sequence
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
    believable,
    command_after_prompt,
    first_of,
    has_figure,
    left_over,
    lines_of,
    not_understood,
    number,
    shortened,
    whole_number,
)
from calibration.formats.pma_jitter import BANNER as JITTER
from calibration.formats.pma_jitter import HEADER as JITTER_HEADER
from calibration.measurements.traffic import MIXES
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

BANNER: Final = re.compile(r"Memory Latency Checker\s{1,4}-?\s{0,4}v(\d[\w.-]{0,40})", re.IGNORECASE)
COMMAND_LINE: Final = re.compile(r"Command line parameters:(.*)", re.IGNORECASE)
PROMPT: Final = re.compile(r"^[^$#>\u276f%]{0,200}[$#>\u276f%]+:?\s*")
PROGRAM: Final = re.compile(r"mlc(?:_\w{1,20})?(?:\.exe)?", re.IGNORECASE)
NOTES: Final = re.compile(
    r"^\s*(?:\*\*\*|Using\b|Bandwidths? (?:are|is) in\b|Latenc(?:y|ies) (?:are|is) in\b|Will take\b|Unable to\b|"
    r"(?:Large|Small|Huge) pages\b|AVX|Script (?:started|done)\b|(?:Numa|Memory|Reader Numa|Writer Numa)\s+node\s*$)",
    re.IGNORECASE,
)
"""Lines that say how something was measured."""

IDLE: Final = re.compile(
    r"^(?P<where>.{0,400}?)Each iteration took\s{1,40}(?P<clocks>[\d.,]{1,24}|-)\s{1,40}(?P<clock>[a-z ]{0,60}clocks)"
    r"\s{0,40}\(\s{0,40}(?P<time>[\d.,]{1,24})\s{0,40}(?P<unit>ns|nanoseconds|us|µs|ms)\s{0,40}\)",
    re.IGNORECASE,
)
CPU: Final = re.compile(r"\b(?:cpu|core)[ #:]{0,9}(\d{1,5})\b", re.IGNORECASE)
NODE: Final = re.compile(r"\bnode[ #:]{0,9}(\d{1,5})\b", re.IGNORECASE)
LATENCY_UNIT: Final = re.compile(
    r"(?:\bin |\()(ns|nsec|nanosec(?:ond)?s?|us|µs|microsec(?:ond)?s?|ms|millisec(?:ond)?s?)\b", re.IGNORECASE
)
BANDWIDTH_UNIT: Final = re.compile(
    r"(?:Bandwidths? (?:are|is) in |\((?:in )?)([KMG]i?B)(?:/s(?:ec(?:ond)?)?| per second)\b"
    r"(?:\s{0,9}\(1 [KMG]i?B/s(?:ec)? = ([\d,]{1,24}) Bytes/s(?:ec)?\))?",
    re.IGNORECASE,
)
RATE_UNIT: Final = re.compile(r"\(?([KMG]i?B)/s(?:ec)?\)?", re.IGNORECASE)
TIME_UNIT: Final = re.compile(r"\(?(ns|us|µs|ms)\)?", re.IGNORECASE)
HEADER: Final = re.compile(
    r"^\s*(?:(?:Writer|Reader)\s{1,9})?(Numa\s{0,9}node|Memory\s{1,9}node|Socket|Node|CPU|Core)\b"
    r"((?:\s{1,40}\d{1,5})*)((?:\s{1,40}[A-Za-z%()/]{1,40}){0,3})\s*$",
    re.IGNORECASE,
)
"""The heading of a table of nodes: what its rows are, the columns' nodes, and headings of columns that are no nodes."""

MAX_COLUMNS: Final = 256
"""Linux on the largest machine sold has fewer nodes; a square of as many as a line can hold would fill the memory."""

MAX_LINES: Final = 20_000
"""Most lines of results in one text: a matrix of 8192 CPUs, and as much again."""

LARGE: Final = 16
"""A square of more nodes than this is not filled up from a few rows."""

MAX_PATH: Final = 200
"""So many characters from the end of a word are looked at for the name of a program."""

INJECT: Final = re.compile(r"^\s*Inject\b.{0,80}\bLatency\b.{0,80}\bBandwidth\b", re.IGNORECASE)
HOMED: Final = re.compile(r"homed in (?:the )?(writer|reader)(?:'s)? (?:socket|node|numa node)", re.IGNORECASE)
LOCAL: Final = re.compile(r"^\s*Local Socket\b.{0,80}\b(HITM?)\s{1,9}latency\s*:?\s*(\S*)$", re.IGNORECASE)
TO_MB_S: Final = {"kb": 1e-3, "mb": 1.0, "gb": 1e3, "kib": 1024e-6, "mib": 1.048576, "gib": 1073.741824}

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
"""The mixes as MLC names them."""

RATIO: Final = re.compile(r"(\d{1,2}:\d{1,2}) reads?[-/ ]writes?")
"""The other mixes of MLC: so many reads for so many writes."""

DELAYS: Final = (0, 2, 8, 15, 50, 100, 200, 300, 400, 500, 700, 1000, 1300, 1700, 2500, 3500, 5000, 9000, 20000)
"""The delays of a sweep that was told no others."""


@dataclass
class _Section:
    """The lines of one section; the first is its heading."""

    kind: str
    lines: list[Line]
    rows: bool = False

    def add(self, line: Line) -> None:
        self.lines.append(line)
        self.rows = self.rows or _key(self.kind, line.text) is not None

    def ended(self, line: Line) -> bool:
        """Tell whether *line*, the heading of a sweep of delays, begins another section."""
        repeated = not line.gap and _key(self.kind, self.lines[-1].text) is not None
        return self.kind != "loaded_latency" or (self.rows and not repeated)


@dataclass
class _Output:
    """What one start of the program printed: its banner, the lines before the first section, and the sections."""

    version: str | None = None
    parameters: str | None = None
    command: str | None = None
    before: list[Line] = field(default_factory=list)
    sections: list[_Section] = field(default_factory=list)

    @property
    def begun(self) -> bool:
        return self.version is not None or bool(self.sections)

    @property
    def instrument(self) -> str:
        return "Intel MLC" if self.version is None else f"Intel MLC {self.version}"

    @property
    def notes(self) -> list[str]:
        return [line.text.strip() for line in self.before]


class _Found(NamedTuple):
    """What a section says: its values, what is missing, the lines that are no figures, and headings of more columns."""

    values: list[ReadValues]
    missing: list[str]
    notes: list[Line]
    columns: list[str] = []  # noqa: RUF012 - never changed


def read_mlc(text: str, *, whole: bool | None = None, command: str | None = None) -> Read:
    """Return what *text* says; nothing where no section of MLC's is recognised in it.

    *command* is the shell line that printed it, where it is not part of the text. *whole* as for ``lines_of``.
    """
    lines = lines_of(text, whole=whole)
    understood: set[int] = set()
    read = mlc_results(lines, command, understood)
    if not read.readings and not read.not_read:
        return read
    rest = [not_understood("text", block[0].text, len(block)) for block in left_over(lines, understood, NOTES)]
    return read.model_copy(update={"inconsistencies": (*read.inconsistencies, *rest)})


def mlc_results(lines: Sequence[Line], command: str | None, understood: set[int]) -> Read:
    """Return what *lines*, printed by *command*, say, and add the places of those that were read to *understood*."""
    readings: list[Reading] = []
    not_read: list[NotRead] = []
    faults: list[Inconsistency] = []
    count = 0
    for output in _outputs(lines, command, understood):
        values_found = False
        for section in output.sections:
            section.lines = section.lines[: _end(section)]
            count += len(section.lines)
            if count > MAX_LINES:
                raise InputError(f"expected at most {MAX_LINES} lines of Intel MLC's results, found more")
            found = READERS[section.kind](section, output)
            values_found = values_found or bool(found.values)
            loose = {line.place for line in found.notes if has_figure(line.text)}
            understood |= {line.place for line in section.lines} - loose
            title = section.lines[0].text.strip()
            missing = first_of(found.missing)
            notes = tuple(first_of([*output.notes, *(line.text.strip() for line in found.notes)], MAX_NOTES))
            if not found.values:
                reason = "; ".join(missing) or "no figure of it could be read"
                not_read.append(NotRead(kind=section.kind, what=title, reason=reason))
            readings += [
                Reading(
                    id="",
                    instrument=output.instrument,
                    command=output.command,
                    complete=not missing,
                    missing=tuple(missing),
                    notes=notes,
                    values=values,
                )
                for values in found.values
            ]
            faults += [
                inconsistency("NOT_UNDERSTOOD", title, f"no reader knows the column {shortened(column)}")
                for column in found.columns
            ]
            if missing:
                code = "UNIT_NOT_SAID" if NO_UNIT in missing else "TRUNCATED"
                faults.append(inconsistency(code, title, "; ".join(missing)))
        if values_found:
            understood |= {line.place for line in output.before if not has_figure(line.text)}
    return Read(readings=numbered(readings), not_read=tuple(not_read), inconsistencies=tuple(faults))


def looks_like_mlc(lines: Sequence[Line]) -> bool:
    """Tell whether *lines* have a banner or a table of MLC's, even where nothing of it could be read."""
    return any(
        BANNER.search(line.text)
        or HOMED.search(line.text)
        or LOCAL.match(line.text)
        or ((mix := _mix(line.text)) is not None and mix.name is not None and mix.value is not None)
        or ((header := HEADER.match(line.text)) is not None and header[2] and header[1].lower() not in {"cpu", "core"})
        for line in lines
    )


def starts_section(text: str) -> bool:
    """Tell whether *text* is the heading of a section, or an idle latency."""
    return _kind(text) is not None


def starts_mlc(text: str) -> bool:
    """Tell whether *text* is a command that starts MLC."""
    return _started(text) is not None


def _outputs(lines: Sequence[Line], command: str | None, understood: set[int]) -> Iterator[_Output]:
    output = _Output(command=command)
    jitter = False
    for line in lines:
        sections = output.sections
        if (started := _started(line.text)) is not None:
            yield output
            output = _Output(command=started)
            understood.add(line.place)
        elif banner := BANNER.search(line.text):
            if output.begun:
                yield output
                output = _Output(command=command)
            output.version = banner[1]
            understood.add(line.place)
        elif parameters := COMMAND_LINE.search(line.text):
            output.parameters = parameters[1].strip()
            understood.add(line.place)
        elif (kind := _kind(line.text)) is not None:
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
            jitter = jitter or JITTER.search(line.text) is not None or JITTER_HEADER.match(line.text) is not None
            if not jitter:
                output.before.append(line)
    yield output


def _started(text: str) -> str | None:
    """Return the command in *text* that starts MLC, after a shell's prompt or alone; ``None`` for other lines."""
    prompt = PROMPT.match(text)
    after = text[prompt.end() :] if prompt else text
    words = after.strip(" *`").split(maxsplit=40)
    for place, word in enumerate(words[:6]):
        if PROGRAM.fullmatch(re.split(r"[/\\]", word[-MAX_PATH:])[-1]):
            options = [each for each in words[place + 1 :] if each.startswith("-")]
            return " ".join(words) if prompt or len(options) == len(words) - place - 1 else None
    return None


def _kind(text: str) -> str | None:
    """Return the kind of the section that *text* begins; an idle latency is a section of one line.

    A heading says in any words what is measured, and of what: it begins with "Measuring", or ends as headings do.
    """
    lowered = text[: SHOWN * 2].lower().strip(" #*=\t")
    if "each iteration took" in text.lower():
        return "idle_latency"
    words = re.findall(r"[a-z]+", lowered)
    if not words or not (words[0].startswith("measur") or re.search(r"(?:\.\.\.|\)|:)$", lowered)):
        return None
    if len(words) > 16 or words[0] in {"using", "local", "remote", "command", "so", "inject", "delay", "bandwidths"}:
        return None
    said = set(words)
    latency = bool(said & {"latency", "latencies"})
    if latency and "cache" in said:
        return "c2c_latency"
    if latency and said & {"loaded", "load"}:
        return "loaded_latency"
    if said & {"bandwidth", "bandwidths"} and said & {"memory", "system", "injection"}:
        if said & {"between", "nodes", "sockets", "matrix"}:
            return "bandwidth_matrix"
        if said & {"maximum", "max"}:
            return "max_bandwidth"
        return "peak_injection_bandwidth" if "peak" in said else None
    if latency and (said & {"idle", "unloaded", "between", "matrix"} or words[:2] == ["measuring", "latencies"]):
        return "latency_matrix"
    return None


def _key(kind: str, text: str) -> str | None:
    """Return what names the row that *text* is in a section of *kind*; ``None`` where it is none."""
    if kind == "idle_latency":
        return text if "each iteration took" in text.lower() else None
    if kind in {"peak_injection_bandwidth", "max_bandwidth"}:
        mix = _mix(text)
        return mix.label if mix is not None and (mix.name is not None or mix.value is not None) else None
    first = text.split(maxsplit=1)[0]
    if kind == "c2c_latency" and (local := LOCAL.match(text)):
        return local[1].lower()
    return first if first == "-" or number(first) is not None else None


def _end(section: _Section) -> int:
    """Return how many lines of *section* are its own.

    What follows its rows belongs to something else where it begins with a line that is none of the section's after a
    blank line, where a second table follows without a heading that is known, or where no row follows any more.
    """
    seen: set[str] = set()
    pause = doubt = None
    for place, line in enumerate(section.lines[1:], 1):
        text = line.text
        key = _key(section.kind, text)
        if command_after_prompt(text) or bare_prompt(text) or JITTER.search(text) or JITTER_HEADER.match(text):
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
            if not known and line.gap:
                return place if pause is None else pause
            pause = place if pause is None else pause
            doubt = doubt if known or doubt is not None else place
    return len(section.lines) if doubt is None else doubt


class _Mix(NamedTuple):
    """A line of a table of mixes: its label, the mix of that name, the text of its figure, and its unit."""

    label: str
    name: str | None
    figure: str
    value: float | None
    unit: str | None


def _mix(text: str) -> _Mix | None:
    words = text.split(maxsplit=12)
    unit = words.pop() if len(words) > 2 and RATE_UNIT.fullmatch(words[-1]) else None
    if len(words) < 2 and ":" not in text:
        return None
    before, colon, figure = words[-1].rpartition(":")
    if colon and number(figure) is None:
        before, figure = "", words[-1]
    label = " ".join([*words[:-1], before]).strip(" :").lower()
    if not label or not figure:
        return None
    ratio = RATIO.fullmatch(label)
    name = ratio[1] if ratio else MIX_NAMES.get(label)
    value = number(figure)
    if name is None and ":" not in text[: text.rfind(figure)]:
        value = None
    return _Mix(label, name, figure, value, unit)


def _idle_latency(section: _Section, _output: _Output) -> _Found:
    values: list[ReadValues] = []
    missing: list[str] = []
    notes: list[Line] = []
    for line in section.lines:
        match = IDLE.match(line.text)
        clocks, time = (number(match["clocks"]), number(match["time"])) if match else (None, None)
        if match is None or time is None:
            if _kind(line.text) == "idle_latency":
                missing.append(f"expected clocks and a time with its unit, found {shortened(line.text)}")
            else:
                notes.append(line)
            continue
        place = match["where"]
        cpu, node = CPU.search(place), NODE.search(place)
        values.append(
            ReadIdleLatency(
                cpu=None if cpu is None else int(cpu[1]),
                node=None if node is None else int(node[1]),
                latency_ns=_scaled(time, _ns(match["unit"])),
                clocks=clocks,
                clock=match["clock"].strip(),
                of_many=cpu is not None,
            )
        )
    return _Found(values, missing, notes)


@dataclass
class _Table:
    """A table of nodes: the label of its rows, its columns, headings of more columns, and its rows in order."""

    label: str
    columns: tuple[int, ...]
    more: tuple[str, ...]
    empty: tuple[None, ...]
    rows: dict[int, tuple[float | None, ...]] = field(default_factory=dict)

    @property
    def width(self) -> int:
        return len(self.columns) + len(self.more)


def _tables(lines: Sequence[Line], missing: list[str], notes: list[Line]) -> Iterator[tuple[_Table, str | None]]:
    """Yield each table in *lines*, and where its lines are homed, as the sentence above it says.

    A heading that is repeated in the middle of its table is passed over. Lines that a terminal wrapped are joined.
    """
    table: _Table | None = None
    homed: str | None = None
    seen: list[str] = []
    waiting = deque(lines)
    while waiting:
        line = waiting.popleft()
        if match := HOMED.search(line.text):
            if table is not None:
                yield table, homed
            table, homed = None, match[1].lower()
        elif header := HEADER.match(line.text):
            columns = tuple(map(int, header[2].split()))
            while 0 < len(columns) <= MAX_COLUMNS and waiting and (more := _more_columns(columns, waiting[0].text)):
                columns += more
                waiting.popleft()
            if not columns or (table is not None and table.columns == columns):
                continue
            if table is not None:
                yield table, homed
            table = _Table(header[1].lower(), columns, tuple(header[3].split()), empty=(None,) * len(columns))
            if len(set(columns)) != len(columns) or len(columns) > MAX_COLUMNS:
                missing.append(f"expected a heading of different nodes, found {shortened(line.text)}")
                table = None
        elif table is None:
            notes.append(line)
        else:
            rest = [line]
            left = table.width + 1 - len(line.text.split())
            while waiting and 0 < (figures := _figures_only(waiting[0].text)) <= left:
                rest.append(waiting.popleft())
                left -= figures
            line = rest[-1]._replace(text=" ".join(each.text for each in rest))
            if not _row(line, table, seen, missing):
                notes.append(line)
    if table is not None:
        yield table, homed


def _more_columns(columns: tuple[int, ...], text: str) -> tuple[int, ...]:
    """Return the columns in *text* where it continues the heading that ends with *columns*, else nothing."""
    found = [whole_number(each) for each in text.split()]
    expected = list(range(columns[-1] + 1, columns[-1] + 1 + len(found)))
    return tuple(expected) if found == expected else ()


def _figures_only(text: str) -> int:
    """Return how many figures *text* has where it has nothing else and is no row: it is the rest of one."""
    found = text.split()
    rest = all(each == "-" or (number(each) is not None and whole_number(each) is None) for each in found)
    return len(found) if rest else 0


def _row(line: Line, table: _Table, seen: list[str], missing: list[str]) -> bool:
    """Take *line* into *table* and return whether it is a row of it; what of it cannot be read goes to *missing*."""
    tokens = line.text.split()
    row = whole_number(tokens[0])
    if row is not None and row > MAX_ID:
        missing.append(f"row {row}: expected a CPU or node up to {MAX_ID}")
        return True
    texts = tokens[1:]
    figures = [number(each) for each in texts]
    readable = (each == "-" or figure is not None for each, figure in zip(texts, figures, strict=True))
    if row is None or not texts or not all(readable):
        damaged = row is not None and any(figure is not None for figure in figures)
        if damaged and row is not None and row not in table.rows:
            missing.append(f"row {row}: expected {len(table.columns)} figures, found {shortened(line.text)}")
            table.rows[row] = table.empty
        return damaged
    if row in table.rows:
        missing.append(f"row {row} is there twice")
        table.rows[row] = table.empty
        return True
    whole = list(texts)
    short = len(texts) < table.width
    if (line.cut or (line.last and short)) and whole[-1] != "-" and not believable(whole[-1], seen + whole[:-1], 1):
        whole.pop()
        short = True
    if len(texts) > table.width or (short and not line.last):
        missing.append(f"row {row}: expected {table.width} figures, found {len(texts)}")
        table.rows[row] = table.empty
        return True
    if short:
        missing.append(f"row {row} was cut off after {len(whole)} of {table.width} figures")
    seen += whole
    cells = [number(each) for each in whole[: len(table.columns)]]
    table.rows[row] = (*cells, *(None,) * (len(table.columns) - len(cells)))
    return True


def _matrix(section: _Section, output: _Output) -> _Found:
    missing: list[str] = []
    notes: list[Line] = []
    values: list[ReadValues] = []
    scale = _latency_scale(section) if section.kind == "latency_matrix" else _bandwidth_scale(section)
    tables = list(_tables(section.lines[1:], missing, notes))
    more = [heading for table, _ in tables for heading in table.more]
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
    return _Found(values, missing, notes, more)


NO_UNIT: Final = "the text does not say the unit of its figures"


def _mixes(section: _Section, _output: _Output) -> _Found:
    missing: list[str] = []
    notes: list[Line] = []
    found: dict[str, float] = {}
    scale = _bandwidth_scale(section)
    usual = 2 if section.kind == "max_bandwidth" else 1
    seen: list[str] = []
    for line in section.lines[1:]:
        mix = _mix(line.text)
        if mix is None or (mix.name is None and mix.value is None):
            notes.append(line)
            continue
        unit = TO_MB_S[mix.unit.partition("/")[0].strip("(").lower()] if mix.unit else scale
        if mix.name is None:
            missing.append(f"expected a mix that is known, found {shortened(mix.label)}")
        elif mix.value is None or (line.cut and not mix.unit and not believable(mix.figure, seen, usual)):
            missing.append(f"{mix.name}: expected its bandwidth, found {shortened(mix.figure)}")
        elif mix.name in found:
            missing.append(f"{mix.name} is there twice")
        elif unit is not None:
            found[mix.name] = _scaled(mix.value, unit)
            seen.append(mix.figure)
    if scale is None and not found:
        missing.append(NO_UNIT)
    elif gone := [mix for mix in MIXES if mix not in found]:
        missing.append(f"no figure for {', '.join(gone)}")
    if not found:
        return _Found([], missing, notes)
    kind = ReadMaxBandwidth if section.kind == "max_bandwidth" else ReadPeakInjectionBandwidth
    return _Found([kind(bandwidth_mb_s=found)], missing, notes)


@dataclass
class _Columns:
    """Where a table of delays has its latencies and bandwidths, and what one unit of them is in ns and in MB/s."""

    latency: int
    bandwidth: int
    more: list[str]
    latency_scale: float | None = None
    bandwidth_scale: float | None = None


def _columns(text: str) -> _Columns | None:
    """Return the columns that the heading *text* names, their units where it says them; ``None`` without both."""
    tokens = re.findall(r"[a-zµ/%]+", text.lower())
    units = [each for each in tokens if TIME_UNIT.fullmatch(each) or RATE_UNIT.fullmatch(each)]
    names = [each for each in tokens if each not in units and each != "delay"]
    if not {"latency", "bandwidth"} <= set(names):
        return None
    more = [each for each in names if each not in {"inject", "latency", "bandwidth"}]
    found = _Columns(names.index("latency"), names.index("bandwidth"), more)
    if len(units) >= 2 and TIME_UNIT.fullmatch(units[0]) and RATE_UNIT.fullmatch(units[1]):
        found.latency_scale, found.bandwidth_scale = _ns(units[0]), TO_MB_S[units[1].partition("/")[0]]
    return found


def _loaded_latency(section: _Section, output: _Output) -> _Found:
    missing: list[str] = []
    notes: list[Line] = []
    points: dict[int, ReadLoadedPoint] = {}
    columns: _Columns | None = None
    seen: dict[str, list[str]] = {"latency": [], "bandwidth": []}
    first = 0 if INJECT.match(section.lines[0].text) else 1
    for line in section.lines[first:]:
        tokens = line.text.lower().split()
        if INJECT.match(line.text) and (named := _columns(line.text)) is not None:
            columns = named
        elif tokens[0] == "delay" and columns is not None:
            units = {"latency": "", "bandwidth": ""} | {
                name: tokens[place]
                for name, place in (("latency", columns.latency), ("bandwidth", columns.bandwidth))
                if place < len(tokens)
            }
            time, rate = TIME_UNIT.fullmatch(units["latency"]), RATE_UNIT.fullmatch(units["bandwidth"])
            columns.latency_scale = _ns(time[1]) if time else None
            columns.bandwidth_scale = TO_MB_S[rate[1]] if rate else None
        elif columns is not None and (delay := whole_number(tokens[0])) is not None and number(tokens[-1]) is not None:
            places = {"latency": columns.latency, "bandwidth": columns.bandwidth}
            texts = {name: tokens[place] for name, place in places.items() if place < len(tokens)}
            if line.cut and (last := next((name for name, place in places.items() if place == len(tokens) - 1), None)):
                usual = 2 if last == "latency" else 1
                if not believable(texts[last], seen[last], usual):
                    del texts[last]
            figures = {name: number(each) for name, each in texts.items()}
            latency, bandwidth = figures.get("latency"), figures.get("bandwidth")
            if delay in points:
                missing.append(f"delay {delay} is there twice")
            elif latency is None or bandwidth is None:
                missing.append(f"delay {delay}: expected latency and bandwidth, found {shortened(line.text)}")
            elif columns.latency_scale is not None and columns.bandwidth_scale is not None:
                points[delay] = ReadLoadedPoint(
                    inject_delay=delay,
                    latency_ns=_scaled(latency, columns.latency_scale),
                    bandwidth_mb_s=_scaled(bandwidth, columns.bandwidth_scale),
                )
                for name, each in texts.items():
                    seen[name].append(each)
        elif line.cut and columns is not None and (whole_number(tokens[0]) is not None or len(tokens) == 1):
            missing.append(f"the last row was cut off: {shortened(line.text)}")
        elif not RULE.fullmatch(line.text):
            notes.append(line)
    if columns is not None and (columns.latency_scale is None or columns.bandwidth_scale is None):
        missing.append(NO_UNIT)
    chosen = re.search(r"(?:^|\s)-[dg]", output.parameters or output.command or "")
    if points and not chosen and len(points) < len(DELAYS) and tuple(points) == DELAYS[: len(points)]:
        missing.append(f"{len(points)} of the {len(DELAYS)} delays of a sweep")
    found = [ReadLoadedLatency(points=tuple(points.values()))] if points else []
    return _Found([*found], missing, notes, columns.more if columns else [])


def _c2c_latency(section: _Section, _output: _Output) -> _Found:
    missing: list[str] = []
    notes: list[Line] = []
    if (scale := _latency_scale(section)) is None:
        return _Found([], [NO_UNIT], notes)
    local: dict[str, float] = {}
    rest: list[Line] = []
    for line in section.lines[1:]:
        match = LOCAL.match(line.text)
        if match is None:
            rest.append(line)
            continue
        value = number(match[2])
        if value is not None and not (line.cut and not believable(match[2], (), 1)):
            local[match[1].lower()] = _scaled(value, scale)
        elif match[2] != "-":
            missing.append(f"local {match[1].upper()}: expected its latency, found {shortened(match[2])}")
    matrices: dict[str, _Table] = {}
    for table, homed in _tables(rest, missing, notes):
        if homed is None or homed in matrices:
            missing.append(f"a table of {len(table.columns)} nodes whose lines' home is not said")
            continue
        if len(table.columns) > LARGE and 4 * len(table.rows) < len(table.columns):
            missing.append(f"rows for {len(table.rows)} of {len(table.columns)} nodes, {homed} homed")
            continue
        matrices[homed] = table
        if gone := [f"node {node}" for node in table.columns if node not in table.rows]:
            missing.append(f"no row for {', '.join(first_of(gone))}, {homed} homed")
    nodes = next((table.columns for table in matrices.values()), ())
    for homed in [homed for homed, table in matrices.items() if table.columns != nodes]:
        missing.append(f"expected the same nodes in both tables, found others in the one {homed} homed")
        del matrices[homed]
    headings = [match[1].lower() for line in rest if (match := HOMED.search(line.text))]
    missing += [f"no table of lines {homed} homed" for homed in headings if homed not in matrices]
    measured = any(cell is not None for table in matrices.values() for row in table.rows.values() for cell in row)
    if not local and not measured:
        return _Found([], missing, notes)

    def cells(homed: str) -> tuple[tuple[float | None, ...], ...]:
        if homed not in matrices:
            return ()
        rows = {row: _scaled_row(line, scale) for row, line in matrices[homed].rows.items()}
        return tuple(rows.get(node, matrices[homed].empty) for node in nodes)

    values = ReadC2cLatency(
        local_hit_ns=local.get("hit"),
        local_hitm_ns=local.get("hitm"),
        nodes=nodes if measured else (),
        remote_hitm_writer_homed_ns=cells("writer") if measured else (),
        remote_hitm_reader_homed_ns=cells("reader") if measured else (),
    )
    return _Found([values], missing, notes)


def _ns(unit: str) -> float:
    """Return how many ns one *unit* of time is; its first letter tells."""
    return {"n": 1.0, "u": 1e3, "µ": 1e3}.get(unit[0].lower(), 1e3 if unit.lower().startswith("mic") else 1e6)


def _latency_scale(section: _Section) -> float | None:
    """Return what one unit of the section's figures is in ns; ``None`` where its heading does not say."""
    for line in section.lines:
        if line is not section.lines[0] and (_key(section.kind, line.text) is not None or HEADER.match(line.text)):
            return None
        if match := LATENCY_UNIT.search(line.text):
            return _ns(match[1])
    return None


def _bandwidth_scale(section: _Section) -> float | None:
    """Return what one unit of the section's figures is in MB/s; ``None`` where the text does not say."""
    for line in section.lines:
        if match := BANDWIDTH_UNIT.search(line.text):
            if match[2]:
                return int(match[2].replace(",", "") or "0") / 1e6
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
