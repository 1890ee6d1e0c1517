# SPDX-License-Identifier: Apache-2.0
"""Accessibility of the site by axe-core, light and dark, on a desktop and a phone, and its search.

axe-core comes from npm, pinned with its hash in ``axe/package-lock.json``.
"""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support import expected_conditions
from selenium.webdriver.support.wait import WebDriverWait

from tests.report.browsing import emulate
from tests.report.report_documents import PAGE
from tests.tools import require

pytestmark = pytest.mark.slow

LOCK = Path(__file__).parent / "axe"

PAGES = [
    "index.html", "guide/nightly.html", "method/loaded_latency.html", "reference/variables.html",
    "reference/commands.html", "reference/run_document.html", "calibration/index.html",
    "calibration/example-lab/index.html", "calibration/example-lab/gap.html",
    "calibration/example-lab/imported/index.html", PAGE, "search.html?q=latency",
]  # fmt: skip
"""One page of each kind."""

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
"""WCAG 2.0 to 2.2, levels A and AA, and best practices."""

LOOKS = (("wide", "light"), ("narrow", "dark"), ("wide", "dark"), ("narrow", "light"))
"""Window and colour scheme."""

CASES = [
    pytest.param(window, scheme, page, marks=() if number % 2 == place else pytest.mark.thorough)
    for number, page in enumerate(PAGES)
    for place, (window, scheme) in enumerate(LOOKS)
]
"""Every page in one look, another one than the page before; the thorough tests have all."""

CHECK = """
const done = arguments[arguments.length - 1];
axe.run(document, {runOnly: {type: "tag", values: arguments[0]}, resultTypes: ["violations"]})
  .then(found => done({violations: found.violations}), error => done({error: `${error}`}));
"""


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The script of axe-core, fetched and verified by npm."""
    npm = require("npm", "npm")
    place = tmp_path_factory.mktemp("axe")
    for name in ("package.json", "package-lock.json"):
        shutil.copyfile(LOCK / name, place / name)
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return (place / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


def violations(browser: webdriver.Chrome, axe: str) -> list[str]:
    """Return the violations that axe-core finds on the open page."""
    browser.execute_script(axe)
    found: dict[str, Any] = browser.execute_async_script(CHECK, RULES)
    assert "error" not in found, found
    return [
        f"{rule['id']}: {rule['help']}: {node['target']}: {node['html'][:200]}: {node['failureSummary']}"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]


@pytest.mark.parametrize(("browser", "scheme", "page"), CASES, indirect=["browser"], scope="module")
def test_a_page_is_accessible_and_fits_the_window(
    browser: webdriver.Chrome, root: str, axe: str, scheme: str, page: str
) -> None:
    emulate(browser, scheme=scheme)
    browser.get(f"{root}/{page}")
    ground = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, ground[4:-1].split(","))) > 3 * 128) == (scheme == "light"), ground
    assert browser.find_elements(By.TAG_NAME, "h1")
    width, room = browser.execute_script("return [document.documentElement.scrollWidth, window.innerWidth]")
    assert width <= room
    assert violations(browser, axe) == []


def test_axe_finds_violations(browser: webdriver.Chrome, axe: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(
        "<img src='data:,'><p style='color: #999; background: #aaa'>Nobody reads this</p>", encoding="utf-8"
    )
    browser.get(page.as_uri())
    found = {violation.partition(":")[0] for violation in violations(browser, axe)}
    assert {"image-alt", "color-contrast", "html-has-lang"} <= found


def test_the_keyboard_reaches_boxes_that_scroll(browser: webdriver.Chrome, root: str) -> None:
    browser.get(f"{root}/{PAGE}")
    boxes = browser.find_elements(By.CSS_SELECTOR, "article pre, article .table-wrapper")
    sizes = "return [arguments[0].scrollWidth > arguments[0].clientWidth, arguments[0].tabIndex]"
    found = {tuple(browser.execute_script(sizes, box)) for box in boxes}
    assert found == {(True, 0), (False, -1)}


# Search


def search(browser: webdriver.Chrome, root: str, words: str) -> list[str]:
    """Search for *words* and return the pages found, best first."""
    browser.get(f"{root}/index.html")
    field = browser.find_element(By.CSS_SELECTOR, "input.sidebar-search")
    if not field.is_displayed():
        browser.find_element(By.CSS_SELECTOR, ".mobile-header label.nav-overlay-icon").click()
        WebDriverWait(browser, 30).until(expected_conditions.element_to_be_clickable(field))
    field.send_keys(words, Keys.ENTER)
    summary = (By.CSS_SELECTOR, "#search-results .search-summary")
    # While the page of results takes the place of the one before, the driver may refuse to look.
    wait = WebDriverWait(browser, 60, ignored_exceptions=[WebDriverException])
    wait.until(lambda item: re.search("found|not match", item.find_element(*summary).text))
    links = browser.find_elements(By.CSS_SELECTOR, "#search-results ul.search li > a")
    return [str(link.get_attribute("href")).removeprefix(f"{root}/").partition("?")[0] for link in links]


SEARCHES = {
    "preflight_node_free_bytes": "reference/variables.html#confval-preflight_node_free_bytes",
    "NOT_CONVERGED": "method/validity.html",
    "cron": "guide/nightly.html",
    "t3-sut2": PAGE,
}


@pytest.mark.parametrize("words", SEARCHES)
def test_search_finds_the_page(browser: webdriver.Chrome, root: str, published: Path, words: str) -> None:
    """Search the served site for names, and the one opened from the disk for words."""
    found = search(browser, root if "_" in words else published.as_uri(), words)
    page = SEARCHES[words]
    assert page in {item.partition("#")[0] if "#" not in page else item for item in found[:5]}, found


def test_search_without_results_says_so(browser: webdriver.Chrome, root: str) -> None:
    assert search(browser, root, "zyzzyva") == []
    assert "did not match any documents" in browser.find_element(By.ID, "search-results").text
