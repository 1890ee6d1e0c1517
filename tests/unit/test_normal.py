# SPDX-License-Identifier: Apache-2.0
"""What is normal for the hardware: the data, and which figures are compared with a run."""

import textwrap
from collections import Counter
from datetime import date
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from calibration.base.errors import InputError
from calibration.base.places import SHARE
from calibration.references.library import FOLDER, PUBLISHED, library, published, read_file
from calibration.references.matching import ComparedMetric, normal, unusual_by
from calibration.references.metrics import OWN, QUANTITIES, TOOLS
from calibration.references.model import Curve, Figure, Memory, ReferenceFile, ReferenceMachine, processor_key
from calibration.references.observed import observed, subject_of
from calibration.results.model import RunDocument
from tests.hardware import PROCESSOR, SOURCE, library_of, machine, on_metal
from tests.report.report_documents import flagged, index_of, run_document, with_nodes

DOCS = SHARE / "docs"
FILES = sorted(PUBLISHED.glob("*.yml"))


@pytest.fixture(name="run", scope="module")
def _run() -> RunDocument:
    return on_metal(
        run_document(names=("idle_latency", "latency_matrix", "peak_injection_bandwidth", "latency_ladder"))
    )


def compared(
    document: RunDocument, *machines: ReferenceMachine, metric: str = "idle_latency_local_ns"
) -> ComparedMetric:
    found = normal(document, library_of(*machines)).of(metric)  # type: ignore[arg-type]
    assert found is not None
    return found


# The data


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_published_figures_have_source_date_and_licence(path: Path) -> None:
    file = read_file(path, below=PUBLISHED)
    assert file.source.url is not None
    assert date(2010, 1, 1) < file.source.date < date(2100, 1, 1)
    assert file.source.licence
    for item in file.machines:
        assert item.instrument != OWN, "a run of our own is in the results of its lab"
        assert item.run is None
        assert item.processor == " ".join(item.processor.split())


def test_no_published_figure_is_there_twice() -> None:
    found = Counter(
        (processor_key(item.processor), item.name, item.instrument, item.version, figure.metric, figure.value)
        for _, item in published().entries
        for figure in item.figures
    )
    assert [key for key, count in found.items() if count > 1] == []


def test_no_source_copied_another() -> None:
    for (source, item), (other_source, other) in combinations(published().entries, 2):
        if source != other_source and processor_key(item.processor) == processor_key(other.processor):
            one, two = ({(figure.metric, figure.value) for figure in of.figures} for of in (item, other))
            assert len(one & two) <= min(len(one), len(two)) / 2, f"{item.name} is {other.name}"


def test_published_figures_are_read_once() -> None:
    assert published() is published()


def test_every_instrument_but_ours_has_its_bias() -> None:
    assert {name for name, tool in TOOLS.items() if tool.bias is None} == {OWN}


def test_published_bandwidths_of_the_nodes_add_up_to_that_of_the_machine() -> None:
    """A second way to the same quantity: a unit, a factor of 1.048576 or a row of another machine would show."""
    checked = 0
    for _, item in published().entries:
        values = {figure.metric: figure.value for figure in item.figures if figure.how is None}
        if {"read_machine_mb_s", "read_local_mb_s"} <= values.keys() and item.sockets and item.nodes_per_socket:
            nodes = item.sockets * item.nodes_per_socket
            share = values["read_machine_mb_s"] / values["read_local_mb_s"] / nodes
            assert 0.97 < share < 1.06, (item.name, item.processor, share)
            checked += 1
    assert checked > 10


GOOD: dict[str, Any] = {"metric": "idle_latency_local_ns", "value": 98.1, "low": 97.0, "high": 99.0}


@pytest.mark.parametrize(("change", "fault"), [
    ({"value": 0.0981}, "is not from 40 to 400"),
    ({"value": 98100.0}, "is not from 40 to 400"),
    ({"metric": "read_machine_mb_s", "value": 215.0, "low": None, "high": None}, "is not from 5000"),
    ({"metric": "read_machine_mb_s", "value": 2.15e11, "low": None, "high": None}, "is not from 5000"),
    ({"value": float("nan")}, "finite number"),
    ({"low": 98.5}, "not within its own range"),
    ({"high": None}, "only one end"),
    ({"metric": "idle_latency_ns"}, "Input should be"),
    ({"how": "a\x1b[0m"}, "control characters"),
    ({"unit": "ns"}, "Extra inputs"),
])  # fmt: skip
def test_a_wrong_figure_is_refused(change: dict[str, Any], fault: str) -> None:
    Figure(**GOOD)
    with pytest.raises(ValidationError, match=fault):
        Figure(**GOOD | change)


@pytest.mark.parametrize("factor", [1.0, 0.9])
def test_a_bandwidth_above_the_theoretical_peak_is_refused(factor: float) -> None:
    peak = 2 * 6 * 2933 * 8
    machine("t/1", peak * factor, "read_machine_mb_s")
    with pytest.raises(ValidationError, match="above the theoretical peak"):
        machine("t/1", peak * 1.048576, "read_machine_mb_s")
    with pytest.raises(ValidationError, match="above the theoretical peak"):
        machine("t/1", peak / 2 * 1.05, "read_local_mb_s")
    machine("t/1", peak * 1.048576, "read_machine_mb_s", channels_per_socket=None)


def test_a_machine_or_a_figure_given_twice_is_refused() -> None:
    one = machine("t/1", 98.0, instrument="mlc")
    with pytest.raises(ValidationError, match="is there twice"):
        ReferenceFile(source=SOURCE, machines=(one, one))
    ReferenceFile(source=SOURCE, machines=(one, one.model_copy(update={"name": "t/2"})))
    with pytest.raises(ValidationError, match="idle_latency_local_ns"):
        ReferenceMachine(**one.model_dump() | {"figures": (*one.figures, *one.figures)})


CURVE: dict[str, Any] = {"write_percent": 50, "bandwidth_mb_s": (0, 5e4, 9e4), "latency_ns": (98.1, 120, 300)}


@pytest.mark.parametrize(("change", "fault"), [
    ({"write_percent": 101}, "less than or equal to 100"),
    ({"bandwidth_mb_s": (0, 5e4)}, "at least 3"),
    ({"bandwidth_mb_s": (0, 5e4, 5e4)}, "do not increase"),
    ({"bandwidth_mb_s": (0, 5e4, 9e10)}, "less than or equal to 2000000"),
    ({"bandwidth_mb_s": (-1, 5e4, 9e4)}, "greater than or equal to 0"),
    ({"latency_ns": (98.1, 120)}, "3 bandwidths, 2 latencies"),
    ({"latency_ns": (98.1, 0.120, 300)}, "greater than or equal to 40"),
    ({"latency_ns": (98.1, 120, float("nan"))}, "finite number"),
])  # fmt: skip
def test_a_wrong_curve_is_refused(change: dict[str, Any], fault: str) -> None:
    curve = Curve(**CURVE)
    with pytest.raises(ValidationError, match=fault):
        Curve(**CURVE | change)
    with pytest.raises(ValidationError, match="two curves with the same share of writes"):
        machine("t/1", 98.0, curves=(curve, curve))


def test_published_curves_agree_with_the_figures_of_their_machine() -> None:
    checked = 0
    for _, item in published().entries:
        values = {figure.metric: figure.value for figure in item.figures}
        for curve in item.curves:
            assert curve.latency_ns[0] == pytest.approx(values["idle_latency_local_ns"], rel=0.03), item.name
            if curve.write_percent == 0:
                assert curve.latency_ns[-1] == pytest.approx(values["loaded_latency_max_ns"], rel=0.1), item.name
                assert curve.bandwidth_mb_s[-1] == pytest.approx(values["read_local_mb_s"], rel=0.1), item.name
                checked += 1
    assert checked >= 5


TEXT = """source: {title: Example, date: 2026-01-31, date_is: measured, licence: CC0-1.0}
machines:
- name: t/1
  processor: Intel Xeon Gold 6252N
  instrument: sutprobe
  figures: [{metric: idle_latency_local_ns, value: 98}]
"""


@pytest.mark.parametrize(("old", "new", "fault"), [
    ("", "", None),
    ("licence: CC0-1.0", "licence: CC0-1.0, licence: MIT", "duplicate key 'licence'"),
    ("figures: [", "figures: &figures [*figures, ", "an alias of a list or mapping is not allowed"),
    (", licence: CC0-1.0", "", "source.licence: Field required"),
    ("date: 2026-01-31", "date: yesterday", "source.date"),
    ("CC0-1.0", "do what you want", "source.licence"),
    ("sutprobe", "stopwatch", "instrument"),
    ("value: 98", "value: '98'", "valid number"),
    ("machines:", "machines: [", "not valid YAML"),
    ("processor: Intel Xeon Gold 6252N", "processor: CPU @ 2.3GHz", "does not name a processor"),
])  # fmt: skip
def test_a_wrong_file_is_a_fault_and_the_others_count(tmp_path: Path, old: str, new: str, fault: str | None) -> None:
    folder = tmp_path / FOLDER
    folder.mkdir(parents=True)
    (folder / "other.yml").write_text(TEXT.replace("t/1", "t/2"))
    alone = library(tmp_path)
    (folder / "own.yml").write_text(TEXT.replace(old, new))
    found = library(tmp_path)
    assert found.digest != alone.digest
    names = {item.name for _, item in found.entries} - {item.name for _, item in published().entries}
    if fault is None:
        assert (names, found.faults) == ({"t/1", "t/2"}, ())
        return
    assert names == {"t/2"}
    (told,) = found.faults
    assert told.startswith(f"{FOLDER}/own.yml: ")
    assert fault in told
    with pytest.raises(InputError):
        read_file(folder / "own.yml", below=tmp_path)


def test_a_link_in_the_references_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir(parents=True)
    (tmp_path / "elsewhere.yml").write_text(TEXT)
    (tmp_path / FOLDER / "own.yml").symlink_to(tmp_path / "elsewhere.yml")
    found = library(tmp_path)
    assert len(found.entries) == len(published().entries)
    assert "a symbolic link" in found.faults[0]


def test_the_example_of_the_guide_is_valid(tmp_path: Path) -> None:
    page = (DOCS / "results" / "figures.rst").read_text(encoding="utf-8")
    example = textwrap.dedent(page.partition(".. code-block:: yaml\n")[2].partition("\n* ")[0])
    (tmp_path / "example.yml").write_text(example)
    (found,) = read_file(tmp_path / "example.yml", below=tmp_path).machines
    assert (found.processor, found.run, len(found.figures)) == (PROCESSOR, "20260131T021500Z-3f2a", 2)
    assert found.curves[0].latency_ns[-1] == 210


# The processor


@pytest.mark.parametrize(("name", "other", "same"), [
    (PROCESSOR, "Intel Xeon Gold 6252N", True),
    (PROCESSOR, "Intel Xeon Gold 6252", False),
    ("INTEL(R) XEON(R) PLATINUM 8559C", "Intel Xeon Platinum 8559C", True),
    ("Intel(R) Xeon(R) CPU E5-2699 v3 @ 2.30GHz", "Intel Xeon E5-2699 v3", True),
    ("Intel(R) Xeon(R) CPU E5-2699 v4 @ 2.20GHz", "Intel Xeon E5-2699 v3", False),
    ("Intel Xeon E5-2699A v4", "Intel Xeon E5-2699 v4", False),
    ("AMD EPYC 9354P 32-Core Processor", "AMD EPYC 9354P", True),
    ("AMD EPYC 9354 32-Core Processor", "AMD EPYC 9354P", False),
    ("Intel(R) Xeon(R) Platinum 8480+", "Intel Xeon Platinum 8480C", False),
    ("Intel(R) Xeon(R) Platinum 8480+", "Intel Xeon Platinum 8480", False),
    ("Ampere(R) Altra(R) Processor Q80-30 CPU @ 3.0GHz", "Ampere Altra Q80-30", True),
    ("Neoverse-N1", "Ampere Altra Q80-30", False),
])  # fmt: skip
def test_processors_are_compared_by_model(name: str, other: str, same: bool) -> None:
    assert (processor_key(name) == processor_key(other)) is same


# What is compared


def test_equal_machines_of_our_instrument_say_what_is_usual(run: RunDocument) -> None:
    values = {"t/1": 96.0, "t/2": 98.0, "t/3": 101.0}
    found = compared(run, *(machine(name, value) for name, value in values.items()))
    assert found.usual is not None
    assert (found.usual.value, found.usual.low, found.usual.high, found.usual.machines) == (98.0, 96.0, 101.0, 3)
    assert found.context == ()


@pytest.mark.parametrize(("fields", "differs", "unknown"), [
    ({"mt_s": 2666}, ("2666 MT/s",), ()),
    ({"mt_s": 2934}, (), ()),
    ({"channels_per_socket": 5}, ("5 channels a socket",), ()),
    ({"channels_per_socket": None}, (), ("memory channels",)),
    ({"nodes_per_socket": 2}, ("2 nodes a socket",), ()),
    ({"nodes_per_socket": None}, (), ("nodes of a socket",)),
    ({"sockets": 1}, ("1 socket",), ()),
    ({"cores_per_socket": 28}, ("28 cores a socket",), ()),
    ({"cores_per_socket": None}, (), ()),
    ({"mt_s": None, "sockets": 4}, ("4 sockets",), ("memory speed",)),
])  # fmt: skip
def test_another_condition_is_said_and_never_usual(
    run: RunDocument, fields: dict[str, Any], differs: tuple[str, ...], unknown: tuple[str, ...]
) -> None:
    found = compared(run, machine("t/1", 98.0, **fields))
    if not differs and not unknown:
        assert found.usual is not None
        return
    assert found.usual is None
    (group,) = found.context
    assert (group.differs, group.unknown) == (differs, unknown)


@pytest.mark.parametrize("instrument", [name for name in TOOLS if name != OWN])
def test_another_instrument_is_never_usual(run: RunDocument, instrument: Any) -> None:
    found = compared(run, machine("t/1", 98.0, instrument=instrument))
    assert found.usual is None
    assert found.context[0].instrument == instrument


def test_another_way_of_measuring_is_never_usual(run: RunDocument) -> None:
    found = compared(run, machine("t/1", 98.0), machine("t/2", 130.0, how="base pages"))
    assert found.usual is not None
    assert (found.usual.machines, found.usual.high) == (1, 98.0)
    assert [group.how for group in found.context] == ["base pages"]
    small = flagged(run, index_of(run, "latency_matrix"), "HUGEPAGE_NONE", "no huge pages")
    found = compared(small, machine("t/1", 98.0), machine("t/2", 130.0, how="base pages"))
    assert found.usual is not None
    assert (found.usual.machines, found.usual.value) == (1, 130.0)


@pytest.mark.parametrize("other", ["Intel Xeon Gold 6252", "Intel Xeon Gold 6252NX", "Intel Xeon Silver 6252N"])
def test_a_processor_with_a_similar_name_is_not_even_context(run: RunDocument, other: str) -> None:
    found = compared(run, machine("t/1", 98.0, processor=other))
    assert (found.usual, found.context) == (None, ())


def test_instruments_are_not_put_together(run: RunDocument) -> None:
    found = compared(run, machine("t/1", 98.0, instrument="mlc"), machine("t/2", 88.0, instrument="mess"))
    assert {(group.instrument, group.value) for group in found.context} == {("mlc", 98.0), ("mess", 88.0)}


def test_repeats_on_one_machine_count_once(run: RunDocument) -> None:
    repeats = [machine("t/1", value, run=f"run-{value}") for value in (96.0, 97.0, 99.0)]
    found = compared(run, *repeats, machine("t/2", 103.0))
    assert found.usual is not None
    assert (found.usual.machines, found.usual.low, found.usual.value) == (2, 97.0, 100.0)


def test_a_machine_is_not_its_own_reference(run: RunDocument) -> None:
    label = f"{run.run.testbed}/{run.run.sut}"
    own = machine(label, 98.0, run="20260131T021500Z-3f2a")
    assert compared(run, own).usual is None
    assert compared(on_metal(run, sut="t4-sut1"), own).usual is not None


def test_a_virtual_machine_has_no_reference() -> None:
    guest = run_document(names=("latency_matrix",))
    subject = subject_of(guest)
    assert subject.processor is None
    assert "virtual machine" in (subject.reason or "")
    key = processor_key("Intel Core Processor (Haswell, no TSX)")
    (item,) = normal(guest, library_of(machine("t/1", 150.0, processor=key, mt_s=None))).figures
    assert (item.usual, item.context) == (None, ())


def test_a_machine_without_a_readable_population_knows_only_its_caches(run: RunDocument) -> None:
    assert run.context is not None
    firmware = run.context.parsed.firmware.model_copy(update={"dimms": ()})
    context = run.context.parsed.model_copy(update={"firmware": firmware})
    unread = run.model_copy(update={"context": run.context.model_copy(update={"parsed": context})})
    assert compared(unread, machine("t/1", 98.0)).context[0].unknown == ("memory speed", "memory channels")
    assert compared(unread, machine("t/1", 1.2, "l1_ns"), metric="l1_ns").usual is not None


def test_sockets_of_unequal_size_have_no_number_of_cores(run: RunDocument) -> None:
    assert run.context is not None
    context = run.context.parsed
    topology = context.topology.model_copy(update={"cores": context.topology.cores[1:]})
    uneven = run.context.model_copy(update={"parsed": context.model_copy(update={"topology": topology})})
    conditions = subject_of(run.model_copy(update={"context": uneven})).conditions
    assert (conditions["sockets"], conditions["cores_per_socket"], conditions["nodes_per_socket"]) == (2, None, 1)


def test_only_nodes_with_cpus_and_only_memory_modules_are_conditions(run: RunDocument) -> None:
    assert run.context is not None
    context = run.context.parsed
    (dimm, *_), (node, *_) = context.firmware.dimms, context.nodes
    flash = dimm.model_copy(update={"type": "Flash", "configured_mt_s": 33})
    memory_only = [node.model_copy(update={"id": number, "cpus": ()}) for number in (8, 9)]
    context = context.model_copy(
        update={
            "nodes": (*context.nodes, *memory_only),
            "firmware": context.firmware.model_copy(update={"dimms": (*context.firmware.dimms, flash)}),
        }
    )
    more = run.model_copy(update={"context": run.context.model_copy(update={"parsed": context})})
    assert subject_of(more) == subject_of(run)


def test_the_nearest_figures_come_first(run: RunDocument) -> None:
    machines = [
        machine("t/1", 91.0, instrument="mlc", nodes_per_socket=None),
        machine("t/2", 92.0, instrument="mlc", mt_s=2666),
        machine("t/3", 93.0, instrument="mlc"),
        machine("t/4", 94.0, mt_s=2666, nodes_per_socket=2),
    ]
    found = compared(run, *machines)
    assert [group.value for group in found.context] == [94.0, 93.0, 91.0, 92.0]
    assert [group.value for group in found.nearest] == [94.0, 93.0]


def test_published_figures_of_the_hardware_are_found(run: RunDocument) -> None:
    found = normal(run, published())
    item = found.of("read_machine_mb_s")
    assert item is not None
    assert item.usual is None
    (group,) = item.context
    assert (group.instrument, group.machines, group.differs) == ("mlc", 1, ("24 cores a socket",))
    assert group.share == pytest.approx(0.86, abs=0.02)


def test_unusual_is_beyond_the_nearer_end(run: RunDocument) -> None:
    value = compared(run).figure.value
    near = [machine("t/1", value * 0.9), machine("t/2", value * 1.1)]
    inside = compared(run, *near)
    assert inside.usual is not None
    assert unusual_by(inside.figure, inside.usual) == 0
    below = compared(run, machine("t/1", value * 1.25))
    assert below.usual is not None
    assert unusual_by(below.figure, below.usual) == pytest.approx(-0.2)


# What a run contributes


def test_nodes_are_local_near_or_remote() -> None:
    document = on_metal(with_nodes(run_document(), 2))
    found = {item.metric: item for item in observed(document)}
    assert found["idle_latency_local_ns"].places == 1, "one cell has no value"
    assert found["idle_latency_remote_ns"].places == 2
    assert found["c2c_remote_hitm_writer_ns"].places == 2
    assert "idle_latency_near_ns" not in found
    assert document.context is not None
    context = document.context.parsed
    cores = tuple(core.model_copy(update={"package_id": 0}) for core in context.topology.cores)
    one = context.model_copy(update={"topology": context.topology.model_copy(update={"cores": cores})})
    document = document.model_copy(update={"context": document.context.model_copy(update={"parsed": one})})
    assert {"idle_latency_local_ns", "idle_latency_near_ns"} <= {item.metric for item in observed(document)}
    assert "idle_latency_remote_ns" not in {item.metric for item in observed(document)}


def test_memory_without_cpus_is_neither_near_nor_remote() -> None:
    document = on_metal(with_nodes(run_document(), 2))
    assert document.context is not None
    context = document.context.parsed
    nodes = (context.nodes[0], context.nodes[1].model_copy(update={"cpus": ()}))
    parsed = context.model_copy(update={"nodes": nodes})
    document = document.model_copy(update={"context": document.context.model_copy(update={"parsed": parsed})})
    names = {item.metric for item in observed(document)}
    assert "idle_latency_local_ns" in names
    assert not {"idle_latency_near_ns", "idle_latency_remote_ns", "c2c_remote_hitm_writer_ns"} & names


def test_invalid_figures_are_not_compared(run: RunDocument) -> None:
    wrong = flagged(run, index_of(run, "peak_injection_bandwidth"), "PLACEMENT_WRONG", "3 of 4 pages")
    wrong = flagged(wrong, index_of(run, "peak_injection_bandwidth") - 1, "PLACEMENT_WRONG", "3 of 4 pages")
    names = {item.metric for item in observed(wrong)}
    assert "read_machine_mb_s" in {item.metric for item in observed(run)}
    assert "read_machine_mb_s" not in names


def test_the_machine_shows_its_conditions(run: RunDocument) -> None:
    subject = subject_of(run)
    assert subject.processor == PROCESSOR
    assert subject.conditions == {
        "sockets": 2,
        "cores_per_socket": 2,
        "nodes_per_socket": 1,
        "mt_s": 2933,
        "channels_per_socket": 6,
    }
    assert subject.memory_type == "DDR4"
    assert set(QUANTITIES["l1_ns"].conditions) == set()
    assert Memory().channels_per_socket is None
