# SPDX-License-Identifier: Apache-2.0
"""The terminal: full width up to :data:`calibration.base.text.WIDTH`; in colour if supported and wanted."""

import shutil
from io import TextIOWrapper
from typing import IO

from rich.console import Console

from calibration.base.text import WIDTH


def console(stream: IO[str], *, colour: bool | None = None) -> Console:
    """Return a console that prints on *stream*; untrusted text is printed without interpreting markup.

    *colour* says whether it is a colour terminal, if *stream* itself cannot tell.
    """
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")  # a terminal without µ shows an escape instead
    columns = min(shutil.get_terminal_size((WIDTH, 24)).columns, WIDTH)
    return Console(file=stream, width=columns, force_terminal=colour, highlight=False, markup=False, emoji=False)
