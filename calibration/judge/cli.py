# SPDX-License-Identifier: Apache-2.0
"""Commands that judge: ``compare`` machines, ``judge`` a night, ``accept`` a run, show the ``trend`` of a figure."""

import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Literal

import click

from calibration.errors import VERDICT_FAILED, InputError

RESULTS = click.argument("results", type=click.Path(path_type=Path))


@click.command("compare")
@click.argument("first", type=click.Path(path_type=Path, exists=True))
@click.argument("second", type=click.Path(path_type=Path, exists=True))
@click.option("--json", "form", flag_value="json", help="Print every figure of either side as JSON.")
@click.option("--rst", "form", flag_value="rst", help="Print the comparison as reStructuredText.")
def compare_command(first: Path, second: Path, form: str | None) -> None:
    """Compare FIRST and SECOND, each a run, a SUT's directory (its newest run) or a published page, figure by figure.

    A figure is said to differ only where the intervals of both support it; tolerance and reason are shown.
    """
    from calibration.judge.comparison import compare, read_compared  # noqa: PLC0415 - a second that --help need not pay
    from calibration.report.comparison import render_comparison  # noqa: PLC0415 - as above
    from calibration.report.page import Page  # noqa: PLC0415 - as above
    from calibration.report.terminal import print_page  # noqa: PLC0415 - as above

    compared = compare(read_compared(first), read_compared(second))
    if form == "json":
        click.echo(compared.model_dump_json(indent=1))
        return
    text = render_comparison(compared)
    if form == "rst":
        click.echo(text, nl=False)
    else:
        print_page(Page(text=text, figures={}), sys.stdout)


def _night(_context: click.Context, _option: click.Parameter, value: datetime | None) -> date | None:
    return None if value is None else value.date()


@click.command("judge")
@RESULTS
@click.option(
    "--night",
    type=click.DateTime(["%Y-%m-%d"]),
    callback=_night,
    metavar="DATE",
    help="The night to judge, such as 2026-01-31, as it was known then; by default the newest in RESULTS.",
)
@click.option("--sut", metavar="TESTBED/SUT", help="Say everything of this SUT, and nothing of others.")
@click.option("--all", "everything", is_flag=True, help="Say everything of every SUT that fails.")
@click.option("--json", "as_json", is_flag=True, help="Print every verdict as JSON, those that pass among them.")
def judge_command(results: Path, night: date | None, sut: str | None, everything: bool, as_json: bool) -> None:
    """Judge a night of RESULTS: what is outside its bounds, what changed and since when, what is missing.

    Prints one screen: each SUT that fails with what is worst, what changed on it, and what cannot be judged.
    """
    from calibration.judge.night import judge_night, of_sut  # noqa: PLC0415 - a second that --help need not pay

    judgement = judge_night(results, night)
    if sut is not None:
        judgement = of_sut(judgement, sut)
    if as_json:
        click.echo(judgement.model_dump_json())
    else:
        from calibration.judge.screen import print_judgement  # noqa: PLC0415 - as above

        print_judgement(judgement, sys.stdout, everything=everything or sut is not None)
    if judgement.failed:
        sys.exit(VERDICT_FAILED)


@click.command("accept")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--by", required=True, metavar="NAME", help="Who accepts.")
@click.option("--reason", required=True, metavar="TEXT", help="Why these figures are right.")
@click.option(
    "--scope",
    type=click.Choice(["sut", "testbed", "platform"]),
    default="sut",
    show_default=True,
    help="What the bounds are for: the runs' SUTs, all SUTs of their testbed, or all of their platform.",
)
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="PATTERN",
    help="Accept only such figures, as in 'jitter.*'; repeatable.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be accepted, and write nothing.")
def accept_command(
    *,
    runs: tuple[Path, ...],
    by: str,
    reason: str,
    scope: Literal["sut", "testbed", "platform"],
    metrics: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Accept the level of each figure of RUN, a run's directory: later nights are judged by bounds around it.

    The bounds are as wide as the nights of that level were seen to vary (docs/guide/judge.rst). They are kept beside
    the runs, with who accepted them and why (docs/results/references.rst).
    """
    from calibration.judge.accept import propose, results_of  # noqa: PLC0415 - a second that --help need not pay
    from calibration.judge.references import add_acceptance  # noqa: PLC0415 - as above
    from calibration.judge.screen import print_proposal  # noqa: PLC0415 - as above

    proposals = propose(runs, scope=scope, by=by, reason=reason, metrics=metrics, now=datetime.now(UTC))
    for each in proposals:
        print_proposal(each, sys.stdout)
    if all(each.acceptance is None for each in proposals):
        raise InputError("expected a figure that bounds can be made for, found none; the reasons are above")
    for each in proposals:
        if each.acceptance is not None:
            results = results_of(runs)
            path = each.place.path(results) if dry_run else add_acceptance(results, each.place, each.acceptance)
            click.echo(f"{'would be written to' if dry_run else 'written to'} {path}")


@click.command("trend")
@RESULTS
@click.argument("sut", metavar="TESTBED/SUT")
@click.argument("metric")
@click.option("--json", "form", flag_value="json", help="Print nights, changes and bounds as JSON.")
@click.option("--csv", "form", flag_value="csv", help="Print a line for each night.")
def trend_command(results: Path, sut: str, metric: str, form: str | None) -> None:
    """Print the nights of METRIC of a SUT in RESULTS: figures, changes, accepted bounds, and why some are missing."""
    from calibration.judge.trend import read_trend, trend_csv, trend_json, trend_text  # noqa: PLC0415 - as above

    trend = read_trend(results, sut, metric)
    text = {"json": trend_json, "csv": trend_csv}.get(form or "", trend_text)(trend)
    click.echo(text, nl=False)
