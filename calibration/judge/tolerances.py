# SPDX-License-Identifier: Apache-2.0
"""Tolerances: how far two metrics may differ before it matters.

A lab's own tolerances in ``<results>/references/tolerances.yml`` override those of the metrics' rows. They may be those
of a preset by its name (``tolerance_presets.yml``).
"""

import fnmatch
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import Field, model_validator

from calibration.base.errors import InputError
from calibration.base.files import read_regular
from calibration.base.model import Model
from calibration.base.parsers import YAML_BYTES, read_yaml
from calibration.judge.entries import Line, read_entries
from calibration.judge.verdicts import Outcome
from calibration.judge.words import share
from calibration.measurements import row_of
from calibration.results.history import Series
from calibration.results.layout import REFERENCES

FILE: Final = f"{REFERENCES}/tolerances.yml"
"""A lab's own tolerances, relative to the results."""

PRESETS: Final = Path(__file__).with_name("tolerance_presets.yml")
"""Tolerances of public documents, by name."""

PEERS: Final = "homogeneity"
"""The check that compares a SUT with its peers, which may have tolerances of its own."""


class OwnTolerance(Model):
    """One entry of a lab's file; ``metrics`` is a pattern such as ``core_frequency.*``.

    With ``improvements_fail``, a change for the better fails too. With ``check``, it is for this check only.
    """

    metrics: Line
    fraction: Annotated[float, Field(ge=0, lt=1)]
    improvements_fail: bool = False
    check: Literal["homogeneity"] | None = None
    reason: Line

    @model_validator(mode="before")
    @classmethod
    def _of_preset(cls, given: Any) -> Any:
        if not isinstance(given, Mapping) or "preset" not in given:
            return given
        name, known = given["preset"], presets()
        if len(given) > 1 or name not in known:
            raise ValueError(f"expected preset: {' or '.join(known)}, nothing else")
        return known[name]


@cache
def presets() -> dict[str, Any]:
    """Return the presets by name, as in their file."""
    found: dict[str, Any] = read_yaml(read_regular(PRESETS, YAML_BYTES, below=PRESETS.parent))
    return found


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
        def find(metric: str, check: str | None = None) -> OwnTolerance | None:
            return next((own for form, own in compiled if own.check in (None, check) and form.match(metric)), None)

        self._own = find
        self.fraction = cache(self._fraction)

    def _fraction(self, metric: str, check: str | None = None) -> float:
        """Return how far metrics named *metric* may differ, relatively, in a *check* that may have its own."""
        own = self._own(metric, check)
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
