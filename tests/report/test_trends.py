# SPDX-License-Identifier: Apache-2.0
"""Tonight and the trends: every SUT has its state, since when and why, and every figure shows what was found in it."""

import csv
import gzip
import json
import os
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from made_nights import ABSENT, FLIPS, GAP, IDLE, LAST, NIGHTS, READS, SHIFT, TESTBED, TITLES, made_nights, run_id
from report_documents import as_bytes, guide, run_document, store
from test_hostile_page import TEXTS, check_source

from calibration.judge import judge
from calibration.report import build_site, filters, site
from calibration.report.comparison import machine_of
from calibration.report.page import render
from calibration.report.site import SitePage
from calibration.report.tonight import Nights, findings, sentence, standings
from calibration.report.trends import SHOWN, difference, render_trends
from calibration.results.history import NightRun
from tests.harmless import check_figure

GOLDEN = Path(__file__).parent / "golden"
SVG = "{http://www.w3.org/2000/svg}"


def page_of(run: NightRun | None) -> str | None:
    return None if run is None or run.night != LAST else f"/calibration/{run.testbed}/{run.sut}/index"


def rendered(nights: Nights) -> dict[str, bytes]:
    found = [each for each in standings(nights) if each.testbed == TESTBED]
    return render_trends(nights, TESTBED, found, page_of)


@pytest.fixture(scope="module")
def nights() -> Nights:
    return made_nights()


@pytest.fixture(scope="module")
def files(nights: Nights) -> dict[str, bytes]:
    return rendered(nights)


def site_page(testbed: str, sut: str) -> SitePage:
    document = run_document(names=("idle_latency",), testbed=testbed, sut=sut)
    return SitePage(document.run, render(as_bytes(document)), machine_of(document, ""))


# Tonight


def test_every_sut_has_its_state_and_those_to_look_at_come_first(nights: Nights) -> None:
    found = [(each.sut, each.word, each.since) for each in standings(nights)]
    assert found == [
        ("t3-sut2", "fails", NIGHTS[SHIFT]),
        ("t3-sut4", "fails", NIGHTS[FLIPS]),
        ("t4-sut1", "not measured", NIGHTS[ABSENT]),
        ("t3-sut5", "no reference yet", NIGHTS[0]),
        ("t3-sut1", "as accepted", NIGHTS[0]),
        ("t3-sut3", "as accepted", NIGHTS[-1]),
        ("t3-sut9", "no longer measured", NIGHTS[9]),
    ]


def test_a_sut_is_as_accepted_since_its_last_figure_outside(nights: Nights) -> None:
    history = nights.history
    values = history.values.copy()
    values[nights.rows[TESTBED, "t3-sut1", IDLE], 25] = 95.0
    found = standings(replace(nights, history=replace(history, values=values)))
    assert next(each.since for each in found if each.sut == "t3-sut1") == NIGHTS[26]


def test_the_night_is_one_sentence(nights: Nights) -> None:
    assert sentence(nights, standings(nights)) == (
        f"Tonight, 2026-01-02: 2 of 6 SUTs are as accepted; t3-sut2 fails since {NIGHTS[SHIFT]}; t3-sut4 fails since "
        f"{NIGHTS[FLIPS]}; t4-sut1 was not measured; 1 has no reference yet."
    )


def test_many_that_fail_are_counted_and_names_of_two_testbeds_told_apart(nights: Nights) -> None:
    bad = next(each for each in standings(nights) if each.state == "fails")
    many = [bad._replace(testbed=f"t{number}") for number in range(7)]
    said = sentence(nights, many)
    assert "0 of 7 SUTs are as accepted; t0 / t3-sut2 fails since" in said
    assert said.endswith("; 3 more fail.")


def test_what_is_worst_is_told_with_its_size_and_what_changed(nights: Nights) -> None:
    told = {each.sut: each.what for each in standings(nights)}
    assert told["t3-sut2"] == "Idle latency +8.0 % (+7.0 % to +9.0 %), worse; another BIOS"
    assert told["t3-sut4"].startswith("Idle latency flips between two levels, 90.00 to 95.40 ns; and 1 figure since")
    assert told["t4-sut1"].startswith("expected a run of this night, found none")
    assert told["t3-sut3"] == "11 figures as accepted and 1 waived"
    assert told["t3-sut5"] == "11 figures without a reference"


def test_what_moved_most_figures_is_told_first(nights: Nights) -> None:
    verdict = next(each for each in nights.verdicts if each.sut == "t3-sut4" and each.check == "homogeneity")
    more = [verdict.model_copy(update={"metric": GAP.format(cpu)}) for cpu in (4, 5)]
    changed = replace(nights, verdicts=[*nights.verdicts, *more])
    assert [len(each.metrics) for each in findings(changed)] == [1, 3, 1, 1]
    what = next(each.what for each in standings(changed) if each.sut == "t3-sut4")
    assert what.startswith("Longest gap in 5 s, CPU 3 +99.8 % from the testbed's others, and 2 more figures; and 1 ")


def test_a_run_that_failed_but_left_figures_is_not_called_missing(nights: Nights) -> None:
    missing = nights.verdicts[-1].model_copy(update={"testbed": TESTBED, "sut": "t3-sut1", "run_id": run_id(LAST)})
    found = standings(replace(nights, verdicts=[*nights.verdicts, missing]))
    assert next(each.word for each in found if each.sut == "t3-sut1") == "fails"


# Pages


def test_the_pages_are_those_that_were_blessed(nights: Nights, files: dict[str, bytes]) -> None:
    suts = [(each.testbed, each.sut) for each in standings(nights) if each.state not in {"gone", "unmeasured"}]
    made = site._pages([site_page(*sut) for sut in suts], replace(nights, titles={}))
    texts = {
        "tonight.rst": made["calibration/index.rst"],
        "trends-testbed.rst": files["index.rst"],
        "trends-idle-latency.rst": files["idle-latency.rst"],
        "trends-jitter.rst": files["jitter.rst"],
    }
    for name, content in texts.items():
        if os.environ.get("CALIBRATION_BLESS") == "1":
            (GOLDEN / name).write_bytes(content)
        assert content.decode() == (GOLDEN / name).read_text(encoding="utf-8"), name


def test_the_same_nights_give_the_same_bytes(files: dict[str, bytes]) -> None:
    assert rendered(made_nights()) == files


def test_no_kind_is_without_its_page_and_no_figure_without_its_table(files: dict[str, bytes]) -> None:
    pages = {name: content.decode() for name, content in files.items() if name.endswith(".rst")}
    assert set(pages) == {"index.rst", "idle-latency.rst", "jitter.rst", "max-bandwidth.rst"}
    for name, text in pages.items():
        check_source(text)
        figures = re.findall(r"^\.\. figure:: (.*)$", text, re.MULTILINE)
        assert set(figures) <= set(files), name
        assert text.count(":class: calibration trend") == len(figures) > 0


def test_a_family_of_many_is_one_figure_and_its_member_that_fails_has_its_own(files: dict[str, bytes]) -> None:
    jitter, index = files["jitter.rst"].decode(), files["index.rst"].decode()
    assert jitter.count(".. figure::") == 1
    assert "Longest gap in 5 s, CPU \\… \\(9 figures\\)" in jitter
    assert "1 of 9 fail" in jitter
    assert "figures/jitter.cpu3.gaps.max-ns.svg" in index


def test_a_testbed_of_which_nothing_fails_says_so(nights: Nights) -> None:
    good = [each.model_copy(update={"outcome": "pass"}) for each in nights.verdicts]
    text = rendered(replace(nights, verdicts=good))["index.rst"].decode()
    assert "Nothing fails." in text
    assert ".. figure::" not in text


def test_facts_of_one_word_are_told_whole_and_long_ones_by_what_differs() -> None:
    assert difference("1.2", "1.3") == "1.2 → 1.3"
    assert difference(None, "on") == "not known → on"
    long = " ".join(f"word{number}" for number in range(20))
    assert difference(f"{long} quiet", f"{long} isolcpus=1-3") == "quiet → isolcpus=1-3"
    assert difference(long, f"{long} more") == "nothing → more"


def test_nights_beyond_a_year_are_not_drawn(nights: Nights) -> None:
    history = nights.history
    old = tuple(night - timedelta(days=SHOWN if place < 5 else 0) for place, night in enumerate(history.nights))
    moved = dict(zip(history.nights, old, strict=True))
    runs = {
        sut: {moved[night]: replace(run, night=moved[night]) for night, run in those.items()}
        for sut, those in history.runs.items()
    }
    files = rendered(replace(nights, history=replace(history, nights=old, runs=runs)))
    text = files["idle-latency.rst"].decode()
    assert f"Nights from {NIGHTS[5]} to {LAST}" in text
    assert str(old[0]) not in gzip.decompress(files["figures.csv.gz"]).decode()


@pytest.mark.parametrize("kind", TEXTS)
def test_pages_of_hostile_facts_and_reasons_are_text(kind: str) -> None:
    files = rendered(made_nights(TEXTS[kind]))
    for name, content in files.items():
        if name.endswith(".rst"):
            check_source(content.decode())
        elif name.endswith(".svg"):
            check_figure(content.decode())


# Charts


def test_a_chart_tells_those_who_do_not_see_it_what_it_shows(files: dict[str, bytes]) -> None:
    said = ET.fromstring(files[f"figures/{filters.slug(IDLE)}.svg"]).findtext(f"{SVG}title") or ""  # noqa: S314 - just drawn
    assert said.startswith("Idle latency of the SUTs of")
    assert f"t3-sut2: fails since {NIGHTS[SHIFT]}; t3-sut4: fails since {NIGHTS[FLIPS]}" in said


def test_a_chart_shows_what_was_found(files: dict[str, bytes]) -> None:
    drawn = files[f"figures/{filters.slug(IDLE)}.svg"].decode()
    assert ">+8.0 %<" in drawn
    assert re.search(rf">t3-sut2: 97\.\d\d ns, fails since {NIGHTS[SHIFT]}<", drawn)
    assert ">spread 21.4 times<" in files[f"figures/{filters.slug(READS)}.svg"].decode()


# Data


def test_what_is_drawn_can_be_downloaded(nights: Nights, files: dict[str, bytes]) -> None:
    rows = list(csv.DictReader(gzip.decompress(files["figures.csv.gz"]).decode().splitlines()))
    own = [row for row, each in enumerate(nights.history.series) if each.testbed == TESTBED]
    assert len(rows) == int(np.isfinite(nights.history.values[own]).sum())
    shifted = [row for row in rows if (row["sut"], row["metric"]) == ("t3-sut2", IDLE)]
    assert float(shifted[SHIFT]["value"]) == pytest.approx(
        nights.history.values[nights.rows[TESTBED, "t3-sut2", IDLE], SHIFT], rel=1e-4
    )
    assert shifted[SHIFT]["night"] == str(NIGHTS[SHIFT])


def test_what_was_found_can_be_downloaded(files: dict[str, bytes]) -> None:
    said = json.loads(files["tonight.json"])
    assert said["night"] == "2026-01-02"
    assert {each["outcome"] for each in said["verdicts"]} == {"pass", "fail", "no_reference"}
    assert [(each["sut"], each["kind"], each["night"]) for each in said["changes"]] == [
        ("t3-sut2", "level", str(NIGHTS[SHIFT])),
        ("t3-sut3", "spread", "2025-12-19"),
    ]
    assert {each["fact"] for each in said["context_changes"]} == {"BIOS", "kernel command line"}


# The site


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(site, "CACHE", tmp_path / "cache")
    monkeypatch.setattr("calibration.results.index.CACHE", tmp_path / "index")
    return tmp_path / "results"


def test_the_site_of_stored_documents_has_tonight_and_trends(tmp_path: Path, results: Path) -> None:
    for day in range(1, 3):
        document = run_document(names=("idle_latency",), id=f"202601{day:02}T030405Z-0a1b")
        store(document.model_copy(update={"verdicts": tuple(judge(document.measurements))}), results)
    output = build_site(results, guide(tmp_path / "docs"), tmp_path / "html").parent
    index = (output / "calibration" / "index.html").read_text(encoding="utf-8")
    assert "Tonight, 2026-01-02: 0 of 1 SUTs are as accepted" in index
    assert "1 has no reference yet" in index
    page = (output / "calibration" / "example-lab" / "t3-sut2" / "index.html").read_text(encoding="utf-8")
    assert 'href="../../trends/example-lab/index.html"' in page
    trends = (output / "calibration" / "trends" / "example-lab" / "index.html").read_text(encoding="utf-8")
    assert 'href="idle-latency.html"' in trends
    kind = (output / "calibration" / "trends" / "example-lab" / "idle-latency.html").read_text(encoding="utf-8")
    assert "no reference" in kind
    assert list(output.glob("_downloads/*/figures.csv.gz"))
    assert list(output.glob("_downloads/*/tonight.json"))


def test_a_run_alone_has_no_tonight(tmp_path: Path, results: Path) -> None:
    one = store(run_document(names=("idle_latency",)), results)
    output = build_site(one, guide(tmp_path / "docs"), tmp_path / "html").parent
    assert "Tonight" not in (output / "calibration" / "index.html").read_text(encoding="utf-8")
    assert not (output / "calibration" / "trends").exists()


def test_only_the_newest_runs_have_pages_and_the_one_since_which_it_fails(nights: Nights, tmp_path: Path) -> None:
    runs = [tmp_path / each.directory for those in nights.history.runs.values() for each in those.values()]
    kept = {str(each.relative_to(tmp_path)) for each in site._with_pages(runs, tmp_path, nights)}
    own = {each for each in kept if "/t3-sut2/" in each}
    newest = {f"{TESTBED}/t3-sut2/{run_id(night)}" for night in NIGHTS[-site.HISTORY :]}
    assert own == {*newest, f"{TESTBED}/t3-sut2/{run_id(NIGHTS[SHIFT])}"}
    imported = tmp_path / TESTBED / "t3-sut2" / "imported-0123456789ab"
    assert imported in site._with_pages([*runs, imported], tmp_path, nights)


def test_a_testbed_named_like_the_folder_of_trends_keeps_its_pages(nights: Nights) -> None:
    made = site._pages([site_page("trends", TESTBED)], nights)
    assert f"calibration/trends/{TESTBED}/index.rst" in made
    assert f"calibration/trends/{TESTBED}-2/index.rst" in made
    assert made[f"calibration/trends/{TESTBED}/index.rst"].startswith(b".. Made from the run document")


def test_titles_are_those_of_the_newest_documents(nights: Nights) -> None:
    made = site._pages([site_page(TESTBED, "t3-sut2")], replace(nights, titles={}))
    text = made[f"calibration/trends/{TESTBED}/index.rst"].decode()
    assert TITLES[IDLE] in text
