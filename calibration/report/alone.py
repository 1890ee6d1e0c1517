# SPDX-License-Identifier: Apache-2.0
"""A page in one file, with its charts and styles, to be attached or mailed."""

from html import escape
from string import Template

from calibration.base.places import SHARE
from calibration.base.text import visible
from calibration.report.blocks import Blocks, Charts, walk
from calibration.report.environment import TEMPLATES
from calibration.report.html import to_html
from calibration.report.pictures import keep

CSS = SHARE / "docs" / "_static" / "calibration.css"


def page_alone(blocks: Blocks) -> str:
    """Return *blocks* as one HTML file without scripts and external resources."""
    files: dict[str, str] = {}
    for block in walk(blocks):
        for chart in block.charts if isinstance(block, Charts) else ():
            keep(files, chart)
    page = to_html(blocks, files, "", alone=True)
    frame = Template((TEMPLATES / "alone.html").read_text(encoding="utf-8"))
    css = CSS.read_text(encoding="utf-8")
    return frame.substitute(title=escape(visible(page.title)), css=css, body=page.body)
