# SPDX-License-Identifier: Apache-2.0
"""Jitter of many CPUs together, and under a load."""

import copy
from typing import Any

import pytest

from calibration.measurements.base import Metric, Step
from calibration.measurements.jitter import Jitter, JitterSettings, JitterValues, metrics_of_isolated
from calibration.measurements.sut import Sut
from calibration.sutprobe.document import read_document
from tests.captures import captured
from tests.recorded import read

MEASUREMENT = Jitter()
MACHINE = captured("x86_64-isolated")


def values_of(longest_ns: dict[int, float], isolated: range, **result: Any) -> list[JitterValues]:
    """Return the values of CPUs whose longest gaps are *longest_ns*, on a machine with these *isolated*."""
    raw = copy.deepcopy(read("jitter"))
    (recorded,) = raw["result"]["cpus"]
    raw["result"] = {
        "cpus": [
            {**recorded, "cpu": cpu, "gaps": {**recorded["gaps"], "max_ns": max_ns}}
            for cpu, max_ns in longest_ns.items()
        ],
        **result,
    }
    sut = Sut(MACHINE)
    sut.isolated = frozenset(isolated)
    step = next(item for item in MEASUREMENT.steps(Sut(MACHINE), JitterSettings()) if isinstance(item, Step))
    return [parsed.values for parsed in MEASUREMENT.parse(read_document(raw), step, sut)]  # type: ignore[misc]


def metrics_of(values: list[JitterValues]) -> dict[str, Metric]:
    return {metric.name: metric for item in values for metric in MEASUREMENT.metrics(item)}


@pytest.mark.parametrize(("cpus", "p99"), [(99, None), (100, 99_000.0)])
def test_the_longest_gap_of_all_isolated_cpus_is_a_metric(cpus: int, p99: float | None) -> None:
    isolated = range(1, cpus + 1)
    found = metrics_of(values_of({0: 1e9, **{cpu: 1000.0 * cpu for cpu in isolated}}, isolated))
    assert found["jitter.isolated.gaps.max_ns"].value == 1000.0 * cpus
    metric = found.get("jitter.isolated.gaps.p99_of_cpus_max_ns")
    assert (metric and metric.value) == p99
    assert len([name for name in found if name.startswith("jitter.isolated.")]) == 1 + (p99 is not None)


def test_a_cpu_that_left_is_in_no_metric_of_all() -> None:
    raw = dict.fromkeys((1, 2), 1000.0)
    values = values_of(raw, range(1, 3))
    assert [item.all_isolated is not None for item in values] == [True, False]
    moved = copy.deepcopy(read("jitter")["result"]["cpus"][0])
    lost = {**moved, "cpu": 1, "cpu_verified": False}
    kept = {**moved, "cpu": 2}
    first, second = values_of(raw, range(1, 3), cpus=[lost, kept])
    assert first.all_isolated is None
    assert second.all_isolated is not None
    assert second.all_isolated.cpus == (2,)


def test_names_of_metrics_never_mix_loads() -> None:
    quiet, loaded = (metrics_of(values_of({1: 5e3}, range(1, 2), **more)) for more in ({}, {"forks_per_s": 800.0}))
    assert not quiet.keys() & loaded.keys()
    assert {name.replace("jitter.", "jitter.housekeeping.") for name in quiet} == set(loaded)
    assert all(name.startswith(metrics_of_isolated([1])) for name in (*quiet, *loaded))
    assert not any(name.startswith(metrics_of_isolated([10])[1:2]) for name in quiet)


def test_the_longest_gap_of_all_was_looked_for_on_each_isolated_cpu() -> None:
    first, *_ = values_of({0: 1e9, 1: 1000.0, 2: 3000.0}, range(1, 3))[1:]
    observed = Jitter().observation(first, "jitter.isolated.gaps.max_ns")
    assert observed is not None
    assert observed.by_cpu == {1: 1000.0, 2: 3000.0}
    own = Jitter().observation(first, "jitter.cpu1.gaps.max_ns")
    assert own is not None
    assert own.by_cpu == {1: 1000.0}
    assert Jitter().observation(first, "jitter.cpu1.gaps.lost_fraction") is None
