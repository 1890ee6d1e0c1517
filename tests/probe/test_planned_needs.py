# SPDX-License-Identifier: Apache-2.0
"""What a plan says that a step takes of the SUT is what its command asks for.

The commands run where nodes have next to no memory, or a user may start no task, and are refused with the sum.
"""

import os
import platform
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from calibration.measurements.base import Step
from calibration.measurements.chase import KEEP_AWAKE_BYTES
from calibration.measurements.sut import CHAIN_BESIDE
from calibration.profiles import load_profile
from calibration.run.plan import make_plan
from tests.probe.conftest import NOBODYS, Probe
from tests.tools import require
from tests.unit.machines import GIB, MIB, machine

SUTS: Final = {
    "two nodes": {"nodes": 2, "cores": 1},
    "two cores": {"nodes": 1, "cores": 2, "memory_only_bytes": (GIB,)},
}
"""Machines of two CPUs, each with memory of two nodes."""

AVAILABLE: Final = 65 << 10
"""What a node has in KiB: the memory that sutprobe leaves free, and a keep-awake thread's."""

THP_BYTES: Final = Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")


@pytest.fixture(params=SUTS)
def steps(request: pytest.FixtureRequest, cpus: list[int]) -> list[Step]:
    """The different steps of all kinds on a machine of the CPUs 0 and 1, of the instructions that all have."""
    if not {0, 1} <= set(cpus):
        pytest.skip("the CPUs 0 and 1 may not be used")
    context = machine(
        packages=1, node_bytes=64 * GIB, llc_bytes=8 * MIB, architecture=platform.machine(), **SUTS[request.param]
    )
    context = context.model_copy(update={"processor": context.processor.model_copy(update={"flags": ("sse2",)})})
    profiles = map(load_profile, ("full", "counters", "burn_in"))
    plans = [make_plan(context, profile, prefetchers_ok=True) for profile in profiles]
    return list({step.argv: step for plan in plans for step in plan.steps}.values())


@pytest.fixture
def without_memory(native: Path, tmp_path: Path) -> Probe:
    """The program where the nodes 0 and 1 have no memory but a keep-awake thread's, and huge pages 2 MiB."""
    if not THP_BYTES.exists():
        pytest.skip("this kernel has no transparent huge pages")
    (tmp_path / "thp").write_text(f"{2 * MIB}\n", encoding="ascii")
    nodes = "/sys/devices/system/node"
    laid = f"mount --bind {tmp_path}/thp {THP_BYTES} && mount -t tmpfs tmpfs {nodes}"
    for node in (0, 1):
        text = f"Node {node} MemFree: {AVAILABLE} kB"
        laid += f" && mkdir {nodes}/node{node} && echo '{text}' > {nodes}/node{node}/meminfo"
    command = [require("util-linux", "unshare"), "--mount", "--map-root-user", "/bin/sh", "-c"]
    if subprocess.run([*command, laid], capture_output=True, check=False, timeout=20).returncode != 0:
        pytest.skip("no permission: unshare and mount")
    return Probe(*command, f'{laid} && exec "$0" "$@"', str(native))


def keep_awake_of(step: Step) -> Iterator[int]:
    """Yield the node of each keep-awake thread of *step*."""
    for option, text in zip(step.argv, step.argv[1:], strict=False):
        if option in ("--keep-awake", "--load-group"):
            yield int(text.partition("@")[2])


def test_memory_is_what_the_command_asks_for(steps: list[Step], without_memory: Probe) -> None:
    asking = [step for step in steps if step.memory_bytes and step.kind != "wakeup"]
    assert len(asking) > 20
    for step in asking:
        asked: dict[int, int] = {}
        for mib, node in re.findall(r"needs (\d+) MiB on node (\d+)", str(without_memory(*step.argv[1:]).document)):
            asked[int(node)] = max(int(mib), asked.get(int(node), 0))
        assert asked, step.id
        for node, mib in asked.items():
            buffers = step.memory_bytes[node] - KEEP_AWAKE_BYTES * [*keep_awake_of(step)].count(node)
            beside = CHAIN_BESIDE if step.argv[1] in ("latency", "loaded") else 0
            if step.kind == "memory_tiers" and node > min(asked):
                continue  # what one node refuses of a buffer on several is no longer asked of the others
            assert buffers / (1 + beside) <= mib * MIB <= buffers, step.id
            assert step.argv[1] == "loaded" or mib == -(-int(buffers / (1 + beside)) // MIB), step.id


def test_tasks_are_what_the_command_asks_for(steps: list[Step], public: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("no permission: a process of another user")
    command = [require("util-linux", "prlimit"), "--nproc=2:2", str(public)]  # its own two
    counted = [step for step in steps if step.argv[1] not in ("latency", "firmware")]  # whose walkers are not asked for
    assert len(counted) > 10
    for step in counted:
        done = subprocess.run(
            [*command, *step.argv[1:]], capture_output=True, text=True, check=False, timeout=100, cwd="/",
            user=NOBODYS, group=NOBODYS, extra_groups=(),
        )  # fmt: skip
        found = re.search(r"needs (\d+) threads and processes", done.stdout)
        assert found, (step.id, done.stderr)
        assert int(found[1]) == step.tasks - len([*keep_awake_of(step)]), step.id
