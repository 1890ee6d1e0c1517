# SPDX-License-Identifier: Apache-2.0
"""Makes the package ``calibration`` importable where it is not installed: in a checkout, beside which this stands."""

from __future__ import annotations

import importlib.util
import os
import sys

from ansible.errors import AnsibleError

COLLECTION = os.path.abspath(__file__ + "/../../..")
"""The directory of the collection."""

VERSION = "0.1.0"
"""The version of the package that this collection needs."""

os.umask(os.umask(0o077) | 0o002)  # as the command calibration does: no file of ours can be written by everybody

if importlib.util.find_spec("calibration") is None:
    checkout = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))))
    if not os.path.isfile(os.path.join(checkout, "calibration", "__init__.py")):
        raise AnsibleError(
            f"calibration.harness needs the Python package calibration-harness {VERSION}: install it with "
            f"{sys.executable} -m pip install calibration-harness=={VERSION}"
        )
    sys.path.insert(0, checkout)
