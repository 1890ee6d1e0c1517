# SPDX-License-Identifier: Apache-2.0
"""The quick gate: measure, check, measure again what is outside, and check that."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from calibration.base.errors import ENVIRONMENT, GOOD, VERDICT_FAILED, CalibrationError, InputError
from calibration.base.units import plural
from calibration.gates.run import OUTPUTS, XUNIT, GateOutcome, run_suites
from calibration.judge.baseline_files import Baselines
from calibration.judge.tolerances import read_tolerances
from calibration.quick.checks import QuickCheck, accepted_state, check_sut, write_checks
from calibration.quick.measure import LOG, Sentry, Wanted
from calibration.results.history import Sut
from calibration.results.model import RunDocument

SUITE: Final = Path(__file__).with_name("quick.robot")

CHECKS: Final = "quick.json"
"""The results of all checks, beside Robot Framework's files."""

FILES: Final = (CHECKS, XUNIT, *OUTPUTS)
"""What a gate leaves. Those of an earlier one are removed first: CI would take them for the answer."""


def check_inventory(folder: Path, results: Path, wanted: Wanted, say: Callable[[str], None]) -> list[QuickCheck]:
    """Measure the SUTs *wanted*, and return their checks against what is accepted in *results*.

    What is outside, or too noisy to decide, is measured a second time. Raises ``InputError`` if the results or a file
    of them cannot be read, and like ``Sentry.measure``.
    """
    for name in FILES:
        (folder / name).unlink(missing_ok=True)
    if not results.is_dir():
        raise InputError(f"no directory of results at {results}")
    tolerances = read_tolerances(results)
    if tolerances.fault is not None:
        raise InputError(tolerances.fault)
    baselines = Baselines(results)
    sentry = Sentry(folder, results, wanted)
    say(f"Measuring sentinels, about half a minute ({folder / LOG})")
    documents: dict[Sut, list[RunDocument]] = {}

    def checked(found: Sequence[RunDocument]) -> dict[Sut, list[QuickCheck]]:
        for document in found:
            documents.setdefault((document.run.testbed, document.run.sut), []).append(document)
        return {
            sut: list(check_sut(of_sut, accepted_state(results, of_sut[0], baselines), tolerances))
            for sut, of_sut in documents.items()
        }

    checks = checked(sentry.measure())
    again = {sut: {kind for check in of_sut for kind in check.repeat} for sut, of_sut in checks.items()}
    if suts := [sut for sut, kinds in again.items() if kinds]:
        kinds = set().union(*again.values())
        say(f"Measuring {', '.join(sorted(kinds))} again on {plural(len(suts), 'SUT')}")
        try:
            checks = checked(sentry.measure(kinds, suts))
        except CalibrationError as error:
            say(f"Not measured again: {error}")
    return [check for sut in sorted(checks) for check in checks[sut]]


def log_checks(folder: Path, checks: Sequence[QuickCheck]) -> list[GateOutcome]:
    """Write *checks*, and the log and JUnit XML of their tests, to *folder*; return the tests. Raises ``OSError``."""
    write_checks(folder / CHECKS, checks)
    return run_suites([SUITE], folder, {"CHECKS": folder / CHECKS}, name="Quick gate")


def exit_code(checks: Sequence[QuickCheck]) -> int:
    """Return the exit code: a failed check comes before an undecided one, which is no pass."""
    outcomes = {check.outcome for check in checks}
    return VERDICT_FAILED if "failed" in outcomes else ENVIRONMENT if "undecided" in outcomes else GOOD
