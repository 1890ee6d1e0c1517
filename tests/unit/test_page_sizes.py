# SPDX-License-Identifier: Apache-2.0
"""Page sizes: which are planned, what a planted translation adds, and pages that were not obtained."""

from typing import Any

import pytest

from calibration.base.errors import InputError
from calibration.context.model import Context, HugePages
from calibration.measurements import declaration
from calibration.measurements.base import NotPlanned, Step
from calibration.measurements.page_sizes import LINES_MAX, LINES_MIN, PageSizesValues, page_label
from calibration.measurements.sut import Sut
from calibration.results.cross_checks import cross_checks
from calibration.sutprobe.document import ProbeDocument, Surroundings, read_document, read_result
from calibration.sutprobe.latency import LatencyResult
from tests.captures import captured
from tests.report.report_documents import index_of, replace, run_document
from tests.unit.test_measurements import fail, one, points, read

MIB, GIB = 1 << 20, 1 << 30
MACHINE = captured("x86_64-two-nodes-smt")

DENSE, FIRST, MISS, LEFT, MEMORY = 5.0, 1.0, 30.0, 2.0, 100.0
"""Planted, in ns: a packed line on huge pages and what base pages add, what a TLB miss adds on base and on huge pages,
and memory on huge pages."""


def with_pages(context: Context, pools: tuple[HugePages, ...], thp: str | None = "madvise") -> Context:
    nodes = tuple(node.model_copy(update={"hugepages": pools}) for node in context.nodes)
    transparent = context.memory.transparent_hugepages.model_copy(update={"enabled": thp})
    memory = context.memory.model_copy(update={"transparent_hugepages": transparent, "hugepages": pools})
    return context.model_copy(update={"nodes": nodes, "memory": memory})


def pool(size_bytes: int, total: int | None, free: int | None) -> HugePages:
    return HugePages(size_bytes=size_bytes, total=total, free=free, surplus=0, reserved=None)


def planned(context: Context) -> tuple[Step, list[NotPlanned]]:
    kind = declaration("page_sizes")
    found = list(kind.steps(Sut(context), kind.settings()))
    (step,) = [item for item in found if isinstance(item, Step)]
    return step, [item for item in found if isinstance(item, NotPlanned)]


def option(step: Step, name: str) -> list[str]:
    return [value for word, value in zip(step.argv, step.argv[1:], strict=False) if word == f"--{name}"]


@pytest.mark.parametrize(
    ("pools", "thp", "pages", "sizes", "left_out"),
    [
        ((), "always", "base,thp", [], []),
        ((pool(2 * MIB, 0, 0),), "madvise", "base,thp", [], ["none reserved"]),
        ((pool(2 * MIB, 500, 500),), "always", "base,hugetlb", [2 * MIB], []),
        ((pool(2 * MIB, 500, 500), pool(GIB, 3, 3)), "always", "base,hugetlb", [2 * MIB, GIB], []),
        ((pool(2 * MIB, 0, 0), pool(GIB, 3, 3)), "always", "base,thp,hugetlb", [GIB], ["none reserved"]),
        ((pool(2 * MIB, 500, 9), pool(GIB, 3, 2)), "never", "base", [],
         ["they are disabled (never)", "9 free of 500 reserved", "2 free of 3 reserved; it takes 3"]),
        ((pool(2 * MIB, 5, None),), None, "base", [], ["this kernel has none", "0 free of 5 reserved"]),
    ],
)  # fmt: skip
def test_pages_that_are_available_are_measured_and_others_named(
    pools: tuple[HugePages, ...], thp: str | None, pages: str, sizes: list[int], left_out: list[str]
) -> None:
    step, skipped = planned(with_pages(MACHINE, pools, thp))
    assert option(step, "pages") == [pages]
    assert option(step, "hugetlb-bytes") == ([",".join(map(str, sizes))] if sizes else [])
    assert len(skipped) == len(left_out)
    for item, reason in zip(skipped, left_out, strict=True):
        assert item.reason.startswith(reason)


def test_as_many_lines_are_spread_as_packed_and_fit_into_the_cache() -> None:
    step, _ = planned(MACHINE)
    spread, packed, memory = option(step, "at")
    size, _, stride = spread.partition(":")[2].partition("/")
    assert int(stride) == MACHINE.memory.base_page_bytes == 4096
    lines = int(size) // 4096
    assert LINES_MIN <= lines <= LINES_MAX
    assert int(packed.partition(":")[2]) == 64 * lines
    assert ":" not in memory


@pytest.mark.parametrize(("l2_kib", "lines"), [(64, LINES_MIN), (512, 4096), (1024, 8192), (8192, LINES_MAX)])
def test_lines_take_half_of_the_second_level_cache(l2_kib: int, lines: int) -> None:
    caches = tuple(
        cache.model_copy(update={"size_bytes": l2_kib << 10}) if cache.level == 2 else cache for cache in MACHINE.caches
    )
    step, _ = planned(MACHINE.model_copy(update={"caches": caches}))
    assert option(step, "at")[0].partition(":")[2] == f"{lines * 4096}/4096"


def test_a_window_that_took_long_changes_no_difference() -> None:
    raw = plant(read("page_sizes"))
    expected = values(raw).points
    for point in points(raw):
        for placement in point["placements"]:
            placement["windows_ns"][-1] *= 5
    for row, before in zip(values(raw).points, expected, strict=True):
        assert row.added_ns.value == pytest.approx(before.added_ns.value)
        assert (row.saved_ns is None) == (before.saved_ns is None)
        assert row.saved_ns is None or row.saved_ns.value == pytest.approx(before.saved_ns.value)  # type: ignore[union-attr]


@pytest.mark.parametrize("base_bytes", [4096, 16384, 65536])
def test_base_pages_are_those_that_the_sut_reports(base_bytes: int) -> None:
    """A default huge page of 32 MiB is one of 4 KiB pages of table entries, or of 16 KiB pages."""
    memory = MACHINE.memory.model_copy(
        update={"base_page_bytes": base_bytes, "default_hugepage_bytes": 32 * MIB, "hugepages": ()}
    )
    step, _ = planned(MACHINE.model_copy(update={"memory": memory}))
    size, _, stride = option(step, "at")[0].partition(":")[2].partition("/")
    assert (int(stride), int(size)) == (base_bytes, LINES_MAX * base_bytes)


def test_unknown_base_pages_are_not_measured() -> None:
    memory = MACHINE.memory.model_copy(update={"base_page_bytes": None})
    context = MACHINE.model_copy(update={"memory": memory})
    kind = declaration("page_sizes")
    (skipped,) = kind.steps(Sut(context), kind.settings())
    assert isinstance(skipped, NotPlanned)
    assert skipped.reason.startswith("the capture lacks the size of base pages")


def plant(raw: dict[str, Any], drift: float = 1.0) -> dict[str, Any]:
    """Give the chains of *raw* planted latencies times *drift*; each placement is 1 % slower than the one before."""
    for point in points(raw):
        huge = point["pages"] != "base"
        for number, placement in enumerate(point["placements"]):
            added = LEFT if huge else MISS
            ns = DENSE + added if point["stride_bytes"] > 64 else DENSE + (0 if huge else FIRST)
            if point["size_bytes"] > 16 * MIB and point["stride_bytes"] == 64:
                ns = MEMORY + (0 if huge else MISS)
            placement["windows_ns"] = [ns * drift * 1.01**number] * 3
            placement["dirty_windows"] = []
    return raw


def values(raw: dict[str, Any]) -> PageSizesValues:
    found = one("page_sizes", raw).values
    assert isinstance(found, PageSizesValues)
    return found


def test_a_miss_is_what_spread_lines_take_more_than_packed_ones_on_the_largest_pages() -> None:
    rows = values(plant(read("page_sizes"))).points
    assert [page_label(row) for row in rows] == ["base_4k", "thp_2m", "hugetlb_2m"]
    base, *huge = rows
    slower = 1.01**2.5  # the median of six placements
    assert base.added_ns.value == pytest.approx(MISS * slower, rel=1e-3)
    assert base.memory_ns.value == pytest.approx((MEMORY + MISS) * slower, rel=1e-3)
    assert base.saved_ns is None
    for row in huge:
        assert row.added_ns.value == pytest.approx(LEFT * slower, rel=1e-3)
        assert row.saved_ns is not None
        assert row.saved_ns.value == pytest.approx(MISS * slower, rel=1e-3)
    names = {
        metric.name: metric.value for metric in declaration("page_sizes").metrics(values(plant(read("page_sizes"))))
    }
    assert names["page_sizes.tlb_miss_ns"] == base.added_ns.value
    assert [names[f"page_sizes.{page_label(row)}.latency_ns"] for row in rows] == [row.memory_ns.value for row in rows]
    assert names.keys() == {
        "page_sizes.tlb_miss_ns", "page_sizes.base_4k.latency_ns", "page_sizes.thp_2m.latency_ns",
        "page_sizes.hugetlb_2m.latency_ns",
    }  # fmt: skip


def test_pages_of_another_size_are_not_those_of_the_idle_latency() -> None:
    """On aarch64 with pools of 64 KiB and 2 MiB both rows were compared as one."""
    document = run_document(names=("idle_latency", "page_sizes"))
    sizes = values(plant(read("page_sizes")))
    *_, row = sizes.points
    small = row | {"page_bytes": 64 << 10, "obtained": "hugetlb_64k"}
    document = replace(
        document,
        index_of(document, "page_sizes"),
        values=sizes.model_copy(update={"table": sizes.table_of([small, row])}),
    )
    index = index_of(document, "idle_latency")
    for page in ("hugetlb_64k", "hugetlb_2m"):
        idle = document.measurements[index].values.model_copy(update={"page": page})
        document = replace(document, index, values=idle)
        checks = [check for check in cross_checks(document.measurements) if check.rule == "same_latency"]
        compared = {check.figure.name for check in checks if check.figure.name.startswith("page_sizes")}
        assert compared == {f"page_sizes.{page}.latency_ns"}


@pytest.mark.parametrize("obtained", ["hugetlb_64k", "hugetlb_2m", "hugetlb_16m", "hugetlb_32m", "hugetlb_512m",
                                      "hugetlb_1g", "hugetlb_16g", "thp", "base", "mixed"])  # fmt: skip
def test_pages_are_named_by_their_size(obtained: str) -> None:
    raw = read("page_sizes")
    for point in raw["result"]["points"]:
        for placement in point["placements"]:
            placement["pages"]["obtained"] = obtained
    found = read_result(read_document(raw), LatencyResult)
    assert {placement.pages.obtained for point in found.points for placement in point.placements or ()} == {obtained}


def test_differences_are_taken_within_each_round() -> None:
    """Rounds that differ by a factor of two leave the differences, relative to the round, as they are."""
    around = Surroundings(temperature_c=None, running=None, steal_s=None)
    drifts = [1.0, 2.0, 1.0, 2.0, 1.0, 2.0]
    raws = [plant(read("page_sizes"), drift) for drift in drifts]
    for raw in raws:
        for point in points(raw):
            del point["placements"][1:]
    packed = points(raws[1])[4]
    assert (packed["pages"], packed["stride_bytes"]) == ("thp", 64)
    fail(packed)  # what is compared with lacks the second round
    documents = [(number, read_document(raw), around) for number, raw in enumerate(raws)]
    step, _ = planned(MACHINE)
    (parsed,) = declaration("page_sizes").parse(ProbeDocument.merged(documents), step, Sut(MACHINE))
    found = parsed.values
    assert isinstance(found, PageSizesValues)
    assert found.points[0].added_ns.rounds == (0, 2, 3, 4, 5)
    assert [sample for (sample,) in found.points[0].added_ns.samples] == pytest.approx(
        [MISS * drift for drift in (1.0, 1.0, 2.0, 1.0, 2.0)]
    )


def test_pages_that_were_not_obtained_are_missing_and_the_others_stay() -> None:
    raw = plant(read("page_sizes"))
    for point in points(raw):
        if point["pages"] == "thp":
            point["placements"][3]["pages"] |= {"obtained": "base", "huge_bytes": None, "huge_fraction": 0.0}
    parsed = one("page_sizes", raw)
    assert [row.pages for row in parsed.values.points] == ["base", "hugetlb"]
    assert [(item.what, item.reason) for item in parsed.missing] == [("pages thp", "the kernel gave base pages")]
    assert "HUGEPAGE_NONE" not in {flag.code for flag in parsed.flags}


def test_without_huge_pages_packed_lines_on_base_pages_are_compared() -> None:
    raw = plant(read("page_sizes"))
    for point in points(raw):
        if point["pages"] != "base":
            fail(point)
    parsed = one("page_sizes", raw)
    (row,) = parsed.values.points
    assert row.added_ns.value == pytest.approx((MISS - FIRST) * 1.01**2.5, rel=1e-3)
    assert len(parsed.missing) == 2


def test_chains_for_another_size_of_base_pages_are_refused() -> None:
    raw = plant(read("page_sizes"))
    for point in points(raw):
        for placement in point["placements"]:
            placement["pages"]["base_bytes"] = 65536
    with pytest.raises(InputError, match="chains for pages of 4096 bytes, but they have 65536"):
        one("page_sizes", raw)
