# SPDX-License-Identifier: Apache-2.0
"""The terminal: as wide as it is, at most :data:`calibration.text.WIDTH`; in colour where it is one and wants it."""

import shutil
from io import TextIOWrapper
from typing import IO

from rich.console import Console

from calibration.text import WIDTH


def console(stream: IO[str], *, colour: bool | None = None) -> Console:
    """Return what prints on *stream*; untrusted text is printed as it is, without markup.

    *colour* says whether it is a terminal with colours, if *stream* itself cannot tell.
    """
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")  # a terminal that has no µ shows which character it lacks
    columns = min(shutil.get_terminal_size((WIDTH, 24)).columns, WIDTH)
    return Console(file=stream, width=columns, force_terminal=colour, highlight=False, markup=False, emoji=False)
