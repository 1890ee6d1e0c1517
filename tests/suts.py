# SPDX-License-Identifier: Apache-2.0
"""A simulated SUT: a copy of a machine's files, with real reservations, guardians and processes."""

import contextlib
import importlib
import importlib.util
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import ansible.module_utils

from calibration.reservation import Reservation, guarded

ANSIBLE = Path(__file__).resolve().parents[1] / "ansible" / "plugins"
ansible.module_utils.__path__.append(str(ANSIBLE / "module_utils"))  # where ansible.cfg has Ansible look

sut_context, sut_files, sut_guardian, sut_hold, sut_prefetchers, sut_reservations, sut_settings, sut_tg = (
    importlib.import_module(f"ansible.module_utils.sut_{name}")
    for name in ("context", "files", "guardian", "hold", "prefetchers", "reservations", "settings", "tg")
)


def load_module(name: str) -> ModuleType:
    """Import an Ansible module from its file."""
    spec = importlib.util.spec_from_file_location(f"tested_{name}", ANSIBLE / "modules" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PATIENCE_S = 30
"""Limit for anything that must happen at all."""

LONG_S = 3600.0

Holder = dict[str, Any]

PAGES = "/sys/devices/system/node/node%d/hugepages/hugepages-2048kB/nr_hugepages"
POLICY = "/sys/devices/system/cpu/cpufreq/policy%d/"
NO_TURBO = "/sys/devices/system/cpu/intel_pstate/no_turbo"

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


def wait_until(done: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < until
        time.sleep(0.02)


@dataclass
class Sut:
    """A machine's files below one directory, and where runs reserve it; the processes are real."""

    directory: Path

    @property
    def path(self) -> str:
        return str(self.directory / "tmp" / "calibration-reservation")

    @property
    def base(self) -> Path:
        return self.directory / "tmp"

    @property
    def machine(self) -> Any:
        return sut_settings.Machine(str(self.directory / "root"))

    def file(self, where: str) -> Path:
        return Path(self.machine.path(where))

    def put(self, where: str, text: str) -> None:
        self.file(where).parent.mkdir(parents=True, exist_ok=True)
        self.file(where).write_text(text)

    def read(self, where: str) -> str:
        return self.file(where).read_text().strip()

    def hold(self, run_id: str = "run1", lease_s: float = LONG_S, **options: Any) -> tuple[dict[str, Any], Any]:
        wanted = {"run_id": run_id, "sut": "sut1", "controller": "somebody@there", "started_at": "2026-11-21T03:27:12Z"}
        held: tuple[dict[str, Any], Any] = sut_hold.hold(
            self.path, self.machine, str(self.base), wanted, lease_s=lease_s, **options
        )
        return held

    def tune(self, holder: Holder, settings: dict[str, Any]) -> list[dict[str, Any]]:
        token = holder["token"]
        changes: list[dict[str, Any]]
        changes, _ = sut_hold.tune(self.path, self.machine, token, settings, lease_s=LONG_S)
        return changes

    def release(self, run_id: str = "run1", **options: Any) -> dict[str, Any]:
        answer: dict[str, Any] = sut_hold.release(
            self.path, self.machine, str(self.base), run_id, "sut1", **{"changes": [], **options}
        )
        return answer

    def reservation(self, holder: Holder) -> Reservation:
        return Reservation(path=self.path, token=holder["token"], boot_id=holder["boot_id"])

    def left(self) -> list[str]:
        """Return what is left in the directory of temporary files, and guardians that live."""
        return [path.name for path in self.base.iterdir()] + guardians(self.base)

    def settings(self) -> dict[str, str]:
        """Return every value that a run may change."""
        machine = self.directory / "root"
        found = {str(path): path.read_text().strip() for path in (machine / "sys").rglob("*") if path.is_file()}
        for path in (machine / "dev").rglob("msr"):
            found |= {f"{path}:{register:#x}": value for register in REGISTERS if (value := peek(path, register))}
        return {**found, "irqbalance": (machine / "irqbalance").read_text()}


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


def guardians(base: Path) -> list[str]:
    """Return the guardians that live with a program below *base*."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue  # it has ended
        if any(word.startswith(str(base)) and word.endswith("/guardian.py") for word in words):
            found.append(path.parent.name)
    return found


def gone(process: int) -> bool:
    """Return whether a process has ended; reap it if it is a child of this process."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(process, os.WNOHANG)
    return not Path(f"/proc/{process}").exists()


EVERYTHING = {
    "hugepages_2m": {"0": 64, "1": 32},
    "governor": "performance",
    "turbo": "off",
    "prefetchers": "off",
    "irqbalance": "stopped",
}


def await_guardian(holder: Holder) -> None:
    """Wait until the guardian has ended."""
    wait_until(lambda: gone(holder["guardian"]))


def end_guardian(holder: Holder, number: int = signal.SIGKILL) -> None:
    """Send the guardian a signal, and wait until it has ended."""
    os.kill(holder["guardian"], number)
    await_guardian(holder)


def run_step(sut: Sut, holder: Holder, lease_s: float = LONG_S) -> int:
    return subprocess.run(
        ["/bin/sh", "-c", guarded(["true"], sut.reservation(holder), lease_s=lease_s)], check=False, timeout=PATIENCE_S
    ).returncode


@contextlib.contextmanager
def start_probe(holder: Holder) -> Iterator[subprocess.Popen[bytes]]:
    program = Path(holder["directory"], "sutprobe")
    shutil.copy("/bin/sleep", program)
    with subprocess.Popen([str(program), "600"]) as kernel:
        try:
            yield kernel
        finally:
            kernel.kill()


@contextlib.contextmanager
def simulated_sut(directory: Path) -> Iterator[Sut]:
    """Make a SUT with two nodes and CPUs in *directory*; end its guardians after the block."""
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
    # Not a copy: the lease is in seconds of this very file.
    made.file("/proc/uptime").symlink_to("/proc/uptime")
    yield made
    for process in guardians(made.base):
        os.kill(int(process), signal.SIGKILL)
