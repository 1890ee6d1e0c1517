# SPDX-License-Identifier: Apache-2.0
"""Run playbooks, and load plugins, which Ansible finds by path."""

import importlib
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
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import pytest
import yaml
from ansible.plugins.loader import init_plugin_loader

from calibration.build import build
from calibration.context.cmdline import parse_cmdline
from calibration.run.lifecycle import begin
from tests.servers import keep_probe

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
TWO = HERE / "profiles" / "two.yml"
TINY = HERE / "profiles" / "tiny.yml"
SLOW = HERE / "profiles" / "slow.yml"
BROKEN = HERE / "profiles" / "broken.yml"

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

ANSIBLE = (sys.executable, "-m", "ansible")

PATIENCE_S = 600
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
    def lock(self) -> str:
        """calibration_lock: this machine stands for many SUTs."""
        return f"calibration-{sha256(str(self.directory).encode()).hexdigest()[:12]}"

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
            *("-e", f"calibration_lock={self.lock}"),
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


def end_runs(lab: Lab) -> None:
    """Kill what still runs on the SUTs of *lab*: a run does not end with its controller."""
    for process in processes_of(lab.remote):
        with suppress(ProcessLookupError):
            os.kill(int(process.split()[1].rstrip(":")), signal.SIGKILL)


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
    """Write an inventory of SUTs that are all this machine, each with its own lock."""
    common = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "calibration_remote_base": str(lab.remote),
        "calibration_results_dir": str(lab.results),
        "calibration_profile": str(profile),
        "calibration_lock": f"{lab.lock}-{{{{ inventory_hostname }}}}",
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
ulimit -S -d unlimited  # the controller's limits do not apply to a SUT
asked() { case "$command" in *" $1 "*) true;; *) false;; esac }  # whether the runner is asked for this
BODY
exec /bin/sh -c "$command"
"""


def held(question: str, number: int = 1) -> str:
    """Return a body of ``SSH`` that loses the answer to a *question*, the first or another one, when let go."""
    return f"""
if asked {question} && echo asked >> LOG && [ "$(grep -c asked LOG)" -eq {number} ]; then
    /bin/sh -c "$command" > LOG.answer
    touch LOG.held
    while [ ! -e LOG.let-go ]; do sleep 0.2; done
    exit 255
fi
"""


def let_go(lab: Lab, name: str) -> None:
    """Have the SUT *name* lose the answer that it holds, or go on with its step."""
    (lab.directory / f"{name}-log.let-go").touch()


STUCK = """#!/bin/sh
echo started >> LOG
[ "$(grep -c started LOG)" -ne 2 ] || while [ ! -e LOG.let-go ]; do sleep 0.2; done
exec PROGRAM "$@"
"""
"""A sutprobe whose second step hangs the first time, until it is let go."""


def stuck(lab: Lab, name: str) -> dict[str, Any]:
    """Return the variables of the SUT *name*, whose second step hangs the first time, until it is let go."""
    built = build(platform.machine())
    program = STUCK.replace("LOG", str(lab.directory / f"{name}-log")).replace("PROGRAM", str(built.path))
    folder = lab.directory / f"{name}-prebuilt"
    keep_probe(folder, built.target, program.encode(), built.source_sha256)
    return {"sutprobe_prebuilt": str(folder)}


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
    return {"calibration_remote_base": str(base)}


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


COLLECTION = "calibration.harness"

init_plugin_loader([str(ROOT / "playbooks" / "collections")])


def load_plugin(kind: str, name: str) -> ModuleType:
    """Import a plugin of the collection, or one beside the playbooks, as Ansible does."""
    path = ROOT / "playbooks" / f"{kind}_plugins" / f"{name}.py"
    if not path.is_file():
        return importlib.import_module(f"ansible_collections.{COLLECTION}.plugins.{kind}.{name}")
    spec = importlib.util.spec_from_file_location(f"tested_{kind}_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def files_of_checkout(*paths: str) -> list[str]:
    """Return the files below *paths* that git does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *paths]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    names = [name for name in done.stdout.split("\0") if name]
    return [name for name in names if (ROOT / name).is_file() or (ROOT / name).is_symlink()]


def copy_checkout(target: Path) -> Path:
    """Copy the files of the checkout that git does not ignore to *target*."""
    for name in files_of_checkout():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target / name, follow_symlinks=False)
    return target


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


def begin_run(folder: Path, profile: Path | str, capture: str, *, prefetchers_ok: bool = False) -> Path:
    """Begin a run of a captured machine in *folder*; return its directory."""
    names = {"testbed": "t1", "sut": "s1", "run_id": "r1", "profile": str(profile)}
    content = (CONTEXTS / f"{capture}.tar.gz").read_bytes()
    return begin(folder, **names, capture=content, now=NOW, prefetchers_ok=prefetchers_ok).directory


CSIT = ROOT / "tests" / "fixtures" / "csit"
"""Files of FD.io CSIT: topologies, an inventory and the playbooks for it, with made names and addresses."""


def csit_lab(folder: Path, **hosts: dict[str, Any]) -> Path:
    """Copy CSIT's inventory to *folder*, with changed variables of 192.0.2.81 as ``_81``."""
    shutil.copytree(CSIT / "lf_inventory", folder)
    for name, changes in hosts.items():
        path = folder / "host_vars" / f"192.0.2.{name.strip('_')}.yaml"
        whole = {**yaml.safe_load(path.read_text(encoding="utf-8")), **changes}
        path.write_text(yaml.safe_dump(whole, sort_keys=False), encoding="utf-8")
    return folder


def booted_with() -> dict[str, Any]:
    """Return up to three of this machine's kernel arguments, without repeated ones, in CSIT's form."""
    parameters = parse_cmdline(Path("/proc/cmdline").read_text(encoding="utf-8")).parameters
    names = [parameter.name for parameter in parameters]
    once = [parameter for parameter in parameters if names.count(parameter.name) == 1][:3]
    return {item.name: True if item.value is None else item.value for item in once}
