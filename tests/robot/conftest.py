# SPDX-License-Identifier: Apache-2.0
"""Tests of gates use the run documents of the tests of pages."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "report")]
