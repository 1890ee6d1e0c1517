# SPDX-License-Identifier: Apache-2.0
"""The history of figures over many nights, as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # the models take longer to import than a history to read
    from calibration.measurements.base import Better
    from calibration.results.model import RunStatus

NOT_KNOWN: Final = "not known"
"""Stands for a fact that the capture does not say."""

Sut = tuple[str, str]
"""A SUT by its testbed and its own name."""


class Series(NamedTuple):
    """One metric of one SUT: a row of :class:`History`."""

    testbed: str
    sut: str
    metric: str
    unit: str
    better: Better


@dataclass(frozen=True)
class NightRun:
    """The run that stands for a SUT's night: the newest complete one, else the newest.

    ``facts`` are those that figures depend on, by name (``calibration.results.facts``); ``reasons`` say why what has no
    figure has none. ``directory`` is relative to the results.
    """

    testbed: str
    sut: str
    run_id: str
    night: date
    status: RunStatus
    directory: str
    facts: Mapping[str, str]
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Recorded:
    """What the run document itself says of one metric: judged by the inventory's limits when it was measured."""

    lower: float | None
    upper: float | None
    outcome: str
    reason: str


class Unreadable(NamedTuple):
    """A run document that was set aside: its ``file``, relative to the results, and why it cannot be read.

    ``night`` is that in the name of its directory, ``None`` if there is none.
    """

    testbed: str
    sut: str
    file: str
    night: date | None
    reason: str


@dataclass(frozen=True)
class Held:
    """What the run document says of a figure beside another of its run (``calibration.results.consistency``)."""

    metric: str
    unit: str
    value: float
    interval: tuple[float, float] | None
    bound: tuple[float | None, float | None]
    outcome: str
    reason: str


@dataclass(frozen=True)
class History:
    """Figures of SUTs over nights.

    ``values``, ``low`` and ``high`` have the shape (series, nights): the figure and the ends of its interval, each in
    the unit of its series, NaN if there is no valid one. ``nights`` are those on which a run of any SUT began,
    ascending; ``series`` are sorted by testbed, SUT and metric. ``runs`` has each SUT's runs by night. ``recorded`` has
    the verdicts of the last night's documents by testbed, SUT and metric, ``consistency`` the checks that they passed
    or failed by SUT. What was imported is not in it. ``unreadable`` are the documents of these nights that were set
    aside. A last night of which nothing else is left has no run.
    """

    nights: tuple[date, ...]
    series: tuple[Series, ...]
    values: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    runs: Mapping[Sut, Mapping[date, NightRun]]
    recorded: Mapping[tuple[str, str, str], Recorded]
    consistency: Mapping[Sut, Sequence[Held]] = field(default_factory=dict)
    unreadable: tuple[Unreadable, ...] = ()
