# SPDX-License-Identifier: Apache-2.0
"""What the unit tests share: captured machines and recorded documents."""

import json
import resource
import signal
import time
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from calibration.context.model import Context
from tests.captures import captured
from tests.suts import Sut, simulated_sut

FIXTURES = Path(__file__).parent.parent / "fixtures"
MACHINES = sorted((FIXTURES / "context").glob("*.tar.gz"))
DOCUMENTS = sorted((FIXTURES / "sutprobe").glob("*.json"))


@pytest.fixture(params=MACHINES, ids=lambda path: path.name.removesuffix(".tar.gz"))
def machine(request: pytest.FixtureRequest) -> Context:
    """Each captured machine in turn."""
    return captured(request.param.name.removesuffix(".tar.gz"))


@pytest.fixture(params=DOCUMENTS, ids=lambda path: path.stem)
def recorded(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Each recorded document of sutprobe in turn."""
    document: dict[str, Any] = json.loads(request.param.read_text(encoding="utf-8"))
    return document


@pytest.fixture
def own_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the index of results in the test's directory, and print on 110 columns whatever the terminal."""
    monkeypatch.setattr("calibration.results.index.CACHE", tmp_path / "cache")
    monkeypatch.setenv("COLUMNS", "110")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[date], None]:
    """Return what sets the date of this machine's clock."""
    return lambda day: monkeypatch.setattr("calibration.results.nights.today", lambda: day)


@pytest.fixture
def time_zone() -> Iterator[Callable[[str], None]]:
    """Return what sets the time zone of this machine."""
    with pytest.MonkeyPatch.context() as patched:

        def enter(zone: str) -> None:
            patched.setenv("TZ", zone)
            time.tzset()

        yield enter
    time.tzset()


@pytest.fixture
def file_size_limit() -> Any:
    """Limit the size of files, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    signal.signal(signal.SIGXFSZ, handler)


@pytest.fixture
def sut(tmp_path: Path) -> Iterator[Sut]:
    """A simulated SUT that no run has reserved."""
    with simulated_sut(tmp_path) as made:
        yield made
