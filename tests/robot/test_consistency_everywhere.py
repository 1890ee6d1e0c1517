# SPDX-License-Identifier: Apache-2.0
"""The page, the run's own verdict, the judgement of the night and the gate agree on whether a run is consistent."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from click.testing import CliRunner
from nights import Case, with_cells, with_figures, write_night
from report_documents import flagged, index_of, replace, run_document, scaled, with_rows

from calibration.base.errors import VERDICT_FAILED
from calibration.base.units import plural
from calibration.cli import calibration
from calibration.gates.night import read_night
from calibration.gates.rules import check_verdicts, decide
from calibration.measurements.bandwidth_matrix import BandwidthMatrixValues
from calibration.measurements.table import TableRow
from calibration.report.page import render
from calibration.report.rst import to_rst
from calibration.report.summary import summary
from calibration.results.consistency import ConsistencyCheck
from calibration.results.cross_checks import cross_checks
from calibration.results.model import RunDocument
from calibration.results.store import open_run, read_run

NAMES = (
    "idle_latency", "latency_matrix", "latency_ladder", "bandwidth_matrix", "peak_injection_bandwidth", "max_bandwidth",
    "bandwidth_scaling", "bandwidth_ladder", "bandwidth_ladder-all", "loaded_latency",
)  # fmt: skip


def recorded() -> RunDocument:
    """Return what was recorded on one node, with a second node beside it that is farther."""
    document = run_document(names=NAMES, sut="sut1", testbed="testbed1").model_copy(update={"not_measured": ()})
    document = with_cells(document, "latency_matrix", ((1.0, 1.6), (1.6, 1.0)))
    document = with_cells(document, "bandwidth_matrix", ((1.0, 0.5), (0.5, 1.0)))
    index = index_of(document, "bandwidth_matrix")
    groups = {**document.measurements[index].parameters, "group": ["0-1@0", "0-1@1", "2-3@0", "2-3@1"]}
    return replace(document, index, parameters=groups)


def with_mixes(document: RunDocument, kinds: tuple[str, ...], factors: dict[str, float]) -> RunDocument:
    for kind in kinds:
        for mix, factor in factors.items():
            document = with_figures(document, kind, factor, "mixes", mix)
    return document


BOTH = ("peak_injection_bandwidth", "max_bandwidth")


def faster_second_memory() -> RunDocument:
    """Return a machine whose node 1 has faster memory, which both nodes reach sooner than that of node 0."""
    document = with_cells(recorded(), "latency_matrix", ((1.0, 0.8), (1.4, 0.5)))
    index = index_of(document, "bandwidth_matrix")
    groups = document.measurements[index].parameters
    document = with_cells(document, "bandwidth_matrix", ((1.0, 3.0), (0.5, 4.0)))
    return replace(document, index, parameters=groups)


def memory_without_cpus() -> RunDocument:
    """Return a machine with one node of CPUs, and memory of another kind that gives more than its own."""
    document = recorded()
    index = index_of(document, "bandwidth_matrix")
    values = document.measurements[index].values
    assert isinstance(values, BandwidthMatrixValues)
    own, *_ = values.table.rows
    wide = TableRow(own | {"memory_node": 1, "bandwidth_mb_s": scaled(own.bandwidth_mb_s, 6.0)})
    document = replace(document, index, values=with_rows(values, [own, wide]))
    parameters = document.measurements[index].parameters
    return replace(document, index, parameters={**parameters, "group": ["0-1@0", "0-1@1"]})


def invalid_contradiction() -> RunDocument:
    document = with_figures(recorded(), "idle_latency", 2.0)
    return flagged(document, index_of(document, "idle_latency"), "PLACEMENT_WRONG", "a page lay on node 1")


POSSIBLE: dict[str, Callable[[], RunDocument]] = {
    "as it was recorded": recorded,
    "links that read and write separately": lambda: with_mixes(
        recorded(), BOTH, {"3:1": 1.5, "2:1": 2.0, "stream_triad": 2.5, "1:1": 2.0}
    ),  # half of a mix's traffic costs its reads nothing
    "mixes that read more than reads alone": lambda: with_mixes(recorded(), BOTH, {"1:1": 4.0}),
    "a second memory that is faster": faster_second_memory,
    "memory without CPUs that gives more": memory_without_cpus,
    "latency that sags before it rises": lambda: with_figures(recorded(), "loaded_latency", 0.5, "points", 2),
    "a contradiction of an invalid figure": invalid_contradiction,
}

IMPOSSIBLE: dict[str, tuple[Callable[[], RunDocument], tuple[tuple[str, str], ...]]] = {
    "a maximum below the peak": (
        lambda: with_figures(recorded(), "max_bandwidth", 0.5, "mixes", "3:1"),
        (("peak_injection_bandwidth.3:1.bandwidth_mb_s", "max_bandwidth.3:1.bandwidth_mb_s is"),),
    ),
    "one node that reads more than all": (
        lambda: with_figures(recorded(), "bandwidth_matrix", 3.0, "table", "rows", 0, "bandwidth_mb_s"),
        (
            ("bandwidth_matrix.0.0.bandwidth_mb_s", "peak_injection_bandwidth.reads.bandwidth_mb_s is"),
            ("bandwidth_matrix.0.0.bandwidth_mb_s", "max_bandwidth.reads.bandwidth_mb_s is"),
        ),
    ),
    "one thread that reads more than all": (
        lambda: with_figures(recorded(), "bandwidth_scaling", 2.5, "table", "rows", 0),
        (("bandwidth_scaling.fill.1.bandwidth_mb_s", "max_bandwidth.reads.bandwidth_mb_s is"),),
    ),
    "one CPU that moves more than all": (
        lambda: with_figures(recorded(), "bandwidth_ladder", 5.0),
        tuple(
            (f"bandwidth_ladder.one_CPU.{mix}.memory.program_mb_s", f"all_CPUs.{mix}.memory.program_mb_s is")
            for mix in ("copy", "reads", "write")
        ),
    ),
    "a load that moves more than all CPUs": (
        lambda: with_figures(recorded(), "loaded_latency", 60.0, "points", 0, "bandwidth_mb_s"),
        (("loaded_latency.0.bandwidth_mb_s", "max_bandwidth.reads.bandwidth_mb_s is"),),
    ),
    "idle latencies that contradict each other": (
        lambda: with_figures(recorded(), "latency_matrix", 1.5, "table", "rows", 0, "latency_ns"),
        (
            ("idle_latency.latency_ns", "latency_matrix.0.0.latency_ns is"),
            ("latency_ladder.memory.latency_ns", "latency_matrix.0.0.latency_ns is"),
        ),
    ),
    "peaks that contradict each other": (
        lambda: with_figures(recorded(), "bandwidth_scaling", 0.1, "table", "rows", 1),
        (("bandwidth_scaling.fill.2.bandwidth_mb_s", "peak_injection_bandwidth.reads.bandwidth_mb_s is"),),
    ),
    "memory that is nearer to another node": (
        lambda: with_cells(recorded(), "latency_matrix", ((1.0, 0.6), (1.6, 1.0))),
        (("latency_matrix.1.1.latency_ns", "latency_matrix.0.1.latency_ns is"),),
    ),
    "memory that gives another node more": (
        lambda: with_figures(recorded(), "bandwidth_matrix", 5.0, "table", "rows", 1, "bandwidth_mb_s"),
        (("bandwidth_matrix.0.1.bandwidth_mb_s", "bandwidth_matrix.1.1.bandwidth_mb_s is"),),
    ),
    "memory that answers sooner under load": (
        lambda: with_figures(recorded(), "loaded_latency", 0.1, "points", 0, "probes"),
        (("loaded_latency.20000.latency_ns", "loaded_latency.0.latency_ns is"),),
    ),
}


EVERY = {**POSSIBLE, **{name: make for name, (make, _) in IMPOSSIBLE.items()}}


def contradictions(checks: Iterable[ConsistencyCheck]) -> list[str]:
    return sorted(f"{check.figure.name}: {check.reason}" for check in checks if check.outcome == "fail")


@pytest.mark.parametrize("name", EVERY)
def test_rules_find_what_is_impossible_and_nothing_else(name: str) -> None:
    found = contradictions(cross_checks(EVERY[name]().measurements))
    wanted = IMPOSSIBLE[name][1] if name in IMPOSSIBLE else ()
    assert [item.partition(": ")[0] for item in found] == [figure for figure, _ in wanted]
    assert all(reason in text for text, (_, reason) in zip(found, wanted, strict=True))


SHOWN = (
    "as it was recorded",
    "a contradiction of an invalid figure",
    "a maximum below the peak",
    "one CPU that moves more than all",
)


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """Store documents as SUTs of one night; return the results, and each SUT's name by the document's."""
    suts = {name: f"sut{number}" for number, name in enumerate(SHOWN)}
    named = []
    for name, sut in suts.items():
        document = EVERY[name]()
        named.append(document.model_copy(update={"run": document.run.model_copy(update={"sut": sut})}))
    results, _ = write_night(tmp_path_factory.mktemp("night"), [Case(item, ()) for item in named])
    return results, suts


@pytest.fixture(scope="module")
def judged(night: tuple[Path, dict[str, str]]) -> Path:
    """Return a file with the output of ``calibration judge --json``."""
    done = CliRunner().invoke(calibration, ["judge", "--results", str(night[0]), "--json"])
    assert done.exit_code == VERDICT_FAILED, done.output
    path = night[0].parent / "judged.json"
    path.write_text(done.output, encoding="utf-8")
    return path


def gate(results: Path, verdicts: Path, sut: str) -> tuple[str, str]:
    """Return how the gate of consistency ends for *sut*, and its message."""
    told = read_night(results, verdicts=verdicts).verdicts["testbed1", sut]
    return decide(check_verdicts(item for item in told if item.check == "consistency"))[:2]


@pytest.mark.parametrize("name", SHOWN)
def test_page_verdict_judgement_and_gate_agree(name: str, night: tuple[Path, dict[str, str]], judged: Path) -> None:
    results, suts = night
    (directory,) = (results / "testbed1" / suts[name]).iterdir()
    stored = read_run(directory)
    found = contradictions(stored.consistency)
    wanted = name in IMPOSSIBLE
    page = to_rst(render(open_run(directory / "run.json")).blocks).replace("\\ ", "").replace("\\", "")
    assert ("Cross-check failed" in page) == wanted
    assert page.count(":invalid:`fail`: ") == len(found)
    failed = summary(directory, stored)["failed_verdicts"]
    lines = [line for line in failed if line.startswith(tuple(found))]
    assert len(lines) == bool(found)
    assert all(
        line.endswith(f"(and {plural(len(found) - 1, 'more cross-check')})") == (len(found) > 1) for line in lines
    )
    verdicts = json.loads(judged.read_bytes())["verdicts"]
    of = [item for item in verdicts if (item["sut"], item["check"]) == (suts[name], "consistency")]
    assert sorted(f"{item['metric']}: {item['reason']}" for item in of if item["outcome"] == "fail") == found
    assert len(of) == len([verdict for verdict in stored.consistency if verdict.outcome != "skipped"]) > 5
    assert gate(results, judged, suts[name]) == ("FAIL" if found else "PASS", "\n".join(found))
