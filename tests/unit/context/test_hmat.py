# SPDX-License-Identifier: Apache-2.0
"""What the firmware says of the memory of nodes: caches before it, rated accesses; and nodes that are emulated."""

import base64

import pytest

from calibration.commands.context import summary
from calibration.context.facts import facts, other_facts
from calibration.context.hmat import ratings
from calibration.context.loader import load, to_contract
from calibration.runner import capture

NODE = "/sys/devices/system/node"
CPU = "/sys/devices/system/cpu"
CXL = "/sys/bus/cxl/devices"
DAX = "/sys/bus/dax/devices"
MIB = 1 << 20

TWO_NODES = {
    "/proc/version": "Linux version 6.12.0\n",
    f"{CPU}/online": "0-1\n",
    f"{NODE}/online": "0-1\n",
    f"{NODE}/node0/cpulist": "0-1\n",
    f"{NODE}/node0/meminfo": "Node 0 MemTotal: 1048576 kB\n",
    f"{NODE}/node0/distance": "10 20\n",
    f"{NODE}/node1/cpulist": "\n",
    f"{NODE}/node1/meminfo": "Node 1 MemTotal: 1048576 kB\n",
    f"{NODE}/node1/distance": "20 10\n",
}

CACHE = {
    f"{NODE}/node0/memory_side_cache/index1/size": "268435456\n",
    f"{NODE}/node0/memory_side_cache/index1/line_size": "64\n",
    f"{NODE}/node0/memory_side_cache/index1/indexing": "0\n",
    f"{NODE}/node0/memory_side_cache/index1/write_policy": "0\n",
}

EMULATED = {
    f"{CPU}/online": "0-3\n",
    f"{NODE}/online": "0-3\n",
    **{f"{NODE}/node{node}/cpulist": ("0-1\n", "2-3\n")[node % 2] for node in range(4)},
    **{f"{NODE}/node{node}/meminfo": f"Node {node} MemTotal: 262144 kB\n" for node in range(4)},
}


def rated(node: int, access: int, latency: int, bandwidth: int) -> dict[str, str]:
    base = f"{NODE}/node{node}/access{access}/initiators"
    return {
        f"{base}/read_latency": f"{latency}\n",
        f"{base}/write_latency": f"{latency}\n",
        f"{base}/read_bandwidth": f"{bandwidth}\n",
        f"{base}/write_bandwidth": f"{bandwidth // 2}\n",
    }


def link(root, path, target):
    made = root / path.lstrip("/")
    made.parent.mkdir(parents=True, exist_ok=True)
    made.symlink_to(target)


@pytest.fixture
def hmat(make_root):
    """Two nodes, one with CPUs, each with ratings; a cache is before the memory of the first."""
    root = make_root(TWO_NODES | CACHE | rated(0, 0, 80, 200000) | rated(0, 1, 90, 190000) | rated(1, 1, 250, 0))
    for node, access in ((0, 0), (0, 1), (1, 1)):
        link(root, f"{NODE}/node{node}/access{access}/initiators/node0", "../../../node0")
    link(root, f"{NODE}/node0/access0/initiators/node1", "../../../node1")
    return root


def archived(root, directory):
    found = capture.capture(str(root), sleep=lambda _seconds: None)
    path = directory / "context.tar.gz"
    path.write_bytes(base64.b64decode(found["archive"]))
    return load(path)


def test_memory_side_caches_and_ratings_are_captured_and_read(hmat, tmp_path):
    for context in (load(hmat), archived(hmat, tmp_path)):
        (cache,) = context.nodes[0].memory_side_caches
        assert (cache.size_bytes, cache.line_bytes, cache.indexing, cache.write_policy) == (
            268435456, 64, "direct-mapped", "write-back",
        )  # fmt: skip
        assert not cache.extended_linear
        assert context.nodes[1].memory_side_caches == ()
        near, cpus = context.nodes[0].rated_accesses
        assert (near.access, near.initiators, near.read_latency_ns) == (0, (0, 1), 80)
        assert (cpus.access, cpus.initiators, cpus.read_latency_ns, cpus.write_bandwidth_mb_s) == (1, (0,), 90, 95000)
        (far,) = context.nodes[1].rated_accesses
        assert (far.read_latency_ns, far.read_bandwidth_mb_s) == (250, None)  # 0 is "not given"
        assert [(rating.cpu_node, rating.memory_node, rating.access) for rating in ratings(context)] == [
            (0, 0, cpus),  # that of CPUs first, then that with the nearest device
            (0, 0, near),
            (0, 1, far),
        ]
        assert context.memory_side_cache_bytes(0) == 268435456
        assert context.memory_side_cache_bytes(1) == 0


def test_they_are_shown_and_compared(hmat, make_root):
    context, plain = load(hmat), load(make_root(TWO_NODES))
    assert "node 0: 256 MiB, direct-mapped, write-back, lines of 64 B" in summary(context)
    assert "node 1 from node 0 (class 1): 250 ns, - MB/s" in summary(context)
    assert "268435456" in str(to_contract(context))
    differing = other_facts(facts(plain, None), facts(context, None))
    assert "memory-side caches: none -> node 0: 256 MiB, direct-mapped, write-back, lines of 64 B" in differing
    assert any(text.startswith("rated by the firmware: none -> node 0 from nodes 0-1 (class 0)") for text in differing)


def test_an_unusable_rating_is_none(make_root):
    context = load(make_root(TWO_NODES | rated(0, 0, 0, 0)))
    assert context.nodes[0].rated_accesses == ()


@pytest.mark.parametrize("size", [{"size": "0\n"}, {}], ids=str)
def test_a_cache_of_unknown_size_is_shown(make_root, size):
    files = {
        f"{NODE}/node1/memory_side_cache/index1/{name}": text for name, text in {"write_policy": "0\n", **size}.items()
    }
    context = load(make_root(TWO_NODES | files))
    (cache,) = context.nodes[1].memory_side_caches
    assert (cache.size_bytes, context.memory_side_cache_bytes(1)) == (None, 0)
    assert [context.side_cache_unknown(node) for node in range(2)] == [False, True]
    assert "node 1: size unknown, write-back" in facts(context, None)["memory-side caches"]


def test_what_is_other_of_a_cache_is_named(make_root):
    other = CACHE | dict.fromkeys(
        (f"{NODE}/node0/memory_side_cache/index1/{name}" for name in ("indexing", "write_policy")), "2\n"
    )
    assert "256 MiB, other indexing, other write policy, lines of 64 B" in summary(load(make_root(TWO_NODES | other)))


def test_level_0_without_a_size_is_no_cache(make_root):
    context = load(make_root(TWO_NODES | {f"{NODE}/node1/memory_side_cache/index0/size": "0\n"}))
    assert context.nodes[1].memory_side_caches == ()


@pytest.fixture
def cxl(make_root):
    """Node 1 of CXL memory, half of it a cache; what its devices say, and 0 for what they do not."""
    region = f"{CXL}/region0"
    root = make_root(
        TWO_NODES
        | {
            f"{region}/size": "0x80000000\n",
            f"{region}/extended_linear_cache_size": "0x40000000\n",
            f"{region}/interleave_ways": "1\n",
            f"{region}/access0/read_latency": "0\n",
            f"{region}/access1/read_latency": "250\n",
            f"{region}/access1/write_latency": "260\n",
            f"{region}/access1/read_bandwidth": "30000\n",
            f"{region}/access1/write_bandwidth": "0\n",
            f"{CXL}/mem0/ram/size": "0x40000000\n",
            f"{CXL}/mem0/numa_node": "0\n",
            "/sys/devices/platform/region0/dax0.0/target_node": "1\n",
        }
    )
    link(root, f"{DAX}/dax0.0", "../../../devices/platform/region0/dax0.0")
    return root


def test_what_cxl_devices_say_is_captured_read_and_compared(cxl, make_root, tmp_path):
    for context in (load(cxl), archived(cxl, tmp_path)):
        (rated,) = context.cxl.regions[0].rated_accesses  # 0 is "not given"
        assert (rated.access, rated.initiators, rated.read_latency_ns, rated.write_latency_ns) == (1, (), 250, 260)
        assert (rated.read_bandwidth_mb_s, rated.write_bandwidth_mb_s) == (30000, None)
        assert list(ratings(context)) == [(0, 1, "CXL region0 (class 1)", rated)]
        assert "region0 from the nearest (class 1): 250/260 ns, 30000/- MB/s" in summary(context)
    differing = other_facts(facts(load(make_root(TWO_NODES)), None), facts(context, None))
    assert "rated by CXL: none -> region0 from the nearest (class 1): 250/260 ns, 30000/- MB/s" in differing


def test_an_extended_linear_cache_of_cxl_memory(cxl, make_root, tmp_path):
    context = archived(cxl, tmp_path)
    assert context.cxl is not None
    assert context.cxl.regions[0].cache_bytes == 1 << 30
    assert (context.memory_side_cache_bytes(0), context.memory_side_cache_bytes(1)) == (0, 1 << 30)
    assert "region0 of 1 devices, 1 GiB of it a cache" in facts(context, None)["CXL memory"]
    linear = TWO_NODES | CACHE | {f"{NODE}/node0/memory_side_cache/index1/address_mode": "0x1\n"}
    (cache,) = archived(make_root(linear), tmp_path).nodes[0].memory_side_caches
    assert cache.extended_linear


def test_emulated_nodes_are_parts_of_one(make_root):
    context = load(make_root(EMULATED))
    assert context.unreadable == ()
    assert [node.cpus for node in context.nodes] == [(0, 1), (2, 3)] * 2  # as the kernel says
    assert context.cpus_by_node == {0: (0, 1), 1: (2, 3), 2: (), 3: ()}
    assert context.emulated_nodes == {(0, 1): (0, 2), (2, 3): (1, 3)}
    assert (context.parts_of(2), context.parts_of(1)) == ((0, 2), (1, 3))
    assert [context.node_of(cpu) for cpu in range(4)] == [0, 0, 1, 1]
    assert "1,3 are parts of one node: each lists CPUs 2-3, which are measured as those of node 1" in summary(context)


def test_a_cache_is_before_all_parts_of_a_node(make_root):
    context = load(make_root(EMULATED | CACHE | rated(2, 1, 90, 1000)))
    assert [context.memory_side_cache_bytes(node) for node in range(4)] == [256 * MIB, 0, 256 * MIB, 0]


def test_weights_of_nodes_that_are_not_online_are_left_out(make_root):
    weights = "/sys/kernel/mm/mempolicy/weighted_interleave"
    files = TWO_NODES | {f"{weights}/node{node}": "1\n" for node in range(4)}
    assert load(make_root(files)).interleaving.weights == {0: 1, 1: 1}
