# SPDX-License-Identifier: Apache-2.0
"""A page in a real browser, wide and narrow: what a reader sees is there, legible, and asks no other server."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from browsing import VIEWS, chromium, served
from report_documents import PAGE, figure_count
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from calibration.report import filters
from calibration.results.model import RunDocument

LEGIBLE_PX = 9.0
"""Least height of a figure's text on the screen."""


@pytest.fixture(scope="module")
def document(shaped: RunDocument) -> RunDocument:
    return shaped


@pytest.fixture(scope="module")
def address(published: Path) -> Iterator[str]:
    """Serve the site, and yield the address of the page of *document*."""
    with served(published) as root:
        yield f"{root}/{PAGE}"


@pytest.fixture(params=VIEWS, scope="module")
def browser(
    request: pytest.FixtureRequest, address: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[webdriver.Chrome]:
    """Open the page in chromium, wide and narrow."""
    with chromium(request.param, tmp_path_factory.mktemp("profile")) as opened:
        opened.get(address)
        yield opened


def shown(browser: webdriver.Chrome, selector: str) -> list[WebElement]:
    found = browser.find_elements(By.CSS_SELECTOR, selector)
    assert found, f"nothing matches {selector}"
    for each in found:
        browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", each)
        assert each.is_displayed(), each.get_attribute("outerHTML")
    return found


def test_every_figure_is_loaded_and_visible(browser: webdriver.Chrome, document: RunDocument) -> None:
    images = shown(browser, "article figure img")
    assert len(images) == figure_count(document) > 5
    for image in images:
        natural = browser.execute_script("return [arguments[0].naturalWidth, arguments[0].naturalHeight]", image)
        assert min(natural) > 0
        assert image.size["width"] > 100
        assert image.size["height"] > 50
        assert image.get_attribute("alt")


def test_the_text_of_every_figure_is_legible(browser: webdriver.Chrome) -> None:
    for image in shown(browser, "article figure img"):
        natural = browser.execute_script("return arguments[0].naturalWidth", image)
        padding = 2 * 5  # of the frame around it
        assert 13 * (image.size["width"] - padding) / natural >= LEGIBLE_PX, image.get_attribute("src")


def test_tables_and_result_blocks_are_visible_with_their_texts(
    browser: webdriver.Chrome, document: RunDocument
) -> None:
    tables = shown(browser, "article table.calibration")
    headers = [table.find_elements(By.TAG_NAME, "th")[0].text for table in tables]
    assert headers[0] == "Figure"
    assert "NUMA node" in headers
    assert "Cache" in headers
    blocks = [block.get_attribute("textContent") or "" for block in shown(browser, "article div.highlight pre")]
    for measurement in document.measurements:
        assert any(block.startswith(filters.command(measurement.argv)) for block in blocks), measurement.id
    assert any("ALL Reads        :" in block for block in blocks)
    assert any("Inject  Latency Bandwidth" in block for block in blocks)


def test_the_sections_of_the_published_pages_are_in_their_order(browser: webdriver.Chrome) -> None:
    headings = [(each.text or "").rstrip("¶#").strip() for each in shown(browser, "article h2")]
    published = [
        "Linux cmdline",
        "Linux uname",
        "System-level core jitter",
        "Memory bandwidth",
        "Memory latency",
        "L1/L2/LLC latency",
    ]
    assert [each for each in headings if each in published] == published


def test_an_invalid_figure_is_struck_out_on_the_screen(browser: webdriver.Chrome) -> None:
    line_of = "return getComputedStyle(arguments[0]).textDecorationLine"
    struck = shown(browser, "article .struck")
    assert struck
    assert {browser.execute_script(line_of, each) for each in struck} == {"line-through"}
    sound = browser.find_elements(By.CSS_SELECTOR, "article div.highlight-default:not(.struck) pre, article td p")
    assert "none" in {browser.execute_script(line_of, each) for each in sound}
    assert browser.find_elements(By.CSS_SELECTOR, "article .struck pre"), "the result block itself is struck out"


def test_the_page_is_never_wider_than_the_window(browser: webdriver.Chrome) -> None:
    width, room = browser.execute_script("return [document.documentElement.scrollWidth, window.innerWidth]")
    assert width <= room
    # what is wider than the window scrolls in a box of its own
    boxes = browser.find_elements(By.CSS_SELECTOR, "article div.highlight pre, article .table-wrapper")
    wider = [
        each
        for each in boxes
        if browser.execute_script("return arguments[0].scrollWidth > arguments[0].clientWidth + 1", each)
    ]
    assert wider, "the page has lines that are longer than any window"
    for each in wider:
        assert browser.execute_script(
            "let e = arguments[0];"
            "while (e && getComputedStyle(e).overflowX !== 'auto') e = e.parentElement;"
            "return e !== null",
            each,
        )


def test_the_browser_has_nothing_to_complain_about_and_asks_no_other_server(
    browser: webdriver.Chrome, address: str
) -> None:
    assert [each for each in browser.get_log("browser") if each["level"] in {"SEVERE", "WARNING"}] == []
    origin = address.partition("/calibration/")[0]
    messages = [json.loads(each["message"])["message"] for each in browser.get_log("performance")]
    sent = [each["params"] for each in messages if each["method"] == "Network.requestWillBeSent"]
    asked = {each["requestId"]: each["request"]["url"] for each in sent if each["documentURL"].startswith(origin)}
    assert address in asked.values()
    assert [url for url in asked.values() if not url.startswith((origin, "data:"))] == []
    failed = [each["params"] for each in messages if each["method"] == "Network.loadingFailed"]
    assert [each for each in failed if each["requestId"] in asked] == []
    answers = [each["params"] for each in messages if each["method"] == "Network.responseReceived"]
    statuses = {each["requestId"]: each["response"]["status"] for each in answers if each["requestId"] in asked}
    assert statuses
    assert [asked[request] for request, status in statuses.items() if status >= 400] == []


def test_tonight_is_told_in_words_beside_the_colour(browser: webdriver.Chrome, address: str) -> None:
    browser.get(f"{address.partition('/calibration/')[0]}/calibration/index.html")
    assert shown(browser, "article p strong")[0].text.startswith("Tonight, 2026-01-02: 2 of 6 SUTs are as accepted")
    states = shown(browser, "table.standings .state")
    assert [each.text for each in states] == [
        *("fails", "fails", "not measured", "no reference yet", "as accepted", "as accepted", "no longer measured")
    ]
    colour = "return getComputedStyle(arguments[0]).backgroundColor"
    assert len({browser.execute_script(colour, each) for each in states}) == 4


def test_every_figure_of_the_trends_is_legible(browser: webdriver.Chrome, address: str) -> None:
    browser.get(f"{address.partition('/calibration/')[0]}/calibration/trends/example-lab/index.html")
    images = shown(browser, "article figure.trend img")
    assert len(images) == 2
    for image in images:
        natural = browser.execute_script("return arguments[0].naturalWidth", image)
        assert 13 * (image.size["width"] - 2 * 5) / natural >= LEGIBLE_PX
