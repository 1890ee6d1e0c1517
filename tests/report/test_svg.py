# SPDX-License-Identifier: Apache-2.0
"""Shapes, axes and ticks of figures; what stands in a figure is tested with the pages."""

import base64
import re
import struct
import xml.etree.ElementTree as ET
import zlib
from collections.abc import Sequence
from itertools import pairwise

import pytest
from report_documents import as_bytes

from calibration.report import svg
from calibration.report.drawings import observed
from calibration.report.figures import LABEL_PX, Curve, Part, load_curve, volume_bars
from calibration.report.page import render
from calibration.report.svg import GREY, Axis, Box, Drawing
from calibration.results.model import RunDocument
from calibration.statistics import Estimate

SVG = "{http://www.w3.org/2000/svg}"
CUT = "interval goes on beyond the edge"


def test_a_document_is_well_formed_whatever_its_texts_are() -> None:
    drawing = Drawing(100, 50)
    drawing.text(1, 2, 'a < b & "c" \x1b[31m \x00 \u2028', bold=True, turned=-90)
    root = ET.fromstring(drawing.svg())  # noqa: S314 - what was just drawn
    texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == ['a < b & "c"  [31m    ']


def test_lines_of_a_text_stand_below_each_other() -> None:
    drawing = Drawing(100, 50)
    drawing.text(10, 20, "L2\n1 MiB")
    root = ET.fromstring(drawing.svg())  # noqa: S314 - what was just drawn
    found = [(each.get("y"), each.text) for each in root if each.tag.endswith("text")]
    assert [text for _, text in found] == ["L2", "1 MiB"]
    assert float(found[0][0] or 0) < float(found[1][0] or 0)


@pytest.mark.parametrize("logarithmic", [False, True])
def test_an_axis_puts_its_ends_and_what_lies_beyond_at_its_ends(logarithmic: bool) -> None:
    axis = Axis(1.0, 1000.0, 300.0, 100.0, logarithmic)
    assert [axis.at(value) for value in (0.0, 1.0, 1000.0, 5000.0)] == [300.0, 300.0, 100.0, 100.0]
    middle = 31.6227766 if logarithmic else 500.5
    assert axis.at(middle) == pytest.approx(200.0)


@pytest.mark.parametrize(
    ("low", "high"),
    [(0.0, 1.0), (0.0, 24.9), (134.01, 135.27), (3.09, 3.32), (-0.5, 0.5), (0.0, 70000.0), (1e-9, 2e-9)],
)
def test_linear_ticks_are_few_even_and_inside(low: float, high: float) -> None:
    ticks = svg.linear_ticks(low, high)
    assert 3 <= len(ticks) <= 8
    assert low <= ticks[0] <= ticks[-1] <= high
    steps = [after - before for before, after in pairwise(ticks)]
    assert steps == pytest.approx([steps[0]] * len(steps))
    words = [svg.evenly(ticks)(tick) for tick in ticks]
    assert len(set(words)) == len(words)
    assert len({len(word.partition(".")[2]) for word in words}) == 1


def test_decades_become_parts_of_decades_where_there_is_hardly_one() -> None:
    assert svg.decade_ticks(0.5, 2000) == pytest.approx([1, 10, 100, 1000])
    assert svg.decade_ticks(15, 80) == pytest.approx([20, 50])
    assert svg.decade_ticks(15, 80, (1, 2, 5)) == pytest.approx([20, 50])


def test_ticks_that_stand_too_close_are_left_out() -> None:
    axis = Axis(0, 100, 0, 100)
    assert svg.thinned([0, 10, 20, 30, 40], axis, 20) == [0, 20, 40]


def test_the_colour_map_has_its_ends_and_grows_lighter() -> None:
    assert svg.hexadecimal(svg.shade(0.0)) == svg.CIVIDIS[0]
    assert svg.hexadecimal(svg.shade(1.0)) == svg.CIVIDIS[-1]
    assert svg.shade(2.0) == svg.shade(1.0)
    sums = [sum(svg.shade(step / 50)) for step in range(51)]
    assert sums == sorted(sums)


def test_a_picture_has_one_pixel_for_each_cell() -> None:
    drawing = Drawing(10, 10)
    rows = [[(1, 2, 3), (4, 5, 6)], [(7, 8, 9), (10, 11, 12)], [(0, 0, 0), (255, 255, 255)]]
    drawing.picture(0, 0, 10, 10, rows)
    found = re.search(r'href="data:image/png;base64,([^"]+)"', drawing.svg())
    assert found
    png = base64.b64decode(found.group(1))
    assert struct.unpack(">II", png[16:24]) == (2, 3)
    start = png.index(b"IDAT") + 4
    length = struct.unpack(">I", png[start - 8 : start - 4])[0]
    raw = zlib.decompress(png[start : start + length])
    assert [list(raw[index * 7 + 1 : index * 7 + 7]) for index in range(3)] == [
        [part for cell in row for part in cell] for row in rows
    ]


def test_the_label_of_a_tick_at_the_end_is_not_cut_off() -> None:
    drawing = Drawing(200, 100)
    x, y = Axis(1.0, 1000.0, 40.0, 190.0, logarithmic=True), Axis(0.0, 1.0, 80.0, 10.0)
    svg.frame(drawing, x, y, svg.Scale([1.0, 1000.0], lambda tick: f"{tick:.2f} ms"), svg.Scale([0.0], str))
    root = ET.fromstring(drawing.svg())  # noqa: S314 - what was just drawn
    (last,) = [each for each in root if each.text == "1000.00 ms"]
    assert float(last.get("x") or 0) + svg.width_of("1000.00 ms", 12.5) / 2 <= 200


def test_the_freest_place_is_the_first_that_covers_least() -> None:
    taken = [Box(0, 0, 10, 10), Box(20, 0, 30, 10)]
    places = [Box(5, 5, 15, 15), Box(9, 9, 15, 15), Box(11, 0, 19, 10), Box(40, 0, 50, 10)]
    assert [place.shared(taken[0]) for place in places] == [25, 1, 0, 0]
    assert svg.freest(places, taken) == places[2]
    assert svg.freest(places[:2], taken) == places[1]


def estimated(value: float, low: float, high: float) -> Estimate:
    return observed(value, "ns").model_copy(update={"interval": (low, high), "coverage": 0.95})


def load_figure(latencies: Sequence[Estimate], bandwidth: Estimate | None = None) -> ET.Element:
    curve = Curve(
        "1 thread",
        tuple(
            (bandwidth or estimated(5000.0 + 1000 * place, 4900.0 + 1000 * place, 5100.0 + 1000 * place), each)
            for place, each in enumerate(latencies)
        ),
    )
    return ET.fromstring(load_curve([curve], [[""] * len(latencies)], []))  # noqa: S314 - what was just drawn


def words(root: ET.Element) -> list[str]:
    return [each.text or "" for each in root.iter(f"{SVG}text")]


def arrows(root: ET.Element) -> list[str]:
    """Return which way each triangle points that is no marker of a curve, whose own are circles, nor the legend's."""
    found = []
    for each in root.iter(f"{SVG}polygon"):
        corners = [[float(at) for at in corner.split(",")] for corner in (each.get("points") or "").split()]
        if each.get("fill") == GREY:
            continue
        (x, y), rest = corners[0], corners[1:]
        if all(x > u for u, _ in rest):
            found.append("right")
        else:
            found.append("up" if all(y < v for _, v in rest) else "down")
    return found


def test_an_interval_far_beyond_the_estimates_is_cut_at_the_edge_with_an_arrow_and_the_axis_follows_them() -> None:
    usual = [estimated(100.0, 95.0, 110.0), estimated(120.0, 110.0, 135.0), estimated(200.0, 180.0, 240.0)]
    whole = load_figure(usual)
    assert arrows(whole) == []
    assert CUT not in words(whole)
    for wide, pointing in (((95.0, 9000.0), ["up"]), ((1.0, 110.0), ["down"]), ((1.0, 9000.0), ["down", "up"])):
        cut = load_figure([usual[0].model_copy(update={"interval": wide}), *usual[1:]])
        assert arrows(cut) == pointing
        assert CUT in words(cut)
        numbers = [float(each) for each in words(cut) if each.isdigit()]
        assert 200 <= max(numbers) <= 300
    aside = load_figure(usual[:1], estimated(5000.0, 4000.0, 90000.0))
    assert arrows(aside) == ["right"]
    assert CUT in words(aside)


def test_bars_of_a_volume_stand_on_the_axis_and_their_parts_on_each_other() -> None:
    known = [Part("10 triads", 4e9, "#0072B2"), Part("initialisation", 1e9, "#56B4E9")]
    text = volume_bars([("read", [known, [Part("counted", 5.5e9, "#D55E00")]])])
    root = ET.fromstring(text)  # noqa: S314 - what was just drawn
    assert {"10 triads", "initialisation", "counted", "5.000", "5.500", "read"} <= set(words(root))
    drawn = [each for each in root.iter(f"{SVG}rect") if each.get("height") not in {"100%", "11"}]
    triads, first, counted = ((float(each.get("y") or 0), float(each.get("height") or 0)) for each in drawn)
    assert triads[1] / first[1] == pytest.approx(4, rel=0.01)
    assert counted[1] / (triads[1] + first[1]) == pytest.approx(1.1, rel=0.01)
    assert sum(first) == pytest.approx(triads[0], abs=0.11)
    assert sum(counted) == pytest.approx(sum(triads), abs=0.11)


def test_labels_amid_points_hide_none_of_them(document: RunDocument) -> None:
    figures = render(as_bytes(document)).figures
    for name, labels in (("loaded-latency", r"delay \d+"), ("latency-ladder", r"(L\d|memory|to .*): .* ns")):
        root = ET.fromstring(figures[f"figures/{name}.svg"])  # noqa: S314 - what was just drawn
        points = [(float(each.get("cx") or 0), float(each.get("cy") or 0)) for each in root if each.get("cx")]
        texts = [each for each in root if re.fullmatch(labels, each.text or "")]
        assert points
        assert len(texts) > 1
        for each in texts:
            middle, bottom = float(each.get("x") or 0), float(each.get("y") or 0)
            half = svg.width_of(each.text or "", LABEL_PX) / 2
            inside = [(x, y) for x, y in points if abs(x - middle) < half and bottom - LABEL_PX < y < bottom]
            assert inside == [], each.text
