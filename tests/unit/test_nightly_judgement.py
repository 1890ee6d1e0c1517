# SPDX-License-Identifier: Apache-2.0
"""What is made of the judgement of a night: its file, and which SUTs fail by it."""

import json
from datetime import date
from pathlib import Path

import pytest

from calibration.errors import EnvironmentLacksError
from calibration.judge.verdicts import NightVerdict
from calibration.model import Model
from calibration.nightly.judgement import failures, keep

TONIGHT = date(2026, 11, 22)


class Judged(Model):
    """Stands for the judgement of a night."""

    night: date


def test_a_judgement_is_written_once(tmp_path: Path) -> None:
    path, changed = keep(tmp_path / "night", Judged(night=TONIGHT))
    assert changed
    assert json.loads(path.read_bytes()) == {"night": "2026-11-22"}
    assert keep(tmp_path / "night", Judged(night=TONIGHT)) == (path, False)
    assert keep(tmp_path / "night", Judged(night=date(2026, 11, 23))) == (path, True)
    assert [each.name for each in path.parent.iterdir()] == ["judgement.json"]


def test_a_judgement_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "night").write_text("no directory")
    with pytest.raises(EnvironmentLacksError, match="set judge_dir"):
        keep(tmp_path / "night", Judged(night=TONIGHT))


def verdict(sut: str, outcome: str, testbed: str = "t1") -> NightVerdict:
    return NightVerdict.model_validate(
        {
            "testbed": testbed,
            "sut": sut,
            "run_id": None,
            "night": TONIGHT,
            "metric": "run",
            "check": "missing",
            "outcome": outcome,
            "value": None,
            "unit": None,
            "bound": None,
            "interval": None,
            "since": None,
            "context_changes": (),
            "reason": "it was not measured",
            "waiver": None,
        }
    )


def test_suts_fail_by_their_own_verdicts() -> None:
    hosts = {("t1", "a"): "host-a", ("t1", "b"): "host-b"}
    verdicts = [verdict("a", "pass"), verdict("b", "fail"), verdict("a", "no_reference"), verdict("b", "fail")]
    said = "missing of run: it was not measured"
    assert failures(verdicts, hosts, limited=False) == {"host-b": [said, said]}


def test_a_sut_that_dropped_out_of_the_inventory_fails_its_testbed() -> None:
    hosts = {("t2", "x"): "host-x", ("t1", "a"): "host-a", ("t1", "b"): "host-b"}
    verdicts = [verdict("c", "fail"), verdict("y", "fail", "t3")]
    assert failures(verdicts, hosts, limited=False) == {
        "host-a": ["t1/c, which was not to be measured: missing of run: it was not measured"]
    }
    assert failures(verdicts, hosts, limited=True) == {}
