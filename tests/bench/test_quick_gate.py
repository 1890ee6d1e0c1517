# SPDX-License-Identifier: Apache-2.0
"""The quick gate keeps its rates on recorded noise: simulated gates, fewer than for the tables of the method page."""

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.stats import binom

from bench import quick_gate as bench
from bench.contenders import Machine
from bench.noise import Recording
from calibration.errors import GOOD, EnvironmentLacksError
from calibration.judge.sentinels import FALSE_REFUSALS, FOUND, SENTINELS

BENCH = Path(bench.__file__).parent
GATES = 100
DOUBT = 1e-3
"""How often a rate that is kept may fail its test."""

RECORDED = {
    name: Recording.model_validate_json((BENCH / f"{name}.json").read_bytes())
    for name in ("recorded_noise", "recorded_sentinels")
}


def most(share: float) -> int:
    """Return the most of ``GATES`` that a probability *share* explains."""
    return int(binom.isf(DOUBT, GATES, share))


@pytest.mark.parametrize(
    ("name", "scale", "nights", "quiet"),
    [
        ("recorded_noise", 1.0, 10, False),
        ("recorded_noise", 1 / 100, 30, True),
        ("recorded_sentinels", 1.0, 10, False),
        ("recorded_sentinels", 1 / 300, 30, True),
    ],
)
def test_rates_are_kept(name: str, scale: float, nights: int, quiet: bool) -> None:
    rates = bench.rates_of(RECORDED[name], nights, scale, GATES, seed=7)
    assert rates.refused.trials == GATES
    assert rates.refused.number <= most(FALSE_REFUSALS)
    assert {sentinel: rate.text for sentinel, rate in rates.missed.items() if rate.number > most(1 - FOUND)} == {}
    for sentinel in SENTINELS:
        found, decided = rates.found[sentinel.name], rates.decided[sentinel.name]
        if quiet:
            assert GATES - found.number <= most(1 - FOUND), f"{sentinel.name}: {found.text}"
            assert decided.share >= FOUND
        else:  # undecided, and neither passed nor refused
            assert max(found.share, decided.share) <= 0.1, f"{sentinel.name}: {found.text}, {decided.text}"


def test_quieter_noise_keeps_its_level_and_its_shape() -> None:
    values = [90.0, 100.0, 130.0]
    found = bench.quieter(values, 0.1)
    assert found[1] == pytest.approx(100.0)
    assert np.log(found / 100.0) == pytest.approx(0.1 * np.log(np.array(values) / 100.0))


def test_intervals_of_rates() -> None:
    assert bench.Rate(0, 60).text == "0.0 [0.0, 6.0]"
    assert bench.Rate(60, 60).text == "100.0 [94.0, 100.0]"
    assert bench.Rate(10, 200).text.startswith("5.0 [2.4, 9.0]")


def test_the_table_has_a_row_for_each_noise() -> None:
    done = CliRunner().invoke(bench.quick_gate, ["simulate", str(BENCH / "recorded_noise.json"), "--gates", "10"])
    assert done.exit_code == GOOD, done.output
    lines = done.output.splitlines()
    assert len(lines) == len(bench.NOISES) + 4
    assert lines[1].split()[:3] == ["Noise", "Nights", "Refused"]


def test_gates_of_this_machine_are_counted_by_check() -> None:
    gated = [
        bench.Gated(0, 30.0, {"measured": "passed", "latency": "passed"}),
        bench.Gated(1, 40.0, {"measured": "passed", "latency": "failed"}),
        bench.Gated(3, 40.0, {"measured": "undecided"}),
    ]
    assert list(bench.gated_rows(gated)) == [
        ("all", "1", "1", "1"),
        ("measured", "2", "0", "1"),
        ("latency", "1", "1", "0"),
    ]


def test_nights_are_a_day_apart_and_the_last_is_today(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def calibration(*words: str) -> int:
        made.append(json.loads(words[-1])["calibration_run_id"])
        (tmp_path / "t" / "s" / made[-1]).mkdir(parents=True)
        return GOOD

    monkeypatch.setattr(bench, "_calibration", calibration)
    run = bench.make_nights(tmp_path, 5)
    days = [datetime.strptime(name[:8], "%Y%m%d").replace(tzinfo=UTC) for name in made]
    assert run.name == made[-1]
    assert [(days[-1] - day).days for day in days] == [4, 3, 2, 1, 0]
    assert days[-1].date() == datetime.now(UTC).date()


def test_recording_takes_every_sentinel_in_each_round(monkeypatch: pytest.MonkeyPatch) -> None:
    fixtures = Path(__file__).parents[1] / "fixtures" / "sutprobe"
    machine = Machine((0, 1), ((0, (0, 1)),), "x86_64", frozenset(), True, 1 << 30, 1 << 30, 1e9, "two CPUs")
    started: list[list[str]] = []

    def run(command: tuple[str, ...], **_: object) -> subprocess.CompletedProcess[str]:
        started.append(list(command))
        kind = {"latency": "idle_latency", "bandwidth": "peak_injection_bandwidth", "frequency": "core_frequency"}
        name = kind.get(command[1], command[1])
        return subprocess.CompletedProcess(command, 0, (fixtures / f"{name}.json").read_text(encoding="utf-8"), "")

    monkeypatch.setattr(bench, "program_of", lambda: "sutprobe")
    monkeypatch.setattr(bench, "tick_hz_of", lambda _: 1e9)
    monkeypatch.setattr(bench, "describe_machine", lambda *_: machine)
    monkeypatch.setattr(subprocess, "run", run)
    found = bench.record(0.0005)
    titles = [item.title for item in found.series]
    latency, bandwidth, clock = (sentinel.metrics for sentinel in SENTINELS)
    assert titles == [bench.GAP, *reversed(clock), *latency, *bandwidth]
    rounds = len(found.series[1].values)
    assert len(started) == 4 * rounds
    assert [bench.series_of(found, sentinel).title for sentinel in SENTINELS] == [latency[0], bandwidth[0], clock[0]]
    seeds = [command[-1] for command in started if command[1] == "latency"]
    assert seeds == [str(number) for number in range(1, rounds + 1)]
    failed = subprocess.CompletedProcess("", 3, "", "no memory")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(EnvironmentLacksError, match="no memory"):
        bench.record(0.0005)
