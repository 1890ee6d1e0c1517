# SPDX-License-Identifier: Apache-2.0
"""Every gate has a recorded run that passes it and one that fails it, and it alone; what cannot be told is skipped."""

from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
from nights import (
    MET,
    Case,
    good_case,
    judged,
    measured,
    with_cells,
    with_mix,
    with_point,
)
from report_documents import attempt, flagged, index_of

from calibration.acceptance.cli import run_gates
from calibration.judge.verdicts import ContextChange
from calibration.results.model import NotMeasured, RunDocument
from calibration.tuning import Change

ROOT = Path(__file__).resolve().parents[2]

CHANGE = Change(
    setting="governor",
    where="cpu0",
    before="schedutil",
    wanted="performance",
    after="performance",
    restored="performance",
    restored_by="run",
)

MICROCODE = ContextChange(fact="microcode", before="0x1", after="0x2", night=date(2025, 12, 30))

LATENCY = "latency_matrix.0.1.latency_ns"
BANDWIDTH = "bandwidth_matrix.1.0.bandwidth_mb_s"
JITTER = "jitter.cpu1.gaps.max_ns"


def ran(case: Case, folder: Path) -> dict[str, tuple[str, str]]:
    """Return how each gate ended for the one SUT of *case*, with its message."""
    results, verdicts = case.write(folder)
    tested = run_gates(folder / "gate", {"RESULTS": results, "VERDICTS": verdicts})
    assert {each.sut for each in tested} == {"testbed1 / sut1"}
    return {each.gate: (each.status, each.message) for each in tested}


def not_measured(document: RunDocument, kind: str) -> RunDocument:
    """Return *document* without what was measured of *kind*: it failed."""
    index = index_of(document, kind)
    lost = NotMeasured(kind=kind, what=document.measurements[index].title, reason="it crashed", cause="failed")
    kept = document.measurements[:index] + document.measurements[index + 1 :]
    run = document.run.model_copy(update={"status": "incomplete"})
    return document.model_copy(update={"run": run, "measurements": kept, "not_measured": (lost,)})


def promised(document: RunDocument) -> RunDocument:
    check = MET.model_copy(update={"found": "5.4.0-1", "outcome": "not_met", "effect": "flag"})
    return document.model_copy(update={"attempts": (attempt(checks=(check,)),)})


def left(document: RunDocument) -> RunDocument:
    return document.model_copy(update={"attempts": (attempt(checks=(MET,), changes=(CHANGE,)),)})


def invalid(document: RunDocument) -> RunDocument:
    return flagged(document, index_of(document, "max_bandwidth"), "PLACEMENT_WRONG", "a page lay on node 1")


FAILING: dict[str, tuple[Callable[[], Case], dict[str, str]]] = {
    "the kernel is not the promised one": (
        measured(promised),
        {"The SUT Is What The Inventory Promises": "Kernel release: expected 6.1.*, found 5.4.0-1"},
    ),
    "a governor was not put back": (
        measured(left),
        {"The SUT Was Left As It Was Found": "governor of cpu0: expected schedutil as before the run"},
    ),
    "a planned measurement crashed": (
        measured(lambda document: not_measured(document, "loaded_latency")),
        {"Everything Planned Was Measured And Is Valid": "Loaded latency: not measured: it crashed"},
    ),
    "a figure is invalid": (
        measured(invalid),
        {"Everything Planned Was Measured And Is Valid": "Maximum bandwidth: invalid: a page lay on node 1"},
    ),
    "an earlier figure is missing": (
        judged("missing", LATENCY, reason="expected a valid figure of this night, found none"),
        {"Nothing That Was There Before Is Missing": f"{LATENCY}: expected a valid figure of this night, found none"},
    ),
    "an isolated core is disturbed": (
        judged("limits", JITTER, reason="expected at most 2 us, found 9 us"),
        {
            "Jitter Of Isolated Cores Is Within Limits": f"{JITTER}: expected at most 2 us, found 9 us",
            "Every Figure Is Within Limits": f"{JITTER}: expected at most 2 us, found 9 us",
        },
    ),
    "an entry of the latency matrix": (
        judged("limits", LATENCY, reason="expected 80 to 90 ns, found 99 ns"),
        {
            "Each Entry Of The Latency Matrix Is Within Limits": f"{LATENCY}: expected 80 to 90 ns, found 99 ns",
            "Every Figure Is Within Limits": f"{LATENCY}: expected 80 to 90 ns, found 99 ns",
        },
    ),
    "an entry of the bandwidth matrix": (
        judged("limits", BANDWIDTH, reason="expected 8 MB/s, found 5 MB/s"),
        {
            "Each Entry Of The Bandwidth Matrix Is Within Limits": f"{BANDWIDTH}: expected 8 MB/s, found 5 MB/s",
            "Every Figure Is Within Limits": f"{BANDWIDTH}: expected 8 MB/s, found 5 MB/s",
        },
    ),
    "a figure of no matrix is outside its limits": (
        judged("limits", "max_bandwidth.reads.bandwidth_mb_s", reason="expected at least 8 MB/s, found 5 MB/s"),
        {"Every Figure Is Within Limits": "max_bandwidth.reads.bandwidth_mb_s: expected at least 8 MB/s, found 5 MB/s"},
    ),
    "remote memory answers sooner": (
        measured(lambda document: with_cells(document, "latency_matrix", ((1.0, 1.6), (0.6, 1.0)))),
        {
            "Own Memory Answers Sooner Than Remote Memory": "CPUs of node 1: memory of node 0 90.8861 ns "
            "(85.7543 to 95.9537), own memory 151.477 ns (142.924 to 159.923): expected own memory to be better"
        },
    ),
    "remote memory gives more": (
        measured(lambda document: with_cells(document, "bandwidth_matrix", ((1.0, 1.9), (0.5, 1.0)))),
        {"Own Memory Gives More Bandwidth Than Remote Memory": "CPUs of node 0: memory of node 1 31561.8 MB/s"},
    ),
    "a mix reads more than one with fewer writes": (
        measured(lambda document: with_mix(document, "2:1", 2.0)),
        {"Bandwidths Of Mixes Are In Order": "expected 2:1 to read no more than 3:1, found"},
    ),
    "a mix writes less than one with fewer writes": (
        measured(lambda document: with_mix(document, "1:1", 0.3)),
        {"Bandwidths Of Mixes Are In Order": "expected 1:1 to write no less than"},
    ),
    "latency falls under load": (
        measured(lambda document: with_point(document, 0, latency=0.1)),
        {"Latency Rises With The Load": "latency of CPU 1: expected at least that of delay 50, 177.79 ns"},
    ),
    "bandwidth has a valley": (
        measured(lambda document: with_point(document, 200, bandwidth=0.1)),
        {"Latency Rises With The Load": "bandwidth at delay 200: expected no valley, found"},
    ),
    "a level has drifted": (
        judged("drift", LATENCY, reason="level +9 % since 2025-12-30", context_changes=(MICROCODE,)),
        {"No Level Has Drifted": f"{LATENCY}: level +9 % since 2025-12-30. In the context: microcode: was 0x1, is 0x2"},
    ),
    "a figure spreads": (
        judged("spread", LATENCY, reason="spread of nights +200 %"),
        {"No Figure Spreads Otherwise Than Before": f"{LATENCY}: spread of nights +200 %"},
    ),
    "a figure flips": (
        judged("bimodal", LATENCY, reason="it flips between 90 ns and 120 ns"),
        {"No Figure Flips Between Two Levels": f"{LATENCY}: it flips between 90 ns and 120 ns"},
    ),
    "a server is not like the others": (
        judged("homogeneity", LATENCY, reason="8 % above the others", context_changes=(MICROCODE,)),
        {
            "The SUT Is Like The Others Of Its Testbed": f"{LATENCY}: 8 % above the others. "
            "In the context: microcode: others have 0x1, this one 0x2"
        },
    ),
}


def test_a_night_that_is_good_passes_every_gate(tmp_path: Path) -> None:
    ended = ran(good_case(), tmp_path)
    assert {status for status, _ in ended.values()} == {"PASS"}, ended
    failed = {gate for _, gates in FAILING.values() for gate in gates}
    assert failed == set(ended), "each gate has a night in which it fails"


@pytest.mark.parametrize("name", FAILING)
def test_the_gate_for_it_fails_and_no_other(name: str, tmp_path: Path) -> None:
    make, wanted = FAILING[name]
    ended = ran(make(), tmp_path)
    failed = {gate: message for gate, (status, message) in ended.items() if status == "FAIL"}
    assert set(failed) == set(wanted), failed
    for gate, message in wanted.items():
        assert failed[gate].startswith(message)
