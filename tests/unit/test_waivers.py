# SPDX-License-Identifier: Apache-2.0
"""The file of waivers, which people write: read strictly, every fault with its line."""

import re
from datetime import date
from pathlib import Path

import pytest

from calibration.judge.waivers import FILE, read_waivers

GOOD = """\
# what is known
- testbed: lab
  sut: t1
  metric: jitter.cpu2.gaps.max_ns
  check: limits
  reason: the fan is ordered
  by: Ada Lovelace
  until: 2026-12-01
- {testbed: lab, sut: t2, metric: run, check: missing, reason: in repair, by: Ada, until: "2026-12-24"}
"""


def read(tmp_path: Path, text: str) -> None:
    path = tmp_path / FILE
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    found = read_waivers(tmp_path).by_key
    assert found == {}


def fault_of(tmp_path: Path, text: str) -> str:
    path = tmp_path / FILE
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    found = read_waivers(tmp_path)
    assert found.by_key == {}
    return found.fault or ""


def test_no_file_and_an_empty_one_are_no_waivers(tmp_path: Path) -> None:
    assert read_waivers(tmp_path).by_key == {}
    read(tmp_path, "")
    read(tmp_path, "[]\n")


def test_waivers_are_found_by_what_they_are_for(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.parent.mkdir()
    path.write_text(GOOD, encoding="utf-8")
    found = read_waivers(tmp_path).by_key
    assert list(found) == [
        ("lab", "t1", "jitter.cpu2.gaps.max_ns", "limits"),
        ("lab", "t2", "run", "missing"),
    ]
    first, second = found.values()
    assert (first.line, first.by, first.reason, first.until) == (
        2,
        "Ada Lovelace",
        "the fan is ordered",
        date(2026, 12, 1),
    )
    assert (second.line, second.until) == (9, date(2026, 12, 24))


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("  sut: t1\n", "", "line 2, waiver 1: expected sut, found none"),
        ("  reason: the fan is ordered\n", "", "expected reason, found none"),
        ("the fan is ordered", "", "expected reason to be a line of text, found ''"),
        ("the fan is ordered", "[a, b]", "expected reason to be a line of text"),
        ("the fan is ordered", '"a\\u202eb"', "expected reason to be a line of text"),
        ("  by: Ada Lovelace", "  owner: Ada", "expected the keys .*, found 'owner'"),
        ("check: limits", "check: level", "expected check to be one of limits, drift, .*, found 'level'"),
        ("until: 2026-12-01", "until: next week", "expected until to be a date such as 2026-01-31"),
        ("until: 2026-12-01", "until: 2026-13-01", "expected until to be a date such as 2026-01-31"),
        ("until: 2026-12-01", "until:", "expected until to be a line of text"),
        ("  sut: t1\n", "  sut: t1\n  sut: t2\n", "expected sut once, found it twice"),
        ("- {testbed: lab,", "- lab\n- {testbed: lab,", "line 9, waiver 2: expected a mapping of testbed, sut"),
    ],
)
def test_a_fault_is_named_with_its_line(tmp_path: Path, old: str, new: str, fault: str) -> None:
    assert old in GOOD
    assert re.search(fault, fault_of(tmp_path, GOOD.replace(old, new, 1)))


def test_two_waivers_for_the_same_are_a_fault(tmp_path: Path) -> None:
    entry = GOOD.splitlines()[-1]
    found = fault_of(tmp_path, f"{GOOD}{entry}\n")
    assert found.startswith("line 10, waiver 3: expected one waiver for lab t2 run missing, found another in line ")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("waivers: []\n", "expected a list of waivers, found another form"),
        ("- {testbed: lab\n", "not valid YAML"),
        ("- !!python/object:os.system {}\n", "expected testbed, found none"),
    ],
)
def test_what_is_no_list_of_waivers_is_a_fault(tmp_path: Path, text: str, fault: str) -> None:
    assert re.search(fault, fault_of(tmp_path, text))


def test_what_is_no_text_is_a_fault(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.parent.mkdir()
    path.write_bytes(b"\xff\xfe")
    assert "not valid YAML" in (read_waivers(tmp_path).fault or "")
    path.unlink()
    path.mkdir()
    assert "not a regular file" in (read_waivers(tmp_path).fault or "")
