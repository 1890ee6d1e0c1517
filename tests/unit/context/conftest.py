# SPDX-License-Identifier: Apache-2.0
"""Small roots made file by file, for what no captured machine shows."""

import io
import tarfile
from pathlib import Path

import pytest

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "context"


@pytest.fixture
def make_root(tmp_path):
    """A function that writes {absolute path: text or bytes} below a new directory and returns it."""
    made = iter(range(1000))

    def make(files):
        root = tmp_path / f"root{next(made)}"
        for path, content in files.items():
            target = root / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content if isinstance(content, bytes) else content.encode())
        return root

    return make


@pytest.fixture
def unpack(tmp_path):
    """A function that unpacks a captured machine, by name, into a new directory and returns it."""

    def make(name):
        root = tmp_path / name
        with tarfile.open(fileobj=io.BytesIO((FIXTURES / f"{name}.tar.gz").read_bytes())) as archive:
            # Python 3.11 knows filters from 3.11.4 on, and Debian 12 has 3.11.2
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(root)  # noqa: S202 - a fixture of this repository
        return root

    return make
