# SPDX-License-Identifier: Apache-2.0
"""Which charts a page shows, and where: four on its first screen, the others in the sections of their kinds."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from calibration.context.model import Cache
from calibration.context.population import Population, population
from calibration.measurements.regulation import Method
from calibration.report import charts, filters
from calibration.report.charts import HALF, WIDE, Chart
from calibration.report.charts.keeper import keep
from calibration.results.model import Measurement, RunDocument
from calibration.results.readings import Reading


@dataclass(frozen=True)
class Placed:
    """A chart on a page: the path of its picture, what it shows in words, and what to read in it."""

    path: str
    alt: str
    caption: str


class Charts:
    """The charts of one page; ``files`` are their pictures and specifications by path."""

    def __init__(self, document: RunDocument) -> None:
        self.files: dict[str, str] = {}
        context = None if document.context is None else document.context.parsed
        self._caches: Sequence[Cache] = () if context is None else context.caches
        peaks = None if context is None else population(context)
        self._peak_mb_s = peaks.machine.peak_mb_s if isinstance(peaks, Population) else None
        self._domains = () if context is None else context.topology.last_level_cache_domains
        self._shown: set[str] = set()
        self._by_kind: dict[str, list[Measurement]] = {}
        for each in document.measurements:
            self._by_kind.setdefault(each.kind, []).append(each)

    def keep(self, chart: Chart | None) -> Placed | None:
        """Draw *chart*, and return where it is; ``None`` where there is nothing to draw."""
        if chart is None:
            return None
        return Placed(keep(self.files, chart), chart.alt, chart.caption)

    def first_screen(self) -> list[Placed]:
        """Return the charts of the first screen: memory by distance, memory under load, gaps, and the nodes."""
        found: list[Placed] = []
        for kinds, draw in FIRST.items():
            measured = [self._by_kind.get(kind, []) for kind in kinds]
            placed = self.keep(draw(self, measured, HALF)) if any(measured) else None
            if placed is not None:
                found.append(placed)
                if kinds == ("peak_injection_bandwidth",):
                    self._shown.update(kinds)
            if len(found) == MOST:
                break
        return found

    def of(self, kinds: Iterable[str]) -> Iterator[Placed]:
        """Yield the charts of *kinds* that the first screen does not show."""
        for kind in kinds:
            if kind in DRAWN and kind not in self._shown and (measured := self._by_kind.get(kind)):
                for chart in DRAWN[kind](self, measured):
                    if (placed := self.keep(chart)) is not None:
                        yield placed

    def read(self, reading: Reading) -> Placed | None:
        """Return the chart of what was read in a text."""
        draw = READ.get(reading.values.kind)
        return None if draw is None else self.keep(draw(reading))

    # What needs more than its measurements

    def ladder(self, measured: Sequence[Sequence[Measurement]], width: int) -> Chart | None:
        """Return latency against size, in random order."""
        random = [each for each in measured[0] if getattr(each.values, "series", "") == "random"]
        return charts.latency_ladder(random or measured[0], self._caches, width=width)

    def mixes(self, measured: Sequence[Measurement], width: int) -> Chart | None:
        """Return bandwidth by mix, with the theoretical peak where it is known."""
        return charts.bandwidth_by_mix(measured, peak_mb_s=self._peak_mb_s, width=width)

    def core_to_core(self, measured: Sequence[Measurement]) -> Iterator[Chart | None]:
        """Yield the latencies between blocks of cores."""
        for each in measured:
            yield charts.core_to_core(each, self._domains)

    def series(self, measured: Sequence[Measurement]) -> Iterator[Chart | None]:
        """Yield latency against size in every order, where there is more than the random one."""
        if len(measured) > 1:
            yield charts.latency_ladder(measured, self._caches, name="latency_ladder_series")


def _first(measured: Sequence[Measurement]) -> Measurement | None:
    return measured[0] if measured else None


def _regulation(measured: Sequence[Measurement]) -> Iterator[Chart | None]:
    """Yield bandwidth against no-ops, latency against it by each method, and how steady each is."""
    for state in ("as_found", "off"):
        here = [each for each in measured if getattr(each.values, "prefetchers", "") == state]
        if here:
            yield charts.regulation(here, name=f"regulation_{state}")
            for method, name in LATENCIES.items():
                yield charts.latency_by(here, method, name, name=f"regulation_{state}_{method}")
    varied = [(name, found) for method, name in METHODS.items() if (found := filters.variations(measured, method))]
    if varied:
        yield charts.variation(varied)


MOST: Final = 4

LATENCIES: Final[Mapping[Method, str]] = {
    "chase": "Latency of the chase",
    "l1_miss": "L1 miss latency",
    "load_miss_real": "Load miss real latency",
    "sampled": "Latency of sampled loads",
}
METHODS: Final[Mapping[Method, str]] = {
    "bandwidth": "Bandwidth by the kernel",
    "counted_bandwidth": "Bandwidth by the memory controllers",
    **LATENCIES,
}
"""What each method of bandwidth regulation is called, in the order of their charts."""

FIRST: Final[Mapping[tuple[str, ...], Callable[[Charts, Sequence[Sequence[Measurement]], int], Chart | None]]] = {
    ("latency_ladder",): Charts.ladder,
    ("loaded_latency",): lambda _, found, width: charts.loaded_latency(found[0][0], width=width),
    ("jitter",): lambda _, found, width: charts.gaps(found[0], width=width),
    ("latency_matrix", "bandwidth_matrix"): lambda _, found, width: charts.numa(*map(_first, found), width=width),
    ("peak_injection_bandwidth",): lambda page, found, width: page.mixes(found[0], width),
}
"""The charts of the first screen by the kinds they show, in order; the first ``MOST`` that have something to show."""

DRAWN: Final[Mapping[str, Callable[[Charts, Sequence[Measurement]], Iterable[Chart | None]]]] = {
    "latency_ladder": Charts.series,
    "peak_injection_bandwidth": lambda page, found: [page.mixes(found, WIDE)],
    "sustained_bandwidth": lambda _, found: [charts.sustained_bandwidth(found)],
    "bandwidth_scaling": lambda _, found: [charts.bandwidth_scaling(found)],
    "bandwidth_ladder": lambda _, found: [charts.bandwidth_ladder(each) for each in found[-1:]],
    "prefetcher_effect": lambda _, found: [charts.prefetcher_effect(found)],
    "c2c_matrix": lambda page, found: page.core_to_core(found[:1]),
    "core_frequency": lambda _, found: map(charts.core_frequency, found),
    "regulation": lambda _, found: _regulation(found),
    "counted_volume": lambda _, found: map(charts.counted_volume, found),
}
"""The charts of each kind in its section, besides those of the first screen."""

READ: Final[Mapping[str, Callable[[Reading], Chart | None]]] = {
    "latency_matrix": charts.read_matrix,
    "bandwidth_matrix": charts.read_matrix,
    "loaded_latency": charts.read_load,
}
"""The charts of kinds whose figures were read in a text."""
