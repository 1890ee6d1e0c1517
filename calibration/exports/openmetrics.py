# SPDX-License-Identifier: Apache-2.0
"""The newest run of each SUT and its state, as text for Prometheus.

The text is OpenMetrics 1.0 and also the Prometheus text format that node_exporter's textfile collector and ``promtool``
read: all metrics are gauges without timestamps, and ``# UNIT`` and ``# EOF`` are comments to the older format.

CPUs have no label: of a metric of each CPU, the worst CPU counts. A nightly run of a SUT with N memory nodes has about
150 + 4 N^2 samples, whatever its number of CPUs.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, get_args

from calibration.exports.families import PREFIX
from calibration.exports.history import Value, values
from calibration.judge.state import State
from calibration.judge.verdicts import Check
from calibration.report.lab_status import NightlyHistory, read_nights, standings
from calibration.results.history import Sut

WORST_OF: Final = "cpu"
"""Label whose worst value represents all: a lab of 100 SUTs with 504 CPUs would have 150,000 samples of it."""

TIME: Final = f"{PREFIX}_measurement_timestamp_seconds"

Labels = tuple[tuple[str, str], ...]


class _Gauge:
    """A metric family: its description, and its samples by labels."""

    def __init__(self, unit: str, meaning: str) -> None:
        self.unit = unit
        self.meaning = meaning
        self.samples: dict[Labels, float] = {}

    def lines(self, name: str) -> Iterator[str]:
        """Yield the lines of the family *name*."""
        yield f"# HELP {name} {_escaped(self.meaning)}"
        yield f"# TYPE {name} gauge"
        if self.unit:
            yield f"# UNIT {name} {self.unit}"
        for labels, value in sorted(self.samples.items()):
            pairs = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
            yield f"{name}{{{pairs}}} {value!r}"


class _Gauges(dict[str, _Gauge]):
    def add(self, name: str, unit: str, meaning: str, labels: Labels, value: float) -> None:
        """Add a sample to the family *name*."""
        self.setdefault(name, _Gauge(unit, meaning)).samples[labels] = value


def openmetrics(results: Path, left_out: Callable[[str], None]) -> str:
    """Return the text for the newest run of each SUT in *results*; tell *left_out* which metrics it lacks, and why.

    Raises like ``read_history``.
    """
    nights = read_nights(results)
    gauges = _Gauges()
    if nights is not None:
        for item in values(results, left_out, newest_of=_add_states(gauges, nights)):
            _add_value(gauges, item)
    lines = [line for name in sorted(gauges) for line in gauges[name].lines(name)]
    return "\n".join((*lines, "# EOF", ""))


def _add_states(gauges: _Gauges, nights: NightlyHistory) -> set[Sut]:
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


def _add_value(gauges: _Gauges, item: Value) -> None:
    """Add a metric, unless another CPU has a worse one, and when it was measured."""
    family, own = item.family, (("testbed", item.testbed), ("sut", item.sut))
    labels: Labels = (*own, *(pair for pair in family.labels if pair[0] != WORST_OF))
    meaning = f"{family.meaning}, on the worst CPU" if WORST_OF in family.labelled else family.meaning
    worst = max if family.better == "lower" else min
    known = gauges[family.name].samples.get(labels, item.value) if family.name in gauges else item.value
    gauges.add(family.name, family.unit, meaning, labels, worst(known, item.value))
    labels, when = (*own, ("kind", family.kind)), item.measured_at.timestamp()
    known = gauges[TIME].samples.get(labels, when) if TIME in gauges else when
    meaning = "when the SUT's newest metrics of this kind were measured"
    gauges.add(TIME, "seconds", meaning, labels, max(known, when))


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
