# SPDX-License-Identifier: Apache-2.0
"""Robot Framework keywords of the quick gate; expands each check to one test per SUT that has it."""

from functools import cached_property
from pathlib import Path

from robot.api import TestSuite
from robot.api.deco import keyword, library

from calibration.base.errors import InputError
from calibration.gates.library import about, require
from calibration.quick.checks import QuickCheck, read_checks


@library(scope="GLOBAL", version="1", doc_format="TEXT")
class QuickLibrary:
    """Keywords of the quick gate.

    A test with the tag of a check is run once per SUT that has this check. An undecided check skips the test.
    """

    ROBOT_LISTENER_API_VERSION = 3

    def __init__(self, checks: Path | None = None) -> None:
        """Read the results from the file *checks*, which `calibration gate --quick` writes."""
        self.ROBOT_LIBRARY_LISTENER = self
        self._path = checks

    @cached_property
    def _checks(self) -> dict[tuple[str, str, str], QuickCheck]:
        if self._path is None:
            raise InputError("no results: set the variable CHECKS")
        return {(item.testbed, item.sut, item.check): item for item in read_checks(self._path)}

    def start_suite(self, suite: TestSuite, _result: object) -> None:
        """Replace each test by one per SUT that has its check, SUT by SUT."""
        if self._path is None:
            return  # dry run: keep the tests as written
        tests = {tag: test for test in suite.tests for tag in test.tags}
        found = [about(tests[check], testbed, sut) for testbed, sut, check in self._checks if check in tests]
        suite.tests.clear()
        suite.tests.extend(found)

    @keyword("the check ${check} passes on SUT ${sut} in testbed ${testbed}")
    def require_check(self, check: str, sut: str, testbed: str) -> None:
        """Fail if a result of the check failed, skip if one is undecided."""
        require(self._checks[testbed, sut, check].results)
