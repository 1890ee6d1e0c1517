# SPDX-License-Identifier: Apache-2.0
"""One series of a SUT on the night that is judged, and its verdicts."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from math import isfinite
from typing import Any

from calibration.judge.verdicts import Check, NightVerdict, Outcome
from calibration.results.history import History, Series


@dataclass(frozen=True)
class SeriesNight:
    """State of one series on ``night``; missing values are ``None``.

    ``index`` is its row in the history, -1 if it has none; ``run_id`` the SUT's run of the night.
    """

    series: Series
    night: date
    run_id: str | None
    value: float | None = None
    interval: tuple[float, float] | None = None
    index: int = -1

    def verdict(self, check: Check, outcome: Outcome, reason: str, **fields: Any) -> NightVerdict:
        """Return a verdict with more *fields*."""
        return NightVerdict(
            testbed=self.series.testbed,
            sut=self.series.sut,
            run_id=self.run_id,
            night=self.night,
            metric=self.series.metric,
            check=check,
            outcome=outcome,
            reason=reason,
            **fields,
        )

    def verdict_on_value(self, check: Check, outcome: Outcome, reason: str, **fields: Any) -> NightVerdict:
        """Return a verdict on the value of the night."""
        value = {"value": self.value, "unit": self.series.unit, "interval": self.interval}
        return self.verdict(check, outcome, reason, **value, **fields)


def rows_of(history: History, indices: Sequence[int], run_id: str | None) -> list[SeriesNight]:
    """Return the rows of the last night of *history* at *indices*, whose SUT made the run *run_id*."""
    rows = []
    for index in indices:
        value, low, high = (float(items[index, -1]) for items in (history.values, history.low, history.high))
        rows.append(
            SeriesNight(
                history.series[index],
                history.nights[-1],
                run_id,
                value=value if isfinite(value) else None,
                interval=(low, high) if isfinite(low) and isfinite(high) else None,
                index=index,
            )
        )
    return rows
