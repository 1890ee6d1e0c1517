# SPDX-License-Identifier: Apache-2.0
"""Names in a directory of results: ``<results>/<testbed>/<sut>/<run-id>/run.json``, and the references beside.

Whoever needs no more than these does not import the models.
"""

import os
from pathlib import Path
from typing import Final, Literal

RUN: Final = "run.json"
"""The run document in a run's directory."""

REFERENCES: Final = "references"
"""The directory in the results that is no testbed's."""

MAX_REFERENCE_BYTES: Final = 64 * 1024 * 1024
"""A larger file of references is refused: hundreds of acceptances of the largest machine have less."""

SCHEMA_VERSION: Literal["run/1"] = "run/1"
"""The version of the run document that :mod:`calibration.results.model` describes."""


def directories(parent: Path) -> list[str]:
    """Return the names of the directories in *parent*; hidden ones are not ready. Raises ``OSError``."""
    with os.scandir(parent) as entries:
        return [each.name for each in entries if not each.name.startswith(".") and each.is_dir()]
