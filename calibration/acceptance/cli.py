# SPDX-License-Identifier: Apache-2.0
"""``calibration gate``: the gates of a night, with Robot Framework's log, JUnit XML and one screen of summary."""

import io
import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterable
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from calibration.errors import GOOD, VERDICT_FAILED, CalibrationError, EnvironmentLacksError, InputError
from calibration.options import results_argument
from calibration.text import visible

SUITES: Final = Path(__file__).parent

VERDICTS: Final = "verdicts.json"
"""The file beside Robot Framework's with the verdicts that the gates went by."""

SHOWN: Final = 10
"""So many failures, and so many reasons for a skip, are on the one screen; the log has all."""

STOPPED: Final = 253
"""Robot Framework's return code for a run that was interrupted."""

MOST_FAILED: Final = 250
"""Up to here Robot Framework's return code is the number of tests that failed."""


class Tested(NamedTuple):
    """How one gate ended for one SUT; ``sut`` is empty for a gate that is about none.

    ``verdicts``: it holds the judge's verdicts against nothing else, so that it fails where one of them does.
    """

    gate: str
    sut: str
    status: str
    message: str
    verdicts: bool


@click.command("gate", epilog="Example: calibration gate --testbed t1 --output gate")
@results_argument
@click.option("--night", type=click.DateTime(["%Y-%m-%d"]), help="The night to judge, by default the newest.")
@click.option("--testbed", help="Only the SUTs of this testbed.")
@click.option("--sut", help="Only the SUT of this name.")
@click.option(
    "--verdicts",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Take what calibration judge --json printed in place of judging here.",
)
@click.option(
    "--live",
    type=click.Path(path_type=Path),
    metavar="INVENTORY",
    help="Log in to each SUT as this inventory says, and see whether it is still what was measured.",
)
@click.option(
    "--known-hosts",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Host keys for --live, by default ~/.ssh/known_hosts. One that is not there is refused.",
)
@click.option(
    "--gates",
    type=click.Path(path_type=Path),
    multiple=True,
    help="A suite, or a directory of suites, with gates of your own, run beside these. May be given several times.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("gate"),
    show_default=True,
    help="Directory of log.html, report.html, output.xml and xunit.xml, which are written anew; not below RESULTS.",
)
def gate_command(
    results: Path,
    *,
    night: datetime | None,
    testbed: str | None,
    sut: str | None,
    verdicts: Path | None,
    live: Path | None,
    known_hosts: Path | None,
    gates: tuple[Path, ...],
    output: Path,
) -> None:
    """Run the gates of a night on every SUT, with a log and JUnit XML.

    The exit code is 1 where a gate failed; a gate that was skipped, because there is no baseline yet, is shown and
    fails nothing.
    """
    from calibration.acceptance.night import read_night  # noqa: PLC0415 - a second that --help need not pay

    for each in gates:
        if not each.exists():
            raise InputError(f"expected gates at {each}, found nothing there")
    if known_hosts is not None and live is None:
        raise click.UsageError("--known-hosts needs --live INVENTORY")
    _check_output(results, output)
    when = None if night is None else night.date()
    found = read_night(results, night=when, verdicts=verdicts, testbed=testbed, sut=sut)
    judged = [each.model_dump(mode="json") for of_sut in found.verdicts.values() for each in of_sut]
    try:
        output.mkdir(parents=True, exist_ok=True)
        (output / VERDICTS).write_text(
            json.dumps({"night": str(found.night), "verdicts": judged}, indent=1) + "\n", encoding="utf-8"
        )
    except OSError as error:
        raise EnvironmentLacksError(f"expected to write to {output}: {error.strerror}") from error
    variables = {"RESULTS": results, "VERDICTS": output / VERDICTS, "LIVE": live, "KNOWN_HOSTS": known_hosts}
    given = {name: value for name, value in variables.items() if value is not None}
    tested = run_gates(output, given, gates, night=found.night)
    print_summary(tested, found.night, output)
    sys.exit(VERDICT_FAILED if any(each.status == "FAIL" for each in tested) else GOOD)


def _check_output(results: Path, output: Path) -> None:
    """Raise ``InputError`` where *output* is below *results*: what is there are runs, and they are never added to."""
    if output.resolve().is_relative_to(results.resolve()):
        raise InputError(f"expected a directory outside of the results for the gates' files, found {output}")


def run_gates(
    output: Path, variables: dict[str, Path], gates: Iterable[Path] = (), *, night: date | None = None
) -> list[Tested]:
    """Run the suites, and those in *gates*, with *variables*; return how each gate ended for each SUT.

    Their files go to *output*, where *night* is told.

    Raises ``InputError`` where a suite cannot be used or nothing was tested, ``EnvironmentLacksError`` where Robot
    Framework failed, ``KeyboardInterrupt`` where it was interrupted.
    """
    from robot.api import ExecutionResult  # noqa: PLC0415 - the same
    from robot.run import run  # noqa: PLC0415 - Robot Framework is only needed here

    said = io.StringIO()
    code: int = run(
        SUITES,
        *gates,
        name="Gates of a night",
        metadata=[] if night is None else [f"Night:{night}"],
        variable=[f"{name}:{value.absolute()}" for name, value in variables.items()],
        exclude=[] if "LIVE" in variables else ["live"],
        outputdir=output,
        xunit="xunit.xml",
        console="quiet",
        stdout=io.StringIO(),
        stderr=said,
    )
    if code == STOPPED:
        raise KeyboardInterrupt
    if code > MOST_FAILED:
        error: type[CalibrationError] = InputError if code < STOPPED else EnvironmentLacksError
        raise error(f"expected Robot Framework to run the gates, it said: {said.getvalue().strip()}")
    result = ExecutionResult(output / "output.xml")
    faults = [each.message for each in result.errors.messages if each.level == "ERROR"]
    if faults:
        raise InputError(f"expected gates that Robot Framework can read, it said: {faults[0]}")
    tested = [_tested(each) for each in result.suite.all_tests]
    if not any(each.status in {"PASS", "FAIL"} for each in tested):
        raise InputError(f"expected gates that pass or fail, found {len(tested)}, all of them skipped: see {output}")
    return tested


def _tested(test: Any) -> Tested:
    metadata = test.metadata
    sut = f"{metadata['Testbed']} / {metadata['SUT']}" if "SUT" in metadata else ""
    return Tested(
        gate=metadata.get("Gate", test.name),
        sut=sut,
        status=test.status,
        message=test.message,
        verdicts="verdicts" in test.tags,
    )


def print_summary(tested: list[Tested], night: date, output: Path) -> None:
    """Print one screen: each gate with its counts, and each SUT that failed or skipped one with the reason."""
    suts = {each.sut for each in tested if each.sut}
    click.echo(f"Night {night}: {len(suts)} SUT{'s' * (len(suts) != 1)}\n")
    width = max(len(each.gate) for each in tested)
    click.echo(f"  {'Gate':{width}}  {'passed':>6}  {'failed':>6}  {'skipped':>7}")
    counts: dict[str, Counter[str]] = {}
    for each in tested:
        counts.setdefault(each.gate, Counter())[each.status] += 1
    for gate, count in counts.items():
        click.echo(f"  {visible(gate):{width}}  {count['PASS']:>6}  {count['FAIL']:>6}  {count['SKIP']:>7}")
    _print_alike("Failed", [each for each in tested if each.status == "FAIL"])
    _print_alike("Skipped, which is no pass", [each for each in tested if each.status == "SKIP"])
    click.echo(f"\n{output / 'log.html'} has every step, {output / 'xunit.xml'} is for CI.")


def _print_alike(title: str, tested: list[Tested]) -> None:
    """Print *tested* by gate and reason, with the SUTs that have it."""
    alike: dict[tuple[str, str], list[str]] = {}
    for each in tested:
        alike.setdefault((each.gate, each.message), []).append(each.sut)
    if alike:
        click.echo(f"\n{title}")
    columns = shutil.get_terminal_size((110, 24)).columns
    for (gate, reasons), suts in list(alike.items())[:SHOWN]:
        first, *rest = reasons.split("\n")
        more = f" (and {len(rest)} more)" if rest else ""
        names = [each for each in suts if each]
        click.echo(_cut(f"  {gate}{f' ({len(names)})' if len(names) > 1 else ''}: {', '.join(names)}", columns))
        click.echo(_cut(f"      {first}", columns - len(more)) + more)
    if len(alike) > SHOWN:
        click.echo(f"  and {len(alike) - SHOWN} more")


def _cut(text: str, columns: int) -> str:
    text = visible(text)
    return text if len(text) <= columns else f"{text[: max(0, columns - 4)]} ..."
