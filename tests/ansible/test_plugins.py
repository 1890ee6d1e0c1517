# SPDX-License-Identifier: Apache-2.0
"""Decisions of the actions, without Ansible."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from support import load_plugin

from calibration.errors import RefusedError
from calibration.judge.run import verdicts_of
from calibration.remote import Found
from calibration.report.summary import summary
from tests.report.report_documents import run_document

CLEANUP = load_plugin("action", "cleanup")


@pytest.mark.parametrize("records", [None, b"", b'{"record": "sta'])
def test_removes_a_run_that_did_not_begin_with_its_empty_parents(tmp_path: Path, records: bytes | None) -> None:
    results = tmp_path / "results"
    directory = results / "testbed1" / "sut1" / "run"
    directory.mkdir(parents=True)
    (directory / "context.tar.gz").write_bytes(b"half")
    if records is not None:
        (directory / "records.jsonl").write_bytes(records)
    CLEANUP.remove_partial(directory)
    assert list(results.iterdir()) == []


def test_removes_a_partial_document_and_keeps_the_run(tmp_path: Path) -> None:
    directory = tmp_path / "testbed1" / "sut1" / "run"
    directory.mkdir(parents=True)
    (directory / ".run.json.4711").write_bytes(b"{")
    (directory / "records.jsonl").write_bytes(b'{"record": "start"}\n')
    CLEANUP.remove_partial(directory)
    assert [path.name for path in directory.iterdir()] == ["records.jsonl"]


class Refusing:
    """A SUT with a run that it does not end, or does not restore."""

    def __init__(self, cancel: Exception | None, faults: list[str]) -> None:
        self.found = [Found(directory="/b/calibration-r-s-00000000", boot_id=None, planned=True)]
        self.error, self.faults = cancel, faults

    def find(self, _run_id: str, _sut: str) -> list[Found]:
        return self.found

    def cancel(self, _directory: str) -> None:
        if self.error:
            raise self.error

    def remove(self, _directory: str) -> tuple[tuple[()], list[str]]:
        return (), self.faults


@pytest.mark.parametrize(
    ("sut", "said"),
    [
        (Refusing(RefusedError("the run does not end within 20 s"), []), "the run does not end within 20 s"),
        (Refusing(None, ["no_turbo reads 1"]), "not restored: no_turbo reads 1"),
    ],
    ids=["does not end", "is not restored"],
)
def test_a_sut_that_cannot_be_cleaned_fails_the_cleanup(sut: Refusing, said: str, tmp_path: Path) -> None:
    action = CLEANUP.ActionModule.__new__(CLEANUP.ActionModule)
    action.task_vars = {"inventory_hostname": "sut1"}
    action.remote = lambda *_: sut
    names = {"testbed": "t1", "sut": "sut1", "run_id": "r1", "lock": "l", "remote_base": "/b"}
    result = action.act({"results": str(tmp_path), **names})
    assert (result["failed"], result["msg"]) == (True, said)


def test_an_unreadable_reference_keeps_all_runs(tmp_path: Path) -> None:
    plugin = load_plugin("action", "delete_old_runs")
    action = plugin.ActionModule.__new__(plugin.ActionModule)
    warnings: list[str] = []
    action._display = SimpleNamespace(warning=warnings.append)
    action._task = SimpleNamespace(check_mode=False)
    (tmp_path / "references").mkdir()
    (tmp_path / "references" / "x.json").write_text("{")
    policy = {"nights": 1, "raw_nights": 1}
    assert action.act({"results": str(tmp_path), "run_id": "20261122T023005Z-3f2a", **policy}) == {"removed": []}
    (warning,) = warnings
    assert "references/x.json" in warning
    assert "nothing was removed" in warning


def test_reports_failed_verdicts_by_kind_with_the_worst_first(tmp_path: Path) -> None:
    run = run_document(names=("idle_latency", "latency_matrix"))
    some = list(verdicts_of(run.measurements))[:1] * 5
    values = [
        ("a", "fail", 1.0),
        ("b", "fail", 2.0),
        ("c", "invalid", None),
        ("d", "invalid", None),
        ("e", "pass", 9.0),
    ]
    verdicts = tuple(
        verdict.model_copy(
            update={
                "name": name,
                "outcome": outcome,
                "reason": f"{name} is wrong",
                "upper": None if off is None else verdict.metric.value / (1 + off),
            }
        )
        for verdict, (name, outcome, off) in zip(some, values, strict=True)
    )
    judged = run.model_copy(update={"verdicts": verdicts, "consistency": ()})
    assert summary(tmp_path, judged)["failed_verdicts"] == [
        "b: b is wrong (and 1 more limits)",
        "c: c is wrong (and 1 more invalid metrics)",
    ]
    missing = verdicts[0].model_copy(update={"name": "z", "metric": None})
    judged = judged.model_copy(update={"verdicts": (*verdicts, missing)})
    assert summary(tmp_path, judged)["failed_verdicts"][0] == "z: a is wrong (and 2 more limits)"
