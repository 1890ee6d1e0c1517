# SPDX-License-Identifier: Apache-2.0
"""Run playbooks, and load plugins, which Ansible finds by path."""

import importlib.util
import io
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType, SimpleNamespace
from typing import Any

import ansible.module_utils
import pytest
from ansible.module_utils.testing import patch_module_args

from calibration.build import build
from calibration.lifecycle import begin
from calibration.places import CACHE

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
TWO = HERE / "profiles" / "two.yml"
TINY = HERE / "profiles" / "tiny.yml"
SLOW = HERE / "profiles" / "slow.yml"
BROKEN = HERE / "profiles" / "broken.yml"

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

ANSIBLE = (sys.executable, "-m", "ansible")

PATIENCE_S = 300
"""Limit for a playbook that hangs. No test asserts a duration."""


@dataclass(frozen=True)
class Ended:
    """Exit code and output of a command."""

    rc: int
    text: str


@dataclass(frozen=True)
class Lab:
    """Directories for results (controller), for runs' private directories (SUT), and for the home."""

    directory: Path

    @property
    def results(self) -> Path:
        """Results; created by the first run."""
        return self.directory / "results"

    @property
    def remote(self) -> Path:
        """calibration_remote_base."""
        return self.directory / "remote"

    @property
    def reservation(self) -> Path:
        """Reservation of the SUT; this machine stands for many SUTs."""
        return self.remote / "calibration-reservation"

    @property
    def home(self) -> Path:
        """An empty home directory."""
        return self.directory / "home"

    def make(self) -> "Lab":
        """Create the directories that must exist."""
        self.remote.mkdir(parents=True)
        self.home.mkdir()
        return self

    def environment(self, **extra: str) -> dict[str, str]:
        """Return the environment of a playbook, with as little as possible of the caller's."""
        kept = {name: os.environ[name] for name in ("PATH", "LC_ALL", "LANG") if name in os.environ}
        return {
            "LC_ALL": "C.UTF-8",
            **kept,
            "HOME": str(self.home),
            "TMPDIR": str(self.directory),
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_HOME": str(self.directory / "ansible"),
            "ANSIBLE_LOCAL_TEMP": str(self.directory / "local"),
            **extra,
        }

    def command(self, playbook: Path | str, *options: str, profile: Path | str | None = TINY) -> list[str]:
        """Return the command that runs *playbook* with this lab's directories and *profile*, if any."""
        return [
            *(*ANSIBLE, "playbook", str(ROOT / "playbooks" / playbook)),
            *("-e", f"calibration_results_dir={self.results}"),
            *("-e", f"calibration_remote_base={self.remote}"),
            *("-e", f"reserve_path={self.reservation}"),
            *(("-e", f"calibration_profile={profile}") if profile else ()),
            *("-e", json.dumps({"report_site": False})),
            *options,
        ]

    def run(self, playbook: Path | str, *options: str, profile: Path | str | None = TINY, **extra: str) -> Ended:
        """Run *playbook*."""
        return run(self.command(playbook, *options, profile=profile), self.environment(**extra))

    def ansible(self, *words: str, **extra: str) -> Ended:
        """Run ``ansible`` with *words*, such as ``playbook`` and its options."""
        return run([*ANSIBLE, *words], self.environment(**extra))

    def clean_up(self, inventory: Path, run_id: str, suts: str) -> Ended:
        """Run the cleanup playbook for a run on *suts*."""
        limits = ("--limit", suts, "-e", f"calibration_run_id={run_id}")
        return self.ansible("playbook", str(ROOT / "playbooks" / "cleanup.yml"), "-i", str(inventory), *limits)

    @contextmanager
    def started(self, log: Path, *options: str, **extra: str) -> Iterator["subprocess.Popen[bytes]"]:
        """Start a run that takes hours; it is killed at the end of the block."""
        command = self.command("calibrate.yml", *options, profile=SLOW)
        with begun(command, self.environment(**extra), log) as process:
            yield process

    def runs(self) -> list[Path]:
        """Return the directories of all runs, oldest first."""
        return sorted(path for path in self.results.glob("*/*/*") if path.is_dir())

    def leftovers(self) -> list[str]:
        """Return files and processes that should be gone: on the SUT, in the home and in temporary directories."""
        places = (self.remote, self.home, self.directory / "local")
        files = [str(path) for place in places if place.exists() for path in place.rglob("*")]
        partial = [str(path) for path in self.results.rglob(".*")] if self.results.exists() else []
        temporary = [str(path) for path in self.directory.glob("tmp*")]
        return files + partial + temporary + processes_of(self.remote)


@contextmanager
def begun(command: list[str], environment: dict[str, str], log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Start *command* in the checkout, in its own process group like a shell.

    If it still runs at the end of the block, its group is killed. Processes that outlive it are left for the test to
    find. The output goes to a file, because a pipe only ends when all processes have closed it.
    """
    with (
        log.open("wb") as stream,
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            process_group=0,
        ) as process,
    ):
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def wait_until(
    condition: Callable[[], object], process: "subprocess.Popen[bytes] | None" = None, log: Path | None = None
) -> None:
    """Wait until *condition* holds; fail with *log* if *process* ends before."""
    until = time.monotonic() + PATIENCE_S
    while not condition():
        text = "" if log is None else log.read_text(encoding="utf-8")
        assert process is None or process.poll() is None, text
        assert time.monotonic() < until, text
        time.sleep(0.1)


def steps_recorded(lab: Lab) -> int:
    """Return the number of steps recorded by all runs of *lab*."""
    return sum(path.read_text(encoding="utf-8").count('"record":"step"') for path in lab.results.rglob("records.jsonl"))


def probes_of(lab: Lab) -> list[str]:
    """Return the processes of sutprobe started by runs of *lab*."""
    return [process for process in processes_of(lab.remote) if re.match(r"process \d+: \S*/sutprobe latency", process)]


def run(command: list[str], environment: dict[str, str]) -> Ended:
    """Run *command* in the checkout; fail with its output if it hangs."""
    with TemporaryDirectory() as folder:
        log = Path(folder, "log")
        with begun(command, environment, log) as process:
            try:
                code = process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                written = log.read_text(encoding="utf-8")
                pytest.fail(f"{command} did not end within {PATIENCE_S} s and wrote:\n{written}")
        return Ended(code, log.read_text(encoding="utf-8"))


def inventory_of(lab: Lab, hosts: dict[str, dict[str, Any]], profile: Path = TINY) -> Path:
    """Write an inventory of SUTs that are all this machine, each with its own reservation."""
    common = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "calibration_remote_base": str(lab.remote),
        "calibration_results_dir": str(lab.results),
        "calibration_profile": str(profile),
        "reserve_path": str(lab.remote / "reservation-{{ inventory_hostname }}"),
        "report_site": False,
    }
    path = lab.directory / "hosts.json"
    path.write_text(json.dumps({"all": {"hosts": hosts, "vars": common}}))
    return path


def calibrate(lab: Lab, inventory: Path, *options: str, **extra: str) -> Ended:
    """Run ``calibration run`` on *inventory*."""
    return run(calibrate_command(inventory, *options), lab.environment(**extra))


def calibrate_command(inventory: Path, *options: str) -> list[str]:
    """Return the command ``calibration run`` on *inventory*."""
    return [sys.executable, "-m", "calibration.cli", "run", "-i", str(inventory), *options]


def executable(path: Path, script: str) -> Path:
    """Write a shell script to *path* and make it executable; return its path."""
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


SSH = """
# A simulated ssh: the SUT is this machine.
[ "$1" = -V ] || [ "$#" -lt 3 ] && exit 0
for command; do :; done
starts_probe() { case "$command" in *sutprobe*latency*) true;; *) false;; esac }
BODY
ulimit -S -d unlimited  # the controller's limits do not apply to a SUT
exec /bin/sh -c "$command"
"""

STUCK = """
if starts_probe; then
    echo started >> LOG
    if [ "$(grep -c started LOG)" -eq 2 ]; then
        while [ ! -e LOG.let-go ]; do sleep 0.2; done
        exit 1
    fi
fi
"""
"""A SUT whose second step hangs the first time."""


def over_ssh(lab: Lab, name: str, body: str) -> dict[str, Any]:
    """Return the variables of the SUT *name*, reached by a simulated ssh; LOG in *body* is replaced by its own file."""
    ssh, log = lab.directory / f"{name}-ssh", lab.directory / f"{name}-log"
    log.touch()
    executable(ssh, SSH.replace("BODY", body.replace("LOG", str(log))))
    return {"ansible_connection": "ssh", "ansible_ssh_executable": str(ssh)}


def base_of(lab: Lab, name: str) -> dict[str, Any]:
    """Return the variables of a SUT with its own remote directory."""
    base = lab.remote / name
    base.mkdir()
    return {"calibration_remote_base": str(base), "reserve_path": str(base / "reservation")}


def run_of(lab: Lab, name: str) -> Path:
    """Return the directory of the only run of the SUT *name*."""
    (found,) = [path for path in lab.runs() if path.parent.name == name]
    return found


def processes_of(directory: Path) -> list[str]:
    """Return the processes with *directory* in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it has ended
        if re.search(re.escape(str(directory)) + r"\b", command) and int(path.parent.name) != os.getpid():
            found.append(f"process {path.parent.name}: {command}")
    return found


ANOTHER_DISPLAY = {"ANSIBLE_STDOUT_CALLBACK": "default", "ANSIBLE_CALLBACK_PLUGINS": "/nonexistent"}
"""Another display, as with ansible-runner and AWX, which ignore the callback directories of ansible.cfg."""

MODULE_UTILS = ROOT / "ansible" / "plugins" / "module_utils"
ansible.module_utils.__path__.append(str(MODULE_UTILS))  # as ansible.cfg does


def load_plugin(kind: str, name: str) -> ModuleType:
    """Import a plugin from its file, as Ansible does."""
    places = (ROOT / "ansible" / "plugins" / kind, ROOT / "playbooks" / f"{kind}_plugins")
    (path,) = (place / f"{name}.py" for place in places if (place / f"{name}.py").is_file())
    spec = importlib.util.spec_from_file_location(f"tested_{kind}_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_module(module: ModuleType, arguments: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> Any:
    """Run one of this project's modules in this process; return its answer."""
    with patch_module_args(arguments), pytest.raises(SystemExit):
        module.main()
    return json.loads(capsys.readouterr().out)


def files_of_checkout(*paths: str) -> list[str]:
    """Return the files below *paths* that git does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *paths]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return [name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


def copy_checkout(target: Path) -> Path:
    """Copy the files of the checkout that git does not ignore to *target*."""
    for name in files_of_checkout():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target / name, follow_symlinks=False)
    return target


def copy_sutprobe(cache: Path) -> None:
    """Copy the built sutprobe to another cache directory."""
    build(platform.machine())
    sanitized = shutil.ignore_patterns("address", "named", "thread")  # larger, and not for calibrations
    shutil.copytree(CACHE / "kernels", cache / "kernels", ignore=sanitized)


def pack(path: Path, name: str, content: bytes) -> Path:
    """Make an archive at *path* with one program in it, like Intel's; return its path."""
    with tarfile.open(path, "w:gz") as packed:
        member = tarfile.TarInfo(name)
        member.size, member.mode = len(content), 0o755
        packed.addfile(member, io.BytesIO(content))
    return path


def runs(process: int) -> bool:
    """Return whether *process* is running."""
    try:
        status = Path(f"/proc/{process}/stat").read_text(encoding="ascii")
    except OSError:
        return False
    return status.rsplit(")", 1)[1].split()[0] != "Z"


CONTEXTS = ROOT / "tests" / "fixtures" / "context"
"""Captured machines."""

RESERVED: dict[str, Any] = {
    "reservation": {"path": "/tmp/a reservation", "token": "0" * 32, "boot_id": "0" * 36},
    "lease_s": 300.0,
}
"""Arguments of actions that need the reservation."""


def begin_run(folder: Path, profile: Path | str, capture: str, *, prefetchers_ok: bool = False) -> Path:
    """Begin a run of a captured machine in *folder*; return its directory."""
    names = {"testbed": "t1", "sut": "s1", "run_id": "r1", "profile": str(profile)}
    content = (CONTEXTS / f"{capture}.tar.gz").read_bytes()
    return begin(folder, **names, capture=content, now=NOW, prefetchers_ok=prefetchers_ok).directory


class StandIn:
    """Ansible's part of an action plugin, for a SUT whose reservation check exits with *held*."""

    def __init__(self, held: int = 0) -> None:
        self.held = held
        self.task_vars = {"inventory_hostname": "sut1"}
        self.shown: list[str] = []
        self.colors: list[str | None] = []
        self._display = SimpleNamespace(display=self.show)
        self._connection = SimpleNamespace(close=lambda: None)

    def show(self, text: str, color: str | None) -> None:
        self.shown.append(text)
        self.colors.append(color)

    def _low_level_execute_command(self, _command: str, in_data: bytes | None = None) -> dict[str, Any]:  # noqa: ARG002 - Ansible's
        return {"rc": self.held, "stdout": "", "stderr": ""}
