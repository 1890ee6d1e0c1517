# SPDX-License-Identifier: Apache-2.0
"""What pyproject.toml cannot say about a wheel.

``calibration/share/`` has what stands beside the package in a checkout, ``calibration/probe/`` sutprobe for both
architectures, built from the sources there.
"""

import sys
import tempfile
from pathlib import Path

from setuptools import find_namespace_packages, setup
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).parent))

from calibration.build import pack

PACKAGES = ["calibration", *(f"calibration.{name}" for name in find_namespace_packages("calibration"))]


class BuildPackage(build_py):
    """Builds the package with sutprobe."""

    def run(self) -> None:
        """Fill the build directory; an editable checkout builds sutprobe when it needs it."""
        if self.editable_mode:
            super().run()
            return
        super().run()
        pack(Path(self.build_lib) / "calibration" / "probe")


with tempfile.TemporaryDirectory(prefix="calibration-build-") as work:  # nothing is left in the checkout, or taken
    setup(
        packages=[*PACKAGES, "calibration.share"],
        package_dir={"calibration.share": "."},
        cmdclass={"build_py": BuildPackage},
        script_name="setup.py",  # keeps this file out of the package whose directory it is in
        options={"build": {"build_base": work}, "egg_info": {"egg_base": work}},
    )
