# SPDX-License-Identifier: Apache-2.0
"""The keywords that the gates of a night are made of, and what makes one test of each gate and SUT."""

from collections.abc import Iterable, Sequence
from datetime import date
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final

from robot.api import SkipExecution, TestSuite, logger
from robot.api.deco import keyword, library
from robot.libraries.BuiltIn import BuiltIn
from robot.running import Keyword, TestCase

from calibration.errors import InputError
from calibration.gates import rules
from calibration.gates.night import Night, read_night
from calibration.gates.rules import Result
from calibration.judge.verdicts import NightVerdict
from calibration.measurements import declaration, registry
from calibration.measurements.jitter import JitterValues
from calibration.results.history import Sut
from calibration.results.model import Measurement, RunDocument
from calibration.results.store import read_run
from calibration.text import message

RUNS_KEPT: Final = 16
"""So many run documents are kept in memory: a testbed's, which all gates ask for one after another."""

TESTBED_VARIABLE: Final = "${TESTBED}"
SUT_VARIABLE: Final = "${SUT}"
"""What stands for a testbed and a SUT in the text of a gate."""


@library(scope="GLOBAL", version="1", doc_format="TEXT")
class CalibrationLibrary:
    """Keywords of a night's gates.

    Each gate that names ${TESTBED} or ${SUT} is run once for every SUT of the night. A keyword that has nothing to
    judge, or cannot decide, skips the gate with the reason.
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
            raise InputError("no directory of results: set the variable RESULTS")
        return read_night(self._results, **self._asked)

    def start_suite(self, suite: TestSuite, _result: object) -> None:
        """Put one test for each SUT of the night in the place of every test that names one."""
        if self._results is None:
            return  # the tests stay as they are written: they are looked at, or say what is missing
        tests = [item for test in suite.tests for item in self._of_each_sut(test)]
        suite.tests.clear()
        suite.tests.extend(tests)

    def _of_each_sut(self, test: TestCase) -> Sequence[TestCase]:
        steps = [item for item in test.body if isinstance(item, Keyword)]
        if not any(SUT_VARIABLE in step.name or TESTBED_VARIABLE in step.name for step in steps):
            return [test]
        return [_about(test, testbed, sut) for testbed, sut in self._night.verdicts]

    @keyword("the run of SUT ${sut} in testbed ${testbed}")
    def read_run_of(self, sut: str, testbed: str) -> None:
        """Set ${RUN} to the run document that stands for the SUT tonight; skip the gate if there is none."""
        directory = self._night.run_of((testbed, sut))
        if directory is None:
            raise SkipExecution(f"{sut} of {testbed} has no run on {self._night.night}")
        BuiltIn().set_test_variable("${RUN}", self._read(directory))

    @keyword("the SUT was what the inventory promises")
    def check_promises(self) -> None:
        """Fail unless the SUT met all expectations of the inventory when the run began."""
        require(rules.check_promises(_run()))

    @keyword("all settings were restored")
    def check_settings_restored(self) -> None:
        """Fail unless all settings that the run changed are again what they were before it."""
        require(rules.check_settings_restored(_run()))

    @keyword("everything planned was measured and is valid")
    def check_completeness(self) -> None:
        """Fail unless everything that was planned was measured, and is valid."""
        require(rules.check_completeness(_run()))

    @keyword("the checks ${checks} pass on SUT ${sut} in testbed ${testbed}")
    def check_verdicts(self, checks: str, sut: str, testbed: str) -> None:
        """Fail if a verdict of the named checks of `calibration judge` on the SUT does."""
        names = checks.split(", ")
        require(rules.check_verdicts(self._verdicts((testbed, sut), names)), f"no verdict of {' or '.join(names)}")

    @keyword("every figure of ${kind} is within its limits")
    def check_limits(self, kind: str) -> None:
        """Fail if a valid figure of a kind of measurement is outside its limits."""
        self._check_limits(_valid_measurements(_run(), kind))

    @keyword("jitter of isolated CPUs is within its limits")
    def check_jitter(self) -> None:
        """Fail if a jitter figure of an isolated CPU is outside its limits; others are there to compare with."""
        run = _run()
        measurements = _valid_measurements(run, "jitter")
        isolated = [
            measurement
            for measurement in measurements
            if isinstance(measurement.values, JitterValues) and measurement.values.isolated
        ]
        if not isolated:
            reasons = [omitted.reason for omitted in run.not_measured if omitted.kind == "jitter"]
            raise SkipExecution(f"no isolated CPU was measured: {'; '.join(reasons) or 'none is isolated'}")
        self._check_limits(isolated)

    def _check_limits(self, measurements: Sequence[Measurement]) -> None:
        run = _run().run
        verdicts = self._verdicts((run.testbed, run.sut), ["limits"])
        if not verdicts:
            raise SkipExecution("no verdict of limits")
        require(rules.check_limits(measurements, verdicts))

    def _verdicts(self, sut: Sut, checks: Sequence[str]) -> list[NightVerdict]:
        return [verdict for verdict in self._night.verdicts[sut] if verdict.check in checks]


def _run() -> RunDocument:
    """Return the run that the gate is about."""
    run = BuiltIn().get_variable_value("${RUN}")
    if not isinstance(run, RunDocument):
        raise InputError("no run: begin the gate with 'Given the run of SUT ${SUT} in testbed ${TESTBED}'")
    return run


def _valid_measurements(run: RunDocument, kind: str) -> list[Measurement]:
    """Return the run's valid measurements of a kind; skip the gate if there is none, with the reasons."""
    if kind not in registry():
        raise InputError(f"unknown kind {kind}, expected one of {', '.join(registry())}")
    found = [measurement for measurement in run.measurements if measurement.kind == kind]
    valid = [measurement for measurement in found if measurement.validity.valid]
    if not valid:
        reasons = [
            flag.reason for measurement in found for flag in measurement.validity.flags if flag.severity == "invalid"
        ]
        reasons += [omitted.reason for omitted in run.not_measured if omitted.kind in {kind, "run"}]
        what = declaration(kind).title
        raise SkipExecution(f"no valid figure of {what}: {'; '.join(reasons) or 'nothing says why'}")
    return valid


def require(results: Iterable[Result], empty: str = "there is nothing to go by") -> None:
    """Fail with all failed *results*; without any, skip with the undecided ones, or with *empty* for none at all."""
    texts: dict[str, list[str]] = {"passed": [], "failed": [], "undecided": []}
    for result in results:
        texts[result.outcome].append(message(result.text))
    for text in texts["passed"]:
        logger.info(text)
    if texts["failed"]:
        raise AssertionError("\n".join(texts["failed"]))
    if texts["undecided"] or not texts["passed"]:
        raise SkipExecution("\n".join(texts["undecided"]) or empty)


def _about(test: TestCase, testbed: str, sut: str) -> TestCase:
    """Return *test* about one SUT, which its name, its steps, its tags and its metadata tell."""
    steps = [
        step.copy(name=step.name.replace(TESTBED_VARIABLE, testbed).replace(SUT_VARIABLE, sut))
        if isinstance(step, Keyword)
        else step
        for step in test.body
    ]
    return test.copy(  # a deep copy would take the whole suite along
        name=f"{testbed} / {sut}: {test.name}",
        tags=[*test.tags, f"testbed: {testbed}", f"sut: {sut}"],
        metadata={**test.metadata, "Testbed": testbed, "SUT": sut, "Gate": test.name},
        body=steps,
    )
