# SPDX-License-Identifier: Apache-2.0
"""Latency from made counts of the core and made samples."""

from typing import Any

import pytest

from calibration.counters.latency import counter_latency, latency_flags, sampled_loads, variation
from calibration.sutprobe.counters import Counted, Counters, Refused, SampledLatency, SampleRefusal, Samples

ARTICLE = {"core.cycles": 4e9, "core.l1d_pending": 3e9, "core.l1_miss": 1e7, "core.fb_hit": 2e7}


def counters(
    counts: dict[str, float | None], prefix: str = "", refused: tuple[Refused, ...] = (), **changes: Any
) -> Counters:
    events = tuple(
        Counted(
            **{
                "name": prefix + name, "pmus": ("cpu",), "cpu": None, "threads": 2, "count": round(count or 0),
                "scaled": count, "running_fraction": 1.0, "wall_s": 1.0, "wall_uncertainty_s": 1e-5, "steps": None,
                "hops": None, "background_count": None, "background_wall_s": None, **changes,
            }
        )
        for name, count in counts.items()
    )  # fmt: skip
    return Counters(background_s=None, events=events, refused=refused)


def test_latencies_match_the_article() -> None:
    found = counter_latency([counters(dict(ARTICLE)), counters({**ARTICLE, "core.l1d_pending": 3.3e9})])
    assert found is not None
    assert found.l1_miss is not None
    assert found.load_miss_real is not None
    assert found.core_hz is not None
    assert found.l1_miss.cycles.samples == ((300.0,), (330.0,))
    assert found.load_miss_real.cycles.samples == ((100.0,), (110.0,))
    assert found.core_hz.value == 2e9  # 4e9 cycles of two threads in a second
    assert found.l1_miss.ns is not None
    assert found.l1_miss.ns.samples == ((pytest.approx(150.0),), (pytest.approx(165.0),))
    assert found.not_counted == ()
    assert list(latency_flags([found, None])) == []


def test_the_probes_have_their_own_counters() -> None:
    both = counters(dict(ARTICLE))
    assert (found := counter_latency([both], "probe.")) is not None
    assert (found.l1_miss, found.load_miss_real, found.core_hz) == (None, None, None)
    assert (found := counter_latency([counters(dict(ARTICLE), "probe.")], "probe.")) is not None
    assert found.l1_miss is not None


def test_stopped_counters_give_a_reason() -> None:
    refused = Refused(name="core.fb_hit", pmu="cpu", cpu=None, errno="ENOENT", reason="no such event")
    gone = {name: count for name, count in ARTICLE.items() if name != "core.fb_hit"}
    found = counter_latency([counters(dict(ARTICLE)), counters(dict(gone), refused=(refused,))])
    assert found is not None
    assert found.l1_miss is not None
    assert found.load_miss_real is None
    assert [(event.role, event.reason) for event in found.not_counted] == [("core.fb_hit", "cpu: no such event")]
    found = counter_latency([counters({**ARTICLE, "core.l1d_pending": None})])
    assert found is not None
    assert (found.l1_miss, found.load_miss_real) == (None, None)
    assert counter_latency([]) is None


def test_no_misses_give_no_miss_latency() -> None:
    found = counter_latency([counters({**ARTICLE, "core.l1_miss": 0.0})])
    assert found is not None
    assert (found.l1_miss, found.load_miss_real) == (None, None)
    assert [event.reason for event in found.not_counted] == ["no load missed the first-level cache"]


def test_without_a_clock_only_cycles() -> None:
    found = counter_latency([counters({name: count for name, count in ARTICLE.items() if name != "core.cycles"})])
    assert found is not None
    assert found.core_hz is None
    assert found.l1_miss is not None
    assert (found.l1_miss.cycles.value, found.l1_miss.ns) == (300.0, None)


def test_counters_that_shared_the_hardware_are_flagged() -> None:
    found = counter_latency([counters(dict(ARTICLE), running_fraction=0.25)])
    assert [flag.code for flag in latency_flags([found])] == ["COUNTERS_MULTIPLEXED"]


def samples(mean: float | None, **changes: Any) -> Samples:
    fields: dict[str, Any] = {
        "method": "pebs",
        "period": 1009,
        "taken": 100,
        "lost": 1,
        "kept": 90,
        "reasons": {"TLB miss": 10},
        "latency_cycles": mean and SampledLatency(mean=mean, median=mean, p10=mean, p90=mean, min=mean, max=mean),
        "histogram": (),
        "refused": None,
    }
    return Samples(**{**fields, **changes})


def test_samples_of_all_placements_are_one_latency() -> None:
    found = sampled_loads([samples(300.0), samples(310.0)], [2e9, 2e9])
    assert found is not None
    assert (found.taken, found.lost, found.kept, found.reasons) == (200, 2, 180, {"TLB miss": 20})
    assert found.latency is not None
    assert found.latency.cycles.samples == ((300.0,), (310.0,))
    assert found.latency.ns is not None
    assert found.latency.ns.value == pytest.approx(152.5)
    assert sampled_loads([], []) is None


def test_no_samples_have_a_reason() -> None:
    refused = SampleRefusal(errno="EACCES", reason="not permitted")
    found = sampled_loads([samples(300.0), samples(None, refused=refused)], [2e9, 2e9])
    assert found is not None
    assert (found.latency, found.reason) == (None, "not permitted")
    found = sampled_loads([samples(None)], [2e9])
    assert found is not None
    assert found.reason == "no sampled load hit the TLB and came from local DRAM"


def test_variation_is_standard_deviation_over_mean() -> None:
    assert variation([1.0, 3.0]) == pytest.approx(2**0.5 / 2)
    assert variation([2.0, 2.0]) == 0.0
    assert variation([2.0]) is None
    assert variation([-1.0, 1.0]) is None
