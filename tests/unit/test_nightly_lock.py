# SPDX-License-Identifier: Apache-2.0
"""One nightly calibration at a time for each directory of results."""

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from calibration.base.errors import EnvironmentLacksError, InputError
from calibration.nightly.lock import LOCK, hold

CHECKOUT = Path(__file__).parents[2]
NOW = datetime(2026, 11, 22, 2, 30, 5, tzinfo=UTC)


HOLDING = """
import os, sys
from datetime import UTC, datetime
from pathlib import Path
from calibration.nightly.lock import hold
held = hold(Path(sys.argv[1]), datetime(2026, 11, 22, 2, 30, 5, tzinfo=UTC))
if os.fork() == 0:  # as a worker has what its controller had open, and lives on when the controller is killed
    sys.stdin.read()
    os._exit(0)
print(os.getpid(), flush=True)
sys.stdin.read()
"""


@contextmanager
def holding(results: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDING, str(results)],
        cwd=CHECKOUT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == str(process.pid)
        try:
            yield process
        finally:
            process.kill()


def test_second_run_reports_the_lock_holder(tmp_path: Path) -> None:
    with holding(tmp_path / "results") as process, pytest.raises(EnvironmentLacksError) as raised:
        hold(tmp_path / "results", NOW)
    assert f"process {process.pid}, since 2026-11-22 02:30:05 UTC" in str(raised.value)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda item: item.name)
def test_the_lock_ends_with_its_process_though_a_child_lives_on(tmp_path: Path, number: signal.Signals) -> None:
    with holding(tmp_path) as process:
        process.send_signal(number)
        process.wait()
        with hold(tmp_path, NOW):
            assert json.loads((tmp_path / LOCK).read_bytes())["pid"] == os.getpid()


def test_other_results_have_another_lock(tmp_path: Path) -> None:
    with holding(tmp_path / "one"), hold(tmp_path / "two", NOW) as held:
        assert not held.closed


def test_garbage_in_the_lock_file_is_ignored(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_bytes(b"\xff{" * 5000)
    with hold(tmp_path, NOW):
        assert json.loads((tmp_path / LOCK).read_bytes())["pid"] == os.getpid()


def test_a_lock_of_an_unknown_holder_holds(tmp_path: Path) -> None:
    with holding(tmp_path):
        os.truncate(tmp_path / LOCK, 0)
        with pytest.raises(EnvironmentLacksError, match="its owner is unknown"):
            hold(tmp_path, NOW)


def test_unwritable_results_are_reported(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("no directory")
    with pytest.raises(EnvironmentLacksError, match="calibration_results_dir"):
        hold(tmp_path / "results", NOW)


def test_a_server_without_locks_is_no_other_night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lockf(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "lockf", lockf)
    with pytest.raises(EnvironmentLacksError, match=r"^cannot lock the results: .*No locks available"):
        hold(tmp_path, NOW)


def test_a_link_as_lock_file_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("keep")
    results = tmp_path / "results"
    results.mkdir()
    (results / LOCK).symlink_to(precious)
    with pytest.raises(InputError, match="a symbolic link; remove it"):
        hold(results, NOW)
    assert precious.read_text() == "keep"
