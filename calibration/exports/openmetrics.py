# SPDX-License-Identifier: Apache-2.0
"""The newest run of each SUT and its state, as text for Prometheus.

The text is OpenMetrics 1.0 and also the Prometheus text format that node_exporter's textfile collector and ``promtool``
read: all metrics are gauges without timestamps, and ``# UNIT`` and ``# EOF`` are comments to the older format.

CPUs are not told apart: of a metric of each CPU the worst is given. A nightly run of a SUT with N memory nodes so has
about 150 + 4 N^2 samples, whatever its number of CPUs.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Final, get_args

from calibration.exports.families import PREFIX, Family, family_of
from calibration.exports.history import Record, records
from calibration.judge.state import State
from calibration.judge.verdicts import Check
from calibration.report.tonight import Nights, read_nights, standings
from calibration.results.history import Sut
from calibration.results.index import open_index

WORST_OF: Final = "cpu"
"""Label whose worst value represents all: a lab of 100 SUTs with 504 CPUs would have 150,000 samples of it."""

Labels = tuple[tuple[str, str], ...]


class _Gauge:
    """A metric family: its description, and its samples by labels."""

    def __init__(self, unit: str) -> None:
        self.unit = unit
        self.meanings: dict[str, None] = {}
        self.samples: dict[Labels, float] = {}

    def lines(self, name: str) -> Iterator[str]:
        """Yield the lines of the family *name*."""
        yield f"# HELP {name} {_escaped('; '.join(sorted(self.meanings)))}"
        yield f"# TYPE {name} gauge"
        if self.unit:
            yield f"# UNIT {name} {self.unit}"
        for labels, value in sorted(self.samples.items()):
            pairs = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
            yield f"{name}{{{pairs}}} {value!r}"


class _Gauges(dict[str, _Gauge]):
    def add(self, name: str, unit: str, meaning: str, labels: Labels, value: float) -> None:
        """Add a sample to the family *name*."""
        gauge = self.setdefault(name, _Gauge(unit))
        gauge.meanings[meaning] = None
        gauge.samples[labels] = value


def openmetrics(results: Path, left_out: Callable[[str], None]) -> str:
    """Return the text for the newest run of each SUT in *results*; tell *left_out* which metrics it lacks, and why.

    Raises like ``read_history``.
    """
    nights = read_nights(results)
    gauges = _Gauges()
    if nights is not None:
        present = _add_states(gauges, nights)
        with open_index(results) as db:
            _add_records(gauges, records(db, newest=True), present, left_out)
    lines = [line for name in sorted(gauges) for line in gauges[name].lines(name)]
    return "\n".join((*lines, "# EOF", ""))


def _add_states(gauges: _Gauges, nights: Nights) -> set[Sut]:
    """Add the states and failures of all SUTs; return the SUTs that are not gone."""
    present = set()
    for standing in standings(nights):
        sut = (standing.testbed, standing.sut)
        own: Labels = (("testbed", sut[0]), ("sut", sut[1]))
        if standing.state != "gone":
            present.add(sut)
        for state in get_args(State):
            labels = (*own, ("state", state))
            meaning = "1 for the state of the SUT on the newest night, 0 for the others"
            gauges.add(f"{PREFIX}_sut_state", "", meaning, labels, float(state == standing.state))
        failed = Counter(verdict.check for verdict in nights.of_sut.get(sut, ()) if verdict.outcome == "fail")
        for check in get_args(Check):
            meaning = "verdicts that fail on the newest night"
            gauges.add(f"{PREFIX}_failed_verdicts", "", meaning, (*own, ("check", check)), float(failed[check]))
    return present


def _add_records(gauges: _Gauges, found: Iterable[Record], present: set[Sut], left_out: Callable[[str], None]) -> None:
    """Add the metrics of the SUTs *present*, and when they were measured."""
    for record in found:
        sut, family = (record.testbed, record.sut), family_of(record.metric)
        if sut not in present:
            continue
        own: Labels = (("testbed", sut[0]), ("sut", sut[1]))
        if record.value is None:
            left_out(f"{'/'.join(sut)}: {record.metric} left out: {record.reason}")
        elif family is None:
            left_out(f"{'/'.join(sut)}: {record.metric} left out: this version has no such metric")
        else:
            _add_metric(gauges, family, own, record.value)
            _add_time(gauges, family, own, record.measured_at)


def _add_metric(gauges: _Gauges, family: Family, own: Labels, value: float) -> None:
    labels = (*own, *(pair for pair in family.labels if pair[0] != WORST_OF))
    value *= family.factor
    meaning = family.meaning
    if len(labels) < len(own) + len(family.labels):
        meaning += ", on the worst CPU"
    known = gauges[family.name].samples.get(labels, value) if family.name in gauges else value
    worst = max(known, value) if family.better == "lower" else min(known, value)
    gauges.add(family.name, family.unit, meaning, labels, worst)


def _add_time(gauges: _Gauges, family: Family, own: Labels, when: datetime) -> None:
    name, labels = f"{PREFIX}_measurement_timestamp_seconds", (*own, ("kind", family.kind))
    known = gauges[name].samples.get(labels, 0.0) if name in gauges else 0.0
    gauges.add(
        name,
        "seconds",
        "when the SUT's newest metrics of this kind were measured",
        labels,
        max(known, when.timestamp()),
    )


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
