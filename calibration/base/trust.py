# SPDX-License-Identifier: Apache-2.0
"""Trust in a value: one of five words, and the single worst reason.

``on_target``: its half-width is within the target. ``near``: within three times the target, or interference moved it.
``poor``: beyond that, its interval promises less than 90 %, or its samples fall into two groups. ``invalid``: the
measurement does not answer its question. ``observed``: it has no target, such as the longest gap.
"""

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple, get_args

from calibration.base.flags import FLAGS
from calibration.base.statistics import MIN_COVERAGE, Estimate
from calibration.base.validity import Flag, flag

Trust = Literal["on_target", "near", "poor", "invalid", "observed"]

NEAR: Final = 3
"""A half-width of up to this many times its target is near it."""

_RANKS: Final = {code: rank for rank, code in enumerate(FLAGS)}


class Judged(NamedTuple):
    """The trust in a value, and the worst reason against it, or ``None``."""

    trust: Trust
    reason: Flag | None = None


def trust_of(value: Estimate) -> Judged:
    """Return the trust in *value* on its own."""
    trust, doubt = of_width(value.half_width, value.target_half_width)
    if trust != "observed" and (value.coverage or 0.0) < MIN_COVERAGE:  # narrow because it promises less
        trust, doubt = (
            "poor",
            flag("NOT_CONVERGED", f"its interval has only {(value.coverage or 0.0) * 100:.0f} % coverage"),
        )
    doubts = [*value.flags, *([doubt] if doubt else ())]
    if value.flags and trust != "poor":
        trust = "near"
    if value.bimodal:
        doubts.append(flag("BIMODAL", "the samples are bimodal"))
        trust = "poor"
    return Judged(trust, worst(doubts))


def of_width(half_width: float | None, target: float | None) -> Judged:
    """Return the trust in a value with this *half_width*, relative like its *target*."""
    if half_width is None or target is None:
        return Judged("observed")
    if half_width <= target:
        return Judged("on_target")
    width = f"{half_width * 100:.0f}" if half_width >= 0.995 else f"{half_width * 100:.2g}"
    reason = flag("NOT_CONVERGED", f"half-width {width} %, target {target * 100:.3g} %")
    return Judged("near" if half_width <= NEAR * target else "poor", reason)


def worst(flags: Iterable[Flag]) -> Flag | None:
    """Return the worst of *flags*, the first in the order of ``FLAGS``; ``None`` if empty."""
    return min(flags, key=lambda raised: _RANKS.get(raised.code, len(_RANKS)), default=None)


def lowest(trusts: Iterable[Trust]) -> Trust | None:
    """Return the lowest of *trusts*; ``None`` if empty. A value without a target ranks above all others."""
    rank = {trust: place for place, trust in enumerate(("observed", *get_args(Trust)[:-1]))}
    return max(trusts, key=rank.__getitem__, default=None)
