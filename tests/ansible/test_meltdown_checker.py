# SPDX-License-Identifier: Apache-2.0
"""The operator's checker for Spectre and Meltdown, simulated by scripts."""

import base64
import hashlib
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure
from support import RESERVED, StandIn, begin_run, load_plugin, run_module, runs, wait_until

from calibration.reservation import NOT_RESERVED, REASONS
from calibration.results.model import MeltdownChecker
from calibration.results.records import records

PLUGIN = load_plugin("action", "calibration_meltdown_checker")
MODULE = load_plugin("modules", "sut_meltdown_checker")
PLUGINS = sys.modules["calibration_plugins"]  # as the plugin imported it


# The plugin


ANSWER = {
    "argv": ["/bin/sh", "spectre-meltdown-checker.sh"],
    "sha256": hashlib.sha256(b"echo").hexdigest(),
    "user_id": 1000,
    "rc": 0,
    "output": base64.b64encode(b"printed").decode(),
    "stderr": "",
    "fault": None,
}


class Sut(StandIn, PLUGIN.ActionModule):  # type: ignore[misc,name-defined]
    """The plugin on a SUT with a prepared answer."""

    def __init__(self, answer: Any, *, held: int = 0) -> None:
        super().__init__(held)
        self.answer = answer
        self.asked = 0

    def ask(self, module: str, arguments: dict[str, Any]) -> dict[str, Any]:
        assert module == "sut_meltdown_checker"
        assert base64.b64decode(arguments["content"]) == b"echo"
        self.asked += 1
        if isinstance(self.answer, BaseException):
            raise self.answer
        return dict(self.answer() if callable(self.answer) else self.answer)


def checked(sut: Sut, folder: Path, monkeypatch: pytest.MonkeyPatch, *, script: bytes = b"echo") -> MeltdownChecker:
    """Return the record of the checker on *sut*; a second call runs nothing."""
    monkeypatch.setattr(PLUGIN, "end_with_controller", lambda: None)
    directory = begin_run(folder, "quick", "x86_64-two-nodes-smt")
    (folder / "checker.sh").write_bytes(script)
    arguments = {
        "script": str(folder / "checker.sh"),
        "path": "/tmp/calibration-x",
        "directory": directory,
        **RESERVED,
        "timeout_s": 1.0,
    }
    assert sut.act(arguments)["changed"]
    asked = sut.asked
    assert sut.act(arguments) == {}
    assert sut.asked == asked
    (record,) = [record for record in records(directory) if record.record == "meltdown_checker"]
    return record.checker


def hang() -> None:
    raise PLUGINS.GiveUp


UNFIT: dict[str, tuple[Sut, str]] = {
    "lost": (Sut(AnsibleConnectionFailure("gone")), "not reachable: gone"),
    "silent": (Sut(hang), "the checker had no complete answer within 61 s"),
    "refuses": (Sut({"failed": True, "msg": "no capset"}), "no capset"),
    "other bytes": (Sut({**ANSWER, "sha256": "0" * 64}), "on the SUT has sha256 " + "0" * 64),
    "no bytes": (Sut({}), "on the SUT has sha256 none"),
    "no base64": (Sut({**ANSWER, "output": "%"}), "not base64"),
    "no code": (Sut({**ANSWER, "rc": None}), "the checker failed with exit code None"),
    "another's": (Sut(ANSWER, held=NOT_RESERVED), REASONS[NOT_RESERVED]),
    "odd": (Sut(ANSWER, held=127), "exit code 127"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_records_the_reason_without_an_answer(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sut, reason = UNFIT[case]
    checker = checked(sut, tmp_path, monkeypatch)
    assert reason in str(checker.reason)
    (shown,) = sut.shown
    assert shown.startswith("sut1: the Spectre and Meltdown checker has no answer: ")


def test_records_an_argument_list_of_other_types_as_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sut = Sut({**ANSWER, "argv": [1, None, {"a": 2}]})
    checker = checked(sut, tmp_path, monkeypatch)
    assert (checker.argv, checker.reason) == (("1", "None", "{'a': 2}"), None)
    assert sut.shown == []


def test_does_not_send_a_script_that_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sut = Sut(ANSWER)
    checker = checked(sut, tmp_path, monkeypatch, script=b"x" * (PLUGIN.MAX_SCRIPT_BYTES + 1))
    assert "is larger than" in str(checker.reason)
    assert sut.asked == 0


# The module


def run_checker(directory: Path, script: str, capsys: pytest.CaptureFixture[str], timeout_s: float = 60.0) -> Any:
    content = base64.b64encode(script.encode()).decode()
    return run_module(MODULE, {"path": str(directory), "content": content, "timeout_s": timeout_s}, capsys)


def printed(answer: Any) -> str:
    return base64.b64decode(answer["output"]).decode()


def test_the_checker_runs_without_privileges_to_change_the_sut(
    private: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = run_checker(private, "grep -E '^(Cap(Inh|Prm|Eff|Amb)|NoNewPrivs)' /proc/self/status; env; pwd", capsys)
    lines = printed(answer).splitlines()
    status = dict(line.split(":\t") for line in lines if ":\t" in line)
    assert status["NoNewPrivs"] == "1"
    assert {status["CapInh"], status["CapAmb"]} == {f"{0:016x}"}
    allowed = 1 << 2 | 1 << 34  # CAP_DAC_READ_SEARCH, CAP_SYSLOG
    for name in ("CapPrm", "CapEff"):
        assert int(status[name], 16) & ~allowed == 0, name
    environment = dict(line.split("=", 1) for line in lines if "=" in line)
    assert set(environment) <= {"PATH", "LC_ALL", "HOME", "TMPDIR", "PWD", "_", "SHLVL", "OLDPWD"}
    assert environment["TMPDIR"] == environment["HOME"] == lines[-1]
    assert Path(lines[-1]).parent == private
    assert answer["fault"] is None
    assert list(private.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_even_root_cannot_mount(private: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (private / "here").mkdir()
    answer = run_checker(private, 'mount -t tmpfs none "$PWD/../here" && echo mounted && umount "$PWD/../here"', capsys)
    assert printed(answer) == ""
    assert "denied" in answer["stderr"] or "permitted" in answer["stderr"]


@pytest.mark.parametrize(
    ("script", "fault"),
    [
        ("echo '['; sleep 600", "timed out after 1 s"),
        ("exec >&- 2>&-; sleep 600", "timed out after 1 s"),
        (
            "while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done",
            "printed more than 262144 bytes",
        ),
    ],
)
def test_kills_a_checker_that_does_not_end(
    private: Path, capsys: pytest.CaptureFixture[str], script: str, fault: str
) -> None:
    answer = run_checker(private, script, capsys, 1.0 if "sleep" in script else 60.0)
    assert (answer["rc"], answer["fault"]) == (None, fault)
    assert len(printed(answer)) <= MODULE.MAX_OUTPUT_BYTES
    assert list(private.iterdir()) == []


def test_kills_processes_left_by_the_checker(private: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = run_checker(private, "sleep 600 & echo $!; exit 3", capsys)
    assert (answer["rc"], answer["fault"]) == (3, None)
    wait_until(lambda: not runs(int(printed(answer))))  # a killed process ends soon, not at once


def test_reports_the_signal_of_a_killed_checker(private: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_checker(private, "kill -9 $$", capsys)["rc"] == -9


def test_refuses_a_directory_that_is_not_private(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "calibration-x").mkdir(mode=0o755)
    answer = run_checker(tmp_path / "calibration-x", "echo here", capsys)
    assert answer["failed"]
    assert "expected mode 0700 and user " in answer["msg"]
    answer = run_checker(tmp_path / "calibration-y", "echo here", capsys)
    assert answer["failed"]
    assert "No such file or directory" in answer["msg"]
