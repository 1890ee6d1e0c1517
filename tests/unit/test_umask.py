# SPDX-License-Identifier: Apache-2.0
"""Nothing of ours can be written by everybody, whatever the umask of the login."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from calibration.places import CACHE_VARIABLE
from tests.unit.histories import noise, stored


@pytest.mark.parametrize("umask", ["000", "002", "077"])
def test_files_of_a_command_are_not_writable_by_everybody(tmp_path: Path, umask: str) -> None:
    results, made = tmp_path / "results", tmp_path / "made"
    stored(results, noise(3))
    made.mkdir()
    environment = {**os.environ, CACHE_VARIABLE: str(made / "cache"), "PYTHONPATH": os.pathsep.join(sys.path)}
    for words in (["judge", results], ["export", "parquet", results, "-o", made / "x.parquet"]):
        command = [
            "sh",
            "-c",
            f'umask {umask}; exec "$@"',
            "sh",
            sys.executable,
            "-m",
            "calibration.cli",
            *map(str, words),
        ]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode in {0, 1}, done.stderr
    files = [path for path in made.rglob("*") if path != made]
    assert len(files) > 3
    for path in files:
        mode = path.stat().st_mode
        assert not mode & stat.S_IWOTH, path
        assert umask != "077" or not mode & (stat.S_IRWXG | stat.S_IRWXO), path
        assert umask != "002" or mode & stat.S_IWGRP, f"{path}: a group may share results"
