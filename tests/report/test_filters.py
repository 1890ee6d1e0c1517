# SPDX-License-Identifier: Apache-2.0
"""Filters of templates: formatted numbers, and foreign text that stays text."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from docutils import nodes
from docutils.core import publish_doctree
from hypothesis import example, given
from hypothesis import strategies as st

from calibration.base import units
from calibration.base.statistics import estimate
from calibration.base.text import visible
from calibration.measurements.evidence import Missing
from calibration.report import filters
from calibration.report.blocks import Bullets, Paragraph, Span, Term
from calibration.report.parts import verbatim
from calibration.report.rst import heading, inline, to_rst
from calibration.results.consistency import CheckedValue

STRICT = {"halt_level": 2, "report_level": 2, "warning_stream": "", "file_insertion_enabled": False}


def parsed(source: str) -> nodes.document:
    document: nodes.document = publish_doctree(source, settings_overrides=STRICT)
    return document


def shown(text: str) -> str:
    return " ".join(visible(text).split()) or "-"


def test_the_middle_of_no_values_is_absent() -> None:
    assert units.table_value(units.middle([3.0, 1.0, 2.0]), "ns") == "2.000"
    assert units.table_value(units.middle([]), "ns") == units.ABSENT


@pytest.mark.parametrize(("values", "text"), [
    ([], "-"),
    ([131.0], "131 ns"),
    ([140.0, 131.04, 135.0], "131 to 140 ns"),
    ([131.01, 131.04], "131 ns"),
    ([140.0, 25000.0], "140 ns to 25.0 µs"),
], ids=str)  # fmt: skip
def test_a_range_is_from_the_lowest_to_the_highest_value(values: list[float], text: str) -> None:
    assert (
        units.headline_range([CheckedValue(name="", value=value, unit="ns", interval=None) for value in values]) == text
    )


HOSTILE = [
    "", "- item", "1. item", "(a) item", "#. item", "..", ".. raw:: html", "::", "====", "-o option", ":field: x",
    ">>> code", "| line", "*a* **b** `c` ``d`` |e| f_ g__ _`h` [1]_ <i>", "http://example.com/x user@example.com",
    ":raw:`x`", "ends with colons::", "back\\slash", "a\nb", "a\x0bb\x0cc\x1dd\x85e\u2028.. raw:: html\u2029f",
    "\u202eoverride", "__init__ a_b_", "\u00e9t\u00e9 \u6f22\u5b57 \U0001f600", "'quoted' \"twice\" -- dashes... ",
]  # fmt: skip


@given(st.text(max_size=60))
def test_inline_shows_any_text_as_text(text: str) -> None:
    paragraph = parsed(f"before {inline(text)}").children
    assert len(paragraph) == 1
    assert isinstance(paragraph[0], nodes.paragraph)
    assert all(isinstance(node, nodes.Text) for node in paragraph[0].children)
    assert paragraph[0].astext() == f"before {shown(text)}"


@pytest.mark.parametrize("text", HOSTILE)
def test_inline_text_stays_text_at_the_start_of_a_cell(text: str) -> None:
    source = f".. list-table::\n\n   * - {inline(text)}\n     - second\n"
    entries = list(parsed(source).findall(nodes.entry))
    assert [len(entry.children) for entry in entries] == [1, 1]
    assert entries[0].astext() == shown(text)
    assert all(isinstance(node, nodes.Text) for node in entries[0].children[0].children)


@pytest.mark.parametrize("text", [item for item in HOSTILE if item.strip()])
def test_a_heading_of_any_text_is_a_title(text: str) -> None:
    document = parsed(f"{heading(text, 0)}\n\nparagraph\n")
    assert document["title"] == shown(text) if "title" in document else shown(text) in document.astext()
    titles = list(document.findall(nodes.title))
    assert [title.astext() for title in titles] == [shown(text)]


@given(st.text(max_size=80))
@example("x\n\n.. raw:: html\n\n   <script>")
@example("x\u2028.. raw:: html")
@example("x\x0c.. raw:: html")
def test_no_text_ends_a_literal_block(text: str) -> None:
    written = to_rst((verbatim(f"first line\n{text}"), Paragraph(("after",))))
    block, after = [item for item in parsed(written).children if not isinstance(item, nodes.Invisible)]
    assert isinstance(block, nodes.literal_block)
    assert after.astext() == "after"
    wanted = [
        "".join(item if item == " " else visible(item) for item in line.rstrip()).rstrip() for line in text.split("\n")
    ]
    while wanted and not wanted[-1]:
        wanted.pop()
    assert block.astext().rstrip("\n").split("\n")[1:] == wanted


def kinds(text: str) -> list[str]:
    """Return the elements of a page that has *text* in blocks of several kinds."""
    bullets = Bullets(((text,), ("x", Span("y", "warn"), text)))
    blocks = (Paragraph((text,)), Paragraph(("x\n", text, Span("y", "warn"), text)), bullets,
              Term((text, "x"), (text,), bullets), Paragraph((text,), "kind"))  # fmt: skip
    found = parsed(to_rst(blocks)).findall(nodes.Element)
    return [type(node).__name__ for node in found if not isinstance(node, nodes.Invisible)]


@given(st.text(max_size=60).filter(str.strip))
@example("\n   * - a\n=== ===\n+--+\n| x")
@example("a\n\n.. raw:: html\n\n   <script>")
@example("====\na\n====")
def test_no_text_changes_the_structure_of_a_page(text: str) -> None:
    assert kinds(text) == kinds("word")


FORMATTED = {
    units.significant: [((None, 4), "-"), ((0.0, 4), "0"), ((97.5234, 4), "97.52"), ((118321.04, 4), "118321"),
        ((0.000123456, 3), "0.000123"), ((9.9996, 4), "10.000"), ((-3.14159, 3), "-3.14")],
    units.table_value: [((None, "ns"), "-"), ((1.2034, "ns"), "1.203"), ((97.5234, "ns"), "97.52"),
        ((139.64, "ns"), "139.6"), ((118321.04, "MB/s"), "118321.0"), ((0.5, "ratio"), "0.5000")],
    units.measured: [((None, "ns"), "-"), ((139.64, "ns"), "139.6 ns"), ((4_123_456.0, "ns"), "4.123 ms"),
        ((0.000340, "fraction"), "0.0340 %"), ((61013.64, "MB/s"), "61013.6 MB/s")],
    units.measured_interval: [((None, "ns"), "-"), (((0.0, 1.069e6), "ns"), "0 to 1.069 ms"),
        (((96.9, 98.2), "ns"), "96.90 to 98.20 ns"), (((8509.2, 27622.5), "ns"), "8509.2 ns to 27.62 µs"),
        (((590400.0, 637200.0), "per hour"), "164 to 177 per second")],
    units.size: [((None,), "-"), ((64,), "64 B"), ((1 << 15,), "32 KiB"), ((134217728,), "128 MiB"),
        ((24682416 << 10,), "23.5 GiB"), ((3 << 40,), "3 TiB"), ((1023,), "1023 B"), ((56,), "56 B"),
        ((1536,), "1.50 KiB")],
    units.time_ns: [((None,), "-"), ((14.23,), "14.2 ns"), ((4.06e6,), "4.06 ms"), ((2100.0,), "2.10 µs"),
        ((1.5e9,), "1.50 s"), ((0.0,), "0 ns")],
    units.exact_time_ns: [((200.0,), "200 ns"), ((1000.0,), "1 µs"), ((50_000.0,), "50 µs"), ((1e9,), "1 s")],
    units.exact_percent: [((0.5,), "50 %"), ((0.99999,), "99.999 %"), ((0.9999999,), "99.99999 %")],
    units.duration: [((None,), "-"), ((5.23,), "5.2 s"), ((59.96,), "60.0 s"), ((80.0,), "1 min 20 s"),
        ((7260.0,), "2 h 1 min")],
    units.frequency: [((None,), "-"), ((2445424099.77,), "2.445 GHz"), ((25e6,), "25.00 MHz"), ((250.0,), "250.0 Hz"),
        ((1e3,), "1.000 kHz")],
    units.rate: [((0.0,), "0 per hour"), ((5.991,), "5.99 per hour"), ((600.0,), "10 per minute"),
        ((614871.0,), "171 per second")],
    units.cpus: [((None,), "-"), (((),), "none"), (((0, 1, 2, 8),), "0-2,8"), (((5,),), "5"), (((3, 1),), "1,3")],
    units.numbered: [(("CPU", (5,)), "CPU 5"), (("node", (0, 1, 2, 8)), "nodes 0-2,8")],
    units.fixed: [((97.46, 1, 8), "    97.5"), ((None, 1, 8), "       -")],
    units.level: [(("plateau-106954752", 106954752), "to 102 MiB"), (("L2", 524288), "L2")],
    units.slug: [(("T3-SUT2",), "t3-sut2"), (("a b/c",), "a-b-c"), (("../..",), "unnamed")],
    filters.command: [((("sutprobe", "latency", "--at", "1@0"),), "$ sutprobe latency --at 1@0"),
        ((("a b", "c\n.. raw:: html"),), "$ 'a b' 'c\\n.. raw:: html'")],
}  # fmt: skip
"""Arguments and texts of each function."""


@pytest.mark.parametrize(
    ("function", "arguments", "text"), [(function, *case) for function, cases in FORMATTED.items() for case in cases]
)
def test_values_are_written_as_people_read_them(
    function: Callable[..., str], arguments: tuple[Any, ...], text: str
) -> None:
    assert function(*arguments) == text


@pytest.mark.parametrize(("value", "interval", "text"), [
    (100.0, (99.0, 101.6), "±1.3 %"),
    (100.0, (99.97, 100.03), "±<0.1 %"),
    (100.0, (50.0, 249.9), "±100 %"),
    (96_256.0, (45_932.0, 1_732_670.0), "(45.93 µs to 1.733 ms)"),
    (100.0, None, None),
    (0.0, (-1.0, 1.0), None),
])  # fmt: skip
def test_plus_minus(value: float, interval: tuple[float, float] | None, text: str | None) -> None:
    shown = SimpleNamespace(value=value, unit="ns", interval=interval)
    assert units.plus_minus(shown) == text


def test_the_ends_of_a_wide_interval_have_the_unit_of_the_headline() -> None:
    shown = SimpleNamespace(value=25_034.0, unit="MB/s", interval=(963.9, 57_017.8))
    assert (units.headline(shown), units.plus_minus(shown)) == ("25.0 GB/s", "(0.964 to 57.0 GB/s)")


def test_half_width_and_its_number() -> None:
    figure = estimate([[10.0], [11.0], [12.0], [13.0], [14.0], [15.0]], "ns")
    assert units.half(figure) == 2.5
    assert units.half_width(figure) == "2.5"
    assert units.half_width(None) == "-"
    assert units.half(estimate([[10.0]], "ns")) is None


def test_spreads_of_rounds_placements_and_windows() -> None:
    samples = [[100.0, 100.0, 101.0], [100.0, 100.0, 101.0], [110.0, 110.0, 111.0], [110.0, 110.0, 111.0]]
    assert units.spreads(estimate(samples, "ns", rounds=(0, 0, 1, 1))) == "6.7 % / 0 % / 0 % (rounds)"
    assert units.spreads(estimate([[100.0, 101.0, 103.0]], "ns")) == "- / - / 1.5 % (windows)"
    assert units.spreads(estimate([[100.0]], "ns")) == "- / - / -"


def test_long_times_of_a_table_share_a_larger_unit() -> None:
    rows = units.readable([["a", estimate([[20_000.0], [22_000.0]], "ns")]])
    assert (rows[0][1].unit, rows[0][1].value, rows[0][1].interval) == ("µs", 21.0, (20.0, 22.0))
    assert rows[0][1].prediction is None
    ((_, in_rounds),) = units.readable([["a", estimate([[20_000.0], [22_000.0]], "ns", rounds=(0, 1))]])
    assert in_rounds.prediction == pytest.approx((19, 23))
    mixed: list[list[Any]] = [["a", estimate([[20_000.0]], "ns")], ["b", estimate([[20.0]], "ns")]]
    assert [row[1].unit for row in units.readable(mixed)] == ["ns", "ns"]


def test_parts_missing_for_the_same_reason_are_combined() -> None:
    few = [Missing(what=f"CPU {cpu}", reason="offline") for cpu in range(3)]
    other = Missing(what="CPU 9", reason="busy")
    assert list(filters.alike([few[0], other, *few[1:]])) == [few[0], other, *few[1:]]
    many = [Missing(what=f"CPU {cpu}", reason="offline") for cpu in range(504)]
    combined = list(filters.alike([many[0], other, *many[1:]]))
    assert combined == [Missing(what="CPU 0, and 503 more", reason="offline"), other]
