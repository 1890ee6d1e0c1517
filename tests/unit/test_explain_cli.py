# SPDX-License-Identifier: Apache-2.0
"""``calibration explain`` on stored results: the example of the guide, JSON, names of SUTs, CSIT's files."""

import gzip
import json
import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from calibration.base.places import SHARE
from calibration.cli import calibration
from calibration.judge.explanation import Explanation
from calibration.results.layout import RUN
from tests.unit.formats.test_throughput import CSIT, TEST
from tests.unit.histories import FIRST, night_of, stored

NIGHTS = 80
SUTS = ("t1-sut1", "t1-sut2", "t1-sut3")
CAUSE, NEITHER, SOFTWARE, COINCIDENCE = 40, 55, 22, 62
"""First nights of what is planted: t1-sut2 gets a slower BIOS, t1-sut3 is faster for no reason that its calibration
knows, new software slows all tests, and t1-sut1 is slower with a kernel that t1-sut3 got without an effect."""


def figures(sut: str, level: float, noise: float, test: int, steps: Sequence[tuple[str, int, float]]) -> list[float]:
    chance = np.random.default_rng([SUTS.index(sut), test])
    row = level * (1.0 + noise * chance.standard_normal(NIGHTS))
    for name, night, size in steps:
        if name == sut:
            row[night:] *= 1.0 + size
    return [round(value, 4) for value in row.tolist()]


def with_facts(results: Path, sut: str, night: int, **facts: str) -> None:
    """Change *facts* of *sut* from *night* on."""
    for directory in sorted((results / "lab" / sut).iterdir())[night:]:
        document = json.loads((directory / RUN).read_text(encoding="utf-8"))
        document["facts"] |= facts
        (directory / RUN).write_text(json.dumps(document), encoding="utf-8")


@pytest.fixture(name="lab", scope="module")
def _lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with ``results`` and ``throughput.csv`` of a lab; its index is kept there too."""
    folder = tmp_path_factory.mktemp("lab")
    lines = ["sut,test,time,value,unit"]
    steps = [
        *((sut, SOFTWARE, -0.04) for sut in SUTS),
        ("t1-sut2", CAUSE, -0.06),
        ("t1-sut3", NEITHER, 0.04),
        ("t1-sut1", COINCIDENCE, -0.05),
    ]
    for sut in SUTS:
        stored(folder / "results", figures(sut, 95.0, 0.004, 9, [("t1-sut2", CAUSE, 0.09)]), sut=sut)
        for test, level in enumerate((12.4, 9.7)):
            for night, value in enumerate(figures(sut, level, 0.006, test, steps)):
                when = f"{FIRST + timedelta(days=night)}T06:00:00+01:00"
                lines.append(f"lab/{sut},{('ip4-64b-2t1c', 'l2-64b-2t1c')[test]},{when},{value},Mpps")
        with_facts(folder / "results", sut, 0, BIOS="Example 2.1", kernel="Linux 6.12.6")
    with_facts(folder / "results", "t1-sut2", CAUSE, BIOS="Example 2.2")
    with_facts(folder / "results", "t1-sut1", COINCIDENCE, kernel="Linux 6.12.9")
    with_facts(folder / "results", "t1-sut3", 30, kernel="Linux 6.12.9")
    (folder / "throughput.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def _kept_index(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibration.results.index.CACHE", lab / "cache")


def called(*words: object) -> Result:
    return CliRunner().invoke(calibration, ["explain", *map(str, words)], catch_exceptions=False)


def explained(lab: Path, *files: Path) -> Explanation:
    done = called(*(files or (lab / "throughput.csv",)), "--results", lab / "results", "--json")
    assert done.exit_code == 0
    return Explanation.model_validate_json(done.output)


def outcomes(found: Explanation) -> dict[str, set[tuple[str, int]]]:
    by_sut: dict[str, set[tuple[str, int]]] = {}
    for test in found.tests:
        for row in test.suts:
            own = {(item.outcome, (item.night - FIRST).days) for item in row.changes}
            by_sut.setdefault(row.suts[0], set()).update(own)
    return by_sut


def test_the_cause_is_told_from_the_coincidence_and_from_neither(lab: Path) -> None:
    found = explained(lab)
    assert outcomes(found) == {
        "lab/t1-sut1": {("unexplained", COINCIDENCE)},
        "lab/t1-sut2": {("follows", CAUSE)},
        "lab/t1-sut3": {("unexplained", NEITHER)},
    }
    for test in found.tests:
        assert test.controlled
        assert [item.night for item in test.common] == [night_of(SOFTWARE)]
        (cause,) = test.suts[1].changes
        assert {one.what for one in cause.coincidences if one.claimed} == {"BIOS", "idle_latency.latency_ns"}
        (coincidence,) = test.suts[0].changes
        assert [(one.what, one.claimed, one.hits, one.alike) for one in coincidence.coincidences] == [
            ("kernel", False, 1, 2)
        ]
        (neither,) = test.suts[2].changes
        assert neither.coincidences == ()


def test_the_guide_shows_what_the_command_prints(lab: Path) -> None:
    done = called(lab / "throughput.csv", "--results", lab / "results")
    assert done.exit_code == 0
    guide = (SHARE / "docs" / "guide" / "explain.rst").read_text(encoding="utf-8")
    shown = "\n".join(line.removeprefix("   ") for line in guide.splitlines())
    assert done.output.strip() in shown
    for line in re.findall(r"^lab/.*Mpps$", shown, re.MULTILINE):
        assert line in (lab / "throughput.csv").read_text(encoding="utf-8")


def test_a_sut_may_be_named_without_its_testbed(lab: Path, tmp_path: Path) -> None:
    text = (lab / "throughput.csv").read_text(encoding="utf-8").replace("lab/", "")
    (tmp_path / "short.csv").write_text(text, encoding="utf-8")
    assert explained(lab, tmp_path / "short.csv") == explained(lab)


def test_unknown_suts_are_refused_if_there_is_no_other(lab: Path, tmp_path: Path) -> None:
    text = (lab / "throughput.csv").read_text(encoding="utf-8")
    (tmp_path / "other.csv").write_text(text.replace("lab/t1-sut3", "lab/t9-sut3"), encoding="utf-8")
    found = explained(lab, tmp_path / "other.csv")
    reasons = {row.suts: row.reason for test in found.tests for row in test.suts}
    assert reasons[("lab/t9-sut3",)] == "not calibrated: no such SUT in the results"
    (tmp_path / "none.csv").write_text(re.sub(r"lab/t1-sut\d", "lab/t1-sut", text), encoding="utf-8")
    done = CliRunner().invoke(calibration, ["explain", str(tmp_path / "none.csv"), "--results", str(lab / "results")])
    assert str(done.exception).startswith("unknown SUT 'lab/t1-sut', did you mean lab/t1-sut")


def test_files_of_csit_name_suts_by_the_addresses_of_an_inventory(lab: Path, tmp_path: Path) -> None:
    addresses = dict(zip(SUTS, ("192.0.2.81", "192.0.2.82", "192.0.2.84"), strict=True))
    for sut in SUTS:
        for night, value in enumerate(figures(sut, 12.4, 0.006, 0, [("t1-sut2", CAUSE, -0.06)])):
            result = {"type": "mrr", "receive_rate": {"rate": {"unit": "pps", "values": [value], "avg": value}}}
            start = f"{night_of(night)}T05:00:00.000000Z"
            fields = {"hosts": [addresses[sut], "192.0.2.83"], "start_time": start, "result": result}
            path = tmp_path / "csit" / f"{sut}-{night}.info.json.gz"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(gzip.compress(json.dumps({**CSIT, **fields}).encode(), 1))
    hosts = {address: {"hostname": sut} for sut, address in addresses.items()} | {"192.0.2.83": {"hostname": "t1-tg1"}}
    (tmp_path / "inventory.yml").write_text(json.dumps({"all": {"hosts": hosts}}), encoding="utf-8")
    done = called(tmp_path / "csit", "--results", lab / "results", "-i", tmp_path / "inventory.yml", "--json")
    found = Explanation.model_validate_json(done.output)
    assert [test.test for test in found.tests] == [TEST]
    assert outcomes(found)["lab/t1-sut2"] == {("follows", CAUSE)}


def test_everything_is_printed_on_request(lab: Path) -> None:
    few = called(lab / "throughput.csv", "--results", lab / "results")
    every = called(lab / "throughput.csv", "--results", lab / "results", "--all")
    assert every.exit_code == 0
    assert len(every.output) >= len(few.output)
