# SPDX-License-Identifier: Apache-2.0
"""Intel MLC beside the run's own metrics: comparison, conditions, and consent to publish."""

from typing import Any

import pytest
from docutils import nodes

from calibration.formats.readings import ReadIdleLatency
from calibration.measurements.base import Metric
from calibration.report.instruments import Line, SideBySide, side_by_side
from calibration.results.model import NotMeasured, RunDocument
from tests.report.report_documents import flagged, index_of, page_of, parsed, run_document, second_document

KINDS = ("bandwidth_matrix", "c2c_latency", "idle_latency", "latency_matrix", "loaded_latency", "max_bandwidth",
         "peak_injection_bandwidth")  # fmt: skip
"""What Intel MLC measures, too."""


def mlc_document(*, names: tuple[str, ...] = ("idle_latency",), **changes: Any) -> RunDocument:
    return second_document(names=names, **changes)


def section(document: RunDocument) -> nodes.admonition:
    return next(
        element
        for element in parsed(page_of(document)).findall(nodes.admonition)
        if element.children[0].astext() == "Intel MLC"
    )


def compared(document: RunDocument) -> SideBySide:
    found = side_by_side(document, "none reserved")
    assert found is not None
    return found


def line_of(document: RunDocument, name: str) -> Line:
    (found,) = [line for line in compared(document).lines if line.theirs.name == name]
    return found


def with_interval(name: str, bounds: tuple[float, float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the run's own figure *name* lie within *bounds*."""
    (theirs,) = ReadIdleLatency(cpu=None, node=None, latency_ns=100.0, clocks=None, clock=None).metrics()
    ours = theirs.model_copy(update={"name": name, "interval": bounds})
    kinds = iter([[ours]])

    class Declared:
        def metrics(self, _values: Any) -> list[Metric]:
            return next(kinds, [])

    monkeypatch.setattr("calibration.report.instruments.declaration", lambda _kind: Declared())


def test_a_run_without_mlc_has_no_section() -> None:
    document = run_document(names=("idle_latency",))
    assert side_by_side(document, None) is None
    assert "Intel MLC\n---" not in page_of(document).text


def test_every_common_metric_has_its_ratio() -> None:
    document = mlc_document(names=KINDS)
    names = [line.theirs.name for line in compared(document).lines]
    assert len(names) == len(set(names)) == 1 + 4 + 4 + 5 + 5 + 3 + 6
    line = line_of(document, "latency_matrix.0.0.latency_ns")
    assert line.theirs.value == 88.3
    assert line.ours is not None
    assert line.ratio == 88.3 / line.ours.value
    other = line_of(document, "c2c_latency.0.1.remote_hitm_writer_homed_ns")
    assert (other.theirs.value, other.ours is None, other.ratio, other.within) == (111.3, True, None, None)


@pytest.mark.parametrize(
    ("bounds", "within"), [((88.2, 101.0), True), ((80.0, 88.2), True), ((88.3, 101.0), False), ((80.0, 88.1), False)]
)
def test_the_table_says_if_mlc_is_within_the_interval(
    bounds: tuple[float, float], within: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = mlc_document()
    with_interval("idle_latency.latency_ns", bounds, monkeypatch)
    line = line_of(document, "idle_latency.latency_ns")
    assert (line.theirs.value, line.ratio, line.within) == (88.2, 0.882, within)


def test_invalid_metrics_are_not_compared() -> None:
    document = mlc_document()
    document = flagged(document, index_of(document, "idle_latency"), "PLACEMENT_WRONG", "elsewhere")
    line = line_of(document, "idle_latency.latency_ns")
    assert (line.ours is not None, line.valid, line.ratio, line.within) == (True, False, None, None)
    assert "INVALID" in section(document).astext()


def test_nothing_of_mlc_is_shown_without_consent() -> None:
    document = mlc_document(publish=False)
    gone = NotMeasured(kind="mlc", what="Intel MLC --idle_latency", reason="4711.5 ns", cause="failed")
    document = document.model_copy(update={"not_measured": (*document.not_measured, gone)})
    found = section(document)
    assert "are kept in the run document and not shown here" in found.astext()
    assert "its licence is reported to restrict" in found.astext()
    assert list(found.findall(nodes.table)) == []
    whole = page_of(document).text
    shown = {f"{metric.value:g}" for reading in document.readings for metric in reading.values.metrics()}
    assert shown
    assert [item for item in shown if f" {item} " in found.astext()] == []
    assert "4711.5" not in whole
    assert "3.5" not in found.astext()


def test_conditions_and_warnings_are_listed() -> None:
    document = mlc_document(form="script", prefetchers_ok=True)
    first = document.readings[0]
    noted = first.model_copy(update={"notes": ("*** Unable to modify prefetchers", "Using all the threads")})
    document = document.model_copy(update={"readings": (noted, *document.readings[1:])})
    text = section(document).astext()
    for name in (
        "Intel MLC 3.5",
        "mlc_v3.5.tgz, sha256 6767",
        "a SCRIPT, which may print anything",
        "root",
        "*** Unable to modify prefetchers",
        "Intel MLC was allowed to switch them. after --idle_latency, --latency_matrix",
        "as they were",
    ):
        assert name in text, name
    assert "Using all the threads" not in text


@pytest.mark.parametrize("publish", [True, False])
def test_changed_prefetchers_are_a_warning(publish: bool) -> None:
    places = [{"where": "/dev/cpu/0/msr", "before": "0x0", "after": "0xf", "restored": "0x3"}]
    document = mlc_document(publish=publish, prefetchers={"places": places, "unread": None})
    (warning,) = section(document).findall(nodes.warning)
    assert "/dev/cpu/0/msr was 0x0 before --idle_latency and is 0x3 since" in warning.astext()
    assert list(section(mlc_document(publish=publish)).findall(nodes.warning)) == []


def test_a_failed_run_of_mlc_says_why() -> None:
    document = mlc_document(reason="no `program`_", commands=(), archive_sha256=None).model_copy(
        update={"readings": ()}
    )
    assert "was not run: no `program`_" in section(document).astext()


def test_omitted_lines_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibration.report.instruments.MAX_LINES", 2)
    document = mlc_document()
    noted = document.readings[0].model_copy(update={"notes": ("* a", "* b", "* c", "* a")})
    document = document.model_copy(update={"readings": (noted, *document.readings[1:])})
    text = section(document).astext()
    assert "And 26 more in the run document." in text
    assert "and 1 more in the run document" in text
    assert "* c" not in text
