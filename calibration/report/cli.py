# SPDX-License-Identifier: Apache-2.0
"""``calibration report``: pages and the site from stored run documents."""

import sys
from pathlib import Path

import click

from calibration.errors import CalibrationError
from calibration.results.store import RUN, find_runs


@click.command("report")
@click.argument("results_or_run", type=click.Path(path_type=Path))
@click.option(
    "--html",
    type=click.Path(path_type=Path, file_okay=False),
    help="Build the site of the guide and these pages into this directory too.",
)
def report_command(results_or_run: Path, html: Path | None) -> None:
    """Render the page of one run, or of every run in a directory of results, from its stored document.

    Each page and its figures go to the folder report/ beside the run document.
    """
    from calibration.report import DOCS, build_site, render_run  # noqa: PLC0415 - a second that --help need not pay

    try:
        one = (results_or_run / RUN).is_file()
        runs = [results_or_run] if one else find_runs(results_or_run)
        if not runs:
            click.echo(f"expected at least one run below {results_or_run}, found none", err=True)
            sys.exit(2)
        for run in runs:
            click.echo(render_run(run).page)
        if html is not None:
            click.echo(build_site(results_or_run, DOCS, html))
    except CalibrationError as error:
        click.echo(f"calibration report: {error}", err=True)
        sys.exit(error.exit_code)
