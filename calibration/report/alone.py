# SPDX-License-Identifier: Apache-2.0
"""A page in one file, with its charts and styles, to be attached or mailed."""

from calibration.base.places import SHARE
from calibration.report.blocks import Blocks, Charts, walk
from calibration.report.environment import html_page
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
    return html_page("alone", title=page.title, css=CSS.read_text(encoding="utf-8"), body=page.body)
