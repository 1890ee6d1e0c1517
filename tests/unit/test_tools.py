# SPDX-License-Identifier: Apache-2.0
"""Where everything is required, only what no package could avoid is skipped."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.tools import REQUIRE_ALL

CHECKOUT = Path(__file__).parents[2]

WHOLE_FILE = """
import pytest
pytest.skip("no such library", allow_module_level=True)
"""

TESTS = """
import pytest
from tests.tools import require, require_two

def test_missing(): require("made-up", "no-such-program", "nor-this")
def test_present(): require("dash", "no-such-program", "sh")
def test_one_cpu(): require_two([0])
@pytest.fixture
def refused(): pytest.skip("refused")
def test_fixture(refused): pass
@pytest.mark.skipif(True, reason="marked")
def test_mark(): pass
@pytest.mark.xfail
def test_expected_to_fail(): raise AssertionError
"""


@pytest.mark.parametrize(
    ("required", "failed"), [("", set()), ("1", {"test_missing", "test_fixture", "test_mark", "test_file.py"})]
)
def test_a_skip_fails_where_everything_is_required(tmp_path: Path, required: str, failed: set[str]) -> None:
    (tmp_path / "test_them.py").write_text(TESTS, encoding="utf-8")
    (tmp_path / "test_file.py").write_text(WHOLE_FILE, encoding="utf-8")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-c", "/dev/null", "-p", "tests.conftest", "-p", "no:cacheprovider"),
            *("-rA", "--continue-on-collection-errors", "--rootdir", str(tmp_path), str(tmp_path)),
        ],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", REQUIRE_ALL: required},
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    bad = [line for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    assert {line.split(" - ")[0].rpartition("/")[2].rpartition("::")[2] for line in bad} == failed, done.stdout
    assert (done.returncode == 0) == (not failed)
    assert "no-such-program or nor-this not found: install the Debian package made-up" in done.stdout
    assert "PASSED" in done.stdout
    assert "XFAIL" in done.stdout
    if failed:
        assert "1 skipped" in done.stdout, "one CPU cannot be helped"


def test_the_floors_are_the_versions_that_are_tested() -> None:
    lock = (CHECKOUT / "requirements" / "lowest.txt").read_text(encoding="utf-8")
    pinned = dict(re.findall(r"^([a-z0-9-]+)==([^ ;]+)", lock, re.MULTILINE))
    lines = (CHECKOUT / "requirements" / "calibrate.in").read_text(encoding="utf-8").splitlines()
    for wanted in (Requirement(line.partition("#")[0].strip()) for line in lines if not line.startswith("#")):
        (floor,) = wanted.specifier
        assert floor.operator == ">="
        assert Version(pinned[wanted.name]) == Version(floor.version), wanted.name
