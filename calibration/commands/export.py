# SPDX-License-Identifier: Apache-2.0
"""``calibration export``: metrics for other programs, memory curves for simulators."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

import click

from calibration.base.files import able_to, replacing
from calibration.base.options import output_option, results_option_or_argument
from calibration.base.text import visible
from calibration.base.units import plural

if TYPE_CHECKING:
    from calibration.exports.tracking import Tracked

MAX_LEFT_OUT: Final = 20
"""Metrics left out that are named on the terminal; the others are counted."""


def _parquet(results: Path, output: Path) -> str:
    """Write the history to *output*; return what was written."""
    from calibration.exports.history import write_parquet  # noqa: PLC0415 - slow, and not needed for --help

    done = write_parquet(results, output)
    return f"{done.written} of {plural(done.months, 'month')} written, {plural(done.rows, 'row')}"


def _curves(results: Path, output: Path) -> str:
    """Write memory curves to *output*; return what was written."""
    from calibration.exports.curves import export_curves  # noqa: PLC0415 - as above

    with _LeftOut() as left_out:
        done = export_curves(results, output, left_out)
    return f"curves of {plural(done.suts, 'SUT')} written, {plural(done.pairs, 'node pair')}"


def _bencher(results: Path, output: Path) -> str:
    """Write metrics for Bencher to *output*; return what was written."""
    from calibration.exports.tracking import export_bencher  # noqa: PLC0415 - as above

    with _LeftOut() as left_out:
        return _tracked(export_bencher(results, output, left_out))


def _otava(results: Path, output: Path) -> str:
    """Write the history for Otava to *output*; return what was written."""
    from calibration.exports.tracking import export_otava  # noqa: PLC0415 - as above

    with _LeftOut() as left_out:
        return _tracked(export_otava(results, output, left_out))


def _tracked(done: "Tracked") -> str:
    return f"{plural(done.metrics, 'metric')} of {plural(done.suts, 'SUT')} written"


DIRECTORIES: Final[Mapping[str, Callable[[Path, Path], str]]] = {
    "parquet": _parquet,
    "bencher": _bencher,
    "otava": _otava,
    "curves": _curves,
}
"""What writes a directory, by format, and returns what was written."""


@click.command("export", epilog="Example: calibration export openmetrics -o /var/lib/node_exporter/calibration.prom")
@click.argument("form", metavar="FORMAT", type=click.Choice(["openmetrics", "influx", *DIRECTORIES]))
@results_option_or_argument
@output_option(
    "File to replace when the export is complete, by default standard output; for the others than openmetrics and "
    "influx, a directory.",
    directory=True,
)
@click.option(
    "--since",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="DATE",
    help="influx: only nights from this one on.",
)
def export_command(
    form: str,
    *,
    results: Path,
    output: Path | None,
    since: datetime | None,
) -> None:
    """Export metrics to Prometheus, InfluxDB, data frames and CI.

    FORMAT is openmetrics (the newest run of each SUT and its state), influx (line protocol of all runs), parquet (the
    whole history with invalid values and verdicts), bencher (the newest run of each SUT), otava (the history of each
    metric) or curves (of the newest run of each SUT, as Mess and simulators read them). docs/guide/exports.rst has
    names, units and the schema.
    """
    if since is not None and form != "influx":
        raise click.UsageError(f"--since goes with influx, not with {form}")
    if form in DIRECTORIES:
        if output is None:
            raise click.UsageError(f"{form} needs -o DIR")
        click.echo(f"{output}: {DIRECTORIES[form](results, output)}")
        return
    with _written(output) as file, _LeftOut() as left_out:
        if form == "openmetrics":
            from calibration.exports.openmetrics import openmetrics  # noqa: PLC0415 - as above

            file.write(openmetrics(results, left_out))
        else:
            from calibration.exports.influx import influx  # noqa: PLC0415 - as above

            for lines in influx(results, None if since is None else since.date(), left_out):
                file.write(lines)


@contextmanager
def _written(output: Path | None) -> Iterator[TextIO]:
    """Yield standard output, or a file that replaces *output* after the block."""
    if output is None:
        yield sys.stdout
        return
    with able_to(f"write {output}"), replacing(output) as written, written.open("w", encoding="utf-8") as file:
        yield file


class _LeftOut:
    """Prints the first metrics that are left out, with the reason, and the number of the others."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, sentence: str) -> None:
        self.count += 1
        if self.count <= MAX_LEFT_OUT:
            click.echo(visible(sentence), err=True)

    def __enter__(self) -> Callable[[str], None]:
        return self

    def __exit__(self, *_: object) -> None:
        if self.count > MAX_LEFT_OUT:
            click.echo(f"{self.count - MAX_LEFT_OUT} more left out", err=True)
