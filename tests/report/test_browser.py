# SPDX-License-Identifier: Apache-2.0
"""Pages in a browser, wide and narrow: layout, charts, keyboard, print, and requests."""

import base64
import json
import re
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from calibration.report import filters, site
from calibration.report.sections import SECTIONS
from calibration.results.model import RunDocument
from tests.report.browsing import emulate, served
from tests.report.made_lab import LARGE, server_document
from tests.report.report_documents import PAGE, judged, store


@pytest.fixture(scope="module")
def address(root: str) -> str:
    """Return the address of the page of *shaped*."""
    return f"{root}/{PAGE}"


@pytest.fixture(scope="module", name="browser")
def _browser(browser: webdriver.Chrome, address: str) -> webdriver.Chrome:
    """Open the page of *shaped*, in each size."""
    emulate(browser)
    browser.get(address)
    return browser


def shown(browser: webdriver.Chrome, selector: str) -> list[WebElement]:
    found = browser.find_elements(By.CSS_SELECTOR, selector)
    assert found, f"nothing matches {selector}"
    for item in found:
        browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", item)
        assert item.is_displayed(), item.get_attribute("outerHTML")
    return found


def opened(browser: webdriver.Chrome) -> None:
    """Unfold everything."""
    browser.execute_script("document.querySelectorAll('details').forEach(each => { each.open = true; })")


ALPHABET = """
const text = document.createElement("canvas").getContext("2d");
text.font = getComputedStyle(document.body).font;
return text.measureText("abcdefghijklmnopqrstuvwxyz").width;
"""
"""Width of the alphabet on the page in px: 204 in Arial, 234 in DejaVu Sans, in which a page is as much taller."""


def test_the_first_screen_has_the_answer_and_the_headline_table(browser: webdriver.Chrome) -> None:
    browser.execute_script("window.scrollTo(0, 0)")
    height = browser.execute_script("return window.innerHeight")
    answer = shown(browser, "article .answer")[0]
    assert answer.location["y"] < height / 2
    rows = browser.find_elements(By.CSS_SELECTOR, "article table.headlines tbody tr")
    assert len(rows) >= 6
    assert rows[0].location["y"] < height
    assert rows[0].text.startswith("Idle latency")


def test_a_page_of_eight_nodes_is_at_most_10000_px_tall_on_a_desk(browser: webdriver.Chrome) -> None:
    width, height = browser.execute_script("return [window.innerWidth, document.documentElement.scrollHeight]")
    assert height <= (10000 if width > 1000 else 18000) * max(1.0, browser.execute_script(ALPHABET) / 204)


def test_tables_of_metrics_do_not_scroll_sideways(browser: webdriver.Chrome) -> None:
    found = browser.find_elements(By.CSS_SELECTOR, "article :is(table.metrics, table.headlines)")
    assert len(found) > len(SECTIONS)
    for table in found:
        box = browser.execute_script("return arguments[0].closest('.table-wrapper') ?? arguments[0]", table)
        assert browser.execute_script("return arguments[0].scrollWidth - arguments[0].clientWidth", box) <= 1, (
            table.text
        )


def test_every_chart_is_visible_interactive_and_named(browser: webdriver.Chrome) -> None:
    charts = shown(browser, "article figure.chart")
    assert len(charts) > 5
    wait = WebDriverWait(browser, 60)
    for chart in charts:
        browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", chart)
        wait.until(lambda _, chart=chart: "interactive" in (chart.get_attribute("class") or ""))
        drawn = chart.find_element(By.CSS_SELECTOR, ".chart-view svg")
        assert drawn.size["width"] > 100
        assert drawn.size["width"] <= chart.size["width"] + 1
        view, picture = (chart.find_element(By.CSS_SELECTOR, name) for name in (".chart-view", "img"))
        assert view.get_attribute("aria-label") == picture.get_attribute("alt")
        assert view.get_attribute("role") == "img"
        assert chart.get_attribute("tabindex") == "0"


def test_a_chart_has_tooltips(browser: webdriver.Chrome) -> None:
    chart = shown(browser, "article figure.chart")[0]
    WebDriverWait(browser, 60).until(lambda _: "interactive" in (chart.get_attribute("class") or ""))
    tips: list[WebElement] = []

    def has_tooltip(opened: webdriver.Chrome) -> bool:
        point = chart.find_element(By.CSS_SELECTOR, ".chart-view svg .mark-symbol path")
        ActionChains(opened).move_to_element(chart).move_to_element(point).perform()
        tips[:] = opened.find_elements(By.CSS_SELECTOR, "#vg-tooltip-element.visible")
        return bool(tips)

    WebDriverWait(browser, 60).until(has_tooltip)
    assert re.search(r"\d", tips[0].text)


def test_parts_are_folded_and_open_with_the_keyboard(browser: webdriver.Chrome) -> None:
    fold = shown(browser, "article details.fold:has(pre)")[0]
    assert fold.get_attribute("open") is None
    inside = fold.find_element(By.CSS_SELECTOR, "pre")
    assert not inside.is_displayed()
    fold.find_element(By.TAG_NAME, "summary").send_keys(Keys.ENTER)
    assert inside.is_displayed()
    fold.find_element(By.TAG_NAME, "summary").send_keys(Keys.ENTER)
    assert not inside.is_displayed()


def test_the_closed_page_is_printed_with_each_chart_once(browser: webdriver.Chrome) -> None:
    emulate(browser, media="print")
    try:
        for chart in browser.find_elements(By.CSS_SELECTOR, "article figure.chart"):
            drawn = chart.find_elements(By.CSS_SELECTOR, "img, .chart-view")
            assert sum(item.is_displayed() for item in drawn) == 1
        for hidden in (".skip-to-content", "button.copy", "article details.fold:not([open])"):
            assert not any(item.is_displayed() for item in browser.find_elements(By.CSS_SELECTOR, hidden))
    finally:
        emulate(browser)


def test_charts_follow_the_colour_scheme(browser: webdriver.Chrome) -> None:
    chart = shown(browser, "article figure.chart")[0]
    WebDriverWait(browser, 60).until(lambda _: "interactive" in (chart.get_attribute("class") or ""))
    ink = "return getComputedStyle(arguments[0].querySelector('.chart-view svg text')).fill"
    light = browser.execute_script(ink, chart)
    emulate(browser, scheme="dark")
    try:
        WebDriverWait(browser, 30).until(lambda item: item.execute_script(ink, chart) != light)
    finally:
        emulate(browser)


def test_tables_and_result_blocks_have_their_texts(browser: webdriver.Chrome, shaped: RunDocument) -> None:
    blocks = [
        block.get_attribute("textContent") or ""
        for block in browser.find_elements(By.CSS_SELECTOR, "article details.fold pre")
    ]
    for measurement in shaped.measurements:
        assert any(block.startswith(filters.command(measurement.argv)) for block in blocks), measurement.id
    assert any("ALL Reads        :" in block for block in blocks)
    assert any("Inject  Latency Bandwidth" in block for block in blocks)


def test_the_sections_are_in_their_order(browser: webdriver.Chrome) -> None:
    headings = [(item.text or "").rstrip("¶#").strip() for item in shown(browser, "article h2")]
    expected = ["Advice", "Normal", *SECTIONS, "Evidence"]
    assert headings[: len(expected)] == expected


def test_invalid_values_are_struck_out_on_the_screen(browser: webdriver.Chrome) -> None:
    opened(browser)
    lines = "return [...document.querySelectorAll(arguments[0])].map(item => getComputedStyle(item).textDecorationLine)"
    assert set(browser.execute_script(lines, "article .struck")) == {"line-through"}
    sound = "article div.highlight-default:not(.struck) pre, article td p"
    assert "none" in browser.execute_script(lines, sound)
    assert browser.find_elements(By.CSS_SELECTOR, "article .struck pre"), "the result block itself is struck out"


def test_the_page_is_never_wider_than_the_window(browser: webdriver.Chrome) -> None:
    width, room = browser.execute_script("return [document.documentElement.scrollWidth, window.innerWidth]")
    assert width <= room
    # what is wider than the window scrolls in a box of its own
    boxes = browser.find_elements(By.CSS_SELECTOR, "article div.highlight pre, article .table-wrapper")
    wider = [
        box
        for box in boxes
        if browser.execute_script("return arguments[0].scrollWidth > arguments[0].clientWidth + 1", box)
    ]
    assert wider, "the page has lines that are longer than any window"
    for item in wider:
        assert browser.execute_script(
            "let e = arguments[0];"
            "while (e && getComputedStyle(e).overflowX !== 'auto') e = e.parentElement;"
            "return e !== null",
            item,
        )


def test_the_browser_logs_no_error_and_asks_no_other_server(browser: webdriver.Chrome, root: str, address: str) -> None:
    assert [item for item in browser.get_log("browser") if item["level"] in {"SEVERE", "WARNING"}] == []
    messages = [json.loads(item["message"])["message"] for item in browser.get_log("performance")]
    sent = [message["params"] for message in messages if message["method"] == "Network.requestWillBeSent"]
    asked = {item["requestId"]: item["request"]["url"] for item in sent if item["documentURL"].startswith(root)}
    assert address in asked.values()
    assert [url for url in asked.values() if not url.startswith((root, "data:"))] == []
    failed = [message["params"] for message in messages if message["method"] == "Network.loadingFailed"]
    assert [item for item in failed if item["requestId"] in asked] == []
    answers = [message["params"] for message in messages if message["method"] == "Network.responseReceived"]
    statuses = {answer["requestId"]: answer["response"]["status"] for answer in answers if answer["requestId"] in asked}
    assert statuses
    assert [asked[request] for request, status in statuses.items() if status >= 400] == []


def test_the_map_has_signs_besides_colours(browser: webdriver.Chrome, root: str) -> None:
    browser.get(f"{root}/calibration/example-lab/index.html")
    assert shown(browser, ".lab-sentence")[0].text.endswith("5 SUTs: 2 failed, 1 without a baseline, 2 as accepted.")
    colour = "return getComputedStyle(arguments[0]).backgroundColor"
    cells = shown(browser, "table.lab-map a.cell")
    pairs = {(cell.text, browser.execute_script(colour, cell)) for cell in cells}
    assert {sign for sign, _ in pairs} == {"\N{MINUS SIGN}", "\N{MIDDLE DOT}", "w", "\N{WHITE CIRCLE}"}
    assert len({colour for _, colour in pairs}) == 2
    rows = shown(browser, "table.lab-map tbody tr")
    assert all(24 <= row.size["height"] <= 28 for row in rows), "a cell is easy to hit, and a row no taller than that"


def test_every_chart_of_a_testbed_becomes_interactive(browser: webdriver.Chrome, root: str) -> None:
    browser.get(f"{root}/calibration/example-lab/index.html")
    figures = shown(browser, "article figure.chart")
    assert len(figures) == 2
    for figure in figures:
        browser.execute_script("arguments[0].scrollIntoView()", figure)
        WebDriverWait(browser, 20).until(lambda _, figure=figure: "interactive" in figure.get_attribute("class"))


A4_INCHES = (8.27, 11.69)

SMALLEST = """
const words = (item) => [...item.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
const shown = [...document.querySelectorAll("article *")].filter((item) => item.checkVisibility() && words(item));
return Math.min(...shown.map((item) => parseFloat(getComputedStyle(item).fontSize)));
"""

RIGHTMOST = """
const items = [...document.querySelectorAll("article *")];
return Math.max(...items.map((item) => item.getBoundingClientRect().right));
"""


def sheets(browser: webdriver.Chrome) -> int:
    """Return the number of sheets on which the page is printed."""
    width, height = A4_INCHES
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"paperWidth": width, "paperHeight": height})["data"]
    return len(re.findall(rb"/Type\s*/Page\b", base64.b64decode(printed)))


def test_a_run_is_printed_on_three_sheets(browser: webdriver.Chrome, root: str) -> None:
    browser.get(f"{root}/calibration/example/index.html")
    assert 2 <= sheets(browser) <= 3


@pytest.mark.slow
def test_a_large_server_is_printed_on_four_sheets(
    one_browser: webdriver.Chrome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "CACHE", tmp_path / "cache")
    store(judged(server_document(LARGE)), tmp_path / "results")
    site.build_site(tmp_path / "results", site.DOCS, tmp_path / "html")
    with served(tmp_path / "html") as own_root:
        one_browser.get(f"{own_root}/calibration/t4/sut1/index.html")
        assert 2 <= sheets(one_browser) <= 4
        emulate(one_browser, media="print")
        width = round(96 * A4_INCHES[0])
        size = {"width": width, "height": width, "deviceScaleFactor": 1, "mobile": False}
        one_browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        try:
            assert one_browser.execute_script(SMALLEST) * 72 / 96 >= 7 - 0.01
            assert one_browser.execute_script(RIGHTMOST) <= width
        finally:
            emulate(one_browser)


TEXT = """
const sizes = [];
for (const svg of document.querySelectorAll("article figure.chart .chart-view svg")) {
  const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
  for (const text of svg.querySelectorAll("text")) {
    if (text.textContent.trim()) {
      sizes.push(parseFloat(getComputedStyle(text).fontSize) * scale);
    }
  }
}
return sizes;
"""


def test_text_of_charts_has_nine_px_as_shown(browser: webdriver.Chrome, address: str) -> None:
    browser.get(address)
    for chart in shown(browser, "article figure.chart"):
        browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", chart)
        WebDriverWait(browser, 60).until(lambda _, chart=chart: "interactive" in chart.get_attribute("class"))
    sizes = browser.execute_script(TEXT)
    assert len(sizes) > 100
    assert min(sizes) >= 8.99
