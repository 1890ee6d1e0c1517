# SPDX-License-Identifier: Apache-2.0
"""Consistency of a run: the rules for two of its metrics, and their results.

A rule is physics, not the habit of a processor: the maximum is not below the peak, a part is not faster than the whole,
a quantity measured twice is the same. A rule is broken only if the intervals of both metrics plus the rule's tolerance
exclude it.
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from calibration.base.model import Model
from calibration.formats.page_checks import BANDWIDTH_APART

RuleName = Literal[
    "maximum", "part", "same_latency", "single_loads", "same_bandwidth", "own_memory", "load", "parallelism"
]


LATENCY_APART: Final = 0.15
"""The same for latencies as ``BANDWIDTH_APART`` for bandwidths."""

PARALLELISM_APART: Final = 0.25
"""The same for random reads, whose buffers may need fewer translations than the longer chains: two thirds of a hop on 4
KiB pages. A unit error, of 8 or 64 bytes or of two threads, is larger."""


class Rule(NamedTuple):
    """The relation of two metrics: the first at most the second, or both equal (``same``).

    ``tolerance`` is the allowed deviation beyond both intervals, relative to the other metric.
    """

    title: str
    law: str
    tolerance: float = BANDWIDTH_APART
    same: bool = False


RULES: Final[Mapping[RuleName, Rule]] = {
    "maximum": Rule(
        "Maximum not below the peak", "the maximum is the best of all settings, and the peak is one of them", 0.02
    ),
    "part": Rule("Part not above the whole", "all CPUs with all their memory move at least what some of them move"),
    "same_latency": Rule(
        "Repeated latency", "one CPU has one idle latency to the memory of one node", LATENCY_APART, same=True
    ),
    "single_loads": Rule(
        "Mean of single loads",
        "loads timed one by one take on average, less the clock, what the chain takes for each",
        LATENCY_APART,
        same=True,
    ),
    "same_bandwidth": Rule(
        "Repeated bandwidth", "the same CPUs, memory, mix and shape of access have one bandwidth", same=True
    ),
    "own_memory": Rule(
        "Memory not nearer to other nodes", "other nodes reach the memory by a link, its own node without one"
    ),
    "load": Rule("Latency not lower under load", "memory does not answer sooner under load"),
    "parallelism": Rule(
        "Random reads not above the loads in flight",
        "a thread among all has no more loads in flight than one alone",
        PARALLELISM_APART,
    ),
}
"""All rules, in order of evaluation."""


class CheckedValue(Model):
    """A value of the document, by the name of its metric if it is one."""

    name: str
    value: float
    unit: str
    interval: tuple[float, float] | None

    def __str__(self) -> str:
        interval = "" if self.interval is None else f" ({self.interval[0]:.6g} to {self.interval[1]:.6g})"
        return f"{self.value:.6g} {self.unit}{interval}"

    @property
    def low(self) -> float:
        """The lower end of its interval; the value itself without one, as on a published page."""
        return self.value if self.interval is None else self.interval[0]

    @property
    def high(self) -> float:
        """The upper end of its interval."""
        return self.value if self.interval is None else self.interval[1]


class ConsistencyCheck(Model):
    """The result of *rule* for ``figure`` against ``other``.

    ``bound`` is the range allowed by ``other`` and the rule's tolerance; an open end is ``None``. A check is
    ``skipped``, without a bound, if one of the metrics cannot decide: it is invalid, or has no interval of sufficient
    coverage. ``difference`` is that of ``figure`` to ``other``, relative to ``other``; ``difference_interval`` takes
    the intervals of both into account.
    """

    rule: RuleName
    figure: CheckedValue
    other: CheckedValue
    difference: float | None
    difference_interval: tuple[float, float] | None
    bound: tuple[float | None, float] | None
    outcome: Literal["pass", "fail", "skipped"]
    reason: str


class Side(NamedTuple):
    """A metric, why it cannot decide (``None`` if it can), and the flags for its pages' size."""

    value: CheckedValue
    unsure: str | None = None
    pages: frozenset[str] = frozenset()


def check(name: RuleName, side: Side, other_side: Side) -> ConsistencyCheck:
    """Return the result of the rule *name* for the metric of *side* against that of *other_side*."""
    rule, figure, other = RULES[name], side.value, other_side.value
    bound: tuple[float | None, float] | None = None
    outcome: Literal["pass", "fail", "skipped"] = "skipped"
    reason = "; ".join(f"{item.value.name}: {item.unsure}" for item in (side, other_side) if item.unsure)
    if not reason:
        bound = (other.low / (1 + rule.tolerance) if rule.same else None, other.high * (1 + rule.tolerance))
        broken = figure.low > bound[1] or (bound[0] is not None and figure.high < bound[0])
        outcome = "fail" if broken else "pass"
        least = "at most" if bound[0] is None else f"{bound[0]:.6g} to"
        reason = f"{figure}, expected {least} {bound[1]:.6g} {figure.unit}: {other.name} is {other}, and {rule.law}"
    known = other.value > 0 and other.low > 0
    return ConsistencyCheck(
        rule=name,
        figure=figure,
        other=other,
        difference=figure.value / other.value - 1 if known else None,
        difference_interval=(figure.low / other.high - 1, figure.high / other.low - 1) if known else None,
        bound=bound,
        outcome=outcome,
        reason=reason,
    )
