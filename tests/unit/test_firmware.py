# SPDX-License-Identifier: Apache-2.0
"""Gaps with interrupts off become a longest gap and a rate with exact bounds; what is unknown stays unknown."""

from math import exp, factorial, log
from typing import Any

import pytest

from calibration.base.errors import InputError
from calibration.base.statistics import poisson_bounds
from calibration.context.model import Context
from calibration.measurements.base import Step
from calibration.measurements.firmware import Firmware, FirmwareSettings, FirmwareValues
from calibration.measurements.sut import Sut
from calibration.sutprobe.document import Part, ProbeError
from calibration.sutprobe.firmware import LONGEST, FirmwareCpu, FirmwareGap, FirmwareGaps, FirmwareResult
from tests.unit.test_measurements import MACHINE, codes, one, read

MEASUREMENT = Firmware()


def gaps(observed_s: float, *lengths_ns: float, count: int | None = None, at_ns: int = 10**18) -> FirmwareGaps:
    return FirmwareGaps(
        observed_s=observed_s,
        count=len(lengths_ns) if count is None else count,
        nmi_windows=0,
        lost_windows=0,
        longest=tuple(
            FirmwareGap(at_unix_ns=at_ns + place * 10**9, length_ns=length)
            for place, length in enumerate(sorted(lengths_ns, reverse=True))
        ),
    )


def result(*seen: FirmwareGaps | None, smi: int | None = None, throttle: int | None = None) -> FirmwareResult:
    known = seen[0] is not None
    return FirmwareResult(
        instrument="hwlat" if known else None,
        refused=None if known else "this kernel has no tracer hwlat (CONFIG_HWLAT_TRACER)",
        threshold_ns=10_000 if known else None,
        wall_s=2.0,
        stopped="time",
        smi_source=None if smi is None else "the event msr/smi/",
        smi_refused="no count" if smi is None else None,
        cpus=tuple(
            FirmwareCpu(cpu=cpu, gaps=part, smi=smi, core_throttle=throttle, package_throttle=throttle)
            for cpu, part in enumerate(seen, 1)
        ),
    )


def values_of(found: FirmwareResult) -> FirmwareValues:
    raw = read("firmware") | {"result": found.model_dump(mode="json")}
    values = one("firmware", raw).values
    assert isinstance(values, FirmwareValues)
    return values


def merged(*rounds: FirmwareResult) -> FirmwareResult:
    return FirmwareResult.merged(
        [(Part(round=number, result=None, around=None), part) for number, part in enumerate(rounds, 1)]
    )


def metrics(values: FirmwareValues) -> dict[str, Any]:
    return {metric.name: metric for metric in MEASUREMENT.metrics(values)}


def test_none_seen_is_an_upper_bound_and_not_zero() -> None:
    values = values_of(result(gaps(1800.0), gaps(3600.0)))
    assert values.headline == "hardware latency: at most 10.0 µs, 0 per hour"
    assert values.max_gap_ns == 10_000
    assert values.rate_per_hour is not None
    # The rule of three, by the CPU that was observed for half an hour.
    assert (values.rate_per_hour.cpu, values.rate_per_hour.value) == (1, 0.0)
    assert values.rate_per_hour.interval == pytest.approx((0.0, -2 * log(0.05)))
    assert list(MEASUREMENT.summary([values])) == [
        "Hardware latency: at most 10.0 µs, 0 per hour.",
        "None of more than 10 µs in 30 min 0 s: at most 5.99 per hour with 95 % confidence.",
    ]


def test_rate_is_by_observed_time_of_the_worst_cpu() -> None:
    # Two gaps in a quarter of an hour are more per hour than three in a whole one.
    values = values_of(result(gaps(3600.0, 12e3, 13e3, 250e3), gaps(900.0, 30e3, 20e3)))
    assert values.headline == "hardware latency: at most 250 µs, 8 per hour"
    assert values.rate_per_hour is not None
    assert values.rate_per_hour.cpu == 2
    assert values.rate_per_hour.interval == pytest.approx((4 * 0.24221, 4 * 7.22469), rel=1e-4)
    assert values.observed_s == 900.0
    found = metrics(values)
    assert found["firmware.max_gap_ns"].value == 250e3
    assert found["firmware.max_gap_ns"].interval is None
    assert (found["firmware.rate_per_hour"].value, found["firmware.rate_per_hour"].coverage) == (8.0, 0.95)


@pytest.mark.parametrize("count", [1, 2, 5, 30, 100])
def test_bounds_are_exact(count: int) -> None:
    low, high = poisson_bounds(count)

    def at_most(number: int, mean: float) -> float:
        return sum(exp(-mean) * mean**seen / factorial(seen) for seen in range(number + 1))

    assert 1 - at_most(count - 1, low) == pytest.approx(0.025, rel=1e-6)
    assert at_most(count, high) == pytest.approx(0.025, rel=1e-6)


def test_bounds_of_many_are_those_of_a_normal_distribution() -> None:
    low, high = poisson_bounds(1_000_000)
    assert (low, high) == pytest.approx((1e6 - 1960, 1e6 + 1960), abs=5)


def test_rounds_are_one_observation() -> None:
    many = [gaps(1.0, *(1e4 + place for place in range(LONGEST))), gaps(2.0, 5e5, count=7)]
    found = merged(*(result(part, smi=2, throttle=1) for part in many))
    (cpu,) = found.cpus
    assert cpu.gaps is not None
    assert (cpu.gaps.observed_s, cpu.gaps.count, found.wall_s) == (3.0, LONGEST + 7, 4.0)
    assert len(cpu.gaps.longest) == LONGEST
    assert cpu.gaps.longest[0].length_ns == 5e5
    assert (cpu.smi, cpu.core_throttle, cpu.package_throttle) == (4, 2, 2)


def test_rounds_without_the_tracer_add_nothing() -> None:
    found = merged(result(None), result(gaps(1.0, 2e4), smi=3), result(None))
    assert (found.instrument, found.refused, found.wall_s) == ("hwlat", None, 2.0)
    assert found.cpus[0].gaps == gaps(1.0, 2e4)
    assert found.cpus[0].smi == 3
    assert merged(result(gaps(1.0), smi=3), result(gaps(1.0))).cpus[0].smi is None


def test_without_an_instrument_counts_remain_and_nothing_is_zero() -> None:
    values = values_of(result(None, None, smi=5))
    assert (values.headline, values.max_gap_ns, values.rate_per_hour, values.observed_s) == (None, None, None, None)
    assert (values.smi, values.core_throttle) == (5, None)
    assert values_of(result(None, throttle=2)).smi is None
    assert values_of(result(None, throttle=2)).package_throttle == 2
    assert metrics(values) == {}
    (sentence,) = MEASUREMENT.summary([values])
    assert "CONFIG_HWLAT_TRACER" in sentence


def test_a_cpu_that_was_not_observed_costs_no_other() -> None:
    found = result(gaps(3600.0, 12e3), None)
    error = ProbeError(code="cpu_offline", message="CPU 2 is offline")
    lost = found.cpus[1].model_copy(update={"error": error})
    found = found.model_copy(update={"cpus": (found.cpus[0], lost)})
    parsed = one("firmware", read("firmware") | {"result": found.model_dump(mode="json")})
    assert (parsed.values.observed_s, parsed.values.max_gap_ns, parsed.values.rate_per_hour.cpu) == (3600.0, 12e3, 1)
    assert [(gone.what, gone.reason) for gone in parsed.missing] == [("CPU 2", "cpu_offline: CPU 2 is offline")]
    # Observed in another round, it has those gaps.
    (_, cpu) = merged(found, result(gaps(1.0), gaps(1.0, 2e4))).cpus
    assert (cpu.error, cpu.gaps) == (None, gaps(1.0, 2e4))


def test_a_tracer_that_observed_nothing_is_no_value() -> None:
    with pytest.raises(InputError, match="observed nothing"):
        values_of(result(gaps(0.0)))


def test_overlapping_gaps_are_one_moment() -> None:
    first, second = gaps(1.0, 3e5, at_ns=10**18), gaps(1.0, 4e5, at_ns=10**18 + 200_000)
    later = gaps(1.0, 2e5, at_ns=10**18 + 900_000)
    values = values_of(result(first, second, later))
    assert [(moment.length_ns, moment.cpus) for moment in values.moments] == [(4e5, (1, 2)), (2e5, (3,))]
    assert values.moments[0].at == "2001-09-09 01:46:40.000"


def test_a_moment_is_as_long_as_the_longest_of_its_gaps() -> None:
    first, second = gaps(1.0, 4e5, at_ns=10**18), gaps(1.0, 3e5, at_ns=10**18 + 200_000)
    (moment,) = values_of(result(first, second)).moments
    assert (moment.length_ns, moment.at_unix_ns) == (4e5, 10**18 + 200_000)


def test_lost_windows_are_flagged() -> None:
    lost = gaps(1.0, 2e4).model_copy(update={"lost_windows": 3})
    raw = read("firmware") | {"result": result(lost).model_dump(mode="json")}
    assert "TRACE_LOST" in codes(one("firmware", raw))
    assert "TRACE_LOST" not in codes(one("firmware", read("firmware")))


def steps_of(context: Context, **settings: Any) -> list[Step]:
    return [step for step in Firmware().steps(Sut(context), FirmwareSettings(**settings)) if isinstance(step, Step)]


def test_cpus_are_few_and_spread() -> None:
    online = tuple(sorted(cpu for node in MACHINE.nodes for cpu in node.cpus))
    isolation = MACHINE.isolation.model_copy(update={"isolated": online[1:]})
    isolated = MACHINE.model_copy(update={"isolation": isolation})
    (step,) = steps_of(isolated, cpus=3)
    assert len(step.cpus) == 3
    assert step.cpus[0] == online[1]
    assert step.cpus[2] >= online[len(online) // 2]
    (step,) = steps_of(isolated, cpus=None)
    assert step.cpus == online[1:]
    (step,) = steps_of(MACHINE)
    assert len(step.cpus) == len([node for node in MACHINE.nodes if node.cpus])
