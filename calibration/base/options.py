# SPDX-License-Identifier: Apache-2.0
"""Common arguments and options of several commands."""

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from calibration.base.grouping import grouped
from calibration.base.places import RESULTS

results_option = click.option(
    "--results",
    type=click.Path(path_type=Path, file_okay=False),
    default=RESULTS,
    help="Directory of results. Default: results/ of the checkout, of the working directory where the package is "
    "installed, or of CALIBRATION_HOME.",
)


class OutputPath(click.Path):
    """A path to write to, not of a device, FIFO or socket: a file would replace it for everybody."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path. Raises ``click.BadParameter``."""
        if not value:  # of a variable that is not set: Path would make it the working directory
            self.fail("the path is empty", param, ctx)
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        try:
            special = path.exists() and not (path.is_file() or path.is_dir())
        except OSError as error:  # such as too long a name
            self.fail(f"{path}: {error.strerror}", param, ctx)
        if special:
            self.fail(f"{path} is a device, FIFO or socket, not a file", param, ctx)
        return path


def output_option(description: str, *, directory: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option ``--output`` of a command that prints; None and ``-`` are standard output.

    With *directory* it may be one.
    """
    return click.option(
        "-o",
        "--output",
        type=OutputPath(path_type=Path, dir_okay=directory, allow_dash=True),
        callback=lambda _context, _option, path: None if path == Path("-") else path,
        metavar="PATH" if directory else "FILE",
        help=description,
    )


class SectionedCommand(click.Command):
    """A command whose --help groups the options by the sections of their classes (``SectionOption``)."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a list of options for each section, and one for the rest."""
        records = [
            (getattr(parameter, "section", "Options"), record)
            for parameter in self.get_params(ctx)
            if isinstance(parameter, click.Option) and (record := parameter.get_help_record(ctx)) is not None
        ]
        for section, of_section in grouped(records).items():
            with formatter.section(section):
                formatter.write_dl(of_section)


class SectionOption(click.Option):
    """An option of one mode of a command."""

    section = ""


class _Unlisted(click.Argument):
    """An optional argument that --help does not mention."""

    def get_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return nothing to print."""
        del ctx
        return []


def results_option_or_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give *command* the results as an option; scripts that give them as an argument, as was usual, still work."""

    @click.argument("former", cls=_Unlisted, required=False, type=click.Path(path_type=Path, file_okay=False))
    @results_option
    @wraps(command)
    def with_results(*, former: Path | None, results: Path, **given: Any) -> Any:
        if (
            former is not None
            and click.get_current_context().get_parameter_source("results") is ParameterSource.COMMANDLINE
        ):
            raise click.UsageError(f"results given twice, as {former} and as --results {results}")
        return command(results=results if former is None else former, **given)

    return with_results
