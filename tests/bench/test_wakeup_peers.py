# SPDX-License-Identifier: Apache-2.0
"""What is read of cyclictest and rtla timerlat, and how runs are compared."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.outputs import NotComparedError
from bench.wakeup import (
    OURS,
    THRESHOLDS_US,
    Seen,
    Tool,
    alternate,
    main,
    may_hold,
    read_cyclictest,
    read_ours,
    read_timerlat,
    rows,
    tools,
)

FIXTURES = Path(__file__).parents[1] / "fixtures"


def captured(name: str) -> str:
    return (FIXTURES / "peers" / f"{name}.txt").read_text(encoding="utf-8")


def test_cyclictest_counts_add_up_to_its_own_total() -> None:
    text = captured("cyclictest")
    seen = read_cyclictest(text)
    (total,) = re.findall(r"^# Total: (\d+)$", text, re.MULTILINE)
    (least,) = re.findall(r"^# Min Latencies: (\d+)$", text, re.MULTILINE)
    (over,) = re.findall(r"^# Histogram Overflows: (\d+)$", text, re.MULTILINE)
    assert seen.wakes == int(total) + int(over)
    assert seen.min_us == int(least) + 0.5
    assert seen.above[1000] == int(over) > 0  # all beyond the captured histogram of 120 us
    assert seen.above[10] == seen.wakes
    assert list(seen.above.values()) == sorted(seen.above.values(), reverse=True)


def test_timerlat_counts_threads_up_to_its_own_total() -> None:
    text = captured("rtla-timerlat")
    seen = read_timerlat(text)
    (count,), (least,), (over,) = (
        re.findall(rf"^{word}: +\d+ +(\d+) *$", text, re.MULTILINE) for word in ("count", "min", "over")
    )
    assert seen.wakes == int(count)
    assert seen.min_us == int(least) + 0.5
    assert seen.above[1000] > int(over) > 0


def test_the_median_of_a_histogram_has_half_of_the_wake_ups_below() -> None:
    text = "# Histogram\n000003 000010\n000004 000030\n000007 000039\n# Histogram Overflows: 1\n"
    assert read_cyclictest(text).median_us == 4.5
    assert read_cyclictest(text.replace("000030", "000029")).median_us == 7.5


def test_our_own_counts_are_those_of_the_document() -> None:
    text = (FIXTURES / "sutprobe" / "wakeup.json").read_text(encoding="utf-8")
    (cpu,) = json.loads(text)["result"]["conditions"][0]["cpus"]
    seen = read_ours(text)
    assert (seen.wakes, seen.min_us) == (cpu["wakes"], cpu["min_ns"] / 1000)
    assert list(seen.above) == list(THRESHOLDS_US)
    assert seen.above[10] == cpu["above"][0]
    late = cpu["late_ns"]
    at_most = sum(
        count for start, count in zip(late["starts"], late["counts"], strict=True) if start <= 1000 * seen.median_us
    )
    assert abs(2 * at_most - seen.wakes) < 0.1 * seen.wakes


@pytest.mark.parametrize("read", [read_cyclictest, read_timerlat])
def test_output_without_a_histogram_is_not_compared(read: object) -> None:
    with pytest.raises(NotComparedError):
        read("")  # type: ignore[operator]


def test_only_tools_that_are_there_run() -> None:
    assert list(tools("p", 1, 1000, 1, lambda _: None, held=False)) == [OURS]
    assert list(tools("p", 1, 1000, 1, lambda name: f"/{name}", held=True)) == [OURS, "cyclictest", "rtla timerlat"]


def seen(count: int, least: float) -> Seen:
    return Seen(1000, least, 2 * least, dict.fromkeys(THRESHOLDS_US, count))


def test_ratios_are_of_pairs() -> None:
    ours = [seen(count, 2.5) for count in (10, 20, 30, 40, 50, 60)]
    theirs = [seen(count * 2, 2.0) for count in (10, 20, 30, 40, 50, 60)]
    table = rows({OURS: ours, "peer": theirs})
    assert table[0] == ("peer", "minimum, µs", "2.5", "2", "difference 0.5 [0.5, 0.5]")
    assert table[1] == ("peer", "median, µs", "5", "4", "difference 1 [1, 1]")
    assert ("peer", "at least 50 µs", "210", "420", "0.5 [0.5, 0.5]") in table
    assert ("peer", "at least 50 µs", "10", "0", "—") in rows({OURS: [seen(10, 1)], "peer": [seen(0, 1)]})


def test_a_tool_that_fails_is_left_out_and_ours_may_not() -> None:
    said: list[str] = []
    good, bad = Tool(("true",), lambda _: seen(1, 1)), Tool(("false",), lambda _: seen(1, 1))
    assert list(alternate({OURS: good, "peer": bad}, 2, 1, said.append)) == [OURS]
    assert len(said) == 1
    with pytest.raises(NotComparedError):
        alternate({OURS: bad}, 1, 1, said.append)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--alternations", "0"), 2, "--alternations"),
        (("--period-us", "0"), 2, "--period-us"),
        (("--seconds", "0"), 2, "--seconds"),
        (("--ssh", "false"), 1, "error: sutprobe could not be copied"),
    ],
)
def test_faults_are_said_in_a_line(arguments: tuple[str, ...], code: int, says: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == code
    assert says in result.output
    assert isinstance(result.exception, SystemExit)


@pytest.mark.parametrize("login", [(), ("sh", "-c")])
def test_a_file_that_exists_and_cannot_be_opened_is_not_held(login: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    assert [may_hold(login, tmp_path / name) for name in ("file", "", "missing")] == [True, False, False]
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"x"]
