# SPDX-License-Identifier: Apache-2.0
"""``calibration compare``: what differs between two runs, SUTs or pages, and whether the data supports it."""

import sys
from pathlib import Path

import click


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
