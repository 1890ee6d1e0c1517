# SPDX-License-Identifier: Apache-2.0
"""A new measurement consists of its own files only; all lists are generated from the declarations."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT, copy_checkout

from calibration.base.places import CACHE, CACHE_VARIABLE

pytestmark = pytest.mark.slow

EXAMPLE = ROOT / "tests" / "fixtures" / "new_kind"

ADDED = {
    "l1_latency.py": "calibration/measurements",
    "l1_latency.j2": "templates/kinds",
    "l1_latency.rst": "docs/method",
    "l1_latency.json": "tests/fixtures/sutprobe",
}
"""Files of the example kind, with their folders; the profile is used in place."""

CONTRACTS = ("tests/unit/test_measurements.py", "tests/report/test_docs.py", "tests/report/test_environment.py")
"""Tests of all kinds."""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the checkout with the example kind."""
    copy = copy_checkout(tmp_path_factory.mktemp("new-kind"))
    for name, folder in ADDED.items():
        assert not (copy / folder / name).exists()
        shutil.copy(EXAMPLE / name, copy / folder)
    return copy


def run(checkout: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(checkout), CACHE_VARIABLE: str(CACHE), **variables}
    return subprocess.run(
        [sys.executable, *arguments], cwd=checkout, env=environment, check=False, capture_output=True, text=True
    )


def test_a_new_kind_is_calibrated_to_a_page(checkout: Path, tmp_path: Path) -> None:
    generated = run(checkout, "-m", "calibration.cli", "schema")
    assert generated.returncode == 0, generated.stderr
    assert "L1LatencyValues" in generated.stdout
    (checkout / "calibration" / "results" / "run.schema.json").write_text(generated.stdout, encoding="utf-8")
    results = tmp_path / "results"
    done = run(
        checkout, "-m", "calibration.cli", "run", "--profile", str(EXAMPLE / "profile.yml"),
        "-e", f"calibration_results_dir={results}", "-e", f"calibration_remote_base={tmp_path}",
        "-e", "calibration_lock=calibration-new-kind", CALIBRATION_HOME=str(tmp_path),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = results.glob("*/*/*/run.json")
    (measurement,) = json.loads(path.read_text(encoding="utf-8"))["measurements"]
    latency_ns = measurement["values"]["latency_ns"]["value"]
    page = run(checkout, "-m", "calibration.cli", "report", str(path.parent))
    assert page.returncode == 0, page.stderr
    text = next((path.parent / "report").glob("*.rst")).read_text(encoding="utf-8")
    assert f"loads from its first-level cache in {latency_ns:.2f} ns." in text
    assert "figures/l1-latency.svg" in text
    for command in (("validate",), ("report", "--json"), ("report", "--csv")):
        shown = run(checkout, "-m", "calibration.cli", *command, str(path.parent))
        assert shown.returncode == 0, shown.stderr


def test_a_new_kind_meets_the_contracts_of_all_kinds(checkout: Path) -> None:
    pytest_here = ("-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider")
    readme = (*pytest_here, CONTRACTS[1], "-k", "readme_has")
    wrong = run(checkout, *readme)
    assert wrong.returncode == 1
    assert "1 failed" in wrong.stdout, wrong.stdout
    run(checkout, *readme, CALIBRATION_BLESS="1")
    right = run(checkout, *pytest_here, *CONTRACTS, "-k", "l1_latency or every_kind or readme_has")
    assert right.returncode == 0, right.stdout
    assert "L1 latency" in (checkout / "README.rst").read_text(encoding="utf-8")
