# SPDX-License-Identifier: Apache-2.0
"""Hostile texts in every free field of a run document stay text on its page and on the site."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from docutils import nodes
from docutils.core import publish_doctree
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from calibration.report.html import to_html
from calibration.report.page import render
from calibration.report.rst import to_rst
from calibration.report.site import build_site
from calibration.results.layout import RUN
from calibration.results.model import RunDocument
from calibration.results.store import open_run
from tests.harmless import SOURCES, check_figure, check_page
from tests.report.report_documents import (
    as_stored,
    guide,
    not_begun_document,
    page_of,
    run_document,
    second_document,
    store,
)

TEXTS = {
    "markup": "`a <javascript:alert(1)>`_ |x| [1]_ :raw:`<b>` **b** ``l`` _`t` a_ http://192.0.2.1/ x@example.com",
    "directive": "\n\n.. raw:: html\n\n   <script>alert(2)</script>\n\n.. include:: /etc/passwd\n\n.. |x| replace:: y",
    "other line ends": "a\u2028\u2028.. raw:: html\u2029\u2029   <script>alert(3)</script>\x85\x0b\x0c",
    "html": "<script>alert(1)</script><img src=x onerror=alert(1)></pre></svg><foreignObject/>&#60;<!-- -->]]>",
    "template": "{{ 7 * 7 }}{% raw %}{# x #}",
    "mathematics": "$\\frac{$ $x_$ \\$ $$",
    "terminal": "\x1b]0;t\x07\x1b[2J\u202e\u2066\u200b\x00",
    "table": "\n   * - a\n     - b\n=== ===\n+--+\n| x",
    "empty": "",
    "spaces": " \t\u00a0 ",
    "long": "x" * 3000,
    "path": "../../../../etc/passwd",
}

JOINED = {"inline": TEXTS["markup"] + TEXTS["html"], "blocks": TEXTS["directive"] + TEXTS["other line ends"]}
"""Texts of whole pages; each text alone is tried on a small page, and by the thorough tests on whole ones."""

WHOLE = [*JOINED.items(), *(pytest.param(*item, marks=pytest.mark.thorough) for item in TEXTS.items())]

OURS = {"id", "kind", "name", "unit", "code", "step", "estimator", "schema_version", "testbed", "sut"}
"""Fields with names of the harness, or names that it has checked."""


ATTEMPTS = {"attempts": not_begun_document().attempts}
"""Attempts with failed checks and changed settings."""


@pytest.fixture(scope="module")
def document() -> RunDocument:
    """One run with every kind, and the operator's Intel MLC beside it."""
    return second_document().model_copy(update=ATTEMPTS)


@pytest.fixture(scope="module")
def small() -> RunDocument:
    """One run with two kinds."""
    return run_document(names=("idle_latency", "jitter")).model_copy(update=ATTEMPTS)


def name_of(item: Any) -> str:
    """Return what stands for the place of *item* in a list: those of one kind have the same fields."""
    return str(item.get("kind", "#")) if isinstance(item, dict) else "#"


def replace(value: Any, text: str, kept: set[tuple[str, ...]], path: tuple[str, ...] = ()) -> Any:
    """Return *value* with *text* for every text in it, except those at the places *kept*."""
    if path in kept or (path and path[-1] in OURS):
        return value
    if isinstance(value, dict):
        return {key: replace(item, text, kept, (*path, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [replace(item, text, kept, (*path, name_of(item))) for item in value]
    return text if isinstance(value, str) else value


def places(errors: Sequence[Any], raw: Any) -> set[tuple[str, ...]]:
    """Return the places in *raw* of the texts that *errors* refuse."""
    found = set()
    for error in errors:
        here, path = raw, []
        for part in error["loc"]:
            try:
                here = here[part]
            except (KeyError, IndexError, TypeError):
                continue  # the name of a variant of a model, which is no place
            path.append(part if isinstance(part, str) else name_of(here))
        found.add(tuple(path))
    return found


CHOSEN: dict[str, set[tuple[str, ...]]] = {}
"""Places of texts that must stay as they are, by the JSON of the document."""


def hostile(document: RunDocument, text: str) -> RunDocument:
    """Return *document* with *text* in every free field."""
    json_text = document.model_dump_json()
    raw, kept = json.loads(json_text), CHOSEN.setdefault(json_text, set())
    while True:
        try:
            return RunDocument.model_validate_json(json.dumps(replace(raw, text, kept)))
        except ValidationError as error:
            more = places(error.errors(), raw) - kept
            if not more:
                raise
            kept |= more


def check_source(text: str) -> nodes.document:
    """Check that the page *text* has no element that only foreign markup can make, and return its tree."""
    strict = {"halt_level": 2, "report_level": 2, "warning_stream": "", "file_insertion_enabled": True}
    strict["line_length_limit"] = 1_000_000  # as the site has it
    roles = ".. role:: doc\n\n.. role:: download\n\n"
    document: nodes.document = publish_doctree(roles + text, settings_overrides=strict)
    for kind in (nodes.raw, nodes.footnote_reference, nodes.problematic, nodes.system_message, nodes.line_block):
        assert not list(document.findall(kind)), kind
    for reference in document.findall(nodes.reference):
        assert reference.get("refuri") in {None, *SOURCES}, reference
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u2028\u2029\u202e]", document.astext())
    return document


def source_of(document: RunDocument) -> str:
    return to_rst(render(as_stored(document)).blocks)


def structure(document: RunDocument, text: str) -> list[int]:
    """Return the number of elements by kind on the page of *document* with *text* in every free field."""
    tree = check_source(source_of(hostile(document, text)))
    kinds = (nodes.section, nodes.literal_block, nodes.image, nodes.target, nodes.transition, nodes.table)
    return [len(list(tree.findall(kind))) for kind in kinds]


def tags(document: RunDocument, text: str) -> Counter[str]:
    """Return the number of elements by name on the page of *document* as HTML, with *text* in every free field."""
    page = page_of(hostile(document, text))
    return Counter(re.findall(r"</?[a-z]\w*", to_html(page.blocks, page.figures, "../").body))


@pytest.mark.parametrize("kind", TEXTS)
def test_a_small_page_shows_hostile_texts_as_text(kind: str, small: RunDocument) -> None:
    assert structure(small, TEXTS[kind]) == structure(small, "word")
    assert tags(small, TEXTS[kind]) == tags(small, "word")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "text"), WHOLE)
def test_a_page_and_its_site_show_hostile_texts_as_text(
    name: str, text: str, document: RunDocument, tmp_path: Path
) -> None:
    spoilt = hostile(document, text)
    assert spoilt.context.parsed.capture.hostname == text, name
    directory = store(spoilt, tmp_path / "results")
    page = render(open_run(directory / RUN))
    check_source(to_rst(page.blocks))
    for path, content in page.figures.items():
        if path.endswith(".svg"):
            check_figure(content)
    output = build_site(tmp_path / "results", guide(tmp_path / "docs"), tmp_path / "html").parent
    pages = list((output / "calibration").rglob("index.html"))
    assert len(pages) == 4  # of the SUT, its testbed, the lab and the example
    for html in pages:
        check_page(html, output / "index.html")
    for figure in output.rglob("*.svg"):
        check_figure(figure.read_text(encoding="utf-8"))


@settings(max_examples=settings.default.max_examples // 5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=40))
def test_a_page_shows_any_text_as_text(text: str) -> None:
    check_source(source_of(hostile(run_document(names=("idle_latency",)), text)))
