# SPDX-License-Identifier: Apache-2.0
"""The benchmark of coverage: made runs and recordings with known answers."""

import json
import os
import re
import stat
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from docutils.core import publish_doctree

from bench import coverage, families
from bench.families import Family
from bench.shares import Share, share_of, spread_of
from calibration.errors import EnvironmentLacksError, InputError
from calibration.judge.comparison import Compared
from calibration.results.model import RunDocument
from calibration.runner.intervals import MOMENTS
from calibration.statistics import estimate
from calibration.validity import Validity
from tests.report.report_documents import replace, run_document, store

IDLE = "Idle latency"


def made(number: int, value: float, half: float, *, rounds: int = 6) -> RunDocument:
    """Return a run whose idle latency is *value*, from *value* - *half* to *value* + *half*, over so many rounds."""
    run = {"id": f"20260102T030{number:03}Z-0001", "started_at": datetime(2026, 1, 2, tzinfo=UTC) + timedelta(number)}
    document = run_document(names=("idle_latency",), **run)
    samples = [value - half / MOMENTS, *[value] * (rounds - 2), value + half / MOMENTS]
    latency = estimate([[sample] for sample in samples], "ns", rounds=range(rounds))
    values = document.measurements[0].values.model_copy(update={"latency_ns": latency})
    return replace(document, 0, values=values)


def row(runs: Sequence[RunDocument], family: str = IDLE) -> Family:
    return next(row for row in families.families(runs) if row.family == family)


@pytest.fixture
def four() -> list[RunDocument]:
    """Three runs that agree, and one whose interval does not hold what they have."""
    return [made(number, value, 2.0) for number, value in enumerate((100.0, 100.5, 101.0, 150.0))]


def test_coverage_is_counted_rightly(four: list[RunDocument]) -> None:
    found = row(four)
    assert (found.intervals, found.uncertain, found.claimed) == (4, 0, 0.96875)
    assert found.achieved is not None
    assert (found.achieved.share, found.achieved.number) == (0.75, 4)
    assert found.predicted is not None
    assert (found.predicted.share, found.predicted.number) == (pytest.approx(2 / 3), 3)
    assert found.half_width == pytest.approx(2.0 / (1.96 * 1.4826 * 0.5 * 4 / 3.2))
    assert row(four, families.METRICS)[1:] == found[1:]


def test_prediction_is_wider_than_the_interval() -> None:
    found = row([made(number, value, 2.0) for number, value in enumerate((100.0, 102.5, 100.0, 103.0))])
    assert found.predicted is not None
    assert found.predicted.share == pytest.approx(2 / 3)


def test_a_run_is_no_witness_for_itself() -> None:
    # the median of all three is in each interval, that of the other two only in the second
    found = row([made(number, value, 12.0) for number, value in enumerate((100.0, 110.0, 120.0))])
    assert found.achieved is not None
    assert found.achieved.share == pytest.approx(1 / 3)


def test_intervals_that_claim_less_are_only_listed() -> None:
    found = row([made(number, 100.0 + number, 1.0, rounds=3) for number in range(3)])
    assert (found.intervals, found.uncertain) == (3, 3)
    assert found[3:7] == (None, None, None, None)
    mixed = row([made(number, 100.0 + number, 5.0, rounds=3 if number else 6) for number in range(3)])
    assert mixed.achieved is not None
    assert (mixed.intervals, mixed.uncertain, mixed.achieved.number) == (3, 2, 1)


def test_an_invalid_measurement_states_nothing(four: list[RunDocument]) -> None:
    struck = replace(four[3], 0, validity=Validity(valid=False, flags=()))
    found = row([*four[:3], struck])
    assert found.achieved is not None
    assert (found.intervals, found.achieved.share) == (3, 1.0)


def test_differing_metrics_are_those_of_compare(four: list[RunDocument], monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def compare(first: RunDocument, second: RunDocument) -> Compared:
        calls.append((first.run.id, second.run.id))
        return genuine(first, second)

    genuine = families.compare
    monkeypatch.setattr(families, "compare", compare)
    found = row(four)
    ids = [run.run.id for run in four]
    assert calls == list(pairwise(ids))
    assert (found.compared, found.differ) == (3, pytest.approx(1 / 3))


def test_every_kind_is_in_a_family() -> None:
    runs = [run_document(id=f"20260102T03040{number}Z-0001") for number in range(3)]
    rows = {row.family: row for row in families.families(runs)}
    for name in ("Latency ladder, levels", "Latency ladder, points", "Core-to-core matrix, pairs", "Core frequency"):
        achieved = rows[name].achieved
        assert achieved is not None
        assert achieved.share == 1.0  # equal values lie in their intervals, whatever those have as width
    assert rows[families.METRICS].differ == 0
    assert {len(families.cells(row)) for row in rows.values()} == {len(families.HEAD)}


def test_two_runs_tell_nothing(four: list[RunDocument]) -> None:
    with pytest.raises(InputError, match="2 runs, at least 3"):
        families.families(four[:2])


def test_intervals_of_a_run_fail_together() -> None:
    assert share_of([]) is None
    assert share_of([[], []]) is None
    together = share_of([[True] * 10] * 9 + [[False] * 10])
    assert together is not None
    assert (together.share, together.low, together.high, together.number) == (0.9, 0.7, 1.0, 100)
    apart = share_of([[True] * 9 + [False]] * 10)
    assert apart == Share(0.9, 0.9, 0.9, 100)


def test_spread_is_half_the_central_range() -> None:
    draw = np.random.default_rng(5)
    spreads = [spread_of(values.tolist()) for values in draw.standard_normal((4000, 10))]
    assert float(np.mean(spreads)) == pytest.approx(1.96, rel=0.03)
    assert spread_of([1.0, 1.0, 1.0, 1.0, 2.0]) > 0
    assert spread_of([1.0] * 5) == 0


def test_the_table_is_rst_or_json(four: list[RunDocument], tmp_path: Path) -> None:
    for run in (*four, made(7, 1.0, 0.5).model_copy(update={"run": four[0].run.model_copy(update=OTHER)})):
        store(run, tmp_path / "results")
    invoke = CliRunner().invoke
    text = invoke(coverage.coverage, ["table", str(tmp_path)], catch_exceptions=False).output
    cells = [IDLE, "4", "0", "96.9", "75.0 [25, 100]", "66.7 [0, 100]", "1.10", "33.3"]
    assert re.split(r"  +", text.splitlines()[3]) == cells
    tree = publish_doctree(text, settings_overrides={"report_level": 2, "halt_level": 2})
    assert "75.0 [25, 100]" in tree.astext()
    raw = json.loads(invoke(coverage.coverage, ["table", "--json", str(tmp_path)], catch_exceptions=False).output)
    assert raw["runs"] == [run.run.id for run in four]
    assert raw["families"][0]["achieved"]["share"] == 0.75


OTHER = {"id": "20260102T030409Z-0001", "profile": "nightly"}


def test_runs_of_other_profiles_and_other_files_are_refused(four: list[RunDocument], tmp_path: Path) -> None:
    paths = [store(run, tmp_path) for run in four]
    assert len(coverage.read_runs([tmp_path, *paths], "quick")) == 4
    with pytest.raises(InputError, match="no run of the profile nightly"):
        coverage.read_runs(paths, "nightly")
    elsewhere = four[0].model_copy(update={"run": four[0].run.model_copy(update={"sut": "other"})})
    with pytest.raises(InputError, match="several SUTs"):
        coverage.read_runs([*paths, store(elsewhere, tmp_path)], "quick")
    (tmp_path / "text").write_text("{}", encoding="utf-8")
    with pytest.raises(InputError, match="not a run document"):
        coverage.read_runs([tmp_path / "text"], "quick")


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for Python that writes its arguments to its home, and ends with the code in the file ``code``."""
    path = tmp_path / "python"
    path.write_text('#!/bin/sh\necho "$@" >> "$CALIBRATION_HOME/asked"\nexit "$(cat "$0.code")"\n', encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(sys, "executable", str(path))
    return path


def test_repeats_have_a_home_of_their_own(program: Path, tmp_path: Path) -> None:
    program.with_suffix(".code").write_text("1", encoding="utf-8")
    said: list[str] = []
    before = os.environ.get("CALIBRATION_HOME")
    times = coverage.repeat("quick", 2, tmp_path / "home", said.append)
    asked = (tmp_path / "home" / "asked").read_text(encoding="utf-8").splitlines()
    assert len(times) == len(asked) == len(said) == 2
    assert all("run -i" in line and "inventories/localhost --profile quick" in line for line in asked)
    rows = [json.loads(line) for line in (tmp_path / "home" / coverage.TIMES).read_text(encoding="utf-8").splitlines()]
    assert [(row["profile"], row["exit_code"]) for row in rows] == [("quick", 1)] * 2
    assert os.environ.get("CALIBRATION_HOME") == before


def test_repeats_end_if_one_cannot_measure(program: Path, tmp_path: Path) -> None:
    program.with_suffix(".code").write_text("3", encoding="utf-8")
    with pytest.raises(EnvironmentLacksError, match="run 1 ended with 3"):
        coverage.repeat("quick", 5, tmp_path / "home", lambda _text: None)
