# SPDX-License-Identifier: Apache-2.0
"""The operator's Intel MLC, by scripts that stand for it.

They prove how it is pushed, bounded, run, recorded and shown, and nothing of what the real program prints or does.
"""

import base64
import hashlib
import io
import json
import os
import sys
import tarfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible.module_utils.testing import patch_module_args
from support import HERE, ROOT, Ended, Lab, StandIn, calibrate, inventory_of, load_plugin, processes_of

from calibration.lifecycle import begin
from calibration.mlc import read_prefetchers
from calibration.reservation import NOT_RESERVED, REASONS
from calibration.results.model import Mlc, MlcRun, NotMeasured
from calibration.results.records import records
from calibration.results.store import read_run

PLUGIN = load_plugin("action", "calibration_mlc")
COLLECT = load_plugin("action", "calibration_collect")
MODULE = load_plugin("modules", "sut_mlc")
PLUGINS = sys.modules["calibration_plugins"]  # as the plugin imported it
GUARDIAN = MODULE.guardian

STAND_IN = ROOT / "tests" / "fixtures" / "mlc-stand-in" / "mlc"
PROFILE = HERE / "profiles" / "mlc.yml"
CAPTURE = ROOT / "tests" / "fixtures" / "context" / "x86_64-two-nodes-smt.tar.gz"
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

SCRIPTS = {
    "garbage": "echo no such thing; exit 0",
    "hangs": "echo Measuring idle latencies; sleep 600 & sleep 600",
    "fails": "echo need 1000 huge pages >&2; exit 3",
    "endless": "while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done",
    "child": f'sleep 600 & {STAND_IN} "$@"',
}
"""What each SUT's stand-in does that is not as it should be; ``child`` leaves a process behind, and answers."""

REASONS_OF = {
    "garbage": "expected a result in what Intel MLC printed, found none",
    "hangs": "it was ended: it was not over after 3 s; its last words: Measuring idle latencies",
    "fails": "expected it to end with exit code 0, found 3; its last words: need 1000 huge pages",
    "endless": "it was ended: it printed more than 131072 bytes; its last words: xxxx",
    "absent": "expected Intel MLC at {folder}/absent on the controller: No such file or directory; set mlc_archive to "
    "where it is, or leave it empty",
    "empty": "expected Linux/mlc once in the archive {folder}/empty.tgz, found it 0 times",
}


def archive(path: Path, name: str, content: bytes) -> Path:
    """Make an archive with one file in it, as Intel's has the program."""
    with tarfile.open(path, "w:gz") as packed:
        member = tarfile.TarInfo(name)
        member.size, member.mode = len(content), 0o755
        packed.addfile(member, io.BytesIO(content))
    return path


# The role


@pytest.fixture(scope="module")
def calibrated(module_lab: Lab) -> Ended:
    folder = module_lab.directory
    agreed = {"mlc_license_accepted": True, "mlc_timeout_s": 300.0}
    packed = str(archive(folder / "mlc_v0.tgz", "mlc_v0/Linux/mlc", STAND_IN.read_bytes()))
    hosts: dict[str, dict[str, Any]] = {
        "private": {**agreed, "mlc_archive": packed},
        "published": {**agreed, "mlc_archive": packed, "mlc_publish": True},
        "allowed": {**agreed, "mlc_archive": str(STAND_IN), "mlc_publish": True, "mlc_prefetchers_ok": True},
        "absent": {**agreed, "mlc_archive": str(folder / "absent")},
        "empty": {**agreed, "mlc_archive": str(archive(folder / "empty.tgz", "Linux/readme", b"none"))},
        "without": {},
    }
    for name, body in SCRIPTS.items():
        script = folder / f"{name}.sh"
        script.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        hosts[name] = {**agreed, "mlc_archive": str(script), "mlc_publish": True}
    hosts["hangs"]["mlc_timeout_s"] = 3.0
    # One after another: at the same time they would take the machine that stands for all of them from each other.
    return calibrate(module_lab, inventory_of(module_lab, hosts, PROFILE), "--forks", "1")


def run_of(lab: Lab, name: str) -> Path:
    (run,) = [run for run in lab.runs() if run.parts[-2] == name]
    return run


def page_of(lab: Lab, name: str) -> str:
    return (run_of(lab, name) / "report" / "page.rst").read_text(encoding="utf-8")


def mlc_of(lab: Lab, name: str) -> Mlc:
    document = read_run(run_of(lab, name))
    assert document.run.status == "complete"
    assert document.mlc is not None
    return document.mlc


def missing_of(lab: Lab, name: str) -> list[NotMeasured]:
    return [each for each in read_run(run_of(lab, name)).not_measured if each.kind == "mlc"]


def test_whatever_mlc_does_every_sut_is_measured(calibrated: Ended, module_lab: Lab) -> None:
    assert calibrated.rc == 0, calibrated.text
    documents = [read_run(run) for run in module_lab.runs()]
    assert len(documents) == 6 + len(SCRIPTS)
    assert {each.run.status for each in documents} == {"complete"}
    assert {len(each.measurements) for each in documents} == {1}
    assert list(module_lab.remote.iterdir()) == []
    assert processes_of(module_lab.remote) == []


def test_what_mlc_prints_is_kept_with_its_hash_and_read(calibrated: Ended, module_lab: Lab) -> None:
    assert calibrated.rc == 0, calibrated.text
    run, mlc = run_of(module_lab, "private"), mlc_of(module_lab, "private")
    content = STAND_IN.read_bytes()
    assert mlc.program_sha256 == hashlib.sha256(content).hexdigest()
    assert mlc.archive_sha256 == hashlib.sha256((module_lab.directory / "mlc_v0.tgz").read_bytes()).hexdigest()
    assert (mlc.archive, mlc.member, mlc.form, mlc.reason) == ("mlc_v0.tgz", "mlc_v0/Linux/mlc", "script", None)
    assert [each.argv for each in mlc.commands] == [
        ("mlc", "--idle_latency", "-e", "-r"),
        ("mlc", "--latency_matrix", "-e", "-r", "-b200000"),
    ]
    for each in mlc.commands:
        assert (each.outcome, each.rc, each.reason, each.user_id) == ("ok", 0, None, os.geteuid())
        assert each.output == f"mlc/{each.command}.txt"
        raw = (run / each.output).read_bytes()
        assert hashlib.sha256(raw).hexdigest() == each.output_sha256
        assert raw.startswith(b"*** THIS IS A STAND-IN")
        assert each.prefetchers is not None
        assert each.prefetchers.state in {"as_before", "not_verified"}
    readings = {each.id: each for each in read_run(run).readings}
    assert set(readings) == {each for run in mlc.commands for each in run.readings}
    idle = readings["mlc.idle_latency.idle_latency"]
    assert (idle.instrument, idle.command) == ("Intel MLC 3.5", "mlc --idle_latency -e -r")
    assert [each.value for each in idle.values.metrics()] == [88.2]


def test_it_comes_after_everything_that_is_measured(calibrated: Ended, module_lab: Lab) -> None:
    assert calibrated.rc == 0, calibrated.text
    kinds = [each.record for each in records(run_of(module_lab, "private"))]
    assert kinds == ["start", "kernels", "step", "mlc", "mlc_command", "mlc_command", "end"]


def test_figures_stay_off_the_page_unless_the_operator_says_otherwise(calibrated: Ended, module_lab: Lab) -> None:
    assert calibrated.rc == 0, calibrated.text
    page = page_of(module_lab, "private")
    assert "2 results of it are kept in the run document and not shown here" in " ".join(page.split())
    assert "THIS IS A STAND" not in page
    for figure in ("88.2", "87.6", "140.9"):
        assert figure not in page.partition("Intel MLC\n---------")[2]
    shown = page_of(module_lab, "published")
    assert "Intel MLC / sutprobe" in shown
    assert "88.20 ns" in shown
    assert "a SCRIPT, which may print anything" in shown
    assert "THIS IS A STAND" in shown


def test_with_consent_it_is_not_told_to_leave_the_prefetchers_alone(calibrated: Ended, module_lab: Lab) -> None:
    assert calibrated.rc == 0, calibrated.text
    mlc = mlc_of(module_lab, "allowed")
    assert [each.argv for each in mlc.commands] == [("mlc", "--idle_latency"), ("mlc", "--latency_matrix", "-b200000")]
    assert (mlc.prefetchers_ok, mlc.member) == (True, None)
    assert "Intel MLC was allowed to switch them" in page_of(module_lab, "allowed")


@pytest.mark.parametrize("name", REASONS_OF)
def test_what_went_wrong_is_a_reason_and_shown(calibrated: Ended, module_lab: Lab, name: str) -> None:
    assert calibrated.rc == 0, calibrated.text
    reason = REASONS_OF[name].format(folder=module_lab.directory)
    missing = missing_of(module_lab, name)
    assert [each.what for each in missing] == ["Intel MLC --idle_latency", "Intel MLC --latency_matrix"]
    assert {each.cause for each in missing} == {"failed"}
    assert missing[0].reason.startswith(reason)
    if name != "garbage":  # what it printed is read with the document
        assert reason in calibrated.text
    assert read_run(run_of(module_lab, name)).readings == ()
    assert ("was not run" if name in {"absent", "empty"} else "Without a figure of Intel MLC") in page_of(
        module_lab, name
    )


def test_what_it_leaves_behind_is_ended_with_it(calibrated: Ended, module_lab: Lab) -> None:
    assert calibrated.rc == 0, calibrated.text
    assert {each.outcome for each in mlc_of(module_lab, "child").commands} == {"ok"}
    assert missing_of(module_lab, "child") == []


def test_prefetchers_that_stay_changed_are_a_sut_left_changed(calibrated: Ended, module_lab: Lab) -> None:
    assert calibrated.rc == 0, calibrated.text
    document = read_run(run_of(module_lab, "private"))
    assert document.mlc is not None
    places = [{"where": "/dev/cpu/{0-3}/msr", "before": "0x0", "after": "0xf", "restored": None}]
    spoilt = document.mlc.commands[0].model_copy(
        update={"prefetchers": read_prefetchers({"places": places, "unread": None})}
    )
    assert COLLECT.summary(run_of(module_lab, "private"), document)["left_changed"] == []
    changed = document.model_copy(update={"mlc": document.mlc.model_copy(update={"commands": (spoilt,)})})
    assert COLLECT.summary(run_of(module_lab, "private"), changed)["left_changed"] == [
        "prefetchers at /dev/cpu/{0-3}/msr: 0x0 before Intel MLC --idle_latency, then 0xf"
    ]


def test_a_sut_without_it_has_none(calibrated: Ended, module_lab: Lab) -> None:
    assert calibrated.rc == 0, calibrated.text
    run = run_of(module_lab, "without")
    assert read_run(run).mlc is None
    assert not (run / "mlc").exists()
    assert "Intel MLC" not in page_of(module_lab, "without")


def test_without_its_licence_nothing_is_touched(lab: Lab) -> None:
    ended = lab.run("calibrate.yml", "-e", f"mlc_archive={STAND_IN}", profile=PROFILE)
    assert ended.rc == 2, ended.text
    assert "expected mlc_license_accepted: true beside mlc_archive" in ended.text
    assert lab.runs() == []
    assert lab.leftovers() == []


# The plugin, on SUTs that are not as they should be


PRINTED = b"Each iteration took 227.2 core clocks ( 99.0 ns)\n"
ANSWER = {
    "user_id": 1000,
    "rc": 0,
    "output": base64.b64encode(PRINTED).decode(),
    "fault": None,
    "prefetchers": {"places": [], "unread": "MSR 0x1a4 of CPUs 0: Permission denied"},
}


class Sut(StandIn, PLUGIN.ActionModule):  # type: ignore[misc,name-defined]
    """The plugin on a SUT that answers with what it is given, one answer after another."""

    def __init__(self, *answers: Any, held: int = 0, installed: str | None = None) -> None:
        super().__init__(held)
        self.answers = list(answers)
        self.installed = installed
        self.asked: list[dict[str, Any]] = []

    def install(self, _directory: str, name: str, content: Callable[[], bytes], sha256: str) -> tuple[bool, str | None]:
        assert (name, content()) == ("mlc", STAND_IN.read_bytes())
        return True, self.installed or sha256

    def ask(self, module: str, arguments: dict[str, Any]) -> dict[str, Any]:
        assert module == "sut_mlc"
        self.asked.append(arguments)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return dict(answer)


def tried(sut: Sut, folder: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> tuple[str | None, list[MlcRun]]:
    """Return what is recorded of a run of MLC on *sut*: why it was not run, and its commands."""
    monkeypatch.setattr(PLUGIN, "end_with_controller", lambda: None)
    names = {"testbed": "t1", "sut": "s1", "run_id": "r1"}
    begun = begin(folder, **names, profile=str(PROFILE), capture=CAPTURE.read_bytes(), now=NOW)
    arguments = {
        "archive": str(STAND_IN),
        "path": "/tmp/calibration-x",
        "machine": "x86_64",
        "directory": begun.directory,
        "reservation": {"path": "/tmp/a reservation", "token": "0" * 32, "boot_id": "0" * 36},
        "lease_s": 300.0,
        "timeout_s": 1.0,
        "prefetchers_ok": False,
        "publish": False,
        **changes,
    }
    assert sut.act(arguments)["changed"]
    found = list(records(begun.directory))
    (program,) = [each.program for each in found if each.record == "mlc"]
    return program.reason, [each.run for each in found if each.record == "mlc_command"]


UNFIT: dict[str, tuple[Sut, str]] = {
    "another's": (Sut(held=NOT_RESERVED), REASONS[NOT_RESERVED]),
    "other bytes": (Sut(installed="0" * 64), "on the SUT, found " + "0" * 64),
    "odd": (Sut(held=127), "exit code 127"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_a_sut_that_does_not_take_the_program_is_a_reason(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sut, expected = UNFIT[case]
    reason, runs = tried(sut, tmp_path, monkeypatch)
    assert expected in str(reason)
    assert runs == []
    assert sut.shown == [f"sut1: Intel MLC is not run: {reason}"]


def test_another_architecture_is_not_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sut = Sut()
    reason, runs = tried(sut, tmp_path, monkeypatch, machine="aarch64")
    assert reason == "there is Intel MLC for x86_64 alone, and the SUT is aarch64"
    assert runs == []


LOST: dict[str, tuple[Any, str]] = {
    "lost": (AnsibleConnectionFailure("gone"), "not reachable: gone"),
    "silent": (PLUGINS.GivenUp(), "Intel MLC had no complete answer within 61 s"),
    "refuses": ({"failed": True, "msg": "no capset"}, "no capset"),
    "no base64": ({**ANSWER, "output": "%"}, "not base64"),
}


@pytest.mark.parametrize("case", LOST)
def test_after_a_command_without_an_answer_none_is_tried(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, reason = LOST[case]
    sut = Sut(answer)
    _, runs = tried(sut, tmp_path, monkeypatch)
    assert [each.outcome for each in runs] == ["failed", "failed"]
    assert reason in str(runs[0].reason)
    assert runs[1].reason == f"not tried: {runs[0].reason}"
    assert len(sut.asked) == 1


ODD: dict[str, tuple[dict[str, Any], str, str | None]] = {
    "well": ({}, "ok", None),
    "killed": ({"rc": -9}, "killed", "it was ended by signal 9"),
    "failed": ({"rc": 1}, "failed", "expected it to end with exit code 0, found 1"),
    "no code": ({"rc": None}, "failed", "expected it to end with exit code 0, found None"),
    "too long": (
        {"rc": None, "fault": "it was not over after 1 s"},
        "timed_out",
        "it was ended: it was not over after 1 s",
    ),
    "no state": ({"prefetchers": None}, "failed", "expected the state of prefetchers in the SUT's answer"),
}


@pytest.mark.parametrize("case", ODD)
def test_how_a_command_ended_is_recorded_and_the_next_is_run(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes, outcome, reason = ODD[case]
    sut = Sut({**ANSWER, **changes}, ANSWER)
    _, runs = tried(sut, tmp_path, monkeypatch)
    assert [each.outcome for each in runs] == [outcome, "ok"]
    assert (runs[0].reason or "").startswith(reason or "")
    assert (runs[0].reason is None) == (reason is None)
    assert "99.0" not in (runs[0].reason or "")
    assert (tmp_path / "t1" / "s1" / "r1" / "mlc" / "idle_latency.txt").read_bytes() == PRINTED
    assert [each["argv"][1] for each in sut.asked] == ["--idle_latency", "--latency_matrix"]


def test_prefetchers_that_stay_changed_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = {"where": "/dev/cpu/0/msr", "before": "0x0", "after": "0xf", "restored": None}
    sut = Sut({**ANSWER, "prefetchers": {"places": [place], "unread": None}}, ANSWER)
    _, runs = tried(sut, tmp_path, monkeypatch)
    assert [each.prefetchers and each.prefetchers.state for each in runs] == ["changed", "not_verified"]
    assert "sut1: Intel MLC --idle_latency: the prefetchers are not as they were before it" in sut.shown


# The module


@pytest.fixture
def private(tmp_path: Path) -> Path:
    directory = tmp_path / "calibration-x"
    directory.mkdir(mode=0o700)
    return directory


def run_module(directory: Path, script: str, capsys: pytest.CaptureFixture[str], **changes: Any) -> Any:
    program = directory / "mlc"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o700)
    arguments = {
        "path": str(directory),
        "sha256": hashlib.sha256(program.read_bytes()).hexdigest(),
        "argv": ["mlc", "--idle_latency"],
        "timeout_s": 60.0,
        "prefetchers_ok": False,
        "reservation": str(directory / "reservation"),
        "token": "0" * 32,
        **changes,
    }
    with patch_module_args(arguments), pytest.raises(SystemExit):
        MODULE.main()
    assert [each.name for each in directory.iterdir()] == ["mlc"]
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A machine of two CPUs with registers of files, in place of the one that the module is on."""
    root = tmp_path / "root"
    for cpu in (0, 1):
        (root / f"dev/cpu/{cpu}").mkdir(parents=True)
        (root / f"dev/cpu/{cpu}/msr").write_bytes(bytes(0x1A4 + 8))
    (root / "proc").mkdir()
    (root / "proc/cpuinfo").write_text("processor\t: 0\n\nprocessor\t: 1\n")
    made = GUARDIAN.Machine(str(root))
    monkeypatch.setattr(GUARDIAN, "Machine", lambda: made)
    noted: list[str] = []
    monkeypatch.setattr(
        GUARDIAN, "note", lambda _path, _machine, _token, entries: noted.extend(x.where for x in entries)
    )
    made.noted = noted
    return made


def switching(machine: Any) -> str:
    """Return a script that switches the second CPU's prefetchers off."""
    where = machine.path("/dev/cpu/1/msr")
    return f"printf '\\017' | dd of={where} bs=1 seek=420 conv=notrunc 2>/dev/null"


def test_registers_that_it_changed_are_put_back(
    private: Path, machine: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = run_module(private, switching(machine), capsys, prefetchers_ok=True)
    assert answer["prefetchers"] == {
        "places": [
            {"where": "/sys/module/msr", "before": "not loaded", "after": "not loaded", "restored": None},
            {"where": "/dev/cpu/0/msr:0x1a4", "before": "0x0", "after": "0x0", "restored": None},
            {"where": "/dev/cpu/1/msr:0x1a4", "before": "0x0", "after": "0xf", "restored": "0x0"},
        ],
        "unread": None,
    }
    assert Path(machine.path("/dev/cpu/1/msr")).read_bytes() == bytes(0x1A4 + 8)
    assert machine.noted == ["/dev/cpu/0/msr:0x1a4", "/dev/cpu/1/msr:0x1a4"]


def test_without_consent_a_difference_is_told_and_nothing_is_written(
    private: Path, machine: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = run_module(private, switching(machine), capsys)
    assert [each["restored"] for each in answer["prefetchers"]["places"]] == [None, None, None]
    assert machine.noted == []
    assert Path(machine.path("/dev/cpu/1/msr")).read_bytes()[0x1A4] == 0xF


def test_a_register_that_does_not_come_back_is_told(
    private: Path, machine: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GUARDIAN, "write_value", lambda *_: None)
    answer = run_module(private, switching(machine), capsys, prefetchers_ok=True)
    assert answer["prefetchers"]["places"][-1]["restored"] == "0xf"


def test_a_run_that_lost_its_reservation_starts_nothing(private: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = GUARDIAN.Entry("prefetchers", "/dev/cpu/0/msr:0x1a4", "0x0", None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GUARDIAN, "prefetchers", lambda _machine: ([entry], None))
        answer = run_module(private, "touch here", capsys, prefetchers_ok=True)
    assert answer["failed"]
    assert "expected the SUT to be reserved for this run" in answer["msg"]


@pytest.mark.parametrize("prefetchers_ok", [False, True])
def test_it_keeps_no_capability_that_could_change_the_sut(
    private: Path, machine: Any, capsys: pytest.CaptureFixture[str], prefetchers_ok: bool
) -> None:
    answer = run_module(private, "grep -E '^(Cap|NoNew)' /proc/self/status", capsys, prefetchers_ok=prefetchers_ok)
    status = dict(line.split(":\t") for line in base64.b64decode(answer["output"]).decode().splitlines())
    assert status["NoNewPrivs"] == "1"
    allowed = 1 << 2 | 1 << 14 | 1 << 23 | prefetchers_ok << 17  # DAC_READ_SEARCH, IPC_LOCK, SYS_NICE, SYS_RAWIO
    for name in ("CapPrm", "CapEff"):
        assert int(status[name], 16) & ~allowed == 0, name
    if os.geteuid() == 0:
        assert bool(int(status["CapEff"], 16) & 1 << 17) == prefetchers_ok
    assert machine.noted == (["/dev/cpu/0/msr:0x1a4", "/dev/cpu/1/msr:0x1a4"] if prefetchers_ok else [])


def test_both_streams_are_one_in_their_order(private: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = run_module(private, "echo one; echo two >&2; echo three", capsys)
    assert base64.b64decode(answer["output"]) == b"one\ntwo\nthree\n"
    assert (answer["rc"], answer["fault"], answer["user_id"]) == (0, None, os.geteuid())


def test_other_bytes_are_not_run(private: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = run_module(private, "touch here", capsys, sha256="12" * 32)
    assert answer["failed"]
    assert "expected the program with sha256 1212" in answer["msg"]
