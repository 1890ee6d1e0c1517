# SPDX-License-Identifier: Apache-2.0
"""Real runs on this machine: what works, and what each kind of bad input and misfortune leads to."""

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support import BROKEN, ROOT, SLOW, Ended, Lab

from calibration.build import build
from calibration.results.records import records
from calibration.results.store import read_run
from tests.tools import require_root

SITE = ROOT / ".cache" / "tests" / "site"

PAGE = 4096
"""Bytes that a file system gives out at a time."""


@pytest.fixture(scope="module")
def first(module_lab: Lab) -> Ended:
    return module_lab.run("calibrate.yml")


def test_a_run_ends_well_with_a_valid_document_and_a_page(module_lab: Lab, first: Ended) -> None:
    assert first.rc == 0, first.text
    (run,) = module_lab.runs()
    assert run.relative_to(module_lab.results).parts[:2] == ("localhost", "localhost")
    document = read_run(run)
    assert document.run.status == "complete"
    assert document.run.kernels is not None
    assert [each.kind for each in document.measurements] == ["idle_latency"]
    page = run / "report" / "page.rst"
    assert document.run.kernels.sha256 in page.read_text(encoding="utf-8")
    assert f"Results: {run}\n" in first.text


def test_the_output_has_one_line_per_event_and_no_control_character(first: Ended) -> None:
    assert "localhost: step 1 of 1: Idle latency" in first.text
    assert all(character.isprintable() or character == "\n" for character in first.text)
    assert "WARNING" not in first.text


def test_a_run_leaves_nothing_behind(module_lab: Lab, first: Ended) -> None:
    assert first.rc == 0
    assert module_lab.leftovers() == []


def test_a_second_run_is_kept_beside_the_first(module_lab: Lab, first: Ended) -> None:
    assert first.rc == 0
    (before,) = module_lab.runs()
    kept = (before / "run.json").read_bytes()
    second = module_lab.run("calibrate.yml")
    assert second.rc == 0, second.text
    assert len(module_lab.runs()) == 2
    assert (before / "run.json").read_bytes() == kept


def test_all_pages_and_the_site_are_rendered_again(module_lab: Lab, first: Ended) -> None:
    assert first.rc == 0
    for run in module_lab.runs():
        (run / "report" / "page.rst").unlink()
    again = module_lab.run("report.yml", "-e", f"report_site_dir={SITE}")
    assert again.rc == 0, again.text
    assert all((run / "report" / "page.rst").is_file() for run in module_lab.runs())
    assert (SITE / "index.html").is_file()


def test_check_mode_shows_the_plan_and_touches_nothing(lab: Lab) -> None:
    ended = lab.run("calibrate.yml", "--check")
    assert ended.rc == 0, ended.text
    assert "1. Idle latency" in ended.text
    assert "sutprobe latency --at" in ended.text
    assert not lab.results.exists()
    assert lab.leftovers() == []


def test_nightly_is_calibrate_with_its_profile(lab: Lab) -> None:
    ended = lab.run("nightly.yml", "--check", profile=None)
    assert ended.rc == 0, ended.text
    assert "Maximum bandwidth" in ended.text


def test_what_fails_is_not_measured_and_the_rest_goes_on(lab: Lab) -> None:
    ended = lab.run("calibrate.yml", profile=BROKEN)
    assert ended.rc == 2
    (run,) = lab.runs()
    document = read_run(run)
    assert document.run.status == "incomplete"
    assert [each.kind for each in document.measurements] == ["idle_latency"]
    (missing,) = [each for each in document.not_measured if each.cause == "failed"]
    assert missing.kind == "latency_matrix"
    assert "expected whole numbers from 1 to 31, found '99'" in missing.reason
    assert f"Not measured: {missing.what}: {missing.reason}" in ended.text
    assert (run / "report" / "page.rst").is_file()
    assert lab.leftovers() == []


def test_an_unknown_profile_is_refused_before_anything_is_touched(lab: Lab) -> None:
    ended = lab.run("calibrate.yml", profile="thorough")
    assert ended.rc == 2
    assert "unknown profile 'thorough', expected quick, nightly, full, counters" in ended.text
    assert not lab.results.exists()
    assert lab.leftovers() == []


@pytest.mark.parametrize("content", [None, "all: [not, an, inventory", "[group\n"], ids=["missing", "yaml", "ini"])
def test_an_inventory_that_cannot_be_read_is_an_error(lab: Lab, content: str | None) -> None:
    inventory = lab.directory / "hosts.yml"
    if content is not None:
        inventory.write_text(content)
    ended = lab.run("calibrate.yml", "-i", str(inventory))
    assert ended.rc not in {0, 2}
    assert str(inventory) in ended.text
    assert not lab.results.exists()


def test_an_inventory_without_a_sut_is_an_error(lab: Lab) -> None:
    inventory = lab.directory / "hosts.yml"
    inventory.write_text("all:\n  children:\n    testbed1:\n")
    ended = lab.run("calibrate.yml", "-i", str(inventory))
    assert ended.rc != 0
    assert "Expected at least one SUT in the inventory, found none" in ended.text


def test_results_that_cannot_be_written_are_refused_before_measuring(lab: Lab) -> None:
    lab.results.write_text("a file where a directory should be")
    ended = lab.run("calibrate.yml")
    assert ended.rc == 2
    assert f"for the results at {lab.results}, found {lab.results} which is no directory" in ended.text
    assert lab.leftovers() == []


def test_who_guesses_a_runs_name_gets_nothing_by_it(lab: Lab) -> None:
    guess = lab.remote / "calibration-20261121T000000Z-0000-localhost"
    guess.write_text("not a directory")
    ended = lab.run("calibrate.yml", "-e", "calibration_run_id=20261121T000000Z-0000")
    assert ended.rc == 0, ended.text
    assert guess.read_text() == "not a directory"
    assert list(lab.remote.iterdir()) == [guess]


TAMPER = """#!/bin/sh
case "$*" in *sutprobe.partial*) echo "other bytes" > ./sutprobe; rm -f ./sutprobe.partial;; *) exec /bin/mv "$@";; esac
"""
"""A SUT whose disk gives back other bytes than were written."""


def test_other_bytes_on_the_sut_are_found_and_nothing_is_measured_with_them(lab: Lab) -> None:
    tools = lab.directory / "tools"
    tools.mkdir()
    (tools / "mv").write_text(TAMPER)
    (tools / "mv").chmod(0o755)
    ended = lab.run("calibrate.yml", PATH=f"{tools}:{os.environ['PATH']}")
    assert ended.rc == 2
    (run,) = lab.runs()
    document = read_run(run)
    other = hashlib.sha256(b"other bytes\n").hexdigest()
    expected = f"Expected the kernel with sha256 {build(platform.machine()).sha256} on the SUT, found {other}"
    assert expected in ended.text
    assert document.run.kernels is None
    assert document.measurements == ()
    assert all(each.reason.startswith(expected) for each in document.not_measured if each.cause == "failed")
    assert "step 1" not in ended.text
    assert list(lab.remote.iterdir()) == []


@contextmanager
def mounted(directory: Path, size: str) -> Iterator[None]:
    """Have a disk of a *size* at *directory* in the block."""
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


@pytest.fixture
def small_disk(lab: Lab) -> Iterator[Path]:
    with mounted(lab.results, "4m"):
        yield lab.results


@pytest.mark.parametrize(
    ("size", "begun", "refused"),
    [
        ("48k", False, "expected to reserve the SUT at "),
        ("256k", True, "sutprobe cannot be written to "),
    ],
)
def test_a_suts_disk_that_fills_up_before_the_kernel_is_there_is_named(
    lab: Lab, size: str, begun: bool, refused: str
) -> None:
    with mounted(lab.remote, size):
        lab.remote.chmod(0o1777)
        ended = lab.run("calibrate.yml", "-e", "preflight_remote_free_bytes=0")
        assert lab.leftovers() == []
    assert ended.rc == 2
    (run,) = lab.runs()
    document = read_run(run)
    assert document.run.status == ("incomplete" if begun else "not_begun")
    assert document.measurements == ()
    (reason, *others) = {each.reason for each in document.not_measured if each.cause != "not_planned"}
    assert refused in reason, ended.text
    assert "No space left on device" in reason
    assert others == []


def test_too_little_space_is_found_before_measuring(lab: Lab, small_disk: Path) -> None:
    ended = lab.run("calibrate.yml")
    assert ended.rc == 2
    assert "Expected at least 67108864 bytes free for the results" in ended.text
    assert list(small_disk.iterdir()) == []


def fill(directory: Path, leave_bytes: int) -> None:
    free = os.statvfs(directory)
    (directory / "ballast").write_bytes(b"\0" * (free.f_bavail * free.f_frsize - leave_bytes))


@pytest.mark.parametrize("pages", [0, 2])
def test_a_disk_that_is_full_at_the_start_begins_no_run(lab: Lab, small_disk: Path, pages: int) -> None:
    fill(small_disk, pages * PAGE)
    ended = lab.run("calibrate.yml", "-e", "preflight_results_free_bytes=0")
    assert ended.rc == 2
    assert "the results cannot be written below" in ended.text
    if pages == 0:
        assert [path.name for path in small_disk.iterdir()] == ["ballast"]
        assert lab.leftovers() == []
        return
    # Too few for the capture, and enough for the reason.
    (run,) = lab.runs()
    assert {path.name for path in run.iterdir()} <= {"records.jsonl", "run.json"}
    first, *_ = records(run)
    assert first.record == "not_begun"
    assert "cannot be written" in first.reason
    assert lab.leftovers() == []


def test_a_disk_that_fills_up_loses_nothing_that_was_there(lab: Lab, small_disk: Path, module_lab: Lab) -> None:
    if not module_lab.runs():
        assert module_lab.run("calibrate.yml").rc == 0
    example = module_lab.runs()[0]
    start = (example / "records.jsonl").read_bytes().split(b"\n", 1)[0]
    pages = (example / "context.tar.gz").stat().st_size // PAGE + len(start) // PAGE + 2
    fill(small_disk, (pages + 1) * PAGE)
    ended = lab.run("calibrate.yml", "-e", "preflight_results_free_bytes=0")
    assert ended.rc == 2
    assert "the results cannot be written below" in ended.text
    assert "localhost: no run document could be made; what was recorded is kept" in ended.text
    (run,) = lab.runs()
    assert not (run / "run.json").exists()
    run_id = next(iter(records(run))).id
    (small_disk / "ballast").unlink()
    cleaned = lab.run("cleanup.yml", "-e", f"calibration_run_id={run_id}")
    assert cleaned.rc == 0, cleaned.text
    assert read_run(run).run.id == run_id
    assert lab.leftovers() == []


SSH = """#!/bin/sh
# Stands for ssh: runs the command here. Once a second kernel is started, the SUT is gone.
[ "$1" = -V ] || [ "$#" -lt 3 ] && exit 0
for command; do :; done
case "$command" in *sutprobe*latency*) echo started >> {log};; esac
if [ "$(grep -c started {log})" -gt 1 ]; then
    echo 'ssh: connect to host sut1 port 22: No route to host' >&2
    exit 255
fi
ulimit -S -d unlimited  # a SUT has not the bounds of its controller
exec /bin/sh -c "$command"
"""


def test_a_sut_lost_in_the_middle_keeps_what_it_measured(lab: Lab) -> None:
    ssh = lab.directory / "ssh"
    log = lab.directory / "started"
    log.touch()
    ssh.write_text(SSH.format(log=log))
    ssh.chmod(0o755)
    inventory = lab.directory / "hosts.json"
    variables = {
        "ansible_connection": "ssh",
        "ansible_ssh_executable": str(ssh),
        "ansible_python_interpreter": "{{ ansible_playbook_python }}",
    }
    inventory.write_text(json.dumps({"all": {"hosts": {"sut1": variables}}}))
    ended = lab.run("calibrate.yml", "-i", str(inventory), "-e", "measure_reconnect_s=0", profile=SLOW)
    assert ended.rc != 0
    (run,) = lab.runs()
    document = read_run(run)
    assert document.run.status == "incomplete"
    assert [each.kind for each in document.measurements] == ["idle_latency"]
    (missing,) = [each for each in document.not_measured if each.cause == "failed"]
    assert "the connection to the SUT was lost" in missing.reason
    assert "No route to host" in missing.reason
    assert (run / "report" / "page.rst").is_file()
    assert "Incomplete: 1 of 2 steps measured" in ended.text
    assert "left as it was, found that this cannot be done" in ended.text
    assert document.attempts[0].ended == "the connection to the SUT was lost and did not come back"
    log.write_text("")
    again = lab.run("cleanup.yml", "-i", str(inventory), "-e", f"calibration_run_id={run.name}")
    assert again.rc == 0, again.text
    assert list(lab.remote.iterdir()) == []
