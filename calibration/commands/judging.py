# SPDX-License-Identifier: Apache-2.0
"""Commands that judge: ``compare`` machines, ``judge`` a night, ``accept`` a run, print the ``trend`` of a metric."""

import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Literal

import click

from calibration.errors import VERDICT_FAILED, InputError
from calibration.options import results_argument, results_option
from calibration.results.find import find_run


@click.command("compare", epilog="Example: calibration compare t1/sut1 t1/sut2")
@click.argument("first")
@click.argument("second")
@results_option
@click.option("--all", "everything", is_flag=True, help="Print every metric, and facts in full.")
@click.option("--json", "form", flag_value="json", help="Print every metric of either side as JSON.")
@click.option("--rst", "form", flag_value="rst", help="Print the comparison as reStructuredText.")
def compare_command(first: str, second: str, *, results: Path, everything: bool, form: str | None) -> None:
    """Compare two runs, SUTs or published pages, metric by metric.

    FIRST and SECOND are each a run, as for calibration report, or the file of a published page. The metrics that differ
    most come first; a metric differs where its intervals exclude that both are the same within the tolerance.
    """
    from calibration.judge.comparison import compare, read_compared  # noqa: PLC0415 - slow, and not needed for --help

    compared = compare(*(read_compared(find_run(results, item)) for item in (first, second)))
    if form == "json":
        click.echo(compared.model_dump_json(indent=1))
    elif form == "rst":
        from calibration.report.comparison import render_comparison  # noqa: PLC0415 - as above

        click.echo(render_comparison(compared), nl=False)
    else:
        from calibration.commands.comparison_screen import print_comparison  # noqa: PLC0415 - as above

        print_comparison(compared, sys.stdout, everything=everything)


def _night(_context: click.Context, _option: click.Parameter, value: datetime | None) -> date | None:
    return None if value is None else value.date()


@click.command("judge", epilog="Example: calibration judge --sut t1/sut2")
@results_argument
@click.option(
    "--night",
    type=click.DateTime(["%Y-%m-%d"]),
    callback=_night,
    metavar="DATE",
    help="The night to judge, such as 2026-01-31, as it was known then; by default the newest in RESULTS.",
)
@click.option("--sut", metavar="TESTBED/SUT", help="Print everything about this SUT alone.")
@click.option("--all", "everything", is_flag=True, help="Print every failure in full.")
@click.option("--json", "as_json", is_flag=True, help="Print every verdict as JSON, passes included.")
def judge_command(results: Path, night: date | None, sut: str | None, everything: bool, as_json: bool) -> None:
    """Judge a night: what is out of bounds, changed or missing.

    Prints one screen: failures first, a change that several SUTs share once.
    """
    from calibration.judge.night import judge_night, of_sut  # noqa: PLC0415 - slow, and not needed for --help

    judgement = judge_night(results, night)
    if sut is not None:
        judgement = of_sut(judgement, sut)
    if as_json:
        click.echo(judgement.model_dump_json())
    else:
        from calibration.commands.judgement_screen import print_judgement  # noqa: PLC0415 - as above

        print_judgement(judgement, sys.stdout, everything=everything or sut is not None)
    if judgement.failed:
        sys.exit(VERDICT_FAILED)


@click.command("accept", epilog='Example: calibration accept t1/sut1 --by "Ada Lovelace" --reason "as delivered"')
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@results_option
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
    runs: tuple[str, ...],
    results: Path,
    by: str,
    reason: str,
    scope: Literal["sut", "testbed", "platform"],
    metrics: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Accept a run as the baseline of later nights.

    RUN is as for calibration report. The bounds are as wide as nights of that level vary (docs/guide/judge.rst). They
    are kept beside the runs, with who accepted them and why (docs/results/references.rst).
    """
    from calibration.commands.baseline_screen import print_proposal  # noqa: PLC0415 - as above
    from calibration.judge.baseline_files import add_acceptance  # noqa: PLC0415 - as above
    from calibration.judge.baselines import propose, results_of  # noqa: PLC0415 - slow, and not needed for --help

    paths = [find_run(results, run) for run in runs]
    proposals = propose(paths, scope=scope, by=by, reason=reason, metrics=metrics, now=datetime.now(UTC))
    for proposal in proposals:
        print_proposal(proposal, sys.stdout)
    if all(proposal.acceptance is None for proposal in proposals):
        raise InputError("expected a figure that bounds can be made for, found none; the reasons are above")
    for proposal in proposals:
        if proposal.acceptance is not None:
            results = results_of(paths)
            path = (
                proposal.place.path(results)
                if dry_run
                else add_acceptance(results, proposal.place, proposal.acceptance)
            )
            click.echo(f"{'would be written to' if dry_run else 'written to'} {path}")


@click.command("trend", epilog="Example: calibration trend t1/sut1 idle_latency")
@click.argument("sut")
@click.argument("metric")
@results_option
@click.option("--all", "everything", is_flag=True, help="Print a line for each night.")
@click.option("--json", "form", flag_value="json", help="Print nights, changes and bounds as JSON.")
@click.option("--csv", "form", flag_value="csv", help="Print a line for each night as CSV.")
def trend_command(sut: str, metric: str, *, results: Path, everything: bool, form: str | None) -> None:
    """Print the nights of a metric: its level, changes and their cause.

    SUT is testbed/sut or sut; both it and METRIC may be a unique prefix.
    """
    from calibration.commands.trend_screen import trend_csv, trend_json, trend_text  # noqa: PLC0415 - as above
    from calibration.judge.trend import read_trend  # noqa: PLC0415 - as above

    trend = read_trend(results, sut, metric)
    if form is None:
        click.echo(trend_text(trend, everything=everything), nl=False)
    else:
        click.echo((trend_json if form == "json" else trend_csv)(trend), nl=False)
