# SPDX-License-Identifier: Apache-2.0
"""What pyproject.toml cannot say about a wheel.

``calibration/share/`` has what stands beside the package in a checkout.
"""

import tempfile

from setuptools import find_namespace_packages, setup

PACKAGES = ["calibration", *(f"calibration.{name}" for name in find_namespace_packages("calibration"))]


with tempfile.TemporaryDirectory(prefix="calibration-build-") as work:  # nothing is left in the checkout, or taken
    setup(
        packages=[*PACKAGES, "calibration.share"],
        package_dir={"calibration.share": "."},
        script_name="setup.py",  # keeps this file out of the package whose directory it is in
        options={"build": {"build_base": work}, "egg_info": {"egg_base": work}},
    )
