# SPDX-License-Identifier: Apache-2.0
"""``calibration report``: pages and the site from stored run documents."""

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path

import click

from calibration.errors import VERDICT_FAILED, InputError
from calibration.files import read_regular
from calibration.results.documents import MAX_DOCUMENT_BYTES
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
    written: what the page says is printed. Documents that cannot be read are named and left out; the exit code is 1
    then.
    """
    from calibration.report import DOCS, build_site, render_run  # noqa: PLC0415 - a second that --help need not pay

    if form is not None and html is not None:
        raise click.UsageError(f"expected --html or --{form}, found both")
    one = (results_or_run / RUN).is_file()
    runs = [results_or_run] if one else find_runs(results_or_run)
    if not runs:
        raise InputError(f"expected at least one run below {results_or_run}, found none")
    unreadable = 0
    show = _printer(form) if form is not None else lambda run: click.echo(render_run(run).page)
    for run in runs:
        try:
            show(run)
        except InputError as error:
            if one:
                raise
            click.echo(f"calibration: {error}", err=True)
            unreadable += 1
    if html is not None:
        click.echo(build_site(results_or_run, DOCS, html))
    if unreadable:
        sys.exit(VERDICT_FAILED)


def _printer(form: str) -> Callable[[Path], None]:
    """Return what prints what the page of a run says."""
    from calibration.report.page import render  # noqa: PLC0415 - as above
    from calibration.report.terminal import print_page  # noqa: PLC0415 - as above
    from calibration.results.plain import COLUMNS, plain_document, rows  # noqa: PLC0415 - as above

    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    if form == "csv":
        writer.writeheader()

    def show(run: Path) -> None:
        document = read_run(run)
        if form == "csv":
            writer.writerows(rows(document))
        elif form == "json":
            click.echo(json.dumps(plain_document(document)))
        else:
            print_page(render(read_regular(run / RUN, MAX_DOCUMENT_BYTES)), sys.stdout)

    return show
