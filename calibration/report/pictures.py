# SPDX-License-Identifier: Apache-2.0
"""From a chart's Vega-Lite specification to its light and dark pictures, and to the interactive chart."""

import json
import re
from functools import lru_cache
from typing import Final
from xml.sax.saxutils import escape

import vl_convert

from calibration.charts.base import DARK, FONT, Chart

VERSION: Final = "6.4"  # of Vega-Lite, which renders charts, in files and in the browser

TAG = re.compile(r"<[^>]*>")
EMPTY = re.compile(r'<path [^>]*(?: opacity="0"| display="none"| d="M0,0h0v0h0Z")[^>]*/>')
NOISE = re.compile(r' (?:class|aria-hidden|pointer-events|font-family|stroke-miterlimit)="[^"]*"| opacity="1"')
LONG = re.compile(r"-?\d+\.\d{3,}(?:e-\d+)?")
CLIP = re.compile(r"\bclip(\d+)\b")
COLOUR = re.compile(r"#[0-9A-Fa-f]{6}")


def picture(chart: Chart) -> str:
    """Return *chart* as SVG on a light ground, the same bytes for the same specification."""
    clips: dict[str, str] = {}  # the renderer counts them over all charts that it has drawn

    def short(tag: re.Match[str]) -> str:
        """Return a tag without what says nothing, and with no digits that nobody sees; texts between tags stay."""
        plain = LONG.sub(lambda found: f"{round(float(found[0]), 2):g}", NOISE.sub("", tag[0]))
        return CLIP.sub(lambda found: clips.setdefault(found[0], f"clip{len(clips)}"), plain)

    svg = TAG.sub(short, EMPTY.sub("", _svg(json.dumps(chart.spec))))
    head, _, body = svg.partition(">")
    style = "<style>text{paint-order:stroke;stroke-linejoin:round}</style>"
    return f'{head} role="img" font-family="{FONT}"><title>{escape(chart.alt)}</title>{style}{body}\n'


def darkened(light: str) -> str:
    """Return a picture with the colours for a dark ground; texts stay as they are."""
    return TAG.sub(lambda tag: COLOUR.sub(lambda found: DARK.get(found[0].upper(), found[0]), tag[0]), light)


def interactive(spec: str) -> str:
    """Return the element of a page from which its script makes the chart of *spec* (JSON) interactive."""
    text = spec.strip().replace("<", "\\u003c")
    return f'<script type="application/json" class="chart-spec">{text}</script>'


def keep(files: dict[str, str], chart: Chart) -> Chart:
    """Draw *chart* into *files*, by path: its light and dark SVG, and its specification for the interactive one.

    A chart that is there already is not drawn again. Raises ``ValueError`` if another of that name is.
    """
    stem = chart.path.removesuffix(".svg")
    spec = json.dumps(chart.spec, separators=(",", ":"), ensure_ascii=False) + "\n"
    if files.setdefault(f"{stem}.vl.json", spec) != spec:
        raise ValueError(f"two different charts are named {stem}")
    if chart.path not in files:
        light = picture(chart)
        files |= {chart.path: light, f"{stem}-dark.svg": darkened(light)}
    return chart


@lru_cache(maxsize=128)
def _svg(spec: str) -> str:
    return vl_convert.vegalite_to_svg(spec, vl_version=VERSION)
