# SPDX-License-Identifier: Apache-2.0
"""Run the gates of a night with Robot Framework, and print a summary of one screen."""

import io
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from calibration.base.errors import CalibrationError, EnvironmentLacksError, InputError
from calibration.base.grouping import grouped
from calibration.base.text import cut, sentence_case, some_of, visible
from calibration.base.units import plural

if TYPE_CHECKING:
    from calibration.gates.night import Night
    from calibration.judge.answer import Answer

SUITES: Final = Path(__file__).parent

OUTPUTS: Final = ("output.xml", "log.html", "report.html")
"""Files of Robot Framework."""

XUNIT: Final = "xunit.xml"
"""JUnit XML, with a test for each gate and SUT."""

MAX_SHOWN: Final = 10
"""Failures, and reasons for skipping, on the screen; the log has all."""

INTERRUPTED_CODE: Final = 253
"""Robot Framework's return code for an interrupted run."""

MAX_NAMES: Final = 5
"""SUTs that may not be tested, named before the rest is counted."""

MAX_FAILED_CODE: Final = 250
"""Up to this value, Robot Framework's return code is the number of failed tests."""


class GateOutcome(NamedTuple):
    """Result of one gate for one SUT; ``sut`` is empty for a gate that is not about a SUT.

    ``verdicts``: the gate only checks the judge's verdicts, so it fails exactly if one of them does.
    """

    gate: str
    sut: str
    status: str
    message: str
    verdicts: bool

    @property
    def names(self) -> tuple[str, str]:
        """Testbed and SUT."""
        testbed, _, sut = self.sut.partition(" / ")
        return testbed, sut


def run_gates(
    output: Path, night: "Night", gates: Iterable[Path] = (), variables: Mapping[str, Path] | None = None
) -> list[GateOutcome]:
    """Run the suites for *night*, and those in *gates*, with *variables*; return the result of each gate for each SUT.

    Robot Framework's files go to *output*. Raises like ``run_suites``, and ``InputError`` if nothing was tested.
    """
    from calibration.gates.library import GATING, Gating  # noqa: PLC0415 - the same

    given = {"RESULTS": night.results, **(variables or {})}
    token = GATING.set(Gating(night))
    try:
        tested = run_suites(
            (SUITES, *gates),
            output,
            given,
            name="Gates of a night",
            metadata=[f"Night:{night.night}"],
            exclude=[] if "LIVE" in given else ["live"],
        )
    finally:
        GATING.reset(token)
    if not any(test.status in {"PASS", "FAIL"} for test in tested):
        raise InputError(f"all {len(tested)} gates were skipped; see {output}")
    return tested


def run_suites(
    suites: Iterable[Path], output: Path, variables: Mapping[str, Path], *, name: str, **options: Any
) -> list[GateOutcome]:
    """Run *suites* as one called *name*; return the result of each test. *options* are Robot Framework's.

    Raises ``InputError`` if a suite cannot be used, ``EnvironmentLacksError`` if Robot Framework failed or cannot write
    a file, ``KeyboardInterrupt`` if it was interrupted.
    """
    from robot.api import ExecutionResult, ResultWriter  # noqa: PLC0415 - the same
    from robot.run import run  # noqa: PLC0415 - Robot Framework is only needed here

    from calibration.gates.library import GATING, KeepFailed, PerSut  # noqa: PLC0415 - the same

    for path in (output / name for name in (*OUTPUTS, XUNIT)):
        try:
            path.unlink(missing_ok=True)
        except OSError as kept:
            raise EnvironmentLacksError(f"cannot write {path}: {kept.strerror}; remove it") from kept
    errors = io.StringIO()
    code: int = run(
        *suites,
        name=name,
        variable=[f"{key}:{value.absolute()}" for key, value in variables.items()],
        outputdir=output,
        console="quiet",
        stdout=io.StringIO(),
        stderr=errors,
        prerebotmodifier=KeepFailed(),
        **options,
    )
    if code == INTERRUPTED_CODE:
        raise KeyboardInterrupt
    if code > MAX_FAILED_CODE:
        error: type[CalibrationError] = InputError if code < INTERRUPTED_CODE else EnvironmentLacksError
        said = errors.getvalue().partition("\nTraceback")[0].strip()
        raise error(f"Robot Framework cannot run the gates: {said}")
    _check_written(output, OUTPUTS, errors)
    result = ExecutionResult(output / "output.xml")
    faults = [message.message for message in result.errors.messages if message.level == "ERROR"]
    if faults:
        raise InputError(f"Robot Framework cannot read the gates: {faults[0]}")
    keep = KeepFailed()
    result.visit(keep)
    if keep.changed:
        result.save(output / "output.xml")
    if (gating := GATING.get()) is not None:
        result.visit(PerSut(gating))
    ResultWriter(result).write_results(xunit=output / XUNIT, report=None, log=None, stdout=io.StringIO(), stderr=errors)
    _check_written(output, (XUNIT,), errors)
    return [_tested(test) for test in result.suite.all_tests]


def _check_written(output: Path, names: Iterable[str], errors: io.StringIO) -> None:
    """Raise ``EnvironmentLacksError`` if Robot Framework did not write one of the files *names*."""
    if missing := [path for path in names if not (output / path).exists()]:
        raise EnvironmentLacksError(f"{', '.join(missing)} cannot be written to {output}: {errors.getvalue().strip()}")


def _tested(test: Any) -> GateOutcome:
    metadata = test.metadata
    sut = f"{metadata['Testbed']} / {metadata['SUT']}" if "SUT" in metadata else ""
    return GateOutcome(
        gate=metadata.get("Gate", test.name),
        sut=sut,
        status=test.status,
        message=test.message,
        verdicts="verdicts" in test.tags,
    )


def print_summary(tested: list[GateOutcome], title: str, output: Path) -> None:
    """Print one screen: each gate with its counts, and each failed or skipped SUT with the reason."""
    suts = {test.sut for test in tested if test.sut}
    click.echo(f"{title}: {plural(len(suts), 'SUT')}\n")
    width = max(len(test.gate) for test in tested)
    click.echo(f"  {'Gate':{width}}  {'passed':>6}  {'failed':>6}  {'skipped':>7}")
    counts: dict[str, Counter[str]] = {}
    for test in tested:
        counts.setdefault(test.gate, Counter())[test.status] += 1
    for gate, count in counts.items():
        click.echo(f"  {visible(gate):{width}}  {count['PASS']:>6}  {count['FAIL']:>6}  {count['SKIP']:>7}")
    _print_alike("Failed", [test for test in tested if test.status == "FAIL"])
    _print_alike("Skipped (does not count as passed)", [test for test in tested if test.status == "SKIP"])
    click.echo(f"\n{output / 'log.html'} has every step, {output / 'xunit.xml'} is for CI.")


def may_we_test(answers: Iterable["Answer"], tested: Iterable[GateOutcome]) -> str:
    """Return in one line which SUTs may be tested, by the *answers* on them and the lab's own gates.

    A gate that fails and is not about a SUT is about all of them.
    """
    failed = {test.sut for test in tested if test.status == "FAIL" and not test.verdicts}
    may = grouped(
        ("no" if failed & {"", f"{item.testbed} / {item.sut}"} else item.test, f"{item.testbed}/{item.sut}")
        for item in answers
    )
    parts = [f"{word}: {some_of(may[word], MAX_NAMES)}" for word in ("no", "unknown") if word in may]
    parts += [f"yes: {plural(len(may['yes']), 'SUT')}"] if "yes" in may else []
    return f"May we test? {sentence_case('; '.join(parts))}"


def _print_alike(title: str, tested: list[GateOutcome]) -> None:
    """Print *tested* by gate and reason, with the SUTs affected."""
    alike = grouped(((test.gate, test.message), test.sut) for test in tested)
    if alike:
        click.echo(f"\n{title}")
    columns = shutil.get_terminal_size((110, 24)).columns
    for (gate, reasons), suts in list(alike.items())[:MAX_SHOWN]:
        first, *rest = reasons.split("\n")
        more = f" (and {len(rest)} more)" if rest else ""
        names = [sut for sut in suts if sut]
        title = f"  {gate}{f' ({len(names)})' if len(names) > 1 else ''}: {', '.join(names)}"
        click.echo(cut(visible(title), columns))
        click.echo(cut(visible(f"      {first}"), columns - len(more)) + more)
    if len(alike) > MAX_SHOWN:
        click.echo(f"  and {len(alike) - MAX_SHOWN} more")
