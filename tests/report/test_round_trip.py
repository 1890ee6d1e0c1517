# SPDX-License-Identifier: Apache-2.0
"""A run document rendered to a page and imported again gives the same values: all kinds, one to sixteen nodes."""

from typing import Any

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from report_documents import as_bytes, run_document, with_cpus, with_nodes

from calibration.formats.csit_page import read_published
from calibration.measurements import registry
from calibration.report.filters import level
from calibration.report.page import render
from calibration.results.model import RunDocument
from calibration.results.readings import READ_KINDS

FIGURES = ("per_thread_mb_s", "median_ns", "minimum_ns", "maximum_ns")
"""Names of plain numbers that pages show with one decimal."""


UNREAD = {"sustained_bandwidth"}
"""What no other instrument prints, and nobody imports: a course over seconds."""


def test_every_kind_can_be_read_back() -> None:
    assert set(READ_KINDS) == set(registry()) - UNREAD


def as_shown(values: Any, factor: float) -> Any:
    """Return *values* times *factor*, every figure with no more digits than a page shows of it."""
    if isinstance(values, list):
        return [as_shown(each, factor) for each in values]
    if not isinstance(values, dict):
        return values
    if "estimator" in values and "samples" in values:
        value = (
            round(values["value"] * factor / 1e6) * 1e6
            if values["unit"] == "Hz"
            else round(values["value"] * factor, 1)
        )
        return {**values, "value": value, "interval": None, "coverage": None}
    return {
        name: round(each * factor, 1)
        if name in FIGURES and isinstance(each, float)
        else round(each, -3)
        if name == "tick_hz"
        else as_shown(each, factor)
        for name, each in values.items()
    }


def document_of(nodes: int, cpus: int, factor: float) -> RunDocument:
    """Return a run of every kind with *nodes* nodes and jitter of *cpus* CPUs, its figures times *factor*."""
    raw = with_nodes(with_cpus(run_document(), cpus), nodes).model_dump(mode="json")
    raw["measurements"] = [{**each, "values": as_shown(each["values"], factor)} for each in raw["measurements"]]
    return RunDocument.model_validate(raw, strict=False)


def plain(value: Any) -> Any:
    """Return *value* with numbers in place of estimates."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return (
            value["value"]
            if "estimator" in value and "samples" in value
            else {name: plain(each) for name, each in value.items()}
        )
    return value


def expected(values: dict[str, Any]) -> dict[str, Any]:
    """Return what a page shows of *values*, under the names that a reading has."""
    found: dict[str, Any] = plain(values)
    kind = found["kind"]
    if kind in {"peak_injection_bandwidth", "max_bandwidth"}:
        found["bandwidth_mb_s"] = {name: mix["bandwidth_mb_s"] for name, mix in found["mixes"].items()}
    if kind == "latency_ladder":
        found["levels"] = [{**each, "name": level(each["name"], each["size_bytes"])} for each in found["levels"]]
    if kind == "traffic_shape":
        found["tried"] = [{**each, **each["setting"]} for each in found["tried"]]
    return found


def compare(read: Any, measured: Any, where: str) -> int:
    """Compare what was read with what was measured, and return how many values were the same."""
    if isinstance(read, dict):
        return sum(compare(each, measured[name], f"{where}.{name}") for name, each in read.items() if name in measured)
    if isinstance(read, list):
        assert len(read) == len(measured), where
        if read and isinstance(read[0], dict):  # a page may have the rows of a table in another order
            measured = [{name: each[name] for name in read[0] if name in each} for each in measured]
            read, measured = (sorted(rows, key=lambda row: [*map(str, row.values())]) for rows in (read, measured))
        pairs = enumerate(zip(read, measured, strict=True))
        return sum(compare(one, other, f"{where}[{place}]") for place, (one, other) in pairs)
    assert read == measured, where
    return 1


@settings(max_examples=20, phases=[Phase.explicit, Phase.generate])
@given(
    nodes=st.integers(min_value=1, max_value=16),
    cpus=st.integers(min_value=1, max_value=4),
    factor=st.floats(min_value=0.05, max_value=20),
)
@example(nodes=1, cpus=1, factor=1.0)
@example(nodes=16, cpus=4, factor=1.0)
def test_a_page_that_is_imported_again_gives_the_same_values(nodes: int, cpus: int, factor: float) -> None:
    document = document_of(nodes, cpus, factor)
    again = read_published(render(as_bytes(document)).text)
    assert (again.testbed, again.sut) == (document.run.testbed, document.run.sut)
    assert again.title == f"Calibration Data - {document.run.testbed} / {document.run.sut}"
    assert again.read.not_read == ()
    assert {each.code for each in again.read.inconsistencies} <= {"ORDER", "SIZES_CONTRADICT", "COLUMNS_CONTRADICT"}
    measured: dict[str, list[dict[str, Any]]] = {}
    for each in document.model_dump(mode="json")["measurements"]:
        measured.setdefault(each["kind"], []).append(expected(each["values"]))
    read: dict[str, list[dict[str, Any]]] = {}
    for reading in again.read.readings:
        read.setdefault(reading.values.kind, []).append(reading.values.model_dump(mode="json"))
        assert reading.instrument == "sutprobe"
    assert set(measured) == set(registry())
    assert set(read) == set(registry()) - UNREAD
    for kind, found in read.items():
        assert len(found) == len(measured[kind]), kind
        for place, (one, other) in enumerate(zip(found, measured[kind], strict=True)):
            for skipped in ("clocks", "clock", "ticks", "iterations"):
                one.pop(skipped, None)
            assert compare(one, other, f"{kind}[{place}]") >= 2


def test_a_figure_that_is_not_the_measured_one_would_be_found() -> None:
    with pytest.raises(AssertionError, match=r"idle_latency\[0\]\.latency_ns"):
        compare({"latency_ns": 1.5}, {"latency_ns": 1.6}, "idle_latency[0]")
