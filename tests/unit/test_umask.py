# SPDX-License-Identifier: Apache-2.0
"""Nothing of ours can be written by everybody, whatever the umask of the login."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command import calibration
from tests.unit.histories import noise, stored


@pytest.fixture(params=[0o000, 0o002, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.mark.usefixtures("own_index")
def test_files_of_a_command_are_not_writable_by_everybody(tmp_path: Path, umask: int) -> None:
    results = tmp_path / "results"
    stored(results, noise(3))
    theirs = set(tmp_path.rglob("*"))
    for words in (
        ["judge", "--results", results],
        ["export", "parquet", "--results", results, "-o", tmp_path / "x.parquet"],
    ):
        ended = calibration(*map(str, words))
        assert ended.code in {0, 1}, ended.said
    files = set(tmp_path.rglob("*")) - theirs
    assert len(files) > 3
    for path in files:
        mode = path.stat().st_mode
        assert not mode & stat.S_IWOTH, path
        assert umask != 0o077 or not mode & (stat.S_IRWXG | stat.S_IRWXO), path
        assert umask != 0o002 or mode & stat.S_IWGRP, f"{path}: a group may share results"
