# SPDX-License-Identifier: Apache-2.0
"""Synthetic results: a complete night of a server, and a lab whose judgement finds what was planted."""

from collections import Counter
from pathlib import Path

from calibration.judge.baseline_files import Place
from calibration.judge.night import judge_night
from calibration.profiles import load_profile
from calibration.results.index import read_history
from calibration.results.layout import find_runs
from calibration.results.store import read_run
from tests.report.made_lab import SMALL, Lab, names, server_document


def test_every_step_of_a_night_is_measured() -> None:
    document = server_document(SMALL)
    assert document.run.status == "complete"
    assert {omitted.cause for omitted in document.not_measured} == {"not_planned"}
    assert {measurement.kind for measurement in document.measurements} == set(load_profile("nightly").measurements)


def test_judgement_finds_the_planted_faults_only(tmp_path: Path) -> None:
    lab = Lab(suts=5, nights=7)
    results = tmp_path / "results"
    lab.write(results)
    assert len(find_runs(results)) == 5 * 7 - 1
    runs = read_history(results).runs
    before, tonight = sorted({night for found in runs.values() for night in found})[-2:]

    failed = Counter(
        (verdict.testbed, verdict.sut)
        for verdict in judge_night(results).verdicts
        if verdict.outcome == "fail" and not verdict.waiver
    )
    assert lab.missing in failed
    assert [sut for sut, _ in failed.most_common(1)] == [lab.slower]
    places = {sut: Place("sut", *sut, None).path(results) for sut in names(5)}
    assert [sut for sut, path in places.items() if not path.exists()] == [lab.unknown]
    renewed = {
        sut
        for sut in names(5)
        if tonight in runs[sut] and runs[sut][tonight].facts["microcode"] != runs[sut][before].facts["microcode"]
    }
    assert renewed == set(lab.renewed)

    newest = read_run(results.joinpath(*lab.renewed[0], runs[lab.renewed[0]][tonight].run_id))
    figures = {verdict.name: verdict.metric for verdict in newest.verdicts if verdict.metric is not None}
    same = [figure for figure in newest.record if figure.metric.name in figures]
    assert same
    assert all(figure.metric.value == figures[figure.metric.name].value for figure in same)
