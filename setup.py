# SPDX-License-Identifier: Apache-2.0
"""What pyproject.toml cannot say: a wheel has in calibration/share/ what stands beside the package in a checkout."""

from setuptools import find_namespace_packages, setup

PACKAGES = ["calibration", *(f"calibration.{name}" for name in find_namespace_packages("calibration"))]

# the script's name keeps this file out of the package whose directory it is in
setup(packages=[*PACKAGES, "calibration.share"], package_dir={"calibration.share": "."}, script_name="setup.py")
