# SPDX-License-Identifier: Apache-2.0
"""Which charts a page shows, and where: four on its first screen, the others in the sections of their kinds."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from calibration.context.model import Cache
from calibration.report import charts, filters
from calibration.report.charts import HALF, Chart
from calibration.results.model import Measurement, RunDocument
from calibration.results.readings import Reading

FOLDER: Final = "figures"
"""Where charts lie, relative to their page."""


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
        self._caches: Sequence[Cache] = () if document.context is None else document.context.parsed.caches
        self._by_kind: dict[str, list[Measurement]] = {}
        for each in document.measurements:
            self._by_kind.setdefault(each.kind, []).append(each)
        self._shown: set[str] = set()

    def keep(self, chart: Chart | None) -> Placed | None:
        """Draw *chart*, and return where it is; ``None`` where there is nothing to draw."""
        if chart is None:
            return None
        path = f"{FOLDER}/{filters.slug(chart.name)}"
        if f"{path}.svg" in self.files:
            raise ValueError(f"two charts are named {path}")
        picture = charts.picture(chart)
        self.files[f"{path}.svg"] = picture.light
        self.files[f"{path}-dark.svg"] = picture.dark
        self.files[f"{path}.vl.json"] = json.dumps(chart.spec, ensure_ascii=False, separators=(",", ":")) + "\n"
        return Placed(f"{path}.svg", chart.alt, chart.caption)

    def first_screen(self) -> list[Placed]:
        """Return the charts of the first screen: memory by distance, memory under load, gaps, and the nodes."""
        found: list[Placed] = []
        for kinds, draw in FIRST.items():
            measured = [self._by_kind.get(kind, []) for kind in kinds]
            placed = self.keep(draw(self, measured, HALF)) if any(measured) else None
            if placed is not None:
                self._shown.update(kinds)
                found.append(placed)
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

    # Kinds

    def ladder(self, measured: Sequence[Sequence[Measurement]], width: int) -> Chart | None:
        """Latency against size."""
        return charts.latency_ladder(measured[0], self._caches, width=width)


def _first(measured: Sequence[Measurement]) -> Measurement | None:
    return measured[0] if measured else None


MOST: Final = 4

FIRST: Final[Mapping[tuple[str, ...], Callable[[Charts, Sequence[Sequence[Measurement]], int], Chart | None]]] = {
    ("latency_ladder",): Charts.ladder,
    ("loaded_latency",): lambda _, found, width: charts.loaded_latency(found[0][0], width=width),
    ("jitter",): lambda _, found, width: charts.gaps(found[0], width=width),
    ("latency_matrix", "bandwidth_matrix"): lambda _, found, width: charts.numa(*map(_first, found), width=width),
}
"""The charts of the first screen by the kinds they show, in order; the first ``MOST`` that have something to show."""

DRAWN: Final[Mapping[str, Callable[[Charts, Sequence[Measurement]], Iterable[Chart | None]]]] = {}
"""The charts of each kind in its section."""

READ: Final[Mapping[str, Callable[[Reading], Chart | None]]] = {
    "latency_matrix": charts.read_matrix,
    "bandwidth_matrix": charts.read_matrix,
    "loaded_latency": charts.read_load,
}
"""The charts of kinds whose figures were read in a text."""
