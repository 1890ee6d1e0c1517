# SPDX-License-Identifier: Apache-2.0
"""Where the harness keeps what it can make again: in the checkout, or where ``CALIBRATION_CACHE_DIR`` says."""

import os
from pathlib import Path
from typing import Final

CHECKOUT: Final = Path(__file__).resolve().parents[1]

CACHE_VARIABLE: Final = "CALIBRATION_CACHE_DIR"
"""Environment variable with the directory of the caches, for a checkout that cannot be written."""

CACHE: Final = Path(os.environ.get(CACHE_VARIABLE) or CHECKOUT / ".cache").expanduser().absolute()
"""Built programs, the compiler's cache, the index of the results, the site as it is assembled."""
