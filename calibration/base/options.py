# SPDX-License-Identifier: Apache-2.0
"""Common arguments and options of several commands."""

from pathlib import Path

import click

from calibration.base.places import RESULTS

results_option = click.option(
    "--results",
    type=click.Path(path_type=Path, file_okay=False),
    default=RESULTS,
    help="Directory of results. Default: results/ of the checkout, of the working directory where the package is "
    "installed, or of CALIBRATION_HOME.",
)
results_argument = click.argument("results", type=click.Path(path_type=Path, file_okay=False), default=RESULTS)
"""``[RESULTS]``: the directory of results."""
