# SPDX-License-Identifier: Apache-2.0
"""``calibration judge`` and ``calibration trend``: output and exit codes."""

import io
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from calibration.base.errors import InputError
from calibration.cli import calibration
from calibration.judge.answer import answers
from calibration.judge.judged import JudgedNights, failure_order
from calibration.judge.night import judgement_of
from calibration.judge.run import verdicts_of
from calibration.judge.trend import read_trend
from calibration.judge.verdicts import ContextChange, NightVerdict, Waived
from calibration.judge.waivers import FILE
from calibration.judge.words import amount, change, changed_fact, within
from calibration.report.screens.judgement import print_judgement
from calibration.report.screens.trend import COLUMNS, sparkline
from calibration.results.find import suts_of
from calibration.results.history import History
from tests.report.report_documents import run_document, store
from tests.unit.histories import BANDWIDTH, FACTS, LATENCY, history, judged, night_of, noise, stored

NIGHT = date(2026, 11, 21)


pytestmark = pytest.mark.usefixtures("own_index")


@pytest.fixture(name="results")
def _results(tmp_path: Path) -> Path:
    return tmp_path / "results"


def called(*words: object) -> Result:
    return CliRunner().invoke(calibration, [*map(str, words)])


def verdict(sut: str = "t1", metric: str = BANDWIDTH, check: str = "drift", **fields: Any) -> NightVerdict:
    given: dict[str, Any] = {
        "testbed": "lab",
        "sut": sut,
        "run_id": "20261121T020000Z-0a1b",
        "night": NIGHT,
        "metric": metric,
        "check": check,
        "outcome": "fail",
        "value": 94.0,
        "unit": "MB/s",
        "interval": (-0.07, -0.05),
        "since": date(2026, 11, 18),
        "context_changes": (ContextChange(fact="BIOS", before="2.1", after="2.2", night=date(2026, 11, 18)),),
        "reason": "level is another",
    }
    return NightVerdict(**{**given, **fields})


def nights(*verdicts: NightVerdict) -> JudgedNights:
    """Return a night with these *verdicts* and nothing else."""
    none = np.zeros((0, 1))
    return JudgedNights(History((NIGHT,), (), none, none, none, {}, {}), [], verdicts)


def shown(*verdicts: NightVerdict, everything: bool = False) -> str:
    stream = io.StringIO()
    print_judgement(judgement_of(nights(*verdicts)), stream, everything=everything)
    return stream.getvalue()


# judge


def test_exit_code_and_json_follow_the_verdicts(results: Path) -> None:
    stored(results, noise(14, 80.0))
    good = called("judge", "--results", results, "--json")
    assert good.exit_code == 0
    found = json.loads(good.output)
    assert found["night"] == night_of(13).isoformat()
    assert {item["outcome"] for item in found["verdicts"]} == {"pass", "no_reference"}
    stored(results, noise(13, 80.0), sut="t2")
    bad = called("judge", "--results", results, "--json")
    assert bad.exit_code == 1
    assert [
        (item["sut"], item["check"]) for item in json.loads(bad.output)["verdicts"] if item["outcome"] == "fail"
    ] == [("t2", "missing")]
    assert called("judge", "--results", results).exit_code == 1
    assert called("judge", "--results", results, "--sut", "lab/t1").exit_code == 0
    assert called("judge", "--results", results, "--sut", "lab/t2").exit_code == 1
    assert called("judge", "--results", results, "--night", night_of(12)).exit_code == 0


@pytest.mark.parametrize("words", [("judge",), ("gate",), ("export", "openmetrics")])
def test_results_as_an_argument_are_those_of_the_option(results: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    stored(results, noise(14, 80.0))
    more = ("--output", tmp_path / "gate") if words == ("gate",) else ()
    ended = called(*words, results, *more)
    assert (ended.exit_code, ended.output) == (0, called(*words, "--results", results, *more).output)
    twice = called(*words, results, "--results", results, *more)
    assert twice.exit_code == 2
    assert f"results given twice, as {results} and as --results {results}" in twice.output
    assert f"Usage: calibration {words[0]} [OPTIONS]" in called(words[0], "--help").output
    assert "RESULTS" not in called(words[0], "--help").output


def test_runs_of_this_machine_are_no_nights_of_a_lab(results: Path) -> None:
    stored(results, [80.0] * 5, testbed="localhost", sut="localhost")
    alone = json.loads(called("judge", "--results", results, "--json").output)
    assert (alone["night"], {item["sut"] for item in alone["answers"]}) == (night_of(4).isoformat(), {"localhost"})
    stored(results, [80.0] * 3)
    of_lab = json.loads(called("judge", "--results", results, "--json").output)
    assert (of_lab["night"], {item["sut"] for item in of_lab["answers"]}) == (night_of(2).isoformat(), {"t1"})


def test_unknown_nights_and_suts_are_bad_input(results: Path) -> None:
    stored(results, [80.0])
    assert called("judge", "--results", results, "--night", "yesterday").exit_code == 2
    unknown = called("judge", "--results", results, "--night", "2020-01-01")
    assert isinstance(unknown.exception, InputError)
    assert "the newest night is 2026-01-01" in str(unknown.exception)
    nobody = called("judge", "--results", results, "--sut", "lab/t7")
    assert "unknown SUT 'lab/t7', did you mean lab/t1?" in str(nobody.exception)
    nowhere = called("judge", "--results", results / "none")
    assert isinstance(nowhere.exception, InputError)


def test_unreadable_waivers_fail_every_sut(results: Path) -> None:
    for sut in ("t1", "t2"):
        stored(results, [80.0], sut=sut)
    (results / FILE).parent.mkdir()
    (results / FILE).write_text("- {testbed: lab}\n", encoding="utf-8")
    done = called("judge", "--results", results)
    assert done.exit_code == 1
    said = f"cannot read {FILE}: line 1, waiver 1: sut: Field required (5 more)"
    for sut in ("t1", "t2"):
        assert f"lab/{sut} unknown: faulty measurement: {said}" in " ".join(done.output.split())


def test_the_answer_on_a_sut_is_printed_once() -> None:
    metrics = [f"bandwidth_matrix.{node}.bandwidth_mb_s" for node in ("0.0", "0.1", "1.0", "1.1")]
    text = " ".join(shown(
        *(verdict(metric=metric) for metric in metrics[:3]),
        verdict(metric=metrics[3], since=date(2026, 11, 19)),
        verdict("t2", check="limits", outcome="pass"),
    ).split())  # fmt: skip
    assert text.startswith("Night of 2026-11-21, 2 SUTs: 1 failed, 1 as accepted")
    assert "lab/t1 fails since 2026-11-18: Read bandwidth, node 0 from its own memory: level is another" in text
    assert ", and 3 more metrics Changed: BIOS 2.1 -> 2.2; 0 of" not in text
    assert "Changed: BIOS 2.1 -> 2.2; none of 1 other SUT of lab changed then" in text
    assert "Do: check that all memory modules are there" in text
    assert "--sut SUT" in text


def test_suts_that_share_an_event_are_one_answer() -> None:
    text = shown(*(verdict(f"t{number}") for number in range(5)))
    assert "5 SUTs (lab/t0, lab/t1, lab/t2 and 2 more)  fails since 2026-11-18" in text
    assert text.count("fails since") == 1


def test_a_failed_run_comes_before_metrics_and_headline_metrics_before_others() -> None:
    found = [verdict(metric="c2c_latency.local_hit_ns"), verdict(), verdict(metric="run", check="inventory")]
    known = nights(*found)
    ordered = sorted(found, key=lambda item: failure_order(known, item))
    assert [item.metric for item in ordered] == ["run", BANDWIDTH, "c2c_latency.local_hit_ns"]
    (answer,) = answers(known).values()
    assert (answer.state, answer.test, answer.others) == ("fails", "no", 2)


def test_a_faulty_measurement_says_nothing_about_the_machine() -> None:
    limits = verdict(check="limits", outcome="pass")
    for check, metric in (("complete", "run"), ("consistency", BANDWIDTH), ("missing", LATENCY)):
        (answer,) = answers(nights(limits, verdict(metric=metric, check=check))).values()
        assert (answer.state, answer.test) == ("faulty", "unknown")
    (answer,) = answers(nights(limits, verdict(check="errors", metric="run"))).values()
    assert (answer.state, answer.test) == ("fails", "no")


@pytest.mark.parametrize("count", [1, 5, 28, 29, 400])
def test_judgement_fits_one_screen(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    waived = Waived(reason="known", by="Ada", until=NIGHT)
    checks = ("drift", "spread", "limits", "homogeneity", "missing", "bimodal")
    verdicts = [
        verdict(f"t{number}", f"{kind}.cpu{number}.inst_jitter_ns", check, since=date(2026, 1, 1 + 5 * place))
        for number in range(count)
        for place, check in enumerate(checks)
        for kind in ("jitter", "c2c_latency")
    ]
    rest = [verdict(f"w{number}", outcome="pass", waiver=waived) for number in range(50)]
    lines = shown(
        *verdicts, *rest, *(verdict("u", check=check, outcome="no_reference") for check in checks)
    ).splitlines()
    assert len(lines) <= 60
    assert max(len(line) for line in lines if "Do: " not in line) <= 80
    assert " ".join(lines[:2]).startswith(f"Night of 2026-11-21, {count + 51} SUTs: {count} failed, 51 without a")
    assert "waived: 47 more" in lines


def test_unknown_drift_says_how_many_nights_there_are() -> None:
    reasons = ["11 of 13 nights so far"] * 2 + ["3 of 13 nights so far"]
    found = [
        verdict(metric=f"jitter.cpu{number}.inst_jitter_ns", outcome="no_reference", reason=reason)
        for number, reason in enumerate(reasons)
    ]
    words = "too few nights to detect a change, most have 11 of 13 nights so far"
    assert f"unknown: 3 metrics of 1 SUT: {words}\n" in shown(*found)


def test_all_prints_everything() -> None:
    verdicts = [verdict(metric=f"jitter.cpu{number}.inst_jitter_ns", reason=f"reason {number}") for number in range(60)]
    text = shown(*verdicts, everything=True)
    assert all(f"jitter.cpu{number}.inst_jitter_ns" in text for number in range(60))
    assert all(f"reason {number}  since" in text for number in range(60))
    assert "--sut" not in text


def test_control_characters_are_escaped() -> None:
    text = shown(
        verdict(
            "t\x1b[2J", context_changes=(ContextChange(fact="BIOS", before="\x1b]0;", after="\u202ex", night=NIGHT),)
        ),
        verdict("t2", check="missing", metric="run", interval=None, reason="found none: \x1b[31m[bold]", since=None),
        verdict("t3", outcome="pass", waiver=Waived(reason="\x9b1m", by="\x07", until=NIGHT)),
    )
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert r"\x1b[31m[bold]" in text
    assert r"\x9b1m" in text


def test_all_is_a_table_with_headline_metrics_first() -> None:
    other = verdict(metric="c2c_latency.local_hit_ns", check="limits", value=30.0, unit="ns", bound=(20.0, 25.0))
    faulty = verdict(metric="run", check="inventory", reason="Kernel release: expected 6.1.*")
    lines = shown(other, faulty, verdict(check="limits", bound=(95.0, None)), everything=True).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("    metric "))
    assert [re.split(r"  +", line.strip()) for line in lines[start : start + 4]] == [
        ["metric", "found", "accepted", "beyond by", "since"],
        ["Read bandwidth, node 0 from its own memory", "94 MB/s", "at least 95 MB/s", "-1.1 %", "2026-11-18"],
        ["c2c_latency.local_hit_ns", "30 ns", "20 to 25 ns", "+20.0 %", "2026-11-18"],
        ["inventory: Kernel release: expected 6.1.*", "since 2026-11-18"],
    ]


def test_a_real_judgement_is_printed() -> None:
    past = history(
        {
            ("lab", "t1", BANDWIDTH): [*noise(30), *noise(6, 90.0)],
            ("lab", "t2", BANDWIDTH): noise(36, seed=2),
            ("lab", "t3", BANDWIDTH): [*noise(34, seed=3), None, None],
        },
        facts={30: {**FACTS, "BIOS": "Example 2.2 2026-01-20"}},
    )
    stream = io.StringIO()
    print_judgement(judgement_of(judged(past)), stream)
    text = stream.getvalue()
    assert "lab/t1" in text
    assert "BIOS Example 2.1 2025-01-01 -> Example 2.2 2026-01-20" in " ".join(text.split())


def test_amounts_have_units() -> None:
    assert amount(2.9e9, "Hz") == "2.9 GHz"
    assert amount(0.0123, "fraction") == "1.23 %"
    assert amount(123456.7, "MB/s") == "123.5 GB/s"
    assert amount(81.236, "ns") == "81.24 ns"
    assert amount(4031000.0, "ns") == "4031 µs"
    assert amount(4.1e7, "ns") == "41 ms"
    assert amount(614871.0, "per hour") == "170.8 per second"
    assert within(None, 3.0, "ns") == "at most 3 ns"
    assert within(2.9e9, 3e9, "Hz") == "2.9 to 3 GHz"
    assert within(0.0, 2e9, "Hz") == "0 Hz to 2 GHz"
    assert within(1.0, 2.0, "") == "1 to 2"
    assert change(0.05, (float("nan"), 1.0)) == "+5 %"
    long = "quiet isolcpus=1-3 " + "x" * 40
    assert changed_fact(long, long.replace("1-3", "1-7")) == "isolcpus=1-3 -> isolcpus=1-7"
    memory = "; ".join(f"{node}: 128 GiB" for node in range(8))
    assert changed_fact(memory, memory.replace("1: 128", "1: 96")) == "1: 128 GiB -> 96 GiB"
    assert changed_fact(None, "2.2") == "unknown -> 2.2"
    gone = "-1: 128 GiB, -2: 128 GiB, -3: 128 GiB and 4 more"
    assert changed_fact(memory, "0: 10.0 GiB") == f"0: 128 GiB -> 10.0 GiB, {gone}"
    slots = ", ".join(f"P0_DIMM_{slot}1" for slot in "ABCDEFGH")
    without = slots.replace("P0_DIMM_F1, ", "")
    changed = changed_fact(f"8 x 32 GiB in {slots}", f"7 x 32 GiB in {without}; 1 x empty in P0_DIMM_F1")
    assert changed == "8 -> 7, -P0_DIMM_F1, +1 x empty in P0_DIMM_F1"
    assert changed_fact("a; a", "a") == "a; a -> a"
    isolated = "1-7,9-15,17-23,25-31 (tickless: 1-7,9-15,17-23,25-31)"
    assert changed_fact(isolated, "none (tickless: none)") == f"{isolated} -> none (tickless: none)"
    processor = "Demo Processor 8416, GenuineIntel, family 6, model 143"
    assert changed_fact(processor, processor.replace("8416", "9116")) == "8416 -> 9116"


# trend


@pytest.fixture(name="measured")
def _measured(results: Path) -> Sequence[float | None]:
    values: list[float | None] = [*noise(20, 80.0), None, *noise(9, 90.0)]
    stored(results, values)
    stored(results, noise(30, 80.0), sut="t2")
    return values


def test_trend_lists_every_night(results: Path, measured: Sequence[float | None]) -> None:
    done = called("trend", "lab/t1", LATENCY, "--results", results, "--all")
    assert done.exit_code == 0
    lines = done.output.splitlines()
    assert lines[0] == f"{LATENCY} of lab/t1, lower is better"
    assert "no baseline accepted yet" in lines
    assert any(line.endswith(", 29 of 30 nights measured") for line in lines)
    nights = {line[:10]: line for line in lines[-30:] if line.startswith("2026-")}
    assert list(nights) == [night_of(number).isoformat() for number in range(30)]
    assert nights["2026-01-21"].endswith("no run")
    (changed,) = {line[:10] for line in lines if "level +" in line}
    assert abs((date.fromisoformat(changed) - night_of(21)).days) <= 2
    assert f"{measured[25]:.4g}" in nights["2026-01-26"]


def test_trend_marks_values_out_of_bounds(results: Path, measured: Sequence[float | None]) -> None:
    del measured
    run = next((results / "lab" / "t1").glob("20260120*"))
    assert called("accept", run, "--by", "Ada", "--reason", "as bought", "--anyway").exit_code == 0
    found = json.loads(called("trend", "lab/t1", LATENCY, "--results", results, "--json").output)
    assert (found["unit"], found["better"]) == ("ns", "lower")
    assert (found["bounds"]["accepted_by"], found["bounds"]["scope"]) == ("Ada", "sut")
    assert found["bounds"]["lower"] < 80 < found["bounds"]["upper"]
    assert next(night["night"] for night in found["nights"] if night["outside"]) == "2026-01-22"
    assert found["nights"][20]["missing"] == "no run"
    assert found["nights"][0]["missing"] is None
    assert found["nights"][0]["interval"][0] < found["nights"][0]["value"] < found["nights"][0]["interval"][1]
    (change_found,) = found["changes"]
    assert change_found["kind"] == "level"
    text = called("trend", "lab/t1", LATENCY, "--results", results).output
    assert "accepted by Ada" in text
    assert "outside" in text
    rows = called("trend", "lab/t1", LATENCY, "--results", results, "--csv").output.splitlines()
    assert rows[0] == ",".join(COLUMNS)
    assert len(rows) == 31
    assert rows[21] == "2026-01-21,,,,,,False,no run"


def test_what_one_night_does_not_have_is_null_in_json(results: Path) -> None:
    stored(results, [80.0])
    found = json.loads(called("trend", "lab/t1", LATENCY, "--results", results, "--json").output)
    assert found["level"] == pytest.approx(80)
    assert found["spread"] is None


def test_trend_of_an_unknown_name_suggests_known_ones(results: Path, measured: Sequence[float | None]) -> None:
    del measured
    for words, text in (
        (("lab/t1", "idle_latency.latencies"), f"unknown metric of lab/t1 .*, did you mean {LATENCY}"),
        (("lab/t3", LATENCY), "unknown SUT 'lab/t3', did you mean lab/t2 or lab/t1"),
        (("lab", LATENCY), "ambiguous SUT 'lab': lab/t1, lab/t2"),
    ):
        with pytest.raises(InputError, match=text):
            CliRunner().invoke(calibration, ["trend", *words, "--results", str(results)], catch_exceptions=False)


def test_trend_without_a_metric_lists_suts_and_metrics(results: Path, measured: Sequence[float | None]) -> None:
    del measured
    for words, of in (((), "lab/t1"), (("t2",), "lab/t2")):
        listed = called("trend", *words, "--results", results)
        assert (listed.exit_code, listed.output.splitlines()) == (
            0,
            ["SUTs: lab/t1, lab/t2", "", f"Metrics of {of}:", f"  idle latency, own node  {LATENCY}"],
        )
    assert "--csv needs SUT and METRIC" in called("trend", "t1", "--csv", "--results", results).output


def test_an_ambiguous_metric_of_a_trend_offers_the_headline_metric(results: Path) -> None:
    document = run_document(names=("jitter",))
    store(document.model_copy(update={"verdicts": tuple(verdicts_of(document.measurements))}), results)
    headline = r"jitter\.cpu\d+\.gaps\.(max_ns|lost_fraction)"
    with pytest.raises(InputError, match=f"^ambiguous metric 'jitter': the headline metric is {headline}, others are "):
        read_trend(results, suts_of(results)[0], "jitter")


def test_trend_fits_one_screen_with_possible_causes(results: Path, measured: Sequence[float | None]) -> None:
    del measured
    lines = called("trend", "t1", "idle", "--results", results).output.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 100
    (drawn,) = [line for line in lines if "nights measured" in line]
    assert re.match("[▁▂]{20} [▇█]{9}  ", drawn)
    first = next(place for place, line in enumerate(lines) if "level +" in line)
    assert "80.08 ns -> 90.3 ns; no known fact changed" in lines[first]
    assert first < next(place for place, line in enumerate(lines) if line.startswith("2026-01-30"))
    assert lines[-1] == "and 20 nights before: --all"


def test_trend_and_judge_say_that_a_level_is_back(results: Path) -> None:
    stored(results, [*noise(20, 80.0), *noise(6, 88.0), *noise(6, 80.0)])
    level = called("trend", "t1", "idle", "--results", results).output.splitlines()[1]
    assert re.fullmatch(
        r"level 80\S* ns since 2026-01-27, back after 6 nights of \+10\S* %, nights differ by \S+ %", level
    )
    verdicts = json.loads(called("judge", results, "--json").output)["verdicts"]
    (drift,) = [item for item in verdicts if (item["metric"], item["check"]) == (LATENCY, "drift")]
    assert drift["outcome"] == "pass"
    assert re.fullmatch(r"level is back at 80\S* ns since 2026-01-27, after 6 nights of \+10\S* %", drift["reason"])


def test_noise_is_drawn_flat() -> None:
    assert sparkline([100, 100.2, None, 99.8, 100.1]) == "▅▅ ▄▅"
    assert sparkline([100, 150]) == "▁█"
    assert sparkline([0, 0]) == "▅▅"
    assert sparkline([None]) == ""


@pytest.mark.parametrize(("module", "heavy"), [
    ("report.screens.trend", ("measurements.base", "results.model", "context.model")),
    ("exports.openmetrics", ("results.model", "results.store")),
])  # fmt: skip
def test_slow_imports_are_avoided(module: str, heavy: tuple[str, ...]) -> None:
    names = ("rich", "docutils", *(f"calibration.{name}" for name in heavy))
    program = f"import sys, calibration.{module}; print([name for name in {names!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
