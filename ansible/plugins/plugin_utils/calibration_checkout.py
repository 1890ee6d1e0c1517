# SPDX-License-Identifier: Apache-2.0
"""Makes the package ``calibration`` of this checkout importable: Ansible loads plugins by their path."""

from __future__ import annotations

import os
import sys

ROOT = os.path.abspath(__file__ + "/../../../..")
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)
