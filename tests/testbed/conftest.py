# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests on the testbed, and the table that a run ends with."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.testbed.guest import STATE
from tests.testbed.support import Lab, Testbed
from tests.testbed.table import Row, rst, write

TEST_PATIENCE_S = 3600
"""The first test that needs a guest also builds its image: ten minutes where the other architecture is emulated."""

ROWS = pytest.StashKey[list[Row]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the command line say where the table goes."""
    parser.addoption(
        "--testbed-table",
        type=Path,
        default=STATE.parent,
        help="directory for the table of scenarios, scenarios.rst and scenarios.json",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give a test here the time in which a guest's image is built too."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(TEST_PATIENCE_S))


def pytest_configure(config: pytest.Config) -> None:
    """Begin the table."""
    config.stash[ROWS] = []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Write the table, and show it."""
    if rows := config.stash[ROWS]:
        paths = write(rows, config.getoption("--testbed-table"))
        terminalreporter.section("scenarios on the testbed")
        terminalreporter.write(rst(rows))
        terminalreporter.write_line(f"written to {' and '.join(str(path) for path in paths)}")


@pytest.fixture(scope="session")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    """Return the testbed; its guests are started when a test first asks for them, and serve all tests."""
    made = Testbed(tmp_path_factory.mktemp("testbed"))
    # A run that is told to end ends its guests as one that is interrupted does.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield made
    finally:
        made.close()
        signal.signal(signal.SIGTERM, before)


@pytest.fixture(autouse=True)
def mended(request: pytest.FixtureRequest) -> Iterator[None]:
    """Leave the guests fit for the next test, whatever this one did to cables and power."""
    yield
    if "testbed" in request.fixturenames:
        request.getfixturevalue("testbed").mend()


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """Return where this test keeps its results."""
    return Lab(tmp_path).make()


@pytest.fixture
def scenario(request: pytest.FixtureRequest) -> Callable[[str, str, str, str], None]:
    """Return what adds a row to the table; a test calls it when it has found all that the row says."""

    def add(name: str, injected: str, kept: str, reported: str) -> None:
        request.config.stash[ROWS].append(Row(name, injected, kept, reported))

    return add
