# SPDX-License-Identifier: Apache-2.0
"""The benchmark of a fleet: real connections to simulated SUTs, costs, and faults."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bench import fleet, meter, suts
from calibration.errors import EnvironmentLacksError
from tests.tools import require_ssh

ROOT = Path(__file__).resolve().parents[2]
TINY = ROOT / "tests" / "ansible" / "profiles" / "tiny.yml"


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[fleet.Setting]:
    with fleet.prepared(tmp_path_factory.mktemp("work"), str(TINY), forks=5) as prepared:
        yield prepared


def _commands() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue  # it has ended
    return found


def test_faulty_suts_are_reported_and_others_continue(setting: fleet.Setting, tmp_path: Path) -> None:
    require_ssh()
    good, dead, changed = suts.fleet(3, 0.0)
    dead = replace(dead, dead=True)
    with suts.Servers((good, dead, changed), tmp_path / "suts") as servers:
        key = " ".join(servers.key.with_suffix(".pub").read_text(encoding="ascii").split()[:2])
        lines = servers.known_hosts.read_text(encoding="ascii").splitlines()
        lines[2] = f"{lines[2].split()[0]} {key}"
        servers.known_hosts.write_text("\n".join([*lines, ""]), encoding="ascii")
        with pytest.raises(EnvironmentLacksError) as raised:
            fleet.calibrate(setting, servers, tmp_path)
    assert "calibration ended with 3" in str(raised.value)
    for sut in (dead, changed):
        assert f"{sut.name}: the run is not_begun" in str(raised.value)
    assert "Host key verification failed" in (tmp_path / "calibrate.log").read_text(encoding="utf-8")
    results = tmp_path / "results"
    assert fleet.faults_of(results, (good,), setting) == []
    other = replace(setting, kernels=tmp_path / "kernels")
    shutil.copytree(setting.kernels, other.kernels)
    build = other.kernels / other.target / "build.json"
    build.write_text(json.dumps({**json.loads(build.read_bytes()), "sha256": "0" * 64}))
    (fault,) = fleet.faults_of(results, (good,), other)
    assert re.fullmatch(rf"{good.name}: measured by the program [0-9a-f]{{64}}, not 0{{64}}", fault)
    assert [command for command in _commands() if str(tmp_path) in command] == []


def test_slices_become_one_judged_night(setting: fleet.Setting, tmp_path: Path) -> None:
    require_ssh()
    stages = dict(fleet.calibrate_sliced(setting, suts.fleet(3, 0.0), 2, tmp_path))
    assert list(stages) == ["2 slices, with pages", "these pages again", "merge", "judge"]
    assert all(usage.cpu_s > 0 for usage in stages.values())
    judged = json.loads((tmp_path / "night" / "judgement.json").read_bytes())["verdicts"]
    assert {verdict["sut"] for verdict in judged} == {"sut000", "sut001", "sut002"}
    assert len({verdict["run_id"] for verdict in judged}) == 1


def test_the_stand_in_answers_only_the_plan(setting: fleet.Setting) -> None:
    program = setting.kernels / setting.target / "sutprobe"
    assert len(program.read_bytes()) >= suts.KERNEL_BYTES - 1
    for step in setting.steps:
        done = subprocess.run([str(program), *step.argv[1:]], capture_output=True, text=True, check=True)
        answer = json.loads(done.stdout)
        assert answer["argv"] == list(step.argv)
        assert answer["build"]["source_sha256"] == suts.kernel_source()
    refused = subprocess.run([str(program), "latency", "--help"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "not a command of the plan: latency --help" in refused.stderr


def test_the_stand_in_accepts_other_sizes(setting: fleet.Setting) -> None:
    argv = list(setting.steps[0].argv)
    argv[argv.index("--size-bytes") + 1] = "4096"
    program = setting.kernels / setting.target / "sutprobe"
    subprocess.run([str(program), *argv[1:]], capture_output=True, check=True)


def test_the_meter_counts_daemons(tmp_path: Path) -> None:
    """The child forks twice and starts a session, as the master of an ssh connection does, and works then."""
    script = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        kept = bytearray(64 << 20)\n"
        "        until = time.process_time() + 1.0\n"
        "        while time.process_time() < until: pass\n"
        f"        open({str(tmp_path / 'worked')!r}, 'w').close()\n"
        "        time.sleep(600)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        f"while not os.path.exists({str(tmp_path / 'worked')!r}): time.sleep(0.01)\n"
        "time.sleep(2)\n"  # so that a busy machine looks once more
    )
    usage = fleet.metered([sys.executable, "-c", script], os.environ, tmp_path / "log")
    assert usage.exit_code == 0
    assert usage.cpu_s >= 1.0
    assert usage.peak_pss_bytes >= 64 << 20
    assert str(tmp_path / "worked") not in " ".join(_commands()), "what the command left running is ended"


def test_descendants_are_found_below_their_ancestors_only() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as child:
        until = time.monotonic() + 60
        while child.pid not in meter.descendants(os.getpid()) and time.monotonic() < until:
            time.sleep(0.01)
        assert child.pid in meter.descendants(os.getpid())
        assert child.pid not in meter.descendants(child.pid)
        child.terminate()


def test_a_command_that_fails_keeps_its_exit_code(tmp_path: Path) -> None:
    assert fleet.metered([sys.executable, "-c", "raise SystemExit(3)"], os.environ, tmp_path / "log").exit_code == 3


def test_cost_is_reported_per_sut() -> None:
    usage = meter.Usage(exit_code=0, wall_s=20.0, cpu_s=15.0, processes_at_peak=31, peak_pss_bytes=300 << 20)
    assert fleet.row_of(usage, 10, "merge") == ("10", "merge", "20", "1.50", "300", "31")
