# SPDX-License-Identifier: Apache-2.0
"""A real browser for the tests of this folder, and a web server for what it looks at.

Needs Debian's packages chromium and chromium-driver, and npm for the accessibility check. Without them the tests are
skipped, unless CALIBRATION_REQUIRE_BROWSER=1 is in the environment: then their absence fails them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from tests.tools import require

VIEWS = {"wide": (1440, 900), "narrow": (390, 844)}
"""Width and height of a window on a desk and on a telephone, in px."""


HUNG_S = 600
"""After so long a browser hangs: what takes seconds on a machine with nothing else to do may take minutes."""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_arguments: Any) -> None:
        """Say nothing: the test's own output is enough."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve *folder* on this machine, and yield the address of its root, without a slash at its end."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def chromium(view: str, profile: Path) -> Iterator[webdriver.Chrome]:
    """Start chromium with a window of *view* and a *profile* of its own, and end it afterwards."""
    options = webdriver.ChromeOptions()
    options.binary_location = require("chromium", "chromium")
    driver = require("chromium-driver", "chromedriver")
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        f"--user-data-dir={profile}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    opened = webdriver.Chrome(options=options, service=Service(driver))
    opened.command_executor.client_config.timeout = HUNG_S
    opened.set_script_timeout(HUNG_S)
    try:
        width, height = VIEWS[view]
        opened.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )
        yield opened
    finally:
        opened.quit()
