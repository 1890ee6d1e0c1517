# SPDX-License-Identifier: Apache-2.0
"""Placement of charts: four on the first screen, the others in the sections of their kinds."""

from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from operator import attrgetter
from typing import Final

from calibration.charts.base import HALF, WIDE, Chart
from calibration.charts.curves import Published
from calibration.formats.readings import Reading
from calibration.measurements import registry
from calibration.measurements.base import MeasuredRun
from calibration.report.pictures import keep
from calibration.report.reading_charts import reading_chart
from calibration.results.model import RunDocument

MAX_CHARTS: Final = 4
"""Maximum number of charts on the first screen."""


class Charts:
    """The charts of one page, with *published* curves; ``files`` has their pictures and specifications by path."""

    def __init__(self, document: RunDocument, published: Published = Published()) -> None:  # noqa: B008 - immutable
        self.files: dict[str, str] = {}
        by_kind = attrgetter("kind")
        self._run = MeasuredRun(
            {kind: list(found) for kind, found in groupby(sorted(document.measurements, key=by_kind), by_kind)},
            None if document.context is None else document.context.parsed,
            published,
        )
        self._first: set[str] = set()
        self._main: dict[tuple[str, int], Chart | None] = {}

    def first_screen(self) -> list[Chart]:
        """Return the charts of the first screen: the highest ranks that have data."""
        ranked = [item for item in registry().values() if item.main_chart_rank is not None and self._run.of(item.kind)]
        ranked.sort(key=attrgetter("main_chart_rank"))
        drawn = (self._main_chart(declaration.kind, HALF) for declaration in ranked)
        first = [keep(self.files, chart) for chart in islice(filter(None, drawn), MAX_CHARTS)]
        self._first = {chart.name for chart in first}
        return first

    def of(self, kinds: Iterable[str]) -> Iterator[Chart]:
        """Yield the charts of *kinds* that are not on the first screen."""
        for kind in kinds:
            for chart in self.drawn(kind, HALF):
                if chart.name not in self._first:
                    yield keep(self.files, chart)

    def drawn(self, kind: str, width: int = WIDE) -> Iterator[Chart]:
        """Yield all charts of *kind*, the main one at *width*, without adding files."""
        if self._run.of(kind):
            yield from filter(None, (self._main_chart(kind, width), *registry()[kind].charts(self._run)))

    def _main_chart(self, kind: str, width: int) -> Chart | None:
        """Return the main chart of *kind*; the first screen and the section of its kind share it."""
        if (kind, width) not in self._main:
            self._main[kind, width] = registry()[kind].main_chart(self._run, width)
        return self._main[kind, width]

    def read(self, reading: Reading) -> Chart | None:
        """Return the chart of an imported reading."""
        chart = reading_chart(reading)
        return None if chart is None else keep(self.files, chart)
