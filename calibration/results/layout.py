# SPDX-License-Identifier: Apache-2.0
"""Names in a directory of results: ``<results>/<testbed>/<sut>/<run-id>/run.json``, and the references beside."""

from typing import Final

RUN: Final = "run.json"
"""The run document in a run's directory."""

REFERENCES: Final = "references"
"""The directory in the results that is no testbed's."""
