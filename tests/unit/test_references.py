# SPDX-License-Identifier: Apache-2.0
"""The traffic shape kept per platform: searched once, taken by later plans, and never silently ignored or replaced."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from calibration.cli import plan_command
from calibration.context import load
from calibration.context.model import Context, Dimm
from calibration.errors import EnvironmentLacksError, InputError
from calibration.measurements import declaration
from calibration.measurements.base import Missing, Step
from calibration.measurements.choice import ChosenShape, ShapeReference, platform_of, traffic_sha256
from calibration.measurements.traffic import DEFAULT_SHAPE, Setting, Tried
from calibration.measurements.traffic_shape import ShapeSettings, choose, widths
from calibration.plan import Plan, make_plan, plan_text
from calibration.profiles import load_profile
from calibration.results import store
from calibration.results.facts import facts
from calibration.results.layout import SCHEMA_VERSION
from calibration.results.model import Attempt, CapturedContext, Measurement, Run, RunDocument
from calibration.results.references import keep_shape, kept_shape, path_of
from calibration.statistics import estimate
from calibration.sutprobe import read_document
from calibration.validity import flag, validity

FIXTURES = Path(__file__).parent.parent / "fixtures"
MACHINE = FIXTURES / "context" / "x86_64-two-nodes-smt.tar.gz"
WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture(scope="module")
def sut() -> Context:
    return load(MACHINE)


def searched(sut: Context, widths: tuple[str, ...] = ("avx2", "sse2"), planned: tuple[str, ...] = ()) -> RunDocument:
    """Return a run of *sut* that searched with the recorded *widths*; *planned* are widths without a measurement."""
    kind = declaration("traffic_shape")
    steps, found = [], []
    for width in (*widths, *planned):
        raw = json.loads((FIXTURES / "sutprobe" / f"traffic_shape-{width}.json").read_text(encoding="utf-8"))
        document = read_document(raw)
        step = Step(
            id=f"traffic_shape-{width}",
            kind=kind.kind,
            title=kind.title,
            argv=document.argv,
            cpus=(0, 1),
            nodes=(0,),
            expected_duration_s=7.0,
            longest_duration_s=7.0,
            deadline_s=30.0,
        )
        steps.append(step)
        if width in planned:
            continue
        (parsed,) = kind.parse(document, step, sut)
        found.append(
            Measurement(
                id=parsed.id,
                kind=kind.kind,
                step=step.id,
                title=step.title,
                instrument="sutprobe",
                argv=document.argv,
                parameters=document.parameters,
                started_at=WHEN,
                duration_s=document.duration_s,
                clock=document.clock,
                warnings=document.warnings,
                values=parsed.values,
                missing=parsed.missing,
                validity=validity(parsed.flags),
            )
        )
    run = {each.id: each.values for each in found}
    return RunDocument(
        schema_version=SCHEMA_VERSION,
        run=Run(
            id="20260102T030405Z-0a1b",
            testbed="lab",
            sut="t1",
            profile="nightly",
            started_at=WHEN,
            finished_at=WHEN,
            harness_version="0",
            kernels=None,
            status="complete",
        ),
        attempts=(
            Attempt(
                started_at=WHEN,
                finished_at=WHEN,
                boot_id=None,
                capture="context.tar.gz",
                capture_sha256="ab" * 32,
                checks=(),
                changes=(),
                ended=None,
            ),
        ),
        context=CapturedContext(parsed=sut, capture="context.tar.gz", capture_sha256="ab" * 32),
        facts=facts(sut, None),
        plan=Plan(
            profile="nightly",
            steps=tuple(steps),
            not_planned=(),
            expected_duration_s=14.0,
            longest_duration_s=14.0,
            traffic_shape=None,
        ),
        measurements=tuple(each.model_copy(update={"values": kind.completed(each.values, run)}) for each in found),
        not_measured=(),
        verdicts=(),
    )


def options(step: Step) -> dict[str, str]:
    words = step.argv[2:]
    return dict(zip(words[::2], words[1::2], strict=True))


def shape(step: Step) -> tuple[str, str, str]:
    found = options(step)
    return found["--streams"], found["--prefetch-bytes"], found["--width"]


def test_a_choice_is_kept_with_its_run_and_taken_by_the_next_plan(sut: Context, tmp_path: Path) -> None:
    assert kept_shape(tmp_path, sut) is None
    first = make_plan(sut, load_profile("nightly"))
    assert {step.id for step in first.steps if step.kind == "traffic_shape"}
    assert first.traffic_shape is None

    document = searched(sut)
    path = keep_shape(tmp_path, document)
    assert path == path_of(tmp_path, platform_of(sut))
    assert path.parent == tmp_path / "references" / "traffic_shape"
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    kept = kept_shape(tmp_path, sut)
    assert kept is not None
    assert (kept.run.testbed, kept.run.sut, kept.run.id) == ("lab", "t1", document.run.id)

    later = make_plan(sut, load_profile("nightly"), kept)
    assert not [step for step in later.steps if step.kind == "traffic_shape"]
    (told,) = [each for each in later.not_planned if each.kind == "traffic_shape"]
    assert document.run.id in told.reason
    assert later.traffic_shape == kept
    assert document.run.id in plan_text(later)
    path.unlink()
    assert kept_shape(tmp_path, sut) is None


def test_every_kind_of_traffic_takes_the_shape_that_is_kept_for_it(sut: Context) -> None:
    common, reads = (
        ChosenShape(streams=2, prefetch_bytes=512, width="avx2"),
        ChosenShape(streams=8, prefetch_bytes=0, width="sse2"),
    )
    kept = reference(sut, common, {"reads": reads})
    steps = {step.id: step for step in make_plan(sut, load_profile("nightly"), kept).steps}
    assert shape(steps["peak_injection_bandwidth"]) == ("2", "512", "avx2")
    assert shape(steps["peak_injection_bandwidth-plain"])[:2] == ("1", "0")
    for alone in ("bandwidth_matrix", "loaded_latency", "bandwidth_scaling", "bandwidth_scaling-spread"):
        assert shape(steps[alone]) == ("8", "0", "sse2"), alone
    assert shape(steps["max_bandwidth"]) == ("2,8", "0,512", "avx2")
    before = {step.id: step for step in make_plan(sut, load_profile("nightly")).steps}
    default = (str(DEFAULT_SHAPE.streams), str(DEFAULT_SHAPE.prefetch_bytes), "auto")
    assert shape(before["peak_injection_bandwidth"]) == default


def test_what_a_profile_names_goes_before_what_is_kept(sut: Context) -> None:
    kept = reference(sut, ChosenShape(streams=2, prefetch_bytes=512, width="avx2"), {})
    for kind, settings in (
        ("peak_injection_bandwidth", {"shape": {"streams": 1, "prefetch_bytes": 64}}),
        ("max_bandwidth", {"streams": [1], "prefetch_bytes": [64]}),
        ("bandwidth_scaling", {"shape": {"streams": 1, "prefetch_bytes": 64}}),
    ):
        model = declaration(kind).settings.model_validate(settings, strict=False)
        step = next(each for each in declaration(kind).planned(sut, model, kept) if isinstance(each, Step))
        assert shape(step) == ("1", "64", "auto")
    wide = declaration("peak_injection_bandwidth").settings.model_validate({"width": "sse2"}, strict=False)
    step = next(
        each for each in declaration("peak_injection_bandwidth").planned(sut, wide, kept) if isinstance(each, Step)
    )
    assert shape(step) == ("2", "512", "sse2")


def reference(sut: Context, common: ChosenShape, mixes: dict[str, ChosenShape]) -> ShapeReference:
    run = {"testbed": "lab", "sut": "t1", "id": "20260102T030405Z-0a1b", "started_at": WHEN}
    return ShapeReference.model_validate(
        {
            "schema_version": "traffic_shape/1",
            "platform": platform_of(sut),
            "run": run,
            "all_mixes": common,
            "mixes": mixes,
        }
    )


def test_a_choice_that_is_there_stays(sut: Context, tmp_path: Path) -> None:
    path = keep_shape(tmp_path, searched(sut))
    assert path is not None
    before = path.read_bytes()
    other = searched(sut)
    other = other.model_copy(update={"run": other.run.model_copy(update={"id": "20260102T030405Z-ffff"})})
    assert keep_shape(tmp_path, other) == path
    assert path.read_bytes() == before


def test_a_search_that_did_not_come_out_whole_is_not_kept(sut: Context, tmp_path: Path) -> None:
    def changed(**fields: Any) -> RunDocument:
        document = searched(sut)
        first, *rest = document.measurements
        return document.model_copy(update={"measurements": (first.model_copy(update=fields), *rest)})

    wrong = validity((flag("PLACEMENT_WRONG", "1 of 2 pages"),))
    gone = (Missing(what="reads on 0@0", reason="no_memory"),)
    for document in (
        searched(sut, widths=(), planned=("avx2",)),
        searched(sut, widths=("avx2",), planned=("sse2",)),
        changed(validity=wrong),
        changed(missing=gone),
        searched(sut, widths=()),
    ):
        assert keep_shape(tmp_path, document) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text[:-30], "damaged"),
        (lambda _: "", "damaged"),
        (lambda text: text.replace("traffic_shape/1", "traffic_shape/2"), "schema_version"),
        (lambda text: text.replace('"streams": 4', '"streams": 0'), "streams"),
        (lambda text: text.replace('"guest"', '"guessed"'), "platform"),
        (lambda text: text.replace('"threads_per_core": 2', '"threads_per_core": 1'), "another platform"),
    ],
)
def test_a_damaged_reference_is_an_error_that_names_the_file(
    sut: Context, tmp_path: Path, damage: Any, message: str
) -> None:
    path = path_of(tmp_path, platform_of(sut))
    path.parent.mkdir(parents=True)
    good = reference(sut, ChosenShape(streams=4, prefetch_bytes=0, width="avx2"), {}).model_dump_json(indent=1)
    path.write_text(good, encoding="utf-8")
    assert kept_shape(tmp_path, sut) is not None
    assert damage(good) != good
    path.write_text(damage(good), encoding="utf-8")
    with pytest.raises(InputError, match=message) as found:
        kept_shape(tmp_path, sut)
    assert str(path) in str(found.value)
    assert "remove it" in str(found.value)
    with pytest.raises(InputError, match="remove it"):
        store.begin(
            tmp_path,
            testbed="lab",
            sut="t1",
            run_id="r1",
            profile="quick",
            capture=MACHINE.read_bytes(),
            now=WHEN,
        )
    assert [each.name for each in tmp_path.iterdir()] == ["references"]


def test_a_reference_that_cannot_be_read_or_written_is_an_error(sut: Context, tmp_path: Path) -> None:
    path_of(tmp_path, platform_of(sut)).mkdir(parents=True)
    with pytest.raises(InputError, match="not a regular file; remove it"):
        kept_shape(tmp_path, sut)
    blocked = tmp_path / "blocked"
    blocked.write_text("no directory", encoding="utf-8")
    with pytest.raises(EnvironmentLacksError, match="run's document is whole"):
        keep_shape(blocked, searched(sut))


def test_a_run_relies_on_the_reference_of_its_results_and_says_so(sut: Context, tmp_path: Path) -> None:
    keep_shape(tmp_path, searched(sut))
    begun = store.begin(
        tmp_path, testbed="lab", sut="t1", run_id="r1", profile="quick", capture=MACHINE.read_bytes(), now=WHEN
    )
    assert begun.plan.traffic_shape == kept_shape(tmp_path, sut)
    printed = CliRunner().invoke(plan_command, [str(MACHINE), "--results", str(tmp_path), "--json"])
    assert json.loads(printed.output)["traffic_shape"]["run"]["id"] == "20260102T030405Z-0a1b"


def test_no_testbed_has_the_name_of_the_references(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="another testbed name"):
        store.run_directory(tmp_path, "references", "sut", "run")


def test_the_platform_is_what_decides_the_shape_and_nothing_else(sut: Context) -> None:
    key = platform_of(sut).key
    model = sut.processor.models[0]
    processor = sut.processor.model_copy(update={"models": (model.model_copy(update={"stepping": "99"}),)})
    node = sut.nodes[0].model_copy(update={"memory_bytes": 64 << 30})
    blank = dict.fromkeys(Dimm.model_fields)
    dimm = Dimm.model_validate(
        {**blank, "size_bytes": 32 << 30, "type": "DDR5", "speed_mt_s": 5600, "configured_mt_s": 4800}
    )
    for change in (
        {"processor": processor},
        {"nodes": (node, *sut.nodes[1:])},
        {"cpus": sut.cpus.model_copy(update={"allowed": (0, 1)})},
        {"firmware": sut.firmware.model_copy(update={"dimms": (dimm,)})},
    ):
        assert platform_of(sut.model_copy(update=change)).key != key, change
    renewed = sut.processor.model_copy(update={"models": (model.model_copy(update={"microcode": "0xff"}),)})
    same = {"processor": renewed, "capture": sut.capture.model_copy(update={"hostname": "other"})}
    assert platform_of(sut.model_copy(update=same)).key == key


def test_the_hash_of_the_traffic_sources_follows_them_alone(tmp_path: Path) -> None:
    for name in ("load.c", "generator.c", "arch/streams.h", "arch/x/streams_a.c", "arch/x/widths.c", "latency.c"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name, encoding="utf-8")
    before = traffic_sha256.__wrapped__(tmp_path)
    (tmp_path / "latency.c").write_text("changed", encoding="utf-8")
    assert traffic_sha256.__wrapped__(tmp_path) == before
    (tmp_path / "arch/x/streams_a.c").write_text("changed", encoding="utf-8")
    assert traffic_sha256.__wrapped__(tmp_path) != before
    (tmp_path / "load.c").unlink()
    with pytest.raises(ValueError, match=r"load\.\*"):
        traffic_sha256.__wrapped__(tmp_path)


def look(mix: str, streams: int, prefetch_bytes: int, width: str, mb_s: float) -> Tried:
    setting = Setting(
        threads=2, streams=streams, prefetch_bytes=prefetch_bytes, width=width, delay=0, buffer_bytes=1 << 26
    )
    return Tried(mix=mix, group="0-1@0", setting=setting, bandwidth_mb_s=estimate([[mb_s] * 3], "MB/s"))


def test_the_shape_that_moves_most_of_all_mixes_is_chosen() -> None:
    looks = [
        look("reads", 1, 0, "avx2", 20_000.0),
        look("reads", 4, 2048, "avx2", 30_000.0),
        look("reads", 8, 0, "avx2", 40_000.0),
        look("1:1", 1, 0, "avx2", 20_000.0),
        look("1:1", 4, 2048, "avx2", 40_000.0),
        look("1:1", 8, 0, "avx2", 20_000.0),
        look("reads", 2, 0, "sse2", 99_000.0),
    ]
    assert choose(looks, ("reads", "1:1")) == ChosenShape(streams=4, prefetch_bytes=2048, width="avx2")
    assert choose(looks, ("reads",)) == ChosenShape(streams=2, prefetch_bytes=0, width="sse2")
    assert choose(looks, ("copy",)) is None
    assert choose([], ()) is None


def test_of_shapes_that_are_alike_the_one_nearest_to_the_default_is_chosen() -> None:
    alike = [
        look("reads", 8, 0, "avx512", 40_000.0),
        look("reads", 2, 512, "avx512", 39_900.0),
        look("reads", 2, 512, "avx2", 39_950.0),
        look("reads", DEFAULT_SHAPE.streams, DEFAULT_SHAPE.prefetch_bytes, "avx2", 39_000.0),
    ]
    assert choose(alike, ("reads",)) == ChosenShape(**DEFAULT_SHAPE.model_dump(), width="avx2")
    assert choose(alike[:3], ("reads",)) == ChosenShape(streams=2, prefetch_bytes=512, width="avx512")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("sse2", "avx2", "avx512f"), ("avx512", "avx2")),
        (("sse2",), ("sse2",)),
        (("asimd", "sve"), ("auto", "neon")),
        (("asimd",), ("neon",)),
        ((), ("auto",)),
    ],
)
def test_the_two_widest_vectors_of_the_processor_are_tried(
    sut: Context, flags: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    machine = sut.model_copy(update={"processor": sut.processor.model_copy(update={"flags": flags})})
    assert widths(machine, ShapeSettings()) == expected
    assert widths(machine, ShapeSettings(width="sse2")) == ("sse2",)
