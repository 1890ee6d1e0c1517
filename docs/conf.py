# SPDX-License-Identifier: Apache-2.0
"""Sphinx configuration: the guide and the calibration pages, readable without any other server."""

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

project = "Calibration harness"
author = "The authors of the calibration harness"
copyright = author  # noqa: A001 - the name is Sphinx's; no year, because a page knows no clock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout, for who builds docs/ as it is
extensions = ["calibration.reference_pages", "calibration.report.sphinx_charts"]
exclude_patterns = ["_build", "Thumbs.db", ".DS_Store"]
highlight_language = "none"  # a literal block is what a program printed, unless it says otherwise
smartquotes = False  # commands and file names must stay as they are
nitpicky = True

html_theme = "furo"
html_title = "Calibration harness"
html_static_path = ["_static"]
html_favicon = "_static/favicon.svg"
html_css_files = ["calibration.css"]
html_js_files = ["calibration.js"]
html_copy_source = False
html_show_sphinx = False
html_last_updated_fmt = None
html_use_index = False
html_theme_options = {
    "navigation_with_keys": True,
    "light_css_variables": {"color-problematic": "#b00020", "color-struck": "#b00020"},
    "dark_css_variables": {"color-struck": "#ff8a80"},
}


def setup(app: Sphinx) -> None:
    """Register what this file adds."""
    app.connect("html-page-context", _prepare_sidebar, priority=100)  # before the theme's


def _prepare_sidebar(app: Sphinx, _page: str, _template: str, context: dict[str, Any], _tree: object) -> None:
    """Let the sidebar be made of titles: else Sphinx copies all sections of all pages for each page, and drops them."""
    env = app.env
    toctree: Callable[..., str] = context["toctree"]

    def of_titles(**options: Any) -> str:
        whole, env.tocs = env.tocs, _titles(env)
        try:
            return toctree(**options)
        finally:
            env.tocs = whole

    context["toctree"] = of_titles


@cache
def _titles(env: BuildEnvironment) -> dict[str, nodes.bullet_list]:
    """Return the contents of each page, without sections where no other page is below."""
    return {
        page: toc if any(toc.findall(addnodes.toctree)) else _without_sections(toc) for page, toc in env.tocs.items()
    }


def _without_sections(toc: nodes.bullet_list) -> nodes.bullet_list:
    return nodes.bullet_list("", *(nodes.list_item("", item.children[0].deepcopy()) for item in toc.children))
