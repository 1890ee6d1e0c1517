# SPDX-License-Identifier: Apache-2.0
"""Tolerances: how far two metrics may differ before it matters.

A lab's own tolerances in ``<results>/references/tolerances.yml`` override those of the metrics' rows.
"""

import fnmatch
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from pydantic import Field

from calibration.base.errors import InputError
from calibration.base.model import Model
from calibration.judge.entries import Line, read_entries
from calibration.judge.verdicts import Outcome
from calibration.judge.words import share
from calibration.measurements import row_of
from calibration.results.history import Series
from calibration.results.layout import REFERENCES

FILE: Final = f"{REFERENCES}/tolerances.yml"
"""A lab's own tolerances, relative to the results."""


class OwnTolerance(Model):
    """One entry of a lab's file; ``metrics`` is a pattern such as ``core_frequency.*``.

    With ``improvements_fail``, a change for the better fails too.
    """

    metrics: Line
    fraction: Annotated[float, Field(ge=0, lt=1)]
    improvements_fail: bool = False
    reason: Line


class Move(NamedTuple):
    """What a move of a series is: ``why`` ends the reason if it does not fail; ``better`` if it is noted as such."""

    outcome: Outcome
    why: str = ""
    better: bool = False


class Tolerances:
    """A lab's own tolerances (the first match applies), then those of the rows.

    *fault* is why the lab's file cannot be read; then only those of the rows apply.
    """

    def __init__(self, own: Iterable[OwnTolerance] = (), fault: str | None = None) -> None:
        self.fault = fault
        compiled = tuple((re.compile(fnmatch.translate(item.metrics)), item) for item in own)

        @cache
        def find(metric: str) -> OwnTolerance | None:
            return next((item for pattern, item in compiled if pattern.match(metric)), None)

        self._own = find
        self.fraction = cache(self._fraction)

    def _fraction(self, metric: str) -> float:
        """Return how far metrics named *metric* may differ, relatively."""
        own = self._own(metric)
        return row_of(metric).tolerance.fraction if own is None else own.fraction

    def classify_change(self, series: Series, before: float, after: float) -> Move:
        """Return whether a move of *series* from *before* to *after* fails, and if not, why."""
        fraction = self.fraction(series.metric)
        if abs(after - before) <= fraction * abs(before):
            return Move("noted", tolerated(fraction))
        return self._unless_better(series, better=(after > before) == (series.better == "higher"))

    def classify_spread(self, series: Series, before: float, after: float) -> Move:
        """Return the same for a relative standard deviation."""
        fraction = self.fraction(series.metric)
        if 2 * after <= fraction:
            return Move("noted", tolerated(fraction))
        return self._unless_better(series, better=after < before)

    def _unless_better(self, series: Series, *, better: bool) -> Move:
        own = self._own(series.metric)
        noted = better and not (own and own.improvements_fail)
        return Move("noted", "; better", better=True) if noted else Move("fail")


def tolerated(fraction: float) -> str:
    """Return the end of a reason: a change within the tolerance *fraction*."""
    return f"; within the tolerance of {share(fraction)}"


def read_tolerances(results: Path) -> Tolerances:
    """Return the tolerances of the lab of *results*; those of the rows if there is no file.

    An invalid file yields only a fault that names the line.
    """
    try:
        return Tolerances(own for _, own in read_entries(results, FILE, OwnTolerance, "tolerance"))
    except FileNotFoundError:
        return Tolerances()
    except InputError as error:
        return Tolerances(fault=str(error).removeprefix(f"{results / FILE}: "))
