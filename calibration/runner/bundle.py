# SPDX-License-Identifier: Apache-2.0
"""Packs the runner into one file, with what it is to carry. Runs on the controller."""

import io
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent

MAIN: Final = "import sys\nfrom calibration.runner.__main__ import run\nrun(sys.path[0])\n"
"""What Python runs of the file."""

LOAD: Final = (
    "import os,sys;"
    "sys.version_info<(3,8) and sys.exit('Python 3.8 or newer is needed, this is '+sys.version.split()[0]);"
    "f=os.memfd_create('runner');"
    "o=open(f,'wb',closefd=False);o.write(sys.stdin.buffer.read());o.close();"
    "p='/proc/self/fd/%d'%f;sys.path.insert(0,p);"
    "from calibration.runner.__main__ import run;run(p)"
)
"""Program that reads the file from standard input, and runs it without writing it anywhere."""

ZERO: Final = (1980, 1, 1, 0, 0, 0)
"""Oldest time of a zip file: equal contents give equal bytes."""


def packed(files: Mapping[str, bytes], *, stored: frozenset[str] = frozenset()) -> bytes:
    """Return a zip file of *files*, by name; those in *stored* are not compressed."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name, ZERO)
            archive.writestr(info, data, zipfile.ZIP_STORED if name in stored else zipfile.ZIP_DEFLATED, 6)
    return content.getvalue()


@cache
def sources() -> dict[str, bytes]:
    """Return the runner's modules, by their name in the file."""
    modules = {
        f"calibration/runner/{path.name}": path.read_bytes()
        for path in sorted(HERE.glob("*.py"))
        if path.name != Path(__file__).name
    }
    return {"__main__.py": MAIN.encode(), "calibration/__init__.py": b"", **modules}


@cache
def runner() -> bytes:
    """Return the runner as one file that ``python3 FILE`` runs."""
    return packed(sources())
