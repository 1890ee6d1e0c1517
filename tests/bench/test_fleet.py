# SPDX-License-Identifier: Apache-2.0
"""The benchmark of a fleet, small: real connections to simulated SUTs, its figures, and what it refuses to accept."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bench import fleet, meter, suts
from calibration.errors import EnvironmentLacksError
from tests.tools import require

ROOT = Path(__file__).resolve().parents[2]
TINY = ROOT / "tests" / "ansible" / "profiles" / "tiny.yml"


@pytest.fixture
def sshd() -> None:
    require("openssh-server", "sshd")


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[fleet.Setting]:
    with fleet.prepared(tmp_path, str(TINY), forks=5) as prepared:
        yield prepared


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "fleet"
    path.mkdir()
    yield path
    left = [command for command in _commands() if str(path) in command]
    assert not left, left


def _commands() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue  # it has ended
    return found


@pytest.mark.usefixtures("sshd")
def test_changed_program_is_reported(setting: fleet.Setting, folder: Path) -> None:
    program = setting.kernels / setting.target / "sutprobe"
    program.write_bytes(program.read_bytes() + b"# changed\n")
    with (
        suts.Servers(suts.fleet(1, 0.0), folder / "suts") as servers,
        pytest.raises(EnvironmentLacksError, match=r"sha256 [0-9a-f]{64}, \S+build\.json says [0-9a-f]{64}"),
    ):
        fleet.calibrate(setting, servers, folder)


@pytest.mark.usefixtures("sshd")
def test_dead_sut_is_reported_and_others_continue(setting: fleet.Setting, folder: Path) -> None:
    alive, dead = suts.fleet(2, 0.0)
    with suts.Servers((alive, replace(dead, dead=True)), folder / "suts") as servers:
        with pytest.raises(EnvironmentLacksError) as told:
            fleet.calibrate(setting, servers, folder)
        assert fleet.faults_of(folder / "results", (alive,), setting) == []
    assert f"{dead.name}: " in str(told.value)


@pytest.mark.usefixtures("sshd")
def test_changed_host_key_is_reported(setting: fleet.Setting, folder: Path) -> None:
    with suts.Servers(suts.fleet(1, 0.0), folder / "suts") as servers:
        known = servers.known_hosts.read_text(encoding="ascii").split()
        other = servers.key.with_suffix(".pub").read_text(encoding="ascii").split()
        servers.known_hosts.write_text(f"{known[0]} {other[0]} {other[1]}\n", encoding="ascii")
        with pytest.raises(EnvironmentLacksError, match="Host key verification failed"):
            fleet.calibrate(setting, servers, folder)


def test_the_stand_in_answers_the_plan_and_nothing_else(setting: fleet.Setting) -> None:
    program = setting.kernels / setting.target / "sutprobe"
    assert len(program.read_bytes()) >= suts.KERNEL_BYTES - 1
    for step in setting.steps:
        done = subprocess.run([str(program), *step.argv[1:]], capture_output=True, text=True, check=True)
        answer = json.loads(done.stdout)
        assert answer["argv"] == list(step.argv)
        assert answer["build"]["source_sha256"] == suts.kernel_source()
    refused = subprocess.run([str(program), "latency", "--help"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "expected a command of the plan, found: latency --help" in refused.stderr


def test_sizes_of_the_plan_may_differ_on_a_sut_with_less_free_memory(setting: fleet.Setting) -> None:
    argv = list(setting.steps[0].argv)
    argv[argv.index("--size-bytes") + 1] = "4096"
    program = setting.kernels / setting.target / "sutprobe"
    subprocess.run([str(program), *argv[1:]], capture_output=True, check=True)


def test_the_meter_counts_processes_that_became_independent(tmp_path: Path) -> None:
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
    assert fleet.row_of(usage, 10) == ("10", "20", "1.50", "300", "31")
