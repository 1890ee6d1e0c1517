# SPDX-License-Identifier: Apache-2.0
"""Pages as HTML: the same content as their source, in the markup of the theme."""

import re
from html import unescape

import pytest
from docutils import nodes

from calibration.charts.base import Chart
from calibration.report.blocks import Blocks, Box, Charts, Dots, Heading, Link, Paragraph, Span, Table
from calibration.report.html import DOTS_WIDTH, to_html
from calibration.results.model import RunDocument
from tests.report.report_documents import page_of, parsed
from tests.report.test_filters import HOSTILE


def body(*blocks: object) -> str:
    return to_html(tuple(blocks), {}, "../").body  # type: ignore[arg-type]


def words(html: str) -> list[str]:
    """Return the words that a reader sees or hears."""
    shown = re.sub(r"<script.*?</script>|<a class=.headerlink.*?</a>", "", html, flags=re.DOTALL)
    shown = re.sub(r'<img [^>]*alt="([^"]*)"[^>]*>', r" \1 ", shown)
    shown = re.sub(r"</?(?:span|strong|sup|code|a)\b[^>]*>", "", shown)
    return unescape(re.sub(r"<[^>]*>", " ", shown)).split()


def test_a_page_has_the_words_of_its_source(document: RunDocument) -> None:
    page = page_of(document)
    shown = set(words(to_html(page.blocks, page.figures, "../").body))
    tree = parsed(page)
    texts = (part for part in tree.findall(nodes.TextElement) if not isinstance(part.parent, nodes.TextElement))
    seen = [part for part in texts if not isinstance(part, nodes.comment)]
    source = " ".join(part.astext() for part in seen if "method" not in part["classes"]).split()
    assert [word for word in dict.fromkeys(source) if word not in shown] == []


@pytest.mark.parametrize("text", [item for item in HOSTILE if item.strip()])
def test_any_text_stays_text(text: str) -> None:
    blocks: Blocks = (
        Heading(text, 0),
        Paragraph((text, Span(text, "struck"), Link(text, "https://192.0.2.1/"))),
        Table(((text,),), (((text,),),)),
        Box(text, (Paragraph((text,)),), "fold"),
    )
    html = body(*blocks)
    assert set(re.findall(r"</?([a-z0-9]+)", html)) <= {
        "section", "h1", "a", "p", "span", "div", "table", "thead", "tbody", "tr", "th", "td", "details", "summary",
    }  # fmt: skip
    assert "<i>" not in html


def test_folds_open_without_javascript_and_charts_have_both_schemes() -> None:
    chart = Chart(name="a", spec={"t": "</script>"}, alt='A "chart" & <b>', caption="c")
    files = {"figures/a.vl.json": '{"t": "</script>"}\n'}
    html = to_html((Box("More & more", (Charts((chart,)),), "fold"),), files, "../").body
    assert '<details class="fold"><summary>More &amp; more</summary>' in html
    assert 'class="only-light" alt="A &quot;chart&quot; &amp; &lt;b&gt;" src="figures/a.svg"' in html
    assert 'class="only-dark" alt="A &quot;chart&quot; &amp; &lt;b&gt;" src="figures/a-dark.svg"' in html
    assert '<script type="application/json" class="chart-spec">{"t": "\\u003c/script>"}</script>' in html


def test_the_contents_are_the_sections() -> None:
    found = to_html((Heading("Page", 0), Heading("One", 1), Paragraph(("Text.",)), Heading("Two", 1)), {}, "../")
    assert found.title == "Page"
    assert found.contents.count("<li>") == 2
    assert 'href="#two">Two</a>' in found.contents
    assert found.body.count("<section") == found.body.count("</section>") == 3


def test_a_flag_leads_to_its_meaning() -> None:
    html = body(Paragraph((Span("NOT_STATIONARY", "warn"), " it moved")))
    assert '<a class="flag warn" href="../method/validity.html#flag-not-stationary">NOT_STATIONARY</a>' in html


def test_a_row_can_be_linked_and_leads_to_its_method() -> None:
    table = Table((("Metric",), ("How",)), ((("Idle",), (Link("method", "method/idle_latency"),)),), "", ("idle",))
    html = body(table)
    assert '<tr id="idle"><th class="stub" scope="row"><p>Idle<a class="headerlink" href="#idle"' in html
    assert '<a href="../method/idle_latency.html">method</a>' in html


@pytest.mark.parametrize("accepted", [None, (1.0, 4.0), (None, 4.0), (1.0, None)])
def test_dots_are_on_the_line_and_in_words(accepted: tuple[float | None, float | None] | None) -> None:
    html = body(Paragraph((Dots("1 to 3 ns (2 SUTs)", (1.0, 3.0), 2.0, accepted),)))
    places = [float(place) for place in re.findall(r'<circle[^>]* cx="([\d.]+)"', html)]
    assert len(places) == 3
    assert all(0 <= place <= DOTS_WIDTH for place in places)
    assert places[0] < places[2] < places[1], "the own one is last"
    assert html.count('<rect class="band"') == (accepted is not None)
    assert html.endswith("</svg> 1 to 3 ns (2 SUTs)</p>\n")
