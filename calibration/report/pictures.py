# SPDX-License-Identifier: Apache-2.0
"""Render a chart's Vega-Lite specification as light and dark SVG, and as an interactive chart."""

import hashlib
import json
import os
import re
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

import vl_convert

from calibration.charts.base import DARK, FONT, Chart
from calibration.report.kept import kept

VERSION: Final = "6.4"  # of Vega-Lite, for files and for the browser

NO_FONTS: Final = Path(__file__).with_name("fonts.conf")
"""Configuration without the machine's fonts, which could change a picture and would be opened for each text."""

TAG = re.compile(r"<[^>]*>")
EMPTY = re.compile(r'<path [^>]*(?: opacity="0"| display="none"| d="M0,0h0v0h0Z")[^>]*/>')
NOISE = re.compile(r' (?:class|aria-hidden|pointer-events|font-family|stroke-miterlimit)="[^"]*"| opacity="1"')
LONG = re.compile(r"-?\d+\.\d{3,}(?:e-\d+)?")
CLIP = re.compile(r"\bclip(\d+)\b")
COLOUR = re.compile(r"#[0-9A-Fa-f]{6}")


def picture(chart: Chart) -> str:
    """Return *chart* as SVG for a light background; the same specification gives the same bytes."""
    clips: dict[str, str] = {}  # the renderer numbers them across all charts

    def short(tag: re.Match[str]) -> str:
        """Return a tag without redundant attributes and digits; text between tags stays."""
        plain = LONG.sub(lambda found: f"{round(float(found[0]), 2):g}", NOISE.sub("", tag[0]))
        return CLIP.sub(lambda found: clips.setdefault(found[0], f"clip{len(clips)}"), plain)

    svg = TAG.sub(short, EMPTY.sub("", _svg(json.dumps(chart.spec))))
    head, _, body = svg.partition(">")
    style = "<style>text{paint-order:stroke;stroke-linejoin:round}</style>"
    return f'{head} role="img" font-family="{FONT}"><title>{escape(chart.alt)}</title>{style}{body}\n'


def darkened(light: str) -> str:
    """Return a picture in the colours for a dark background; text stays."""
    return TAG.sub(lambda tag: COLOUR.sub(lambda found: DARK.get(found[0].upper(), found[0]), tag[0]), light)


def interactive(spec: str) -> str:
    """Return the page element that the script turns into the interactive chart of *spec* (JSON)."""
    text = spec.strip().replace("<", "\\u003c")
    return f'<script type="application/json" class="chart-spec">{text}</script>'


def keep(files: dict[str, str], chart: Chart) -> Chart:
    """Draw *chart* into *files*, by path: light and dark SVG, and the specification for the interactive chart.

    A chart already in *files* is not drawn again. Raises ``ValueError`` if another chart has its name.
    """
    stem = chart.path.removesuffix(".svg")
    spec = json.dumps(chart.spec, separators=(",", ":"), ensure_ascii=False) + "\n"
    if files.setdefault(f"{stem}.vl.json", spec) != spec:
        raise ValueError(f"two different charts are named {stem}")
    if chart.path not in files:
        light = picture(chart)
        files |= {chart.path: light, f"{stem}-dark.svg": darkened(light)}
    return chart


def _svg(spec: str) -> str:
    """Return the picture of *spec*, drawn now or for an earlier page: another answer on a SUT changes no chart."""
    key = hashlib.sha256(f"{_renderer()}\n{spec}".encode()).hexdigest()
    return kept(f"{key}.svg", _whole, lambda: _drawn(spec), str.encode)


@cache
def _renderer() -> str:
    """Return what a picture depends on besides its specification."""
    return "\n".join((version("vl-convert-python"), VERSION, NO_FONTS.read_text(encoding="utf-8")))


def _whole(content: bytes) -> str:
    svg = content.decode()
    if not svg.endswith("</svg>"):
        raise ValueError("an incomplete picture")
    return svg


def _drawn(spec: str) -> str:
    _load_own_fonts()
    return vl_convert.vegalite_to_svg(spec, vl_version=VERSION)


@cache
def _load_own_fonts() -> None:
    """Make the renderer load its fonts, which it does once, without the machine's."""
    before = os.environ.get("FONTCONFIG_FILE")
    os.environ["FONTCONFIG_FILE"] = str(NO_FONTS)
    try:
        vl_convert.svg_to_png('<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>')
    finally:
        if before is None:
            del os.environ["FONTCONFIG_FILE"]
        else:
            os.environ["FONTCONFIG_FILE"] = before
