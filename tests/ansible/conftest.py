# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests that run playbooks."""

import fcntl
import json
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from support import ROOT, Ended, Lab


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests that look at one calibration, or build the site, on one worker: each would do it again."""
    for item in items:
        for fixture, group in (("site_dir", "site"), ("module_lab", item.path.stem)):
            if isinstance(item, pytest.Function) and fixture in item.fixturenames:
                item.add_marker(pytest.mark.xdist_group(group))
                break


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """Directories of this test alone."""
    return Lab(tmp_path).make()


@pytest.fixture(scope="module")
def module_lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """Directories of all tests of a module."""
    return Lab(tmp_path_factory.mktemp("lab")).make()


@pytest.fixture(scope="session")
def calibrated_lab(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lab, Ended]:
    """This machine, calibrated once for all workers, from a home directory that cannot be written; read only."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    lab, told = Lab(base / "calibrated"), base / "calibrated.json"
    with (base / "calibrated.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not told.exists():
            lab.make().home.chmod(0o500)
            ended = lab.run("calibrate.yml")
            told.write_text(json.dumps([ended.rc, ended.text]), encoding="utf-8")
    return lab, Ended(*json.loads(told.read_text(encoding="utf-8")))


@pytest.fixture(scope="session")
def site_dir() -> Path:
    """Directory of the site of whoever built it last: the pages of the guide are made once."""
    return ROOT / ".cache" / "tests" / "site"


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """A run's private directory on a SUT."""
    directory = tmp_path / "calibration-x"
    directory.mkdir(mode=0o700)
    return directory
