# SPDX-License-Identifier: Apache-2.0
"""Which charts a page shows, and where: four on its first screen, the others in the sections of their kinds."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from calibration.context.population import Population, population
from calibration.formats.readings import Reading
from calibration.measurements.regulation import Method
from calibration.report import filters
from calibration.report.charts import bandwidth, ladders
from calibration.report.charts.base import HALF, WIDE, Chart, keep
from calibration.report.charts.cores import core_frequency, core_to_core
from calibration.report.charts.gaps import gaps
from calibration.report.charts.load import loaded_latency, read_load
from calibration.report.charts.matrices import numa, read_matrix
from calibration.results.model import Measurement, RunDocument


class Charts:
    """The charts of one page; ``files`` are their pictures and specifications by path."""

    def __init__(self, document: RunDocument) -> None:
        self.files: dict[str, str] = {}
        context = None if document.context is None else document.context.parsed
        peaks = None if context is None else population(context)
        self.caches = () if context is None else context.caches
        self.domains = () if context is None else context.topology.last_level_cache_domains
        self.peak_mb_s = peaks.machine.peak_mb_s if isinstance(peaks, Population) else None
        self._measurements = document.measurements
        self._first: set[str] = set()

    def first_screen(self) -> list[Chart]:
        """Return the charts of the first screen: memory by distance, memory under load, gaps, and the nodes."""
        measured = {kinds: [each for each in self._measurements if each.kind in kinds] for kinds in FIRST}
        drawn = (FIRST[kinds](self, found, HALF) for kinds, found in measured.items() if found)
        first = [keep(self.files, chart) for chart in islice(filter(None, drawn), MOST)]
        self._first = {chart.name for chart in first}
        return first

    def of(self, kinds: Iterable[str]) -> Iterator[Chart]:
        """Yield the charts of *kinds* that the first screen does not show."""
        for kind in kinds:
            for chart in self.drawn(kind):
                if chart.name not in self._first:
                    yield keep(self.files, chart)

    def drawn(self, kind: str) -> Iterator[Chart]:
        """Yield all charts of *kind* as wide as a page; they are no files yet."""
        if measured := [each for each in self._measurements if each.kind == kind]:
            yield from filter(None, (draw(self, measured, WIDE) for kinds, draw in FIRST.items() if kind in kinds))
            yield from filter(None, DRAWN[kind](self, measured) if kind in DRAWN else ())

    def read(self, reading: Reading) -> Chart | None:
        """Return the chart of what was read in a text."""
        draws = {"latency_matrix": read_matrix, "bandwidth_matrix": read_matrix, "loaded_latency": read_load}
        chart = draws[kind](reading) if (kind := reading.values.kind) in draws else None
        return None if chart is None else keep(self.files, chart)

    def ladder(self, measured: Sequence[Measurement], width: int) -> Chart:
        """Return latency against size, in random order."""
        random = [each for each in measured if getattr(each.values, "series", "") == "random"]
        return ladders.latency_ladder(random or measured, self.caches, width=width)


def _regulation(measured: Sequence[Measurement]) -> Iterator[Chart | None]:
    """Yield bandwidth against no-ops, latency against it by each method, and how steady each is."""
    for state in ("as_found", "off"):
        here = [each for each in measured if getattr(each.values, "prefetchers", "") == state]
        if here:
            yield bandwidth.regulation(here, name=f"regulation_{state}")
            for method, title in LATENCIES.items():
                yield bandwidth.latency_by(here, method, title, name=f"regulation_{state}_{method}")
    varied = {title: filters.variations(measured, method) for method, title in METHODS.items()}
    if any(varied.values()):
        yield bandwidth.variation(varied)


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

FIRST: Final[Mapping[tuple[str, ...], Callable[[Charts, Sequence[Measurement], int], Chart | None]]] = {
    ("latency_ladder",): Charts.ladder,
    ("loaded_latency",): lambda _, found, width: loaded_latency(found[0], width=width),
    ("jitter",): lambda _, found, width: gaps(found, width=width),
    ("latency_matrix", "bandwidth_matrix"): lambda _, found, width: numa(found, width=width),
    ("peak_injection_bandwidth",): lambda page, found, width: bandwidth.bandwidth_by_mix(found, page.peak_mb_s, width),
}
"""The charts of the first screen by the kinds they show, in order; the first ``MOST`` that have something to show."""

DRAWN: Final[Mapping[str, Callable[[Charts, Sequence[Measurement]], Iterable[Chart | None]]]] = {
    "latency_ladder": lambda page, found: (
        [ladders.latency_ladder(found, page.caches, name="latency_ladder_series")] if len(found) > 1 else []
    ),
    "sustained_bandwidth": lambda _, found: [bandwidth.sustained_bandwidth(found)],
    "bandwidth_scaling": lambda _, found: [bandwidth.bandwidth_scaling(found)],
    "bandwidth_ladder": lambda _, found: [ladders.bandwidth_ladder(found[-1])],
    "prefetcher_effect": lambda _, found: [ladders.prefetcher_effect(found)],
    "c2c_matrix": lambda page, found: [core_to_core(found[0], page.domains)],
    "core_frequency": lambda _, found: map(core_frequency, found),
    "regulation": lambda _, found: _regulation(found),
    "counted_volume": lambda _, found: map(bandwidth.counted_volume, found),
}
"""The charts of each kind in its section, besides those of the first screen."""
