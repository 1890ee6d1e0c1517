# SPDX-License-Identifier: Apache-2.0
"""Published calibration pages: reStructuredText whose literal blocks hold a command and what it printed.

Those of FD.io CSIT, and the pages of this project, which have the same sections. The text need not be whole or valid
reStructuredText: titles and literal blocks are found by their form, and what is not understood is left alone.
"""

import re
import textwrap
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, Literal, NamedTuple

from calibration.context.cmdline import MAX_CMDLINE, parse_cmdline
from calibration.errors import InputError
from calibration.formats.lines import MAX_CHARACTERS
from calibration.formats.mlc import read_mlc
from calibration.formats.page_checks import PageFacts, page_inconsistencies
from calibration.formats.pma_jitter import read_jitter
from calibration.formats.sutprobe_blocks import read_blocks
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
SUT_NAME: Final = re.compile(r"\b((?:s\d{1,4}-)?(t\d{1,4})-(?:sut|tg)\d{1,4})\b", re.IGNORECASE)
ESCAPED: Final = re.compile(r"\\(.)")
"""A character that reStructuredText takes for itself because of the sign before it."""

OWN_TITLE: Final = re.compile(r"^Calibration Data - (\S+) / (\S+)$")

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

    Raises ``InputError`` where nothing is recognised.
    """
    if len(text) > MAX_CHARACTERS:
        raise InputError(f"expected at most {MAX_CHARACTERS} characters of a calibration page, found {len(text)}")
    blocks = list(blocks_of(text))
    page = _page(text, blocks) if blocks else None
    if page is not None:
        return page
    mlc, jitter = read_mlc(text), read_jitter(text)
    if not any((mlc.readings, mlc.not_read, jitter.readings, jitter.not_read)):
        raise InputError(
            "expected a published calibration page, or output of Intel MLC or PMA jitter, found nothing of them: no "
            "command with its output in a literal block, no heading of either program"
        )
    found = [each for each in (mlc, jitter) if each.readings or each.not_read]
    return Published(
        format="mlc" if mlc in found else "pma_jitter",
        title=None,
        testbed=None,
        sut=None,
        context=ImportedContext(cmdline=None, uname=None, isolcpus=None),
        read=_joined(found, page_inconsistencies(PageFacts(text="", title=None), [*mlc.readings, *jitter.readings])),
    )


def _joined(found: Sequence[Read], more: Sequence[Inconsistency] | Iterator[Inconsistency] = ()) -> Read:
    return Read(
        readings=numbered([each for read in found for each in read.readings]),
        not_read=tuple(each for read in found for each in read.not_read),
        inconsistencies=(*(each for read in found for each in read.inconsistencies), *more),
    )


def _page(text: str, blocks: Sequence[Block]) -> Published | None:
    """Return what the page with *blocks* says; ``None`` where none of them is part of a calibration."""
    cmdline = _printed(blocks, "cat /proc/cmdline")
    uname = _printed(blocks, "uname -a")
    found: list[Read] = []
    for block in blocks:
        read = _results(block)
        if read is None:
            continue
        found.append(read)
    if not found and cmdline is None and uname is None:
        return None
    prose = prose_of(text)
    titles = [each._replace(title=ESCAPED.sub(r"\1", each.title)) for each in titles_of(prose)]
    title = titles[0].title if titles else None
    own = OWN_TITLE.match(title or "")
    name = SUT_NAME.search(prose) or SUT_NAME.search(uname or "")
    facts = PageFacts(
        text=prose,
        title=title,
        introduction="\n".join(prose.splitlines()[: titles[1].line if len(titles) > 1 else None]),
        titles=tuple(each.title for each in titles),
        cmdline=cmdline,
        uname=uname,
        host=None if own else name,
    )
    read = _joined(found)
    named = {each.values.kind for each in read.readings} | {each.kind for each in read.not_read}
    absent = () if own else tuple(kind for kind in PUBLISHED if kind not in named)
    isolcpus = [each.value for each in parse_cmdline(cmdline or "").parameters if each.name == "isolcpus"]
    return Published(
        format="csit_page",
        title=title,
        testbed=own[1] if own else name[2].lower() if name else None,
        sut=own[2] if own else name[1].lower() if name else None,
        context=ImportedContext(cmdline=cmdline, uname=uname, isolcpus=isolcpus[-1] if isolcpus else None),
        read=Read(
            readings=read.readings,
            not_read=(
                *read.not_read,
                *(NotRead(kind=kind, what=kind, reason="the page has no output of it") for kind in absent),
            ),
            inconsistencies=(*read.inconsistencies, *page_inconsistencies(facts, read.readings)),
        ),
    )


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
    kind = next((kind for kind, form in PUBLISHED.items() if form.search(block.command or "")), None)
    for read in (
        read_mlc(block.output, whole=block.whole, command=block.command),
        read_jitter(block.output, whole=block.whole, command=block.command),
        read_blocks(block.output, block.command),
    ):
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
        inconsistencies=(inconsistency("TRUNCATED", what, reason),),
    )


class _Title(NamedTuple):
    title: str
    line: int


def titles_of(text: str) -> Iterator[_Title]:
    """Yield the titles of *text*: lines that are underlined."""
    lines = text.splitlines()
    for place, (line, below) in enumerate(pairwise(lines)):
        if line.strip() and not line[0].isspace() and UNDERLINE.match(below) and not UNDERLINE.match(line):
            yield _Title(line.strip(), place)


def _literal(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the first line and the line after the last of each literal block."""
    place = 0
    while place < len(lines):
        line = lines[place].rstrip()
        place += 1
        if not line.endswith("::") or line.lstrip().startswith(".. "):
            continue
        indent = len(line) - len(line.lstrip())
        first = place
        while place < len(lines) and (
            not lines[place].strip() or len(lines[place]) - len(lines[place].lstrip()) > indent
        ):
            place += 1
        yield first, place


def blocks_of(text: str) -> Iterator[Block]:
    """Yield the commands in the literal blocks of *text* with their outputs, in order."""
    lines = text.expandtabs().splitlines()
    for first, end in _literal(lines):
        body = textwrap.dedent("\n".join(lines[first:end])).splitlines()
        whole = end < len(lines) or text.endswith("\n") or any(not line.strip() for line in body[-1:])
        starts = [place for place, line in enumerate(body) if line.startswith(("$ ", "# "))]
        for start, stop in zip([-1, *starts], [*starts, len(body)], strict=True):
            output = "\n".join(body[start + 1 : stop])
            command = None if start < 0 else body[start][2:].strip()
            if command is not None or output.strip():
                yield Block(command, output, whole or stop < len(body))


def prose_of(text: str) -> str:
    """Return *text* without its literal blocks."""
    lines = text.splitlines()
    inside = {place for first, end in _literal(lines) for place in range(first, end)}
    return "\n".join(line for place, line in enumerate(lines) if place not in inside)
