# SPDX-License-Identifier: Apache-2.0
"""What to open on one machine: events, samples, and roles that have neither."""

from __future__ import annotations

from typing import Literal

from calibration.base.cpulists import format_cpulist
from calibration.base.model import Model


class ChosenEvent(Model):
    """An event to open: for each measuring thread, or on each of ``cpus``.

    ``name`` is its role, ``event`` its name in ``source``. A count times ``scale_bytes`` is bytes; ``unit`` is the
    kernel's, None if it has none.
    """

    name: str
    pmu: str
    words: dict[str, int]
    group: int | None
    user: bool
    cpus: tuple[int, ...] | None
    scale_bytes: float | None
    unit: str | None
    event: str
    source: str
    caution: str | None

    def argument(self) -> str:
        """Return the value of ``--event``."""
        terms = [f"{word}={value:#x}" for word, value in sorted(self.words.items())]
        terms += [] if self.group is None else [f"group={self.group}"]
        terms += ["user"] if self.user else []
        where = "" if self.cpus is None else f"@{format_cpulist(self.cpus)}"
        return f"{self.name}={self.pmu}/{','.join(terms)}/{where}"


class ChosenSampling(Model):
    """Loads to sample in each measuring thread.

    ``aux`` is the word of the event that must come first in the group, if the model needs one.
    """

    method: Literal["pebs", "ibs", "spe"]
    pmu: str
    words: dict[str, int]
    aux: int | None
    period: int
    event: str
    source: str
    caution: str | None

    def argument(self) -> str:
        """Return the value of ``--sample``."""
        terms = [f"{word}={value:#x}" for word, value in sorted(self.words.items())]
        terms += [] if self.aux is None else [f"aux={self.aux:#x}"]
        return f"{self.method}={self.pmu}/{','.join([*terms, f'period={self.period}'])}/"


class MissingCounter(Model):
    """A role, or ``samples``, without an event, and why."""

    role: str
    reason: str


class CounterChoice(Model):
    """Everything to open on one machine, and everything missing."""

    microarchitecture: str | None
    events: tuple[ChosenEvent, ...]
    sampling: ChosenSampling | None
    missing: tuple[MissingCounter, ...]
