# SPDX-License-Identifier: Apache-2.0
"""A browser for the tests of this folder, and a web server for the pages that it opens."""

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
"""Width and height of the window of a desktop and of a phone, in px."""

HUNG_S = 600
"""Time limit of a command to the browser: what takes seconds on an idle machine may take minutes."""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_arguments: Any) -> None:
        """Log nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve *folder* on this machine, and yield the address of its root without a trailing slash."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def chromium(profile: Path) -> Iterator[webdriver.Chrome]:
    """Start chromium with its own *profile*, and quit it afterwards."""
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
        yield opened
    finally:
        opened.quit()


def look(browser: webdriver.Chrome, view: str) -> None:
    """Give *browser* a window of *view*."""
    width, height = VIEWS[view]
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def emulate(browser: webdriver.Chrome, *, media: str = "", scheme: str = "") -> None:
    """Have *browser* show pages as printed, or in a colour scheme; as on a screen by default."""
    features = [{"name": "prefers-color-scheme", "value": scheme}] if scheme else []
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
