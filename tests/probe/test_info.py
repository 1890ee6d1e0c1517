# SPDX-License-Identifier: Apache-2.0
"""What ``sutprobe info`` finds is what the machine says by other means, and what is missing has its price named."""

import os
import platform
import resource
from pathlib import Path

import pytest

from calibration.build import BuiltProbe
from calibration.sutprobe.document import read_document, read_result
from tests.probe.conftest import Finished, Probe
from tests.probe_results import InfoResult, Privilege
from tests.tools import emulator, require, require_root

PRIVILEGES = {
    "real_time_priority", "real_time_unthrottled", "locked_memory", "own_cycle_counter", "machine_event_counters",
    "smi_counts", "page_nodes", "memory_policy", "hugetlb_pages", "transparent_huge_pages", "interrupt_counts",
    "all_cpus", "all_cpu_time", "all_memory",
}  # fmt: skip
X86_ONLY = {"smi_counts"}
CPUINFO_NAMES = {"lse": "atomics", "neon": "asimd"}
"""Instruction sets that ``/proc/cpuinfo`` calls otherwise."""


def info_of(done: Finished) -> InfoResult:
    assert done.code == 0, done.stderr
    return read_result(read_document(done.document), InfoResult)


def privileges_of(info: InfoResult) -> dict[str, Privilege]:
    return {privilege.name: privilege for privilege in info.privileges}


def first_line(path: str) -> str:
    return Path(path).read_text(encoding="utf-8").splitlines()[0]


def test_finds_what_the_machine_reports(probe: Probe, cpus: list[int]) -> None:
    done = probe("info")
    info = info_of(done)
    assert list(info.allowed_cpus) == cpus
    assert info.uid == os.geteuid()
    assert info.page_kinds.base_bytes == resource.getpagesize()
    assert info.clocksource in info.clocksources
    clock = done.document["clock"]
    assert clock["hz"] > 0
    assert (clock["reason"] is None) == (clock["source"] != "monotonic_raw")


def test_the_instruction_sets_are_those_the_kernel_names(probe: Probe) -> None:
    info = info_of(probe("info"))
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if line.startswith(("flags", "Features")))
    flags = set(line.split(":", 1)[1].split())
    assert info.instruction_sets
    assert {name: CPUINFO_NAMES.get(name, name) in flags for name in info.instruction_sets} == info.instruction_sets
    assert (info.sve_vector_bytes is not None) == info.instruction_sets.get("sve", False)


def test_the_widths_are_those_the_instruction_sets_allow(probe: Probe) -> None:
    info = info_of(probe("info"))
    wanted = {"avx512": "avx512f"}
    assert info.widths
    assert all(info.instruction_sets[wanted.get(width, width)] for width in info.widths)


def test_the_reserved_pages_are_those_of_each_node(probe: Probe) -> None:
    info = info_of(probe("info"))
    root = Path("/sys/kernel/mm/hugepages")
    sizes = sorted(int(path.name.split("-")[1].removesuffix("kB")) * 1024 for path in root.glob("hugepages-*"))
    assert [item.bytes for item in info.page_kinds.hugetlb] == sizes
    for size in info.page_kinds.hugetlb:
        kib = size.bytes // 1024
        assert size.nr == int(first_line(f"{root}/hugepages-{kib}kB/nr_hugepages"))
        assert size.free is not None
        for node in size.nodes:
            path = f"/sys/devices/system/node/node{node.node}/hugepages/hugepages-{kib}kB/nr_hugepages"
            assert node.nr == int(first_line(path))


def test_missing_privileges_have_a_cost(probe: Probe) -> None:
    found = privileges_of(info_of(probe("info")))
    wanted = PRIVILEGES if platform.machine() == "x86_64" else PRIVILEGES - X86_ONLY
    assert found.keys() == wanted
    for item in found.values():
        assert item.found
        assert (item.cost is None) == item.present


def test_plain_user_sees_missing_privileges(public: Path) -> None:
    """Without rights, with little lockable memory and on one CPU the same program finds less, and says so."""
    require_root()
    require("util-linux", "setpriv")
    cpus = sorted(os.sched_getaffinity(0))
    command = [
        *("prlimit", "--memlock=4096", "--rtprio=0", "taskset", "-c", str(cpus[0])),
        *("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"),
    ]
    info = info_of(Probe(*command, str(public))("info"))
    found = privileges_of(info)
    assert info.uid == 65534
    assert info.allowed_cpus == (cpus[0],)
    missing = {name for name, item in found.items() if not item.present}
    assert {"real_time_priority", "locked_memory"} <= missing
    assert ("all_cpus" in missing) == (len(cpus) > 1)
    assert "CAP_SYS_NICE" in found["real_time_priority"].found
    assert "4096" in found["locked_memory"].found


def test_finds_only_instruction_sets_of_an_emulated_processor(built_x86_64: BuiltProbe) -> None:
    old, new = (
        info_of(Probe(emulator("x86_64"), "-cpu", model, str(built_x86_64.path))("info")).instruction_sets
        for model in ("Nehalem", "Haswell")
    )
    assert old["sse4_2"]
    assert not old["avx2"]
    assert not old["fma"]
    assert new["avx2"]
    assert new["fma"]


@pytest.mark.parametrize(("vector", "found"), [("off", None), ("on,sve-default-vector-length=32", 32)])
def test_the_vector_length_of_an_emulated_processor(built_aarch64: BuiltProbe, vector: str, found: int | None) -> None:
    info = info_of(Probe(emulator("aarch64"), "-cpu", f"max,sve={vector}", str(built_aarch64.path))("info"))
    assert info.instruction_sets["neon"]
    assert info.instruction_sets["lse"]
    assert info.instruction_sets["sve"] == (found is not None)
    assert info.sve_vector_bytes == found
