# SPDX-License-Identifier: Apache-2.0
"""Latency by page size, and the cost of a TLB miss.

The same chains on pages of each size: over memory, and over one cached line in each of many pages against as many lines
packed densely. The second is the method of Saavedra and Smith (IEEE Transactions on Computers 44, 1995) and of
lmbench's ``tlb``: lines come from the same cache in both, so what differs is address translation.
"""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any, ClassVar, Final, Literal, NamedTuple

from pydantic import PositiveInt

from calibration.base import units
from calibration.base.errors import InputError
from calibration.base.grouping import grouped
from calibration.base.statistics import Estimate, estimate
from calibration.charts.bars import bar_chart
from calibration.charts.base import Chart, Json, bounds
from calibration.context.model import Context, HugePages
from calibration.measurements.base import (
    Declaration,
    GridValues,
    MeasuredRun,
    Metric,
    NotPlanned,
    Parsed,
    Planned,
    Step,
)
from calibration.measurements.chase import ChaseSettings, chain_flags, chain_memory, chase_flags, idle_bytes, latency_of
from calibration.measurements.evidence import Missing, beside, missing_part, undisturbed
from calibration.measurements.metric_rows import CACHED, latency
from calibration.measurements.sut import Place, Sut, whole_pages
from calibration.measurements.table import TableRow
from calibration.sutprobe.document import ProbeDocument, read_result
from calibration.sutprobe.latency import LatencyPlacement, LatencyPoint, LatencyResult

LINES_MIN, LINES_MAX = 4096, 16384
"""Pages of a spread chain: more than any second-level TLB holds (1280 to 4096 entries), with lines that still fit into
most second-level caches."""

L2_SHARE: Final = 2
"""Lines take this part of the second-level cache; the rest is for page tables and unevenly filled sets."""

CACHED_HOPS, CACHED_HOP_NS = 200_000, 30.0
"""Loads of a window that a cache serves, at least, as sutprobe takes them, and their time at most; for the expected
duration only."""


class PageSizesSettings(ChaseSettings):
    """Chases on pages of each size that is available."""

    placements: PositiveInt = 1
    windows: PositiveInt = 9
    hops: PositiveInt = 20_000


class PageSizesValues(GridValues):
    """Latencies in ns of ``cpu`` on node ``node``, by kind and size of pages, base pages first.

    ``memory_ns`` is over ``size_bytes`` of memory, ``spread_ns`` over one line in each of ``lines`` base pages,
    ``spread_bytes`` in all, ``dense_ns`` over as many lines side by side. ``obtained`` names the pages as other kinds
    do. ``added_ns`` is what a load of the spread chain takes longer than one of the dense chain on the largest pages,
    ``saved_ns`` how much less a load from memory takes than on base pages; both from differences within each round.
    """

    kind: Literal["page_sizes"] = "page_sizes"
    cpu: int
    node: int
    size_bytes: int
    lines: int
    spread_bytes: int

    axes: ClassVar = {"pages": Literal["base", "thp", "hugetlb"], "page_bytes": int}
    columns: ClassVar = {
        "obtained": str,
        **dict.fromkeys(("memory_ns", "dense_ns", "spread_ns", "added_ns"), Estimate),
        "saved_ns": Estimate | None,
    }


class Wanted(NamedTuple):
    """Pages to measure on: the kind, and the size of hugetlb pages."""

    kind: Literal["base", "thp", "hugetlb"]
    hugetlb_bytes: int | None = None


class Chains(NamedTuple):
    """Sizes of the three chains in bytes."""

    spread: int
    dense: int
    memory: int


class PageSizes(Declaration[PageSizesSettings, PageSizesValues]):
    """Chases on pages of each size: over memory, over one line in each page, and over the same number of lines."""

    title = "Page sizes and TLB misses"
    question = "How much of a load's latency is address translation, by page size?"
    metric_rows = (
        latency(
            r"page_sizes.{page:(?:base|thp|hugetlb)_\d+[bkmg]?}.latency_ns",
            "one load from local memory on pages of this kind and size",
            "pages",
        ),
        latency(
            "page_sizes.tlb_miss_ns",
            "what a load of a cached line takes longer when its base page is in no TLB",
            "pages",
            depends=CACHED,
        ),
    )

    def steps(self, sut: Sut, settings: PageSizesSettings) -> Iterator[Planned]:
        """Yield one step with all sizes of pages that the memory of the first node with CPUs has."""
        base_bytes = sut.context.memory.base_page_bytes
        if base_bytes is None:
            yield self.not_planned("the capture lacks the size of base pages; capture the SUT again")
            return
        node = sut.cpu_nodes[0]
        place = Place(sut.measuring_cpu(node), sut.home(node))
        lines = min(LINES_MAX, max(LINES_MIN, sut.l2_bytes // L2_SHARE // sut.line_bytes))
        chains = Chains(
            spread=lines * base_bytes, dense=lines * sut.line_bytes, memory=idle_bytes(sut, settings, place.node, 1)
        )
        wanted = []
        for item in self._pages(sut.context, place.node, chains):
            if isinstance(item, NotPlanned):
                yield item
            else:
                wanted.append(item)
        sizes = [item.hugetlb_bytes for item in wanted if item.hugetlb_bytes]
        kinds = list(dict.fromkeys(item.kind for item in wanted))
        cached_s = settings.walk_s(chains.dense, hop_ns=CACHED_HOP_NS, hops=CACHED_HOPS)
        each_s = settings.map_s(sum(chains)) + settings.chase_s(chains.memory) + 2 * cached_s
        yield self.step(
            f"CPU {place.cpu}, memory of node {place.node}, {units.plural(len(wanted), 'kind')} of pages",
            "latency",
            {
                "at": [f"{place}:{chains.spread}/{base_bytes}", f"{place}:{chains.dense}", str(place)],
                **settings.random_options(sut, chains.memory),
                "pages": ",".join(kinds),
                **({"hugetlb-bytes": ",".join(map(str, sizes))} if sizes else {}),
            },
            cpus=(place.cpu,),
            memory_bytes=chain_memory({place.node: sum(map(whole_pages, chains))}),
            cost_s=len(wanted) * each_s,
            setup_s=len(wanted) * (settings.map_s(sum(chains)) + settings.build_s(chains.memory)),
            repeated=settings,
        )

    def _pages(self, context: Context, node: int, chains: Chains) -> Iterator[Wanted | NotPlanned]:
        """Yield the pages to measure on: base pages, each size of free hugetlb pages, else transparent huge pages."""
        yield Wanted("base")
        pools = next((local.hugepages for local in context.nodes if local.id == node), ()) or context.memory.hugepages
        pools = tuple(pool.model_copy(update={"free": self._free(pool, context)}) for pool in pools)
        free = [pool.size_bytes for pool in pools if not self._lack(pool, chains)]
        huge_bytes = context.memory.default_hugepage_bytes
        if huge_bytes not in free:
            yield self._transparent(context)
        for pool in pools:
            if lack := self._lack(pool, chains):
                yield self.not_planned(lack, f"{self.title} on hugetlb pages of {units.size(pool.size_bytes)}")
            else:
                yield Wanted("hugetlb", pool.size_bytes)

    def _transparent(self, context: Context) -> Wanted | NotPlanned:
        choice = context.memory.transparent_hugepages.mode
        if choice in {"always", "madvise"}:
            return Wanted("thp")
        reason = "this kernel has none" if choice is None else f"they are disabled ({choice})"
        return self.not_planned(reason, f"{self.title} on transparent huge pages")

    @staticmethod
    def _free(pool: HugePages, context: Context) -> int:
        """Return how many pages of *pool* can be had: of the machine's free ones, some may be promised to mappings."""
        whole = next((known for known in context.memory.hugepages if known.size_bytes == pool.size_bytes), pool)
        left = pool.free if whole.free is None else whole.free - (whole.reserved or 0)
        return max(0, min(pool.free or 0, left or 0))

    @staticmethod
    def _lack(pool: HugePages, chains: Chains) -> str:
        """Return why the pages of *pool* are not enough for *chains*, each in pages of its own; empty if they are."""
        needed = sum(-(-chain // pool.size_bytes) for chain in chains)
        if not pool.total:
            return f"none reserved; it takes {needed}"
        return (
            "" if (pool.free or 0) >= needed else f"{pool.free or 0} free of {pool.total} reserved; it takes {needed}"
        )

    def parse(self, document: ProbeDocument, step: Step, sut: Sut) -> Iterator[Parsed]:
        """Yield the latencies on all pages that were obtained."""
        result = read_result(document, LatencyResult)
        found = grouped(((point.pages, point.hugetlb_bytes), point) for point in result.points)
        if any(len(points) != len(Chains._fields) for points in found.values()):
            raise InputError(f"not {len(Chains._fields)} chains on each kind of pages for {step.id}")
        missing = [lost for points in found.values() if (lost := _lost(points)) is not None]
        good = [points for points in found.values() if _lost(points) is None]
        if not good:
            raise InputError("; ".join(dict.fromkeys(item.reason for item in missing)))
        used = [point for points in good for point in points]
        memory = good[0][2]
        yield Parsed(
            values=PageSizesValues(
                cpu=memory.cpu,
                node=memory.nodes[0],
                size_bytes=memory.size_bytes,
                lines=good[0][1].chain_nodes,
                spread_bytes=good[0][0].size_bytes,
                table=PageSizesValues.table_of(_latencies(good, step.target_half_width)),
            ),
            flags=(*chase_flags(document, used), *chain_flags(sut, [memory])),
            missing=tuple(missing),
        )

    def metrics(self, values: PageSizesValues) -> Iterator[Metric]:
        """Yield the latency on each kind of pages, and the cost of a miss on base pages."""
        for row in values.points:
            title = f"Latency on {page_text(row)}"
            yield self.metric(f"{page_label(row)}.latency_ns", title, row.memory_ns)
            if row.pages == "base":
                yield self.metric("tlb_miss_ns", f"TLB miss, {units.size(row.page_bytes)} pages", row.added_ns)

    def charts(self, run: MeasuredRun) -> Iterator[Chart | None]:
        """Yield the latencies of the chains on each kind of pages, side by side."""
        rows: list[Json] = []
        for values in run.values(self.kind):
            for row in values.points:
                for chain, found in (
                    ("memory", row.memory_ns),
                    ("a line per page", row.spread_ns),
                    ("packed lines", row.dense_ns),
                ):
                    value, low, high = bounds(found)
                    shown = {"v": value, "l": low, "h": high, "t": units.significant(value)}
                    rows.append({"g": f"{units.size(row.page_bytes)} {row.pages}", "s": chain, **shown})
        yield bar_chart(
            self.kind,
            rows,
            ("Latency", "ns per load"),
            alt="Latency by page size, over memory, over one cached line per page, and over as many packed lines",
            caption="What one cached line per page takes more than packed lines is the time of TLB misses.",
            measurements=run.of(self.kind),
        )


def page_label(row: TableRow) -> str:
    """Return kind and size of pages as a part of a metric's name."""
    return f"{row.pages}_{units.size(row.page_bytes).replace(' ', '').removesuffix('iB').lower()}"


def page_text(row: TableRow) -> str:
    """Return the size and the kind of pages in words."""
    kind = {"base": "base", "thp": "transparent huge", "hugetlb": "hugetlb"}[row.pages]
    return f"{units.size(row.page_bytes)} {kind} pages"


def _lost(points: Sequence[LatencyPoint]) -> Missing | None:
    """Return why there is no row of the *points* on one kind of pages; ``None`` if there is one."""
    spread = points[0]
    what = f"pages {spread.pages}"
    if spread.hugetlb_bytes is not None:
        what = f"hugetlb pages of {units.size(spread.hugetlb_bytes)}"
    for point in points:
        if not point.placements:
            return missing_part(what, point.error)
        for placement in point.placements:
            pages = placement.pages
            got = pages.obtained.partition("_")[0]
            if got != point.pages:
                return Missing(what=what, reason=f"the kernel gave {pages.obtained} pages")
            if spread.stride_bytes != pages.base_bytes:
                return Missing(
                    what=what,
                    reason=f"chains for pages of {spread.stride_bytes} bytes, but they have {pages.base_bytes}",
                )
    return None


def _latencies(good: Sequence[Sequence[LatencyPoint]], target: float | None) -> Iterator[dict[str, Any]]:
    """Yield the row of each kind of pages in *good*: the spread, the dense and the memory chain of each."""
    sizes = [_page_bytes(points[0]) for points in good]
    control = good[sizes.index(max(sizes))][1]
    base = next((points[2] for points in good if points[0].pages == "base"), None)
    for (spread, dense, memory), page_bytes in zip(good, sizes, strict=True):
        yield {
            "pages": spread.pages,
            "page_bytes": page_bytes,
            "obtained": (spread.placements or ())[0].pages.obtained,
            "memory_ns": latency_of(memory, target),
            "dense_ns": latency_of(dense, target),
            "spread_ns": latency_of(spread, target),
            "added_ns": _difference(spread, control),
            "saved_ns": None if base is None or base is memory else _difference(base, memory),
        }


def _page_bytes(point: LatencyPoint) -> int:
    pages = (point.placements or ())[0].pages
    return pages.base_bytes if point.pages == "base" else pages.huge_bytes or pages.base_bytes


def _difference(more: LatencyPoint, less: LatencyPoint) -> Estimate:
    """Return how much longer a load of *more* takes than one of *less*, from differences within each round."""
    others = _by_round(less)
    pairs = [(key, placement) for key, placement in _by_round(more).items() if key in others]
    if not pairs:
        raise InputError("no round has both of the chains that are compared")
    found = estimate(
        [[_median(placement) - _median(others[key])] for key, placement in pairs],
        "ns",
        **beside([placement for _, placement in pairs]),
    )
    return found.model_copy(update={"estimator": "derived"})


def _median(placement: LatencyPlacement) -> float:
    return median(undisturbed(placement.windows_ns, set(placement.dirty_windows)))


def _by_round(point: LatencyPoint) -> Mapping[tuple[int | None, int], LatencyPlacement]:
    """Return the placements of *point* by round and place in it."""
    found: dict[tuple[int | None, int], LatencyPlacement] = {}
    for placement in point.placements or ():
        place = sum(number == placement.round for number, _ in found)
        found[placement.round, place] = placement
    return found
