# SPDX-License-Identifier: Apache-2.0
"""Robot Framework keywords of the gates; expands each gate that names a SUT to one test per SUT."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel
from robot.api import ResultVisitor, SkipExecution, TestSuite, logger
from robot.api.deco import keyword, library
from robot.libraries.BuiltIn import BuiltIn
from robot.result import TestCase as ResultOfTest
from robot.result import TestSuite as ResultOfSuite
from robot.running import Keyword, TestCase

from calibration.base.errors import InputError
from calibration.base.grouping import grouped
from calibration.base.text import message, some_of
from calibration.gates.night import Night, read_night
from calibration.gates.rules import NOTHING, Decision, Status, Told, check_verdicts, decide, decide_all
from calibration.judge.answer import May
from calibration.measurements import declaration, registry
from calibration.measurements.jitter import metrics_of_isolated
from calibration.results.history import Sut
from calibration.results.layout import RUN
from calibration.results.run_checks import Result
from calibration.results.store import read_run, stored_run

TESTBED_VARIABLE: Final = "${TESTBED}"
SUT_VARIABLE: Final = "${SUT}"
"""Placeholders for testbed and SUT in a gate."""

ENDS: Final[Mapping[May, Status]] = {"no": "FAIL", "unknown": "SKIP", "yes": "PASS"}
"""How a gate ends by whether the SUT may be tested."""

MAX_SUTS: Final = 20
"""SUTs named that a gate skips for one reason."""


@dataclass(frozen=True)
class Gating:
    """The night that gates are run for, and how those of all SUTs ended for each, by the full name of the gate."""

    night: Night
    ended: dict[str, Mapping[Sut, Decision]] = field(default_factory=dict)


GATING: ContextVar[Gating | None] = ContextVar("GATING", default=None)
"""Set while the gates are run by this process; Robot Framework's own command judges by itself."""


@library(scope="GLOBAL", version="1", doc_format="TEXT")
class CalibrationLibrary:
    """Keywords of a night's gates.

    A keyword on every SUT fails if any fails, with the number of SUTs; the log names them with the reasons. A gate that
    names ${TESTBED} or ${SUT} is run once per SUT of the night. A keyword that has nothing to judge, or cannot decide,
    skips the gate with the reason.
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
        self._results, self._only = results, (testbed, sut)
        self._asked: dict[str, Any] = {"night": night, "verdicts": verdicts}
        self._gating = GATING.get()
        self._read = lru_cache(maxsize=1)(read_run)  # the gates of a SUT follow each other

    @cached_property
    def _night(self) -> Night:
        if self._results is None:
            raise InputError("no directory of results: set the variable RESULTS")
        if self._gating is not None:
            return self._gating.night
        return read_night(self._results, **self._asked).of(*self._only)

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

    @keyword("every SUT may be tested")
    def may_be_tested(self) -> None:
        """Fail unless every SUT may be tested, with the answers; skip the gate if that is unknown."""

        def decided(sut: Sut) -> Decision:
            answer = self._night.answers[sut]
            return Decision(ENDS[answer.test], message(answer.text))

        self._require(decided)

    @keyword("the checks ${checks} pass on every SUT")
    def check_verdicts(self, checks: str) -> None:
        """Fail if a verdict of the named checks of `calibration judge` fails on a SUT."""
        named = checks.split(", ")
        self._require(lambda sut: self._decided(sut, lambda item: item.check in named))

    @keyword("every metric of ${kind} is within its limits on every SUT")
    def check_limits(self, kind: str) -> None:
        """Fail if a metric of a measurement kind is out of its limits on a SUT."""
        if kind not in registry():
            raise InputError(f"unknown kind {kind}, expected one of {', '.join(registry())}")
        empty = f"the run has no {declaration(kind).title.lower()}"
        self._require(lambda sut: self._limits(sut, f"{kind}.", empty))

    @keyword("jitter of isolated CPUs is within its limits on every SUT")
    def check_jitter(self) -> None:
        """Fail if a jitter metric of an isolated CPU is out of its limits; other CPUs are for comparison only."""

        def decided(sut: Sut) -> Decision:
            run = self._night.run_of(sut)
            if run is None:
                return Decision("SKIP", self._missing(sut))
            try:
                isolated = metrics_of_isolated(_isolated(run))
            except InputError as error:
                return Decision("FAIL", message(str(error)))
            return self._limits(sut, isolated, "the run measured no isolated CPU")

        self._require(decided)

    def _limits(self, sut: Sut, metrics: str | tuple[str, ...], empty: str) -> Decision:
        return self._decided(sut, lambda item: item.check == "limits" and item.metric.startswith(metrics), empty)

    def _decided(self, sut: Sut, wanted: Callable[[Told], bool], empty: str = NOTHING) -> Decision:
        return decide(check_verdicts(filter(wanted, self._night.verdicts[sut])), self._missing(sut, empty))

    def _missing(self, sut: Sut, otherwise: str = NOTHING) -> str:
        """Return why *sut* has nothing to check: it has no run, else *otherwise*."""
        return f"no run on {self._night.night}" if self._night.run_of(sut) is None else otherwise

    def _require(self, decided: Callable[[Sut], Decision]) -> None:
        """End the gate as *decided* for each SUT, and log what is worth reading."""
        decisions = {sut: decided(sut) for sut in self._night.verdicts}
        if self._gating is not None:
            place = ".".join(BuiltIn().get_variable_value(name) for name in ("${SUITE NAME}", "${TEST NAME}"))
            self._gating.ended[place] = decisions
        for sut, decision in decisions.items():
            told = [decision.message] if decision.status == "FAIL" else []
            if told or decision.notes:
                logger.info("\n".join((f"{' / '.join(sut)}:", *told, *decision.notes)))
        skipped = ((item.message, " / ".join(sut)) for sut, item in decisions.items() if item.status == "SKIP")
        for reason, suts in grouped(skipped).items():
            logger.info(f"skipped: {some_of(suts, MAX_SUTS)}:\n{reason}")
        whole = decide_all(decisions)
        if whole.status == "FAIL":
            raise AssertionError(whole.message)
        if whole.status == "SKIP":
            raise SkipExecution(whole.message)
        BuiltIn().set_test_message(whole.message)


class _Values(BaseModel):
    """What the values of a measurement have if they are jitter's."""

    kind: str
    cpu: Any = None
    isolated: Any = None


class _Measured(BaseModel):
    values: _Values


class _Measurements(BaseModel):
    """The part of a run document with the isolated CPUs: to read it takes a tenth of reading the whole."""

    measurements: tuple[_Measured, ...]


def _isolated(run: Path) -> Iterator[int]:
    """Yield the isolated CPUs whose jitter was measured in *run*. Raises ``InputError``."""
    document = stored_run(run / RUN).read_as(_Measurements)
    for values in (item.values for item in document.measurements):
        if values.kind == "jitter" and values.isolated:
            yield values.cpu


def require(results: Iterable[Result]) -> None:
    """Fail with all failed *results*, else skip with the undecided ones."""
    decision = decide(results)
    for text in decision.notes:
        logger.info(text)
    if decision.status == "FAIL":
        raise AssertionError(decision.message)
    if decision.status == "SKIP":
        raise SkipExecution(decision.message)


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


class PerSut(ResultVisitor):  # type: ignore[misc]
    """Replaces each gate of all SUTs by one test per SUT, as its *gating* says."""

    def __init__(self, gating: Gating) -> None:
        self._gating = gating

    def start_suite(self, suite: ResultOfSuite) -> None:
        """Replace the tests of *suite*."""
        suite.tests = [one for test in suite.tests for one in self._split(test)]

    def _split(self, test: ResultOfTest) -> list[ResultOfTest]:
        decisions = self._gating.ended.get(test.full_name, {})
        if decide_all(decisions)[:2] != (test.status, test.message):  # by another step, or expecting a failure
            return [test]
        return [
            test.copy(
                name=f"{testbed} / {sut}: {test.name}",
                status=decision.status,
                message=decision.message,
                metadata={**test.metadata, "Testbed": testbed, "SUT": sut, "Gate": test.name},
            )
            for (testbed, sut), decision in decisions.items()
        ] or [test]
