# SPDX-License-Identifier: Apache-2.0
"""``calibration audit``: compare the configuration of a machine with what is expected."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from calibration.base.errors import VERDICT_FAILED, InputError
from calibration.base.options import results_option
from calibration.results.find import find_run

if TYPE_CHECKING:  # slow, and not needed for --help
    from calibration.audit.readings import AuditedMachine
    from calibration.audit.states import ExpectedState
    from calibration.preflight.checks import Check


@click.command("audit", epilog="Example: calibration audit t1/sut1 --expect tuned_realtime")
@click.argument("root", metavar="[RUN]", required=False)
@results_option
@click.option(
    "--expect",
    metavar="STATE",
    help="Compare with this expected state, a name or a file, instead of the one that the run began with.",
)
@click.option("--learn", is_flag=True, help="Print an expected state made from RUN: to keep, correct and use.")
@click.option("--json", "as_json", is_flag=True, help="Print the settings as a JSON list.")
def audit_command(root: str | None, *, results: Path, expect: str | None, learn: bool, as_json: bool) -> None:
    """Compare the configuration of a SUT with its expected state.

    RUN is as for calibration report, / for this machine, a captured tree, or its tar.gz. By default it is the newest
    run.

    Prints each setting with the expected and the found value. The exit code is 1 if a setting is not met or unknown. A
    setting that cannot exist on the machine is shown and fails nothing (docs/guide/audit.rst).
    """
    if learn and (expect is not None or as_json):
        raise click.UsageError("--learn cannot be combined with --expect or --json")
    path = Path(root or ".")
    # A path is a machine; a name, or no argument, is a run.
    place = path if root is not None and (path.exists() or path.is_absolute()) else find_run(results, root)
    if learn:
        from calibration.audit.learn import learned  # noqa: PLC0415 - as above

        click.echo(learned(_machine(place), str(root or place)), nl=False)
        return
    state = None if expect is None else _state(expect)
    checks = _recorded(place) if state is None else _evaluated(place, state)
    if as_json:
        click.echo(json.dumps([check.model_dump(mode="json") for check in checks], indent=1))
    else:
        _print(checks, state)
    if any(check.failed for check in checks):
        sys.exit(VERDICT_FAILED)


def _machine(place: Path) -> "AuditedMachine":
    from calibration.audit.readings import open_machine  # noqa: PLC0415 - as above

    return open_machine(place)


def _state(expect: str) -> "ExpectedState":
    from calibration.audit.states import read_state  # noqa: PLC0415 - as above

    return read_state(expect)


def _evaluated(place: Path, state: "ExpectedState") -> "tuple[Check, ...]":
    """Return the settings of *state* as the machine in *place* has them."""
    from calibration.audit.kinds import evaluate_items  # noqa: PLC0415 - as above
    from calibration.preflight.checks import checks_of  # noqa: PLC0415
    from calibration.preflight.configuration import configuration_of  # noqa: PLC0415

    return configuration_of(checks_of(evaluate_items(state.items, _machine(place)), {}))


def _recorded(place: Path) -> "tuple[Check, ...]":
    """Return the settings as they were found when the last attempt of the run in *place* began."""
    from calibration.preflight.configuration import newest_configuration  # noqa: PLC0415 - as above
    from calibration.results.layout import RUN  # noqa: PLC0415
    from calibration.results.store import read_run  # noqa: PLC0415

    if place.is_dir() and not (place / RUN).exists():
        raise InputError(f"{place}: not a run: give the expected state with --expect STATE")
    checks = newest_configuration([attempt.checks for attempt in read_run(place).attempts])
    if not checks:
        raise InputError(
            f"{place}: the run began without an expected state: set calibration_expected_state, or give one with "
            "--expect (docs/guide/audit.rst)"
        )
    return checks


def _print(checks: "Iterable[Check]", state: "ExpectedState | None") -> None:
    from rich.table import Table  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415

    from calibration.base.console import console  # noqa: PLC0415
    from calibration.preflight.configuration import WORDS, WORST_FIRST, configuration_summary  # noqa: PLC0415

    styles = {"met": "", "not_met": "red", "unknown": "yellow", "impossible": "dim"}
    table = Table(box=None, pad_edge=False, show_edge=False, expand=True)  # or ratios mean nothing
    for title, ratio in (("", None), ("Setting", 4), ("Expected", 2), ("Found", 3)):
        table.add_column(title, overflow="fold", ratio=ratio)
    for check in sorted(checks, key=lambda check: -WORST_FIRST.index(check.outcome)):  # the end of a screen is seen
        words = (WORDS[check.outcome], check.title, check.expected, check.found)
        table.add_row(*(Text(word, style=styles[check.outcome]) for word in words))
    screen = console(sys.stdout)
    screen.print(table)
    if state is not None and state.source is not None:
        screen.print(Text(f"{state.title} ({state.source.document}, read on {state.source.date})"))
    screen.print(configuration_summary(checks))
