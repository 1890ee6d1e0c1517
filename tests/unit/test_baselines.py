# SPDX-License-Identifier: Apache-2.0
"""Accepting runs: where bounds come from, what is refused, and what the file keeps."""

import json
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from calibration.base.errors import EnvironmentLacksError, InputError
from calibration.base.validity import validity
from calibration.cli import calibration
from calibration.judge.baseline_files import (
    Acceptance,
    BaselineFile,
    Baselines,
    Scope,
    add_acceptance,
    place_of,
    platform_key,
    platform_of,
)
from calibration.judge.baselines import Proposal, propose
from calibration.judge.night import judge_night
from calibration.judge.run import judge_run
from calibration.results.store import read_run
from tests.report.report_documents import flagged, replace, run_document, store
from tests.unit.histories import LATENCY, night_of, noise, run_id, stored

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


pytestmark = pytest.mark.usefixtures("own_index")


@pytest.fixture(name="results")
def _results(tmp_path: Path) -> Path:
    return tmp_path / "results"


def proposed(runs: Sequence[Path], scope: Scope = "sut", metrics: Sequence[str] = (), **given: Any) -> list[Proposal]:
    return propose(
        runs, **{"scope": scope, "by": "Ada", "reason": "as bought", "metrics": metrics, "now": NOW, **given}
    )


def accepted(runs: Sequence[Path], scope: Scope = "sut", **given: Any) -> Acceptance:
    (proposal,) = proposed(runs, scope, **given)
    assert proposal.acceptance is not None
    return proposal.acceptance


def outcomes(results: Path, night: date | None = None) -> dict[str, str]:
    """Return the outcome of the limits of each SUT."""
    return {item.sut: item.outcome for item in judge_night(results, night).verdicts if item.check == "limits"}


def accept(runs: Sequence[Path], scope: Scope = "sut", **given: Any) -> Path:
    (proposal,) = proposed(runs, scope, **given)
    assert proposal.acceptance is not None
    return add_acceptance(runs[0].parents[2], proposal.place, proposal.acceptance)


def bounds(proposal: Proposal, metric: str = LATENCY) -> tuple[float, float, float]:
    assert proposal.acceptance is not None
    found = proposal.acceptance.bounds[metric]
    assert found.lower is not None
    assert found.upper is not None
    return found.lower, found.value, found.upper


def test_bounds_use_all_nights_of_the_level_up_to_the_run(results: Path) -> None:
    runs = stored(results, [*noise(20, 80.0), *noise(12, 60.0), *noise(5, 80.0)])
    (proposal,) = proposed([runs[31]])
    lower, value, upper = bounds(proposal)
    assert 55 < lower < value < upper < 65
    found = accepted([runs[31]])
    assert (found.accepted_by, found.reason, found.accepted_at, found.night) == ("Ada", "as bought", NOW, night_of(31))
    names = [run.id for run in found.runs]
    assert found.bounds[LATENCY].nights == len(names)
    assert names[-1] == run_id(31)
    assert 10 <= len(names) <= 13
    assert names == [run_id(number) for number in range(32 - len(names), 32)]


def test_later_nights_are_judged_by_accepted_bounds(results: Path) -> None:
    runs = stored(results, [*noise(20, 80.0), 120.0])
    path = accept([runs[19]])
    assert path == results / "references" / "baselines" / "sut" / "lab" / "t1.json"
    (verdict,) = [verdict for verdict in judge_night(results).verdicts if verdict.check == "limits"]
    assert (verdict.outcome, verdict.since) == ("fail", night_of(20))
    assert outcomes(results, night_of(19)) == {"t1": "pass"}


def test_file_keeps_all_acceptances_one_line_per_metric(results: Path) -> None:
    runs = stored(results, noise(30, 80.0))
    path = accept([runs[10]])
    first = path.read_text(encoding="utf-8")
    accept([runs[29]], reason="measured longer")
    second = path.read_text(encoding="utf-8")
    common = first.removesuffix("\n  }\n ]\n}\n")
    assert second.startswith(common)
    kept = BaselineFile.model_validate_json(second)
    assert [acceptance.reason for acceptance in kept.acceptances] == ["as bought", "measured longer"]
    (line,) = [line for line in first.splitlines() if LATENCY in line]
    entry = json.loads(line.strip().removeprefix(f'"{LATENCY}": '))
    assert set(entry) == {"value", "lower", "upper", "unit", "method", "why", "spread", "relative", "nights"}
    assert entry["method"] == "nights"
    assert not list(path.parent.glob(".*"))


def test_unused_runs_are_not_listed(results: Path) -> None:
    values: list[float | None] = [*noise(8, 80.0), 120.0, *noise(8, 80.0), None, *noise(8, 80.0)]
    found = accepted([stored(results, values)[-1]])
    names = [run_id(number) for number, value in enumerate(values) if value not in {None, 120.0}]
    assert [run.id for run in found.runs] == names
    assert found.bounds[LATENCY].nights == len(names)


def test_metrics_share_one_list_of_runs(results: Path) -> None:
    for number, names in enumerate((("idle_latency",), ("idle_latency", "latency_ladder"), ("latency_ladder",)) * 4):
        when = datetime.combine(night_of(number), NOW.time(), UTC)
        document = run_document(names=names, testbed="lab", sut="t1", id=run_id(number), started_at=when)
        for place in range(len(names)):
            document = replace(document, place, validity=validity(()))
        run = store(judge_run(document), results)
    found = accepted([run.with_name(run_id(10))])
    assert [run.id for run in found.runs] == [run_id(number) for number in range(11)]
    ladder = next(name for name in found.bounds if name.startswith("latency_ladder"))
    assert (found.bounds[LATENCY].nights, found.bounds[ladder].nights) == (8, 7)


def test_metric_option_limits_acceptance(results: Path) -> None:
    (run,) = stored(results, [80.0])
    assert list(accepted([run], metrics=["idle_*"]).bounds) == [LATENCY]
    with pytest.raises(InputError, match=r"no metric named jitter\.\* in the runs"):
        proposed([run], metrics=["jitter.*"])


def test_a_single_run_is_bounded_by_its_interval(results: Path) -> None:
    (run,) = stored(results, [80.0])
    found = accepted([run]).bounds[LATENCY]
    assert found.method == "run"
    assert re.search(r"between 6 rounds within the run", found.why)


def test_an_invalid_metric_is_refused(results: Path) -> None:
    document = run_document(names=("idle_latency", "latency_ladder"), testbed="lab", sut="t1", id=run_id(0))
    made = judge_run(flagged(document, 0, "PLACEMENT_UNVERIFIED", "pages lay elsewhere"))
    (proposal,) = proposed([store(made, results)])
    refused = {item.metric: item.reason for item in proposal.refused}
    assert refused[LATENCY].startswith("invalid (PLACEMENT_UNVERIFIED")
    assert proposal.acceptance is not None
    assert LATENCY not in proposal.acceptance.bounds
    assert proposal.acceptance.bounds


def test_a_metric_without_interval_needs_several_nights_and_gets_one_bound(results: Path) -> None:
    runs = []
    for number in range(12):
        when = datetime.combine(night_of(number), NOW.time(), UTC)
        document = run_document(names=("jitter",), testbed="lab", sut="t1", id=run_id(number), started_at=when)
        (first, *_) = document.measurements
        gaps = first.values.gaps.model_copy(update={"max_ns": 5000.0 + 100 * (number % 4)})  # type: ignore[union-attr]
        made = replace(document, 0, values=first.values.model_copy(update={"gaps": gaps}))
        runs.append(store(judge_run(made), results))
    (one,) = proposed([runs[0]])
    (name,) = [item.metric for item in one.refused if item.metric.endswith("gaps.max_ns")]
    assert all("its variation is unknown" in item.reason for item in one.refused)
    found = accepted([runs[-1]]).bounds[name]
    assert found.lower is None
    assert found.upper is not None
    assert found.upper > 5300
    assert "one bound, as a run observes it once" in found.why


def test_an_incomplete_run_is_accepted_with_a_note(results: Path) -> None:
    (run,) = stored(results, [80.0], status="incomplete")
    (proposal,) = proposed([run])
    assert proposal.notes == (f"run {run_id(0)} of lab/t1 is incomplete: only its metrics are accepted",)
    assert proposal.acceptance is not None


def test_testbed_bounds_include_the_variance_between_suts(results: Path) -> None:
    runs = [
        stored(results, noise(12, level, seed=number), sut=f"t{number}")[-1]
        for number, level in enumerate((80, 82, 84))
    ]
    (alone,) = proposed(runs[:1], "testbed")
    (together,) = proposed(runs, "testbed")
    assert alone.notes == ("from one SUT: the variance between SUTs is unknown and not included",)
    assert bounds(together)[2] / bounds(together)[0] > bounds(alone)[2] / bounds(alone)[0]
    found = accepted(runs, "testbed")
    assert found.bounds[LATENCY].method == "SUTs"
    assert {run.sut for run in found.runs} == {"t0", "t1", "t2"}
    path = accept(runs, "testbed")
    assert path == results / "references" / "baselines" / "testbed" / "lab.json"
    assert outcomes(results) == dict.fromkeys(("t0", "t1", "t2"), "pass")


def test_earlier_bounds_are_those_of_the_newest_accepted_night(results: Path) -> None:
    early = stored(results, noise(12, 80.0), sut="t1")[2]
    nights = stored(results, noise(12, 80.0, seed=2), sut="t2")
    accept([nights[5]], "testbed")
    (proposal,) = proposed([early, nights[-1]], "testbed")
    assert LATENCY in proposal.before
    (proposal,) = proposed([early], "testbed")
    assert proposal.before == {}


def test_different_units_are_refused(results: Path) -> None:
    runs = [stored(results, [80.0], sut=sut)[-1] for sut in ("t1", "t2")]
    path = runs[1] / "run.json"
    raw = json.loads(path.read_bytes())
    for verdict in raw["verdicts"]:
        verdict["metric"]["unit"] = "us"
    path.write_text(json.dumps(raw), encoding="utf-8")
    with pytest.raises(InputError, match=f"{LATENCY} of lab/t2 is in us, not in ns"):
        proposed(runs, "testbed")


def test_platform_bounds_apply_to_all_suts_of_the_platform(results: Path) -> None:
    (run, *_) = stored(results, [80.0], sut="t1")
    stored(results, [80.0], testbed="other", sut="t9")
    path = accept([run], "platform")
    facts = read_run(run).facts
    platform = platform_of(facts)
    assert platform is not None
    assert path.name == f"{platform_key(platform)}.json"
    assert outcomes(results) == {"t1": "pass", "t9": "pass"}
    with pytest.raises(InputError, match="the platform of lab/t1 is unknown"):
        place_of("platform", ("lab", "t1"), {})


def test_a_run_that_does_not_represent_its_night_is_refused(results: Path) -> None:
    (run,) = stored(results, [80.0])
    document = read_run(run)
    later = {"id": "20260101T230000Z-ffff", "started_at": datetime(2026, 1, 1, 23, tzinfo=UTC)}
    store(document.model_copy(update={"run": document.run.model_copy(update=later)}), results)
    with pytest.raises(InputError, match=r"does not represent its night: accept 20260101T230000Z"):
        proposed([run])


def test_unacceptable_runs_are_refused_with_the_reason(results: Path, tmp_path: Path) -> None:
    runs = stored(results, [80.0, 81.0])
    with pytest.raises(InputError, match="several runs of lab/t1: give one per SUT"):
        proposed(runs)
    with pytest.raises(InputError, match=r"no run\.json in"):
        proposed([results])
    (elsewhere,) = stored(tmp_path / "more", [80.0])
    with pytest.raises(InputError, match="in several directories of results"):
        proposed([runs[0], elsewhere])
    with pytest.raises(InputError, match="--by is not a line of text"):
        proposed([runs[0]], by=" ")
    with pytest.raises(InputError, match="--reason is not a line of text"):
        proposed([runs[0]], reason="two\nlines")
    moved = runs[0].rename(runs[0].with_name("20260101T020000Z-ffff"))
    with pytest.raises(InputError, match="not that of its directory"):
        proposed([moved])


@pytest.mark.parametrize(("old", "new", "fault"), [
    ('"baselines/1"', '"baselines/2"', "damaged at schema_version: Input should be 'baselines/1'"),
    ('"sut": "t1"', '"sut": "t2"', "not the bounds of SUT lab/t1"),
    ('"unit": ', '"colour": ', "damaged at acceptances.0.bounds.idle_latency.latency_ns.unit: Field required"),
    ('"value": 8', '"value": 9999', "the value 9999.* is out of its bounds"),
    ('"nights": 3', '"nights": 0', "Input should be greater than 0"),
    ("{", "", "damaged at the top: Invalid JSON"),
    ('"lower": ', '"lower": null, "x": ', "damaged at "),
])  # fmt: skip
def test_a_damaged_file_is_reported_with_the_fault(results: Path, old: str, new: str, fault: str) -> None:
    runs = stored(results, noise(3, 85.0, 0.001))
    path = accept([runs[-1]])
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(InputError, match=fault) as raised:
        proposed([runs[-1]])
    assert str(path) in str(raised.value)
    (found,) = (verdict for verdict in judge_night(results).verdicts if verdict.check == "unreadable")
    assert (found.testbed, found.sut, found.outcome) == ("lab", "t1", "fail")
    assert found.metric == str(path.relative_to(results))
    assert re.search(fault, found.reason)


def test_unwritable_bounds_keep_the_old_file(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = stored(results, noise(3, 80.0))
    path = accept([runs[-1]])
    before = path.read_bytes()

    def full(_path: Path, _target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(EnvironmentLacksError, match="No space left on device; nothing was accepted"):
        accept([runs[-1]])
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_invalid_bounds_are_refused(results: Path) -> None:
    runs = stored(results, noise(3, 80.0))
    path = accept([runs[-1]])
    kept = json.loads(path.read_text(encoding="utf-8"))
    entry = kept["acceptances"][0]["bounds"][LATENCY]
    entry |= {"lower": None, "upper": None}
    with pytest.raises(ValueError, match="no lower or upper bound"):
        BaselineFile.model_validate_json(json.dumps(kept))


# the command


def called(*words: object) -> Result:
    return CliRunner().invoke(calibration, ["accept", *map(str, words)], catch_exceptions=True)


def test_accept_prints_bounds_and_dry_run_writes_nothing(results: Path) -> None:
    runs = stored(results, noise(20, 80.0))
    words = (runs[-1], "--by", "Ada", "--reason", "as bought")
    dry = called(*words, "--dry-run")
    assert dry.exit_code == 0
    assert not (results / "references").exists()
    done = called(*words)
    assert done.exit_code == 0
    assert LATENCY in done.output
    assert "Bounds of SUT lab/t1" in done.output
    assert "written to" in done.output
    assert dry.output.replace("would be written to", "written to") == done.output
    known = Baselines(results).of(("lab", "t1"), {}, night_of(19))
    assert known.bounds[LATENCY].acceptance.reason == "as bought"
    assert known.levels[LATENCY].night == night_of(19)


def test_accept_requires_name_and_reason(results: Path) -> None:
    (run,) = stored(results, [80.0])
    assert "--reason" in called(run, "--by", "Ada").output
    assert called(run, "--reason", "x").exit_code == 2


def test_accept_fails_if_nothing_can_be_accepted(results: Path) -> None:
    document = run_document(names=("idle_latency",), testbed="lab", sut="t1", id=run_id(0))
    made = judge_run(flagged(document, 0, "PLACEMENT_UNVERIFIED", "pages lay elsewhere"))
    done = called(store(made, results), "--by", "Ada", "--reason", "x")
    assert isinstance(done.exception, InputError)
    assert "not accepted: lab/t1 idle_latency.latency_ns: invalid (PLACEMENT_UNVERIFIED" in done.output
