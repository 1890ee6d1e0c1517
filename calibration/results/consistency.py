# SPDX-License-Identifier: Apache-2.0
"""Consistency of a run: the rules for two of its metrics, and their results.

A rule is physics, not the habit of a processor: the maximum is not below the peak, a part is not faster than the whole,
a quantity measured twice is the same. A rule is broken only if the intervals of both metrics plus the rule's tolerance
exclude it, and kept only if they would exclude ``CONTRADICTION``: a check that cannot fail decides nothing.
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from calibration.base.model import Model
from calibration.base.statistics import MIN_COVERAGE
from calibration.formats.page_checks import BANDWIDTH_APART

RuleName = Literal[
    "maximum",
    "best_pattern",
    "vector_width",
    "part",
    "same_latency",
    "single_loads",
    "same_bandwidth",
    "own_memory",
    "load",
    "same_curve",
    "parallelism",
]

Outcome = Literal["pass", "fail", "skipped"]

LATENCY_APART: Final = 0.15
"""The same for latencies as ``BANDWIDTH_APART`` for bandwidths."""

PARALLELISM_APART: Final = 0.25
"""The same for random reads, whose buffers may need fewer translations than the longer chains: two thirds of a hop on 4
KiB pages. A unit error, of 8 or 64 bytes or of two threads, is larger."""


WIDTH_APART: Final = 1.5
"""Twice the width, and ``BANDWIDTH_APART`` on top."""

CONTRADICTION: Final = 2.0
"""Two metrics pass a rule only if it would have failed with the first so many times its value: on a busy guest the
interval of a bandwidth may reach to 230 % of it, which is consistent with anything."""

MIN_ROUNDS_COVERAGE: Final = 0.75
"""That of the extremes of three rounds. An interval below ``MIN_COVERAGE``, but not below this, never passes a rule."""

WIDENED: Final = 3.0
"""Such an interval fails a rule if one so many times as wide does: as wide as that of 95 % of three normal values."""


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
    "best_pattern": Rule(
        "Best access pattern not above the maximum", "the maximum is the best of all patterns, and this is one of them"
    ),
    "vector_width": Rule(
        "Vector widths alike",
        "vectors of twice the width move at most twice as much, and memory limits both alike",
        WIDTH_APART,
        same=True,
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
        "Repeated bandwidth", "the same CPUs, memory, mix and access pattern have one bandwidth", same=True
    ),
    "own_memory": Rule(
        "Memory not nearer to other nodes", "other nodes reach the memory by a link, its own node without one"
    ),
    "load": Rule("Latency not lower under load", "load does not lower the latency of memory"),
    "same_curve": Rule(
        "Repeated loaded latency", "the memory of a node has one curve for a mix, however its load is swept", same=True
    ),
    "parallelism": Rule(
        "Random reads not above the outstanding loads",
        "a thread among all has no more outstanding loads than one alone",
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
    ``skipped``, without a bound, if one of the metrics cannot decide: it is invalid, its interval is missing or of low
    coverage, or so wide that a contradiction would pass. ``difference`` is that of ``figure`` to ``other``, relative to
    ``other``; ``difference_interval`` takes the intervals of both into account.
    """

    rule: RuleName
    figure: CheckedValue
    other: CheckedValue
    difference: float | None
    difference_interval: tuple[float, float] | None
    bound: tuple[float | None, float] | None
    outcome: Outcome
    reason: str


class Side(NamedTuple):
    """A metric, why it cannot decide (``None`` if it can), and the flags for its pages' size.

    ``coverage`` is that of its interval.
    """

    value: CheckedValue
    unsure: str | None = None
    pages: frozenset[str] = frozenset()
    coverage: float = 1.0

    @property
    def decides(self) -> bool:
        """Whether it can pass a rule."""
        return self.unsure is None and not self.few

    @property
    def few(self) -> bool:
        """Whether its interval is of so few rounds that it can only fail a rule."""
        return self.coverage < MIN_COVERAGE

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of its interval; wider ones if it has few rounds."""
        low, high, middle = self.value.low, self.value.high, self.value.value
        by = WIDENED if self.few else 1.0
        return middle - by * (middle - low), middle + by * (high - middle)


def check(name: RuleName, side: Side, other_side: Side) -> ConsistencyCheck:
    """Return the result of the rule *name* for the metric of *side* against that of *other_side*."""
    rule, figure, other = RULES[name], side.value, other_side.value
    bound: tuple[float | None, float] | None = None
    outcome: Outcome = "skipped"
    reason = "; ".join(f"{item.value.name}: {item.unsure}" for item in (side, other_side) if item.unsure)
    if not reason:
        allowed = _allowed(rule, other_side)
        few = [item for item in (side, other_side) if item.few]
        if _excluded(side.ends, allowed):
            outcome = "fail"
        elif few:
            reason = "; ".join(f"{item.value.name}: {low_coverage(item.coverage)}" for item in few)
        elif _blind(rule, side, other_side):
            reason = f"intervals so wide that {CONTRADICTION:g} times the value would pass as well"
        else:
            outcome = "pass"
        if outcome != "skipped":
            bound = allowed
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


def low_coverage(coverage: float) -> str:
    """Return why an interval of low *coverage* does not decide."""
    return f"its interval has only {coverage * 100:.0f} % coverage"


def _allowed(rule: Rule, other: Side) -> tuple[float | None, float]:
    """Return the range that *rule* allows beside *other*; ``None`` for an open end."""
    low, high = other.ends
    return (low / (1 + rule.tolerance) if rule.same else None, high * (1 + rule.tolerance))


def _excluded(ends: tuple[float, float], allowed: tuple[float | None, float]) -> bool:
    return ends[0] > allowed[1] or (allowed[0] is not None and ends[1] < allowed[0])


def _blind(rule: Rule, side: Side, other: Side) -> bool:
    """Return whether *side* would pass with ``CONTRADICTION`` times what *rule* allows beside the value of *other*."""
    allowed, figure = _allowed(rule, other), side.value
    limit = other.value.value * (1 + rule.tolerance)
    by = {CONTRADICTION * limit / figure.value} if figure.value > 0 else set()
    by |= {other.value.value / (1 + rule.tolerance) / CONTRADICTION / figure.value} if rule.same and by else set()
    return not all(_excluded((figure.low * factor, figure.high * factor), allowed) for factor in by)
