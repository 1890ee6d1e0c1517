# SPDX-License-Identifier: Apache-2.0
"""Common arguments and options of several commands."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from calibration.base.places import RESULTS


def results_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option ``--results`` to *command*."""
    return click.option(
        "--results",
        type=click.Path(path_type=Path, file_okay=False),
        default=RESULTS,
        help="Directory of results. Default: results/ of the checkout, of the working directory where the package is "
        "installed, or of CALIBRATION_HOME.",
    )(command)


results_argument = click.argument("results", type=click.Path(path_type=Path, file_okay=False), default=RESULTS)
"""``[RESULTS]``: the directory of results."""
