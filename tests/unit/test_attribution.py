# SPDX-License-Identifier: Apache-2.0
"""Causes of gaps by counters: sources with known shares are given their own, and nothing is guessed or told twice."""

from random import Random
from typing import Any

import pytest
from pydantic import ValidationError

from calibration.sutprobe.attribution import MIN_SLICES, Attribution, GapSource, Slices, attributed

SLICES = 200
SLICE_NS = 100_000_000


def sliced(sources: dict[str, list[int]], gaps: list[int], lost_ns: list[int], **changes: Any) -> Slices:
    """Return slices of equal length, with softirqs by lower-case names and timers by ``LOC``."""
    rows = [
        {"source": name, "kind": "softirq" if name.islower() else "interrupt", "timer": name == "LOC", "events": events}
        for name, events in sources.items()
    ]
    unknown = dict.fromkeys(("switches", "waited_ns", "steal_ms", "smi"))
    fields = {"length_ns": [SLICE_NS] * len(gaps), "gaps": gaps, "lost_ns": lost_ns, "periods": [], "sources": rows}
    return Slices.model_validate({**fields, **unknown, **changes}, strict=False)


def told(*observations: Slices) -> tuple[Attribution, dict[str, GapSource]]:
    found = attributed(observations)
    assert found is not None
    explained = [source.explained_gaps or 0 for source in found.sources]
    assert found.gaps == pytest.approx(found.unattributed_gaps + sum(explained))
    return found, {source.source: source for source in found.sources}


def known_shares(slices: int) -> tuple[Slices, float, float]:
    """Return slices, and the gaps of RES and of CAL in them.

    Each RES makes a gap of 5000 ns, two CAL make one of 3000, each softirq makes some other 2000 longer; 40 in each
    slice and the noise come from elsewhere.
    """
    random = Random(5)
    noise = [random.randrange(30) for _ in range(slices)]
    res = [random.randrange(60) for _ in range(slices)]
    cal = [random.randrange(300) if random.random() < 0.2 else 0 for _ in range(slices)]
    idle, timer = ([random.randrange(most) for _ in range(slices)] for most in (200, 40))
    rows = list(zip(res, cal, timer, noise, strict=True))
    observation = sliced(
        {"RES": res, "CAL": cal, "EVEN": [25] * slices, "IDLE": idle, "timer": timer},
        [one + two // 2 + 40 + other for one, two, _, other in rows],
        [5000 * one + 3000 * (two // 2) + 2000 * soft + 1000 * (40 + other) for one, two, soft, other in rows],
    )
    return observation, sum(res), sum(two // 2 for two in cal)


def test_each_source_is_given_its_own_and_the_steady_one_is_not_guessed() -> None:
    observation, res, cal = known_shares(SLICES)
    found, sources = told(observation)
    assert sources["RES"].explained_gaps == pytest.approx(res, rel=0.1)
    assert sources["RES"].explained_lost_ns == pytest.approx(5000 * res, rel=0.1)
    assert sources["RES"].reason is None
    assert sources["CAL"].explained_gaps == pytest.approx(cal, rel=0.1)
    assert sources["EVEN"].explained_gaps is None
    assert "too even" in str(sources["EVEN"].reason)
    assert sources["IDLE"].explained_gaps == 0
    assert sources["timer"].explained_gaps is None
    assert sources["timer"].explained_lost_ns
    assert "within a gap" in str(sources["timer"].reason)
    assert found.unattributed_gaps == pytest.approx(found.gaps - res - cal, rel=0.1)
    assert found.slice_s == SLICE_NS / 1e9


def test_nothing_is_told_of_too_few_slices() -> None:
    observation, _, _ = known_shares(MIN_SLICES - 1)
    found, sources = told(observation)
    assert sources["RES"].explained_gaps is None
    assert "no slices to compare" in str(sources["RES"].reason)
    assert found.unattributed_gaps == found.gaps


def test_an_event_makes_no_more_than_one_gap() -> None:
    random = Random(3)
    events = [random.randrange(100) for _ in range(SLICES)]
    _, sources = told(sliced({"RES": events}, [3 * count + 5 for count in events], [1000 * count for count in events]))
    assert sources["RES"].explained_gaps == pytest.approx(sum(events))


def test_a_timer_is_given_the_gaps_of_its_period() -> None:
    """Even where there is one slice; not a timer that comes too seldom, and not one that is called otherwise."""
    period = {"period_ns": 4e6, "gaps": [24], "lost_ns": [24_000]}
    for name, events, expected in (("LOC", 25, 24), ("LOC", 20, None), ("RES", 25, None)):
        found, sources = told(sliced({name: [events]}, [30], [90_000], periods=[period]))
        assert sources[name].explained_gaps == expected
        assert sources[name].explained_lost_ns == (None if expected is None else 24_000)
        assert (sources[name].reason is None) == (expected is not None)
        assert found.unattributed_gaps == 30 - (expected or 0)


def test_what_a_timer_or_a_switch_made_is_given_to_nobody_else() -> None:
    random = Random(9)
    often = [random.randrange(60) for _ in range(SLICES)]
    made, made_ns = [count + 25 for count in often], [1000 * (count + 25) for count in often]
    others = [random.randrange(5) for _ in range(SLICES)]
    gaps = [count + other for count, other in zip(made, others, strict=True)]
    lost_ns = [spent_ns + 1000 * other for spent_ns, other in zip(made_ns, others, strict=True)]
    period = {"period_ns": 4e6, "gaps": made, "lost_ns": made_ns}
    for changes in ({"switches": made, "waited_ns": made_ns}, {"periods": [period]}):
        _, sources = told(sliced({"LOC": [25] * SLICES, "RES": often}, gaps, lost_ns, **changes))
        assert (sources["RES"].explained_gaps, sources["RES"].explained_lost_ns) == (0, None)


def test_no_more_is_explained_than_there_is() -> None:
    found, sources = told(sliced({}, [3], [1000], switches=[4], waited_ns=[3000]))
    assert (sources["involuntary switches"].explained_gaps, found.unattributed_gaps) == (3, 0)
    assert (sources["involuntary switches"].explained_lost_ns, found.unattributed_lost_ns) == (1000, 0)


def test_switches_steal_and_smi_are_counted() -> None:
    observation = sliced({}, [9], [5000], switches=[4], waited_ns=[3000], steal_ms=10.0, smi=0)
    found, sources = told(observation)
    assert [source.kind for source in found.sources] == ["switch", "steal", "smi"]
    assert (sources["involuntary switches"].explained_gaps, found.unattributed_gaps) == (4, 5)
    assert (sources["involuntary switches"].explained_lost_ns, found.unattributed_lost_ns) == (3000, 2000)
    assert (sources["steal"].count, sources["steal"].explained_gaps) == (10, None)
    assert (sources["SMI"].explained_gaps, sources["SMI"].reason) == (0, None)
    _, sources = told(observation.model_copy(update={"waited_ns": None, "smi": 2}))
    assert "schedstat" in str(sources["involuntary switches"].reason)
    assert "before and after" in str(sources["SMI"].reason)


def test_rounds_add_up_by_source() -> None:
    period = {"period_ns": 4e6, "gaps": [25], "lost_ns": [25_000]}
    first = sliced({"LOC": [25]}, [100], [100_000], periods=[period], steal_ms=3.0)
    second = sliced({"LOC": [25], "RES": [4]}, [100], [100_000], steal_ms=1.0)
    found, sources = told(first, second)
    assert [(one.source, one.count, one.explained_gaps) for one in found.sources] == [
        ("LOC", 50, 25),
        ("RES", 4, None),
        ("steal", 4, None),
    ]
    assert "no slices" in str(sources["LOC"].reason), "why the second does not add to it"
    assert sources["LOC"].rate_per_s == pytest.approx(250)
    assert (found.slices, found.gaps, found.unattributed_share) == (2, 200, 175 / 200)
    assert attributed([]) is None


@pytest.mark.parametrize("changes", [{"gaps": [1, 2]}, {"length_ns": [0]}, {"switches": []}, {"gaps": [1 << 63]}])
def test_slices_that_do_not_agree_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        sliced({"RES": [1]}, **{"gaps": [1], "lost_ns": [1], **changes})
