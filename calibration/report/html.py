# SPDX-License-Identifier: Apache-2.0
"""Write blocks as HTML in the markup of the site's theme. Foreign text is escaped."""

from base64 import b64encode
from collections.abc import Iterator, Mapping
from html import escape
from itertools import zip_longest
from typing import Final, NamedTuple

from docutils.nodes import make_id

from calibration.base.flags import FLAGS
from calibration.base.text import visible
from calibration.charts.base import Chart
from calibration.report.blocks import (
    Block,
    Blocks,
    Box,
    Bullets,
    Charts,
    Comment,
    Dots,
    Heading,
    Inline,
    Link,
    Mark,
    Marks,
    Paragraph,
    Place,
    Span,
    Spark,
    Table,
    Target,
    Term,
    Text,
    Verbatim,
    plain,
)
from calibration.report.pictures import interactive
from calibration.report.rst import CLASSES
from calibration.report.spark import SPARK_PX

TAGS: Final = {"strong": "strong", "literal": "code"}
"""Elements of the styles that have no class."""


class Html(NamedTuple):
    """A page as HTML: title as text, body, and list of links to its sections."""

    title: str
    body: str
    contents: str


def to_html(blocks: Blocks, files: Mapping[str, str], root: str, links: str = "", *, alone: bool = False) -> Html:
    """Return *blocks* as a page, with the specifications of its charts in *files*, by path.

    *root* is the way to the site's first page, *links* (HTML) lead to the data of the page. If it is *alone*, its
    charts are in it, and not interactive.
    """
    headings = [block for block in blocks if isinstance(block, Heading)]
    title = next((plain((block.text,)) for block in headings if block.level == 0), "")
    listed = "".join(
        f'<li><a class="reference internal" href="#{_anchor(block)}">{_escaped(block.text)}</a></li>'
        for block in headings
        if block.level == 1
    )
    body = "".join(_Writer(files, root, links, alone).page(blocks))
    return Html(title, body, f"<ul>{listed}</ul>" if listed else "")


class _Writer:
    def __init__(self, files: Mapping[str, str], root: str, links: str, alone: bool) -> None:
        self.files, self.root, self.links, self.alone = files, root, links, alone

    def page(self, blocks: Blocks) -> Iterator[str]:
        """Yield the sections of a page."""
        depth = 0
        for block in blocks:
            if isinstance(block, Heading):
                yield "</section>\n" * (depth - block.level)
                depth = block.level + 1
                where = _anchor(block)
                yield f'<section id="{where}">\n<h{depth}>{_escaped(block.text)}'
                yield f'<a class="headerlink" href="#{where}" title="Link to this heading">\N{PILCROW SIGN}</a>'
                yield f"</h{depth}>\n"
            else:
                yield from self.block(block)
        yield "</section>\n" * depth

    def block(self, block: Block) -> Iterator[str]:
        """Yield one block."""
        match block:
            case Paragraph(text, kind):
                yield f'<p class="{kind}">' if kind else "<p>"
                yield f"{self.text(text)}</p>\n"
            case Bullets(items, kind):
                yield f'<ul class="{kind or "simple"}">\n'
                yield "".join(f"<li><p>{self.text(item)}</p></li>\n" for item in items)
                yield "</ul>\n"
            case Term(term, text, evidence):
                yield f"<dl>\n<dt>{self.text(term)}</dt>\n<dd><p>{self.text(text)}</p>\n"
                yield from self.block(evidence)
                yield "</dd>\n</dl>\n"
            case Table():
                yield from self.table(block)
            case Charts(charts):
                yield '<div class="charts">\n'
                yield from map(self.chart, charts)
                yield "</div>\n"
            case Verbatim(text, struck):
                kind = "highlight-none struck" if struck else "highlight-none"
                yield f'<div class="{kind}"><div class="highlight"><pre>{escape(text, quote=False)}\n'
                yield "</pre></div></div>\n"
            case Box(title, inner, kind):
                yield from self.box(title, inner, kind)
            case Target(name):
                yield f'<span id="{name}"></span>\n'
            case Place("method", kind):
                yield f'<p class="method"><a href="{self.root}method/{kind}.html">How it is measured</a></p>\n'
            case Place():
                yield self.links
            case Comment() | Heading():
                pass

    def box(self, title: str, inner: Blocks, kind: str) -> Iterator[str]:
        """Yield a titled box."""
        if kind.startswith("fold"):
            yield f'<details class="{kind}"><summary>{_escaped(title)}</summary>\n'
            yield from (part for block in inner for part in self.block(block))
            yield "</details>\n"
        else:
            title = title or ("Warning" if kind == "warning" else "")
            yield f'<div class="{"admonition " if title else ""}{kind}">\n'
            yield f'<p class="admonition-title">{_escaped(title)}</p>\n' if title else ""
            yield from (part for block in inner for part in self.block(block))
            yield "</div>\n"

    def table(self, table: Table) -> Iterator[str]:
        """Yield a table in a box that scrolls."""
        kind = " ".join(filter(None, ("docutils calibration", table.kind)))
        yield f'<div class="table-wrapper"><table class="{kind}">\n'
        if table.titles:
            heads = "".join(f'<th class="head" scope="col"><p>{self.text(title)}</p></th>' for title in table.titles)
            yield f"<thead>\n<tr>{heads}</tr>\n</thead>\n"
        yield "<tbody>\n"
        for row, anchor in zip_longest(table.rows, table.anchors):
            cells = [f"<p>{self.text(cell)}</p>" if cell else "" for cell in row]
            if anchor is not None:
                link = f'<a class="headerlink" href="#{anchor}" title="Link to this row">\N{PILCROW SIGN}</a>'
                name, aside, rest = cells[0].removesuffix("</p>").partition('<span class="aside">')
                cells[0] = f"{name}{link}{aside}{rest}</p>"
            headed = table.stub or not table.titles or anchor is not None
            stub = "" if not headed else f'<th class="stub" scope="row">{cells.pop(0)}</th>'
            where = "" if anchor is None else f' id="{anchor}"'
            yield f"<tr{where}>{stub}"
            for title, cell in zip_longest(table.titles[-len(cells) :] if anchor else (), cells):
                yield "<td>" if title is None else f'<td data-title="{escape(plain(title))}">'
                yield f"{cell}</td>"
            yield "</tr>\n"
        yield "</tbody>\n</table></div>\n"

    def chart(self, chart: Chart) -> str:
        """Return a chart in light and dark, of which the theme shows one, and what the script makes interactive."""
        stem, alt = chart.path.removesuffix(".svg"), escape(visible(chart.alt))

        def source(end: str) -> str:
            path = f"{stem}{end}.svg"
            if not self.alone:
                return escape(path)
            return f"data:image/svg+xml;base64,{b64encode(self.files[path].encode()).decode()}"

        pictures = "".join(
            f'<img class="only-{scheme}" alt="{alt}" src="{source(end)}" loading="lazy">\n'
            for scheme, end in (("light", ""), ("dark", "-dark"))
        )
        spec = "" if self.alone else interactive(self.files[f"{stem}.vl.json"])
        caption = f"<figcaption><p>{_escaped(chart.caption)}</p></figcaption>"
        return f'<figure class="{chart.style}">{pictures}{spec}\n{caption}</figure>\n'

    def text(self, text: Text) -> str:
        """Return a line of text."""
        return "".join(map(self.inline, text)).strip()

    def inline(self, item: Inline) -> str:
        """Return a piece of text. Flags lead to their meaning."""
        match item:
            case str():
                return _escaped(item)
            case Dots():
                return _dots(item)
            case Mark():
                return _mark(item)
            case Marks(text, marks):
                signs = "".join(map(_mark, marks))
                return f'<span class="marks" role="img" aria-label="{escape(visible(text))}">{signs}</span>'
            case Spark():
                return _spark(item)
            case Link(text, target) if target.startswith("method/"):
                return f'<a href="{self.root}{escape(target)}.html">{_escaped(text)}</a>'
            case Link(text, target):
                return f'<a class="reference" href="{escape(target)}">{_escaped(text)}</a>'
            case Span(text, style) if style in TAGS:
                return f"<{TAGS[style]}>{_escaped(text)}</{TAGS[style]}>"
            case Span(text, style) if text in FLAGS:
                where = f"{self.root}method/validity.html#flag-{make_id(text)}"
                return f'<a class="{CLASSES[style]}" href="{where}">{_escaped(text)}</a>'
            case Span(text, style):
                return f'<span class="{CLASSES[style]}">{_escaped(text)}</span>'


DOTS_WIDTH: Final = 120
"""Width of a dot plot in pixels; it is 16 high."""


def _dots(dots: Dots) -> str:
    """Return a dot for each value on one line, the own one filled, above the accepted range."""
    ends = [end for end in dots.accepted or () if end is not None]
    low, high = (pick([*dots.values, dots.own, *ends]) for pick in (min, max))
    scale = (DOTS_WIDTH - 8) / (high - low or 1.0)

    def place(value: float) -> str:
        return f"{4 + (value - low) * scale:.1f}"

    band = ""
    if dots.accepted is not None:
        left, right = (
            place(low if end is None else end) if end is not None or side == 0 else place(high)
            for side, end in enumerate(dots.accepted)
        )
        band = f'<rect class="band" x="{left}" y="2" width="{max(1.0, float(right) - float(left)):.1f}" height="12"/>'
    others = "".join(f'<circle cx="{place(value)}" cy="8" r="2.5"/>' for value in dots.values)
    own = f'<circle class="own" cx="{place(dots.own)}" cy="8" r="3.5"/>'
    return (
        f'<svg class="dots" viewBox="0 0 {DOTS_WIDTH} 16" width="{DOTS_WIDTH}" height="16" aria-hidden="true">'
        f'<line x1="4" x2="{DOTS_WIDTH - 4}" y1="8" y2="8"/>{band}{others}{own}</svg> {_escaped(dots.text)}'
    )


def _mark(mark: Mark) -> str:
    kind, title = escape(mark.kind), f' title="{escape(visible(mark.meaning))}"' if mark.meaning else ""
    if mark.target:
        return f'<a class="{kind}" href="{escape(mark.target)}"{title}>{_escaped(mark.text)}</a>'
    return f'<i class="{kind}"{title}>{_escaped(mark.text)}</i>'


def _spark(spark: Spark) -> str:
    band, last = spark.band, spark.last
    width, height = SPARK_PX
    inner = f'<rect x="0" y="{band[0]}" width="{width}" height="{band[1]}"/>' if band else ""
    inner += "".join(f'<polyline points="{points}"/>' for points in spark.runs)
    inner += f'<circle cx="{last[0]}" cy="{last[1]}" r="2"/>' if last else ""
    kind = "spark fails" if spark.fails else "spark"
    return f'<svg class="{kind}" viewBox="0 0 {width} {height}" aria-hidden="true">{inner}</svg>{_escaped(spark.text)}'


def _anchor(heading: Heading) -> str:
    return heading.anchor or make_id(heading.text)


def _escaped(text: str) -> str:
    """Return *text* as HTML; characters that hide or reorder others are shown as escapes."""
    return escape(visible(text.replace("\n", " ")), quote=False)
