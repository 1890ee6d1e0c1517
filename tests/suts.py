# SPDX-License-Identifier: Apache-2.0
"""A simulated SUT: a copy of a machine's files, and the runner on this machine, with real processes.

The runner's own program is used, except that the settings it knows are those of the copy.
"""

import contextlib
import functools
import hashlib
import importlib.util
import json
import marshal
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from calibration.runner import client, settings
from calibration.runner.bundle import packed, sources
from calibration.runner.directory import Directory
from calibration.runner.files import Refused

PATIENCE_S = 30
"""Limit for anything that must happen at all."""

PAGES = "/sys/devices/system/node/node%d/hugepages/hugepages-2048kB/nr_hugepages"
POLICY = "/sys/devices/system/cpu/cpufreq/policy%d/"
NO_TURBO = "/sys/devices/system/cpu/intel_pstate/no_turbo"
BOOST = "/sys/devices/system/cpu/cpufreq/boost"

CPUINFO = "processor\t: %d\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: %d\n\n"
ONLINE = "/sys/devices/system/cpu/cpu1/online"
MSR = "/dev/cpu/%d/msr"
REGISTERS = (0x1A4, 0x6D, 0x1320, 0xC0000108)

SYSTEMCTL = """#!/bin/sh
state="${0%/usr/bin/systemctl}/irqbalance"
case "$2" in
  is-active) grep -qx active "$state" ;;
  stop) echo inactive > "$state" ;;
  start) echo active > "$state" ;;
esac
"""


def wait_until(done: Callable[[], Any]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < until
        time.sleep(0.02)


def changed(program: dict[str, bytes], name: str, before: str, after: str) -> dict[str, bytes]:
    """Return the modules of a *program* with a text of the module *name* replaced."""
    path = f"calibration/runner/{name}.py"
    source = program[path].decode()
    assert before in source
    return {**program, path: source.replace(before, after).encode()}


@functools.cache
def compiled(name: str, source: bytes) -> bytes:
    """Return a module as this Python caches one; it would compile the runner whenever one starts."""
    code = marshal.dumps(compile(source, name, "exec", dont_inherit=True))
    return importlib.util.MAGIC_NUMBER + b"\1\0\0\0" + bytes(8) + code  # the source is not compared


@functools.lru_cache(maxsize=16)
def compiled_program(files: frozenset[tuple[str, bytes]]) -> bytes:
    """Return a runner of *files*, its modules also compiled; another Python takes the sources."""
    made = dict(files)
    made |= {f"{name}c": compiled(name, source) for name, source in files if name.endswith(".py")}
    return packed(made, stored=frozenset(made))


@dataclass
class Sut:
    """A machine's files below one directory, and the parent of the runs' directories; the processes are real."""

    directory: Path
    lock: str = field(default_factory=lambda: f"test-{uuid.uuid4()}")
    python: str = sys.executable

    @property
    def base(self) -> Path:
        return self.directory / "tmp"

    @property
    def machine(self) -> Any:
        return settings.Machine(str(self.directory / "root"))

    def file(self, where: str) -> Path:
        return Path(self.machine.path(where))

    def put(self, where: str, text: str) -> None:
        self.file(where).parent.mkdir(parents=True, exist_ok=True)
        self.file(where).write_text(text)

    def read(self, where: str) -> str:
        return self.file(where).read_text().strip()

    def settings(self) -> dict[str, str]:
        """Return every value that a run may change."""
        machine = self.directory / "root"
        found = {str(path): path.read_text().strip() for path in (machine / "sys").rglob("*") if path.is_file()}
        for path in (machine / "dev").rglob("msr"):
            found |= {f"{path}:{register:#x}": value for register in REGISTERS if (value := peek(path, register))}
        return {**found, "irqbalance": (machine / "irqbalance").read_text()}

    # The runner

    @functools.cached_property
    def modules(self) -> dict[str, bytes]:
        """The runner's modules, for this machine."""
        made = changed(sources(), "settings", 'root="/"', f"root={str(self.directory / 'root')!r}")
        return changed(made, "capture", "LOAD_INTERVAL_S = 1.0", "LOAD_INTERVAL_S = 0.1")

    def program(self, carried: Mapping[str, bytes] | None = None) -> bytes:
        """Return the runner as one file, with the files that it has *carried* along."""
        return compiled_program(frozenset({**self.modules, **(carried or {})}.items()))

    def popen(self, *arguments: str, carried: Mapping[str, bytes] | None = None, **options: Any) -> Any:
        """Start a command of the runner, with the files that it has *carried* along."""
        content = self.program(carried)
        program = self.directory / f"runner-{digest(content)}"
        if not program.exists():
            program.write_bytes(content)
        return subprocess.Popen(
            [self.python, "-I", "-S", "-B", str(program), *arguments], stdout=subprocess.PIPE, **options
        )

    def ask(self, *arguments: str, content: bytes = b"", **options: Any) -> tuple[dict[str, Any], bytes]:
        """Run a command of the runner on *content*; return its answer, and the rest. Raises Refused if it refuses."""
        with self.popen(*arguments, stdin=subprocess.PIPE, **options) as asking:
            first, _, rest = asking.communicate(content, timeout=120)[0].partition(b"\n")
        answer: dict[str, Any] = json.loads(first)
        if "refused" in answer:
            raise Refused(answer["refused"], answer.get("run_id"), answer.get("faults", ()))
        return answer, rest

    def job(self, run_id: str = "run1", **options: Any) -> dict[str, Any]:
        usual = {
            "run_id": run_id, "sut": "sut1", "host": "t1-sut1", "controller": "somebody@there",
            "started_at": "2026-11-21T03:27:12Z", "lock": self.lock, "settings": {}, "prefetchers_ok": True,
            "keep_s": 3600.0, "wait_s": 3600.0,
        }  # fmt: skip
        return usual | options

    def start(self, run_id: str = "run1", *, popen: Mapping[str, Any] | None = None, **options: Any) -> "Run":
        """Start a run that changes the *settings*."""
        answer, _ = self.ask("start", str(self.base), json.dumps(self.job(run_id, **options)), **(popen or {}))
        return Run(self, answer)

    def left(self) -> list[str]:
        """Return the names of what is left in the directory of temporary files, and the runners that live."""
        return [path.name for path in self.base.iterdir()] + [str(process) for process in runners(self)]


@dataclass
class Run:
    """A run that was started on a SUT, and the *answer* to that."""

    sut: Sut
    answer: dict[str, Any]

    @property
    def path(self) -> Path:
        return Path(self.answer["directory"])

    def begin(self, *steps: Mapping[str, Any], grace_s: float = 0.0, **programs: bytes) -> "Run":
        """Hand over *steps* with their *programs*."""
        programs = {"sutprobe": b"#!/bin/sh\n", **programs}
        plan = {"steps": steps, "grace_s": grace_s, "programs": {name: digest(programs[name]) for name in programs}}
        self.sut.ask("begin", str(self.path), content=packed({"plan.json": json.dumps(plan).encode(), **programs}))
        return self

    def watch(self, offset: int = 0, at_least_s: float = 0.0, at_most_s: float = 0.0) -> tuple[str, bytes]:
        """Return the run's state, and its records behind *offset*."""
        answer, records = self.sut.ask("watch", str(self.path), str(offset), str(at_least_s), str(at_most_s))
        return answer["state"], records

    def follow(self) -> tuple[str, list[dict[str, Any]]]:
        """Wait for the end of the run; return its state and records."""
        state, records = "running", b""
        while state == "running":
            state, more = self.watch(len(records), at_most_s=PATIENCE_S)
            records += more
        return state, [json.loads(line) for line in records.splitlines()]

    def await_step(self, name: str) -> None:
        """Wait until a step has made the file *name* in the SUT's directory of temporary files."""
        wait_until((self.sut.base / name).exists)

    def cancel(self) -> None:
        self.sut.ask("cancel", str(self.path))

    def remove(self) -> dict[str, Any]:
        return self.sut.ask("remove", str(self.path))[0]

    def processes(self) -> list[int]:
        """Return the keeper, the worker and what that started."""
        with Directory(str(self.path)) as found:
            processes = client.processes_of(found)
        for process in processes:
            processes += children(process)  # grows meanwhile
        return processes

    def kill(self, *processes: int) -> None:
        for number in (signal.SIGSTOP, signal.SIGKILL):  # none of them acts on the end of another
            for process in processes:
                with contextlib.suppress(ProcessLookupError):  # a child that ended by itself
                    os.kill(process, number)
        for process in processes:
            wait_until(lambda process=process: gone(process))  # type: ignore[misc]


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def step(name: str, *argv: str, deadline_s: float = 3600.0, **options: Any) -> dict[str, Any]:
    """Return a step in the runner's form."""
    return {"id": name, "argv": [*(argv or ("sutprobe", name))], "deadline_s": deadline_s, **options}


def peek(path: Path, register: int) -> str:
    """Return what the register file *path* has at *register*, nothing if it ends before."""
    with path.open("rb") as stream:
        return os.pread(stream.fileno(), 8, register)[::-1].hex().lstrip("0")


def poke(path: Path, values: dict[int, int], size: int = 8) -> None:
    """Make *path* a file of registers, or of CPUID leaves with *size* bytes, with holes in between."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("r+b" if path.exists() else "w+b") as stream:
        for register, value in values.items():
            os.pwrite(stream.fileno(), value.to_bytes(size, "little"), register)


def stat_of(process: int | str) -> list[str]:
    """Return the fields of a process's stat from its state on; empty if it has ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def children(process: int) -> list[int]:
    """Return the children of a process."""
    found = (path.name for path in Path("/proc").glob("[0-9]*"))
    return [int(name) for name in found if stat_of(name)[1:2] == [str(process)]]


def runners(sut: Sut) -> list[int]:
    """Return the processes that live with a program or a directory of the SUT's in their command."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            if str(sut.base) in path.read_bytes().decode(errors="replace"):
                found.append(int(path.parent.name))
    return found


def gone(process: int) -> bool:
    """Return whether a process has ended; reap it if it is a child of this process."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(process, os.WNOHANG)
    return stat_of(process)[:1] in ([], ["Z"])


EVERYTHING = {
    "hugepages_2m": {"0": 64, "1": 32},
    "governor": "performance",
    "turbo": "off",
    "prefetchers": "off",
    "irqbalance": "stopped",
}


@contextlib.contextmanager
def simulated_sut(directory: Path) -> Iterator[Sut]:
    """Make a SUT with two nodes and CPUs in *directory*; end its runners after the block."""
    made = Sut(directory)
    made.base.mkdir()
    for node in (0, 1):
        made.put(PAGES % node, "0\n")
    for policy in (0, 1):
        made.put(POLICY % policy + "scaling_governor", "powersave\n")
        made.put(POLICY % policy + "scaling_available_governors", "performance powersave\n")
        made.put(POLICY % policy + "affected_cpus", f"{policy}\n")
        made.put(POLICY % policy + "energy_performance_preference", "balance_performance\n")
        poke(made.file(MSR % policy), {0x1A4: 0x40})
    made.put(NO_TURBO, "0\n")
    made.put("/irqbalance", "active\n")
    made.put("/usr/bin/systemctl", SYSTEMCTL)
    made.file("/usr/bin/systemctl").chmod(0o755)
    made.put("/proc/cpuinfo", CPUINFO % (0, 0x55) + CPUINFO % (1, 0x55))
    made.put("/proc/sys/kernel/random/boot_id", Path("/proc/sys/kernel/random/boot_id").read_text())
    yield made
    for process in runners(made):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
