# SPDX-License-Identifier: Apache-2.0
"""``calibration reference``: lists, compares, and makes references of accepted runs only."""

import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from calibration.base.errors import InputError
from calibration.cli import calibration
from calibration.judge.baseline_files import add_acceptance
from calibration.judge.baselines import propose
from calibration.judge.run import verdicts_of
from calibration.references.library import FOLDER, library, published, read_file
from calibration.references.matching import normal
from calibration.references.own import OWN_FILE
from calibration.results.consistency import ConsistencyCheck
from calibration.results.imports import EPOCH, document_of
from calibration.results.imports import read_file as read_page
from calibration.results.model import RunDocument
from calibration.results.store import read_run
from tests.hardware import PROCESSOR, on_metal
from tests.readings import PAGES
from tests.report.report_documents import flagged, replace, run_document, store
from tests.unit.histories import run_id, scaled

pytestmark = pytest.mark.usefixtures("own_index")


def measured(sut: str = "t3-sut2", latency_ns: float = 98.0, number: int = 0, *, good: bool = True) -> RunDocument:
    """Return a run on known hardware with an idle latency of *latency_ns*, of good trust or of poor."""
    document = run_document(names=("idle_latency",))
    (measurement,) = document.measurements
    values = measurement.values
    estimate = scaled(values.latency_ns, latency_ns / values.latency_ns.value)  # type: ignore[union-attr]
    estimate = estimate.model_copy(update={"target_half_width": 0.5 if good else 0.001, "bimodal": False})
    document = replace(document, 0, values=values.model_copy(update={"latency_ns": estimate}))
    document = on_metal(document, sut=sut)
    changed = {
        "run": document.run.model_copy(update={"id": run_id(number)}),
        "verdicts": tuple(verdicts_of(document.measurements)),
    }
    return document.model_copy(update=changed)


def accept(runs: Sequence[Path]) -> None:
    for run in runs:
        (proposal,) = propose(
            [run], scope="sut", by="Ada", reason="as bought", metrics=(), now=datetime(2026, 3, 1, tzinfo=UTC)
        )
        assert proposal.acceptance is not None
        add_acceptance(run.parents[2], proposal.place, proposal.acceptance)


def command(*words: str | Path) -> Result:
    return CliRunner().invoke(calibration, ["reference", *map(str, words)])


def refusal(*words: str | Path) -> str:
    """Return why a command is refused."""
    done = command(*words)
    assert isinstance(done.exception, InputError), done.output
    return str(done.exception)


def test_accepted_runs_say_what_is_usual_for_the_next_machine(tmp_path: Path) -> None:
    results = tmp_path / "results"
    runs = [store(measured(f"sut{number}", 96.0 + number), results) for number in range(4)]
    accept(runs[:3])
    done = command("add", *runs[:3], "--source", "Example lab", "--licence", "CC0-1.0")
    assert done.exit_code == 0, done.output
    assert done.output == f"{results / OWN_FILE}: 3 figures added, 3 runs in all\n"
    file = read_file(results / OWN_FILE, below=results)
    assert (file.source.title, file.source.licence, file.source.url) == ("Example lab", "CC0-1.0", None)
    (first, *_) = file.machines
    assert (first.name, first.processor, first.instrument) == ("example-lab/sut0", PROCESSOR, "sutprobe")
    assert (first.memory.mt_s, first.memory.channels_per_socket, first.nodes_per_socket) == (2933, 6, 1)
    assert first.figures[0].value == 96.0
    item = normal(read_run(runs[3]), library(results)).of("idle_latency_local_ns")
    assert item is not None
    assert item.usual is not None
    assert (item.usual.machines, item.usual.low, item.usual.high) == (3, 96.0, 98.0)
    told = command("check", runs[3])
    assert told.exit_code == 0
    assert "usual: 97.0 ns (3 machines: 96.0 to 98.0 ns): 1.0 % above" in told.output
    own = normal(read_run(runs[0]), library(results)).of("idle_latency_local_ns")
    assert own is not None
    assert own.usual is not None
    assert own.usual.machines == 2, "not the machine itself"


def test_a_copied_file_is_a_shared_reference(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    run = store(measured("sut1"), ours)
    accept([run])
    assert command("add", run).exit_code == 0
    (theirs / FOLDER).mkdir(parents=True)
    shutil.copy(ours / OWN_FILE, theirs / FOLDER / "example-lab.yml")
    other = store(measured("sut2", 99.0), theirs)
    assert "usual: 98.0 ns (1 machine)" in command("check", other).output


def test_the_same_run_is_there_once(tmp_path: Path) -> None:
    results = tmp_path / "results"
    runs = [store(measured(number=number), results) for number in range(2)]
    accept(runs)
    output = tmp_path / "share" / "lab.yml"
    for run in (runs[0], runs[0], runs[1]):
        done = command("add", run, "--output", output)
        assert done.exit_code == 0, done.output
    assert done.output == f"{output}: 1 figure added, 2 runs in all\n"
    assert [item.run for item in read_file(output, below=output.parent).machines] == [run_id(0), run_id(1)]
    assert not (results / OWN_FILE).exists()
    before = output.read_bytes()
    other = refusal("add", runs[0], "--output", output, "--source", "Another lab")
    assert other.endswith("is of another source or licence: own runs, NOASSERTION")
    assert output.read_bytes() == before


def _imported() -> RunDocument:
    raw, page = read_page(PAGES[1])
    return document_of(page, raw, source="page.rst", testbed="lab", sut="t1", measured_on=None, now=EPOCH)


def _failed() -> RunDocument:
    document = run_document()
    (check, *_) = document.consistency
    failed: ConsistencyCheck = check.model_copy(update={"outcome": "fail"})
    return on_metal(document.model_copy(update={"consistency": (failed,)}))


REFUSED = {
    "imported": (_imported, "is an import"),
    "incomplete": (lambda: on_metal(run_document(names=("idle_latency",), status="incomplete")), "is incomplete"),
    "invalid": (lambda: flagged(measured(), 0, "PLACEMENT_WRONG", "3 of 4 pages"), "Idle latency is invalid"),
    "contradictory": (_failed, "the cross-check of"),
    "guest": (lambda: run_document(names=("idle_latency",)), "host hardware unknown (virtual machine)"),
    "poor": (lambda: measured(good=False), "or only metrics of poor trust"),
    "implausible": (lambda: measured(latency_ns=4000.0), "is not from 40 to 400"),
    "not accepted": (measured, "calibration.cli accept "),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_run_that_is_no_reference_is_refused(name: str, tmp_path: Path) -> None:
    make, reason = REFUSED[name]
    results = tmp_path / "results"
    run, good = store(make(), results), store(measured("good"), results)
    accept([good])
    assert reason in refusal("add", good, run)
    assert not (results / OWN_FILE).exists(), "nothing is written if one is refused"


def test_another_run_of_the_sut_was_not_accepted(tmp_path: Path) -> None:
    results = tmp_path / "results"
    runs = [store(measured(number=number), results) for number in range(2)]
    accept(runs[:1])
    assert command("add", runs[0]).exit_code == 0
    assert "was not accepted" in refusal("add", runs[1])


def test_list_has_every_processor_and_the_figures_of_one(tmp_path: Path) -> None:
    lines = command("list", "--results", tmp_path).output.splitlines()
    assert len(lines) > 60
    assert "Intel Xeon Gold 6252N: 1 machine, Intel MLC" in lines
    found = command("list", "--results", tmp_path, "--processor", "Gold 6252N").output
    assert "2 sockets, 1 node a socket, 6 channels a socket, DDR4-2933, Intel MLC 3.7, 2019-09-11, CC-BY-4.0" in found
    assert "Read bandwidth, all CPUs: 243 GB/s" in found
    curves = command("list", "--results", tmp_path, "--processor", "Gold 5218").output
    assert "Curve, 50 % writes: 90.3 ns to 272 ns at 86.5 GB/s" in curves
    none = refusal("list", "--results", tmp_path, "--processor", "6502")
    assert none == "no reference of a processor with '6502' in its name"


def test_an_unreadable_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir(parents=True)
    (tmp_path / FOLDER / "bad.yml").write_text("machines: []\n")
    done = command("list", "--results", tmp_path)
    assert done.exit_code == 1
    assert "calibration: references/figures/bad.yml: not a file of references" in done.output
    assert len(library(tmp_path).entries) == len(published().entries)
