# SPDX-License-Identifier: Apache-2.0
"""SUTs with a different fault each, in one calibration: each reports its own reason and affects no other."""

import hashlib
import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support import (
    BROKEN,
    PATIENCE_S,
    SLOW,
    TWO,
    Ended,
    Lab,
    base_of,
    begun,
    calibrate_command,
    held,
    inventory_of,
    let_go,
    over_ssh,
    processes_of,
    run_of,
    stuck,
    wait_until,
)

from calibration.build import build
from calibration.results.model import RunDocument
from calibration.results.store import read_run
from calibration.run.records import StepRecord, records
from tests.tools import require, require_root

pytestmark = pytest.mark.slow

RUN = "20261121T000000Z-0000"
"""Resuming a run that does not exist begins it under this name."""

PAGE = 4096
"""Bytes that a file system gives out at a time."""

TAMPERS = """
if asked begin; then
    python3 -c 'import sys, zipfile, io
packed, spoilt = zipfile.ZipFile(io.BytesIO(sys.stdin.buffer.read())), zipfile.ZipFile("LOG.zip", "w")
for name in packed.namelist():
    spoilt.writestr(name, b"other bytes" if name == "sutprobe" else packed.read(name))
spoilt.close()'
    exec < LOG.zip
fi
"""
"""A SUT that gets other bytes than were sent."""

LOST = """
if asked watch; then echo asked >> LOG; fi
if [ "$(grep -c asked LOG)" -gt 1 ]; then
    echo 'ssh: connect to host sut1 port 22: No route to host' >&2
    exit 255
fi
"""
"""A SUT that is gone after its first records."""

HASTY = """
if asked begin && mkdir LOG.first 2>/dev/null; then
    exec 0<&-
    sleep 1
    exit 255
fi
"""
"""An ssh that closes its input before it ends, the first time: what it says of the reason is not read then."""


@dataclass(frozen=True)
class Day:
    """The calibration that all tests in this file examine."""

    lab: Lab
    ended: Ended
    inventory: Path
    left: dict[str, list[str]]
    """What was left on each SUT with a remote directory of its own."""
    others_finished_first: bool
    """Whether another SUT had its page while one still waited for its first step."""
    no_disks: str
    """Why there are no SUTs with disks of their own; empty if there are."""

    def document(self, name: str) -> RunDocument:
        """Return the run document of a SUT; skip the test where that SUT would need a disk of its own."""
        if self.no_disks and name in SMALL:
            pytest.skip(self.no_disks)
        return read_run(run_of(self.lab, name))

    def disk(self, name: str) -> Path:
        """Return the disk for the results of a SUT; skip the test if it could not be mounted."""
        if self.no_disks:
            pytest.skip(self.no_disks)
        return self.lab.directory / name

    def reasons(self, name: str) -> set[str]:
        """Return the reasons why planned steps of a SUT were not measured."""
        return {gone.reason for gone in self.document(name).not_measured if gone.cause != "not_planned"}


@contextmanager
def mounted(directory: Path, size: str) -> Iterator[None]:
    """Have a disk of *size*, as tmpfs understands it, at *directory* in the block; skip if that is not permitted."""
    require_root()
    directory.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(directory)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no permission: mount: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(directory)], check=True)


def fill(directory: Path, leave_bytes: int) -> None:
    """Fill the disk at *directory* up to *leave_bytes*."""
    free = os.statvfs(directory)
    (directory / "ballast").write_bytes(b"\0" * (free.f_bavail * free.f_frsize - leave_bytes))


SMALL = {"small-48k": "48k", "small-512k": "512k"}
"""SUTs whose disk fills up, with its size."""


def suts_with_disks(lab: Lab, stack: ExitStack, start_pages: int) -> dict[str, dict[str, Any]]:
    """Return variables of SUTs with disks of their own, mounted in *stack*, for what they hold or for their results.

    The start of a run takes *start_pages* of its results.
    """
    hosts: dict[str, dict[str, Any]] = {}
    for name, size in SMALL.items():
        hosts[name] = {**base_of(lab, name), "preflight_remote_free_bytes": 0}
        stack.enter_context(mounted(lab.remote / name, size))
        (lab.remote / name).chmod(0o1777)
    for name, pages in (("full-0", 0), ("full-2", 2), ("fills", start_pages + 1)):
        disk = lab.directory / name
        hosts[name] = {"calibration_results_dir": str(disk), "preflight_results_free_bytes": 0}
        stack.enter_context(mounted(disk, "4m"))
        fill(disk, pages * PAGE)
    return hosts


@pytest.fixture(scope="module")
def day(module_lab: Lab, calibrated_lab: tuple[Lab, Ended]) -> Iterator[Day]:
    lab = module_lab
    # As much as the start of the run takes: its first record and the capture.
    (example,) = calibrated_lab[0].runs()
    first_record = (example / "records.jsonl").read_bytes().split(b"\n", 1)[0]
    start_pages = (example / "context.tar.gz").stat().st_size // PAGE + len(first_record) // PAGE + 2
    hosts: dict[str, dict[str, Any]] = {
        "refused-step": {"calibration_profile": str(BROKEN)},
        "other-bytes": over_ssh(lab, "other-bytes", TAMPERS),
        "healthy": {},
        "missing": {"calibration_remote_base": str(lab.directory / "missing")},
        "unreachable": {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1},
        "hasty": over_ssh(lab, "hasty", HASTY),
        "cut": {**over_ssh(lab, "cut", held("watch")), "calibration_profile": str(TWO)},
        "hung": {**stuck(lab, "hung"), "calibration_profile": str(TWO), "measure_grace_s": 0},
        "lost": {**over_ssh(lab, "lost", LOST), "calibration_profile": str(SLOW), "measure_reconnect_s": 0},
    }
    with ExitStack() as stack:
        no_disks = ""
        try:
            hosts |= suts_with_disks(lab, stack, start_pages)
        except pytest.skip.Exception as skipped:  # the other SUTs need no disks
            no_disks = str(skipped)
        inventory, log = inventory_of(lab, hosts), lab.directory / "log"
        command = calibrate_command(inventory, "-e", f"calibration_run_id={RUN}", "--forks", "5")
        with begun(command, lab.environment(), log) as process:
            try:
                wait_until((lab.results / "healthy" / "healthy" / RUN / "run.json").exists, process, log)
                wait_until((lab.directory / "cut-log.held").exists, process, log)
                others_first = not (lab.results / "cut" / "cut" / RUN / "run.json").exists()
            finally:
                let_go(lab, "cut")
            ended = Ended(process.wait(PATIENCE_S), log.read_text(encoding="utf-8"))
        left = {path.name: [str(item) for item in path.iterdir()] for path in lab.remote.iterdir() if path.is_dir()}
        yield Day(lab, ended, inventory, left, others_first, no_disks)


def test_measures_a_healthy_sut(day: Day) -> None:
    assert day.ended.rc == 3, day.ended.text
    assert day.document("healthy").run.status == "complete"
    assert (
        "admonition:: unknown: not measured: " not in (run_of(day.lab, "healthy") / "report" / "page.rst").read_text()
    )


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing", "found nothing"),
        ("unreachable", "Connection refused"),
        ("small-48k", "No space left on device"),
    ],
)
def test_a_sut_that_cannot_begin_has_a_document_and_page_with_the_reason(day: Day, name: str, reason: str) -> None:
    if name == "unreachable":
        require("openssh-client", "ssh")
    document = day.document(name)
    assert document.run.status == "not_begun"
    assert document.measurements == ()
    (found,) = day.reasons(name)
    assert reason in found
    page = run_of(day.lab, name) / "report" / "page.rst"
    assert "admonition:: unknown: not measured: " in page.read_text(encoding="utf-8")
    assert f"{name}: Calibration failed, run" in day.ended.text


def test_sends_again_what_ssh_did_not_take(day: Day) -> None:
    assert (day.lab.directory / "hasty-log.first").exists()
    assert day.document("hasty").run.status == "complete", day.ended.text


def test_reports_the_passed_checks_of_a_refused_sut(day: Day) -> None:
    checks = day.document("missing").attempts[0].checks
    assert "met" in {check.outcome for check in checks if check.severity == "blocking"}
    assert day.document("unreachable").context is None


def test_continues_after_a_failed_step(day: Day) -> None:
    document = day.document("refused-step")
    assert document.run.status == "incomplete"
    assert [measurement.kind for measurement in document.measurements] == ["idle_latency"]
    (missing,) = [gone for gone in document.not_measured if gone.cause == "failed"]
    assert missing.kind == "latency_matrix"
    assert "--placements: must be a whole number from 1 to 1000, not '9999'" in missing.reason
    assert f"Not measured: {missing.what}: {missing.reason}" in day.ended.text
    assert (run_of(day.lab, "refused-step") / "report" / "page.rst").is_file()


def test_a_slow_sut_does_not_delay_others(day: Day) -> None:
    assert day.others_finished_first


def test_loses_nothing_while_the_connection_is_cut(day: Day) -> None:
    assert day.document("cut").run.status == "complete", day.ended.text
    steps = [record for record in records(run_of(day.lab, "cut")) if isinstance(record, StepRecord)]
    assert [step.outcome for step in steps] == ["ok", "ok"]
    assert "cut: the connection was lost, trying again for 900 s" in day.ended.text


def test_measures_nothing_with_a_program_that_has_other_bytes(day: Day) -> None:
    document = day.document("other-bytes")
    other = hashlib.sha256(b"other bytes").hexdigest()
    assert document.measurements == ()
    for reason in day.reasons("other-bytes"):
        assert f"sutprobe on the SUT has sha256 {other}, not {build(platform.machine()).sha256}" in reason
    assert list(day.lab.remote.glob("calibration-*-other-bytes-*")) == []


def test_ends_a_step_that_hangs_and_measures_the_next(day: Day) -> None:
    document = day.document("hung")
    assert document.run.status == "incomplete"
    assert [measurement.kind for measurement in document.measurements] == ["idle_latency"]
    (missing,) = [gone for gone in document.not_measured if gone.cause != "not_planned"]
    assert "sutprobe had no complete answer at its deadline and was ended" in missing.reason


def test_reports_a_full_disk_before_sutprobe_is_installed(day: Day) -> None:
    assert day.document("small-48k").run.status == "not_begun"
    assert day.document("small-512k").run.status == "incomplete"
    for name in SMALL:
        (reason,) = day.reasons(name)
        assert "No space left on device" in reason
        assert day.left[name] == []


def test_begins_no_run_on_a_full_disk(day: Day) -> None:
    assert [path.name for path in day.disk("full-0").iterdir()] == ["ballast"]
    assert "cannot write to " in day.ended.text
    # Too few pages for the capture, and enough for the reason.
    (run,) = day.disk("full-2").glob("*/*/*")
    assert {path.name for path in run.iterdir()} <= {"records.jsonl", "run.json"}
    first, *_ = records(run)
    assert first.record == "not_begun"
    assert "cannot write to" in first.reason


def test_keeps_the_measurements_of_a_lost_sut(day: Day) -> None:
    document = day.document("lost")
    assert document.run.status == "incomplete"
    assert [measurement.kind for measurement in document.measurements] == ["idle_latency"]
    (missing,) = [gone for gone in document.not_measured if gone.cause == "failed"]
    assert "the connection to the SUT was lost and did not come back" in missing.reason
    assert "No route to host" in missing.reason
    assert "the run completes there: collect it within " in missing.reason
    assert f" --resume {RUN}" in missing.reason
    assert "run incomplete, 1 of 2 steps measured" in day.ended.text


@pytest.fixture(scope="module")
def cleaned(day: Day) -> Day:
    """Run the cleanup playbook on the SUTs that were lost or whose disk was full, which have recovered."""
    suts = ["lost"] if day.no_disks else ["lost", "fills"]
    (day.lab.directory / "lost-log").write_text("")
    if not day.no_disks:
        (directory,) = day.disk("fills").glob("*/*/*")
        assert not (directory / "run.json").exists()
        (day.disk("fills") / "ballast").unlink()
    ended = day.lab.clean_up(day.inventory, RUN, ",".join(suts))
    assert ended.rc == 0, ended.text
    return day


def test_the_cleanup_playbook_cleans_a_sut_that_was_lost(cleaned: Day) -> None:
    assert [path.name for path in cleaned.lab.remote.iterdir() if path.name.startswith(("calib", "reserv"))] == []
    assert processes_of(cleaned.lab.remote) == []


def test_the_cleanup_playbook_makes_the_document_that_a_full_disk_prevented(cleaned: Day) -> None:
    (directory,) = cleaned.disk("fills").glob("*/*/*")
    assert "fills: cannot write to " in cleaned.ended.text
    assert read_run(directory).run.id == RUN
