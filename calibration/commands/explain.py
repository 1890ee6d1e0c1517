# SPDX-License-Identifier: Apache-2.0
"""``calibration explain``: what moved a lab's own results."""

from collections.abc import Mapping
from pathlib import Path

import click

from calibration.base.options import results_option


@click.command("explain", epilog="Example: calibration explain throughput.csv")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@results_option
@click.option(
    "-i",
    "--inventory",
    type=click.Path(path_type=Path),
    help="Inventory with the names of the SUTs whose addresses are in CSIT's files.",
)
@click.option("--all", "everything", is_flag=True, help="Print every change and test.")
@click.option("--json", "as_json", is_flag=True, help="Print all series, changes and coincidences as JSON.")
def explain_command(
    files: tuple[Path, ...], *, results: Path, inventory: Path | None, everything: bool, as_json: bool
) -> None:
    """Explain what moved the throughput of a lab.

    FILE is CSV with the columns sut, test, time, value and optionally unit, a result file of CSIT (.json, .json.gz), or
    a directory of such files. For each test: how much of the variance lies between SUTs, which SUT changed and when,
    and what changed in its calibration with it, more closely than chance (docs/guide/explain.rst).
    """
    from calibration.formats.throughput import read_throughput  # noqa: PLC0415 - as above
    from calibration.judge.explanation import explain  # noqa: PLC0415 - as above
    from calibration.report.screens.explanation import explanation_text  # noqa: PLC0415 - slow, not needed for --help

    found = explain(results, read_throughput(files), {} if inventory is None else _names(inventory))
    if as_json:
        click.echo(found.model_dump_json(indent=1))
    else:
        click.echo(explanation_text(found, everything=everything), nl=False)


def _names(inventory: Path) -> Mapping[str, str]:
    """Return the names of the SUTs in *inventory* by the names and addresses of their hosts."""
    from calibration.gates.live import read_inventory  # noqa: PLC0415 - only needed here

    names: dict[str, str] = {}
    for host, variables in read_inventory(inventory).items():
        sut = str(variables.get("calibration_sut") or variables.get("hostname") or host)
        testbed = variables.get("calibration_testbed")
        name = sut if testbed is None or "{{" in str(testbed) else f"{testbed}/{sut}"
        names |= {host: name, str(variables.get("ansible_host", host)): name}
    return names
