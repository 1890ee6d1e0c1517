# SPDX-License-Identifier: Apache-2.0
"""The file of waivers is read strictly; faults have their line."""

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


def test_a_missing_or_empty_file_has_no_waivers(tmp_path: Path) -> None:
    assert read_waivers(tmp_path).by_key == {}
    read(tmp_path, "")
    read(tmp_path, "[]\n")


def test_waivers_are_read(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.parent.mkdir()
    path.write_text(GOOD, encoding="utf-8")
    found = read_waivers(tmp_path).by_key
    assert list(found) == [("lab", "t1", "jitter.cpu2.gaps.max_ns", "limits"), ("lab", "t2", "run", "missing")]
    (line, first), (other, second) = found.values()
    assert (line, first.by, first.reason, first.until) == (2, "Ada Lovelace", "the fan is ordered", date(2026, 12, 1))
    assert (other, second.until) == (9, date(2026, 12, 24))


@pytest.mark.parametrize(("old", "new", "fault"), [
    ("  sut: t1\n", "", "line 2, waiver 1: sut: Field required"),
    ("  reason: the fan is ordered\n", "", "waiver 1: reason: Field required"),
    ("the fan is ordered", "", "waiver 1: reason: String should have at least 1 character"),
    ("the fan is ordered", "[a, b]", "waiver 1: reason: Input should be a valid string"),
    ("the fan is ordered", '"a\\u202eb"', "waiver 1: reason: .*control characters are not allowed"),
    ("  by: Ada Lovelace", "  owner: Ada", "waiver 1: by: Field required"),
    ("  by: Ada Lovelace", "  by: Ada\n  owner: Ada", "waiver 1: owner: Extra inputs are not permitted"),
    ("check: limits", "check: level", "waiver 1: check: Input should be 'unreadable', 'restored', 'inventory'"),
    ("until: 2026-12-01", "until: next week", "waiver 1: until: Input should be a valid date"),
    ("until: 2026-12-01", "until: 2026-13-01", "waiver 1: until: Input should be a valid date"),
    ("until: 2026-12-01", "until:", "waiver 1: until: Input should be a valid date"),
    ("  sut: t1\n", "  sut: t1\n  sut: t2\n", "duplicate key 'sut', line"),
    ("- {testbed: lab,", "- lab\n- {testbed: lab,", "line 9, waiver 2: the top: not a mapping"),
])  # fmt: skip
def test_a_fault_is_reported_with_its_line(tmp_path: Path, old: str, new: str, fault: str) -> None:
    assert old in GOOD
    assert re.search(fault, fault_of(tmp_path, GOOD.replace(old, new, 1)))


def test_duplicate_waivers_are_a_fault(tmp_path: Path) -> None:
    entry = GOOD.splitlines()[-1]
    found = fault_of(tmp_path, f"{GOOD}{entry}\n")
    assert found == "line 10: lab t2 run missing is waived in line 9 already"


@pytest.mark.parametrize(("text", "fault"), [
    ("waivers: []\n", "not a list of waivers"),
    ("- {testbed: lab\n", "not valid YAML"),
    ("- !!python/object:os.system {}\n", "testbed: Field required"),
])  # fmt: skip
def test_a_file_without_a_list_is_a_fault(tmp_path: Path, text: str, fault: str) -> None:
    assert re.search(fault, fault_of(tmp_path, text))


def test_a_file_that_is_not_text_is_a_fault(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.parent.mkdir()
    path.write_bytes(b"\xff\xfe")
    assert "not valid YAML" in (read_waivers(tmp_path).fault or "")
    path.unlink()
    path.mkdir()
    assert "not a regular file" in (read_waivers(tmp_path).fault or "")
