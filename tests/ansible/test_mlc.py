# SPDX-License-Identifier: Apache-2.0
"""The operator's Intel MLC, simulated by scripts: how it is pushed, limited, run and recorded."""

import base64
import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure
from support import (
    HERE,
    RESERVED,
    ROOT,
    StandIn,
    begin_run,
    executable,
    load_plugin,
    pack,
    run_module,
    runs,
    wait_until,
)

from calibration.reservation import NOT_RESERVED, REASONS
from calibration.results.model import MlcRun
from calibration.results.records import records

PLUGIN = load_plugin("action", "calibration_mlc")
MODULE = load_plugin("modules", "sut_mlc")
PLUGINS = sys.modules["calibration_plugins"]  # as the plugin imported it
SETTINGS = MODULE.settings

STAND_IN = ROOT / "tests" / "fixtures" / "mlc-stand-in" / "mlc"
PROFILE = HERE / "profiles" / "mlc.yml"

# The plugin


PRINTED = b"Each iteration took 227.2 core clocks ( 99.0 ns)\n"
ANSWER = {
    "user_id": 1000,
    "rc": 0,
    "output": base64.b64encode(PRINTED).decode(),
    "fault": None,
    "prefetchers": {"places": [], "unread": "MSR 0x1a4 of CPUs 0: Permission denied"},
}


class Sut(StandIn, PLUGIN.ActionModule):  # type: ignore[misc,name-defined]
    """The plugin on a SUT with prepared answers."""

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
    """Return the record of MLC on *sut*: why it was not run, and its commands."""
    monkeypatch.setattr(PLUGIN, "end_with_controller", lambda: None)
    directory = begin_run(folder, PROFILE, "x86_64-two-nodes-smt")
    arguments = {
        "archive": str(STAND_IN),
        "path": "/tmp/calibration-x",
        "machine": "x86_64",
        "directory": directory,
        **RESERVED,
        "timeout_s": 1.0,
        "prefetchers_ok": False,
        "publish": False,
        **changes,
    }
    assert sut.act(arguments)["changed"]
    found = list(records(directory))
    (program,) = [item.program for item in found if item.record == "mlc"]
    return program.reason, [item.run for item in found if item.record == "mlc_command"]


UNFIT: dict[str, tuple[Sut, str]] = {
    "another's": (Sut(held=NOT_RESERVED), REASONS[NOT_RESERVED]),
    "other bytes": (Sut(installed="0" * 64), "has sha256 " + "0" * 64),
    "odd": (Sut(held=127), "exit code 127"),
}


def test_rejects_an_archive_without_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = pack(tmp_path / "empty.tgz", "Linux/readme", b"none")
    reason, runs = tried(Sut(), tmp_path, monkeypatch, archive=str(archive))
    assert reason == f"the archive {archive} has Linux/mlc 0 times, expected once"
    assert runs == []


@pytest.mark.parametrize("case", UNFIT)
def test_records_why_the_program_is_not_run(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sut, expected = UNFIT[case]
    reason, runs = tried(sut, tmp_path, monkeypatch)
    assert expected in str(reason)
    assert runs == []
    assert sut.shown == [f"sut1: Intel MLC is not run: {reason}"]


def test_does_not_run_on_another_architecture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sut = Sut()
    reason, runs = tried(sut, tmp_path, monkeypatch, machine="aarch64")
    assert reason == "Intel MLC is for x86_64 only, the SUT is aarch64"
    assert runs == []


LOST: dict[str, tuple[Any, str]] = {
    "lost": (AnsibleConnectionFailure("gone"), "not reachable: gone"),
    "silent": (PLUGINS.GiveUp(), "Intel MLC had no complete answer within 61 s"),
    "refuses": ({"failed": True, "msg": "no capset"}, "no capset"),
    "no base64": ({**ANSWER, "output": "%"}, "not base64"),
}


@pytest.mark.parametrize("case", LOST)
def test_runs_no_command_after_one_without_an_answer(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, reason = LOST[case]
    sut = Sut(answer)
    _, runs = tried(sut, tmp_path, monkeypatch)
    assert [run.outcome for run in runs] == ["failed", "failed"]
    assert reason in str(runs[0].reason)
    assert runs[1].reason == f"skipped: {runs[0].reason}"
    assert len(sut.asked) == 1


ODD: dict[str, tuple[dict[str, Any], str, str | None]] = {
    "well": ({}, "ok", None),
    "killed": ({"rc": -9}, "killed", "killed by signal 9"),
    "failed": ({"rc": 1}, "failed", "exit code 1"),
    "no code": ({"rc": None}, "failed", "exit code None"),
    "too long": (
        {"rc": None, "fault": "timed out after 1 s"},
        "timed_out",
        "timed out after 1 s",
    ),
    "no state": ({"prefetchers": None}, "failed", "the SUT's answer lacks the state of the prefetchers"),
}


@pytest.mark.parametrize("case", ODD)
def test_records_how_a_command_ended_and_runs_the_next(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes, outcome, reason = ODD[case]
    sut = Sut({**ANSWER, **changes}, ANSWER)
    _, runs = tried(sut, tmp_path, monkeypatch)
    assert [run.outcome for run in runs] == [outcome, "ok"]
    assert (runs[0].reason or "").startswith(reason or "")
    assert (runs[0].reason is None) == (reason is None)
    assert "99.0" not in (runs[0].reason or "")
    assert (tmp_path / "t1" / "s1" / "r1" / "mlc" / "idle_latency.txt").read_bytes() == PRINTED
    assert [item["argv"][1] for item in sut.asked] == ["--idle_latency", "--latency_matrix"]


def test_shows_prefetchers_that_stay_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = {"where": "/dev/cpu/0/msr", "before": "0x0", "after": "0xf", "restored": None}
    sut = Sut({**ANSWER, "prefetchers": {"places": [place], "unread": None}}, ANSWER)
    _, runs = tried(sut, tmp_path, monkeypatch)
    assert [run.prefetchers and run.prefetchers.state for run in runs] == ["changed", "not_verified"]
    assert "sut1: Intel MLC --idle_latency: it left the prefetchers changed" in sut.shown


# The module


def run_mlc(directory: Path, script: str, capsys: pytest.CaptureFixture[str], **changes: Any) -> Any:
    program = executable(directory / "mlc", script)
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
    answer = run_module(MODULE, arguments, capsys)
    assert [path.name for path in directory.iterdir()] == ["mlc"]
    return answer


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A simulated machine of two CPUs whose registers are files."""
    root = tmp_path / "root"
    for cpu in (0, 1):
        (root / f"dev/cpu/{cpu}").mkdir(parents=True)
        (root / f"dev/cpu/{cpu}/msr").write_bytes(bytes(0x1A4 + 8))
    (root / "proc").mkdir()
    (root / "proc/cpuinfo").write_text("processor\t: 0\n\nprocessor\t: 1\n")
    made = SETTINGS.Machine(str(root))
    monkeypatch.setattr(SETTINGS, "Machine", lambda: made)
    noted: list[str] = []
    monkeypatch.setattr(
        MODULE.sut_hold, "record", lambda _path, _machine, _token, entries: noted.extend(x.where for x in entries)
    )
    made.noted = noted
    return made


def switching(machine: Any) -> str:
    """Return a script that switches the second CPU's prefetchers off."""
    where = machine.path("/dev/cpu/1/msr")
    return f"printf '\\017' | dd of={where} bs=1 seek=420 conv=notrunc 2>/dev/null"


def test_restores_changed_registers(private: Path, machine: Any, capsys: pytest.CaptureFixture[str]) -> None:
    answer = run_mlc(private, switching(machine), capsys, prefetchers_ok=True)
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


def test_without_consent_reports_a_change_and_writes_nothing(
    private: Path, machine: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = run_mlc(private, switching(machine), capsys)
    assert [place["restored"] for place in answer["prefetchers"]["places"]] == [None, None, None]
    assert machine.noted == []
    assert Path(machine.path("/dev/cpu/1/msr")).read_bytes()[0x1A4] == 0xF


def test_reports_a_register_that_is_not_restored(
    private: Path, machine: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SETTINGS, "write_value", lambda *_: None)
    answer = run_mlc(private, switching(machine), capsys, prefetchers_ok=True)
    assert answer["prefetchers"]["places"][-1]["restored"] == "0xf"


def test_does_not_run_without_the_reservation(private: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = SETTINGS.Entry("prefetchers", "/dev/cpu/0/msr:0x1a4", "0x0", None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SETTINGS, "read_prefetchers", lambda _machine: ([entry], None))
        answer = run_mlc(private, "touch here", capsys, prefetchers_ok=True)
    assert answer["failed"]
    assert "the SUT is no longer reserved for this run" in answer["msg"]


@pytest.mark.parametrize("prefetchers_ok", [False, True])
def test_drops_capabilities_that_could_change_the_sut(
    private: Path, machine: Any, capsys: pytest.CaptureFixture[str], prefetchers_ok: bool
) -> None:
    answer = run_mlc(private, "grep -E '^(Cap|NoNew)' /proc/self/status", capsys, prefetchers_ok=prefetchers_ok)
    status = dict(line.split(":\t") for line in base64.b64decode(answer["output"]).decode().splitlines())
    assert status["NoNewPrivs"] == "1"
    allowed = 1 << 2 | 1 << 14 | 1 << 23 | prefetchers_ok << 17  # DAC_READ_SEARCH, IPC_LOCK, SYS_NICE, SYS_RAWIO
    for name in ("CapPrm", "CapEff"):
        assert int(status[name], 16) & ~allowed == 0, name
    if os.geteuid() == 0:
        assert bool(int(status["CapEff"], 16) & 1 << 17) == prefetchers_ok
    assert machine.noted == (["/dev/cpu/0/msr:0x1a4", "/dev/cpu/1/msr:0x1a4"] if prefetchers_ok else [])


def test_merges_both_streams_in_order(private: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = run_mlc(private, "echo one; echo two >&2; echo three", capsys)
    assert base64.b64decode(answer["output"]) == b"one\ntwo\nthree\n"
    assert (answer["rc"], answer["fault"], answer["user_id"]) == (0, None, os.geteuid())


def test_does_not_run_other_bytes(private: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = run_mlc(private, "touch here", capsys, sha256="12" * 32)
    assert answer["failed"]
    assert ", not 1212" in answer["msg"]


@pytest.mark.parametrize(
    ("script", "timeout_s", "fault"),
    [
        ("echo Measuring idle latencies; sleep 600 & sleep 600", 1.0, "timed out after 1 s"),
        (
            "while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done",
            60.0,
            "printed more than 131072 bytes",
        ),
    ],
)
def test_kills_a_program_that_does_not_end(
    private: Path, capsys: pytest.CaptureFixture[str], script: str, timeout_s: float, fault: str
) -> None:
    answer = run_mlc(private, script, capsys, timeout_s=timeout_s)
    assert (answer["rc"], answer["fault"]) == (None, fault)


def test_kills_processes_left_by_the_program(private: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = run_mlc(private, "sleep 600 & echo $!", capsys)
    assert (answer["rc"], answer["fault"]) == (0, None)
    left = int(base64.b64decode(answer["output"]))
    wait_until(lambda: not runs(left))
