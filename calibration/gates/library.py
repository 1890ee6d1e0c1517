# SPDX-License-Identifier: Apache-2.0
"""Robot Framework keywords of the gates; expands each gate to one test per SUT."""

import gc
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final

from robot.api import ResultVisitor, SkipExecution, TestSuite, logger
from robot.api.deco import keyword, library
from robot.libraries.BuiltIn import BuiltIn
from robot.result import TestCase as ResultOfTest
from robot.result import TestSuite as ResultOfSuite
from robot.running import Keyword, TestCase

from calibration.base.errors import InputError
from calibration.base.text import message
from calibration.gates import rules
from calibration.gates.night import Night, read_night
from calibration.judge.verdicts import NightVerdict
from calibration.measurements import declaration, registry
from calibration.measurements.jitter import JitterValues
from calibration.results.history import Sut
from calibration.results.model import RunDocument
from calibration.results.run_checks import Result
from calibration.results.store import read_run

TESTBED_VARIABLE: Final = "${TESTBED}"
SUT_VARIABLE: Final = "${SUT}"
"""Placeholders for testbed and SUT in a gate."""

NOTHING: Final = "nothing to check"
"""Why a gate without a verdict is skipped."""


@library(scope="GLOBAL", version="1", doc_format="TEXT")
class CalibrationLibrary:
    """Keywords of a night's gates.

    A gate that names ${TESTBED} or ${SUT} is run once per SUT of the night. A keyword that has nothing to judge, or
    cannot decide, skips the gate with the reason.
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
        """Judge *night* (default: the newest) of the store *results*, or read the verdicts from the file *verdicts*.

        *testbed* and *sut* restrict the gates to these.
        """
        self.ROBOT_LIBRARY_LISTENER = self
        self._asked: dict[str, Any] = {"night": night, "verdicts": verdicts, "testbed": testbed, "sut": sut}
        self._results = results
        self._read = lru_cache(maxsize=1)(read_run)  # the gates of a SUT follow each other

    @cached_property
    def _night(self) -> Night:
        if self._results is None:
            raise InputError("no directory of results: set the variable RESULTS")
        night = read_night(self._results, **self._asked)
        gc.freeze()  # else the collector goes through all verdicts for every document of a SUT
        return night

    def close(self) -> None:
        """Let the collector go: at exit some extensions report what it does not see as leaks."""
        gc.unfreeze()

    def start_suite(self, suite: TestSuite, _result: object) -> None:
        """Replace the tests that name a SUT by one each per SUT of the night, SUT by SUT."""
        if self._results is None:
            return  # dry run: keep the tests as written
        gates = [test for test in suite.tests if _names_a_sut(test)]
        tests = [test for test in suite.tests if test not in gates]
        if gates:
            tests += [about(test, testbed, sut) for testbed, sut in self._night.verdicts for test in gates]
        suite.tests.clear()
        suite.tests.extend(tests)

    def end_test(self, _test: TestCase, result: ResultOfTest) -> None:
        """Let a gate that failed stay failed, also without ``run_suites``."""
        keep_failed(result)

    @keyword("the run of SUT ${sut} in testbed ${testbed}")
    def read_run_of(self, sut: str, testbed: str) -> None:
        """Set ${RUN} to tonight's run document of the SUT; skip the gate if there is none."""
        directory = self._night.run_of((testbed, sut))
        if directory is None:
            raise SkipExecution(self._missing((testbed, sut)))
        BuiltIn().set_test_variable("${RUN}", self._read(directory))

    @keyword("SUT ${sut} of testbed ${testbed} may be tested")
    def may_be_tested(self, sut: str, testbed: str) -> None:
        """Fail unless the SUT may be tested, with the answer on it; skip the gate if that is unknown."""
        answer = self._night.answers[testbed, sut]
        text = message(answer.text)
        if answer.test == "no":
            raise AssertionError(text)
        if answer.test == "unknown":
            raise SkipExecution(text)
        BuiltIn().set_test_message(text)

    @keyword("the checks ${checks} pass on SUT ${sut} in testbed ${testbed}")
    def check_verdicts(self, checks: str, sut: str, testbed: str) -> None:
        """Fail if a verdict of the named checks of `calibration judge` on the SUT fails."""
        verdicts = self._verdicts((testbed, sut), checks.split(", "))
        require(rules.check_verdicts(verdicts), self._missing((testbed, sut)))

    @keyword("every metric of ${kind} is within its limits on SUT ${sut} in testbed ${testbed}")
    def check_limits(self, kind: str, sut: str, testbed: str) -> None:
        """Fail if a metric of a measurement kind is out of its limits."""
        if kind not in registry():
            raise InputError(f"unknown kind {kind}, expected one of {', '.join(registry())}")
        self._check_limits((testbed, sut), f"{kind}.", f"the run has no {declaration(kind).title.lower()}")

    @keyword("jitter of isolated CPUs is within its limits")
    def check_jitter(self) -> None:
        """Fail if a jitter metric of an isolated CPU is out of its limits; other CPUs are for comparison only."""
        document = _run()
        values = [item.values for item in document.measurements if isinstance(item.values, JitterValues)]
        isolated = tuple(f"jitter.cpu{jitter.cpu}." for jitter in values if jitter.isolated)
        self._check_limits((document.run.testbed, document.run.sut), isolated, "the run measured no isolated CPU")

    def _check_limits(self, sut: Sut, metrics: str | tuple[str, ...], empty: str) -> None:
        verdicts = [verdict for verdict in self._verdicts(sut, ["limits"]) if verdict.metric.startswith(metrics)]
        require(rules.check_verdicts(verdicts), self._missing(sut, empty))

    def _missing(self, sut: Sut, otherwise: str = NOTHING) -> str:
        """Return why *sut* has nothing to check: it has no run, else *otherwise*."""
        return f"no run on {self._night.night}" if self._night.run_of(sut) is None else otherwise

    def _verdicts(self, sut: Sut, checks: Sequence[str]) -> list[NightVerdict]:
        return [verdict for verdict in self._night.verdicts[sut] if verdict.check in checks]


def _run() -> RunDocument:
    """Return the run document that the gate checks."""
    run = BuiltIn().get_variable_value("${RUN}")
    if not isinstance(run, RunDocument):
        raise InputError("no run: begin the gate with 'Given the run of SUT ${SUT} in testbed ${TESTBED}'")
    return run


def require(results: Iterable[Result], empty: str = NOTHING) -> None:
    """Fail with all failed *results*, else skip with the undecided ones.

    Skip with the noted ones if there are no others, with *empty* if there are none at all.
    """
    texts: dict[str, list[str]] = {"passed": [], "failed": [], "undecided": [], "noted": []}
    for result in results:
        texts[result.outcome].append(message(result.text))
    for text in texts["passed"] + texts["noted"]:
        logger.info(text)
    if texts["failed"]:
        raise AssertionError("\n".join(texts["failed"]))
    if texts["undecided"] or not texts["passed"]:
        raise SkipExecution("\n".join(texts["undecided"] or texts["noted"]) or empty)


def _names_a_sut(test: TestCase) -> bool:
    names = [item.name for item in test.body if isinstance(item, Keyword)]
    return any(variable in name for name in names for variable in (SUT_VARIABLE, TESTBED_VARIABLE))


def keep_failed(test: ResultOfTest) -> bool:
    """Let *test* fail if a step or a setup of its suites did, and a skip replaced that; return whether it did."""
    if not test.skipped or {"robot:skip-on-failure", "robot:skip"}.intersection(test.tags):
        return False
    failed = [step.message for step in _steps(test) if getattr(step, "failed", False)]
    if not failed:
        return False
    test.status = "FAIL"
    test.message = "\n".join([*failed, "", test.message])
    return True


def _steps(test: ResultOfTest) -> Iterator[Any]:
    """Yield the setups of the suites of *test*, its own setup, body and teardown."""
    suite = test.parent
    while suite is not None:
        if suite.has_setup:
            yield suite.setup
        suite = suite.parent
    if test.has_setup:
        yield test.setup
    yield from test.body
    if test.has_teardown:
        yield test.teardown


class KeepFailed(ResultVisitor):  # type: ignore[misc]
    """Lets tests that failed stay failed, also if the teardown of a suite skips."""

    def __init__(self) -> None:
        self.changed = False

    def visit_test(self, test: ResultOfTest) -> None:
        """Restore the failure of a test."""
        self.changed |= keep_failed(test)

    def end_suite(self, suite: ResultOfSuite) -> None:
        """Let a teardown that skipped not do so again when the result is read again."""
        if suite.has_teardown and suite.teardown.skipped and suite.failed:
            suite.teardown.status = "PASS"


def about(test: TestCase, testbed: str, sut: str) -> TestCase:
    """Return a copy of *test* for one SUT, with its name, steps, tags and metadata filled in."""
    steps = [
        step.copy(name=step.name.replace(TESTBED_VARIABLE, testbed).replace(SUT_VARIABLE, sut))
        if isinstance(step, Keyword)
        else step
        for step in test.body
    ]
    return test.copy(  # a deep copy would include the whole suite
        name=f"{testbed} / {sut}: {test.name}",
        tags=[*test.tags, f"testbed: {testbed}", f"sut: {sut}"],
        metadata={**test.metadata, "Testbed": testbed, "SUT": sut, "Gate": test.name},
        body=steps,
    )
