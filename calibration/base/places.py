# SPDX-License-Identifier: Apache-2.0
"""Paths of the harness's own files and of its default output, in a checkout and installed."""

import os
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).resolve().parent.parent

_SHARE: Final = PACKAGE / "share"

INSTALLED: Final = _SHARE.is_dir()
"""Whether this is an installed wheel rather than a checkout."""

SHARE: Final = _SHARE if INSTALLED else PACKAGE.parent
"""Directory of ``ansible.cfg``, ``ansible``, ``playbooks``, ``templates`` and ``docs``."""

COLLECTION: Final = SHARE / "playbooks" / "collections" / "ansible_collections" / "calibration" / "harness"
"""The Ansible collection: plugins and roles."""

HOME_VARIABLE: Final = "CALIBRATION_HOME"
"""Environment variable with the default directory of results and site."""

HOME: Final = Path(os.environ.get(HOME_VARIABLE) or (Path.cwd() if INSTALLED else SHARE)).expanduser().absolute()
"""The checkout, or the working directory if the package is installed, unless ``CALIBRATION_HOME`` is set."""

RESULTS: Final = HOME / "results"
"""The default directory of results."""

CACHE_VARIABLE: Final = "CALIBRATION_CACHE_DIR"
"""Environment variable with the directory of the caches, for a read-only checkout."""

_USER_CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "calibration"

CACHE: Final = (
    Path(os.environ.get(CACHE_VARIABLE) or (_USER_CACHE if INSTALLED else SHARE / ".cache")).expanduser().absolute()
)
"""Built programs, the compiler's cache, the index of the results, the site being assembled."""
