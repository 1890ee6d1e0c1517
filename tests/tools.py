# SPDX-License-Identifier: Apache-2.0
"""Programs needed by some tests, and which skips are allowed if everything is required."""

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import pytest
from packaging.requirements import Requirement

REQUIRE_ALL = "CALIBRATION_REQUIRE_ALL"
"""Set to 1, a skip fails unless its reason is one of ``UNAVOIDABLE``."""

UNAVOIDABLE = (
    r"needs two CPUs",
    r"this machine ",  # its processor or kernel has, or has not, what the test is about
    r"no permission: ",  # a container's root may be refused what root may do
    r"(aarch64|ppc64le|riscv64) is native here",  # the test is about emulation
    r"asked for by its own environment: ",
    r"the published pages are not ",  # they are not ours to keep here
)
"""Prefixes of reasons for skips that no package could avoid."""

SWEEPS = "CALIBRATION_PROBE_ALL"
"""Set to 1, tests of sutprobe cover whole tables instead of a part."""

sweep = pytest.mark.skipif(os.environ.get(SWEEPS) != "1", reason="asked for by its own environment: probe-all")

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


def requirements(path: Path) -> set[str]:
    """Return the names of the packages that the file *path* itself requires."""
    lines = (line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    return {Requirement(line).name for line in lines if line and not line.startswith(("-c", "-r"))}


def require(package: str, *programs: str) -> str:
    """Return the path of the first installed one of *programs*; otherwise skip, naming the Debian *package*."""
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
    for program in programs:
        if found := shutil.which(program, path=path):
            return found
    pytest.skip(f"{' or '.join(programs)} not found: install the Debian package {package}")


def emulator(architecture: str) -> str:
    """Return the path of the program that runs binaries of *architecture*."""
    return require("qemu-user-static", f"qemu-{architecture}-static", f"qemu-{architecture}")


def require_ssh() -> None:
    """Skip the test unless an OpenSSH server can be started and logged in to."""
    for program in ("ssh", "ssh-keygen"):
        require("openssh-client", program)
    require("openssh-server", "sshd")


def require_root() -> None:
    """Skip the test for an ordinary user."""
    if os.geteuid() != 0:
        pytest.skip("needs root")


def require_two(cpus: Sequence[int]) -> None:
    """Skip the test where there is only one CPU."""
    if len(cpus) < 2:
        pytest.skip("needs two CPUs")


def fail_if_skipped(report: Report) -> Report:
    """Return *report*, changed to failed if everything is required and the skip is avoidable."""
    if os.environ.get(REQUIRE_ALL) == "1" and report.skipped and not hasattr(report, "wasxfail"):
        reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        reason = reason.removeprefix("Skipped: ")
        if not re.match("|".join(UNAVOIDABLE), reason):
            report.outcome = "failed"
            report.longrepr = f"{report.nodeid} was skipped, and {REQUIRE_ALL}=1 allows it no skip: {reason}"
    return report
