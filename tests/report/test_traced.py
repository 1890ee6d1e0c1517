# SPDX-License-Identifier: Apache-2.0
"""Tracing on a page: causes, cost and advice, or why there are none."""

import copy
import json
import re

import pytest
from docutils import nodes

from calibration.charts.interruptions import Bar, lost_time
from calibration.context.loader import load
from calibration.measurements import declaration
from calibration.measurements.base import Step
from calibration.measurements.jitter import JitterSettings, JitterValues
from calibration.measurements.sut import Sut
from calibration.measurements.wakeup import Command, LateWake, LateWakes, WakeupResult, WakeupValues
from calibration.report.osnoise import class_share
from calibration.report.pictures import picture
from calibration.results.model import RunDocument
from calibration.sutprobe.document import read_document, read_result
from calibration.sutprobe.jitter_rounds import JitterResult
from calibration.sutprobe.tracing import GapCause, NoiseClass, NoiseName, Traced, TracedGap
from tests.recorded import read
from tests.report.report_documents import (
    FIXTURES,
    MACHINE,
    RECORDED,
    as_bytes,
    index_of,
    page_of,
    parsed,
    replace,
    run_document,
)
from tests.report.traced import cause, view

REASON = "no permission for tracefs (Operation not permitted): tracing needs root"
REFUSED = Traced(refused=REASON, tracers="", view=None)
TRACED = Traced(
    refused=None,
    tracers="hwlat osnoise",
    view=view(
        cause("interrupt", "eth0-`rx`*|", irq=36, share=0.31),
        cause("task", "evil\n* name", pid=77, share=0.12),
        cause("softirq", "RCU", "a_function_to_show", share=0.0011),
        cause("timer", "hrtimer", "a_rare_function", share=0.0004),
        unexplained=0.25,
    ),
)


def with_traced(traced: Traced | None) -> RunDocument:
    document = run_document(names=("jitter",))
    index = index_of(document, "jitter")
    values = document.measurements[index].values
    assert isinstance(values, JitterValues)
    gaps = values.gaps.model_copy(update={"traced": traced})
    return replace(document, index, values=values.model_copy(update={"gaps": gaps}))


def text_of(document: RunDocument) -> str:
    """Return what the page of *document* says."""
    return " ".join(parsed(page_of(document)).astext().split())


def test_causes_cost_and_advice_are_reported() -> None:
    text = text_of(with_traced(TRACED))
    assert "Causes of interruptions while the kernel was traced" in text
    assert "IRQ 36 eth0-`rx`*|" in text
    assert "entering and leaving the kernel, and what the caches lost" in text
    assert "Cost of tracing" in text
    assert "1 interrupt came to CPU 1: 36 (eth0-`rx`*|)" in text
    assert "31 % of what it loses" in text
    assert "a_function_to_show" in text
    assert "a_rare_function" not in text  # too little to be shown
    assert "The kernel was not traced" not in text


def test_the_panel_says_who_did_it_and_leads_to_the_change() -> None:
    assert TRACED.view is not None
    gaps = (
        TracedGap(at_ns=1.5e9, length_ns=4e6, cause=GapCause(kind="interrupt", name="eth0", function=None)),
        TracedGap(at_ns=0.5e9, length_ns=3e5, cause=None),
    )
    traced = TRACED.model_copy(update={"view": TRACED.view.model_copy(update={"longest": gaps})})
    page = page_of(with_traced(traced), drawn=True)
    tree = parsed(page)
    (line, bars) = (next(image for image in tree.findall(nodes.image) if name in image["uri"]) for name in CHARTS)
    assert "4.00 ms at 1.50 s on CPU 1, by device interrupt eth0; 300 µs at 0.50 s" in line["alt"]
    assert "device interrupt 0.49 %" in bars["alt"]
    row = next(row for row in tree.findall(nodes.row) if row.astext().startswith("device interrupt"))
    (link,) = row.findall(nodes.reference)
    assert link.astext() == "Move interrupts off isolated CPUs"
    assert any(link["refid"] in target["ids"] for target in tree.findall() if isinstance(target, nodes.Element))


def test_the_panel_of_a_recorded_trace_names_threads_the_tick_and_the_hypervisor() -> None:
    (cpu,) = read_result(read_document(read("traced/jitter")), JitterResult).cpus
    assert cpu.gaps is not None
    tree = parsed(page_of(with_traced(cpu.gaps.traced), drawn=True))
    (line, bars) = (next(image for image in tree.findall(nodes.image) if name in image["uri"]) for name in CHARTS)
    assert "1.40 ms at 0.50 s on CPU 1, by thread bash" in line["alt"]
    assert "CPU 1 hypervisor 0.89 %, thread 0.37 %, local timer 0.20 %" in bars["alt"]


def test_the_total_beside_a_bar_is_not_cut() -> None:
    chart = lost_time("lost", [], [Bar("CPU 1", [("unknown", 0.2)]), Bar("CPU 2", [("unknown", 8.1e-6)])])
    svg = picture(chart)
    (at,) = re.findall(r'<text text-anchor="start" transform="translate\(([\d.]+),[^>]*>20 %', svg)
    assert "0.00081 %" in svg
    free = chart.spec["width"] + chart.spec["padding"]["right"] - float(at)
    assert free >= 6.4 * len("0.00081 %")


def test_without_a_trace_the_panel_says_how_to_get_causes() -> None:
    text = text_of(with_traced(None))
    assert "those of single interruptions are unknown" in text
    assert "calibration run --profile full" in text
    text = text_of(with_traced(REFUSED))
    assert "those of single interruptions are unknown. The kernel was not traced: " in text


CHARTS = ("interruptions", "lost-time-by-cause")

NOISE = (
    NoiseClass(kind="irq", count=120, total_ns=1.5e6, longest_ns=2e4, share=0.3,
               names=(NoiseName(name="local_timer", number=236, count=100, total_ns=1.2e6, longest_ns=2e4, share=0.24),
                      NoiseName(name="evil`*|\n", number=36, count=20, total_ns=3e5, longest_ns=9e3, share=0.06))),
    NoiseClass(kind="nmi", count=0, total_ns=0.0, longest_ns=0.0, share=0.0, names=()),
)  # fmt: skip


def test_osnoise_is_shown_beside_the_events() -> None:
    found = view(cause("interrupt", "eth0", irq=36), cause("timer", "hrtimer"), cause("timer", "timer wheel"))
    text = text_of(with_traced(TRACED.model_copy(update={"view": found, "osnoise": NOISE})))
    # Each of the three took a fifth of the lost time, two of them in interrupts: timers of the wheel are softirqs.
    assert "irq 120 1.50 ms 20.0 µs 30 % 40 % local_timer: 100, 1.20 ms; evil`*|" in text
    assert "nmi 0 0 ns 0 ns 0 % 0 %" in text
    assert "osnoise was not used" not in text


def test_a_refused_osnoise_is_reported() -> None:
    reason = "this kernel has no osnoise tracer"
    text = text_of(with_traced(TRACED.model_copy(update={"osnoise_refused": reason})))
    assert f"osnoise was not used: {reason}." in text
    assert "By the events above" not in text


@pytest.mark.parametrize(
    ("kind", "share"), [("irq", 0.6), ("nmi", 0.2), ("softirq", 0.4), ("thread", 0.4), ("hypervisor", 0.0)]
)
def test_events_have_classes_of_osnoise(kind: str, share: float) -> None:
    kinds = ("interrupt", "ipi", "vector", "nmi", "softirq", "task", "work")
    found = view(*(cause(item, item) for item in kinds), cause("timer", "timer wheel"))
    assert class_share(found, kind) == pytest.approx(share)
    assert class_share(found.model_copy(update={"explained_ns": 0.0}), kind) is None


def test_the_cost_of_tracing_is_a_difference() -> None:
    assert TRACED.view is not None
    slower = TRACED.view.with_tracing.model_copy(update={"rate_per_s": 130.0, "lost_fraction": 0.007, "mean_ns": 5.4e4})
    text = text_of(
        with_traced(TRACED.model_copy(update={"view": TRACED.view.model_copy(update={"with_tracing": slower})}))
    )
    assert "difference 30.0 0.200 % 4.00 µs" in text


def test_an_interrupt_that_cannot_be_moved_is_not_advised() -> None:
    quiet = TRACED.model_copy(update={"view": view(cause("timer", "local timer"))})
    text = text_of(with_traced(quiet))
    assert "Cost of tracing" in text
    assert "Move interrupts" not in text


def test_a_refused_trace_is_reported() -> None:
    text = text_of(with_traced(REFUSED))
    assert f"The kernel was not traced: {REASON}." in text
    assert "Cost of tracing" not in text


@pytest.mark.parametrize("traced", [TRACED, TRACED.model_copy(update={"osnoise": NOISE}), REFUSED])
def test_document_round_trips(traced: Traced) -> None:
    document = with_traced(traced)
    assert RunDocument.model_validate_json(as_bytes(document)) == document


@pytest.mark.parametrize(("lost", "flags"), [(0, []), (None, []), (12, ["TRACE_LOST"])])
def test_lost_events_are_flagged(lost: int | None, flags: list[str]) -> None:
    document = json.loads(RECORDED["jitter"].read_text(encoding="utf-8"))
    part = copy.deepcopy(document)
    context = load(FIXTURES / "context" / f"{MACHINE}.tar.gz")
    traced = TRACED.model_copy(update={"view": view().model_copy(update={"lost_events": lost})})
    for cpu in part["result"]["cpus"]:
        cpu["gaps"]["traced"] = traced.model_dump(mode="json")
    planned = next(
        step for step in declaration("jitter").steps(Sut(context), JitterSettings()) if isinstance(step, Step)
    )
    whole = read_document(document).with_parts([read_document(part)])
    found = list(declaration("jitter").parse(whole, planned, Sut(context)))
    assert found
    for measurement in found:
        assert isinstance(measurement.values, JitterValues)
        assert measurement.values.gaps.traced == traced
        assert [flag.code for flag in measurement.flags if flag.code == "TRACE_LOST"] == flags


def with_late(late: LateWakes | None) -> RunDocument:
    """Return the document of a wake-up measurement with *late* wake-ups."""
    document = run_document(names=("wakeup",))
    index = index_of(document, "wakeup")
    values = document.measurements[index].values
    assert isinstance(values, WakeupValues)
    return replace(document, index, values=values.model_copy(update={"late": late}))


def test_late_wake_ups_are_shown_with_what_ran() -> None:
    (condition,) = read_result(read_document(read("wakeup-traced")), WakeupResult).conditions
    ran = next(wake.ran for wake in condition.cpus[0].worst if wake.ran is not None)
    first = tuple(
        LateWake(cpu=3, late_ns=120_000 + place, at_unix_ns=10**18, ran=ran if place else None) for place in (0, 1)
    )
    text = text_of(with_late(LateWakes(threshold_ns=100_000, count=41, first=first)))
    assert "The first 2 of 41 wake-ups at least 100 µs late, load none" in text
    assert "not known: its events were lost" in text
    one = text_of(with_late(LateWakes(threshold_ns=100_000, count=1, first=first[:1])))
    assert "1 wake-up at least 100 µs late, load none" in one
    assert "The first" not in one
    assert ran.causes[0].name in text
    refused = text_of(with_late(LateWakes(threshold_ns=100_000, count=1, first=first[:1], refused="run it as root")))
    assert "the kernel was not traced: run it as root" in refused
    none = text_of(with_late(LateWakes(threshold_ns=100_000, count=0, first=())))
    assert "No wake-up was at least 100 µs late, load none; the kernel was traced throughout." in none
    assert "at least 100 µs late" not in text_of(with_late(None))


def test_commands_for_late_wake_ups_are_shown_traced_or_not() -> None:
    ran = {"error": None, "after_ns": 9, "took_s": 0.2, "exit_code": 3, "signal": None, "killed": False}
    command = Command(**ran, printed_bytes=12, text="a|b\x1b[2J\r\nmore")
    killed = command.model_copy(update={"killed": True, "exit_code": None, "signal": 9})
    first = tuple(
        LateWake(cpu=3, late_ns=120_000, at_unix_ns=10**18, ran=None, command=item) for item in (command, None, killed)
    )
    late = LateWakes(threshold_ns=100_000, count=3, first=first)
    said = "3 wake-ups at least 100 µs late, load none"
    for text in (text_of(with_late(late)), text_of(with_late(late.model_copy(update={"refused": "run it as root"})))):
        assert said in text
        assert "exit code 3 after 200 ms: a|b" in text
        assert "\\r" not in text
        assert "not started: an earlier one still ran" in text
        assert "killed after 200 ms" in text
        assert "\x1b" not in text
        assert "more" not in text.partition(said)[2].partition("killed after")[0]
