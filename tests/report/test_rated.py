# SPDX-License-Identifier: Apache-2.0
"""What firmware and CXL devices rate memory at beside what was measured: a table, and findings where they differ."""

from collections.abc import Mapping
from typing import Any

import pytest

from calibration.base.validity import Flag, Validity, flag
from calibration.commands.context import summary
from calibration.context.hardware import Cxl, CxlRegion, RatedAccess
from calibration.context.model import Context, MemorySideCache
from calibration.measurements.node_matrix import NodeMatrixValues
from calibration.measurements.table import TableRow
from calibration.report.rated import rated_rows
from calibration.report.rst import to_rst
from calibration.results.model import Measurement
from calibration.results.rated import rated_flags
from tests.report.report_documents import context_of, first_screen, page_of, run_document, scaled, with_rows
from tests.report.snippets import blocks

MACHINE = "x86_64-memory-only-node"
"""CPUs on nodes 0 and 1, memory alone on node 2. Distances 21 between the first two, to node 2 17 and 28."""

AS_RATED = {(0, 0): 100.0, (0, 1): 170.0, (0, 2): 140.0, (1, 0): 170.0, (1, 1): 100.0, (1, 2): 240.0}
"""Latencies in the order of the distances, in ns."""

Places = Mapping[tuple[int, int], float]


def access(
    latency_ns: int | None, mb_s: int | None = None, initiators: tuple[int, ...] = (0,), number: int = 1
) -> RatedAccess:
    return RatedAccess(
        access=number, initiators=initiators, read_latency_ns=latency_ns, write_latency_ns=None,
        read_bandwidth_mb_s=mb_s, write_bandwidth_mb_s=None,
    )  # fmt: skip


def with_ratings(context: Context, **rated: tuple[RatedAccess, ...]) -> Context:
    """Return *context* with what the firmware rates: of ``node0``, of ``node1`` and so on."""
    nodes = [node.model_copy(update={"rated_accesses": rated.get(f"node{node.id}", ())}) for node in context.nodes]
    return context.model_copy(update={"nodes": tuple(nodes)})


def with_cxl(context: Context, *accesses: RatedAccess) -> Context:
    """Return *context* with node 2 of CXL memory, and what its region says."""
    region = CxlRegion(
        name="region0", size_bytes=1 << 30, ways=1, granularity_bytes=256, node=2, rated_accesses=accesses
    )
    return context.model_copy(update={"cxl": Cxl(devices=(), regions=(region,), nodes=(2,))})


def matrix(
    kind: str, places: Places, *, width: float = 0.01, flags: tuple[Flag, ...] = (), **fields: Any
) -> Measurement:
    """Return a matrix with values at *places*, their intervals of *width* to both sides, and other *fields*."""
    (recorded,) = run_document(names=(kind,)).measurements
    assert isinstance(recorded.values, NodeMatrixValues)
    row, column = recorded.values.table.rows[0], recorded.values.drawn[0]
    rows = []
    for (cpu_node, memory_node), value in places.items():
        cell = scaled(row[column], value / row[column].value)
        interval = {"interval": (value * (1 - width), value * (1 + width)), "coverage": 0.95}
        cell = cell.model_copy(update=interval | fields)
        rows.append(TableRow(row | {"cpu_node": cpu_node, "memory_node": memory_node, column: cell}))
    valid = all(item.severity != "invalid" for item in flags)
    return recorded.model_copy(
        update={"values": with_rows(recorded.values, rows), "validity": Validity(valid=valid, flags=flags)}
    )


def latencies(places: Places = AS_RATED, **fields: Any) -> Measurement:
    return matrix("latency_matrix", places, **fields)


def bandwidths(places: Places, **fields: Any) -> Measurement:
    return matrix("bandwidth_matrix", places, **fields)


def reasons(context: Context, *measurements: Measurement) -> dict[str, str]:
    found = list(rated_flags(context, measurements))
    assert len({item.code for item in found}) == len(found)
    return {item.code: item.reason for item in found}


def rows(context: Context, *measurements: Measurement) -> list[tuple[str, ...]]:
    return [tuple(row[:6]) for row in rated_rows(context, measurements)]


@pytest.fixture
def machine() -> Context:
    return context_of(MACHINE)


def test_distances_are_beside_latencies_relative_to_the_own_memory(machine: Context) -> None:
    assert rows(machine, latencies()) == [
        ("node 0", "node 1", "firmware (SLIT)", "distance 21, 2.1 times local", "1.70 times local", "0.810"),
        ("node 0", "node 2", "firmware (SLIT)", "distance 17, 1.7 times local", "1.40 times local", "0.824"),
        ("node 1", "node 0", "firmware (SLIT)", "distance 21, 2.1 times local", "1.70 times local", "0.810"),
        ("node 1", "node 2", "firmware (SLIT)", "distance 28, 2.8 times local", "2.40 times local", "0.857"),
    ]
    assert reasons(machine, latencies()) == {}


def test_nodes_at_the_same_distance_share_a_row(machine: Context) -> None:
    alike = machine.model_copy(update={"distances": ((10, 20, 20), (20, 10, 20), (20, 20, 10))})
    first, _ = rows(alike, latencies())
    assert first[1:] == (
        "nodes 1-2", "firmware (SLIT)", "distance 20, 2 times local", "1.40 to 1.70 times local", "0.700 to 0.850",
    )  # fmt: skip
    assert reasons(alike, latencies()) == {}  # no order among equals


def test_an_order_that_the_intervals_exclude_is_a_finding(machine: Context) -> None:
    found = reasons(machine, latencies({**AS_RATED, (0, 2): 240.0, (0, 1): 131.0}))
    assert found == {
        "RATED_ORDER": "Firmware (SLIT) calls node 2 nearer than node 1 from node 0 (distance 17 and distance 21); "
        "measured 240 ns against 131 ns"
    }


@pytest.mark.parametrize(("node_2", "width"), [(175.0, 0.01), (240.0, 0.2)], ids=("within 5 %", "within intervals"))
def test_an_order_within_the_intervals_is_none(machine: Context, node_2: float, width: float) -> None:
    assert reasons(machine, latencies({**AS_RATED, (0, 2): node_2}, width=width)) == {}


def test_the_largest_contradiction_is_named_and_the_others_counted(machine: Context) -> None:
    found = reasons(machine, latencies({**AS_RATED, (0, 2): 240.0, (1, 1): 400.0}))
    assert found["RATED_ORDER"].startswith("Firmware (SLIT) calls node 1 nearer than node 0 from node 1 (distance 10 ")
    assert found["RATED_ORDER"].endswith("; measured 400 ns against 170 ns; 2 more")


def test_ratings_are_beside_both_matrices(machine: Context) -> None:
    rated = with_ratings(machine, node0=(access(90, 20000),), node2=(access(250, None),))
    found = rows(rated, latencies(), bandwidths({(0, 0): 18000.0, (0, 2): 9000.0}))
    assert found[:3] == [
        ("node 0", "node 0", "firmware (HMAT, class 1), read latency", "90 ns", "100 ns", "1.11"),
        ("node 0", "node 0", "firmware (HMAT, class 1), read bandwidth", "20 GB/s", "18.0 GB/s", "0.900"),
        ("node 0", "node 2", "firmware (HMAT, class 1), read latency", "250 ns", "140 ns", "0.560"),
    ]
    assert reasons(rated, latencies()) == {}


def test_a_rating_twice_or_half_of_what_was_measured_is_a_finding(machine: Context) -> None:
    rated = with_ratings(machine, node0=(access(90, 41000),), node2=(access(60, 9000),))
    found = list(rated_flags(rated, [latencies(), bandwidths({(0, 0): 20000.0, (0, 2): 9000.0})]))
    assert [item.code for item in found] == ["RATED_ORDER", "RATED_DIFFERS", "RATED_DIFFERS"]
    order, latency, bandwidth = (item.reason for item in found)
    assert latency == (
        "Firmware (HMAT, class 1) rates the read latency from node 0 to the memory of node 2 at 60 ns; measured 140 ns"
    )
    assert "node 0 at 41 GB/s; measured 20.0 GB/s" in bandwidth
    assert "calls node 2 nearer than node 0 from node 0 (60 ns and 90 ns)" in order


def test_a_faster_memory_without_cpus_is_no_contradiction_unless_rated_slower(machine: Context) -> None:
    """High-bandwidth memory."""
    measured = bandwidths({(0, 0): 100000.0, (0, 2): 180000.0})
    rated = with_ratings(machine, node0=(access(None, 110000),), node2=(access(None, 200000),))
    assert reasons(rated, measured) == {}
    rated = with_ratings(machine, node0=(access(None, 190000),), node2=(access(None, 150000),))
    assert reasons(rated, measured)["RATED_ORDER"] == (
        "Firmware (HMAT, class 1) calls node 0 faster than node 2 from node 0 (190 GB/s and 150 GB/s); measured "
        "100 GB/s against 180 GB/s"
    )


def test_both_classes_are_kept_where_they_differ(machine: Context) -> None:
    def classes(*accesses: RatedAccess) -> list[str]:
        found = rows(with_ratings(machine, node0=accesses), latencies({(0, 0): 100.0}))
        return [f"{cpus}: {source}: {rated}" for cpus, _, source, rated, *_ in found]

    name = "node 0: firmware (HMAT, class {}), read latency: {} ns"
    assert classes(access(90), access(90, number=0)) == [name.format(1, 90)]
    assert classes(access(90), access(80, number=0)) == [name.format(1, 90), name.format(0, 80)]
    assert classes(access(90), access(20, initiators=(2,), number=0)) == [name.format(1, 90)]  # that of a device


def test_without_a_named_initiator_the_best_value_is_that_of_the_nearest_cpus(machine: Context) -> None:
    own = access(60, 20000, initiators=())
    copied = with_ratings(with_cxl(machine, own, own.model_copy(update={"access": 0})), node2=(own,))
    measured = latencies(), bandwidths({(0, 2): 9000.0, (1, 2): 8000.0})
    assert [row for row in rows(copied, *measured) if "SLIT" not in row[2]] == [  # once, though the kernel copied it
        ("the nearest node", "node 2", "CXL region0 (class 1), read latency", "60 ns", "140 ns", "2.33"),
        ("the nearest node", "node 2", "CXL region0 (class 1), read bandwidth", "20 GB/s", "9.00 GB/s", "0.450"),
    ]
    latency, bandwidth = (item.reason for item in rated_flags(copied, measured))
    assert latency == (
        "CXL region0 (class 1) rates the read latency from the nearest node to the memory of node 2 at 60 ns; "
        "measured 140 ns"
    )
    assert bandwidth.endswith("at 20 GB/s; measured 9.00 GB/s")
    others = with_ratings(with_cxl(machine, own), node1=(access(70, initiators=()),))
    assert "RATED_ORDER" not in reasons(others, measured[0])  # each from its own nearest CPUs
    assert rows(copied)[:1] == [
        ("the nearest node", "node 2", "CXL region0 (class 1), read latency", "60 ns", "-", "-")
    ]  # nothing measured
    device = with_cxl(machine, access(60, initiators=(), number=0))
    assert [row for row in rows(device, *measured) if "CXL" in row[2]] == []  # the nearest may be a device


def test_what_firmware_says_otherwise_than_the_devices_has_a_row_of_its_own(machine: Context) -> None:
    other = with_ratings(with_cxl(machine, access(60, initiators=())), node2=(access(140),))
    assert [row[:4] for row in rows(other, latencies())[:2]] == [
        ("the nearest node", "node 2", "CXL region0 (class 1), read latency", "60 ns"),
        ("node 0", "node 2", "firmware (HMAT, class 1), read latency", "140 ns"),
    ]


def test_the_only_node_with_cpus_is_the_nearest_of_all_memories(machine: Context) -> None:
    one, other, memory = machine.nodes
    alone = machine.model_copy(update={"nodes": (one, other.model_copy(update={"cpus": ()}), memory)})
    rated = with_ratings(with_cxl(alone, access(60, initiators=())), node0=(access(90),))
    measured = latencies({(0, 0): 100.0, (0, 2): 110.0})
    assert reasons(rated, measured)["RATED_ORDER"] == (
        "CXL region0 (class 1) and firmware (HMAT, class 1) call node 2 nearer than node 0 from node 0 (60 ns and "
        "90 ns); measured 110 ns against 100 ns"
    )


def test_values_of_a_memory_side_cache_contradict_nothing(machine: Context) -> None:
    rated = with_ratings(machine, node0=(access(40),))
    cache = MemorySideCache(
        index=1, size_bytes=1 << 28, line_bytes=64, indexing=None, write_policy=None, extended_linear=False
    )
    nodes = (rated.nodes[0].model_copy(update={"memory_side_caches": (cache,)}), *rated.nodes[1:])
    cached = rated.model_copy(update={"nodes": nodes})
    inside = latencies(flags=(flag("MEMORY_SIDE_CACHE", "made"),))
    assert rows(cached, inside)[0][1] == "node 0, behind a cache of 256 MiB"
    assert "RATED_DIFFERS" in reasons(rated, inside)
    assert "RATED_DIFFERS" in reasons(cached, latencies())
    assert reasons(cached, inside) == {}


@pytest.mark.parametrize("doubt", ["invalid", "no interval"])
def test_values_that_decide_nothing_contradict_nothing(machine: Context, doubt: str) -> None:
    rated = with_ratings(machine, node0=(access(40),))
    measured = latencies(flags=(flag("EMULATED", "made"),))
    if doubt == "no interval":
        measured = latencies(interval=None, coverage=None)
    assert rows(rated, measured)[0][4:] == ("100 ns", "2.50")
    assert reasons(rated, measured) == {}


def test_it_is_on_the_page_and_a_finding(machine: Context) -> None:
    document = run_document(MACHINE, names=("latency_matrix",))
    assert document.context is not None
    parsed = with_ratings(machine, node0=(access(40),))
    document = document.model_copy(
        update={
            "context": document.context.model_copy(update={"parsed": parsed}),
            "measurements": (latencies(),),
            "flags": tuple(rated_flags(parsed, [latencies()])),
        }
    )
    text = to_rst(page_of(document).blocks)
    assert "Memory as rated and as measured" in text
    assert "firmware (HMAT, class 1), read latency" in text
    assert any("rates the read latency from node 0" in finding for finding in first_screen(document).findings)
    plain = run_document(names=("idle_latency",))
    assert "Memory as rated" not in to_rst(page_of(plain).blocks)


def test_the_guide_shows_what_the_command_prints() -> None:
    printed = summary(context_of("x86_64-cxl"))
    (block,) = (block for block in blocks() if block.page == "docs/guide/memory.rst" and "CXL memory" in block.text)
    for line in block.text.splitlines():
        assert line.removesuffix("...") in printed


def test_a_captured_machine_with_cxl_memory_and_a_node_left_out() -> None:
    """Nodes 0 and 1 have CPUs, node 3 is of CXL memory, and there is no node 2."""
    context = context_of("x86_64-cxl")
    measured = latencies({(0, 0): 95.0, (0, 1): 171.0, (0, 3): 520.0, (1, 0): 171.0, (1, 1): 95.0, (1, 3): 474.0})
    shown = [" | ".join(row) for row in rows(context, measured, bandwidths({(0, 0): 19000.0, (1, 3): 6400.0}))]
    cached = "node 0, behind a cache of 64 MiB"
    assert shown == [
        f"node 0 | {cached} | firmware (HMAT, class 1), read latency | 90 ns | 95.0 ns | 1.06",
        f"node 0 | {cached} | firmware (HMAT, class 1), read bandwidth | 20 GB/s | 19.0 GB/s | 0.950",
        "node 1 | node 1 | firmware (HMAT, class 1), read latency | 90 ns | 95.0 ns | 1.06",
        "node 1 | node 1 | firmware (HMAT, class 1), read bandwidth | 20 GB/s | - | -",
        "the nearest node | node 3 | CXL region0 (class 1), read latency | 452 ns | 474 ns | 1.05",
        "the nearest node | node 3 | CXL region0 (class 1), read bandwidth | 16 GB/s | 6.40 GB/s | 0.400",
        "node 0 | nodes 1,3 | firmware (SLIT) | distance 20, 2 times local | 1.80 to 5.47 times local | 0.900 to 2.74",
        f"node 1 | {cached} | firmware (SLIT) | distance 20, 2 times local | 1.80 times local | 0.900",
        "node 1 | node 3 | firmware (SLIT) | distance 20, 2 times local | 4.99 times local | 2.49",
    ]
    assert reasons(context, measured) == {}
    assert reasons(context, bandwidths({(1, 3): 6400.0})) == {
        "RATED_DIFFERS": "CXL region0 (class 1) rates the read bandwidth from the nearest node to the memory of node 3 "
        "at 16 GB/s; measured 6.40 GB/s"
    }
