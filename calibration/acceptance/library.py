# SPDX-License-Identifier: Apache-2.0
"""The keywords that the gates of a night are made of, and what makes one test of each gate and SUT."""

from collections.abc import Sequence
from datetime import date
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final

from robot.api import SkipExecution, TestSuite, logger
from robot.api.deco import keyword, library
from robot.running import Keyword, TestCase

from calibration.acceptance import findings
from calibration.acceptance.findings import Findings
from calibration.acceptance.night import Night, read_night
from calibration.errors import InputError
from calibration.judge.verdicts import Check, NightVerdict
from calibration.measurements import declaration, registry
from calibration.measurements.jitter import JitterValues
from calibration.results.model import Measurement, RunDocument
from calibration.results.store import read_run
from calibration.text import message

RUNS_KEPT: Final = 16
"""So many run documents are kept in memory: a testbed's, which all gates ask for one after another."""

TESTBED: Final = "${TESTBED}"
SUT: Final = "${SUT}"
"""What stands for a testbed and a SUT in the text of a gate."""


@library(scope="GLOBAL", version="1", doc_format="TEXT")
class CalibrationLibrary:
    """Keywords of a night's gates: what is known of a SUT, and what it must show.

    Each gate that names ${TESTBED} or ${SUT} is run once for every SUT of the night. A keyword that finds nothing to
    judge skips the gate with the reason; only Should Be Shown fails it. A run is a run document, verdicts are those of
    `calibration judge`, findings are what a rule saw to be right, saw to be wrong, and could not tell.
    """

    ROBOT_LISTENER_API_VERSION = 3

    def __init__(
        self,
        results: Path | None = None,
        night: date | None = None,
        verdicts: Path | None = None,
        testbed: str | None = None,
        sut: str | None = None,
    ) -> None:
        """Judge *night* (default: the newest) of the store *results*, or take what judged it from the file *verdicts*.

        *testbed* and *sut* leave out all others.
        """
        self.ROBOT_LIBRARY_LISTENER = self
        self._asked: dict[str, Any] = {"night": night, "verdicts": verdicts, "testbed": testbed, "sut": sut}
        self._results = results
        self._read = lru_cache(maxsize=RUNS_KEPT)(read_run)

    @cached_property
    def _night(self) -> Night:
        if self._results is None:
            raise InputError("expected the directory of results in the variable RESULTS, found none")
        return read_night(self._results, **self._asked)

    def start_suite(self, suite: TestSuite, _result: object) -> None:
        """Put one test for each SUT of the night in the place of every test that names one."""
        if self._results is None:
            return  # the tests stay as they are written: they are looked at, or say what is missing
        tests = [each for test in suite.tests for each in self._of_each_sut(test)]
        suite.tests.clear()
        suite.tests.extend(tests)

    def _of_each_sut(self, test: TestCase) -> Sequence[TestCase]:
        steps = [each for each in test.body if isinstance(each, Keyword)]
        if not any(SUT in each.name or TESTBED in each.name for each in steps):
            return [test]
        return [_about(test, testbed, sut) for testbed, sut in self._night.verdicts]

    @keyword
    def read_run_of(self, testbed: str, sut: str) -> RunDocument:
        """Return the run document that stands for the SUT tonight; the gate is skipped where there is none."""
        directory = self._night.run_of((testbed, sut))
        if directory is None:
            raise SkipExecution(f"{sut} of {testbed} has no run on {self._night.night}")
        return self._read(directory)

    @keyword
    def read_verdicts_on(self, testbed: str, sut: str, *checks: Check) -> list[NightVerdict]:
        """Return tonight's verdicts of the checks on the SUT; the gate is skipped where there is none."""
        found = [each for each in self._night.verdicts[testbed, sut] if each.check in checks]
        if not found:
            raise SkipExecution(f"nothing was judged by the check {' or '.join(checks)}")
        return found

    @keyword
    def valid_measurements(self, run: RunDocument, kind: str) -> list[Measurement]:
        """Return the run's valid measurements of a kind; the gate is skipped where there is none, with the reasons."""
        if kind not in registry():
            raise InputError(f"expected one of the kinds {', '.join(registry())}, found {kind}")
        found = [each for each in run.measurements if each.kind == kind]
        valid = [each for each in found if each.validity.valid]
        if not valid:
            reasons = [flag.reason for each in found for flag in each.validity.flags if flag.severity == "invalid"]
            reasons += [each.reason for each in run.not_measured if each.kind in {kind, "run"}]
            what = declaration(kind).title
            raise SkipExecution(f"the run has no valid figure of {what}: {'; '.join(reasons) or 'nothing says why'}")
        return valid

    @keyword
    def isolated_cpus_only(self, run: RunDocument, measurements: list[Measurement]) -> list[Measurement]:
        """Return those jitter measurements that are of isolated CPUs; the gate is skipped where there is none."""
        found = [each for each in measurements if isinstance(each.values, JitterValues) and each.values.isolated]
        if not found:
            reasons = [each.reason for each in run.not_measured if each.kind == "jitter"]
            raise SkipExecution(f"no isolated CPU was measured: {'; '.join(reasons) or 'none is isolated'}")
        return found

    @keyword
    def check_promises(self, run: RunDocument) -> Findings:
        """Return which of the inventory's expectations the SUT met when the run began."""
        return findings.promises(run)

    @keyword
    def check_settings_put_back(self, run: RunDocument) -> Findings:
        """Return which settings that the run changed are again what they were before it."""
        return findings.left_as_found(run)

    @keyword
    def check_completeness(self, run: RunDocument) -> Findings:
        """Return whether everything that was planned was measured, and is valid."""
        return findings.completeness(run)

    @keyword
    def check_verdicts(self, verdicts: Sequence[NightVerdict]) -> Findings:
        """Return verdicts as findings: one without a reference cannot be told."""
        return findings.judged(verdicts)

    @keyword
    def check_verdicts_of_measurements(
        self, verdicts: Sequence[NightVerdict], measurements: Sequence[Measurement]
    ) -> Findings:
        """Return the verdicts on all figures of the measurements; a figure without a verdict cannot be told."""
        by_metric = {each.metric: each for each in verdicts}
        names = [name.name for each in measurements for name in declaration(each.kind).metrics(each.values)]
        judged = findings.judged(by_metric[name] for name in names if name in by_metric)
        untold = [f"{name}: there is no verdict on it" for name in names if name not in by_metric]
        return Findings(judged.shown, judged.faults, (*judged.untold, *untold))

    @keyword
    def should_be_shown(self, found: Findings) -> None:
        """Fail with all faults. Without any, skip the gate where something cannot be told, or nothing was found."""
        for each in found.shown:
            logger.info(message(each))
        if found.faults:
            raise AssertionError("\n".join(map(message, found.faults)))
        if found.untold or not found.shown:
            raise SkipExecution("\n".join(map(message, found.untold)) or "there is nothing to go by")


def _about(test: TestCase, testbed: str, sut: str) -> TestCase:
    """Return *test* about one SUT, which its name, its steps, its tags and its metadata tell."""
    steps = [
        step.copy(name=step.name.replace(TESTBED, testbed).replace(SUT, sut)) if isinstance(step, Keyword) else step
        for step in test.body
    ]
    return test.copy(  # a deep copy would take the whole suite along
        name=f"{testbed} / {sut}: {test.name}",
        tags=[*test.tags, f"testbed: {testbed}", f"sut: {sut}"],
        metadata={**test.metadata, "Testbed": testbed, "SUT": sut, "Gate": test.name},
        body=steps,
    )
