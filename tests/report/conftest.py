# SPDX-License-Identifier: Apache-2.0
"""Documents, sites and a browser that the tests of this folder share."""

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver

from calibration.report import kept, shell, site
from calibration.report.site import DOCS, build_site
from calibration.results import index
from calibration.results.model import RunDocument
from tests.readings import PAGES
from tests.report.browsing import VIEWS, chromium, look, served
from tests.report.made_nights import made_nights
from tests.report.report_documents import flagged, imported, index_of, judged, run_document, store, with_nodes


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests of the published site, and those of each file, in one process: they share fixtures."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and isinstance(item, pytest.Function):
            group = "published" if "published" in item.fixturenames else item.path.stem
            item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(scope="session", autouse=True)
def _made_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Draw each chart, render each page and build each guide once for all tests and workers."""
    own = tmp_path_factory.getbasetemp()
    made = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "made-once"
    build = shell._sphinx

    def build_once(work: Path) -> None:
        source, hashed = work / "source", hashlib.sha256()
        for path in sorted(path for path in source.rglob("*") if path.is_file()):
            content = path.read_bytes()
            hashed.update(f"{path.relative_to(source)} {len(content)}\n".encode() + content)
        built = made / "guides" / hashed.hexdigest()
        if built.is_dir():
            shutil.copytree(built, work / "html")
            return
        build(work)
        pending = built.with_suffix(f".{secrets.token_hex(4)}")
        shutil.copytree(work / "html", pending)
        try:
            pending.rename(built)
        except OSError:  # another worker was faster
            shutil.rmtree(pending)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shell, "_sphinx", build_once)
        patch.setattr(kept, "FOLDER", made / "pages")
        patch.setattr(site, "CACHE", own / "sites")
        patch.setattr(index, "CACHE", own / "index")
        yield


@pytest.fixture(scope="session")
def document() -> RunDocument:
    """One run with every kind."""
    return run_document()


@pytest.fixture(scope="session")
def shaped() -> RunDocument:
    """A synthetic shape: eight nodes; the idle latency is invalid."""
    eight = with_nodes(run_document(), 8)
    return flagged(eight, index_of(eight, "idle_latency"), "PLACEMENT_WRONG", "99 of 100 pages on the wanted node")


@pytest.fixture(scope="session")
def published(shaped: RunDocument, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The HTML of the project's site with the page of *shaped*, two imported pages, and forty synthetic nights."""
    place = tmp_path_factory.mktemp("published")
    store(judged(shaped), place / "results")
    complete = next(path for path in PAGES if path.stem == "complete")
    store(imported(complete.read_bytes(), complete.name, shaped.run.sut), place / "results")
    store(imported(complete.read_bytes(), complete.name, "imported"), place / "results")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(site, "CACHE", place / "cache")
        patch.setattr(site, "read_nights", lambda _results: made_nights())
        build_site(place / "results", DOCS, place / "html")
    return place / "html"


@pytest.fixture(scope="session")
def doctrees(published: Path) -> Path:
    """The parsed guide of the published site."""
    (found,) = (published.parent / "cache").glob("*/doctrees")
    return found


@pytest.fixture(scope="session")
def root(published: Path) -> Iterator[str]:
    """Serve the published site, and yield the address of its root."""
    with served(published) as address:
        yield address


@pytest.fixture(scope="session")
def one_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """Start chromium once for all tests."""
    with chromium(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(params=VIEWS, scope="module")
def browser(request: pytest.FixtureRequest, one_browser: webdriver.Chrome, root: str) -> webdriver.Chrome:
    """Return a browser of each size, with the site's first page open and nothing logged."""
    look(one_browser, request.param)
    one_browser.get(f"{root}/index.html")
    for log in ("browser", "performance"):
        one_browser.get_log(log)
    return one_browser
