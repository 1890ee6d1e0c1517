# SPDX-License-Identifier: Apache-2.0
"""``calibration merge``: join the results of several controllers."""

import sys
from pathlib import Path

import click

from calibration.base.errors import BAD_INPUT

_RESULTS = click.Path(path_type=Path, file_okay=False)


@click.command("merge", epilog="Example: calibration merge results slices/*")
@click.argument("destination", type=_RESULTS)
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True, type=_RESULTS)
def merge_command(destination: Path, sources: tuple[Path, ...]) -> None:
    """Copy the runs of other results into DESTINATION.

    Each run is verified, and appears whole or not at all. Runs that are there already are skipped, so the command can
    be interrupted and repeated; several at once wait for each other. A run that differs from the one in DESTINATION, or
    is damaged, is refused: the others are copied, and the exit code is 2.
    """
    from calibration.run.merge import merge  # noqa: PLC0415 - the models are only needed here

    merged = merge(destination, sources)
    for reason in merged.refused:
        click.echo(f"refused: {reason}", err=True)
    click.echo(
        f"{destination}: {merged.copied} runs merged, {merged.known} there already, {len(merged.refused)} refused"
    )
    if merged.refused:
        sys.exit(BAD_INPUT)
