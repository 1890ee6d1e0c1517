# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests that run playbooks."""

import fcntl
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from support import ROOT, Ended, Lab, end_runs

SHARED = {"module_lab", "site_dir", "wheel"}
"""Fixtures that are expensive and shared by tests."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep tests that share a calibration or the site on one worker, and run their files first: they take longest."""
    sharing = {item.path for item in items if SHARED & set(getattr(item, "fixturenames", ()))}
    items.sort(key=lambda item: item.path not in sharing)
    for item in items:
        for fixture, group in (("site_dir", "site"), ("module_lab", item.path.stem), ("wheel", "wheel")):
            if isinstance(item, pytest.Function) and fixture in item.fixturenames:
                item.add_marker(pytest.mark.xdist_group(group))
                break


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """Directories of one test."""
    yield (lab := Lab(tmp_path).make())
    end_runs(lab)


@pytest.fixture(scope="module")
def module_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Directories shared by the tests of a file."""
    yield (lab := Lab(tmp_path_factory.mktemp("lab")).make())
    end_runs(lab)


@pytest.fixture(scope="session")
def calibrated_lab(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lab, Ended]:
    """This machine, calibrated once for all workers from a read-only home directory; do not change it."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    lab, result = Lab(base / "calibrated"), base / "calibrated.json"
    with (base / "calibrated.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not result.exists():
            lab.make().home.chmod(0o500)
            ended = lab.run("calibrate.yml")
            result.write_text(json.dumps([ended.rc, ended.text]), encoding="utf-8")
    return lab, Ended(*json.loads(result.read_text(encoding="utf-8")))


@pytest.fixture(scope="session")
def site_dir() -> Path:
    """Directory of the site, shared by the tests of one Python so that the pages of the guide are built once."""
    return ROOT / ".cache" / "tests" / f"site-{sys.implementation.cache_tag}"
