# SPDX-License-Identifier: Apache-2.0
"""``calibration report``: pages and the site from stored run documents."""

import csv
import json
import sys
from pathlib import Path

import click

from calibration.errors import CalibrationError
from calibration.results.layout import RUN
from calibration.results.store import find_runs, read_run


@click.command("report")
@click.argument("results_or_run", type=click.Path(path_type=Path))
@click.option(
    "--html",
    type=click.Path(path_type=Path, file_okay=False),
    help="Build the site of the guide and these pages into this directory too.",
)
@click.option("--text", "form", flag_value="text", help="Print the pages on the terminal, and write nothing.")
@click.option("--json", "form", flag_value="json", help="Print all values as JSON, one object per line and run.")
@click.option("--csv", "form", flag_value="csv", help="Print a line for each headline figure of each run.")
def report_command(results_or_run: Path, html: Path | None, form: str | None) -> None:
    """Render the page of one run, or of every run in a directory of results, from its stored document.

    Each page and its figures go to the folder report/ beside the run document. With --text, --json or --csv nothing is
    written: what the page says is printed.
    """
    from calibration.report import DOCS, build_site, render_run  # noqa: PLC0415 - a second that --help need not pay

    if form is not None and html is not None:
        raise click.UsageError(f"expected --html or --{form}, found both")
    try:
        one = (results_or_run / RUN).is_file()
        runs = [results_or_run] if one else find_runs(results_or_run)
        if not runs:
            click.echo(f"expected at least one run below {results_or_run}, found none", err=True)
            sys.exit(2)
        if form is not None:
            _print(runs, form)
            return
        for run in runs:
            click.echo(render_run(run).page)
        if html is not None:
            click.echo(build_site(results_or_run, DOCS, html))
    except CalibrationError as error:
        click.echo(f"calibration report: {error}", err=True)
        sys.exit(error.exit_code)


def _print(runs: list[Path], form: str) -> None:
    """Print what the pages of *runs* say."""
    from calibration.report.page import render  # noqa: PLC0415 - as above
    from calibration.report.terminal import print_page  # noqa: PLC0415 - as above
    from calibration.results.plain import COLUMNS, plain_document, rows  # noqa: PLC0415 - as above

    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    if form == "csv":
        writer.writeheader()
    for run in runs:
        document = read_run(run)
        if form == "csv":
            writer.writerows(rows(document))
        elif form == "json":
            click.echo(json.dumps(plain_document(document)))
        else:
            print_page(render((run / RUN).read_bytes()), sys.stdout)
