# SPDX-License-Identifier: Apache-2.0
"""Decisions of the plugins, without Ansible."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure
from support import NOW, RESERVED, StandIn, begin_run, load_plugin

from calibration.errors import EnvironmentLacksError
from calibration.judge.run import verdicts_of
from calibration.lifecycle import finish
from calibration.measurements.base import Step
from calibration.reservation import REASONS, RESTARTED
from calibration.results.records import RestoredRecord, SwitchedRecord, append_record
from calibration.tuning import Change
from tests.report.report_documents import run_document

MEASURE_PLUGIN = load_plugin("action", "calibration_measure")
KERNEL_MODULE = load_plugin("modules", "sutprobe")
COLLECT_PLUGIN = load_plugin("action", "calibration_collect")
RESERVATION_MODULE = load_plugin("modules", "sut_reservation")

SOURCE = "a" * 64
OTHER = "b" * 64


def probe_answer(**changes: Any) -> str:
    plain = {"status": "ok", "error": None, "build": {"source_sha256": SOURCE}, "result": {}}
    return json.dumps(plain | changes)


def failed(code: str, message: str) -> str:
    return probe_answer(status="failed", error={"code": code, "message": message}, result=None)


ANSWERS: dict[str, tuple[dict[str, Any], str, str | None]] = {
    "ok": ({"rc": 0, "stdout": probe_answer() + "\n", "stderr": ""}, "ok", None),
    "refused": ({"rc": 2, "stdout": failed("usage", "no such option"), "stderr": ""}, "failed", "no such option"),
    "deadline": ({"rc": 3, "stdout": failed("deadline", "30 s are over"), "stderr": ""}, "timed_out", "30 s are over"),
    "ended": ({"rc": 4, "stdout": failed("interrupted", "SIGTERM came"), "stderr": ""}, "killed", "SIGTERM came"),
    "killed": ({"rc": 137, "stdout": "", "stderr": "Killed\n"}, "killed", "killed by SIGKILL before it had a result"),
    "silent": ({"rc": 1, "stdout": " \n", "stderr": "oh no"}, "failed", "exit code 1; stderr: oh no"),
    "noise": ({"rc": 0, "stdout": "Welcome!\n" + probe_answer(), "stderr": ""}, "failed", "; stdout: Welcome!\\n{"),
    "list": ({"rc": 0, "stdout": "[]", "stderr": ""}, "failed", "it is a list, not an object"),
    "nan": (
        {"rc": 0, "stdout": probe_answer(result={"ns": float("nan")}), "stderr": ""},
        "failed",
        "NaN is not allowed",
    ),
    "other-bytes": (
        {"rc": 0, "stdout": probe_answer(build={"source_sha256": OTHER}), "stderr": ""},
        "failed",
        f"sutprobe was built from sources {OTHER}, not {SOURCE}",
    ),
    "ok-but-code": (
        {"rc": 1, "stdout": probe_answer(), "stderr": "x"},
        "failed",
        "gave no reason; exit code 1; stderr: x",
    ),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_judges_an_answer(case: str) -> None:
    answer, outcome, reason = ANSWERS[case]
    found, why, kept = MEASURE_PLUGIN.judge_answer(answer, SOURCE)
    assert found == outcome
    assert (why is None) if reason is None else reason in why
    assert (kept is not None) == (
        outcome == "ok" or case in {"refused", "deadline", "ended", "other-bytes", "ok-but-code"}
    )


def step(deadline_s: float = 30.0) -> Step:
    return Step(
        id="x",
        kind="x",
        title="x",
        argv=("sutprobe", "latency", "--at", "1@0; touch bad"),
        cpus=(),
        nodes=(),
        expected_duration_s=1.0,
        longest_duration_s=2.0,
        deadline_s=deadline_s,
    )


STEPS = """
title: x
measurements:
  prefetcher_effect: {strides_bytes: [64]}
  idle_latency: {}
"""
CHANGE = {
    "setting": "prefetchers",
    "where": "/dev/cpu/{0-3}/msr:0x1a4",
    "before": "0x0",
    "wanted": "0xf",
    "after": "0xf",
    "restored": None,
    "restored_by": None,
}
PUT_BACK = {**CHANGE, "restored": "0x0", "restored_by": "run"}


class Switching(StandIn, MEASURE_PLUGIN.ActionModule):  # type: ignore[misc,name-defined]
    """The plugin on a SUT with prepared answers to switching; ``did`` has the order of steps and queries."""

    def __init__(self, **switched: Any) -> None:
        super().__init__()
        self.switched_by = {"tuned": {"changes": [CHANGE], "mark": 7}, "untuned": {"changes": [PUT_BACK]}, **switched}
        self.did: list[str] = []

    def ask(self, module: str, arguments: dict[str, Any]) -> dict[str, Any]:
        assert (module, arguments["path"], arguments["token"]) == ("sut_reservation", "/tmp/a reservation", "0" * 32)
        assert arguments.get("settings", {"prefetchers": "off"}) == {"prefetchers": "off"}
        assert arguments.get("mark", 7) == 7
        self.did.append(arguments["state"])
        answer = self.switched_by[arguments["state"]]
        if isinstance(answer, BaseException):
            raise answer
        result: dict[str, Any] = answer
        return result

    def measure(self, step: Step, arguments: dict[str, Any]) -> Any:
        if step.prefetchers == "off" and self.refused:
            return super().measure(step, arguments)
        self.did.append(step.id)
        return "failed", "not a SUT", None, None, ""


def switched(sut: Switching, folder: Path, monkeypatch: pytest.MonkeyPatch, *, agreed: bool = True) -> tuple[Any, Any]:
    """Return the result of measuring on *sut* and the run document."""
    monkeypatch.setattr(MEASURE_PLUGIN, "end_with_controller", lambda: None)
    profile = folder / "steps.yml"
    profile.write_text(STEPS, encoding="utf-8")
    directory = begin_run(folder, profile, "x86_64-isolated", prefetchers_ok=True)
    result = sut.act({"directory": directory, **RESERVED, "prefetchers_ok": agreed})
    if result["left"]:
        back = [{**item, "restored": "0x0", "restored_by": "run"} for item in result["left"]]
        changes = tuple(Change.model_validate(item) for item in back)
        append_record(directory, RestoredRecord(changes=changes))
    return result, finish(directory, now=NOW)


def test_switches_prefetchers_off_for_the_steps_that_need_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sut = Switching()
    result, document = switched(sut, tmp_path, monkeypatch)
    assert sut.did == ["prefetcher_effect", "idle_latency", "tuned", "prefetcher_effect-off", "untuned"]
    assert result["left"] == []
    assert [change.model_dump() for change in document.attempts[0].changes] == [PUT_BACK]


def test_leaves_prefetchers_off_that_were_off_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sut = Switching(tuned={"changes": [], "mark": 0})
    _, document = switched(sut, tmp_path, monkeypatch)
    assert sut.did == ["prefetcher_effect", "idle_latency", "tuned", "prefetcher_effect-off"]
    assert document.attempts[0].changes == ()


REFUSING: dict[str, tuple[dict[str, Any], bool, str]] = {
    "refused": ({"tuned": {"failed": True, "msg": "found 0x0"}}, True, "could not be switched off: found 0x0"),
    "silent": ({"tuned": {"failed": True}}, True, "could not be switched off: no reason was given"),
    "no mark": ({"tuned": {"changes": [CHANGE]}}, True, "did not return how to restore them"),
    "no changes": ({"tuned": {"changes": [{}], "mark": 7}}, True, "invalid changes in the SUT's answer"),
    "lost": ({"tuned": MEASURE_PLUGIN.SutError("not reachable: gone")}, True, "switched off: not reachable: gone"),
    "no consent any more": ({}, False, "without tune_prefetchers_ok: true"),
}


@pytest.mark.parametrize("case", REFUSING)
def test_only_steps_with_prefetchers_off_fail_if_they_cannot_be_switched(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, agreed, reason = REFUSING[case]
    sut = Switching(**answers)
    result, document = switched(sut, tmp_path, monkeypatch, agreed=agreed)
    assert sut.did == ["prefetcher_effect", "idle_latency", *(["tuned"] if agreed else [])]
    assert reason in result["steps"][-1]["reason"]
    (gone,) = [omitted for omitted in document.not_measured if omitted.what.endswith("prefetchers off")]
    assert (gone.cause, reason in gone.reason) == ("failed", True)
    assert document.attempts[0].changes == ()


@pytest.mark.parametrize(
    "answer",
    [
        {"failed": True, "msg": "stays 0xf"},
        {"changes": [{**CHANGE, "restored": "0xf"}]},
        MEASURE_PLUGIN.SutError("not reachable: gone"),
    ],
    ids=["refused", "not back", "lost"],
)
def test_the_end_of_the_run_restores_what_the_steps_could_not(
    answer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sut = Switching(untuned=answer)
    result, document = switched(sut, tmp_path, monkeypatch)
    assert [item["where"] for item in result["left"]] == [CHANGE["where"]]
    (change,) = document.attempts[0].changes
    assert (change.where, change.restored) == (CHANGE["where"], "0x0")


def test_reports_changes_of_steps_beside_those_of_the_run(tmp_path: Path) -> None:
    begun = begin_run(tmp_path, "quick", "x86_64-isolated")
    of_steps = Change.model_validate(PUT_BACK)
    of_run = of_steps.model_copy(update={"setting": "governor", "where": "cpu0"})
    append_record(begun, SwitchedRecord(changes=(of_steps,)))
    append_record(begun, RestoredRecord(changes=(of_run,)))
    assert finish(begun, now=NOW).attempts[0].changes == (of_run, of_steps)


def test_the_module_switches_off_and_back_during_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = RESERVATION_MODULE.sut_settings
    root, base = tmp_path / "root", tmp_path / "base"
    for directory in (base, root / "dev/cpu/0", root / "proc/sys/kernel/random"):
        directory.mkdir(parents=True)
    register = root / "dev/cpu/0/msr"
    register.write_bytes(bytes(0x1A4 + 8))
    (root / "proc/cpuinfo").write_text("processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 79\n\n")
    (root / "proc/sys/kernel/random/boot_id").write_text("5d1e4b0e-6a3c-4c57-9a52-0f6f1b0c8d11\n")
    (root / "proc/uptime").symlink_to("/proc/uptime")
    machine = settings.Machine(str(root))
    monkeypatch.setattr(settings, "Machine", lambda: machine)
    known = {"path": str(base / "reservation"), "base": str(base), "run_id": "r1", "sut": "s1", "lease_s": 300.0}
    who = {"controller": "c", "started_at": "now", "resume": False}

    def ask(state: str, **more: Any) -> dict[str, Any]:
        answer: dict[str, Any] = RESERVATION_MODULE.act({**known, **who, "state": state, **more}, check_mode=False)
        return answer

    token = ask("held")["reservation"]["token"]
    tuned = ask("tuned", token=token, settings={"prefetchers": "off"})
    assert (register.read_bytes()[0x1A4], [change["after"] for change in tuned["changes"]]) == (0xF, ["0xf"])
    untuned = ask("untuned", token=token, mark=tuned["mark"])
    assert (register.read_bytes()[0x1A4], [change["restored"] for change in untuned["changes"]]) == (0, ["0x0"])
    assert ask("released", changes=[], by="run")["changes"] == []
    assert list(base.iterdir()) == []


class Sut(StandIn, MEASURE_PLUGIN.ActionModule):  # type: ignore[misc,name-defined]
    """The measuring plugin on a SUT with prepared answers."""

    def __init__(self, *answers: Any) -> None:
        super().__init__()
        self.answers = list(answers)
        self.commands: list[str] = []

    def _low_level_execute_command(self, command: str, in_data: bytes | None = None) -> dict[str, Any]:  # type: ignore[override]  # noqa: ARG002 - Ansible's
        self.commands.append(command)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        result: dict[str, Any] = answer() if callable(answer) else answer
        return result


def measure(sut: Sut, directory: Path, *, deadline_s: float = 30.0) -> tuple[str, str | None]:
    arguments = {
        "directory": str(directory),
        "sutprobe": "/tmp/a b/sutprobe",
        "source_sha256": SOURCE,
        "grace_s": 0.1,
        **RESERVED,
    }
    outcome, reason, *_ = sut.measure(step(deadline_s), arguments)
    return outcome, reason


def test_quotes_the_arguments_of_a_command(tmp_path: Path) -> None:
    sut = Sut(ANSWERS["ok"][0])
    assert measure(sut, tmp_path) == ("ok", None)
    (command,) = sut.commands
    assert "; exec '/tmp/a b/sutprobe' latency --at '1@0; touch bad' )\n" in command


def test_the_lease_outlasts_the_step(tmp_path: Path) -> None:
    sut = Sut(ANSWERS["ok"][0])
    measure(sut, tmp_path, deadline_s=400.0)
    (lease,) = re.findall(r"%\.\*} \+ (\d+)\)", sut.commands[0])
    assert int(lease) >= 400 + 300  # s: the step's deadline and the lease of 300 s after it


def test_records_the_end_of_the_standard_error(tmp_path: Path) -> None:
    stderr = "x" * MEASURE_PLUGIN.MAX_STDERR + "the reason"
    run_steps(Sut({"rc": 1, "stdout": "", "stderr": stderr}), tmp_path)
    (record,) = map(json.loads, (tmp_path / "records.jsonl").read_text(encoding="utf-8").splitlines())
    assert record["stderr"] == stderr[-MEASURE_PLUGIN.MAX_STDERR :]
    assert record["reason"].endswith("the reason")


def test_a_step_without_an_answer_times_out(tmp_path: Path) -> None:
    outcome, reason = measure(Sut(lambda: time.sleep(600)), tmp_path, deadline_s=0.1)
    assert outcome == "timed_out"
    assert reason is not None
    assert reason.startswith("sutprobe latency had no complete answer within 0.2 s; check ")


def test_tries_nothing_after_two_lost_connections(tmp_path: Path) -> None:
    sut = Sut(AnsibleConnectionFailure("gone"), AnsibleConnectionFailure("gone"))
    for _ in range(2):
        outcome, reason = measure(sut, tmp_path)
        assert outcome == "failed"
        assert "the connection to the SUT was lost: gone" in str(reason)
    assert measure(sut, tmp_path) == ("failed", "skipped: the connection to the SUT was lost before")
    assert len(sut.commands) == 2


def test_uses_a_connection_that_comes_back(tmp_path: Path) -> None:
    sut = Sut(AnsibleConnectionFailure("gone"), ANSWERS["ok"][0], AnsibleConnectionFailure("gone"), ANSWERS["ok"][0])
    assert [measure(sut, tmp_path)[0] for _ in range(4)] == ["failed", "ok", "failed", "ok"]


class Returning(Sut):
    """A SUT that is lost; *reached* has the result of each attempt to reconnect."""

    def __init__(self, reached: list[Any], *answers: Any) -> None:
        super().__init__(*answers)
        self.reached = reached
        self._connection = SimpleNamespace(close=lambda: None, reset=lambda: None)

    def ask(self, module: str, arguments: dict[str, Any]) -> dict[str, Any]:
        assert (module, arguments) == ("sutprobe", {"path": "/tmp/calibration-x", "state": "ended"})
        found = self.reached.pop(0)
        if isinstance(found, BaseException):
            raise found
        return dict(found)


def run_steps(sut: Sut, begun: Path, steps: int = 1, *, reconnect_s: float = 30.0) -> tuple[list[str], list[str]]:
    """Return the outcomes of the *steps*, and the recorded outcomes."""
    planned = tuple(step().model_copy(update={"id": f"x{number}"}) for number in range(steps))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MEASURE_PLUGIN, "end_with_controller", lambda: None)
        patch.setattr(MEASURE_PLUGIN, "outstanding", lambda _directory: planned)
        result = sut.act(
            {
                "directory": str(begun),
                "sutprobe": "/tmp/calibration-x/sutprobe",
                "source_sha256": SOURCE,
                "grace_s": 0.1,
                "reconnect_s": reconnect_s,
                **RESERVED,
            }
        )
    assert [item["step"] for item in result["steps"]] == [f"x{number}" for number in range(steps)]
    kept = [json.loads(line) for line in (begun / "records.jsonl").read_text(encoding="utf-8").splitlines()]
    return (
        [item["outcome"] for item in result["steps"]],
        [verdict["outcome"] for verdict in kept if verdict["record"] == "step"],
    )


def test_shows_each_step_when_it_ends(tmp_path: Path) -> None:
    says = failed("usage", "no such\noption")
    sut = Sut(ANSWERS["ok"][0], {"rc": 2, "stdout": says, "stderr": ""}, ANSWERS["ok"][0])
    assert run_steps(sut, tmp_path, 3)[0] == ["ok", "failed", "ok"]
    assert sut.shown == [
        "sut1: step 1 of 3: x: 0 s, about 2 s left",
        "sut1: step 2 of 3: x: failed: no such\n  option",
        "sut1: step 3 of 3: x: 0 s, about 0 s left",
    ]
    assert sut.colors == [None, "red", None]


def test_stops_measuring_if_results_cannot_be_written(tmp_path: Path) -> None:
    sut = Sut(ANSWERS["ok"][0])
    with pytest.raises(EnvironmentLacksError, match="cannot write to"):
        run_steps(sut, tmp_path / "gone", 2)
    assert len(sut.commands) == 1
    assert sut.shown == []


def test_retries_a_step_after_a_lost_connection_and_records_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MEASURE_PLUGIN, "RECONNECT_PAUSE_S", 0)
    sut = Returning([EnvironmentLacksError("gone"), {"ended": [7]}], AnsibleConnectionFailure("cut"), ANSWERS["ok"][0])
    assert run_steps(sut, tmp_path) == (["ok"], ["failed", "ok"])
    assert sut.reached == []


def test_skips_all_steps_if_the_sut_does_not_come_back(tmp_path: Path) -> None:
    sut = Returning([EnvironmentLacksError("gone")], AnsibleConnectionFailure("cut"))
    assert run_steps(sut, tmp_path, 2, reconnect_s=0.0) == (["failed"] * 2, ["failed"] * 2)
    assert len(sut.commands) == 1


def test_does_not_measure_a_restarted_sut(tmp_path: Path) -> None:
    refused = {"rc": RESTARTED, "stdout": "", "stderr": ""}
    sut = Returning([{}], AnsibleConnectionFailure("cut"), refused)
    assert run_steps(sut, tmp_path, 2)[0] == ["failed"] * 2
    assert len(sut.commands) == 2
    kept = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [item["reason"] for item in kept][1:] == [REASONS[RESTARTED]] * 3


def test_no_retry_while_sutprobe_is_still_running(tmp_path: Path) -> None:
    sut = Returning([{"failed": True, "msg": "found [7] still there"}], AnsibleConnectionFailure("cut"))
    assert run_steps(sut, tmp_path) == (["failed"], ["failed"])


def test_installs_sutprobe_once_in_a_private_directory(tmp_path: Path) -> None:
    directory = tmp_path / "calibration-x"
    sha256 = hashlib.sha256(b"bytes").hexdigest()
    assert KERNEL_MODULE.install(str(directory), b"bytes", True) == (True, None)
    assert not directory.exists()
    assert KERNEL_MODULE.install(str(directory), b"bytes", False) == (True, sha256)
    assert directory.stat().st_mode & 0o777 == 0o700
    assert (directory / "sutprobe").read_bytes() == b"bytes"
    assert (directory / "sutprobe").stat().st_mode & 0o777 == 0o700
    assert KERNEL_MODULE.install(str(directory), b"bytes", False) == (False, sha256)
    assert KERNEL_MODULE.install(str(directory), b"others", False)[0]
    assert [path.name for path in directory.iterdir()] == ["sutprobe"]


def test_refuses_a_directory_that_others_may_enter(tmp_path: Path) -> None:
    directory = tmp_path / "calibration-x"
    directory.mkdir(mode=0o755)
    with pytest.raises(KERNEL_MODULE.files.Refused, match="found mode 0755"):
        KERNEL_MODULE.install(str(directory), b"bytes", False)
    assert list(directory.iterdir()) == []


def test_refuses_a_symbolic_link(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir(mode=0o700)
    (target / "file").write_text("kept")
    link = tmp_path / "calibration-x"
    link.symlink_to(target)
    with pytest.raises(KERNEL_MODULE.files.Refused, match="is not a directory"):
        KERNEL_MODULE.install(str(link), b"bytes", False)
    with pytest.raises(KERNEL_MODULE.files.Refused, match="is not a directory"):
        KERNEL_MODULE.remove(str(link), False)
    assert (target / "file").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_refuses_a_directory_of_another_user(tmp_path: Path) -> None:
    directory = tmp_path / "calibration-x"
    directory.mkdir(mode=0o700)
    os.chown(directory, 65534, 65534)
    with pytest.raises(KERNEL_MODULE.files.Refused, match=r"and user root \(id 0\) at .*, found mode 0700 and .*65534"):
        KERNEL_MODULE.install(str(directory), b"bytes", False)


def test_ends_the_programs_in_a_directory_and_removes_it(tmp_path: Path) -> None:
    directory = tmp_path / "calibration-x"
    directory.mkdir(mode=0o700)
    shutil.copy("/bin/sleep", directory / "sutprobe")
    with (
        subprocess.Popen([str(directory / "sutprobe"), "600"]) as inside,
        subprocess.Popen(["sleep", "600"]) as outside,
    ):
        try:
            while KERNEL_MODULE.end(str(directory), True) != [inside.pid]:
                assert inside.poll() is None
            assert KERNEL_MODULE.remove(str(directory), True) == (True, [inside.pid])
            assert inside.poll() is None
            assert KERNEL_MODULE.remove(str(directory), False) == (True, [inside.pid])
            assert inside.wait(60) < 0
            assert outside.poll() is None
        finally:
            outside.kill()
    assert not directory.exists()
    assert KERNEL_MODULE.remove(str(directory), False) == (False, [])


def test_removes_only_directories_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "precious"
    kept.mkdir(mode=0o700)
    failure: dict[str, Any] = {}

    class Module:
        params = {"path": str(kept), "state": "absent", "name": "sutprobe", "src": None, "content": None}  # noqa: RUF012 - a stand-in
        check_mode = False

        def __init__(self, **_: Any) -> None:
            pass

        def fail_json(self, **result: Any) -> None:
            failure.update(result)
            raise SystemExit(1)

    monkeypatch.setattr(KERNEL_MODULE, "AnsibleModule", Module)
    with pytest.raises(SystemExit):
        KERNEL_MODULE.main()
    assert failure["msg"] == f"the run's directory on the SUT: not a run's private directory: {kept}"
    assert kept.is_dir()


def test_removes_a_run_that_did_not_begin_with_its_empty_parents(tmp_path: Path) -> None:
    results = tmp_path / "results"
    directory = results / "testbed1" / "sut1" / "run"
    directory.mkdir(parents=True)
    (directory / "context.tar.gz").write_bytes(b"half")
    (directory / "records.jsonl").write_bytes(b'{"record": "sta')
    assert not COLLECT_PLUGIN.has_begun(directory)
    COLLECT_PLUGIN.remove_partial(directory, False)
    assert list(results.iterdir()) == []


def test_removes_a_partial_document_and_keeps_the_run(tmp_path: Path) -> None:
    directory = tmp_path / "testbed1" / "sut1" / "run"
    directory.mkdir(parents=True)
    (directory / ".run.json.4711").write_bytes(b"{")
    (directory / "records.jsonl").write_bytes(b"")
    COLLECT_PLUGIN.remove_partial(directory, True)
    assert [path.name for path in directory.iterdir()] == ["records.jsonl"]


def test_an_unreadable_reference_keeps_all_runs(tmp_path: Path) -> None:
    plugin = load_plugin("action", "calibration_retention")
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


def test_reports_failed_verdicts_by_kind_with_the_worst_first() -> None:
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
    assert COLLECT_PLUGIN.failed_verdicts(run.model_copy(update={"verdicts": verdicts, "consistency": ()})) == [
        "b: b is wrong (and 1 more limits)",
        "c: c is wrong (and 1 more invalid metrics)",
    ]
    missing = verdicts[0].model_copy(update={"name": "z", "metric": None})
    found = COLLECT_PLUGIN.failed_verdicts(run.model_copy(update={"verdicts": (*verdicts, missing), "consistency": ()}))
    assert found[0] == "z: a is wrong (and 2 more limits)"
