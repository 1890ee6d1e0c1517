# SPDX-License-Identifier: Apache-2.0
"""The result of ``sutprobe selftest``."""

from typing import Literal

from calibration.model import Model
from calibration.sutprobe.document import ProbeError
from calibration.sutprobe.tracing import TracedCause, TracedRest, Unexplained


class SelftestCase(Model):
    """One known answer: ``error`` says why it did not come out, or could not be asked; ``note`` what was found."""

    name: str
    passed: bool
    error: ProbeError | None
    note: str | None


class InjectedTrain(Model):
    """Interruptions made on purpose, every ``period_ns`` for ``busy_ns``, and what the gap loop made of them.

    ``in_gaps`` lie inside a recorded gap, ``alone`` without another; the cost of an empty one is subtracted from
    ``found_median_ns``. 0 where nothing was found; ``reason`` says why a train was not found or not judged.
    """

    mechanism: str
    busy_ns: float
    period_ns: float
    injected: int
    in_gaps: int
    alone: int
    found_median_ns: float
    overhead_ns: float
    overhead_spread_ns: float
    found_period_ns: float
    found_period_gaps: int
    verdict: Literal["found", "inconclusive", "missed"]
    reason: str | None


class Plant(Model):
    """A disturbance made on purpose, and what tracing found under its name; ``planted_ns`` where its time is known."""

    planted: str
    planted_events: int
    planted_ns: float | None
    found_events: int
    found_ns: float


class Plantings(Model):
    """What was planted on one CPU, and everything that the tracing found there."""

    cpu: int
    wall_s: float
    plants: tuple[Plant, ...]
    other_threads_share: float
    told_gaps: int
    told_ns: float
    causes: tuple[TracedCause, ...]
    edges: TracedRest
    unexplained: Unexplained


class SelftestResult(Model):
    """Result of ``sutprobe selftest``, in the order the cases ran in."""

    cases: tuple[SelftestCase, ...]
    injections: tuple[InjectedTrain, ...]
    plantings: Plantings | None
