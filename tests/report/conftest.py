# SPDX-License-Identifier: Apache-2.0
"""Makes the builders of run documents importable for the tests of this folder, and one document shared by them."""

import sys
from pathlib import Path

import pytest

from calibration.results.model import RunDocument

sys.path.insert(0, str(Path(__file__).parent))

from report_documents import run_document


@pytest.fixture(scope="session")
def document() -> RunDocument:
    """One run with every kind."""
    return run_document()
