# SPDX-License-Identifier: Apache-2.0
"""Pages as HTML: the output of docutils, in the markup of the theme."""

import re

import pytest
from docutils.parsers.rst.directives.tables import ListTable

from calibration.base.errors import InputError
from calibration.report import markup
from calibration.report.markup import to_html
from calibration.results.model import RunDocument
from tests.report.report_documents import page_of

TABLE = """
.. list-table::
   :header-rows: 1
   :widths: auto
   :class: calibration

"""


def body(text: str) -> str:
    return to_html(text, {}).body


def test_page_matches_docutils_output(document: RunDocument, monkeypatch: pytest.MonkeyPatch) -> None:
    page = page_of(document)
    fast = to_html(page.text, page.figures)
    monkeypatch.setattr(markup, "_Table", ListTable)
    whole = to_html(page.text, page.figures)
    assert fast.body.replace("@", "&#64;") == whole.body.replace("@", "&#64;")
    assert fast.body.count("<table") > 10


@pytest.mark.parametrize(
    "cell",
    ["\\*text\\*", "**bold** text", "a *b* c", ":struck:`1.2`", "- one", "1. one", "::", "\\- and \\<b\\>", "",
     "µ > 3 & 4", "http://192.0.2.1/", "a_", ".. note:: b", "| line"],
)  # fmt: skip
def test_cells_match_docutils_output(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f".. role:: struck\n\n{TABLE}   * - Name\n     - Value\n   * - 1\n     - {cell}\n\n.. _a: b.html\n"

    def made() -> str:
        try:
            return body(text)
        except InputError as error:
            return str(error)

    fast = made()
    monkeypatch.setattr(markup, "_Table", ListTable)
    assert re.sub(r"\n?(</?a\b[^>]*>)\n?", r"\1", fast) == re.sub(r"\n?(</?a\b[^>]*>)\n?", r"\1", made())


def test_the_terminal_has_the_tables_of_docutils() -> None:
    body(f"{TABLE}   * - Name\n   * - 1\n")
    from docutils import nodes
    from docutils.core import publish_doctree

    assert list(publish_doctree(f"{TABLE}   * - Name\n   * - 1\n").findall(nodes.table))


def test_folds_open_without_javascript_and_charts_have_both_schemes() -> None:
    text = "Page\n====\n\n.. admonition:: More & more\n   :class: fold\n\n   Text.\n"
    text += '\n.. figure:: figures/a.svg\n   :alt: A "chart" & <b>\n'
    files = {"figures/a.svg": "", "figures/a-dark.svg": "", "figures/a.vl.json": '{"t": "</script>"}\n'}
    html = to_html(text, files).body
    assert '<details class="fold"><summary>More &amp; more</summary>' in html
    assert 'class="only-light" alt="A &quot;chart&quot; &amp; &lt;b&gt;" src="figures/a.svg"' in html
    assert 'class="only-dark" alt="A &quot;chart&quot; &amp; &lt;b&gt;" src="figures/a-dark.svg"' in html
    assert '<script type="application/json" class="chart-spec">{"t": "\\u003c/script>"}</script>' in html


def test_the_contents_are_the_sections() -> None:
    found = to_html("Page\n====\n\nOne\n---\n\nText.\n\nTwo\n---\n\nText.\n", {})
    assert found.title == "Page"
    assert found.contents.count("<li>") == 2
    assert 'href="#two">Two</a>' in found.contents


@pytest.mark.parametrize(
    "text", ["an *open one", ":nowhere:`a`", ".. raw:: html\n\n   b\n", ".. include:: /etc/fstab\n"]
)
def test_invalid_markup_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="not valid reStructuredText"):
        body(text)
