# SPDX-License-Identifier: Apache-2.0
"""Make the pictures of the home page from a demo's lab: ``python -m tests.report.screenshots RESULTS``."""

import sys
import tempfile
from pathlib import Path
from typing import Final

from calibration.demo.lab import FAILING
from calibration.report.site import DOCS, build_site
from tests.report.browsing import chromium, served

PICTURES: Final = {"lab.png": ("calibration/index.html", 760), "page.png": (f"calibration/{'/'.join(FAILING)}/", 730)}
"""By name: the page of the site, and the height of what is shown of it in px."""

WIDTH: Final = 1400


def main(results: Path, folder: Path) -> None:
    """Write the pictures into *folder*."""
    with tempfile.TemporaryDirectory(prefix="calibration-pictures-") as made:
        site = build_site(results, output=Path(made, "site")).parent
        with served(site) as root, chromium(Path(made, "profile")) as browser:
            for name, (page, height) in PICTURES.items():
                size = {"width": WIDTH, "height": height, "deviceScaleFactor": 1, "mobile": False}
                browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
                browser.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
                browser.get(f"{root}/{page}")
                browser.execute_script(
                    "document.querySelectorAll('[loading=lazy]').forEach(item => item.loading = 'eager')"
                )
                browser.execute_async_script("document.fonts.ready.then(arguments[0])")
                if not browser.save_screenshot(str(folder / name)):
                    raise OSError(f"no picture of {page}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), DOCS / "_static")
