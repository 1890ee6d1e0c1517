# SPDX-License-Identifier: Apache-2.0
"""The standing of one run: the answer on its SUT as known on its night, and its metrics within their limits.

It follows from the run's document and the results that it is in.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from math import isfinite
from pathlib import Path
from typing import NamedTuple

from calibration.judge.answer import Answer, answer_of
from calibration.judge.causes import fact_of
from calibration.judge.judged import JudgedNights
from calibration.judge.night import judge_alone, judge_testbed
from calibration.judge.since import Since, changes_since
from calibration.judge.verdicts import NightVerdict
from calibration.results.history import Sut
from calibration.results.layout import RUN
from calibration.results.model import MetricsDocument, RunDocument
from calibration.results.nights import night_of
from calibration.results.store import read_run


class Standing(NamedTuple):
    """The answer on a SUT, the verdicts on the limits of its metrics, and its peers' values of headline metrics.

    Both are by the name of the metric. Peers are the testbed's other SUTs with the same processor. ``since`` has the
    changes of headline metrics and of the configuration since the last night and since accepted, as far as there are.
    """

    answer: Answer
    limits: Mapping[str, NightVerdict]
    peers: Mapping[str, tuple[float, ...]]
    since: tuple[Since, ...]


class Standings:
    """Standings of runs: those of one testbed and night share what is read.

    Without *peers*, only the SUT's own nights are.
    """

    def __init__(self, *, peers: bool = True) -> None:
        self._peers = peers
        self._read: dict[tuple[Path, str, str | None, date | None], JudgedNights] = {}

    def of(self, run: Path, document: RunDocument) -> Standing | None:
        """Return the standing of *document*, that of the *run* directory; ``None`` for an import.

        A run outside of a directory of results is judged alone. Raises like ``read_history``.
        """
        if document.imported is not None:
            return None
        return standing_in(self._nights(run.resolve(), document), document)

    def answer(self, run: Path) -> Answer:
        """Return the answer on the SUT of the *run* directory in results; its document is read only to judge it alone.

        Raises like ``read_history`` and ``read_run``.
        """
        night = night_of(run.name)
        nights = None if night is None else self._known(run.resolve(), night)
        return answer_of(nights or judge_alone(read_run(run)), (run.parent.parent.name, run.parent.name))

    def _nights(self, run: Path, document: RunDocument) -> JudgedNights:
        directory = run.parent if run.name == RUN else run
        named = document.run
        if directory.parts[-3:] != (named.testbed, named.sut, named.id):
            return judge_alone(document)
        return self._known(directory, night_of(named.id) or named.started_at.date()) or judge_alone(document)

    def _known(self, directory: Path, night: date) -> JudgedNights | None:
        """Return the nights that the run in *directory* is in; ``None`` if its SUT has none that *night*."""
        testbed, sut, _ = directory.parts[-3:]
        key = (directory.parents[2], testbed, None if self._peers else sut, night)
        if key not in self._read:
            self._read = {key: judge_testbed(key[0], testbed, sut=key[2], night=night)}
        nights = self._read[key]
        return nights if nights.night == night and (testbed, sut) in nights.of_sut else None


def by_night(runs: Iterable[Path]) -> list[Path]:
    """Return the directories *runs* by testbed and night: those of one night share what is read."""
    return sorted(runs, key=lambda run: (run.parent.parent, run.name))


def standing_in(nights: JudgedNights, document: RunDocument) -> Standing:
    """Return the standing of the SUT of *document* in *nights*."""
    return standing_of(nights, (document.run.testbed, document.run.sut), headlines_of(document))


def headlines_of(document: RunDocument | MetricsDocument) -> tuple[str, ...]:
    """Return the names of the headline metrics of *document*."""
    return tuple(item.metric.name for item in document.record)


def standing_of(nights: JudgedNights, sut: Sut, headlines: Sequence[str]) -> Standing:
    """Return the standing of *sut* in *nights* by its run with the metrics *headlines*."""
    limits = {verdict.metric: verdict for verdict in nights.of_sut.get(sut, ()) if verdict.check == "limits"}
    since = tuple(changes_since(nights, sut, headlines))
    return Standing(answer_of(nights, sut), limits, dict(_peers(nights, sut, headlines)), since)


def _peers(nights: JudgedNights, sut: Sut, headlines: Sequence[str]) -> Iterator[tuple[str, tuple[float, ...]]]:
    own = nights.newest(sut)
    processor = None if own is None else fact_of(own, "processor")
    others = [
        other
        for other in nights.history.runs
        if other[0] == sut[0] and other != sut and processor is not None
        if (run := nights.newest(other)) is not None and fact_of(run, "processor") == processor
    ]
    for name in headlines:
        rows = [row for other in others if (row := nights.rows.get((*other, name))) is not None]
        values = [value for row in rows if isfinite(value := float(nights.history.values[row, -1]))]
        if values:
            yield name, tuple(sorted(values))
