# SPDX-License-Identifier: Apache-2.0
"""Documents and sites that the tests of this folder share."""

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from calibration.report import DOCS, build_site, shell, site
from calibration.results.model import RunDocument
from tests.readings import PAGES
from tests.report.made_nights import made_nights
from tests.report.report_documents import flagged, imported, index_of, run_document, store, with_nodes


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have one process run all tests of the published site, and those of one file, which share what they make."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and isinstance(item, pytest.Function):
            group = "published" if "published" in item.fixturenames else item.path.stem
            item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(scope="session", autouse=True)
def _sphinx_builds_a_guide_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give a site whose guide was built before, from the same files, that guide's HTML."""
    guides = tmp_path_factory.mktemp("guides")
    build = shell._sphinx

    def build_once(work: Path) -> None:
        source = work / "source"
        files = sorted(path for path in source.rglob("*") if path.is_file())
        hashed = hashlib.sha256()
        for path in files:
            content = path.read_bytes()
            hashed.update(f"{path.relative_to(source)} {len(content)}\n".encode() + content)
        built = guides / hashed.hexdigest()
        if not built.is_dir():
            build(work)
            shutil.copytree(work / "html", built)
        else:
            shutil.copytree(built, work / "html")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shell, "_sphinx", build_once)
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
    """The project's own site with the page of *shaped*, of two published pages, and of forty made nights: its HTML."""
    place = tmp_path_factory.mktemp("published")
    store(shaped, place / "results")
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
    """The guide of the published site as Sphinx read it."""
    (found,) = (published.parent / "cache").glob("*/doctrees")
    return found
