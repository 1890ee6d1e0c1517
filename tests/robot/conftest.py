# SPDX-License-Identifier: Apache-2.0
"""What the tests of gates share with those of pages: run documents made of what was recorded."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "report")]
