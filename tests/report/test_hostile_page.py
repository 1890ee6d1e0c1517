# SPDX-License-Identifier: Apache-2.0
"""Every text of a run document that is free, replaced by one that wants to be more than text."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from docutils import nodes
from docutils.core import publish_doctree
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from calibration.report import build_site, site
from calibration.report.page import render
from calibration.results.model import RunDocument
from tests.harmless import check_figure, check_page
from tests.report.report_documents import guide, run_document, second_document

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

LOUD = ("markup", "directive", "other line ends", "html")
"""Texts that are tried on whole pages; the others are tried there by the thorough tests, and on a small page."""

OURS = {"id", "kind", "name", "unit", "code", "step", "estimator", "schema_version", "testbed", "sut"}
"""Fields that the harness itself fills, from lists of its own or names that it has checked."""


@pytest.fixture(scope="module")
def document() -> RunDocument:
    """One run with every kind, and the operator's Intel MLC beside it."""
    return second_document()


def replace(value: Any, text: str, kept: set[tuple[Any, ...]], path: tuple[Any, ...] = ()) -> Any:
    """Return *value* with *text* for every text in it, except those at the places *kept*."""
    if path in kept or (path and path[-1] in OURS):
        return value
    if isinstance(value, dict):
        return {key: replace(item, text, kept, (*path, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [replace(item, text, kept, (*path, number)) for number, item in enumerate(value)]
    return text if isinstance(value, str) else value


def places(errors: Sequence[Any], raw: Any) -> set[tuple[Any, ...]]:
    """Return where in *raw* the texts are that a document may not have otherwise."""
    found = set()
    for error in errors:
        here, path = raw, []
        for part in error["loc"]:
            try:
                here = here[part]
            except (KeyError, IndexError, TypeError):
                continue  # the name of a variant of a model, which is no place
            path.append(part)
        found.add(tuple(path))
    return found


CHOSEN: dict[str, set[tuple[Any, ...]]] = {}
"""Where in a document, by its JSON, the texts are that may not be any: found with the first hostile text."""


def hostile(document: RunDocument, text: str) -> RunDocument:
    """Return *document* with *text* wherever a document may have any text."""
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


def check_source(text: str) -> None:
    """Check that a page's source has no element that only markup of others could have made."""
    strict = {"halt_level": 2, "report_level": 2, "warning_stream": "", "file_insertion_enabled": True}
    strict["line_length_limit"] = 1_000_000  # as the site has it
    roles = ".. role:: doc\n\n.. role:: download\n\n"
    document: nodes.document = publish_doctree(roles + text, settings_overrides=strict)
    for kind in (nodes.raw, nodes.footnote_reference, nodes.problematic, nodes.system_message, nodes.line_block):
        assert not list(document.findall(kind)), kind
    for reference in document.findall(nodes.reference):
        assert "refuri" not in reference, reference


@pytest.mark.parametrize("kind", TEXTS)
def test_a_small_page_of_hostile_texts_is_text(kind: str) -> None:
    small = hostile(run_document(names=("idle_latency", "jitter")), TEXTS[kind])
    check_source(render(small.model_dump_json().encode()).text)


@pytest.mark.parametrize(
    "kind", [kind if kind in LOUD else pytest.param(kind, marks=pytest.mark.thorough) for kind in TEXTS]
)
def test_a_page_of_hostile_texts_is_text(kind: str, document: RunDocument) -> None:
    spoilt = hostile(document, TEXTS[kind])
    page = render(spoilt.model_dump_json().encode())
    assert spoilt.context.parsed.capture.hostname == TEXTS[kind]
    check_source(page.text)
    for path, content in page.figures.items():
        if path.endswith(".svg"):
            check_figure(content)


@pytest.mark.parametrize("kinds", [("markup", "html"), pytest.param(tuple(TEXTS), marks=pytest.mark.thorough)], ids=len)
def test_the_site_of_a_hostile_page_is_harmless(
    tmp_path: Path, document: RunDocument, monkeypatch: pytest.MonkeyPatch, kinds: tuple[str, ...]
) -> None:
    monkeypatch.setattr(site, "CACHE", tmp_path / "cache")
    monkeypatch.setattr("calibration.results.index.CACHE", tmp_path / "index")
    results = tmp_path / "results"
    for number, kind in enumerate(kinds):
        own = document.model_copy(update={"run": document.run.model_copy(update={"sut": f"sut{number}"})})
        directory = results / own.run.testbed / own.run.sut / own.run.id
        directory.mkdir(parents=True)
        (directory / "run.json").write_text(hostile(own, TEXTS[kind]).model_dump_json(), encoding="utf-8")
    output = build_site(results, guide(tmp_path / "docs"), tmp_path / "html").parent
    pages = list((output / "calibration").rglob("index.html"))
    assert len(pages) == len(kinds) + 3  # a page each, the first, the trends of their testbed, and the example
    for page in pages:
        check_page(page, output / "index.html")
    for figure in output.rglob("*.svg"):
        check_figure(figure.read_text(encoding="utf-8"))


@settings(max_examples=settings.default.max_examples // 5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=40))
def test_a_page_of_any_text_is_text(text: str) -> None:
    check_source(render(hostile(run_document(names=("idle_latency",)), text).model_dump_json().encode()).text)
