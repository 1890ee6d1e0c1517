# SPDX-License-Identifier: Apache-2.0
"""Render pages of runs as HTML with docutils alone, in the markup of the site's theme.

Sphinx takes 2 s per page, docutils 0.3 s: no environment of all pages is needed, and tables, most of a page, are parsed
line by line.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final, NamedTuple

from docutils import nodes
from docutils.core import publish_doctree
from docutils.frontend import get_default_settings
from docutils.parsers.rst import Parser, directives
from docutils.parsers.rst.directives.misc import Class
from docutils.parsers.rst.directives.tables import ListTable
from docutils.transforms.writer_aux import Admonitions
from docutils.writers.html5_polyglot import HTMLTranslator, Writer

from calibration.base.errors import InputError
from calibration.base.text import visible
from calibration.charts.base import Chart
from calibration.report.pictures import interactive, keep

MAX_LINE_CHARACTERS: Final = 1_000_000
"""Limit on line length: a line may join many texts of a SUT, and with docutils' default one SUT could break the whole
site."""

SETTINGS: Final[dict[str, Any]] = {
    "report_level": 2,
    "halt_level": 2,
    "warning_stream": "",
    "line_length_limit": MAX_LINE_CHARACTERS,
    "file_insertion_enabled": False,
    "raw_enabled": False,
    "traceback": True,  # raise errors instead of exiting
    "doctitle_xform": False,
    "initial_header_level": 1,
    "embed_stylesheet": False,
    "stylesheet_path": "",
    "table_style": "docutils",
}

CELL: Final = re.compile(r"(\* -|  -)(?: (.*))?")
"""A list table cell in one line: the first of its row, or another."""

ESCAPED: Final = re.compile(r"\\(.)")
PLAIN: Final = re.compile(r"[^*`_|\\:<>\[\]]*")
STARTS_A_BLOCK: Final = re.compile(
    r"(?![^\W_]|\\|[^\x00-\x7f]|`|:[a-z-]+:`|\*\*\w)|\(?[A-Za-z0-9#]+[.)](?:\s|$)|\S*://"
)
"""Cell content that needs docutils' own parser."""


class Html(NamedTuple):
    """A page as HTML: title as text, body, and list of links to its sections."""

    title: str
    body: str
    contents: str


def parsed(text: str) -> nodes.document:
    """Return the document tree of *text*. Raises ``InputError`` if it is not valid reStructuredText."""
    settings = get_default_settings(Parser, Writer)
    vars(settings).update(SETTINGS)
    try:
        return publish_doctree(text, settings=settings)
    except Exception as error:
        raise InputError(f"not valid reStructuredText: {error}") from error


def to_html(text: str, files: Mapping[str, str]) -> Html:
    """Return the page *text*, plain docutils reStructuredText, as HTML, with its *files* by path.

    Raises ``InputError`` if it is not valid.
    """
    directives.register_directive("list-table", _Table)
    try:
        tree = parsed(text)
    finally:
        directives.register_directive("list-table", ListTable)  # restore docutils' own
    Admonitions(tree).apply()
    visitor = _Translator(tree, files)
    tree.walkabout(visitor)
    first = next(iter(tree.findall(nodes.section)), None)
    title = "" if first is None else first[0].astext()
    return Html(title, "".join(visitor.body), "" if first is None else _contents(first))


def _contents(section: nodes.section) -> str:
    """Return the nested list of links to the sections in *section*."""
    inner = [child for child in section.children if isinstance(child, nodes.section)]
    links = (
        f'<a class="reference internal" href="#{item["ids"][0]}">{escape(item[0].astext())}</a>{_contents(item)}'
        for item in inner
    )
    return f"<ul><li>{'</li><li>'.join(links)}</li></ul>" if inner else ""


class _Table(ListTable):
    """A list table with one line per cell, as our templates write it, without a parser per cell.

    Cells with more than inline markup are left to docutils; the result is the same.
    """

    def run(self) -> Sequence[Any]:
        rows: list[list[str]] = []
        for line in filter(None, self.content):
            found = CELL.fullmatch(line)
            if found is None or STARTS_A_BLOCK.match(found[2] or "a") or (not rows and found[1] != "* -"):
                return super().run()
            if found[1] == "* -":
                rows.append([])
            rows[-1].append(found[2] or "")
        if len({len(row) for row in rows}) != 1 or self.options.get("widths") != "auto" or self.arguments:
            return super().run()
        table, written = nodes.container(classes=["table-wrapper"]), ""
        for piece in self._pieces(rows):
            if isinstance(piece, str):
                written += piece
            else:
                table += [nodes.raw("", written, format="html"), *piece]
                written = ""
        table += nodes.raw("", written, format="html")
        return [table]

    def _pieces(self, rows: Sequence[Sequence[str]]) -> Iterator[str | list[nodes.Node]]:
        """Yield the table as HTML, and between it the nodes that docutils parsed."""
        headers, stubs = self.options.get("header-rows", 0), self.options.get("stub-columns", 0)
        yield f'<table class="{" ".join(["docutils", *self.options.get("class", [])])}">\n'
        for tag, kind, those in (("thead", "head", rows[:headers]), ("tbody", "", rows[headers:])):
            yield f"<{tag}>\n" if those else ""
            for row in those:
                yield "<tr>"
                for place, cell in enumerate(row):
                    heading = kind or ("stub" if place < stubs else "")
                    yield f'<th class="{heading}">' if heading else "<td>"
                    if PLAIN.fullmatch(ESCAPED.sub("", cell)):
                        yield f"<p>{escape(ESCAPED.sub(chr(92) + '1', cell), quote=False)}</p>" if cell else ""
                    else:
                        inline, messages = self.state.inline_text(cell, self.lineno)
                        yield from ("<p>", [*inline, *messages], "</p>")
                    yield "</th>\n" if heading else "</td>\n"
                yield "</tr>\n"
            yield f"</{tag}>\n" if those else ""
        yield "</table>\n"


class _Translator(HTMLTranslator):
    """docutils' HTML writer with the theme's markup: scrolling boxes, heading links, folds, charts."""

    def __init__(self, document: nodes.document, files: Mapping[str, str]) -> None:
        super().__init__(document)
        self.files = files

    def visit_table(self, node: nodes.table) -> None:
        self.body.append('<div class="table-wrapper docutils container">\n')
        super().visit_table(node)

    def depart_table(self, node: nodes.table) -> None:
        super().depart_table(node)
        self.body.append("</div>\n")

    def visit_image(self, node: nodes.image) -> None:
        """Write a chart twice, for light and dark pages; the theme shows one."""
        stem = node["uri"].removesuffix(".svg")
        if isinstance(node.parent, nodes.figure) and f"{stem}.vl.json" in self.files:
            self.body.append(_pictures(stem, node.get("alt", ""), self.files[f"{stem}.vl.json"]))
        else:
            super().visit_image(node)

    def depart_image(self, node: nodes.image) -> None:
        """Do nothing: the element is closed."""

    def visit_literal_block(self, node: nodes.literal_block) -> None:
        self.body.append(f'<div class="{" ".join(["highlight-none", *node["classes"]])}"><div class="highlight"><pre>')

    def depart_literal_block(self, _node: nodes.literal_block) -> None:
        self.body.append("</pre></div></div>\n")

    def depart_title(self, node: nodes.title) -> None:
        if isinstance(node.parent, nodes.section):
            where = node.parent["ids"][0]
            self.body.append(f'<a class="headerlink" href="#{where}" title="Link to this heading">\N{PILCROW SIGN}</a>')
        super().depart_title(node)

    def visit_admonition(self, node: nodes.admonition) -> None:
        if "fold" not in node["classes"]:
            super().visit_admonition(node)
            return
        title = node.pop(0)
        self.body.append(f'<details class="fold"><summary>{escape(title.astext())}</summary>\n')

    def depart_admonition(self, node: nodes.admonition | None = None) -> None:
        if node is not None and "fold" in node["classes"]:
            self.body.append("</details>\n")
        else:
            super().depart_admonition(node)


def chart_html(chart: Chart, caption: str, files: dict[str, bytes]) -> str:
    """Return *chart* as an HTML figure; its pictures are added to *files*."""
    drawn: dict[str, str] = {}
    stem = keep(drawn, chart).path.removesuffix(".svg")
    files |= {path: text.encode() for path, text in drawn.items() if path.endswith(".svg")}
    pictures = _pictures(stem, chart.alt, drawn[f"{stem}.vl.json"])
    return f'<figure class="chart">{pictures}<figcaption><p>{escape(visible(caption))}</p></figcaption></figure>'


def _pictures(stem: str, alt: str, spec: str) -> str:
    """Return a chart in light and dark, and the element that the page's script makes interactive."""
    found = [
        f'<img class="only-{scheme}" alt="{escape(visible(alt))}" src="{escape(stem)}{end}.svg" loading="lazy">\n'
        for scheme, end in (("light", ""), ("dark", "-dark"))
    ]
    return f"{''.join(found)}{interactive(spec)}\n"


directives.register_directive("rst-class", Class)
