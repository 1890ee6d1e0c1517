# SPDX-License-Identifier: Apache-2.0
"""Every captured machine is read consistently with its files: adding a capture adds a test.

At least one machine of each architecture has its whole document beside it, a line for each subject;
``CALIBRATION_BLESS=1`` writes these again, to be reviewed before they are committed.
"""

import json
import os
import re
import tarfile
from pathlib import Path

import pytest

from calibration.commands.context import summary
from calibration.context import loader
from calibration.context.confinement import limits
from calibration.context.hmat import ratings
from calibration.context.loader import describe, load, to_contract
from calibration.context.model import Context
from calibration.context.tree import Tree
from tests.captures import captured
from tests.unit.context.conftest import FIXTURES

ARCHIVES = sorted(FIXTURES.glob("*.tar.gz"))
EXPECTED = sorted(FIXTURES.glob("*.expected.json"))
MAX_BYTES = 100_000


def test_captures_exist():
    assert len(ARCHIVES) >= 9
    assert len(EXPECTED) >= 4


@pytest.mark.parametrize("expected", EXPECTED, ids=lambda path: path.name.removesuffix(".expected.json"))
def test_capture_gives_the_expected_document(expected):
    document = to_contract(captured(expected.name.removesuffix(".expected.json")))
    if os.environ.get("CALIBRATION_BLESS") == "1":
        lines = [f"{json.dumps(subject)}: {json.dumps(facts, allow_nan=False)}" for subject, facts in document.items()]
        expected.write_text("{{\n{}\n}}\n".format(",\n".join(lines)))
    assert document == json.loads(expected.read_text())


def test_only_the_newest_capture_is_kept(monkeypatch: pytest.MonkeyPatch):
    described: list[Path] = []
    monkeypatch.setattr(loader, "newest", {})
    monkeypatch.setattr(loader, "describe", lambda tree: described.append(tree.root) or describe(tree))
    one, other = (path.read_bytes() for path in ARCHIVES[:2])
    context = load(ARCHIVES[0], one)
    assert context == describe(Tree(ARCHIVES[0]))
    assert load(Path("another name"), one) == context
    load(ARCHIVES[1], other)
    assert load(ARCHIVES[0], one) == context
    assert described == [ARCHIVES[0], ARCHIVES[1], ARCHIVES[0]]
    assert len(loader.newest) == 1


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.gz"))
def test_capture_matches_its_files(archive):
    with tarfile.open(archive) as opened:
        files = {item.name: opened.extractfile(item).read().decode("latin-1") for item in opened if item.isfile()}
    text = "\n".join(f"{name}={line}" for name, content in sorted(files.items()) for line in content.splitlines())
    context = load(archive)

    topologies = set(re.findall(r"^sys/devices/system/cpu/cpu(\d+)/topology/", text, re.MULTILINE))
    switched_off = set(re.findall(r"^sys/devices/system/cpu/cpu(\d+)/online=0$", text, re.MULTILINE))
    assert context.online_cpus == tuple(sorted(map(int, topologies - switched_off)))

    totals = re.findall(r"^sys/devices/system/node/node(\d+)/meminfo=.*MemTotal: +(\d+) kB", text, re.MULTILINE)
    (total,) = re.findall(r"^proc/meminfo=MemTotal: +(\d+) kB", text, re.MULTILINE)
    assert context.memory.total_bytes == int(total) * 1024
    sole = [("0", total)]  # a kernel without NUMA has no such files
    assert {node.id: node.memory_bytes for node in context.nodes} == {
        int(n): int(kb) * 1024 for n, kb in totals or sole
    }
    rows = re.findall(r"^sys/devices/system/node/node(\d+)/distance=(.*)$", text, re.MULTILINE)
    assert [" ".join(map(str, row)) for row in context.distances] == [row for _, row in sorted(rows)] or ["10"]

    (words,) = re.findall(r"^proc/cmdline=(.*)$", text, re.MULTILINE)
    assert [parameter.name for parameter in context.cmdline.parameters] == re.findall(r"(?:^|(?<= ))[^ =]+", words)
    flags = re.findall(r"^proc/cpuinfo=(?:flags|[Ff]eatures|isa)\s*: (.*)$", text, re.MULTILINE)
    assert list(context.processor.flags) == (flags[0].split() if flags else [])


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.gz"))
def test_capture_is_consistent(archive):
    context = load(archive)
    online = set(context.online_cpus)
    of_nodes = [cpu for node in context.nodes for cpu in node.cpus]
    assert sorted(of_nodes) == sorted(online)
    assert sorted(cpu for core in context.topology.cores for cpu in core.cpus) == sorted(online)
    assert len(context.distances) == len(context.nodes)
    for number, row in enumerate(context.distances):
        assert len(row) == len(context.nodes)
        assert row[number] == min(row) == 10
    for cache in context.caches:
        assert context.online_cpus[0] in cache.shared_cpus
        assert set(cache.shared_cpus) <= online
    assert Context.model_validate_json(context.model_dump_json()) == context
    assert str(context.nodes[0].id) in summary(context)
    assert archive.stat().st_size < MAX_BYTES


def test_two_nodes_with_smt():
    context = captured("x86_64-two-nodes-smt")
    assert [node.cpus for node in context.nodes] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert context.distances == ((10, 21), (21, 10))
    assert context.topology.threads_per_core == 2
    assert context.siblings(5) == (4, 5)
    assert context.node_of(6) == 1


def test_a_memory_only_node():
    context = captured("x86_64-memory-only-node")
    assert context.memory_only_nodes == (2,)
    assert context.cpu_only_nodes == ()
    assert context.distances == ((10, 21, 17), (21, 10, 28), (17, 28, 10))


def test_a_cpu_only_node():
    context = captured("x86_64-cpu-only-node")
    assert context.cpu_only_nodes == (1,)
    assert context.node(1).memory_bytes == 0


def test_cxl_memory_beside_rated_nodes():
    context = captured("x86_64-cxl")
    assert [(node.id, node.cpus) for node in context.nodes] == [(0, (0, 1)), (1, (2, 3)), (3, ())]
    assert context.memory_only_nodes == context.cxl.nodes == (3,)
    assert [(device.name, device.node) for device in context.cxl.devices] == [("mem0", 1)]
    found = [
        (*rating[:3], rating.access.read_latency_ns, rating.access.read_bandwidth_mb_s) for rating in ratings(context)
    ]
    assert found == [
        (0, 0, "firmware (HMAT, class 1)", 90, 20000),
        (1, 1, "firmware (HMAT, class 1)", 90, 20000),
        (None, 3, "CXL region0 (class 1)", 452, 16000),  # the 300 ns of the port, and those of link and device
    ]
    assert context.memory_side_cache_bytes(0) == 64 << 20
    assert context.interleaving.weights == {0: 1, 1: 1, 3: 1}
    assert context.virtualization.evidence == ("DMI: QEMU",)  # the processor does not say that it is virtual


def test_offline_cpus_leave_their_node():
    context = captured("x86_64-offline-cpus")
    assert context.online_cpus == (1, 2, 4, 5)
    assert context.cpus.offline == (0, 3, 6, 7)
    assert (len(context.cpus.possible), len(context.cpus.present)) == (8, 6)
    assert [node.cpus for node in context.nodes] == [(1, 2), (4, 5)]
    assert context.caches[-1].shared_cpus == (1, 2)


def test_one_cpu_without_numa_and_mitigations():
    context = captured("x86_64-one-cpu-no-numa")
    assert [(node.id, node.cpus) for node in context.nodes] == [(0, (0,))]
    assert context.topology.threads_per_core == 1
    assert context.mitigations["spectre_v2"].startswith("Vulnerable")
    assert context.virtualization.guest


def test_smt_switched_off_leaves_one_thread():
    context = captured("x86_64-smt-off")
    assert context.topology.threads_per_core == 1
    assert (context.topology.smt_control, context.topology.smt_active) == ("off", False)


def test_eight_threads_per_core():
    context = captured("ppc64le-smt8")
    assert context.topology.threads_per_core == 8
    assert context.siblings(9) == tuple(range(8, 16))


def test_capture_has_no_serial_numbers(unpack):
    root = unpack("x86_64-two-nodes-smt")
    stored = b"".join(path.read_bytes() for path in root.rglob("*") if path.is_file())
    assert b"SECRET" not in stored
    assert bytes.fromhex("22223333") not in (root / "sys/firmware/dmi/tables/DMI").read_bytes()
    context = load(root)
    assert context.firmware.board_name == "Board"
    assert context.firmware.dimms[0].part == "EX-1"
    assert context.firmware.dimms[0].speed_mt_s == 3200


def test_container_of_version_2_shows_what_it_may_use():
    context = captured("x86_64-container")
    confinement = context.confinement
    assert confinement.container == "Docker"
    assert "namespaces of its own: ipc, pid, user, uts" in confinement.evidence
    assert context.usable_cpus == {1, 2, 3, 4, 5}
    assert context.usable_nodes == (0,)
    assert confinement.memory_limit.limit_bytes == 256 << 20  # memory.high, below memory.max
    assert 0 < confinement.memory_limit.used_bytes < 64 << 20
    assert confinement.cpu_quota.cpus == 2.5
    assert [limit.limit for limit in confinement.task_limits] == [64]
    assert confinement.user_namespace
    assert confinement.no_new_privileges
    assert limits(context) == ("CPUs 1-5", "memory of nodes 0", "256 MiB of memory", "the time of 2.5 CPUs")


def test_control_groups_of_version_1_limit_with_their_ancestors():
    context = captured("x86_64-container-v1")
    confinement = context.confinement
    assert confinement.container is None  # in the machine's own namespaces
    assert context.usable_cpus == {0, 1}  # without the isolated ones, which the cpuset lacks
    assert [limit.limit_bytes >> 20 for limit in confinement.memory_limits] == [256, 128]
    assert confinement.memory_limit.group == "/sys/fs/cgroup/memory/slice"
    assert confinement.cpu_quota.group == "/sys/fs/cgroup/cpu/slice"
    assert confinement.user_namespace is False


def test_a_captured_container_names_no_mounts_but_control_groups():
    with tarfile.open(FIXTURES / "x86_64-container.tar.gz") as opened:
        mounts = opened.extractfile("proc/self/mountinfo").read().decode().splitlines()
    assert {line.strip("0") == "" or " - cgroup" in line for line in mounts} == {True}
