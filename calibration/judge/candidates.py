# SPDX-License-Identifier: Apache-2.0
"""Changes in the calibrations of SUTs that may have moved their throughput: of metrics, and of facts."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

import numpy as np

from calibration.base.errors import InputError
from calibration.judge.causes import INSTRUMENT, context_changes
from calibration.judge.detector import Walk
from calibration.judge.events import SAME_NIGHT
from calibration.judge.kept_walks import KeptWalks
from calibration.judge.lasting import Standing, standing_of
from calibration.judge.throughput import bound_of, significant
from calibration.judge.tolerances import FILE as TOLERANCES_FILE
from calibration.judge.tolerances import Tolerances, read_tolerances
from calibration.results.history import History, NightRun, Sut
from calibration.results.index import read_history

MIN_TOLERANCE: Final = 1e-4
"""Tolerance of metrics whose tolerance is set to 0, for their strength."""

Kind = Literal["metric", "fact"]


class Candidate(NamedTuple):
    """A change in the calibration of ``sut``, after the run of the night ``before`` and up to that of ``night``.

    ``what`` is a metric, with its relative change in ``size``, or a fact, with its ``old`` and ``new`` text.
    ``direction`` is 1 for the better, or from the text that sorts first; else -1. ``strength`` is in tolerances.
    """

    sut: Sut
    kind: Kind
    what: str
    before: date
    night: date
    direction: int
    strength: float
    size: float | None = None
    old: str | None = None
    new: str | None = None

    @property
    def family(self) -> tuple[Kind, str, frozenset[str | None]]:
        """What it is compared with at other SUTs and on other nights: the metric, or the fact between the two texts."""
        return self.kind, self.what, frozenset((self.old, self.new))


class Calibration(NamedTuple):
    """Changes in the calibration by SUT, its first and last night, the SUTs as they are, and the lab's tolerances."""

    candidates: Mapping[Sut, Sequence[Candidate]]
    nights: Mapping[Sut, tuple[date, date]]
    standing: Mapping[Sut, Standing] = MappingProxyType({})
    tolerances: Tolerances = Tolerances()


def read_calibration(results: Path, suts: Iterable[Sut], flipping: Collection[Sut]) -> Calibration:
    """Return the calibration of *suts*, read one testbed at a time: a lab's values need much memory.

    What flips is looked for at the SUTs in *flipping* only. Raises ``InputError`` if the lab's tolerances are invalid.
    """
    tolerances = read_tolerances(results)
    if tolerances.fault is not None:
        raise InputError(f"{results / TOLERANCES_FILE}: {tolerances.fault}")
    wanted: dict[str, set[str]] = {}
    for testbed, sut in suts:
        wanted.setdefault(testbed, set()).add(sut)
    candidates: dict[Sut, Sequence[Candidate]] = {}
    nights: dict[Sut, tuple[date, date]] = {}
    standing: dict[Sut, Standing] = {}
    walks = KeptWalks(results)
    for testbed, own in sorted(wanted.items()):
        history = read_history(results, testbed=testbed)
        found = candidates_of(history, own, tolerances, walks.run)
        candidates |= found
        standing |= standing_of(history, own, flipping)
        nights |= {sut: (min(history.runs[sut]), max(history.runs[sut])) for sut in found}
    return Calibration(candidates, nights, standing, tolerances)


def candidates_of(
    history: History, names: set[str], tolerances: Tolerances, run: Callable[[Walk], None] = Walk.run
) -> dict[Sut, Sequence[Candidate]]:
    """Return the changes in *history* of its SUTs with *names*; those without a run are left out.

    *run* runs the detector.
    """
    metrics = _metrics(history, names, tolerances, run)
    found: dict[Sut, Sequence[Candidate]] = {}
    for sut, runs in history.runs.items():
        if sut[1] in names:
            facts = list(_facts(runs))
            instrument = [item.night for item in facts if item.what == INSTRUMENT]
            own = [one for one in metrics.get(sut, ()) if not any(_together(one.night, night) for night in instrument)]
            found[sut] = [*_with_strength(facts, own), *own]
    return found


def _metrics(
    history: History, names: set[str], tolerances: Tolerances, run: Callable[[Walk], None]
) -> dict[Sut, list[Candidate]]:
    """Return the significant changes of the level of all metrics, by SUT."""
    rows = [row for row, series in enumerate(history.series) if series.sut in names]
    values = history.values[rows]
    bound = bound_of(int(np.isfinite(values).sum()))
    found: dict[Sut, list[Candidate]] = {}
    for row, own, changes in zip(rows, values, significant(values, bound, run), strict=True):
        series = history.series[row]
        for item in changes:
            before = int(np.flatnonzero(np.isfinite(own[: item.column]))[-1])
            candidate = Candidate(
                sut=(series.testbed, series.sut),
                kind="metric",
                what=series.metric,
                before=history.nights[before],
                night=history.nights[item.column],
                direction=1 if (item.size > 0.0) == (series.better == "higher") else -1,
                strength=abs(item.size) / max(tolerances.fraction(series.metric), MIN_TOLERANCE),
                size=item.size,
            )
            found.setdefault(candidate.sut, []).append(candidate)
    return found


def _facts(runs: Mapping[date, NightRun]) -> Iterator[Candidate]:
    """Yield the facts that changed from one run of a SUT to its next, without those unknown before or after."""
    known = [runs[night] for night in sorted(runs) if runs[night].facts]
    for before, after in pairwise(known):
        for item in () if before.facts is after.facts else context_changes(before, after):
            if item.before is not None and item.after is not None:
                yield Candidate(
                    sut=(after.testbed, after.sut),
                    kind="fact",
                    what=item.fact,
                    before=before.night,
                    night=after.night,
                    direction=1 if item.before < item.after else -1,
                    strength=0.0,
                    old=item.before,
                    new=item.after,
                )


def _with_strength(facts: Sequence[Candidate], metrics: Sequence[Candidate]) -> Iterator[Candidate]:
    """Yield *facts* of the SUT, each as strong as what moved with it.

    A change that moved the machine is a better candidate than one that moved nothing.
    """
    for fact in facts:
        if fact.what != INSTRUMENT:
            strength = max((item.strength for item in metrics if _together(item.night, fact.night)), default=0.0)
            yield fact._replace(strength=strength)


def _together(one: date, other: date) -> bool:
    return abs(one - other) <= SAME_NIGHT
