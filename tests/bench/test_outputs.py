# SPDX-License-Identifier: Apache-2.0
"""Captured outputs of the peers, and the values read from them."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from bench import outputs
from bench.outputs import MIB, NotComparedError, Output

FIXTURES = Path(__file__).parents[1] / "fixtures" / "peers"


def captured(name: str) -> str:
    return (FIXTURES / f"{name.removesuffix('-longest')}.txt").read_text(encoding="utf-8")


def printed(text: str) -> Output:
    return Output(text, "")


READERS: dict[str, tuple[str, Callable[[Output], float], float]] = {
    "likwid-bench": ("20048.32", outputs.RATES["likwid-bench"], 20048.32),
    "bw_mem": ("15926.77", outputs.RATES["bw_mem"], 15926.77),
    "membench-read": ("15336.62", outputs.RATES["sc-membench"], 15336.62 * MIB),
    "mbw": ("7399.058", outputs.RATES["mbw"], 7399.058 * MIB),
    "multichase": ("309.0", outputs.MULTICHASE, 309.0),
    "core-to-core-latency": ("27.036170000000002", outputs.CORE_TO_CORE, 27.03617),
    "pingpong": ("41.8", outputs.PINGPONG, 41.8),
    "oslat-longest": ("401", outputs.OSLAT_LONGEST, 401.0),
    "cyclictest-longest": ("292", outputs.CYCLICTEST_LONGEST, 292.0),
    "rtla-timerlat-longest": ("23701", outputs.TIMERLAT_LONGEST, 23701.0),
    "oslat": ("2.000", lambda output: outputs.oslat_rate(output, 2), 1108.0),
    "cyclictest": ("000", lambda output: outputs.late_us(output, outputs.CYCLICTEST, 0.5), 27.5),
    "rtla-timerlat": ("199", lambda output: outputs.late_us(output, outputs.TIMERLAT, 0.5), 3282.5),
}


@pytest.mark.parametrize("name", READERS)
def test_captured_outputs_are_read_in_our_units(name: str) -> None:
    _, read, value = READERS[name]
    assert read(printed(captured(name))) == pytest.approx(value)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    "garbage", ["", "Segmentation fault", "nan\nnan", "0 0 0\n-1", "size_kb,operation\n,,,,,,,,,\n"]
)
def test_nonsense_is_refused(name: str, garbage: str) -> None:
    with pytest.raises(NotComparedError):
        READERS[name][1](printed(garbage))


@pytest.mark.parametrize("number", ["nan", "inf", "-1.0", "0"])
@pytest.mark.parametrize("name", [name for name in READERS if name not in ("oslat", "cyclictest", "rtla-timerlat")])
def test_an_invalid_number_is_refused(name: str, number: str) -> None:
    text, read, _ = READERS[name]
    with pytest.raises(NotComparedError):
        read(printed(captured(name).replace(text, number)))


def test_wake_ups_beyond_the_histogram_count() -> None:
    half = "000003 000010\n000004 000030\n000007 000039\n# Histogram Overflows: 1\n"
    assert outputs.late_us(printed(half), outputs.CYCLICTEST, 0.5) == 4.5
    text = captured("cyclictest")
    (least,) = re.findall(r"^# Min Latencies: (\d+)$", text, re.MULTILINE)
    assert outputs.late_us(printed(text), outputs.CYCLICTEST, 0.0) == int(least) + 0.5
    for least_us, percent in ((3, 100.0), (4, 87.5), (8, 1.25)):
        assert outputs.late_percent(printed(half), outputs.CYCLICTEST, least_us) == pytest.approx(percent)
    with pytest.raises(NotComparedError, match="no histogram of wake-ups"):
        outputs.late_percent(printed("000003 000010\n"), outputs.CYCLICTEST, 3)
    with pytest.raises(NotComparedError, match=r"reaches 99\.99 % of 1500 wake-ups"):
        outputs.late_us(printed(text), outputs.CYCLICTEST, 0.9999)
