# SPDX-License-Identifier: Apache-2.0
"""The kernel of this machine, traced: causes of gaps by name, and nothing left of it, whoever is killed."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from calibration.sutprobe.document import read_document, read_result
from calibration.sutprobe.jitter_rounds import JitterResult
from calibration.sutprobe.tracing import Traced
from tests.probe.conftest import Finished, Probe, abandoned, instances
from tests.probe_results import SelftestResult
from tests.tools import require, require_root

PATIENCE_S = 60


def traced_of(done: Finished) -> Traced:
    (cpu,) = read_result(read_document(done.document), JitterResult).cpus
    assert cpu.gaps is not None
    assert cpu.gaps.traced is not None
    return cpu.gaps.traced


@pytest.fixture
def tracefs(tmp_path: Path) -> Iterator[Path]:
    """Where this machine's tracing can be seen."""
    require_root()
    for known in (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing")):
        if (known / "instances").is_dir():
            yield known
            return
    place = tmp_path / "tracing"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tracefs", "nodev", place], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no permission: mount tracefs: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", place], check=True)


def mounts() -> set[str]:
    """Return what is mounted, except what tests that run meanwhile mount in directories of theirs."""
    lines = Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
    return {line for line in lines if "/test_" not in line}


def until(seen: Any) -> None:
    end = time.monotonic() + PATIENCE_S
    while not seen():
        assert time.monotonic() < end
        time.sleep(0.05)


WORDS = ("--view", "gaps", "--attribute")


def test_gaps_are_attributed_and_their_books_agree(probe: Probe, cpus: list[int], tracefs: Path) -> None:
    before, mounted = abandoned(tracefs), mounts()
    done = probe("jitter", "--cpus", str(cpus[-1]), "--gap-s", "1", *WORDS)
    traced = traced_of(done)
    view = traced.view
    assert traced.refused is None
    assert view is not None
    until(lambda: abandoned(tracefs) <= before)
    assert mounts() == mounted
    assert view.without_tracing.gaps == done.document["result"]["cpus"][0]["gaps"]["count"]
    assert view.unreadable == 0
    assert (traced.osnoise is None) == (traced.osnoise_refused is not None)
    if "osnoise" not in traced.tracers.split():
        assert traced.osnoise_refused == "this kernel has no osnoise tracer"
    if not view.lost_events:
        assert view.explained_gaps == view.with_tracing.gaps
    assert view.edges.gaps + view.unexplained.gaps == view.explained_gaps
    whole = view.edges.total_ns + view.unexplained.total_ns + sum(cause.total_ns for cause in view.causes)
    assert whole == pytest.approx(view.explained_ns)
    shares = [view.edges.share, view.unexplained.share, *(cause.share for cause in view.causes)]
    assert sum(share or 0.0 for share in shares) == pytest.approx(1.0)
    assert sum(cause.owned for cause in view.causes) == view.explained_gaps - view.unexplained.without_events
    lengths = [gap.length_ns for gap in view.longest]
    assert len(lengths) == min(20, view.explained_gaps)
    assert lengths == sorted(lengths, reverse=True)
    known = {(cause.kind, cause.name, cause.function) for cause in view.causes}
    for gap in view.longest:
        assert 0 <= gap.at_ns <= view.with_tracing.wall_s * 1e9
        assert gap.cause is None or (gap.cause.kind, gap.cause.name, gap.cause.function) in known
    for cause in view.causes:
        assert cause.longest_ns <= cause.total_ns + 1
        assert cause.gaps <= view.explained_gaps
        assert (cause.irq is not None) == (cause.kind == "interrupt")


def test_a_thread_of_this_test_is_found_by_its_name(probe: Probe, cpus: list[int], tracefs: Path) -> None:  # noqa: ARG001 - where there is none nothing is traced
    shell = shutil.which("sh")
    assert shell
    script = "printf disturber >/proc/self/comm; while :; do i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; done"
    rival = subprocess.Popen([shell, "-c", script])
    try:
        os.sched_setaffinity(rival.pid, {cpus[-1]})
        view = traced_of(probe("jitter", "--cpus", str(cpus[-1]), "--gap-s", "1", *WORDS)).view
    finally:
        rival.kill()
        rival.wait()
    assert view is not None
    (found,) = [cause for cause in view.causes if cause.name == "disturber"]
    assert (found.kind, found.pid) == ("task", rival.pid)
    assert found.events > 1
    assert found.total_ns > 0


def test_planted_disturbances_are_found(selftest: Probe, tracefs: Path) -> None:  # noqa: ARG001 - where there is none nothing is planted
    done = selftest("selftest", "--case", "trace_planted", "--injection-s", "1")
    result = read_result(read_document(done.document), SelftestResult)
    assert [case.passed for case in result.cases] == [True]
    assert result.plantings is not None, result.cases[0].note
    for plant in result.plantings.plants:
        assert plant.found_events >= 0.9 * plant.planted_events - 2


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_leaves_no_instance_behind(native: Path, cpus: list[int], tracefs: Path, number: int) -> None:
    before = abandoned(tracefs)
    with subprocess.Popen(
        [native, "jitter", "--cpus", str(cpus[-1]), "--gap-s", "600", *WORDS],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        name = f"sutprobe-{process.pid}"
        until(lambda: name in instances(tracefs))
        os.killpg(process.pid, number)
        process.wait()
    until(lambda: name not in instances(tracefs) and abandoned(tracefs) <= before)


def test_removes_the_instance_of_a_killed_guardian(probe: Probe, cpus: list[int], tracefs: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    (tracefs / "instances" / f"sutprobe-{ended.pid}").mkdir()
    (tracefs / "instances" / f"sutprobe-{os.getpid()}").mkdir()  # of a process that runs
    try:
        probe("jitter", "--cpus", str(cpus[-1]), "--gap-s", "0.2", *WORDS)
        assert f"sutprobe-{ended.pid}" not in instances(tracefs)
        assert f"sutprobe-{os.getpid()}" in instances(tracefs)
    finally:
        (tracefs / "instances" / f"sutprobe-{os.getpid()}").rmdir()


def test_warns_of_tracing_that_cannot_be_removed(native: Path, cpus: list[int], tracefs: Path) -> None:
    command = [native, "jitter", "--cpus", str(cpus[-1]), "--gap-s", "1", *WORDS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        left = tracefs / "instances" / f"sutprobe-{process.pid}"
        until((left / "tracing_on").exists)
        with (left / "tracing_on").open():  # what is open cannot be removed
            printed, _ = process.communicate()
    left.rmdir()
    assert process.returncode == 0
    (warned,) = [warning for warning in read_document(json.loads(printed)).warnings if warning.code == "TRACING_LEFT"]
    assert f"instances/{left.name}*" in warned.message


def test_measures_without_permission_to_trace(native: Path, cpus: list[int]) -> None:
    command = [str(native)]
    if os.geteuid() == 0:
        nobody = ("--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all")
        command = [require("util-linux", "setpriv"), *nobody, *command]
    done = Probe(*command)("jitter", "--cpus", str(cpus[-1]), "--gap-s", "0.2", *WORDS)
    traced = traced_of(done)
    assert done.code == 0
    assert traced.view is None
    assert traced.refused is not None
    assert "needs root" in traced.refused
    assert done.document["result"]["cpus"][0]["gaps"]["wall_s"] > 0


def test_not_traced_unless_requested(probe: Probe, cpus: list[int]) -> None:
    done = probe("jitter", "--cpus", str(cpus[-1]), "--view", "gaps", "--gap-s", "0.2")
    assert done.document["result"]["cpus"][0]["gaps"]["traced"] is None
