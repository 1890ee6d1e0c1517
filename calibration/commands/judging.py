# SPDX-License-Identifier: Apache-2.0
"""Commands that judge: ``compare`` machines, ``judge`` a night, ``accept`` a run, print the ``trend`` of a metric."""

import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Literal

import click

from calibration.base.errors import VERDICT_FAILED, InputError
from calibration.base.files import able_to, write_whole
from calibration.base.options import output_option, results_option, results_option_or_argument
from calibration.results.find import find_run


@click.command("compare", epilog="Example: calibration compare t1/sut1 t1/sut2")
@click.argument("first")
@click.argument("second")
@results_option
@click.option("--all", "everything", is_flag=True, help="Print all metrics and facts.")
@click.option("--json", "form", flag_value="json", help="Print every metric as JSON.")
@click.option("--rst", "form", flag_value="rst", help="Print the comparison as reStructuredText.")
@click.option("--html", "form", flag_value="html", help="Print it as a page in one file, to be attached to a ticket.")
@output_option("Write to this file, with --json, --rst or --html.")
def compare_command(
    first: str, second: str, *, results: Path, everything: bool, form: str | None, output: Path | None
) -> None:
    """Compare two runs, SUTs or published pages, metric by metric.

    FIRST and SECOND are each a run, as for calibration report, or the file of a published page. Headline metrics come
    first. A metric differs if its change exceeds the tolerance by more than the scatter of both runs.
    """
    from calibration.judge.comparison import compare, read_compared  # noqa: PLC0415 - slow, and not needed for --help

    if output is not None and form is None:
        raise click.UsageError("--output needs --json, --rst or --html")
    sides = [read_compared(find_run(results, item)) for item in (first, second)]
    compared = compare(*sides, public=form == "html")
    if form == "json":
        text = f"{compared.model_dump_json(indent=1)}\n"
    else:
        from calibration.report.alone import page_alone  # noqa: PLC0415 - as above
        from calibration.report.comparison import (  # noqa: PLC0415 - as above
            comparison_page,
            print_comparison,
            without_charts,
        )
        from calibration.report.rst import to_rst  # noqa: PLC0415 - as above

        if form is None:
            print_comparison(compared, sys.stdout, everything=everything)
            return
        if form == "html":
            from calibration.report.curves import compared_curves  # noqa: PLC0415 - as above

            text = page_alone(comparison_page(compared, compared_curves(*sides)))
        else:
            text = to_rst(without_charts(comparison_page(compared)))
    if output is None:
        click.echo(text, nl=False)
        return
    with able_to(f"write {output}"):
        write_whole(output, text.encode())
    click.echo(output)


def _night(_context: click.Context, _option: click.Parameter, value: datetime | None) -> date | None:
    return None if value is None else value.date()


@click.command("judge", epilog="Example: calibration judge --sut t1/sut2")
@results_option_or_argument
@click.option(
    "--night",
    type=click.DateTime(["%Y-%m-%d"]),
    callback=_night,
    metavar="DATE",
    help="Night to judge, with what was known then, such as 2026-01-31. Default: the newest.",
)
@click.option("--sut", metavar="TESTBED/SUT", help="Print everything about this SUT only.")
@click.option("--all", "everything", is_flag=True, help="Print every failure in full.")
@click.option("--json", "as_json", is_flag=True, help="Print every verdict as JSON, passes included.")
def judge_command(*, results: Path, night: date | None, sut: str | None, everything: bool, as_json: bool) -> None:
    """Judge a night: what is out of bounds, changed or missing.

    Prints one screen, failures first. A change that several SUTs share is printed once.
    """
    from calibration.judge.night import judge_night, of_sut, write_judgement  # noqa: PLC0415 - slow, and not needed for --help

    if sut is not None:
        judgement = of_sut(judge_night(results, night), sut)
    elif as_json:
        judgement = write_judgement(sys.stdout.buffer, results, night)
    else:
        judgement = judge_night(results, night, lambda _: None)
    if as_json and sut is not None:
        click.echo(judgement.model_dump_json())
    elif not as_json:
        from calibration.report.screens.judgement import print_judgement  # noqa: PLC0415 - as above

        print_judgement(judgement, sys.stdout, everything=everything or sut is not None)
    if judgement.failed:
        sys.exit(VERDICT_FAILED)


@click.command("accept", epilog='Example: calibration accept t1/sut1 --by "Ada Lovelace" --reason "as delivered"')
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@results_option
@click.option("--by", required=True, metavar="NAME", help="Who accepts.")
@click.option("--reason", required=True, metavar="TEXT", help="Why the values are accepted.")
@click.option(
    "--scope",
    type=click.Choice(["sut", "testbed", "platform"]),
    default="sut",
    show_default=True,
    help="Apply the bounds to the SUTs of the runs, to their testbed, or to their platform.",
)
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="PATTERN",
    help="Accept only matching metrics, such as 'jitter.*'; repeatable.",
)
@click.option("--anyway", is_flag=True, help="Accept bounds that notice too little, too.")
@click.option("--all", "everything", is_flag=True, help="Print every metric, not only headline metrics.")
@click.option("--dry-run", is_flag=True, help="Print what would be accepted; write nothing.")
def accept_command(
    *,
    runs: tuple[str, ...],
    results: Path,
    by: str,
    reason: str,
    scope: Literal["sut", "testbed", "platform"],
    metrics: tuple[str, ...],
    anyway: bool,
    everything: bool,
    dry_run: bool,
) -> None:
    """Accept a run as the baseline of later nights.

    RUN is as for calibration report. The width of the bounds follows the variation of the nights at that level
    (docs/guide/judge.rst). They are stored with name and reason beside the runs (docs/results/references.rst). Bounds
    from fewer than ten nights, and those that would not notice a change that matters, are refused without --anyway.
    """
    from calibration.judge.baseline_files import add_acceptance  # noqa: PLC0415 - as above
    from calibration.judge.baselines import propose, results_of  # noqa: PLC0415 - slow, and not needed for --help
    from calibration.report.screens.baseline import print_proposal  # noqa: PLC0415 - as above

    paths = [find_run(results, run) for run in runs]
    proposals = propose(paths, scope=scope, by=by, reason=reason, metrics=metrics, now=datetime.now(UTC))
    for proposal in proposals:
        print_proposal(proposal, sys.stdout, everything=everything)
    if all(proposal.acceptance is None for proposal in proposals):
        raise InputError("nothing can be accepted; the reasons are above")
    weak = [f"{proposal.place.words}: {proposal.weakness}" for proposal in proposals if proposal.weakness is not None]
    if weak and not (anyway or dry_run):
        raise InputError(f"not accepted, it would notice too little: {'; '.join(weak)}. Accept it with --anyway")
    for proposal in proposals:
        if proposal.acceptance is not None:
            results = results_of(paths)
            if dry_run:
                click.echo(f"would be written to {proposal.place.path(results)}")
            else:
                click.echo(f"written to {add_acceptance(results, proposal.place, proposal.acceptance)}")


@click.command("trend", epilog="Example: calibration trend t1/sut1 idle_latency")
@click.argument("sut", required=False)
@click.argument("metric", required=False)
@results_option
@click.option("--all", "everything", is_flag=True, help="Print one line per night; without METRIC every metric.")
@click.option("--json", "form", flag_value="json", help="Print nights, changes and bounds as JSON.")
@click.option("--csv", "form", flag_value="csv", help="Print one line per night as CSV.")
def trend_command(sut: str | None, metric: str | None, *, results: Path, everything: bool, form: str | None) -> None:
    """Print the nights of a metric: level, changes and causes.

    SUT is testbed/sut or sut; both it and METRIC may be a unique prefix. Without METRIC the SUTs, and the metrics of
    SUT by family, are listed.
    """
    from calibration.judge.trend import choices_in, read_trend  # noqa: PLC0415 - as above
    from calibration.report.screens.trend import (  # noqa: PLC0415 - as above
        choices_text,
        trend_csv,
        trend_json,
        trend_text,
    )

    if sut is None or metric is None:
        if form is not None:
            raise click.UsageError(f"--{form} needs SUT and METRIC")
        click.echo(choices_text(choices_in(results, sut), everything=everything), nl=False)
        return
    trend = read_trend(results, sut, metric)
    if form is None:
        click.echo(trend_text(trend, everything=everything), nl=False)
    else:
        click.echo((trend_json if form == "json" else trend_csv)(trend), nl=False)
