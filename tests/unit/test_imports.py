# SPDX-License-Identifier: Apache-2.0
"""Every module can be imported, without a warning, by each Python that runs this."""

import importlib
import pkgutil

import calibration


def test_every_module_of_the_package_is_importable() -> None:
    names = [module.name for module in pkgutil.walk_packages(calibration.__path__, "calibration.")]
    assert len(names) > 100
    for name in names:
        importlib.import_module(name)
