# SPDX-License-Identifier: Apache-2.0
"""Arguments and options that several commands have."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from calibration.places import HOME

RESULTS: Final = HOME / "results"
"""The directory of results if none is given."""


def results_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give *command* the option ``--results``."""
    return click.option(
        "--results",
        type=click.Path(path_type=Path, file_okay=False),
        default=RESULTS,
        help="Directory of results. Default: results/ of the checkout, of the working directory where the package is "
        "installed, or of CALIBRATION_HOME.",
    )(command)


results_argument = click.argument("results", type=click.Path(path_type=Path, file_okay=False), default=RESULTS)
"""``[RESULTS]``: the directory of results."""
