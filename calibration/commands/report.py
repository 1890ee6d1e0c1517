# SPDX-License-Identifier: Apache-2.0
"""``calibration show`` and ``calibration report``: run documents on the screen, as pages and as the site."""

import csv
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from calibration.base.errors import VERDICT_FAILED, InputError
from calibration.base.options import results_option
from calibration.base.text import message
from calibration.results.find import find_run
from calibration.results.layout import find_runs
from calibration.results.store import read_run, stored_run

if TYPE_CHECKING:
    from calibration.judge.standing import Standings


@click.command("show", epilog="Example: calibration show t1/sut1")
@click.argument("run", required=False)
@results_option
def show_command(run: str | None, results: Path) -> None:
    """Print a run on one screen: verdict, findings, metrics.

    RUN is as for calibration report; by default it is the newest run.
    """
    from calibration.report.show import print_run  # noqa: PLC0415 - slow, and not needed for --help

    path = find_run(results, run)
    print_run(read_run(path), path, sys.stdout)


@click.command("report", epilog="Example: calibration report t1/sut1 --text")
@click.argument("run", required=False)
@results_option
@click.option(
    "--html",
    type=click.Path(path_type=Path, file_okay=False),
    help="Also build the site, with the guide and these pages, in this directory.",
)
@click.option("--text", "form", flag_value="text", help="Print the page on the terminal; write nothing.")
@click.option("--full", is_flag=True, help="With --text, print the folded parts too.")
@click.option("--json", "form", flag_value="json", help="Print all values as JSON, one object per line and run.")
@click.option("--csv", "form", flag_value="csv", help="Print one line per metric and run as CSV.")
def report_command(run: str | None, *, results: Path, html: Path | None, form: str | None, full: bool) -> None:
    """Render the page of a run, or of every run in a directory.

    RUN is a path, or a name in the results: testbed/sut or sut (its newest run), testbed/sut/run or run, or a unique
    prefix. By default it is the newest run.

    Each page and its charts go to the folder report/ beside the run document. Of a directory, only pages whose
    documents, judgement or references changed are rendered. With --text, --json or --csv nothing is written. Unreadable
    documents are reported and skipped, with exit code 1.
    """
    from calibration.judge.standing import Standings, by_night  # noqa: PLC0415 - slow, and not needed for --help
    from calibration.report.rendering import inputs_of  # noqa: PLC0415 - as above
    from calibration.report.site import DOCS, build_site  # noqa: PLC0415 - as above
    from calibration.results.plain import PlainRow  # noqa: PLC0415 - as above

    if form is not None and html is not None:
        raise click.UsageError(f"--html cannot be combined with --{form}")
    whole = None if run is None or not Path(run).is_dir() else find_runs(Path(run))
    runs = whole or [find_run(results, run)]
    inputs = inputs_of(Path(run)) if whole and run and form is None else {}
    unreadable, standings = 0, Standings()
    if form == "csv":
        click.echo(",".join(PlainRow._fields))
    for item in by_night(runs):
        try:
            _render(item, form, standings, inputs.get(item), full=full)
        except InputError as error:
            if not whole:
                raise
            click.echo(f"calibration: {message(str(error))}", err=True)
            unreadable += 1
    if html is not None:
        click.echo(build_site(Path(run) if whole and run else runs[0], DOCS, html))
    if unreadable:
        sys.exit(VERDICT_FAILED)


def _render(run: Path, form: str | None, standings: "Standings", inputs: str | None, *, full: bool) -> None:
    """Render the page of *run* from *inputs*, or print it in one of the other forms."""
    from calibration.report.rendering import render_run, rendered  # noqa: PLC0415 - as above
    from calibration.report.terminal import print_blocks  # noqa: PLC0415 - as above
    from calibration.results.plain import plain_document, rows  # noqa: PLC0415 - as above

    if form is None:
        click.echo(render_run(run, standings, inputs))
        return
    stored = stored_run(run)
    if form == "csv":
        csv.writer(sys.stdout, lineterminator="\n").writerows(rows(stored.document))
    elif form == "json":
        click.echo(json.dumps(plain_document(stored.document)))
    else:
        print_blocks(rendered(stored, standings).blocks, sys.stdout, full=full)
