# SPDX-License-Identifier: Apache-2.0
"""``calibration sheet``: what a lab must prove, on one sheet."""

import sys
from pathlib import Path

import click

from calibration.base.errors import VERDICT_FAILED, InputError
from calibration.base.files import able_to, write_whole
from calibration.base.options import output_option, results_option
from calibration.results.find import find_run


@click.command(
    "sheet", epilog="Example: calibration sheet t1/sut1 --against redhat_rt_virtualization --html -o sheet.html"
)
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@results_option
@click.option(
    "--against",
    metavar="FILE",
    help="Acceptance file, by name or path (docs/guide/acceptance.rst). Default: that of calibration run --against.",
)
@click.option("--html", "form", flag_value="html", help="Print it as a page in one file, to be signed or attached.")
@click.option("--json", "form", flag_value="json", help="Print it as JSON.")
@output_option("Write to this file, with --html or --json.")
def sheet_command(
    runs: tuple[str, ...], *, results: Path, against: str | None, form: str | None, output: Path | None
) -> None:
    """Print an acceptance sheet: limits, worst values seen, verdict.

    RUN is as for calibration report. Several runs of one SUT are taken together: times of observation add up. Exits
    with 1 unless every limit is met.
    """
    from calibration.acceptance import load_acceptance, preset_names  # noqa: PLC0415 - slow, and not needed for --help
    from calibration.judge.sheet import MET, make_sheet  # noqa: PLC0415 - as above
    from calibration.judge.waivers import read_waivers  # noqa: PLC0415 - as above
    from calibration.report.alone import page_alone  # noqa: PLC0415 - as above
    from calibration.report.sheet import sheet_page  # noqa: PLC0415 - as above
    from calibration.report.terminal import print_blocks  # noqa: PLC0415 - as above
    from calibration.results.store import stored_run  # noqa: PLC0415 - as above

    if output is not None and form is None:
        raise click.UsageError("--output needs --html or --json")
    stored = [stored_run(find_run(results, run)) for run in runs]
    if against is not None:
        acceptance = load_acceptance(against)
    elif len(started := {item.name: item for run in stored for item in run.document.acceptance}) == 1:
        (acceptance,) = started.values()
    else:
        why = "the run was started with several" if started else "the run was not started with one"
        raise InputError(f"{why}: name an acceptance file with --against: {', '.join(started or preset_names())}")
    sheet = make_sheet(stored, acceptance, read_waivers(results))
    if form is None:
        print_blocks(sheet_page(sheet), sys.stdout)
    else:
        text = f"{sheet.model_dump_json(indent=1)}\n" if form == "json" else page_alone(sheet_page(sheet))
        if output is None:
            click.echo(text, nl=False)
        else:
            with able_to(f"write {output}"):
                write_whole(output, text.encode())
            click.echo(output)
    if sheet.outcome not in MET:
        sys.exit(VERDICT_FAILED)
