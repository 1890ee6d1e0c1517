# SPDX-License-Identifier: Apache-2.0
"""Equal SUTs whose results differ all along, and results that flip: what differs with them, and what does not."""

from collections.abc import Mapping, Sequence
from datetime import date

import numpy as np
import pytest

from calibration.judge.lasting import (
    Flipping,
    Lasting,
    Results,
    Standing,
    bands_of,
    flipping_suts,
    lasting_differences,
    standing_of,
)
from calibration.judge.tolerances import Tolerances
from calibration.results.history import NightRun, Sut
from tests.unit.histories import BANDWIDTH, FACTS, history

NIGHTS = 40
SUTS: tuple[Sut, ...] = tuple((f"t{number}", "sut1") for number in range(1, 6))
ODD = SUTS[1]
ON = np.random.default_rng(3).random(NIGHTS) < 0.6
"""Nights on the upper level."""


def results(
    parts: Mapping[Sut, float | np.ndarray], suts: Sequence[Sut] = SUTS, *, unsteady: Sequence[Sut] = ()
) -> Results:
    """Return the results of one test on *suts*, which have *parts* of the usual."""
    chance = np.random.default_rng(1)
    values = [30.9 * parts.get(sut, 1.0) * chance.normal(1.0, 0.003, NIGHTS) for sut in suts]
    days = np.arange(NIGHTS) + date(2026, 1, 1).toordinal()
    return Results(
        "l2", "Mpps", [(sut,) for sut in suts], days, np.array(values), [sut not in unsteady for sut in suts]
    )


def run(sut: Sut, **facts: str) -> NightRun:
    return NightRun(*sut, "r", date(2026, 1, 1), "complete", "", {**FACTS, "processor": "P", **facts}, ())


def standing(
    last: Mapping[Sut, Mapping[str, str]] | None = None,
    first: Mapping[Sut, Mapping[str, str]] | None = None,
    levels: Mapping[Sut, float] | None = None,
    flipping: Sequence[Flipping] = (),
) -> dict[Sut, Standing]:
    """Return all SUTs, with facts on their first and last night, the level of a metric, and what flips at ``ODD``."""
    return {
        sut: Standing(
            run(sut, **((first or last or {}).get(sut, {}))),
            run(sut, **((last or {}).get(sut, {}))),
            {BANDWIDTH: ((levels or {}).get(sut, 100.0), "higher")},
            tuple(flipping) if sut == ODD else (),
        )
        for sut in SUTS
    }


def lasting(found: Results, known: Mapping[Sut, Standing]) -> tuple[Lasting, ...]:
    return lasting_differences([found], known, Tolerances())


def test_the_slower_of_equal_suts_is_named_with_what_it_differs_in() -> None:
    differs = {ODD: {"DIMMs": "16 at 4400"}} | {sut: {"DIMMs": "16 at 4800"} for sut in SUTS if sut != ODD}
    (found,) = lasting(results({ODD: 0.966}), standing(differs, levels={ODD: 90.0}))
    assert (found.suts, found.tests, found.others) == (("t2/sut1",), ("l2",), 4)
    assert found.interval[0] < -0.034 < found.interval[1]
    assert found.size == pytest.approx(-0.034, abs=0.003)
    assert [(fact.fact, fact.before, fact.after) for fact in found.facts] == [("DIMMs", "16 at 4800", "16 at 4400")]
    (metric,) = found.metrics
    assert (metric.metric, metric.better) == (BANDWIDTH, False)
    assert metric.size == pytest.approx(-0.1)


def test_a_fact_that_did_not_differ_from_the_beginning_is_no_suspect() -> None:
    differs = {ODD: {"BIOS": "new"}} | {sut: {"BIOS": "old"} for sut in SUTS if sut != ODD}
    alike = {sut: {"BIOS": "old"} for sut in SUTS}
    (found,) = lasting(results({ODD: 0.966}), standing(differs, first=alike))
    assert found.facts == ()
    assert found.metrics == ()


def test_another_sutprobe_is_no_suspect_and_its_metrics_are_not_compared() -> None:
    builds = {sut: {"sutprobe build": "other" if sut == ODD else "usual"} for sut in SUTS}
    (found,) = lasting(results({ODD: 0.966}), standing(builds, levels={ODD: 90.0}))
    assert (found.facts, found.metrics) == ((), ())


@pytest.mark.parametrize("part", [1.0, 0.996])
def test_suts_within_a_per_cent_are_equal(part: float) -> None:
    assert lasting(results({ODD: part}), standing({ODD: {"DIMMs": "other"}})) == ()


def test_suts_of_another_processor_two_alone_and_one_that_changed_are_not_compared() -> None:
    slow = {ODD: 0.966}
    assert lasting(results(slow), standing({ODD: {"processor": "another"}})) == ()
    assert lasting(results(slow, SUTS[:2]), standing()) == ()
    assert lasting(results(slow, unsteady=[ODD]), standing()) == ()
    assert len(lasting(results(slow), standing())) == 1


def test_nights_and_metrics_that_are_missing_are_left_out() -> None:
    found = results({ODD: np.where(ON, 0.966, np.nan)})
    (differs,) = lasting(found, standing(levels={ODD: 90.0, SUTS[3]: float("nan")}))
    assert differs.others == 4
    assert [metric.metric for metric in differs.metrics] == [BANDWIDTH]
    gaps = np.where(np.arange(NIGHTS) % 5 == 2, np.nan, np.where(ON, 1.0, 0.93))
    (bands,) = bands_of([results({ODD: gaps, SUTS[4]: np.full(NIGHTS, np.nan)})], standing(flipping=[fact(ON)]))
    assert (bands.of, [one.same for one in bands.together]) == (NIGHTS - 8, [NIGHTS - 8])


def fact(values: np.ndarray) -> Flipping:
    days = np.arange(NIGHTS) + date(2026, 1, 1).toordinal()
    return Flipping("fact", "NUMA balancing", "off", "on", dict(zip(days.tolist(), values.tolist(), strict=True)))


def test_what_is_on_two_levels_on_the_same_nights_is_claimed() -> None:
    found = results({ODD: np.where(ON, 1.0, 0.93)})
    assert flipping_suts([found]) == {ODD}
    (bands,) = bands_of([found], standing(flipping=[fact(~ON)]))
    assert (bands.suts, bands.nights, bands.of) == (("t2/sut1",), int((~ON).sum()), NIGHTS)
    assert (bands.lower, bands.upper) == pytest.approx((0.93 * 30.9, 30.9), rel=0.003)
    (together,) = bands.together
    assert (together.what, together.lower, together.upper, together.same) == ("NUMA balancing", "on", "off", NIGHTS)
    assert together.claimed


def test_what_flips_on_other_nights_is_not_claimed() -> None:
    found = results({ODD: np.where(ON, 1.0, 0.93)})
    (bands,) = bands_of([found], standing(flipping=[fact(np.random.default_rng(8).random(NIGHTS) < 0.5)]))
    assert not any(one.claimed for one in bands.together)
    assert bands_of([results({ODD: 0.966})], standing(flipping=[fact(ON)])) == ()


def test_metrics_and_facts_that_flip_are_found_in_the_history_where_asked_for() -> None:
    sut = ("lab", "t1")
    by_night = {night: {**FACTS, "NUMA balancing": "off" if on else "on"} for night, on in enumerate(ON.tolist())}
    values = {("lab", "t1", BANDWIDTH): np.where(ON, 100.0, 80.0) * np.random.default_rng(2).normal(1.0, 0.002, NIGHTS)}
    made = history({key: row.tolist() for key, row in values.items()}, facts=by_night)
    (known,) = standing_of(made, {"t1"}, {sut}).values()
    assert [(one.kind, one.what) for one in known.flipping] == [("metric", BANDWIDTH), ("fact", "NUMA balancing")]
    assert list(known.flipping[0].is_upper.values()) == ON.tolist()
    assert list(known.flipping[1].is_upper.values()) == (~ON).tolist()
    assert standing_of(made, {"t1"}, set())[sut].flipping == ()
