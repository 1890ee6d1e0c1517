# SPDX-License-Identifier: Apache-2.0
"""Sphinx configuration: the guide and the calibration pages, readable without any other server."""

import sys
from pathlib import Path

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
