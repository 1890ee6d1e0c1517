# SPDX-License-Identifier: Apache-2.0
"""The file of references: one source, its machines, and their figures (docs/results/figures.rst)."""

import datetime
import re
from collections import Counter
from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, PositiveInt, StringConstraints, model_validator

from calibration.base.model import Model
from calibration.references.metrics import NODE_MB_S, QUANTITIES, Condition, Instrument, Metric

BYTES_PER_TRANSFER = 8
"""Width of a channel of DDR memory without its check bits."""

MAX_OVER_PEAK = 1.02
"""Bandwidth above the theoretical peak by more than rounding of the clock is a fault of the figure."""


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("control characters are not allowed")
    return text


Text = Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(_printable)]


class Source(Model):
    """Where figures come from; ``url`` is ``None`` for a lab's own runs, ``licence`` an SPDX identifier."""

    title: Text
    url: Annotated[str, StringConstraints(pattern=r"^https://\S+$", max_length=300)] | None = None
    date: datetime.date
    date_is: Literal["measured", "published", "committed"]
    licence: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9.+-]+$", max_length=60)]


class Memory(Model):
    """Populated memory: type, transfers in millions a second as configured, channels of a socket with a module."""

    type: Text | None = None
    mt_s: Annotated[int, Field(ge=800, le=20_000)] | None = None
    channels_per_socket: Annotated[int, Field(ge=1, le=24)] | None = None


class Figure(Model):
    """One figure in the unit that its metric's name ends with.

    ``low`` and ``high`` are the extremes of the nodes or pairs it is the median of. ``how`` sets apart what another
    way of measuring gave: figures are only put together with figures of the same way.
    """

    metric: Metric
    value: float
    low: float | None = None
    high: float | None = None
    how: Text | None = None

    @model_validator(mode="after")
    def _is_plausible(self) -> Self:
        quantity = QUANTITIES[self.metric]
        if not quantity.low <= self.value <= quantity.high:
            raise ValueError(f"{self.metric} of {self.value:g} is not from {quantity.low:g} to {quantity.high:g}")
        if (self.low is None) != (self.high is None):
            raise ValueError(f"{self.metric} has only one end of a range")
        if self.low is not None and self.high is not None and not 0 < self.low <= self.value <= self.high:
            raise ValueError(f"{self.metric} of {self.value:g} is not within its own range")
        return self


class Curve(Model):
    """Latency of a node's own memory against bandwidth, by increasing bandwidth; 0 is without load.

    ``write_percent`` is the share of writes in the traffic of the memory, not in the instructions.
    """

    write_percent: Annotated[int, Field(ge=0, le=100)]
    bandwidth_mb_s: tuple[Annotated[float, Field(ge=0, le=NODE_MB_S[1])], ...] = Field(min_length=3)
    latency_ns: tuple[Annotated[float, Field(ge=40, le=5000)], ...]

    @model_validator(mode="after")
    def _is_a_curve(self) -> Self:
        if len(self.bandwidth_mb_s) != len(self.latency_ns):
            raise ValueError(f"{len(self.bandwidth_mb_s)} bandwidths, {len(self.latency_ns)} latencies")
        if any(high <= low for low, high in pairwise(self.bandwidth_mb_s)):
            raise ValueError("bandwidths do not increase")
        return self


class ReferenceMachine(Model):
    """One machine measured with one instrument; what the source does not say is ``None``.

    ``name`` tells machines of a source apart: entries of one name are counted as one machine. ``run`` is the run of a
    lab's own figures. ``date`` is when it was measured, if that is not the date of the source.
    """

    name: Text
    processor: Text
    sockets: Annotated[int, Field(ge=1, le=64)] | None = None
    cores_per_socket: PositiveInt | None = None
    nodes_per_socket: Annotated[int, Field(ge=1, le=64)] | None = None
    memory: Memory = Memory()
    instrument: Instrument
    version: Text | None = None
    run: Text | None = None
    date: datetime.date | None = None
    figures: tuple[Figure, ...] = Field(min_length=1)
    curves: tuple[Curve, ...] = ()

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if processor_key(self.processor) == "":
            raise ValueError(f"{self.processor!r} does not name a processor")
        twice = [
            f"{metric} ({how})"
            for (metric, how), n in Counter((f.metric, f.how) for f in self.figures).items()
            if n > 1
        ]
        if twice:
            raise ValueError(f"{self.name} has {twice[0]} twice")
        if len({curve.write_percent for curve in self.curves}) < len(self.curves):
            raise ValueError(f"{self.name} has two curves with the same share of writes")
        for figure in self.figures:
            peak_mb_s = self.peak_mb_s(figure.metric)
            if peak_mb_s is not None and self.instrument != "bw_mem" and figure.value > peak_mb_s * MAX_OVER_PEAK:
                raise ValueError(f"{figure.metric} of {self.name} is above the theoretical peak of {peak_mb_s:.0f}")
        return self

    def condition(self, name: Condition) -> int | None:
        """Return the condition *name*, ``None`` if the source does not say it."""
        value: int | None = getattr(self.memory if name in Memory.model_fields else self, name)
        return value

    def peak_mb_s(self, metric: Metric) -> float | None:
        """Return the theoretical peak of the memory that the bandwidth *metric* is about, ``None`` if unknown."""
        memory = self.memory
        if (memory.type or "").partition(" ")[0] not in {"DDR3", "DDR4", "DDR5"} or not metric.endswith("_mb_s"):
            return None
        of_socket = (memory.channels_per_socket or 0) * (memory.mt_s or 0) * BYTES_PER_TRANSFER
        shares = {"read_local_mb_s": 1 / (self.nodes_per_socket or 1)}.get(metric, self.sockets)
        if metric in {"read_near_mb_s", "read_remote_mb_s"} or not of_socket or shares is None:
            return None
        return of_socket * shares


class ReferenceFile(Model):
    """The figures of one source."""

    source: Source
    machines: tuple[ReferenceMachine, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _has_no_entry_twice(self) -> Self:
        found = Counter(
            (
                machine.name,
                machine.processor,
                machine.instrument,
                machine.version,
                machine.run,
                machine.memory.type,
                machine.nodes_per_socket,
            )
            for machine in self.machines
        )
        twice = [key[0] for key, count in found.items() if count > 1]
        if twice:
            raise ValueError(f"the machine {twice[0]} is there twice with one instrument")
        return self


MARKS = re.compile(r"\((?:r|tm)\)|®|™", re.IGNORECASE)
NOISE = re.compile(r"@.*|\b(?:cpu|processor)\b|\b\d+-core\b|\b\d+(?:\.\d+)? ?ghz\b", re.IGNORECASE)


def processor_key(name: str) -> str:
    """Return *name* of a processor without trademarks, clocks and counts of cores, for comparison.

    ``Intel(R) Xeon(R) Gold 6252N CPU @ 2.30GHz`` and ``Intel Xeon Gold 6252N`` are equal; ``6252`` is another
    processor.
    """
    return " ".join(NOISE.sub(" ", MARKS.sub(" ", name)).lower().split())
