# SPDX-License-Identifier: Apache-2.0
"""How the tests here run playbooks, and how they load plugins, which Ansible finds by path."""

import importlib.util
import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType, SimpleNamespace
from typing import Any

import ansible.module_utils
import pytest
from ansible.module_utils.testing import patch_module_args

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
TWO = HERE / "profiles" / "two.yml"
TINY = HERE / "profiles" / "tiny.yml"
SLOW = HERE / "profiles" / "slow.yml"
BROKEN = HERE / "profiles" / "broken.yml"

PATIENCE_S = 300
"""A playbook that takes longer hangs. No test asserts how long one takes."""


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code and all it wrote."""

    rc: int
    text: str


@dataclass(frozen=True)
class Lab:
    """Where one test keeps its results (controller) and its runs' private directories (SUT), and its home directory."""

    directory: Path

    @property
    def results(self) -> Path:
        """Directory of the results; made by the first run."""
        return self.directory / "results"

    @property
    def remote(self) -> Path:
        """What calibration_remote_base is set to."""
        return self.directory / "remote"

    @property
    def reservation(self) -> Path:
        """Where the SUT is reserved: this machine stands for many SUTs."""
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
        """Return the environment of a playbook: nothing of the caller's but what a program needs."""
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
        """Return the command that runs *playbook* with this lab's directories; without a profile the playbook's own."""
        return [
            sys.executable,
            "-m",
            "ansible",
            "playbook",
            str(ROOT / "playbooks" / playbook),
            *("-e", f"calibration_results_dir={self.results}"),
            *("-e", f"calibration_remote_base={self.remote}"),
            *("-e", f"reserve_path={self.reservation}"),
            *(("-e", f"calibration_profile={profile}") if profile else ()),
            *("-e", json.dumps({"report_site": False})),
            *options,
        ]

    def run(self, playbook: Path | str, *options: str, profile: Path | str | None = TINY, **extra: str) -> Ended:
        """Run *playbook* to its end."""
        return run(self.command(playbook, *options, profile=profile), self.environment(**extra))

    @contextmanager
    def started(self, log: Path, *options: str, **extra: str) -> Iterator["subprocess.Popen[bytes]"]:
        """Start a run of hours, which ends with the block at the latest."""
        command = self.command("calibrate.yml", *options, profile=SLOW)
        with begun(command, self.environment(**extra), log) as process:
            yield process

    def runs(self) -> list[Path]:
        """Return the directories of all runs, oldest first."""
        return sorted(path for path in self.results.glob("*/*/*") if path.is_dir())

    def leftovers(self) -> list[str]:
        """Return what is left where nothing may be: on the SUT, in the home and in the temporary directories."""
        places = (self.remote, self.home, self.directory / "local")
        files = [str(path) for place in places if place.exists() for path in place.rglob("*")]
        partial = [str(path) for path in self.results.rglob(".*")] if self.results.exists() else []
        temporary = [str(path) for path in self.directory.glob("tmp*")]
        return files + partial + temporary + processes_of(self.remote)


@contextmanager
def begun(command: list[str], environment: dict[str, str], log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Start *command* in the checkout, in a process group of its own as a shell does.

    Where it still runs at the end of the block, it is ended with its group; what outlives one that has ended is left
    for the test to find. The output goes to a file: who waits for the end of a pipe waits for all that have it open.
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
    """Wait until *condition* holds; where *process* is given, while that runs. A failure shows *log*."""
    until = time.monotonic() + PATIENCE_S
    while not condition():
        said = "" if log is None else log.read_text(encoding="utf-8")
        assert process is None or process.poll() is None, said
        assert time.monotonic() < until, said
        time.sleep(0.1)


def steps_recorded(lab: Lab) -> int:
    """Return how many steps all runs of *lab* have recorded."""
    return sum(path.read_text(encoding="utf-8").count('"record":"step"') for path in lab.results.rglob("records.jsonl"))


def probes_of(lab: Lab) -> list[str]:
    """Return the running processes of sutprobe that were started by runs of *lab*."""
    return [process for process in processes_of(lab.remote) if re.match(r"process \d+: \S*/sutprobe latency", process)]


def run(command: list[str], environment: dict[str, str]) -> Ended:
    """Run *command* to its end in the checkout. One that hangs has failed, with what it wrote."""
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
    """Write an inventory of SUTs that are all this machine, each with a reservation of its own."""
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
    """Run ``calibration run`` on *inventory*: its exit codes are those of the command."""
    return run(calibrate_command(inventory, *options), lab.environment(**extra))


def calibrate_command(inventory: Path, *options: str) -> list[str]:
    """Return the command ``calibration run`` on *inventory*."""
    return [sys.executable, "-m", "calibration.cli", "run", "-i", str(inventory), *options]


SSH = """#!/bin/sh
# Stands for ssh to a SUT, which is this machine.
[ "$1" = -V ] || [ "$#" -lt 3 ] && exit 0
for command; do :; done
starts_probe() { case "$command" in *sutprobe*latency*) true;; *) false;; esac }
BODY
ulimit -S -d unlimited  # a SUT has not the bounds of its controller
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
"""A SUT on which the second step never answers, the first time that it is tried."""


def over_ssh(lab: Lab, name: str, body: str) -> dict[str, Any]:
    """Return the variables of the SUT *name*, reached by a stand-in for ssh; in *body* LOG is a file of its own."""
    ssh, log = lab.directory / f"{name}-ssh", lab.directory / f"{name}-log"
    log.touch()
    ssh.write_text(SSH.replace("BODY", body.replace("LOG", str(log))), encoding="utf-8")
    ssh.chmod(0o755)
    return {"ansible_connection": "ssh", "ansible_ssh_executable": str(ssh)}


def base_of(lab: Lab, name: str) -> dict[str, Any]:
    """Return the variables of a SUT with a remote directory of its own."""
    base = lab.remote / name
    base.mkdir()
    return {"calibration_remote_base": str(base), "reserve_path": str(base / "reservation")}


def run_of(lab: Lab, name: str) -> Path:
    """Return the directory of the only run of the SUT *name*."""
    (found,) = [path for path in lab.runs() if path.parent.name == name]
    return found


def processes_of(directory: Path) -> list[str]:
    """Return the processes that name *directory* in their command line."""
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
"""What ansible-runner and AWX do: a callback of their own shows the run, and ansible.cfg's directories are left out."""

MODULE_UTILS = ROOT / "ansible" / "plugins" / "module_utils"
ansible.module_utils.__path__.append(str(MODULE_UTILS))  # where Ansible itself is told to look by ansible.cfg


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
    """Run an Ansible module of ours in this process and return its answer."""
    with patch_module_args(arguments), pytest.raises(SystemExit):
        module.main()
    return json.loads(capsys.readouterr().out)


def pack(path: Path, name: str, content: bytes) -> Path:
    """Make an archive at *path* with one program in it, as Intel's has MLC; return its path."""
    with tarfile.open(path, "w:gz") as packed:
        member = tarfile.TarInfo(name)
        member.size, member.mode = len(content), 0o755
        packed.addfile(member, io.BytesIO(content))
    return path


def runs(process: int) -> bool:
    """Return whether *process* has not ended."""
    try:
        status = Path(f"/proc/{process}/stat").read_text(encoding="ascii")
    except OSError:
        return False
    return status.rsplit(")", 1)[1].split()[0] != "Z"


class StandIn:
    """For a plugin what Ansible gives it: a SUT whose reservation is answered with the exit code *held*."""

    def __init__(self, held: int) -> None:
        self.held = held
        self.task_vars = {"inventory_hostname": "sut1"}
        self.shown: list[str] = []
        self._display = SimpleNamespace(display=lambda text, color: self.shown.append(text))  # noqa: ARG005 - as Ansible calls it
        self._connection = SimpleNamespace(close=lambda: None)

    def _low_level_execute_command(self, _command: str, in_data: bytes | None = None) -> dict[str, Any]:  # noqa: ARG002 - Ansible's
        return {"rc": self.held, "stdout": "", "stderr": ""}
