# SPDX-License-Identifier: Apache-2.0
"""What every test of the runner checks beside its own subject, and what some of them begin with."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from calibration.runner.directory import Directory
from tests.suts import Sut


def open_files() -> dict[Path, Path]:
    """Return the files and directories that this process has open, by descriptor."""
    found = {}
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the listing
            target = descriptor.readlink()
            if target.is_absolute() and not target.is_relative_to("/dev"):
                found[descriptor] = target
    return found


@pytest.fixture(autouse=True)
def _no_file_is_left_open() -> Iterator[None]:
    """Fail a test that leaves a file open: a runner writes thousands of records, and may open 1024 files."""
    before = open_files()
    yield
    assert open_files().items() <= before.items()


@pytest.fixture
def made(sut: Sut) -> Iterator[Any]:
    """The directory of a run that has begun."""
    with Directory.create(str(sut.base), sut.job(boot_id=sut.machine.boot_id())) as created:
        yield created
