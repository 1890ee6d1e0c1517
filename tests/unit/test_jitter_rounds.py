# SPDX-License-Identifier: Apache-2.0
"""Rounds of ``sutprobe jitter`` become one result: nothing is lost, doubled or made smaller than it was."""

import copy
import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from calibration.base.errors import InputError
from calibration.sutprobe.document import Part, ProbeDocument, ProbeError, read_document, read_result
from calibration.sutprobe.jitter import GapBin, GapRate, GapView, JitterCpu, LongGap, Period, TimeQuantile
from calibration.sutprobe.jitter_rounds import LONGEST, JitterResult
from calibration.sutprobe.placement import Interference
from tests.recorded import read

RECORDED = JitterResult.model_validate_json(
    json.dumps(
        json.loads((Path(__file__).parent.parent / "fixtures/sutprobe/jitter.json").read_text(encoding="utf-8"))[
            "result"
        ]
    )
)
CPU = RECORDED.cpus[0]
assert CPU.gaps is not None
assert CPU.pma is not None
GAPS, PMA = CPU.gaps, CPU.pma
FRACTIONS = (0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999)
TICK_NS = 0.4
SUMMED = ("wall_s", "turns", "backward_steps", "count", "lost_ns")


def merged(rounds: Sequence[JitterResult]) -> JitterResult:
    parts = [(Part(round=number, result=None, around=None), result) for number, result in enumerate(rounds, 1)]
    return JitterResult.merged(parts)


def result(*cpus: JitterCpu) -> JitterResult:
    return JitterResult(cpus=cpus)


def round_of(view: GapView | None = None, **changes: Any) -> JitterResult:
    """Return the recorded result with *changes* to its gap view, or with *view* instead."""
    return result(CPU.model_copy(update={"gaps": view or GAPS.model_copy(update=changes)}))


def gaps_of(*rounds: JitterResult) -> GapView:
    """Return the merged gap view of the only CPU, valid as read from a document."""
    found = merged(rounds)
    assert JitterResult.model_validate_json(found.model_dump_json()) == found
    (cpu,) = found.cpus
    assert cpu.gaps is not None
    return cpu.gaps


def bin_edges(ticks: int) -> tuple[int, int]:
    """Return the bin of *ticks* as sutprobe makes it: eight in an octave."""
    step = 1 << max(ticks.bit_length() - 4, 0)
    return ticks // step * step, (ticks // step + 1) * step


def view_of(ticks: Sequence[int], wall_s: float, listed: int = LONGEST, tick_ns: float = TICK_NS) -> GapView:
    """Return what sutprobe reports of gaps of *ticks*, one after the other, of which the longest *listed* are shown."""
    lengths = [count * tick_ns for count in ticks]
    bins = sorted({bin_edges(count) for count in ticks})
    starts = [number * wall_s * 1e9 / len(ticks) for number in range(len(ticks))]
    longest = sorted(zip(lengths, starts, strict=True), reverse=True)[:listed]
    return GAPS.model_copy(
        update={
            "wall_s": wall_s,
            "count": len(ticks),
            "max_ns": max(lengths),
            "lost_ns": sum(lengths),
            "histogram": tuple(
                GapBin(from_ns=low * tick_ns, to_ns=high * tick_ns, count=sum(low <= count < high for count in ticks))
                for low, high in bins
            ),
            "rates_per_s": tuple(
                GapRate(threshold_ns=length, rate=sum(gap >= length for gap in lengths) / wall_s)
                for length in (200.0, 1e3, 1e5)
            ),
            "quantiles": tuple(
                TimeQuantile(time_fraction=part, gap_ns=min(upper_edge(gap, tick_ns), max(lengths)))
                for part in FRACTIONS
                for gap in [quantile(lengths, wall_s, part)]
            ),
            "longest": tuple(LongGap(at_ns=at, length_ns=length) for length, at in longest),
        }
    )


def upper_edge(length_ns: float, tick_ns: float) -> float:
    return length_ns if length_ns == GAPS.threshold_ns else bin_edges(round(length_ns / tick_ns))[1] * tick_ns


def quantile(lengths: Sequence[float], wall_s: float, part: float) -> float:
    """Return the shortest length such that longer *lengths* take no more than the rest of the time."""
    longer = 0.0
    for length in sorted(lengths, reverse=True):
        if longer + length > (1 - part) * wall_s * 1e9:
            return length
        longer += length
    return GAPS.threshold_ns


def simulated(seed: int, count: int = 400, mean: float = 7.5) -> list[int]:
    random = Random(seed)
    return [600 + int(random.lognormvariate(mean, 1.5)) for _ in range(count)]


def period(period_ns: float, gaps: int, median_ns: float = 5e3, window_ns: float = 1e4) -> Period:
    return GAPS.periods[0].model_copy(
        update={"period_ns": period_ns, "gaps": gaps, "cycles": gaps, "median_ns": median_ns, "window_ns": window_ns}
    )


def test_a_single_round_is_unchanged_but_for_its_number() -> None:
    intervals = [interval.model_copy(update={"round": 1}) for interval in PMA.intervals]
    (cpu,) = merged([RECORDED]).cpus
    assert cpu.pma == PMA.model_copy(update={"intervals": tuple(intervals)})
    assert cpu.gaps == GAPS.model_copy(update={"lost_by_round": (GAPS.lost_fraction,)})


def test_the_lost_share_of_each_round_is_kept() -> None:
    assert gaps_of(round_of(lost_fraction=0.1), round_of(lost_fraction=0.3)).lost_by_round == (0.1, 0.3)


def test_sums_are_exact_and_shares_follow_from_them() -> None:
    views = [
        view_of(simulated(seed), wall_s).model_copy(update={"backward_steps": seed})
        for seed, wall_s in enumerate((0.5, 1.0, 2.0))
    ]
    whole = gaps_of(*map(round_of, views))
    for name in SUMMED:
        assert getattr(whole, name) == pytest.approx(sum(getattr(view, name) for view in views), rel=1e-12)
    assert sum(bucket.count for bucket in whole.histogram) == whole.count == 1200
    assert whole.lost_fraction == pytest.approx(whole.lost_ns / 3.5e9)
    for number, rate in enumerate(whole.rates_per_s):
        gaps = sum(view.rates_per_s[number].rate * view.wall_s for view in views)
        assert rate.rate * 3.5 == pytest.approx(gaps)
    assert whole.rates_per_s[0].rate * 3.5 == pytest.approx(1200)
    views = [GAPS.model_copy(update={"wall_s": 1.0, "coverage_fraction": 1.0}), GAPS]
    assert 1 - gaps_of(*map(round_of, views)).coverage_fraction == pytest.approx((1 - GAPS.coverage_fraction) * 5 / 6)


def test_unknown_counters_stay_unknown_unless_one_round_knows_them() -> None:
    unknown = {"interrupts": None, "steal_ms": None, "smi": None}
    cases: tuple[tuple[list[dict[str, Any]], dict[str, Any]], ...] = (
        ([{}, {}], {"smi": None, "interrupts": {"31": 2, "42": 20, "LOC": 2502, "CAL": 2}, "involuntary_switches": 34}),
        ([{"smi": 2}, {}], {"smi": 2}),
        ([unknown, unknown], unknown),
        ([unknown, {"interrupts": {"LOC": 1}}, {"interrupts": {"RES": 2}}], {"interrupts": {"LOC": 1, "RES": 2}}),
    )
    for changes, expected in cases:
        found = gaps_of(*(round_of(interference=GAPS.interference.model_copy(update=change)) for change in changes))
        assert isinstance(found.interference, Interference)
        assert {name: getattr(found.interference, name) for name in expected} == expected


def test_the_worst_of_all_rounds_is_kept() -> None:
    views = [view_of([700, 800, 900], 1.0), view_of([700, 90_000, 710], 2.0), view_of([5_000, 1_000], 1.0)]
    whole = gaps_of(*map(round_of, views))
    assert whole.max_ns == 36_000
    assert [(round(gap.at_ns), gap.length_ns) for gap in whole.longest[:2]] == [(1_666_666_667, 36e3), (3 * 10**9, 2e3)]
    assert [gap.length_ns / TICK_NS for gap in whole.longest[2:]] == [1000, 900, 800, 710, 700, 700]
    changes: tuple[dict[str, Any], ...] = (
        {"stopped": "interrupted", "ring_full": True, "threshold_ns": 400.0, "core_hz_after": 3e9},
        {"core_hz_before": 3.1e9, "turn_ns": GAPS.turn_ns.model_copy(update={"min": 1.0})},
    )
    last = [round_of(**change) for change in changes]
    for whole in (gaps_of(RECORDED, *last, RECORDED), gaps_of(RECORDED, *last[::-1], RECORDED)):
        assert (whole.stopped, whole.ring_full, whole.threshold_ns, whole.turn_ns.min) == ("interrupted", True, 400, 1)
        assert (whole.core_hz_before, whole.core_hz_after) == (GAPS.core_hz_before, 3e9)
    assert not merged([RECORDED, result(CPU.model_copy(update={"cpu_verified": False}))]).cpus[0].cpu_verified


@pytest.mark.parametrize(("code", "verified"), [("cpu_left", False), ("cpu_offline", True)])
def test_a_round_elsewhere_spoils_the_cpu_and_a_round_offline_is_left_out(code: str, *, verified: bool) -> None:
    error = ProbeError(code=code, message="gone")
    views = {} if code == "cpu_left" else {"pma": None, "gaps": None, "pma_missing": "gone", "gaps_missing": "gone"}
    lost = CPU.model_copy(update={"cpu_verified": False, "error": error} | views)
    for rounds in ([result(lost), RECORDED, RECORDED], [RECORDED, RECORDED, result(lost)]):
        (cpu,) = merged(rounds).cpus
        assert (cpu.cpu_verified, cpu.error) == (verified, error)
        assert cpu.gaps is not None
        assert cpu.gaps.count == 2 * GAPS.count


def test_a_rate_below_the_threshold_of_one_round_is_unknown() -> None:
    whole = gaps_of(RECORDED, round_of(rates_per_s=GAPS.rates_per_s[1:]))
    assert [rate.threshold_ns for rate in whole.rates_per_s] == [rate.threshold_ns for rate in GAPS.rates_per_s[1:]]


def test_only_gaps_that_are_surely_the_longest_are_listed() -> None:
    many, few = simulated(1), [10_000, 20_000]
    for listed, expected in ((LONGEST, LONGEST), (3, 3), (0, 0)):
        whole = gaps_of(round_of(view_of(many, 1.0, listed)), round_of(view_of(few, 1.0)))
        truth = sorted((ticks * TICK_NS for ticks in many + few), reverse=True)
        assert [gap.length_ns for gap in whole.longest] == truth[:expected]
    assert len(gaps_of(round_of(view_of(few, 1.0)), round_of(view_of(few, 1.0))).longest) == 4


@pytest.mark.parametrize("seed", range(20))
def test_quantiles_are_exact_if_listed_and_never_too_small(seed: int) -> None:
    rounds = [simulated(seed), simulated(seed + 100, 30), simulated(seed + 200, 300, 9.0)]
    views = [view_of(ticks, 0.1) for ticks in rounds]
    lengths = [count * TICK_NS for ticks in rounds for count in ticks]
    whole = gaps_of(*map(round_of, views))
    for number, (part, found) in enumerate(zip(FRACTIONS, whole.quantiles, strict=True)):
        truth = quantile(lengths, 0.3, part)
        assert found.time_fraction == part
        if truth >= whole.longest[-1].length_ns:
            assert found.gap_ns == truth
        else:
            assert truth <= found.gap_ns <= max(view.quantiles[number].gap_ns for view in views)
            assert found.gap_ns <= 1.3 * truth
    assert whole.quantiles[-1].gap_ns == whole.max_ns


def test_one_disturbed_round_does_not_set_the_quantiles_of_all() -> None:
    busy, quiet = view_of([2_000_000] * 30, 0.5), view_of([700] * 30, 0.5)
    assert busy.quantiles[2].gap_ns >= 800_000
    assert gaps_of(*(round_of(view) for view in (busy, *[quiet] * 5))).quantiles[2].gap_ns == GAPS.threshold_ns


def test_bins_whose_edges_differ_by_the_calibration_are_one() -> None:
    rounds = [simulated(seed) for seed in range(3)]
    same = gaps_of(*(round_of(view_of(ticks, 1.0)) for ticks in rounds)).histogram
    views = [
        view_of(ticks, 1.0, tick_ns=TICK_NS * (1 + shift))
        for ticks, shift in zip(rounds, (0, 2e-5, -1e-5), strict=True)
    ]
    found = gaps_of(*map(round_of, views)).histogram
    assert [bucket.count for bucket in found] == [bucket.count for bucket in same]
    assert all(one.from_ns < other.from_ns for one, other in pairwise(found))
    for view in views:
        for bucket in view.histogram:
            assert any(one.from_ns <= bucket.from_ns and bucket.to_ns <= one.to_ns for one in found)
    other = gaps_of(round_of(view_of(rounds[0], 1.0)), round_of(view_of(rounds[1], 1.0, tick_ns=1.03 * TICK_NS)))
    assert sum(bucket.count for bucket in other.histogram) == other.count
    assert len(other.histogram) > len(same)


def test_the_order_of_merging_does_not_matter() -> None:
    rounds = [round_of(view_of(simulated(seed), 1.0)) for seed in range(4)]
    flat, paired = gaps_of(*rounds), gaps_of(merged(rounds[:2]), merged(rounds[2:]))
    for name in (*SUMMED, "max_ns", "histogram", "rates_per_s", "interference", "longest", "stopped", "lost_fraction"):
        for one, other in zip(numbers(getattr(flat, name)), numbers(getattr(paired, name)), strict=True):
            assert one == (pytest.approx(other) if isinstance(other, float) else other)
    for name in ("gaps", "cycles", "lost_ns", "share_of_gaps"):
        periods = zip(flat.periods, paired.periods, strict=True)
        assert all(getattr(one, name) == pytest.approx(getattr(other, name)) for one, other in periods)


def numbers(value: Any) -> list[Any]:
    """Return the plain values in *value*, in order."""
    if isinstance(value, tuple):
        return [number for item in value for number in numbers(item)]
    if hasattr(value, "model_dump"):
        return numbers(tuple(value.model_dump().values()))
    return [value]


def test_the_interval_of_the_rate_needs_six_rounds() -> None:
    rounds = [round_of(count=count, wall_s=1.0) for count in (90, 100, 100, 100, 104, 120)]
    assert gaps_of(*rounds[:5]).rate_half_width is None
    assert gaps_of(*rounds).rate_half_width == pytest.approx(0.15)
    assert gaps_of(*[round_of(count=0, wall_s=1.0, periods=())] * 6).rate_half_width is None


def test_equal_periods_become_one_and_others_keep_their_share_of_all_gaps() -> None:
    rounds: tuple[tuple[Period, ...], ...] = (
        (period(4e6, 250), period(1e7, 100, 4e4), period(10_000_100.0, 90, 2e3)),
        (period(4_000_100.0, 251), period(10_000_090.0, 95, 2.1e3)),
        (period(10_000_080.0, 98, 4.1e4), period(7e6, 143)),
    )
    whole = gaps_of(*(round_of(count=1000, periods=periods) for periods in rounds))
    found = [(one.gaps, one.share_of_gaps, one.median_ns) for one in whole.periods]
    assert found == [
        (501, 0.167, 5e3),
        (198, 0.066, 4.05e4),
        (185, pytest.approx(185 / 3000), 2.05e3),
        (143, pytest.approx(143 / 3000), 5e3),
    ]
    assert whole.periods[0].cycles == 501
    assert whole.periods[0].lost_ns == 2 * GAPS.periods[0].lost_ns
    assert whole.periods[0].period_ns == pytest.approx(4_000_050, abs=1)
    assert whole.periods[0].hz == pytest.approx(1e9 / whole.periods[0].period_ns)
    rounds = ((period(4e6, 250),), (period(4e6, 249), period(4_000_001.0, 100)))
    whole = gaps_of(*(round_of(count=1000, periods=periods) for periods in rounds))
    assert [one.gaps for one in whole.periods] == [499, 100]


def test_no_gap_of_a_period_is_lost() -> None:
    rounds = [tuple(period(random.uniform(4e6, 4.01e6), 100) for _ in range(3)) for random in map(Random, range(6))]
    whole = gaps_of(*(round_of(count=1000, periods=periods) for periods in rounds))
    assert sum(one.gaps for one in whole.periods) == sum(one.gaps for periods in rounds for one in periods)


def test_the_slices_of_all_rounds_are_kept() -> None:
    whole = gaps_of(RECORDED, round_of(slices=()), RECORDED)
    assert whole.slices == (*GAPS.slices, *GAPS.slices)
    assert GAPS.attribution is not None
    assert whole.attribution is not None
    assert whole.attribution.gaps == 2 * GAPS.attribution.gaps
    assert gaps_of(round_of(slices=()), round_of(slices=())).attribution is None


def test_a_view_or_cpu_missing_in_a_round_is_that_of_the_others() -> None:
    gone = CPU.model_copy(update={"gaps": None, "gaps_missing": "interrupted"})
    other = CPU.model_copy(update={"cpu": 0})
    (zero, one) = merged([result(gone), result(gone, other), RECORDED, RECORDED]).cpus
    assert (zero.cpu, zero.gaps, zero.gaps and zero.gaps.count) == (0, gaps_of(RECORDED), GAPS.count)
    assert zero.pma is not None
    assert [interval.round for interval in zero.pma.intervals] == [2] * len(PMA.intervals)
    assert (one.gaps, one.gaps_missing) == (gaps_of(RECORDED, RECORDED), None)
    assert one.pma is not None
    assert len(one.pma.intervals) == 4 * len(PMA.intervals)
    (lost,) = merged([result(gone), result(gone)]).cpus
    assert (lost.gaps, lost.gaps_missing) == (None, "interrupted")


def pma_round(numbers: Sequence[int], **changes: Any) -> JitterResult:
    """Return a round with recorded intervals, the first of which begins its minimum, maximum and numbers anew."""
    kept = [PMA.intervals[number] for number in numbers]
    renumbered = tuple(
        interval.model_copy(
            update={
                "sample": place,
                "abs_min_cycles": min(one.inst_min_cycles for one in kept[:place]),
                "abs_max_cycles": max(one.inst_max_cycles for one in kept[:place]),
            }
        )
        for place, interval in enumerate(kept, 1)
    )
    return result(CPU.model_copy(update={"pma": PMA.model_copy(update={"intervals": renumbered, **changes})}))


def test_intervals_are_numbered_with_their_extremes_so_far() -> None:
    order = sorted(range(5), key=lambda number: -PMA.intervals[number].inst_max_cycles)
    rounds = [
        pma_round(order[:1]),
        pma_round(order[1:3], blind_fraction=0.5, stopped="interrupted"),
        pma_round(order[3:]),
    ]
    whole = merged(rounds).cpus[0].pma
    assert whole is not None
    assert [interval.round for interval in whole.intervals] == [1, 2, 2, *[3] * len(order[3:])]
    plain = tuple(interval.model_copy(update={"round": None}) for interval in whole.intervals)
    same = pma_round(order, blind_fraction=whole.blind_fraction, stopped="interrupted").cpus[0].pma
    assert whole.model_copy(update={"intervals": plain}) == same
    ticks = [interval.interval_cycles for interval in whole.intervals]
    share = sum(ticks[1:3]) / sum(ticks)
    assert whole.blind_fraction == pytest.approx(0.5 * share + PMA.blind_fraction * (1 - share))
    with pytest.raises(InputError, match=r"different clocks: 2\.44542e\+09 Hz, 1e\+09 Hz"):
        merged([pma_round([0]), pma_round([1], tick_hz=1e9)])


@pytest.mark.parametrize("wrong", [{"cpu": "one"}, {"cpu": None}, {"cpu": [1]}, {"pma": 7}, {"more": 1}])
def test_rounds_read_cpu_by_cpu_are_those_read_at_once(wrong: dict[str, Any]) -> None:
    raw = read("jitter")
    one, two = (copy.deepcopy(raw) for _ in range(2))
    (cpu,) = raw["result"]["cpus"]
    one["result"]["cpus"] = [{**cpu, "cpu": 10}, {**cpu, "cpu": 2}]
    two["result"] |= {"cpus": [{**cpu, "cpu": 10}], "forks_per_s": 5.0}
    documents = [read_document(document) for document in (one, two)]
    found = read_result(ProbeDocument.merged([(1, documents[0], None), (2, documents[1], None)]), JitterResult)
    rounds = [read_result(document, JitterResult) for document in documents]
    assert found == merged(rounds)
    assert [item.cpu for item in found.cpus] == [2, 10]
    two["result"]["cpus"] = [{**cpu, **wrong}]
    with pytest.raises(InputError, match="not in its schema"):
        read_result(ProbeDocument.merged([(1, documents[0], None), (2, read_document(two), None)]), JitterResult)
