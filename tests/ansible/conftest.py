# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests that run playbooks."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from support import Lab


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests that look at one calibration on one worker: each worker would calibrate anew."""
    for item in items:
        if isinstance(item, pytest.Function) and "module_lab" in item.fixturenames:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path).make()


@pytest.fixture(scope="module")
def module_lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return Lab(tmp_path_factory.mktemp("lab")).make()
