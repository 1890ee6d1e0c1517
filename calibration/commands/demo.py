# SPDX-License-Identifier: Apache-2.0
"""``calibration demo``: a made lab to try the commands on."""

from pathlib import Path

import click

from calibration.base.commandline import calibration_command


@click.command("demo", epilog="Example: calibration demo /tmp/demo")
@click.argument("directory", type=click.Path(path_type=Path))
def demo_command(directory: Path) -> None:
    """Write a made lab into DIRECTORY, to try the commands on.

    Ten testbeds and a month of nights in 170 MB: made numbers, no measurements. docs/guide/tutorial.rst goes through
    it. DIRECTORY must be empty or not exist.
    """
    from calibration.demo import lab  # noqa: PLC0415 - slow, and not needed for --help

    click.echo(f"{directory}: {lab.write_demo(directory)}. Its numbers are made, not measured. Try:")
    failing, repaired, new = ("/".join(sut) for sut in (lab.FAILING, lab.REPAIRED, lab.NEW))
    for words in (
        ("judge",), ("show", failing), ("accept", new, "--by", "NAME", "--reason", "first baseline"), ("gate",),
        ("trend", repaired, lab.NODE_1), ("explain", directory / lab.THROUGHPUT),
    ):  # fmt: skip
        click.echo(f"  {calibration_command(*words, results=directory)}")
