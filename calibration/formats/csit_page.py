# SPDX-License-Identifier: Apache-2.0
"""FD.io CSIT's published calibration pages: literal blocks with a command and its output.

The text may be a fragment or invalid reStructuredText: titles and literal blocks are found by their form. Unrecognised
blocks, and tables of numbers outside literal blocks, are reported.
"""

import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import Final, NamedTuple

from calibration.base.errors import InputError
from calibration.base.model import Model
from calibration.context.cmdline import MAX_CMDLINE, parse_cmdline
from calibration.formats.lines import (
    MAX_CHARACTERS,
    MAX_LINE,
    Line,
    command_after_prompt,
    left_over,
    lines_of,
    not_understood,
    number,
    plain,
    split,
)
from calibration.formats.mess import curves_of_mess
from calibration.formats.mlc import mlc_results
from calibration.formats.mlc_sections import BANNER, NOTES, looks_like_mlc, mlc_command, section_kind
from calibration.formats.page_checks import PageFacts, page_inconsistencies
from calibration.formats.pma_jitter import BANNER as JITTER
from calibration.formats.pma_jitter import jitter_results
from calibration.formats.readings import Format, Inconsistency, NotRead, Read, inconsistency, joined
from calibration.measurements.base import PROBE
from calibration.measurements.mlc_program import COMMANDS

UNDERLINE: Final = re.compile(r"^([=\-~^\"'`#*+.:_])\1{2,}\s*$")
PLACEHOLDER: Final = re.compile(
    r"^\W*(?:TB[CDA]|TO[D]O|FIX[M]E|XX+|n/?a|to be (?:confirmed|done|defined|added|measured)|pending)\W*$",
    re.IGNORECASE,
)
FENCE: Final = re.compile(r"^[ \t]{0,12}(?:>[ \t]?)?```")
DIRECTIVE: Final = re.compile(r"^[ \t]{0,40}\.\. (?:code|code-block|sourcecode|parsed-literal|prompt)::")
OPTION: Final = re.compile(r"^[ \t]{1,40}:[\w-]{1,40}:")
DELAYS: Final = re.compile(r"^\s{0,40}Delay\b", re.IGNORECASE)
"""Heading of a table that is underlined like a title."""

CELL: Final = re.compile(r"[\s,;|\"]+")
MIX_WORDS: Final = 5
"""Most words in the row of a mix: its name, a colon and its value."""

MAX_BLOCKS: Final = 5000
"""Most commands in one page; published ones have up to twenty."""

MAX_LISTED: Final = 20
"""Most inconsistencies listed per code; the rest is counted."""

SUT_NAME: Final = re.compile(r"\b((?:s\d{1,4}-)?(t\d{1,4})-(?:sut|tg)\d{1,4})\b", re.IGNORECASE)
ESCAPED: Final = re.compile(r"\\(.)")
"""An escaped character in reStructuredText."""

OWN: Final = ".. Made from the run document run.json"
"""First line of this project's own pages, which are refused: run.json has their values with intervals."""

TOP: Final = 1000
"""Characters of a text that are searched for it."""

CMDLINE: Final = "cat /proc/cmdline"
UNAME: Final = "uname -a"

PUBLISHED: Final[Mapping[str, re.Pattern[str]]] = {
    "jitter": re.compile(r"\bjitter\b"),
    **{command: re.compile(rf"--{command}\b") for command in COMMANDS},
}
"""The kinds of the published pages, and a pattern of their commands."""


class ImportedContext(Model):
    """A page's statements about the machine's Linux, verbatim; ``isolcpus`` is that of the command line."""

    cmdline: str | None = None
    uname: str | None = None
    isolcpus: str | None = None


class Published(Model):
    """The content of a text: its SUT, context, results and inconsistencies.

    Missing values are ``None``.
    """

    format: Format
    title: str | None = None
    testbed: str | None = None
    sut: str | None = None
    context: ImportedContext = ImportedContext()
    read: Read


class Block(NamedTuple):
    """One command of a literal block and its output; ``whole`` is whether its end was seen."""

    command: str | None
    output: str
    whole: bool


def read_published(text: str) -> Published:
    """Return the content of *text*: a published page, raw output of Intel MLC or PMA jitter, or curves of Mess.

    Raises ``InputError`` if nothing is recognised, and for this project's own pages.
    """
    if OWN in text[:TOP]:
        raise InputError("this page was made by this project: use its run.json")
    if len(text) > MAX_CHARACTERS:
        raise InputError(f"at most {MAX_CHARACTERS} characters are read, the text has {len(text)}")
    if (curves := curves_of_mess(text)) is not None:
        return Published(format="mess", read=curves)
    if (page := _page(text)) is not None:
        return page
    lines = lines_of(text)
    read = _programs(lines, None)
    if not read.readings and not read.not_read and not (read.inconsistencies and looks_like_mlc(lines)):
        raise InputError(
            "not a published calibration page, output of Intel MLC or PMA jitter, nor curves of Mess: no literal block "
            "with a command and its output, no heading of these programs"
        )
    return _without_page(read)


def _without_page(read: Read) -> Published:
    """Return *read* as the content of one or several outputs without a page."""
    kinds = {*(reading.values.kind for reading in read.readings), *(gone.kind for gone in read.not_read)}
    return Published(format="pma_jitter" if kinds == {"jitter"} else "mlc", read=_checked(read, PageFacts()))


def _checked(read: Read, facts: PageFacts) -> Read:
    """Return *read* with the inconsistencies found in it and in the *facts* of its page.

    Without repetitions; of each code at most ``MAX_LISTED``, and the number of the rest.
    """
    listed: list[Inconsistency] = []
    counts: Counter[str] = Counter()
    for fault in dict.fromkeys([*read.inconsistencies, *page_inconsistencies(facts, read.readings)]):
        counts[fault.code] += 1
        if counts[fault.code] <= MAX_LISTED:
            listed.append(fault)
    more = {code: count - MAX_LISTED for code, count in counts.items() if count > MAX_LISTED}
    listed += [inconsistency(code, "text", f"and {count} more") for code, count in more.items()]
    return read.model_copy(update={"inconsistencies": tuple(listed)})


def _programs(lines: Sequence[Line], command: str | None) -> Read:
    """Return the content of *lines*, printed by *command*, by either program, and list unrecognised blocks."""
    understood: set[int] = set()
    found = [mlc_results(lines, command, understood), jitter_results(lines, command, understood)]
    left = left_over(lines, understood, NOTES)
    return joined(found, [not_understood(command or "text", block[0].text, len(block)) for block in left])


def _page(text: str) -> Published | None:
    """Return the content of the page *text*; ``None`` if no literal block is part of a calibration."""
    lines = split(plain(text))
    literal = list(_literal(lines))
    blocks = list(islice(_blocks(lines, literal, ended=text.endswith(("\n", "\r"))), MAX_BLOCKS + 1))
    if len(blocks) > MAX_BLOCKS:
        raise InputError(f"at most {MAX_BLOCKS} commands in the literal blocks of a page are read")
    cmdline, uname = _printed(blocks, CMDLINE), _printed(blocks, UNAME)
    inside = {place for first, end in literal for place in range(first, end)}
    prose = [line for place, line in enumerate(lines) if place not in inside]
    found: list[Read] = []
    foreign: list[Inconsistency] = []
    for block in blocks:
        command = block.command or ""
        if (read := _results(block)) is not None:
            found.append(read)
        elif CMDLINE not in command and UNAME not in command:
            shown = [command, *block.output.splitlines()] if command else block.output.splitlines()
            shown = [line for line in shown if line.strip()]
            foreign.append(not_understood("literal block", shown[0], len(shown)))
    no_context = cmdline is None and uname is None
    if not found and no_context:
        return None
    read = joined(found, [*foreign, *_tables_in(prose)])
    if no_context and all(FENCE.match(lines[first - 1]) for first, _ in literal):
        return _without_page(read)
    titles = list(_titles(prose))
    text = "\n".join(prose)
    sut = SUT_NAME.search(text) or SUT_NAME.search(uname or "")
    facts = PageFacts(
        text=text,
        introduction="\n".join(prose[: titles[1].line if len(titles) > 1 else None]),
        titles=tuple(title.text for title in titles),
        cmdline=cmdline,
        uname=uname,
        host=sut[1] if sut else None,
    )
    named = {*(reading.values.kind for reading in read.readings), *(gone.kind for gone in read.not_read)}
    absent = [NotRead(kind=kind, what=kind, reason="not on the page") for kind in PUBLISHED if kind not in named]
    isolcpus = [word.value for word in parse_cmdline(cmdline or "").parameters if word.name == "isolcpus"]
    return Published(
        format="csit_page",
        title=titles[0].text if titles else None,
        testbed=sut[2].lower() if sut else None,
        sut=sut[1].lower() if sut else None,
        context=ImportedContext(cmdline=cmdline, uname=uname, isolcpus=isolcpus[-1] if isolcpus else None),
        read=_checked(read.model_copy(update={"not_read": (*read.not_read, *absent)}), facts),
    )


def _printed(blocks: Sequence[Block], command: str) -> str | None:
    """Return the output of *command* without surrounding blank lines; ``None`` for a placeholder or nothing."""
    for block in blocks:
        if command in (block.command or ""):
            text = block.output.strip("\n").rstrip()
            if len(text) > MAX_CMDLINE:
                raise InputError(f"{command}: at most {MAX_CMDLINE} characters of output are read, found {len(text)}")
            return None if not text or PLACEHOLDER.match(text) else text
    return None


def _results(block: Block) -> Read | None:
    """Return the results in *block*; ``None`` if it has a different subject."""
    command = block.command or ""
    if command.startswith(f"{PROBE} "):
        return None
    read = _programs(lines_of(block.output, whole=block.whole), block.command)
    if read.readings or read.not_read:
        return read
    kind = next((kind for kind, form in PUBLISHED.items() if form.search(command)), None)
    if kind is None:
        return None
    text = block.output.strip()
    code, faults = "TRUNCATED", read.inconsistencies
    reason = "no value could be read" if text else "the page has the command and no output"
    if PLACEHOLDER.match(text):
        code, faults = "PLACEHOLDER", ()
        reason = f"the page says {text} in place of its output"
    return Read(
        not_read=(NotRead(kind=kind, what=command, reason=reason),),
        inconsistencies=(inconsistency(code, command, reason), *faults),
    )


def _tables_in(prose: Sequence[str]) -> Iterator[Inconsistency]:
    """Yield the paragraphs of *prose* that are tables of numbers, or one line of a program's output."""
    paragraph: list[str] = []
    for line in [*prose, ""]:
        if line.strip():
            paragraph.append(line)
            continue
        rows = [_row_of_numbers(row) for row in paragraph]
        if any(count > 1 for count in rows) or sum(map(bool, rows)) > 1:
            yield not_understood("text outside literal blocks", paragraph[0], len(paragraph))
        paragraph = []


def _row_of_numbers(line: str) -> int:
    """Return how many numbers *line* has if it has little else; 0 for a sentence."""
    if len(line) > MAX_LINE:
        return 0
    words = [bare for word in CELL.split(line) if (bare := word.strip("*|+:-"))]
    numbers = sum(number(word) is not None for word in words)
    named = numbers == 1 and len(words) <= MIX_WORDS and number(words[-1]) is not None and ":" in line
    return numbers if numbers == len(words) or 2 * numbers >= len(words) > 2 or named or section_kind(line) else 0


class _Title(NamedTuple):
    text: str
    line: int


def _titles(lines: Sequence[str]) -> Iterator[_Title]:
    """Yield the titles of *lines*."""
    for place, (line, below) in enumerate(pairwise(lines)):
        if _underlined(line, below):
            yield _Title(ESCAPED.sub(r"\1", line.strip()), place)


def _underlined(line: str, below: str) -> bool:
    """Return whether *line* is a title, underlined by *below*."""
    title = bool(line.strip()) and not line[0].isspace() and not UNDERLINE.match(line) and not DELAYS.match(line)
    return title and UNDERLINE.match(below) is not None


def _literal(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the range of lines of each literal block.

    A block is indented, or fenced, or follows ``::`` without indentation: then it lasts until the next title, literal
    block or directive, and counts only if it begins with a command or contains output of a known program.
    """
    place = 0
    while place < len(lines):
        line = lines[place].rstrip()
        place += 1
        first = place
        if FENCE.match(line):
            while place < len(lines) and not FENCE.match(lines[place]):
                place += 1
            yield first, place
            place += 1
            continue
        directive = DIRECTIVE.match(line)
        if not directive and (not line.endswith("::") or line.lstrip().startswith(".. ")):
            continue
        while directive and place < len(lines) and OPTION.match(lines[place]):
            place += 1
            first = place
        indent = _indent(line)
        while place < len(lines) and (not lines[place].strip() or _indent(lines[place]) > indent):
            place += 1
        body = any(text.strip() for text in lines[first:place])
        if place < len(lines) and (not body or lines[place - 1].strip()):
            end = place
            while end < len(lines) and not _bounded(lines, end):
                end += 1
            if body or _printed_by_program(lines[place:end]):
                place = end
                body = True
        if body or place == len(lines):
            yield first, place


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _bounded(lines: Sequence[str], place: int) -> bool:
    """Return whether an unindented literal block ends above the line at *place*."""
    line = lines[place].rstrip()
    begins = line.startswith(".. ") or line.endswith("::") or DIRECTIVE.match(line) or FENCE.match(line)
    return bool(begins) or _underlined(line, "".join(lines[place + 1 : place + 2]))


def _printed_by_program(lines: Sequence[str]) -> bool:
    beginnings = [line[:MAX_LINE] for line in lines if line.strip()]
    return any(command_after_prompt(line) is not None for line in beginnings[:1]) or any(
        BANNER.search(line) or JITTER.search(line) or section_kind(line) for line in beginnings
    )


def _blocks(lines: Sequence[str], literal: Sequence[tuple[int, int]], *, ended: bool) -> Iterator[Block]:
    """Yield the commands in the *literal* blocks of *lines* with their outputs, in order."""
    for first, end in literal:
        kept = [line.expandtabs() if len(line) <= MAX_LINE else line for line in lines[first:end]]
        body = textwrap.dedent("\n".join(kept)).split("\n")
        whole = end < len(lines) or ended or not body[-1].strip()
        commands = {place: command for place, line in enumerate(body) if (command := _command(line)) is not None}
        above = None if commands else _above(lines, first)
        for start, stop in pairwise([-1, *commands, len(body)]):
            output = "\n".join(body[start + 1 : stop])
            command = commands.get(start, above)
            if command or output.strip():
                yield Block(command, output, whole or stop < len(body))


def _command(line: str) -> str | None:
    """Return the command in a line of a literal block; ``None`` if there is none."""
    if line.startswith(("$ ", "# ")):
        return line[2:].strip()
    return command_after_prompt(line[:MAX_LINE])


def _above(lines: Sequence[str], first: int) -> str | None:
    """Return the command in the line above the fence of a block; ``None`` if there is none."""
    if not FENCE.match(lines[first - 1]):
        return None
    line = next((line[:MAX_LINE] for line in reversed(lines[max(0, first - 3) : first - 1]) if line.strip()), "")
    return command_after_prompt(line) if mlc_command(line) else None
