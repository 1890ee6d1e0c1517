# SPDX-License-Identifier: Apache-2.0
"""A night with unreadable files: each fails its own SUT only."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from calibration.base.errors import BAD_INPUT, VERDICT_FAILED, InputError
from calibration.cli import calibration
from calibration.gates import run as gates
from calibration.judge.night import Judgement, judge_night
from calibration.judge.verdicts import NightVerdict
from calibration.nightly.judgement import JUDGEMENT, failures, judge
from calibration.nightly.publish import publish
from calibration.nightly.retention import Policy, expired, remove
from calibration.report.site import build_site
from calibration.results.layout import RUN
from tests.report.report_documents import guide
from tests.unit.histories import LATENCY, night_of, noise, run_id, stored

NIGHTS = 4
GOOD = ("good1", "good2")
GONE = "gone"
"""A SUT with an unreadable document only."""


def linked(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "truncated": (lambda path: os.truncate(path, path.stat().st_size // 2), "Invalid JSON: EOF while parsing"),
    "link": (linked, "a symbolic link"),
    "version": (
        lambda path: path.write_bytes(path.read_bytes().replace(b'"run/1"', b'"run/99"', 1)),
        "schema_version: Input should be 'run/1'",
    ),
}
"""Of each layer one: JSON, the file, the document. All are in test_files.py, test_parsers.py and test_results.py."""


def file_of(sut: str, number: int = 0) -> str:
    return f"lab/{sut}/{run_id(number)}/{RUN}"


def lab(results: Path) -> None:
    """Store the nights of a lab, all of them good."""
    for place, sut in enumerate((*GOOD, *DAMAGES)):
        stored(results, noise(NIGHTS, 80.0, seed=place), sut=sut)
    stored(results, [80.0], sut=GONE)


@dataclass(frozen=True)
class Night:
    """The results of a night: judgement, gates, published site, and removed runs."""

    results: Path
    judgement: Judgement
    tested: list[gates.GateOutcome]
    screen: str
    served: Path
    removed: list[Path]


@pytest.fixture(scope="module", name="night")
def _night(tmp_path_factory: pytest.TempPathFactory) -> Night:
    """A night of a lab in which all but the good SUTs have a damaged document."""
    place = tmp_path_factory.mktemp("night")
    results = place / "results"
    lab(results)
    for sut, (damage, _) in DAMAGES.items():
        damage(results / file_of(sut))
    (results / file_of(GONE)).write_bytes(b"")
    _, tested, _ = judge(results, run_id(NIGHTS - 1), place / "judged")
    judgement = Judgement.model_validate_json((place / "judged" / JUDGEMENT).read_bytes())
    build_site(results, guide(place / "docs"), place / "html")
    served = publish(place / "html", place / "judged", place / "www", keep=2).current
    removed = expired(results, night_of(NIGHTS - 1), Policy(nights=1, raw_nights=0))
    for item in removed:
        remove(results, item)
    screen = (served / "night" / "judgement.txt").read_text(encoding="utf-8")
    return Night(results, judgement, tested, screen, served, [item.directory for item in removed])


@pytest.fixture(scope="module", name="without")
def _without(tmp_path_factory: pytest.TempPathFactory) -> Judgement:
    """The judgement of the same night without the damaged documents."""
    results = tmp_path_factory.mktemp("without") / "results"
    lab(results)
    for sut in (*DAMAGES, GONE):
        shutil.rmtree((results / file_of(sut)).parent)
    return judge_night(results, night_of(NIGHTS - 1))


def unreadable(verdicts: Judgement) -> dict[str, list[NightVerdict]]:
    found: dict[str, list[NightVerdict]] = {}
    for verdict in verdicts.verdicts:
        if verdict.check == "unreadable":
            found.setdefault(verdict.sut, []).append(verdict)
    return found


@pytest.mark.parametrize("sut", [*DAMAGES, GONE])
def test_a_damaged_document_fails_its_sut(night: Night, sut: str) -> None:
    (found,) = unreadable(night.judgement)[sut]
    assert (found.outcome, found.metric, found.run_id) == (
        "fail",
        file_of(sut),
        None if sut == GONE else run_id(NIGHTS - 1),
    )
    assert DAMAGES.get(sut, DAMAGES["truncated"])[1] in found.reason
    assert found.reason.startswith(f"cannot read {file_of(sut)}: ")
    assert f"lab/{sut} unknown: faulty measurement: cannot read {file_of(sut)}: " in " ".join(night.screen.split())
    page = (night.served / "calibration" / "index.html").read_text(encoding="utf-8")
    assert page.count(f"<li><p>cannot read {file_of(sut)}: ") == 1
    stored_verdicts = json.loads((night.served / "night" / "judgement.json").read_bytes())["verdicts"]
    assert [
        verdict["metric"] for verdict in stored_verdicts if (verdict["sut"], verdict["check"]) == (sut, "unreadable")
    ] == [file_of(sut)]
    (gate,) = (
        test
        for test in night.tested
        if test.sut == f"lab / {sut}" and test.gate == "Nothing Missing Since Earlier Nights"
    )
    assert gate.status == "FAIL"
    assert file_of(sut) in gate.message
    hosts = {("lab", name): name for name in (*GOOD, *DAMAGES)}
    failed = failures(night.judgement.answers, night.tested, hosts, limited=False)
    said = [host for host, reasons in failed.items() for reason in reasons if file_of(sut) in reason]
    assert said == ([] if sut == GONE else [sut])


def test_other_verdicts_are_not_affected(night: Night, without: Judgement) -> None:
    assert set(unreadable(night.judgement)) == {*DAMAGES, GONE}
    others = [verdict for verdict in night.judgement.verdicts if verdict.check != "unreadable"]
    assert others == list(without.verdicts)
    assert {other.sut for other in others} == {*GOOD, *DAMAGES}


def test_the_site_has_all_readable_runs(night: Night) -> None:
    pages = night.served / "calibration"
    for sut in (*GOOD, *DAMAGES):
        assert (pages / "lab" / sut / "index.html").is_file()
    assert not (pages / "lab" / GONE).exists()
    assert (pages / "lab" / "index.html").is_file()


def test_retention_keeps_unreadable_runs(night: Night) -> None:
    # a night of the four is within the policy, and so is tonight
    assert sorted(night.removed) == sorted(
        Path(f"lab/{sut}/{run_id(number)}")
        for sut in (*GOOD, *DAMAGES)
        for number in range(NIGHTS - 2)
        if sut in GOOD or number
    )
    for sut in (*DAMAGES, GONE):
        assert os.path.lexists(night.results / file_of(sut))


@pytest.mark.parametrize("sut", DAMAGES)
def test_commands_refuse_a_damaged_document(night: Night, sut: str) -> None:
    path = night.results / file_of(sut)
    for words in (["validate", path], ["validate", path.parent], ["compare", path, path]):
        done = CliRunner().invoke(calibration, [str(word) for word in words])
        assert isinstance(done.exception, InputError), done.exception
        assert done.exception.exit_code == BAD_INPUT
        assert str(path.parent) in str(done.exception)


# Tonight's document, references, and what is asked besides


@pytest.fixture(name="small")
def _small(tmp_path: Path) -> Path:
    """Three nights of three SUTs."""
    results = tmp_path / "results"
    for place, sut in enumerate(("s1", "s2", "s3")):
        stored(results, noise(3, 80.0, seed=place), sut=sut)
    return results


def test_a_damaged_document_of_tonight_is_missing(small: Path) -> None:
    whole = judge_night(small, night_of(2))
    (small / file_of("s2", 2)).write_bytes(b"{")
    found = judge_night(small, night_of(2))
    failed = {
        (verdict.sut, verdict.check, verdict.metric): verdict for verdict in found.verdicts if verdict.outcome == "fail"
    }
    assert set(failed) == {("s2", "unreadable", file_of("s2", 2)), ("s2", "missing", "run")}
    assert f"cannot read {file_of('s2', 2)}" in failed["s2", "missing", "run"].reason
    assert {item.run_id for item in failed.values()} == {None}
    of_others = [verdict for verdict in whole.verdicts if verdict.sut != "s2" and verdict.check != "homogeneity"]
    assert [
        verdict for verdict in found.verdicts if verdict.sut != "s2" and verdict.check != "homogeneity"
    ] == of_others


def test_a_night_without_readable_documents_is_judged(small: Path) -> None:
    for sut in ("s1", "s2", "s3"):
        (small / file_of(sut, 2)).write_bytes(b"")
    found = judge_night(small, night_of(2))
    assert found.night == night_of(2)
    assert set(unreadable(found)) == {"s1", "s2", "s3"}
    assert judge_night(small).night == night_of(1)
    assert set(unreadable(judge_night(small))) == {"s1", "s2", "s3"}


def test_unreadable_tolerances_fail_every_sut(small: Path) -> None:
    path = small / "references" / "tolerances.yml"
    path.parent.mkdir()
    before = judge_night(small)
    path.write_bytes(b"- {metrics: x}")
    found = judge_night(small)
    failed = [verdict for verdict in found.verdicts if verdict.outcome == "fail"]
    assert {(verdict.sut, verdict.check, verdict.metric) for verdict in failed} == {
        (sut, "unreadable", "references/tolerances.yml") for sut in ("s1", "s2", "s3")
    }
    assert all("line 1, tolerance 1: fraction: Field required" in item.reason for item in failed)
    assert [verdict for verdict in found.verdicts if verdict not in failed] == list(before.verdicts)
    done = CliRunner().invoke(calibration, ["judge", "--results", str(small)])
    assert done.exit_code == 1
    assert "references/tolerances.yml" in done.output


def test_unreadable_bounds_fail_their_sut(small: Path) -> None:
    path = small / "references" / "baselines" / "sut" / "lab" / "s2.json"
    path.parent.mkdir(parents=True)
    before = judge_night(small)
    path.write_bytes(b"[" * 10**6)
    found = judge_night(small)
    (failed,) = (verdict for verdict in found.verdicts if verdict.outcome == "fail")
    assert (failed.sut, failed.check, failed.metric) == ("s2", "unreadable", "references/baselines/sut/lab/s2.json")
    assert [verdict for verdict in found.verdicts if verdict is not failed] == list(before.verdicts)
    for words in (
        ["trend", "lab/s2", LATENCY, "--results", small],
        ["accept", (small / file_of("s2", 2)).parent, "--by", "A", "--reason", "b"],
    ):
        done = CliRunner().invoke(calibration, [str(word) for word in words])
        assert isinstance(done.exception, InputError)
        assert str(path) in str(done.exception)


def test_commands_list_omitted_documents(small: Path) -> None:
    (small / file_of("s2", 1)).write_bytes(b"")

    def called(*words: Any) -> Any:
        return CliRunner().invoke(calibration, [str(word) for word in words])

    nights = {line[:10]: line for line in called("trend", "lab/s2", LATENCY, "--results", small).output.splitlines()}
    assert f"cannot read {file_of('s2', 1)[:30]}" in nights[str(night_of(1))]
    done = called("accept", (small / file_of("s2", 2)).parent, "--by", "Ada", "--reason", "as bought", "--anyway")
    assert done.exit_code == 0
    assert f"skipped, cannot be read: {file_of('s2', 1)}" in " ".join(done.output.split())
    done = called("report", small, "--json")
    assert done.exit_code == VERDICT_FAILED
    assert str(small / file_of("s2", 1)) in done.stderr
    assert len(done.stdout.splitlines()) == 8
    assert called("judge", "--results", small).exit_code == VERDICT_FAILED
