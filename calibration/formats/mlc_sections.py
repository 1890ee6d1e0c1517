# SPDX-License-Identifier: Apache-2.0
"""Runs and sections in the output of Intel MLC: where each begins and ends, and which lines are rows."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from calibration.formats.lines import RULE, SHOWN, Line, bare_prompt, command_after_prompt, number
from calibration.formats.mlc_units import RATE_WORD
from calibration.formats.pma_jitter import BANNER as JITTER
from calibration.formats.pma_jitter import HEADER as JITTER_HEADER

BANNER: Final = re.compile(
    r"Memory Latency Checker(?:\s{1,4}[(\[].{1,60}[)\]])?(?:\s{1,4}|\s{0,4}[-\u2013\u2014,:]\s{0,4})"
    r"v(?:ersion\s{1,4})?(\d[\w.-]{0,40})",
    re.IGNORECASE,
)
"""The name, a remark such as ``(for Internal Use Only)``, and the version."""
COMMAND_LINE: Final = re.compile(r"Command line parameters:(.*)", re.IGNORECASE)
PROMPT: Final = re.compile(r"^[^$#>\u276f%]{0,200}[$#>\u276f%]+:?\s*")
PROGRAM: Final = re.compile(r"mlc(?:_\w{1,20})?(?:\.exe)?", re.IGNORECASE)
NOTES: Final = re.compile(
    r"^\s*(?:\*\*\*|Using\b|Bandwidths? (?:are|is) in\b|Latenc(?:y|ies) (?:are|is) in\b|Will take\b|Unable to\b|"
    r"(?:Large|Small|Huge) pages\b|AVX|Script (?:started|done)\b|(?:Numa|Memory|Reader Numa|Writer Numa)\s+node\s*$)",
    re.IGNORECASE,
)
"""Lines about the method of measurement."""

HEADER: Final = re.compile(
    r"^\s*(?:(?:Writer|Reader)\s{1,9})?(Numa\s{0,9}node|Memory\s{1,9}node|Socket|Node|CPU|Core)\b"
    r"((?:\s{1,40}\d{1,5})*)((?:\s{1,40}[A-Za-z%()/]{1,40}){0,3})\s*$",
    re.IGNORECASE,
)
"""The heading of a table of nodes: label of its rows, the columns' nodes, and headings of other columns."""

INJECT: Final = re.compile(r"^\s*Inject\b.{0,80}\bLatency\b.{0,80}\bBandwidth\b", re.IGNORECASE)
HOMED: Final = re.compile(r"homed in (?:the )?(writer|reader)(?:'s)? (?:socket|node|numa node)", re.IGNORECASE)
LOCAL: Final = re.compile(r"^\s*Local Socket\b.{0,80}\b(HITM?)\s{1,9}latency\s*:?\s*(\S*)$", re.IGNORECASE)
MAX_PATH: Final = 200
"""Characters at the end of a word that are searched for the program's name."""

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


@dataclass
class Section:
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

    def key(self, text: str) -> str | None:
        """Return the label of the row *text*; ``None`` if it is not a row."""
        if self.kind == "idle_latency":
            return text if "each iteration took" in text.lower() else None
        if self.kind in {"peak_injection_bandwidth", "max_bandwidth"}:
            mix = parse_mix(text)
            return None if mix is None else mix.label
        if self.kind == "c2c_latency" and (local := LOCAL.match(text)):
            return local[1].lower()
        first = text.split(maxsplit=1)[0]
        return first if first == "-" or number(first) is not None else None

    def add(self, line: Line) -> None:
        """Add *line*, and remember whether the section has rows."""
        self.lines.append(line)
        self.rows = self.rows or self.key(line.text) is not None

    def ended(self, line: Line) -> bool:
        """Return whether *line*, the heading of a sweep of delays, begins another section."""
        repeated = not line.gap and self.key(self.lines[-1].text) is not None
        return self.kind != "loaded_latency" or (self.rows and not repeated)


@dataclass
class Output:
    """One run of the program: its banner, the lines before the first section, and the sections."""

    command: str | None
    version: str | None = None
    parameters: str | None = None
    before: list[Line] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)

    @property
    def options(self) -> list[str]:
        """The words of the command line."""
        return (self.parameters or self.command or "").split()


def looks_like_mlc(lines: Sequence[Line]) -> bool:
    """Return whether *lines* have a heading of MLC's, even if nothing is readable."""
    return any(BANNER.search(line.text) or HOMED.search(line.text) or LOCAL.match(line.text) for line in lines)


def split_outputs(lines: Sequence[Line], command: str | None, understood: set[int]) -> Iterator[Output]:
    """Yield the runs in *lines*, printed by *command*; add the places of recognised lines to *understood*."""
    output = Output(command)
    jitter = False
    for line in lines:
        sections = output.sections
        if (started := mlc_command(line.text)) is not None:
            yield output
            output = Output(started)
            understood.add(line.place)
        elif banner := BANNER.search(line.text):
            if sections or output.version is not None:
                yield output
                output = Output(command)
            output.version = banner[1]
            understood.add(line.place)
        elif parameters := COMMAND_LINE.search(line.text):
            output.parameters = parameters[1].strip()
            understood.add(line.place)
            if output.command is None and len(output.options) > 1:
                output.before.append(line)
        elif (kind := section_kind(line.text)) is not None:
            again = bool(sections) and sections[-1].kind == kind
            if again and kind == "idle_latency":
                sections[-1].lines.append(line)
            elif again and len(sections[-1].lines) == 1:
                sections[-1].lines.insert(0, line)
            else:
                sections.append(Section(kind, [line]))
        elif INJECT.match(line.text) and (not sections or sections[-1].ended(line)):
            sections.append(Section("loaded_latency", [line]))
        elif sections:
            sections[-1].add(line)
        else:
            jitter = jitter or _is_jitter(line.text)
            if not jitter:
                output.before.append(line)
    yield output


def _is_jitter(text: str) -> bool:
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


def section_end(section: Section) -> int:
    """Return the number of lines that belong to *section*.

    What follows its rows belongs to something else if it begins with a foreign line after a blank line, if a second
    table follows without a known heading, or if no row follows.
    """
    seen: set[str] = set()
    pause = doubt = None
    for place, line in enumerate(section.lines[1:], 1):
        text = line.text
        key = section.key(text)
        if command_after_prompt(text) or bare_prompt(text) or _is_jitter(text):
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


class MixRow(NamedTuple):
    """A row of a table of mixes: label, mix, text of the value, value and unit.

    A row of an unknown mix has a value; a row without a value has a known mix.
    """

    label: str
    name: str | None
    cell: str
    value: float | None
    unit: re.Match[str] | None


def parse_mix(text: str) -> MixRow | None:
    """Return the row in *text*; ``None`` if it is not a row of a table of mixes."""
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
    return MixRow(label, name, cell, value, unit)
