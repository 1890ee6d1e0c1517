# SPDX-License-Identifier: Apache-2.0
"""Judgement of a run: valid first, then complete, then within bounds."""

from collections.abc import Iterable, Iterator

from calibration.measurements import declaration
from calibration.results.model import Measurement, Verdict


def judge(measurements: Iterable[Measurement]) -> Iterator[Verdict]:
    """Yield one verdict per headline metric.

    An invalid figure is not compared with anything. A valid one without a reference is said to have none: that is no
    pass.
    """
    for measurement in measurements:
        invalid = [each.reason for each in measurement.validity.flags if each.severity == "invalid"]
        for metric in declaration(measurement.kind).metrics(measurement.values):
            yield Verdict(
                metric=metric,
                lower=None,
                upper=None,
                reference_runs=(),
                outcome="invalid" if invalid else "no_reference",
                reason="; ".join(invalid) or "no reference has been accepted for this SUT",
            )
