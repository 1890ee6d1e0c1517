# SPDX-License-Identifier: Apache-2.0
"""No figure of a text vanishes: each is in a measurement, or the block it stands in is listed.

Headings that it is unknown are put into raw outputs and pages, instead of known ones, before them, or known ones are
taken away.
"""

import ast
import re
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.base.errors import InputError
from calibration.formats.csit_page import read_published
from calibration.formats.lines import RULE, lines_of
from calibration.formats.mlc_sections import NOTES, looks_like_mlc, section_kind
from calibration.formats.readings import Read
from tests.readings import PAGES, RAW, figures

SECTION = re.compile(
    r"^[ \t]*(?:Measuring .*|Inject\s.*|(?:Reader |Writer )?(?:Numa node|Memory node|Socket)\b.*|Remote Socket .*|"
    r"Bandwidths are .*|Using .*|\s*Inst_Min\s.*|Inst_Min,.*)$",
    re.MULTILINE,
)
"""The lines that tell what the figures below them are."""

MLC = [path for path in RAW if path.parent.name == "mlc" and SECTION.search(path.read_text(encoding="utf-8"))]
words = st.lists(st.text(string.ascii_letters, min_size=2, max_size=12), min_size=1, max_size=6).map(" ".join)
headings = words.filter(lambda text: section_kind(text) is None)


def numbers(line: str) -> list[str]:
    """Return the figures of *line*: its numbers with a point, or nine whole ones."""
    if re.match(r"\s*(?:Using buffer|Intel|Linux|\$|Command line|BOOT_IMAGE)", line) or "version" in line:
        return []
    nine = re.findall(r"\d+", line) if re.fullmatch(r"\s*\d+(?:[ ,]+\d+){8}\"?", line) else []
    return nine or re.findall(r"(?<![\w.])\d+\.\d+(?![\w.])", line)


def covered(lines: list[str], read: Read) -> set[int]:
    """Return the places of the *lines* that the inconsistencies of *read* name."""
    found: set[int] = set()
    for inconsistency in read.inconsistencies:
        listed = re.match(r"no reader knows (.*?)(?: and (\d+) more lines?)?$", inconsistency.reason)
        column = listed is not None and listed[1].startswith("the column ")
        listed = None if column else listed
        first = ast.literal_eval(listed[1]).removesuffix("...") if listed else inconsistency.where
        count = (
            int(listed[2] or 0) + 1
            if listed
            else len(lines) * (column or inconsistency.code in {"TRUNCATED", "UNIT_NOT_SAID"})
        )
        for start in [place for place, line in enumerate(lines) if first.lower() in line.lower()]:
            left = count
            for place in range(start, len(lines)):
                if left == 0 or (not listed and place > start and section_kind(lines[place])):
                    break
                found.add(place)
                passed_over = NOTES.match(lines[place]) or RULE.fullmatch(lines[place])
                left -= bool(lines[place].strip()) and not passed_over
    return found


def check(text: str) -> None:
    """Check that every figure of *text* is in a measurement, or that the block it stands in is listed."""
    read = read_published(text).read
    known = {f"{value * scale:.9f}" for value in figures(read).values() for scale in (1, 1e-3)}
    lines = text.splitlines()
    named = covered(lines, read)
    for place, line in enumerate(lines):
        gone = [number for number in numbers(line) if f"{float(number):.9f}" not in known]
        assert not gone or place in named, (line, read.inconsistencies)


@pytest.mark.parametrize("path", [*RAW, *PAGES], ids=lambda path: path.stem)
def test_every_value_is_read_or_listed(path: Path) -> None:
    check(path.read_bytes().decode())


@given(
    st.sampled_from([*MLC, *PAGES]),
    st.lists(st.integers(0, 200), min_size=1, max_size=3),
    headings,
    st.sampled_from(["instead", "above", "gone"]),
    st.sampled_from(["", "\n"]),
)
def test_tables_below_an_unknown_heading_are_read_or_listed(
    path: Path, choices: list[int], heading: str, how: str, gap: str
) -> None:
    text = path.read_bytes().decode().replace("\r\n", "\n")
    places = list(SECTION.finditer(text))
    for match in sorted({places[choice % len(places)] for choice in choices}, key=lambda choice: -choice.start()):
        indent = " " * (len(match[0]) - len(match[0].lstrip()))
        line = {"instead": f"{gap}{indent}{heading}", "above": f"{gap}{indent}{heading}\n{match[0]}", "gone": gap}[how]
        text = text[: match.start()] + line + text[match.end() :]
    try:
        check(text)
    except InputError:
        assert not looks_like_mlc(lines_of(text))
