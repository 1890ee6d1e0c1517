# SPDX-License-Identifier: Apache-2.0
"""Exit codes of the commands."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from calibration.commands.playbook_run import exit_code_of
from tests.command import calibration

CHECKOUT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize(("ansible", "noted", "code"), [
    (0, set(), 0),
    (2, {1}, 1),
    (2, set(), 2),
    (2, {3, 1}, 3),
    (2, {2, 3}, 2),
    (4, set(), 3),
    (1, set(), 2),
    (5, set(), 2),
    (250, set(), 3),
    (1, {4}, 4),
    (250, {4, 3}, 4),
    (2, {4, 1}, 4),
    (0, {4}, 0),
    (99, {1}, 4),
    (130, set(), 4),
])  # fmt: skip
def test_exit_codes(ansible: int, noted: set[int], code: int) -> None:
    assert exit_code_of(ansible, noted) == code


@pytest.mark.parametrize(("arguments", "code", "says"), [
    (["plan", "--profile", "slow"], 2, "quick, nightly, full, counters"),
    (["plan", "/nonexistent"], 2, "/nonexistent"),
    (["plan", "--speed"], 2, "--speed"),
    (["fly"], 2, "fly"),
    (["run", "--frobnicate"], 2, "--frobnicate"),
    (["validate", "/nonexistent"], 2, "/nonexistent"),
    (["assemble", "/nonexistent"], 2, "/nonexistent"),
    (["context", "/nonexistent", "--json"], 2, "/nonexistent"),
])  # fmt: skip
def test_bad_input_is_reported_with_exit_code_2(arguments: list[str], code: int, says: str) -> None:
    ended = calibration(*arguments)
    assert ended.code == code, ended.said
    assert says in ended.said
    assert "Traceback" not in ended.said


def test_this_machine_can_be_planned_and_described() -> None:
    planned = calibration("plan", "--json")
    assert planned.code == 0, planned.said
    assert '"idle_latency"' in planned.said
    assert calibration("plan").said.startswith("quick: ")
    assert calibration("--version").code == 0


def test_the_process_ends_with_the_exit_code() -> None:
    command = [sys.executable, "-m", "calibration.cli", "fly"]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "fly" in done.stderr


def test_a_message_has_no_control_characters_and_shows_what_continues_it(tmp_path: Path) -> None:
    ended = calibration("show", tmp_path / "a\x1b[2J\ncalibration: all is well")
    assert ended.code == 2
    assert "\x1b" not in ended.said
    assert "a\\x1b[2J\n  calibration: all is well" in ended.said


def test_ansible_forks_have_one_thread() -> None:
    """A lock of a thread that does not go with a fork is held for good in the forked process."""
    program = "import os, calibration.report, calibration.commands.judging; print(len(os.listdir('/proc/self/task')))"
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "1\n"


REPLACE = "from calibration.commands.playbook_run import use_utf8; use_utf8(); import ansible.cli"


@pytest.mark.parametrize(
    ("given", "program"),
    [("LC_TIME=xx_XX", ["-m", "calibration.cli", "run", "--list-hosts"]), ("LC_ALL=C", ["-c", REPLACE])],
)
def test_an_unknown_locale_is_named_and_replaced(given: str, program: list[str]) -> None:
    name, value = given.split("=")
    environment = {key: text for key, text in os.environ.items() if key != "LANG" and not key.startswith("LC_")}
    done = subprocess.run(
        [sys.executable, *program], cwd=CHECKOUT, env={**environment, name: value}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"{given}) is not installed or not UTF-8: using C.UTF-8\n" in done.stderr


def test_a_locale_that_cannot_be_replaced_is_named_with_exit_code_3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "xx_XX")
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: "iso-8859-1")
    ended = calibration("run", "--list-hosts")
    assert ended.code == 3
    assert "LC_ALL=xx_XX" in ended.said
    assert "set LC_ALL=C.UTF-8" in ended.said
