# SPDX-License-Identifier: Apache-2.0
"""The charts of one page as files: each chart as light and dark SVG, and its specification for the interactive one."""

import json

from calibration.report import filters
from calibration.report.charts.base import Chart, picture

FOLDER = "figures"
"""Where charts lie, relative to their page."""


def keep(files: dict[str, str], chart: Chart) -> str:
    """Draw *chart* into *files*, by path, and return the path of its light SVG.

    A chart that is there already is not drawn again. Raises ``ValueError`` where another of that name is.
    """
    stem = f"{FOLDER}/{filters.slug(chart.name)}"
    spec = json.dumps(chart.spec, separators=(",", ":"), ensure_ascii=False) + "\n"
    if files.setdefault(f"{stem}.vl.json", spec) != spec:
        raise ValueError(f"expected one chart named {stem}, found two")
    if f"{stem}.svg" not in files:
        drawn = picture(chart)
        files |= {f"{stem}.svg": drawn.light, f"{stem}-dark.svg": drawn.dark}
    return f"{stem}.svg"
