# SPDX-License-Identifier: Apache-2.0
"""The first screen of a page: the answer, the findings, and the headline table."""

import re
from pathlib import Path
from typing import Any

import pytest
from docutils import nodes

from calibration.acceptance.limits import Limit
from calibration.base.errors import InputError
from calibration.judge.answer import TEST
from calibration.judge.run import judge_run
from calibration.judge.standing import Standings
from calibration.measurements.firmware import FirmwareValues
from calibration.measurements.node_matrix import NodeMatrixValues
from calibration.report.headlines import MAX_ROWS, HeadlineRow
from calibration.report.sections import rows as section_rows
from calibration.report.story import MAX_FINDINGS, Story, told
from calibration.results.metrics_of_record import metrics_of_record
from calibration.results.model import RunDocument
from tests.readings import PAGES
from tests.report.report_documents import (
    first_screen,
    flagged,
    grown,
    imported,
    index_of,
    judged,
    page_of,
    parsed,
    replace,
    run_document,
    store,
    with_nodes,
    with_rows,
)
from tests.unit.machines import GIB, MIB, machine

LATENCY = "latency_matrix.0.0.latency_ns"


def rows(document: RunDocument) -> dict[str, HeadlineRow]:
    return {row.anchor: row for row in first_screen(document).headlines}


def lines(screen: Story) -> dict[str, str]:
    return dict(screen.answer)


def limited(document: RunDocument, lower: float | None, upper: float | None) -> RunDocument:
    """Return *document* with limits of the inventory on its idle latency."""
    return judge_run(document, [Limit(metric=LATENCY, lower=lower, upper=upper, unit="ns", reason="the inventory")])


def isolating(document: RunDocument, *cpus: int) -> RunDocument:
    """Return *document* of a machine that isolates *cpus* by a cpuset partition."""
    assert document.context is not None
    parsed = document.context.parsed
    isolation = parsed.isolation.model_copy(update={"isolated": (), "cpuset_isolated": cpus})
    context = document.context.model_copy(update={"parsed": parsed.model_copy(update={"isolation": isolation})})
    return document.model_copy(update={"context": context})


# The machine


@pytest.mark.parametrize(("cpu", "changes", "words"), [
    (("GenuineIntel", "6", "143"), {}, "8 nodes (4 per socket, SNC4)"),
    (("GenuineIntel", "6", "79"), {}, "8 nodes (4 per socket, Cluster-on-Die)"),
    (("AuthenticAMD", "25", "17"), {}, "8 nodes (4 per socket, NPS4)"),
    (("AuthenticAMD", "25", "17"), {"llc_cores": 16}, "8 nodes (4 per socket)"),  # or a node for each cache
    (("AuthenticAMD", "23", "1"), {}, "8 nodes (4 per socket)"),  # a node for each die
    (("GenuineIntel", "6", "143"), {"nodes": 2}, "2 nodes"),
    (("GenuineIntel", "6", "143"), {"nodes": 4, "memory_only_bytes": (GIB,)}, "5 nodes (2 per socket, SNC2)"),
    (("ARM", "8", "0xd40"), {}, "8 nodes (4 per socket)"),
])  # fmt: skip
def test_nodes_of_a_socket_have_the_name_of_their_vendor(
    document: RunDocument, cpu: tuple[str, str, str], changes: dict[str, Any], words: str
) -> None:
    shape = {"packages": 2, "nodes": 8, "cores": 16, "node_bytes": GIB, "llc_bytes": 32 * MIB, "llc_cores": 8}
    made = machine(**{**shape, **changes})
    (model, *_) = made.processor.models
    named = model.model_copy(update=dict(zip(("vendor", "family", "model"), cpu, strict=True)))
    update = {
        "processor": made.processor.model_copy(update={"models": (named,)}),
        "virtualization": made.virtualization.model_copy(update={"guest": False}),
    }
    assert document.context is not None
    for context, expected in (
        (made.model_copy(update=update), words),
        (made.model_copy(update=update | {"virtualization": made.virtualization}), re.sub(r", [^)]*", "", words)),
    ):
        captured = document.context.model_copy(update={"parsed": context})
        told = first_screen(document.model_copy(update={"context": captured})).machine
        assert expected in told.split(" · ")


# The answer


def test_the_first_night_says_what_is_missing_for_a_judgement(document: RunDocument) -> None:
    screen = first_screen(document)
    assert screen.look == "unknown"
    assert [about for about, _ in screen.answer] == ["Machine", "Measurement", "Do", "May we test?"]
    found = lines(screen)
    assert found["Machine"] == "unknown: no baseline: 1 of 10 nights so far"
    assert found["May we test?"] == TEST["no_baseline"]
    assert len(screen.findings) <= MAX_FINDINGS


def test_a_noisy_quick_look_is_no_broken_machine(document: RunDocument) -> None:
    screen = first_screen(document)
    trusts = [row.trust for row in screen.headlines if row.trust != "observed"]
    assert screen.sharpness == "noisy"
    counted = f"intervals of {trusts.count('poor')} of {len(trusts)} headline metrics"
    assert lines(screen)["Measurement"] == f"noisy: quick look, {counted} more than 3 times wider than the goal"
    assert lines(screen)["Do"] == "measure longer, for narrower intervals: calibration run --profile nightly"


def test_a_run_without_intervals_is_neither_sharp_nor_noisy() -> None:
    screen = first_screen(run_document(names=("wakeup", "firmware")))
    assert {row.trust for row in screen.headlines} == {"observed"}
    counted = len({row.metric for row in screen.headlines})
    assert lines(screen)["Measurement"] == f"{counted} headline metrics, observed once: no intervals"


def test_a_failed_limit_is_the_answer_and_marks_its_row(document: RunDocument) -> None:
    screen = first_screen(limited(document, None, 90.0))
    (row,) = (row for row in screen.headlines if row.anchor == "idle-latency")
    assert screen.look == "bad"
    assert lines(screen)["Machine"].startswith("fails since 2026-01-02: Idle latency, node 0 to node 0: 151.5 ns, ")
    assert lines(screen)["Machine"].endswith("above the accepted range (at most 90 ns)")
    assert lines(screen)["May we test?"] == "no"
    assert (row.accepted, row.outside) == ("at most 90 ns", True)
    inside = rows(limited(document, 90.0, 200.0))["idle-latency"]
    assert (inside.accepted, inside.outside) == ("90 to 200 ns", False)


def test_a_failed_cross_check_is_in_answer_and_findings(document: RunDocument) -> None:
    check = next(item for item in document.consistency if item.rule == "same_latency")
    failed = check.model_copy(update={"outcome": "fail", "difference": 0.42})
    screen = first_screen(document.model_copy(update={"consistency": (failed,)}))
    assert (screen.look, screen.sharpness) == ("bad", "invalid")
    assert lines(screen)["Machine"].startswith("unknown: faulty measurement: ")
    assert screen.findings[0].startswith("Cross-check failed, repeated latency: ")
    assert "(+42 %)" in screen.findings[0]


def test_an_invalid_measurement_is_one_finding(document: RunDocument) -> None:
    emulated = document
    for index in range(len(document.measurements)):
        emulated = flagged(emulated, index, "EMULATED", "the hypervisor calls itself 'TCG'")
    screen = first_screen(emulated)
    assert (screen.look, screen.sharpness) == ("bad", "invalid")
    assert screen.findings[0] == "All values are invalid: the hypervisor calls itself 'TCG'."
    assert {row.trust for row in screen.headlines} == {"invalid"}
    one = flagged(document, index_of(document, "idle_latency"), "PLACEMENT_WRONG", "3 of 4 pages")
    assert any("PLACEMENT_WRONG: 3 of 4 pages" in finding for finding in first_screen(one).findings)


def test_views_of_interruptions_that_disagree_are_told_apart(document: RunDocument) -> None:
    """The longest of both views of jitter is of record."""
    (line,) = (item for item in first_screen(document).findings if item.startswith("Longest interruption: "))
    assert line.endswith(": wake-up 43.8 ms in 24 s, fixed work 1.49 ms in 32 s, gaps 202 µs in 30 s.")
    assert rows(document)["worst-gap"].value == "1.49 ms"
    calm = run_document(names=("jitter",))
    assert not [item for item in first_screen(calm).findings if item.startswith("Longest interruption: ")]


def test_an_interrupted_run_says_so_first(document: RunDocument) -> None:
    ended = document.model_copy(update={"run": document.run.model_copy(update={"status": "interrupted"})})
    screen = first_screen(ended)
    assert screen.look == "bad"
    assert lines(screen)["Machine"].startswith("unknown: faulty measurement: run interrupted, ")
    assert lines(screen)["Do"] == "measure what is missing: calibration run --resume --limit HOST"


def test_a_machine_whose_isolated_cpus_were_not_measured_is_not_said_to_have_none(document: RunDocument) -> None:
    for isolated, said in (
        ((), "No CPU is isolated: CPU 1 loses"),
        ((0,), "No isolated CPU was measured: CPU 1 loses"),
    ):
        findings = first_screen(isolating(document, *isolated)).findings
        assert any(said in finding for finding in findings), findings


def test_an_import_has_no_first_screen(tmp_path: Path) -> None:
    complete = next(path for path in PAGES if path.stem == "complete")
    with pytest.raises(InputError, match="an import has no first screen"):
        told(imported(complete.read_bytes()), tmp_path, Standings())


# The headline table


def test_another_figure_of_a_quantity_is_a_cross_check_in_a_fold(document: RunDocument) -> None:
    shown = {row.name: row for kind in ("idle_latency", "latency_matrix") for row in section_rows(document, kind)}
    assert shown["idle_latency.latency_ns"].repeated
    assert shown["idle_latency.latency_ns"].title == "Idle latency, cross-check"
    assert not shown["latency_matrix.0.0.latency_ns"].repeated
    found = [row for row in parsed(page_of(document)).findall(nodes.row) if ", cross-check" in row.children[0].astext()]
    assert found
    for row in found:
        parent = row.parent
        while parent is not None and not isinstance(parent, nodes.admonition):
            parent = parent.parent
        assert parent is not None, row.astext()


def test_memory_only_nodes_are_not_remote(document: RunDocument) -> None:
    four = with_nodes(document, 4)
    assert four.context is not None
    assert "Local memory latency 151 to 155 ns, remote 212 to 338 ns." in page_of(four).text
    parsed = four.context.parsed.model_copy(update={"memory_only_nodes": (2, 3)})
    named = four.model_copy(update={"context": four.context.model_copy(update={"parsed": parsed})})
    far, beside = rows(named)["idle-latency-remote"], rows(named)["idle-latency-memory-only"]
    assert (far.title, far.note) == ("Idle latency, farthest node", "6 pairs of nodes: 212 ns to 338 ns")
    assert (beside.title, beside.note) == ("Idle latency, memory-only nodes", "6 pairs of nodes: 214 ns to 333 ns")
    text = page_of(named).text
    assert "Local memory latency 151 to 155 ns, remote 212 to 338 ns, memory-only nodes 214 to 333 ns." in text


def test_a_failed_cross_check_is_counted_in_its_row(document: RunDocument) -> None:
    checks = [item for item in document.consistency if item.rule == "same_latency"]
    one, *others = (item.model_copy(update={"outcome": "fail"}) if item is checks[0] else item for item in checks)
    failed = document.model_copy(update={"consistency": (one, *others)})
    assert rows(failed)["idle-latency"].checks.endswith(", 1 failed")
    alone = document.model_copy(update={"consistency": (one,)})
    assert rows(alone)["idle-latency"].checks.startswith("cross-check: ")


def test_the_rows_are_the_metrics_of_record(document: RunDocument) -> None:
    found = first_screen(document).headlines
    assert [row.kind for row in found] == [item.metric.name.partition(".")[0] for item in document.record]
    assert [row.trust for row in found] == [item.trust for item in document.record]
    assert len({row.anchor for row in found}) == len(found)
    row = rows(document)["idle-latency"]
    assert (row.title, row.value, row.plus_minus, row.goal) == (
        "Idle latency, node 0 to node 0", "151 ns", "±7.9 %", "±1.0 %"
    )  # fmt: skip
    assert row.checks == "7 cross-checks: 142 ns to 176 ns (-6.5 % to +16.1 %)"
    gap = rows(document)["worst-gap"]
    assert (gap.title, gap.plus_minus, gap.goal, gap.accepted, gap.checks) == (
        "Longest interruption, CPU 1", "", "", "", ""
    )  # fmt: skip


def test_many_nodes_share_two_rows(document: RunDocument) -> None:
    found = rows(with_nodes(document, 4))
    own, far = found["idle-latency"], found["idle-latency-remote"]
    assert (own.title, own.note) == ("Idle latency, own node", "3 nodes: 151 ns to 155 ns")
    assert (far.title, far.value, far.note) == (
        "Idle latency, farthest node", "338 ns", "12 pairs of nodes: 212 ns to 338 ns"
    )  # fmt: skip
    assert len(found) <= MAX_ROWS
    assert len(rows(with_nodes(document, 1))) == len(found) - 1


def test_a_row_shows_the_figure_that_is_out_of_its_limits(document: RunDocument) -> None:
    four = with_nodes(document, 4)
    limit = Limit(metric="latency_matrix.0.1.latency_ns", lower=None, upper=90.0, unit="ns", reason="the inventory")
    row = rows(judge_run(four, [limit]))["idle-latency-remote"]
    assert (row.value, row.accepted, row.outside) == ("212 ns", "at most 90 ns", True)


def test_a_row_says_of_its_own_cpu_whether_it_is_isolated(document: RunDocument) -> None:
    """A login outside of a cpuset partition measures others than the isolated CPUs."""
    for isolated, said in ((1, "isolated"), (0, "not isolated")):
        assert rows(isolating(document, isolated))["worst-gap"].note == said


def test_a_firmware_detector_that_was_refused_has_no_row(document: RunDocument) -> None:
    assert "firmware-gap" in rows(document)
    index = index_of(document, "firmware")
    seen = document.measurements[index].values
    assert isinstance(seen, FirmwareValues)
    refused = {"instrument": None, "observed_s": None, "rate_per_hour": None, "max_gap_ns": None}
    measurements = list(document.measurements)
    measurements[index] = measurements[index].model_copy(update={"values": seen.model_copy(update=refused)})
    without = {"measurements": tuple(measurements), "record": metrics_of_record(measurements)}
    assert "firmware-gap" not in rows(document.model_copy(update=without))


def test_a_row_has_the_values_of_peers_with_the_same_processor(tmp_path: Path) -> None:
    """One with another processor is no peer."""
    peer = run_document(names=("latency_matrix",))
    values = peer.measurements[0].values
    assert isinstance(values, NodeMatrixValues)
    slower = replace(peer, 0, values=with_rows(values, grown(values, 1, lambda _cpu, _memory: 2.0)))
    other = peer.model_copy(update={"facts": {**peer.facts, "processor": "another"}})
    for sut, document in (("t3-sut1", slower), ("t3-sut2", peer), ("t3-sut3", other), ("t3-sut4", peer)):
        run = document.run.model_copy(update={"sut": sut})
        store(judged(document.model_copy(update={"run": run})), tmp_path)
    directory = tmp_path / peer.run.testbed / "t3-sut2" / peer.run.id
    (row,) = told(judged(peer), directory, Standings()).headlines
    assert row.peers is not None
    assert (row.peers.own, row.peers.words) == (pytest.approx(151.5, abs=0.1), "151.5 to 303 ns (2 SUTs)")
    (row,) = told(judged(peer), directory, Standings(peers=False)).headlines
    assert row.peers is None
