# SPDX-License-Identifier: Apache-2.0
"""The newest run of each SUT and its state, as text for Prometheus.

The text is OpenMetrics 1.0 and also the Prometheus text format that node_exporter's textfile collector and ``promtool``
read: all metrics are gauges without timestamps, and ``# UNIT`` and ``# EOF`` are comments to the older format.

CPUs have no label: of a metric of each CPU, the worst CPU counts. A nightly run of a SUT with N memory nodes has about
150 + 4 N^2 samples, whatever its number of CPUs.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, get_args

from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.exposition import generate_latest

from calibration.base.gc_pause import paused_collector
from calibration.exports.families import PREFIX, WORST_OF, Family, family_of
from calibration.exports.history import valid_metrics
from calibration.judge.answer import State
from calibration.judge.night import Judgement, judge_newest
from calibration.judge.verdicts import Check
from calibration.results.history import Sut

TIME: Final = f"{PREFIX}_measurement_timestamp_seconds"

Labels = tuple[tuple[str, str], ...]


class _Gauges(defaultdict[tuple[str, str, str], dict[Labels, float]]):
    """Samples by labels, of each family by its name, unit and meaning."""

    def collect(self) -> Iterator[Metric]:
        """Yield the families, sorted."""
        for (name, unit, meaning), samples in sorted(self.items()):
            family = Metric(name, meaning, "gauge", unit)
            for labels, value in sorted(samples.items()):
                family.add_sample(name, dict(labels), value)
            yield family


@paused_collector()
def openmetrics(results: Path, left_out: Callable[[str], None]) -> str:
    """Return the text for the newest run of each SUT in *results*; tell *left_out* which metrics it lacks, and why.

    Raises like ``read_history``.
    """
    judgement = judge_newest(results)
    gauges = _Gauges(dict)
    if judgement is not None:
        with valid_metrics(results, left_out, newest_of=_add_states(gauges, judgement)) as db:
            rows = db.execute("SELECT testbed, sut, metric, value, epoch(measured_at) FROM valid").fetchall()
        for testbed, sut, metric, value, when in rows:
            if family := family_of(metric):
                _add_value(gauges, (testbed, sut), family, value * family.factor, when)
    text: bytes = generate_latest(gauges)  # type: ignore[no-untyped-call] # the library does not declare it
    return text.decode()


def _add_states(gauges: _Gauges, judgement: Judgement) -> set[Sut]:
    """Add the states and failures of all SUTs; return the SUTs that are not gone."""
    failed = Counter(
        (verdict.testbed, verdict.sut, verdict.check) for verdict in judgement.verdicts if verdict.outcome == "fail"
    )
    present = set()
    for answer in judgement.answers:
        sut = answer.testbed, answer.sut
        own: Labels = (("testbed", answer.testbed), ("sut", answer.sut))
        if answer.state != "gone":
            present.add(sut)
        for state in get_args(State):
            meaning = "1 for the state of the SUT on the newest night, 0 for the others"
            gauges[f"{PREFIX}_sut_state", "", meaning][*own, ("state", state)] = float(state == answer.state)
        for check in get_args(Check):
            meaning = "verdicts that fail on the newest night"
            gauges[f"{PREFIX}_failed_verdicts", "", meaning][*own, ("check", check)] = float(failed[*sut, check])
    return present


def _add_value(gauges: _Gauges, sut: Sut, family: Family, value: float, when: float) -> None:
    """Add a *value* of *sut*, unless another CPU has a worse one, and *when* it was measured, in Unix time."""
    own: Labels = (("testbed", sut[0]), ("sut", sut[1]))
    labels = (*own, *(pair for pair in family.labels if pair[0] != WORST_OF))
    meaning = f"{family.meaning}, on the worst CPU" if WORST_OF in family.labelled else family.meaning
    worst = max if family.better == "lower" else min
    samples = gauges[family.name, family.unit, meaning]
    samples[labels] = worst(samples.get(labels, value), value)
    of_kind = (*own, ("kind", family.kind))
    times = gauges[TIME, "seconds", "when the SUT's newest metrics of this kind were measured"]
    times[of_kind] = max(times.get(of_kind, when), when)
