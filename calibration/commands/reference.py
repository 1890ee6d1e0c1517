# SPDX-License-Identifier: Apache-2.0
"""``calibration reference``: what is normal for the hardware, published or measured by this lab."""

import sys
from pathlib import Path

import click

from calibration.base.commandline import accept_command, near
from calibration.base.errors import VERDICT_FAILED, InputError
from calibration.base.options import results_option
from calibration.base.text import message
from calibration.results.find import find_run


@click.group("reference", epilog="Example: calibration reference check t1/sut1")
def reference_command() -> None:
    """Tell what is normal for the hardware.

    The published figures come with the package; those of a lab are files in references/figures/ of its results
    (docs/guide/normal.rst).
    """


@reference_command.command("check", epilog="Example: calibration reference check t1/sut1")
@click.argument("run", required=False)
@results_option
def check_command(run: str | None, results: Path) -> None:
    """Print a run beside all references of its hardware.

    RUN is as for calibration report. Exits with 1 if a file of references cannot be read; what is usual is no limit.
    """
    from calibration.references.library import library, results_of  # noqa: PLC0415 - slow, and not needed for --help
    from calibration.references.matching import normal  # noqa: PLC0415 - as above
    from calibration.report.normal import check_lines  # noqa: PLC0415 - as above
    from calibration.results.store import read_run  # noqa: PLC0415 - as above

    path = find_run(results, run)
    document = read_run(path)
    found = normal(document, library(results_of(path)))
    for line in check_lines(found, document):
        click.echo(line)
    _fail_for(found.faults)


@reference_command.command("list", epilog="Example: calibration reference list --processor 6252N")
@results_option
@click.option("--processor", help="Only processors with this in their name; prints their figures too.")
def list_command(results: Path, processor: str | None) -> None:
    """List the processors with references, published and the lab's own."""
    from calibration.references.library import library  # noqa: PLC0415 - slow, and not needed for --help
    from calibration.report.normal import list_lines  # noqa: PLC0415 - as above

    known = library(results)
    lines = list(list_lines(known, processor))
    if not lines:
        raise InputError(f"no reference of a processor with {processor!r} in its name")
    for line in lines:
        click.echo(line)
    _fail_for(known.faults)


@reference_command.command(
    "add", epilog='Example: calibration reference add t1/sut1 t1/sut2 --source "Example lab" --licence CC0-1.0'
)
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@results_option
@click.option("--source", default="own runs", show_default=True, help="Who measured, for those who get the file.")
@click.option(
    "--licence",
    default="NOASSERTION",
    show_default=True,
    help="SPDX identifier of the licence under which the file may be shared.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write or extend. Default: references/figures/own.yml in the results of the runs.",
)
def add_command(runs: tuple[str, ...], *, results: Path, source: str, licence: str, output: Path | None) -> None:
    """Add accepted runs to the lab's own references.

    RUN is as for calibration report. A run that is not accepted, not valid, imported, or of a virtual machine is
    refused, and nothing is written. The names of testbed and SUT are in the file: read it before you share it.
    """
    from calibration.base.units import plural  # noqa: PLC0415 - as above
    from calibration.judge.baseline_files import Baselines, RunName  # noqa: PLC0415 - slow, and not needed for --help
    from calibration.references.library import results_of  # noqa: PLC0415 - as above
    from calibration.references.own import OWN_FILE, add, reference_of  # noqa: PLC0415 - as above
    from calibration.results.store import read_run  # noqa: PLC0415 - as above

    machines = []
    for path in [find_run(results, run) for run in runs]:
        document = read_run(path)
        machines.append(reference_of(document))
        own = RunName(testbed=document.run.testbed, sut=document.run.sut, id=document.run.id)
        if Baselines(results_of(path)).acceptance_of(own, document.facts) is None:
            raise InputError(f"{path} was not accepted: {accept_command(near(path))} first")
        file = output or results_of(path) / OWN_FILE
    written = add(file, machines, title=source, licence=licence)
    figures = plural(sum(len(machine.figures) for machine in machines), "figure")
    click.echo(f"{file}: {figures} added, {plural(len(written.machines), 'run')} in all")


def _fail_for(faults: tuple[str, ...]) -> None:
    """Report unreadable files, and exit with 1 if there are any."""
    for fault in faults:
        click.echo(f"calibration: {message(fault)}", err=True)
    if faults:
        sys.exit(VERDICT_FAILED)
