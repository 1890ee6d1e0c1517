# SPDX-License-Identifier: Apache-2.0
"""Checks that pages and figures contain nothing harmful, whatever a SUT has said."""

import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

from calibration.report.advice import RULES


class Elements(HTMLParser):
    """The elements of a page: all scripts, and the rest with their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts: list[str] = []
        self.found: list[tuple[str, dict[str, str]]] = []
        self.open = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.found.append((tag, values))
        self.open = tag == "script" and values.get("type") != "application/json"  # such a block is data
        if self.open:
            self.scripts.append(values.get("src", "").rsplit("/", 1)[-1])

    def handle_data(self, data: str) -> None:
        if self.open:
            self.scripts.append(data)

    def handle_endtag(self, _tag: str) -> None:
        self.open = False


def elements(path: Path) -> Elements:
    found = Elements()
    found.feed(path.read_text(encoding="utf-8"))
    return found


SCHEMES = ("http:", "https:", "javascript:", "data:", "file:", "vbscript:")


SOURCES = {rule.source.url for rule in RULES}
"""Sources of advice, which a page of a run links to."""


def check_page(page: Path, harmless: Path) -> None:
    """Check that every kind of script, element and link on *page* is also on *harmless*, a page of the guide."""
    found, known = elements(page), elements(harmless)
    assert set(found.scripts) <= set(known.scripts)
    kinds = {(tag, attributes.get("class", "")) for tag, attributes in known.found}
    for tag, attributes in found.found:
        if tag in {"iframe", "object", "embed", "base", "form", "audio", "video", "math", "style", "link", "meta"}:
            assert (tag, attributes.get("class", "")) in kinds, (tag, attributes)
        assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
        for name in ("href", "src", "action", "srcdoc", "xlink:href", "data"):
            value = attributes.get(name, "").strip().lower()
            ours = (tag, attributes) in known.found or (tag == "a" and value in SOURCES)
            assert not value.startswith(SCHEMES) or ours, (tag, attributes)
        if tag == "img":
            assert attributes["src"].endswith(".svg"), attributes


def check_figure(text: str) -> None:
    """Check that a figure has no scripts, event handlers, foreign elements or external links."""
    for element in ET.fromstring(text).iter():  # noqa: S314 - entities of other files are not read
        name = str(element.tag).rsplit("}", 1)[-1]
        assert name not in {"script", "foreignObject", "a", "iframe", "set", "animate", "handler"}, name
        for key, value in element.attrib.items():
            bare = key.rsplit("}", 1)[-1]
            assert not bare.startswith("on"), key
            drawn = name == "image" and value.startswith("data:image/png;base64,")  # a colour bar
            assert bare != "href" or value.startswith("#") or drawn, value
            assert "url(" not in value.replace("url(#", ""), value
