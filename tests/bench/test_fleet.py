# SPDX-License-Identifier: Apache-2.0
"""The benchmark of a fleet: real connections to simulated SUTs, costs, and faults."""

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bench import fleet, meter
from calibration.base.errors import EnvironmentLacksError
from tests.servers import Servers, Sut
from tests.tools import require_ssh

TINY = fleet.ROOT / "tests" / "ansible" / "profiles" / "tiny.yml"
SUTS = [Sut(f"sut{number}", f"127.83.0.{number}") for number in (1, 2, 3)]


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[fleet.Setting]:
    with fleet.prepared(tmp_path_factory.mktemp("work"), str(TINY), forks=5) as prepared:
        yield prepared


@pytest.mark.slow
def test_a_sut_without_a_complete_document_is_reported(setting: fleet.Setting, tmp_path: Path) -> None:
    require_ssh()
    good, dead = SUTS[0], replace(SUTS[1], dead=True)
    with Servers((good, dead), tmp_path / "suts") as servers, pytest.raises(EnvironmentLacksError) as raised:
        next(fleet.calibrate(setting, servers, tmp_path))
    assert f"calibration ended with 3\n{dead.name}: the run is not_begun" in str(raised.value)
    results = tmp_path / "results"
    assert list(fleet.faults_of(results, (good,), setting.sha256)) == []
    (changed,) = fleet.faults_of(results, (good,), "other")
    assert changed == f"{good.name}: measured by the program {setting.sha256}, not other"


@pytest.mark.slow
def test_slices_become_one_judged_night(setting: fleet.Setting, tmp_path: Path) -> None:
    require_ssh()
    stages = dict(fleet.calibrate_sliced(setting, SUTS, 2, tmp_path))
    assert list(stages) == ["calibrate, with pages, 2 slices", "these pages again, 2 slices", "merge", "judge"]
    assert all(usage.cpu_s > 0 for usage in stages.values())
    judged = json.loads((tmp_path / "night" / "judgement.json").read_bytes())["verdicts"]
    assert {verdict["sut"] for verdict in judged} == {sut.name for sut in SUTS}
    assert len({verdict["run_id"] for verdict in judged}) == 1


DAEMON = """\
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        kept = bytearray(64 << 20)
        until = time.process_time() + 1.0
        while time.process_time() < until: pass
        open(sys.argv[1], "w").write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
os.wait()
while not os.path.exists(sys.argv[1]): time.sleep(0.01)
time.sleep(2)  # so that a busy machine looks once more
sys.exit(3)
"""
"""Forks twice and starts a session, as the master of an ssh connection does, and works then."""


def test_a_command_that_ends_between_samples_has_the_memory_of_its_largest_process(tmp_path: Path) -> None:
    usage = fleet.metered([sys.executable, "-c", "bytearray(64 << 20)"], os.environ, tmp_path / "log")
    assert usage.peak_pss_bytes > 64 << 20


def test_the_meter_counts_daemons_and_ends_them(tmp_path: Path) -> None:
    worked = tmp_path / "worked"
    usage = fleet.metered([sys.executable, "-c", DAEMON, str(worked)], os.environ, tmp_path / "log")
    assert usage.exit_code == 3
    assert usage.cpu_s >= 1.0
    assert usage.peak_pss_bytes >= 64 << 20
    assert not Path("/proc", worked.read_text()).exists()


def test_cost_is_reported_per_sut() -> None:
    usage = meter.Usage(exit_code=0, wall_s=20.0, cpu_s=15.0, processes_at_peak=31, peak_pss_bytes=300 << 20)
    assert fleet.row_of(fleet.together([usage, usage]), 10, "merge") == ("10", "merge", "40", "3.00", "300", "31")
