# SPDX-License-Identifier: Apache-2.0
"""``calibration gate``: run the gates of a night; write Robot Framework's log and JUnit XML, print a summary."""

import shutil
import sys
from datetime import date, datetime
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import TYPE_CHECKING, Final

import click
from click.core import ParameterSource

from calibration.base.errors import ENVIRONMENT, GOOD, VERDICT_FAILED, InputError
from calibration.base.files import able_to
from calibration.base.options import SectionedCommand, SectionOption, results_option_or_argument
from calibration.base.text import visible
from calibration.gates.run import may_we_test, print_summary, run_gates

if TYPE_CHECKING:
    from calibration.gates.night import Night
    from calibration.quick.measure import Wanted

VERDICTS: Final = "verdicts.json"
"""The file, beside Robot Framework's, with the verdicts used by the gates."""

ANSWERS: Final = {
    GOOD: "May we test? Yes: nothing has changed.",
    VERDICT_FAILED: "May we test? No: something has changed.",
    ENVIRONMENT: "May we test? Unknown: something could not be decided.",
}
"""The last line of the quick gate, by exit code."""

SAVED: Final = {
    GOOD: "Quiet enough? Yes.",
    ENVIRONMENT: "Quiet enough? No, or unknown: see above.",
}
"""The last line of the run before a benchmark."""

COMPARED: Final = {
    GOOD: "The same as before? Yes: nothing has changed.",
    VERDICT_FAILED: "The same as before? No: something has changed.",
    ENVIRONMENT: "The same as before? Unknown: something could not be decided.",
}
"""The last line of the run after it."""

OUTCOMES: Final = {"passed": "passed", "noted": "noted", "failed": "FAILED", "undecided": "unknown"}
"""What is printed of each outcome."""

TITLES: Final = {
    "measured": "Measured",
    "restored": "Settings restored",
    "promises": "Preflight",
    "context": "Configuration",
    "latency": "Idle latency",
    "bandwidth": "Read bandwidth",
    "clock": "Core clock",
}
"""What is printed of each check around a benchmark."""


class NightOption(SectionOption):
    """An option of the gates of a night."""

    section = "A night"


class QuickOption(SectionOption):
    """An option of the quick gate."""

    section = "Now (--quick)"


class HereOption(QuickOption):
    """An option of the quick gate around a benchmark."""

    section = "Around a benchmark (--quick)"


@click.command("gate", cls=SectionedCommand, epilog="Example: calibration gate --quick -i lab.yml --limit t1")
@results_option_or_argument
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("gate"),
    show_default=True,
    help="Directory for log.html, report.html, output.xml and xunit.xml, overwritten; not inside the results.",
)
@click.option(
    "--night",
    cls=NightOption,
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="DATE",
    help="Night to judge. Default: the newest.",
)
@click.option("--testbed", cls=NightOption, help="Only the SUTs of this testbed.")
@click.option("--sut", cls=NightOption, help="Only the SUT of this name.")
@click.option(
    "--verdicts",
    cls=NightOption,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Use the output of calibration judge --json instead of judging.",
)
@click.option(
    "--live",
    cls=NightOption,
    type=click.Path(path_type=Path),
    metavar="INVENTORY",
    help="Log in to each SUT by this inventory, and check that it still matches its run.",
)
@click.option(
    "--known-hosts",
    cls=NightOption,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Host keys for --live. Default: ~/.ssh/known_hosts. Unknown keys are refused.",
)
@click.option(
    "--gates",
    cls=NightOption,
    type=click.Path(path_type=Path),
    multiple=True,
    help="Suite, or directory of suites, with your own gates; repeatable.",
)
@click.option(
    "--quick", cls=QuickOption, is_flag=True, help="Measure sentinels now, and compare with what was accepted."
)
@click.option(
    "-i",
    "--inventory",
    cls=QuickOption,
    type=click.Path(path_type=Path),
    help="The SUTs. Default: Ansible's, this machine.",
)
@click.option(
    "--limit", cls=QuickOption, metavar="SUTS", help="Hosts and groups of the inventory, as for calibration run."
)
@click.option(
    "--forks",
    cls=QuickOption,
    type=click.IntRange(min=1),
    metavar="N",
    help="Measure at most N SUTs at the same time: 1 if they share a host. Default: ANSIBLE_FORKS, or 100.",
)
@click.option(
    "-e", "variables", cls=QuickOption, metavar="NAME=VALUE", multiple=True, help="An extra variable; repeatable."
)
@click.option(
    "--save",
    cls=HereOption,
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Measure this machine, without inventory and baseline, and keep the run in DIR.",
)
@click.option(
    "--against",
    cls=HereOption,
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="The same, compared with the newest run in DIR, which --save kept there.",
)
@click.option(
    "--change",
    cls=HereOption,
    type=click.FloatRange(5, 99),
    default=10.0,
    show_default=True,
    metavar="PERCENT",
    help="Change of this machine to be found by --save and --against.",
)
def gate_command(
    *,
    results: Path,
    output: Path,
    night: datetime | None,
    testbed: str | None,
    sut: str | None,
    verdicts: Path | None,
    live: Path | None,
    known_hosts: Path | None,
    gates: tuple[Path, ...],
    quick: bool,
    inventory: Path | None,
    limit: str | None,
    forks: int | None,
    variables: tuple[str, ...],
    save: Path | None,
    against: Path | None,
    change: float,
) -> None:
    """Ask whether SUTs may be tested, by a night or now (--quick).

    Of a night, the gates of every SUT are run, with a log and JUnit XML. The exit code is 1 if a gate failed. A skipped
    gate, for example without a baseline, does not fail.

    --quick, before and after tests, takes at most a minute (docs/guide/quick_gate.rst). It measures a few sentinels on
    all SUTs at once, into OUTPUT/runs, and compares settings, context and readings with the accepted run. The exit code
    is 0 if the SUTs may be tested, 1 if one has changed, 3 if something could not be decided.

    --quick --save DIR and --quick --against DIR, around a benchmark, compare this machine with itself. The exit code of
    --save is 3 if it is not quiet enough, those of --against are the same as above.
    """
    here = save is not None or against is not None
    _refuse_options_of_others(quick=quick, here=here)
    if here:
        sys.exit(_gate_here(save, against, change / 100))
    if output.resolve().is_relative_to(results.resolve()):  # runs are never added to
        raise InputError(f"{output} is inside the results; choose another --output")
    if quick:
        from calibration.quick.measure import Wanted  # noqa: PLC0415 - slow, and not needed for --help

        sys.exit(_quick_gate(results, output, Wanted(inventory, limit, variables, forks)))
    for gate in gates:
        if not gate.exists():
            raise InputError(f"no gates at {gate}")
    if known_hosts is not None and live is None:
        raise click.UsageError("--known-hosts needs --live INVENTORY")
    with able_to(f"write to {output}"):
        output.mkdir(parents=True, exist_ok=True)
        found = _read(results, output / VERDICTS, None if night is None else night.date(), verdicts).of(testbed, sut)
    options = {"VERDICTS": output / VERDICTS, "LIVE": live, "KNOWN_HOSTS": known_hosts}
    given = {name: value for name, value in options.items() if value is not None}
    tested = run_gates(output, found, gates, given)
    print_summary(tested, f"Night {found.night}", output)
    click.echo(may_we_test([found.answers[sut] for sut in found.verdicts], tested))
    sys.exit(VERDICT_FAILED if any(test.status == "FAIL" for test in tested) else GOOD)


def _read(results: Path, used: Path, night: date | None, verdicts: Path | None) -> "Night":
    """Return the *night* to test, and write its verdicts to the file *used*."""
    from calibration.gates.night import Gathered, read_night  # noqa: PLC0415 - slow, and not needed for --help
    from calibration.judge.night import write_judgement  # noqa: PLC0415 - the same

    if verdicts is not None:
        found = read_night(results, night=night, verdicts=verdicts)
        if verdicts.resolve() != used.resolve():
            shutil.copyfile(verdicts, used)
        return found
    gathered = Gathered()
    with used.open("wb") as stream:
        judgement = write_judgement(stream, results, night, gathered.add)
    return gathered.night(results, judgement.night, judgement.answers)


def _refuse_options_of_others(*, quick: bool, here: bool) -> None:
    """Raise ``click.UsageError`` if an option of another gate was given."""
    context = click.get_current_context()
    for option in context.command.params:
        if context.get_parameter_source(option.name or "") is not ParameterSource.COMMANDLINE:
            continue
        if isinstance(option, NightOption if quick else QuickOption):
            raise click.UsageError(f"{option.opts[-1]} {'does not go with' if quick else 'needs'} --quick")
        if isinstance(option, HereOption) and not here:
            raise click.UsageError(f"{option.opts[-1]} needs --save or --against")
        if here and not isinstance(option, HereOption) and option.name != "quick":
            raise click.UsageError(f"{option.opts[-1]} does not go with --save and --against")


def _gate_here(save: Path | None, against: Path | None, change: float) -> int:
    """Measure this machine, print its checks, and return the exit code."""
    from calibration.quick.gate import exit_code  # noqa: PLC0415 - slow, and not needed for --help
    from calibration.quick.here import check_here  # noqa: PLC0415 - the same
    from calibration.results.find import find_run  # noqa: PLC0415 - the same
    from calibration.results.store import read_run  # noqa: PLC0415 - the same

    before = None if against is None else read_run(find_run(against))
    if save is not None:
        with able_to(f"write to {save}"):
            save.mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=save):  # one that exists may be of another user
                pass
    click.echo("Measuring sentinels, about 20 s")
    with TemporaryDirectory() as folder:
        checks = check_here(save or Path(folder), before, change, click.echo)
    for check in checks:
        for result in dict.fromkeys(check.results):
            click.echo(f"  {OUTCOMES[result.outcome]:9} {TITLES[check.check]}: {visible(result.text)}")
    code = exit_code(checks)
    click.echo((SAVED if before is None else COMPARED)[code])
    return code


def _quick_gate(results: Path, output: Path, wanted: "Wanted") -> int:
    """Run the quick gate, print its summary, and return the exit code."""
    from calibration.quick.gate import check_inventory, exit_code, log_checks  # noqa: PLC0415 - the same

    with able_to(f"write to {output}"):
        output.mkdir(parents=True, exist_ok=True)
        checks = check_inventory(output, results, wanted, click.echo)
        print_summary(log_checks(output, checks), "Quick gate", output)
    code = exit_code(checks)
    click.echo(ANSWERS[code])
    return code
