# SPDX-License-Identifier: Apache-2.0
"""The site: pages, warnings as errors, incremental and atomic builds."""

import gc
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from calibration.base.errors import EnvironmentLacksError, InputError
from calibration.commands.report import report_command
from calibration.judge.standing import Standing, Standings
from calibration.references.library import Library
from calibration.report import kept, page_cache, pictures, rendering, shell, site
from calibration.report.page import Page
from calibration.report.rendering import render_run
from calibration.report.site import build_site
from calibration.results.layout import RUN
from calibration.results.model import RunDocument
from calibration.results.store import StoredRun
from tests.report.report_documents import PAGE, figure_count, guide, judged, run_document, store

DOCS = Path(__file__).resolve().parents[2] / "docs"

EMPTY_CHART = {"data": {"values": []}, "mark": "point"}


@pytest.fixture
def own_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Render pages into a cache of the test alone, and leave out the example."""
    monkeypatch.setattr(site, "EXAMPLE", tmp_path / "none")
    monkeypatch.setattr(kept, "FOLDER", tmp_path / "pages")
    return tmp_path / "pages"


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    return guide(tmp_path / "docs")


def html(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_a_sut_has_the_page_of_its_newest_run_and_links_to_older_documents(tmp_path: Path, docs: Path) -> None:
    results = tmp_path / "results"
    store(run_document(names=(), id="20260101T000000Z-0000", profile="full"), results)
    store(judged(run_document(names=("idle_latency",))), results)
    store(run_document(names=(), sut="other", profile="nightly"), results)
    # the older of two is the one that started earlier, whatever its directory is called
    early = run_document(names=(), id="20260202T000000Z-ffff", profile="full")
    early_run = early.run.model_copy(update={"started_at": early.run.started_at.replace(year=2025)})
    directory = store(early.model_copy(update={"run": early_run}), results)
    first = build_site(results, docs, tmp_path / "html")
    assert first == tmp_path / "html" / "index.html"
    pages = tmp_path / "html" / "calibration" / "example-lab"
    newest = html(pages / "t3-sut2" / "index.html")
    assert "Idle latency" in newest
    assert "calibration report example-lab/t3-sut2/RUN" in re.sub("<[^>]*>", "", newest)
    assert 'href="20260202t000000z-ffff.json"' in newest
    assert (pages / "t3-sut2" / "20260202t000000z-ffff.json").read_bytes() == (directory / RUN).read_bytes()
    own = (pages / "t3-sut2" / f"{run_document().run.id.lower()}.csv").read_text(encoding="utf-8")
    assert "idle_latency.latency_ns" in own
    assert not list(pages.glob("t3-sut2/*/index.html"))
    index = html(tmp_path / "html" / "calibration" / "index.html")
    assert 'href="example-lab/t3-sut2/index.html"' in index
    assert 'href="example-lab/other/index.html"' in index


def test_the_sidebar_lists_testbeds_and_no_sut(tmp_path: Path, docs: Path) -> None:
    results = tmp_path / "results"
    store(run_document(names=(), sut="sut1"), results)
    store(run_document(names=(), sut="sut1", testbed="t10"), results)
    store(run_document(names=(), sut="sut1", testbed="t2"), results)
    build_site(results, docs, tmp_path / "html")
    calibration = tmp_path / "html" / "calibration"
    for page, up in (("index.html", ""), ("t2/index.html", "../"), ("t2/sut1/index.html", "../../")):
        sidebar = html(calibration / page).partition('class="sidebar-tree"')[2].partition("</div>")[0]
        listed = re.findall(r'href="([^"]*)"[^>]*>(?:example-lab|t\d+)<', sidebar)
        here = "#" if page != "index.html" else f"{up}t2/index.html"
        assert listed == [f"{up}example-lab/index.html", here, f"{up}t10/index.html"], page
        assert "sut1" not in sidebar


def test_a_page_of_the_site_has_all_charts_of_its_run(published: Path, shaped: RunDocument) -> None:
    page = html(published / PAGE)
    assert page.count("<figure") == figure_count(shaped) > 5
    assert page.count('class="chart-spec"') == page.count("<figure")


def test_names_with_the_same_slug_have_their_own_pages(tmp_path: Path, docs: Path) -> None:
    results = tmp_path / "results"
    store(run_document(names=(), sut="SUT_1"), results)
    store(run_document(names=(), sut="sut-1"), results)
    build_site(results, docs, tmp_path / "html")
    folder = tmp_path / "html" / "calibration" / "example-lab"
    titles = [re.findall(r"<h1>(.*?)<", html(folder / name / "index.html"))[0] for name in ("sut-1", "sut-1-2")]
    assert titles == ["example-lab / SUT_1", "example-lab / sut-1"]


def test_a_misplaced_run_is_omitted_and_listed(tmp_path: Path, docs: Path) -> None:
    stored = store(run_document(names=()), tmp_path / "results")
    copy = tmp_path / "results" / "there" / "sut" / stored.name
    shutil.copytree(stored, copy)
    build_site(tmp_path / "results", docs, tmp_path / "html")
    pages = tmp_path / "html" / "calibration"
    assert f"cannot read there/sut/{stored.name}/run.json: contains the run example-lab/t3-sut2" in html(
        pages / "index.html"
    )
    assert (pages / "example-lab" / "t3-sut2" / "index.html").is_file()
    assert not (pages / "there").exists()


def test_a_site_without_any_run_can_be_built(tmp_path: Path, docs: Path) -> None:
    (tmp_path / "results").mkdir()
    build_site(tmp_path / "results", docs, tmp_path / "html")
    assert "No run was given" in html(tmp_path / "html" / "calibration" / "index.html")


def test_a_warning_of_sphinx_is_an_error_and_leaves_the_old_site(tmp_path: Path, docs: Path) -> None:
    (tmp_path / "results").mkdir()
    build_site(tmp_path / "results", docs, tmp_path / "html")
    before = html(tmp_path / "html" / "index.html")
    (docs / "index.rst").write_text("Guide\n=====\n\n:doc:`nowhere`\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"index\.rst:4: .*nowhere"):
        build_site(tmp_path / "results", docs, tmp_path / "html")
    assert html(tmp_path / "html" / "index.html") == before


def test_an_unreadable_run_fails_its_own_site_and_is_listed_on_the_lab_s(tmp_path: Path, docs: Path) -> None:
    directory = store(run_document(names=()), tmp_path / "results")
    (directory / RUN).write_text("{}", encoding="utf-8")
    with pytest.raises(InputError, match=re.escape(str(directory))):
        build_site(directory, docs, tmp_path / "html")
    assert not (tmp_path / "html").exists()
    build_site(tmp_path / "results", docs, tmp_path / "html")
    assert f"cannot read example-lab/t3-sut2/{directory.name}/run.json: " in html(
        tmp_path / "html" / "calibration" / "index.html"
    )


@pytest.mark.usefixtures("own_pages")
def test_the_whole_document_is_read_of_the_newest_run_with_a_valid_one(
    tmp_path: Path, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, whole, read_as = tmp_path / "results", [], StoredRun.read_as

    def read(stored: StoredRun, model: type[RunDocument]) -> RunDocument:
        whole.extend([stored.path.parts[-2]] if model is RunDocument else [])
        return read_as(stored, model)

    def start(run: str, year: int) -> Path:
        document = judged(run_document(names=("idle_latency",), id=run))
        started = document.run.started_at.replace(year=year)
        return store(
            document.model_copy(update={"run": document.run.model_copy(update={"started_at": started})}), results
        )

    def damage(run: Path) -> None:
        text = (run / RUN).read_text(encoding="utf-8")
        assert '"argv"' in text
        (run / RUN).write_text(text.replace('"argv"', '"arguments"'), encoding="utf-8")

    oldest, older, last = (start(f"2026010{day}T000000Z-0000", 2020 + year) for day, year in ((1, 4), (2, 6), (3, 5)))
    monkeypatch.setattr(StoredRun, "read_as", read)
    build_site(results, docs, tmp_path / "html")
    assert {*whole} == {older.name, last.name}  # last by time, and last by name
    folder = tmp_path / "html" / "calibration" / "example-lab" / "t3-sut2"
    names = {path.stem for path in folder.glob("*.csv")}
    assert names == {run.name.lower() for run in (oldest, older, last)}
    for gone in (older, last):
        damage(gone)
        build_site(results, docs, tmp_path / "html")
        unread = html(tmp_path / "html" / "calibration" / "index.html")
        assert f"{gone.name}/run.json: not a run document: " in unread
        assert not (folder / f"{gone.name.lower()}.csv").exists()
    assert f'href="{oldest.name.lower()}.csv"' in html(folder / "index.html")


def test_a_second_build_removes_its_own_old_files_and_nothing_else(tmp_path: Path, docs: Path) -> None:
    results = tmp_path / "results"
    store(run_document(names=()), results)
    gone = store(run_document(names=(), sut="gone"), results)
    output = tmp_path / "html"
    build_site(results, docs, output)
    foreign = output / "CNAME"
    foreign.write_text("example.com", encoding="utf-8")
    assert (output / "calibration" / "example-lab" / "gone" / "index.html").is_file()
    untouched = output / "calibration" / "example-lab" / "t3-sut2" / "index.html"
    (gone / RUN).unlink()
    build_site(results, docs, output)
    assert not (output / "calibration" / "example-lab" / "gone" / "index.html").exists()
    assert foreign.is_file()
    assert untouched.is_file()
    assert not list(output.rglob(".*.new"))


def test_a_second_build_is_identical(tmp_path: Path, docs: Path) -> None:
    results, output = tmp_path / "results", tmp_path / "html"
    store(run_document(names=()), results)
    build_site(results, docs, output)
    first = {path: path.read_bytes() for path in output.rglob("*") if path.is_file()}
    assert b"lighthouse" in first[output / "searchindex.js"]
    build_site(results, docs, output)
    assert first == {path: path.read_bytes() for path in output.rglob("*") if path.is_file()}


def test_the_example_has_a_page_that_the_home_page_links(tmp_path: Path, docs: Path) -> None:
    build_site(store(run_document(names=("idle_latency",)), tmp_path / "results"), docs, tmp_path / "html")
    assert "example / server" in html(tmp_path / "html" / "calibration" / "example" / "index.html")
    assert "<calibration/example/index.html>" in (DOCS / "index.rst").read_text(encoding="utf-8")


@pytest.mark.usefixtures("own_pages")
def test_a_cached_page_is_not_rendered_again(tmp_path: Path, docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = tmp_path / "results"
    store(judged(run_document(names=("idle_latency",))), results)
    rendered = []
    render = page_cache.render
    monkeypatch.setattr(page_cache, "render", lambda stored, *rest: rendered.append(stored) or render(stored, *rest))
    build_site(results, docs, tmp_path / "html")
    page = tmp_path / "html" / "calibration" / "example-lab" / "t3-sut2" / "index.html"
    before = html(page)
    build_site(results, docs, tmp_path / "html")
    assert len(rendered) == 1
    assert html(page) == before
    store(run_document(names=(), sut="other"), results)
    build_site(results, docs, tmp_path / "html")
    assert len(rendered) == 2
    monkeypatch.setattr(kept, "OUTPUT_BYTES", 10)  # larger ones are not read
    build_site(results, docs, tmp_path / "html")
    assert len(rendered) == 4


@pytest.mark.usefixtures("own_pages")
def test_what_a_page_leaves_is_collected_before_the_last_one(
    tmp_path: Path, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(run_document(names=()), tmp_path / "results")
    enabled = []
    render = page_cache.render
    monkeypatch.setattr(page_cache, "render", lambda *those: enabled.append(gc.isenabled()) or render(*those))
    build_site(tmp_path / "results", docs, tmp_path / "html")
    assert enabled == [True]
    assert gc.get_freeze_count() == 0


@pytest.mark.usefixtures("own_pages")
def test_a_page_is_rendered_again_when_the_answer_on_its_sut_changes(
    tmp_path: Path, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = tmp_path / "results"
    store(judged(run_document(names=("latency_ladder",))), results)
    page = tmp_path / "html" / "calibration" / "example-lab" / "t3-sut2" / "index.html"
    build_site(results, docs, tmp_path / "html")
    assert '<div class="admonition answer unknown">' in html(page)
    tolerances = results / "references" / "tolerances.yml"
    tolerances.parent.mkdir()
    tolerances.write_bytes(b"- {metrics: x}")
    monkeypatch.setattr(pictures, "_drawn", lambda _: pytest.fail("drawn again"))
    build_site(results, docs, tmp_path / "html")
    assert '<div class="admonition answer bad">' in html(page)
    assert len([*page.parent.glob("figures/*.svg")]) >= 2


def test_what_was_kept_incomplete_or_for_long_is_made_again(own_pages: Path) -> None:
    spec = json.dumps(EMPTY_CHART)
    drawn = pictures._svg(spec)
    (path,) = own_pages.iterdir()
    path.write_text(drawn[:-7], encoding="utf-8")
    assert pictures._svg(spec) == drawn == path.read_text(encoding="utf-8")
    kept.prune()
    assert path.exists()
    long_ago = time.time() - kept.LIFETIME_S - 60
    os.utime(path, (long_ago, long_ago))
    assert pictures._svg(spec) == drawn
    kept.prune()
    assert path.exists(), "it was in use"
    os.utime(path, (long_ago, long_ago))
    kept.prune()
    assert not path.exists()


def test_entries_that_go_while_old_ones_are_removed_are_no_fault(
    own_pages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long_ago = time.time() - kept.LIFETIME_S - 60
    own_pages.mkdir()
    gone, old = own_pages / ".page.0123", own_pages / "old.json"
    old.touch()
    os.utime(old, (long_ago, long_ago))
    monkeypatch.setattr(Path, "glob", lambda *_: [gone, old])
    kept.prune()
    assert not old.exists()


def test_what_was_kept_by_another_user_is_used(own_pages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    drawn = pictures._svg(json.dumps(EMPTY_CHART))
    assert [*own_pages.iterdir()]
    monkeypatch.setattr(os, "utime", refuse)
    monkeypatch.setattr(pictures, "_drawn", lambda _: pytest.fail("drawn again"))
    assert pictures._svg(json.dumps(EMPTY_CHART)) == drawn


@pytest.mark.usefixtures("own_pages")
def test_the_site_reads_no_document_whose_page_was_rendered(
    tmp_path: Path, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = tmp_path / "results"
    directory = store(run_document(names=("idle_latency",)), results)
    render_run(directory, Standings())
    build_site(results, docs, tmp_path / "first")  # keeps the page of the example, too
    monkeypatch.setattr(StoredRun, "read_as", lambda stored, _: pytest.fail(f"read again: {stored.path}"))
    build_site(results, docs, tmp_path / "html")


@pytest.mark.usefixtures("own_pages")
def test_the_site_has_the_page_rendered_beside_the_document(
    tmp_path: Path, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = tmp_path / "results"
    directory = store(run_document(names=("idle_latency",)), results)
    build_site(results, docs, tmp_path / "rendered")
    for path in kept.FOLDER.iterdir():
        path.unlink()
    render_run(directory, Standings())
    monkeypatch.setattr(page_cache, "render", lambda *_: pytest.fail("rendered again"))
    build_site(results, docs, tmp_path / "html")
    page = Path("calibration", "example-lab", "t3-sut2", "index.html")
    assert html(tmp_path / "html" / page) == html(tmp_path / "rendered" / page)


def test_of_a_directory_only_pages_of_what_changed_are_rendered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, rendered, render = tmp_path / "results", [], rendering.render

    def counted(stored: StoredRun, references: Library, standing: Standing | None) -> Page:
        rendered.append("/".join(stored.path.parts[-4:-1]))
        return render(stored, references, standing)

    def report() -> list[str]:
        rendered.clear()
        done = CliRunner().invoke(report_command, [str(results)])
        assert done.exit_code == 0, done.output
        assert sorted(done.output.split()) == sorted(str(path) for path in results.glob("*/*/*/report/page.rst"))
        return sorted(rendered)

    def add(place: str) -> None:
        testbed, sut, run = place.split("/")
        store(run_document(names=(), testbed=testbed, sut=sut, id=run), results)

    monkeypatch.setattr(rendering, "render", counted)
    first, second, third, other, own = (
        "a/one/20260101T000000Z-0000", "a/one/20260102T000000Z-0000", "a/two/20260102T000000Z-0000",
        "b/one/20260101T000000Z-0000", "a/two/own",
    )  # fmt: skip
    everyone = [first, second, third, own, other]
    for place in (first, second, other, own):
        add(place)
    assert report() == [first, second, own, other]
    assert report() == []
    add(third)
    assert report() == [second, third, own]
    document = results / first / RUN
    document.write_bytes(document.read_bytes() + b"\n")
    assert report() == [first, second, third, own]
    waivers = results / "references" / "waivers.yml"
    waivers.parent.mkdir()
    waivers.write_bytes(b"[]")
    assert report() == everyone
    shutil.rmtree(results / other / "report")
    (results / own / "report" / "page.rst").unlink()
    assert report() == [own, other]
    monkeypatch.setattr(rendering, "report_sha256", lambda: "another version")
    assert report() == everyone
    assert report() == []


@pytest.mark.usefixtures("own_pages")
def test_page_that_fails_as_html_is_kept_and_reported_on_the_site(
    tmp_path: Path, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise InputError("not valid reStructuredText: line 3")

    monkeypatch.setattr(page_cache, "to_html", refuse)
    directory = store(run_document(names=()), tmp_path / "results")
    with pytest.raises(InputError, match="line 3"):
        render_run(directory, Standings())
    assert "t3-sut2" in html(directory / "report" / "page.rst")
    with pytest.raises(InputError, match="line 3"):
        build_site(tmp_path / "results", docs, tmp_path / "html")


def test_new_night_does_not_rebuild_the_guide(tmp_path: Path, docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = tmp_path / "results"
    store(run_document(names=("idle_latency",), id="20260101T000000Z-0000"), results)
    build_site(results, docs, tmp_path / "html")
    monkeypatch.setattr(shell, "_sphinx", lambda _work: pytest.fail("Sphinx ran again"))
    store(run_document(names=("idle_latency",), id="20260102T000000Z-0000"), results)
    build_site(results, docs, tmp_path / "html")
    assert (tmp_path / "html" / "calibration" / "example-lab" / "t3-sut2" / "20260102t000000z-0000.json").is_file()


def test_truncated_cached_page_is_rendered_again(tmp_path: Path, docs: Path, own_pages: Path) -> None:
    store(run_document(names=("idle_latency",)), tmp_path / "results")
    build_site(tmp_path / "results", docs, tmp_path / "html")
    for path in own_pages.glob("*.json"):
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        build_site(tmp_path / "results", docs, tmp_path / "html")
        assert path.read_bytes() == whole


def test_the_site_of_one_run_alone(tmp_path: Path, docs: Path) -> None:
    store(run_document(names=(), sut="other"), tmp_path / "results")
    one = store(run_document(names=()), tmp_path / "results")
    build_site(one, docs, tmp_path / "html")
    folder = tmp_path / "html" / "calibration" / "example-lab"
    assert {path.name for path in folder.iterdir()} == {"index.html", "t3-sut2"}


def test_the_site_of_a_run_by_a_name_without_folders(
    tmp_path: Path, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = store(run_document(names=()), tmp_path / "results")
    monkeypatch.chdir(one.parent)
    build_site(Path(one.name), docs, tmp_path / "html")
    assert (tmp_path / "html" / "calibration" / "example-lab" / "t3-sut2" / "index.html").is_file()


def test_an_output_that_cannot_be_written_is_reported(tmp_path: Path, docs: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "html").write_text("a file, no directory", encoding="utf-8")
    with pytest.raises(EnvironmentLacksError, match="html"):
        build_site(tmp_path / "results", docs, tmp_path / "html")


def test_a_page_of_something_else_is_not_overwritten(tmp_path: Path, docs: Path) -> None:
    page = tmp_path / "html" / "index.html"
    for folder in (tmp_path / "results", page.parent):
        folder.mkdir()
    page.write_text("mine", encoding="utf-8")
    with pytest.raises(InputError, match="of something else: give another directory"):
        build_site(tmp_path / "results", docs, page.parent)
    assert page.read_text(encoding="utf-8") == "mine"


def test_an_unfinished_site_is_finished(tmp_path: Path, docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> Iterator[tuple[str, bytes]]:
        raise KeyboardInterrupt
        yield

    (tmp_path / "results").mkdir()
    monkeypatch.setattr("calibration.report.site._Site.files", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build_site(tmp_path / "results", docs, tmp_path / "html")
    monkeypatch.undo()
    assert (tmp_path / "html" / "index.html").exists()
    build_site(tmp_path / "results", docs, tmp_path / "html")


def test_documentation_without_a_configuration_is_refused(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    with pytest.raises(InputError, match=r"conf\.py"):
        build_site(tmp_path / "results", tmp_path / "nowhere", tmp_path / "html")


def test_the_command_builds_the_site_too(tmp_path: Path, docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibration.report.site.DOCS", docs)
    directory = store(run_document(names=()), tmp_path / "results")
    result = CliRunner().invoke(report_command, [str(tmp_path / "results"), "--html", str(tmp_path / "html")])
    assert result.exit_code == 0
    assert result.output.split() == [str(directory / "report" / "page.rst"), str(tmp_path / "html" / "index.html")]
    assert (tmp_path / "html" / "index.html").is_file()
