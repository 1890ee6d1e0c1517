# SPDX-License-Identifier: Apache-2.0
"""Makes the builders of run documents importable for the tests of this folder, and one document shared by them."""

import sys
from pathlib import Path

import pytest

from calibration.report import DOCS, build_site, site
from calibration.results.model import RunDocument

sys.path.insert(0, str(Path(__file__).parent))

from made_nights import made_nights
from report_documents import flagged, imported, index_of, run_document, store, with_nodes

from tests.readings import PAGES


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
