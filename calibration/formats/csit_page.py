# SPDX-License-Identifier: Apache-2.0
"""Published calibration pages: text whose literal blocks hold a command and what it printed.

They are those of FD.io CSIT. The text need not be whole or valid reStructuredText: titles and literal blocks are found
by their form. A block that no reader knows, and a table of figures outside literal blocks, are listed.
"""

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import Final, Literal, NamedTuple

from calibration.context.cmdline import MAX_CMDLINE, parse_cmdline
from calibration.errors import InputError
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
from calibration.formats.mlc import BANNER, NOTES, looks_like_mlc, mlc_results, starts_mlc, starts_section
from calibration.formats.page_checks import PageFacts, page_inconsistencies
from calibration.formats.pma_jitter import BANNER as JITTER
from calibration.formats.pma_jitter import jitter_results
from calibration.measurements.base import PROBE
from calibration.model import Model
from calibration.results.readings import (
    Inconsistency,
    NotRead,
    Read,
    inconsistency,
    numbered,
)

UNDERLINE: Final = re.compile(r"^([=\-~^\"'`#*+.:_])\1{2,}\s*$")
PLACEHOLDER: Final = re.compile(
    r"^\W*(?:TB[CDA]|TO[D]O|FIX[M]E|XX+|n/?a|to be (?:confirmed|done|defined|added|measured)|pending)\W*$",
    re.IGNORECASE,
)
FENCE: Final = re.compile(r"^[ \t]{0,12}(?:>[ \t]?)?```")
DIRECTIVE: Final = re.compile(r"^[ \t]{0,40}\.\. (?:code|code-block|sourcecode|parsed-literal|prompt)::")
OPTION: Final = re.compile(r"^[ \t]{1,40}:[\w-]{1,40}:")
DELAYS: Final = re.compile(r"^\s{0,40}Delay\b", re.IGNORECASE)
"""The heading of a table that is underlined as a title is."""

CELL: Final = re.compile(r"[\s,;|\"]+")
MIX_WORDS: Final = 5
"""The row of a mix has no more words: its name, a colon and its figure."""

MAX_BLOCKS: Final = 5000
"""Most commands with their output in one page; published ones have up to twenty."""

MAX_LISTED: Final = 20
"""So many inconsistencies of each code are listed, and then how many more there are."""

SUT_NAME: Final = re.compile(r"\b((?:s\d{1,4}-)?(t\d{1,4})-(?:sut|tg)\d{1,4})\b", re.IGNORECASE)
ESCAPED: Final = re.compile(r"\\(.)")
"""A character that reStructuredText takes for itself because of the sign before it."""

OWN: Final = ".. Made from the run document run.json"
"""The comment at the top of this project's pages: what they show is in run.json, with its uncertainty."""

TOP: Final = 1000
"""So many characters of a text are looked at for it."""

CONTEXT: Final = ("cat /proc/cmdline", "uname -a")
"""The commands that print what a page says of the kernel."""

PUBLISHED: Final = {
    "jitter": re.compile(r"\bjitter\b"),
    "bandwidth_matrix": re.compile(r"--bandwidth_matrix\b"),
    "peak_injection_bandwidth": re.compile(r"--peak_injection_bandwidth\b"),
    "max_bandwidth": re.compile(r"--max_bandwidth\b"),
    "latency_matrix": re.compile(r"--latency_matrix\b"),
    "idle_latency": re.compile(r"--idle_latency\b"),
    "loaded_latency": re.compile(r"--loaded_latency\b"),
    "c2c_latency": re.compile(r"--c2c_latency\b"),
}
"""The kinds of the published pages, and what their commands have in common."""


class ImportedContext(Model):
    """What a page says of the machine's kernel, as it stands there; ``isolcpus`` is that of the command line."""

    cmdline: str | None
    uname: str | None
    isolcpus: str | None


class Published(Model):
    """What one text of others says: whose it is, its context, its results and what contradicts itself.

    What the text does not say is ``None``.
    """

    format: Literal["csit_page", "mlc", "pma_jitter"]
    title: str | None
    testbed: str | None
    sut: str | None
    context: ImportedContext
    read: Read


class Block(NamedTuple):
    """One command of a literal block and what it printed; ``whole`` tells whether its end was seen."""

    command: str | None
    output: str
    whole: bool


def read_published(text: str) -> Published:
    """Return what *text*, a published page or raw output of Intel MLC or PMA jitter, says; recognised by its content.

    Raises ``InputError`` where nothing is recognised, and for a page that this project made.
    """
    if OWN in text[:TOP]:
        raise InputError("this page was made by this project: use its run.json")
    if len(text) > MAX_CHARACTERS:
        raise InputError(f"expected at most {MAX_CHARACTERS} characters of a calibration page, found {len(text)}")
    page = _page(text)
    if page is not None:
        return page
    lines = lines_of(text)
    read = _programs(lines, None)
    if not read.readings and not read.not_read and not (read.inconsistencies and looks_like_mlc(lines)):
        raise InputError(
            "expected a published calibration page, or output of Intel MLC or PMA jitter, found nothing of them: no "
            "command with its output in a literal block, no heading of either program"
        )
    return _published(read, page_inconsistencies(PageFacts(text="", title=None), read.readings))


def _published(read: Read, more: Iterable[Inconsistency]) -> Published:
    """Return *read* as what one or several outputs without a page say."""
    kinds = {*(each.values.kind for each in read.readings), *(each.kind for each in read.not_read)}
    return Published(
        format="pma_jitter" if kinds == {"jitter"} else "mlc",
        title=None,
        testbed=None,
        sut=None,
        context=ImportedContext(cmdline=None, uname=None, isolcpus=None),
        read=read.model_copy(update={"inconsistencies": _listed([*read.inconsistencies, *more])}),
    )


def _listed(found: Sequence[Inconsistency]) -> tuple[Inconsistency, ...]:
    """Return *found* without repetitions, and of each code no more than are read."""
    listed: list[Inconsistency] = []
    count: Counter[str] = Counter()
    for each in dict.fromkeys(found):
        count[each.code] += 1
        if count[each.code] <= MAX_LISTED:
            listed.append(each)
    for code, total in count.items():
        if total > MAX_LISTED:
            listed.append(inconsistency(code, "text", f"and {total - MAX_LISTED} more"))
    return tuple(listed)


def _programs(lines: Sequence[Line], command: str | None) -> Read:
    """Return what *lines*, printed by *command*, say as output of either program, and list what neither knows."""
    understood: set[int] = set()
    found = [mlc_results(lines, command, understood), jitter_results(lines, command, understood)]
    where = command or "text"
    rest = [not_understood(where, block[0].text, len(block)) for block in left_over(lines, understood, NOTES)]
    return _joined(found, rest)


def _joined(found: Sequence[Read], more: Iterable[Inconsistency] = ()) -> Read:
    return Read(
        readings=numbered([each for read in found for each in read.readings]),
        not_read=tuple(each for read in found for each in read.not_read),
        inconsistencies=(*(each for read in found for each in read.inconsistencies), *more),
    )


def _page(text: str) -> Published | None:
    """Return what the page *text* says; ``None`` where it has no literal block that is part of a calibration."""
    lines = split(plain(text))
    literal = list(_literal(lines))
    blocks = list(islice(_blocks(lines, literal, ended=text.endswith(("\n", "\r"))), MAX_BLOCKS + 1))
    if len(blocks) > MAX_BLOCKS:
        raise InputError(f"expected at most {MAX_BLOCKS} commands in the literal blocks of a page, found more")
    cmdline, uname = _printed(blocks, "cat /proc/cmdline"), _printed(blocks, "uname -a")
    prose = _prose(lines, literal)
    titles = [each._replace(title=ESCAPED.sub(r"\1", each.title)) for each in _titles(prose)]
    title = titles[0].title if titles else None
    found: list[Read] = []
    foreign: list[Inconsistency] = []
    for block in blocks:
        read = _results(block)
        if read is not None:
            found.append(read)
        elif not _is_context(block):
            shown = [line for line in block.output.splitlines() if line.strip()]
            first = block.command or next(iter(shown), "")
            foreign.append(not_understood("literal block", first, len(shown) + bool(block.command)))
    if not found and cmdline is None and uname is None:
        return None
    read = _joined(found, [*foreign, *_tables_in(prose)])
    if cmdline is None and uname is None and all(FENCE.match(lines[first - 1]) for first, _ in literal):
        return _published(read, page_inconsistencies(PageFacts(text="", title=None), read.readings))
    said = "\n".join(prose)
    name = SUT_NAME.search(said) or SUT_NAME.search(uname or "")
    facts = PageFacts(
        text=said,
        title=title,
        introduction="\n".join(prose[: titles[1].line if len(titles) > 1 else None]),
        titles=tuple(each.title for each in titles),
        cmdline=cmdline,
        uname=uname,
        host=name,
    )
    named = {each.values.kind for each in read.readings} | {each.kind for each in read.not_read}
    absent = tuple(kind for kind in PUBLISHED if kind not in named)
    isolcpus = [each.value for each in parse_cmdline(cmdline or "").parameters if each.name == "isolcpus"]
    return Published(
        format="csit_page",
        title=title,
        testbed=name[2].lower() if name else None,
        sut=name[1].lower() if name else None,
        context=ImportedContext(cmdline=cmdline, uname=uname, isolcpus=isolcpus[-1] if isolcpus else None),
        read=Read(
            readings=read.readings,
            not_read=(
                *read.not_read,
                *(NotRead(kind=kind, what=kind, reason="the page has no output of it") for kind in absent),
            ),
            inconsistencies=_listed([*read.inconsistencies, *page_inconsistencies(facts, read.readings)]),
        ),
    )


def _is_context(block: Block) -> bool:
    """Tell whether *block* is what a page says of the kernel, or has nothing to say."""
    return any(each in (block.command or "") for each in CONTEXT) or not (block.command or block.output.strip())


def _printed(blocks: Sequence[Block], command: str) -> str | None:
    """Return what *command* printed, without blank lines around it; ``None`` for a placeholder or nothing."""
    for block in blocks:
        if block.command is not None and command in block.command:
            text = block.output.strip("\n").rstrip()
            if len(text) > MAX_CMDLINE:
                raise InputError(f"{command}: at most {MAX_CMDLINE} characters of output expected, found {len(text)}")
            return None if not text or PLACEHOLDER.match(text) else text
    return None


def _results(block: Block) -> Read | None:
    """Return the results in *block*; ``None`` where it is about something else."""
    if (block.command or "").startswith(f"{PROBE} "):
        return None
    kind = next((kind for kind, form in PUBLISHED.items() if form.search(block.command or "")), None)
    read = _programs(lines_of(block.output, whole=block.whole), block.command)
    if read.readings or read.not_read:
        return read
    if kind is None:
        return None
    what = block.command or kind
    text = block.output.strip()
    if PLACEHOLDER.match(text):
        reason = f"the page says {text} where its output should be"
        return Read(
            not_read=(NotRead(kind=kind, what=what, reason=reason),),
            inconsistencies=(inconsistency("PLACEHOLDER", what, reason),),
        )
    reason = "no figure of it could be read" if text else "the page has the command and no output"
    return Read(
        not_read=(NotRead(kind=kind, what=what, reason=reason),),
        inconsistencies=(inconsistency("TRUNCATED", what, reason), *read.inconsistencies),
    )


def _tables_in(prose: Sequence[str]) -> Iterator[Inconsistency]:
    """Yield the paragraphs of *prose* that are tables of figures, or one line of a program's figures."""
    paragraph: list[str] = []
    for line in [*prose, ""]:
        if line.strip():
            paragraph.append(line)
            continue
        rows = [_row_of_figures(each) for each in paragraph]
        if any(count > 1 for count in rows) or sum(map(bool, rows)) > 1:
            yield not_understood("text outside literal blocks", paragraph[0], len(paragraph))
        paragraph = []


def _row_of_figures(line: str) -> int:
    """Return how many figures *line* has where it has little else; 0 for a sentence."""
    if len(line) > MAX_LINE:
        return 0
    words = [word for each in CELL.split(line) if (word := each.strip("*|+:-"))]
    figures = sum(number(word) is not None for word in words)
    named = figures == 1 and len(words) <= MIX_WORDS and number(words[-1]) is not None and ":" in line
    return figures if figures == len(words) or 2 * figures >= len(words) > 2 or named or starts_section(line) else 0


class _Title(NamedTuple):
    title: str
    line: int


def _titles(lines: Sequence[str]) -> Iterator[_Title]:
    """Yield the titles of *lines*: those that are underlined."""
    for place, (line, below) in enumerate(pairwise(lines)):
        if _underlined(line, below):
            yield _Title(line.strip(), place)


def _underlined(line: str, below: str) -> bool:
    """Tell whether *line* is a title, which *below* underlines."""
    return bool(
        line.strip()
        and not line[0].isspace()
        and UNDERLINE.match(below)
        and not UNDERLINE.match(line)
        and not DELAYS.match(line)
    )


def _literal(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the first line and the line after the last of each literal block.

    A block is indented, or fenced, or follows ``::`` without indentation: then it lasts until the next title, literal
    block or directive, and is taken for one where it begins with a command or has what a known program prints.
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
        indent = len(line) - len(line.lstrip())
        while place < len(lines) and (
            not lines[place].strip() or len(lines[place]) - len(lines[place].lstrip()) > indent
        ):
            place += 1
        body = any(each.strip() for each in lines[first:place])
        if place < len(lines) and (not body or lines[place - 1].strip()):
            end = place
            while end < len(lines) and not _bounded(lines, end):
                end += 1
            if body or _printed_by_program(lines[place:end]):
                place = end
                body = True
        if body or place == len(lines):
            yield first, place


def _bounded(lines: Sequence[str], place: int) -> bool:
    """Tell whether a literal block without indentation ends above the line at *place*."""
    line = lines[place].rstrip()
    below = lines[place + 1] if place + 1 < len(lines) else ""
    begins = line.startswith(".. ") or any(form.match(line) for form in (DIRECTIVE, FENCE))
    return begins or line.endswith("::") or _underlined(line, below)


def _printed_by_program(lines: Sequence[str]) -> bool:
    first = next((line for line in lines if line.strip()), "")
    return command_after_prompt(first[:MAX_LINE]) is not None or any(
        BANNER.search(line[:MAX_LINE]) or JITTER.search(line[:MAX_LINE]) or starts_section(line[:MAX_LINE])
        for line in lines
    )


def _blocks(lines: Sequence[str], literal: Sequence[tuple[int, int]], *, ended: bool) -> Iterator[Block]:
    """Yield the commands in the *literal* blocks of *lines* with their outputs, in order."""
    for first, end in literal:
        kept = [line.expandtabs() if len(line) <= MAX_LINE else line for line in lines[first:end]]
        body = textwrap.dedent("\n".join(kept)).split("\n")
        whole = end < len(lines) or ended or any(not line.strip() for line in body[-1:])
        commands = {place: command for place, line in enumerate(body) if (command := _command(line)) is not None}
        starts = list(commands)
        above = _above(lines, first) if not starts else None
        for start, stop in zip([-1, *starts], [*starts, len(body)], strict=True):
            output = "\n".join(body[start + 1 : stop])
            command = commands.get(start, above)
            if command is not None or output.strip():
                yield Block(command, output, whole or stop < len(body))


def _command(line: str) -> str | None:
    """Return the command in a line of a literal block; ``None`` where it has none."""
    if line.startswith(("$ ", "# ")):
        return line[2:].strip()
    return command_after_prompt(line[:MAX_LINE])


def _above(lines: Sequence[str], first: int) -> str | None:
    """Return the command in the line above the fence of a block; ``None`` where there is none."""
    if not FENCE.match(lines[first - 1]):
        return None
    line = next((line for line in reversed(lines[max(0, first - 3) : first - 1]) if line.strip()), "")
    return command_after_prompt(line[:MAX_LINE]) if starts_mlc(line[:MAX_LINE]) else None


def _prose(lines: Sequence[str], literal: Sequence[tuple[int, int]]) -> list[str]:
    inside = {place for first, end in literal for place in range(first, end)}
    return [line for place, line in enumerate(lines) if place not in inside]
