# SPDX-License-Identifier: Apache-2.0
"""References kept per platform: found once, used by later plans, never ignored or overwritten."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from calibration.base.errors import EnvironmentLacksError, InputError
from calibration.base.statistics import estimate
from calibration.base.validity import flag, validity
from calibration.cli import plan_command
from calibration.context.model import Context, Dimm
from calibration.finish import finish
from calibration.measurements import declaration
from calibration.measurements.bandwidth_ladder import BandwidthLadderValues
from calibration.measurements.base import Step
from calibration.measurements.evidence import Missing
from calibration.measurements.latency_ladder import LatencyLadderValues, last_cache_bytes
from calibration.measurements.plan import Plan
from calibration.measurements.platform import (
    CacheReference,
    ChosenShape,
    LevelShape,
    Setting,
    ShapeReference,
    natural_visit_lines,
    platform_of,
    traffic_sha256,
)
from calibration.measurements.sut import Sut
from calibration.measurements.traffic import DEFAULT_SHAPE
from calibration.measurements.traffic_points import Tried
from calibration.measurements.traffic_shape import (
    CacheLook,
    ShapeSettings,
    TrafficShapeValues,
    choose,
    choose_levels,
    widths,
)
from calibration.profiles import load_profile
from calibration.report.machine import machine
from calibration.report.page import shape_origin
from calibration.results.kept_shapes import keep_references, kept_reference, kept_references, path_of
from calibration.results.layout import run_directory
from calibration.results.model import RunDocument
from calibration.run.plan import make_plan, plan_text
from calibration.sutprobe.document import read_document
from tests.captures import captured
from tests.report.report_documents import page_of, parsed_measurements, run_document
from tests.unit.test_results import begin, end_step, recorded

FIXTURES = Path(__file__).parent.parent / "fixtures"
MACHINE = FIXTURES / "context" / "x86_64-two-nodes-smt.tar.gz"
WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture(scope="module")
def sut() -> Context:
    return captured("x86_64-two-nodes-smt")


def step_of(width: str) -> Step:
    return Step(
        id=f"traffic_shape-{width}", kind="traffic_shape", title="Access pattern", argv=("sutprobe", "bandwidth"),
        cpus=(0, 1), memory_bytes={}, tasks=1, expected_duration_s=7.0, setup_s=0.0, longest_duration_s=7.0,
        deadline_s=30.0,
    )  # fmt: skip


def searched(sut: Context, widths: tuple[str, ...] = ("avx2", "sse2"), planned: tuple[str, ...] = ()) -> RunDocument:
    """Return a run of *sut* that searched with the recorded *widths*; *planned* are widths without a measurement."""
    document = run_document(names=tuple(f"traffic_shape-{width}" for width in widths), testbed="lab", sut="t1")
    assert document.context is not None
    assert document.plan is not None
    plan = document.plan.model_copy(update={"steps": tuple(map(step_of, (*widths, *planned)))})
    context = document.context.model_copy(update={"parsed": sut})
    return document.model_copy(update={"context": context, "plan": plan})


def options(step: Step) -> dict[str, str]:
    words = step.argv[2:]
    return dict(zip(words[::2], words[1::2], strict=True))


def words_of(step: Step, option: str) -> list[str]:
    return [value for name, value in zip(step.argv, step.argv[1:], strict=False) if name == option]


def shape(step: Step) -> tuple[str, str, str]:
    found = options(step)
    return found["--streams"], found["--prefetch-bytes"], found["--width"]


def test_a_kept_shape_is_used_by_the_next_plan(sut: Context, tmp_path: Path) -> None:
    assert kept_reference(tmp_path, ShapeReference, sut) is None
    first = make_plan(sut, load_profile("nightly"))
    assert {step.id for step in first.steps if step.kind == "traffic_shape"}
    assert first.traffic_shape is None

    document = searched(sut)
    (path,) = keep_references(tmp_path, document)
    assert path == path_of(tmp_path, ShapeReference, platform_of(sut))
    assert path.parent == tmp_path / "references" / "traffic_shape"
    assert [item.name for item in path.parent.iterdir()] == [path.name]
    kept = kept_reference(tmp_path, ShapeReference, sut)
    assert kept is not None
    assert (kept.run.testbed, kept.run.sut, kept.run.id) == ("lab", "t1", document.run.id)

    later = make_plan(sut, load_profile("nightly"), kept)
    assert not [step for step in later.steps if step.kind == "traffic_shape"]
    (skipped,) = [omitted for omitted in later.not_planned if omitted.kind == "traffic_shape"]
    assert document.run.id in skipped.reason
    assert later.traffic_shape == kept
    assert document.run.id in plan_text(later)
    path.unlink()
    assert kept_reference(tmp_path, ShapeReference, sut) is None


def test_each_kind_uses_the_shape_of_its_mix(sut: Context) -> None:
    common, reads = (
        ChosenShape(streams=2, prefetch_bytes=512, width="avx2"),
        ChosenShape(streams=8, prefetch_bytes=0, width="sse2"),
    )
    kept = reference(sut, common, {"reads": reads})
    steps = {step.id: step for step in make_plan(sut, load_profile("nightly"), kept).steps}
    assert shape(steps["peak_injection_bandwidth"]) == ("2", "512", "avx2")
    assert shape(steps["peak_injection_bandwidth-plain"])[:2] == ("1", "0")
    for alone in ("bandwidth_matrix", "loaded_latency", "bandwidth_scaling"):
        assert shape(steps[alone]) == ("8", "0", "sse2"), alone
    peak = words_of(steps["peak_injection_bandwidth"], "--shape")
    assert peak == ["reads=8/0/t0/0/vector"], "a mix without a shape of its own has the one for all"
    tried = words_of(steps["max_bandwidth"], "--shape")
    assert [row for row in tried if row.startswith("reads=")] == [
        f"reads={text}" for text in ("8/0/t0/0/vector", "2/512/t0/0/vector", DEFAULT_SHAPE.text)
    ]
    assert options(steps["max_bandwidth"])["--width"] == "avx2"
    before = {step.id: step for step in make_plan(sut, load_profile("nightly")).steps}
    default = (str(DEFAULT_SHAPE.streams), str(DEFAULT_SHAPE.prefetch_bytes), "auto")
    assert shape(before["peak_injection_bandwidth"]) == default


def test_profile_settings_override_the_kept_shape(sut: Context) -> None:
    kept = reference(sut, ChosenShape(streams=2, prefetch_bytes=512, width="avx2"), {})
    for kind, settings in (
        ("peak_injection_bandwidth", {"shape": {"streams": 1, "prefetch_bytes": 64}}),
        ("max_bandwidth", {"streams": [1], "prefetch_bytes": [64]}),
        ("bandwidth_scaling", {"shape": {"streams": 1, "prefetch_bytes": 64}}),
    ):
        model = declaration(kind).settings.model_validate(settings, strict=False)
        step = next(item for item in declaration(kind).steps(Sut(sut, kept), model) if isinstance(item, Step))
        assert shape(step) == ("1", "64", "auto")
    wide = declaration("peak_injection_bandwidth").settings.model_validate({"width": "sse2"}, strict=False)
    step = next(
        item for item in declaration("peak_injection_bandwidth").steps(Sut(sut, kept), wide) if isinstance(item, Step)
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


def test_a_reference_is_never_overwritten(sut: Context, tmp_path: Path) -> None:
    (path,) = keep_references(tmp_path, searched(sut))
    before = path.read_bytes()
    other = searched(sut)
    other = other.model_copy(update={"run": other.run.model_copy(update={"id": "20260102T030405Z-ffff"})})
    assert keep_references(tmp_path, other) == [path]
    assert path.read_bytes() == before


def test_an_incomplete_search_is_not_kept(sut: Context, tmp_path: Path) -> None:
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
        assert keep_references(tmp_path, document) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("damage", "message"), [
    (lambda text: text[:-30], "damaged"),
    (lambda _: "", "damaged"),
    (lambda text: text.replace("traffic_shape/1", "traffic_shape/2"), "schema_version"),
    (lambda text: text.replace('"streams": 4', '"streams": 0'), "streams"),
    (lambda text: text.replace('"guest"', '"guessed"'), "platform"),
    (lambda text: text.replace('"threads_per_core": 2', '"threads_per_core": 1'), "another platform"),
])  # fmt: skip
def test_a_damaged_reference_is_reported(sut: Context, tmp_path: Path, damage: Any, message: str) -> None:
    path = path_of(tmp_path, ShapeReference, platform_of(sut))
    path.parent.mkdir(parents=True)
    good = reference(sut, ChosenShape(streams=4, prefetch_bytes=0, width="avx2"), {}).model_dump_json(indent=1)
    path.write_text(good, encoding="utf-8")
    assert kept_reference(tmp_path, ShapeReference, sut) is not None
    assert damage(good) != good
    path.write_text(damage(good), encoding="utf-8")
    with pytest.raises(InputError, match=message) as found:
        kept_reference(tmp_path, ShapeReference, sut)
    assert str(path) in str(found.value)
    assert "remove it" in str(found.value)
    with pytest.raises(InputError, match="remove it"):
        begin(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["references"]


def test_unreadable_and_unwritable_references_are_reported(sut: Context, tmp_path: Path) -> None:
    path_of(tmp_path, ShapeReference, platform_of(sut)).mkdir(parents=True)
    with pytest.raises(InputError, match="not a regular file; remove it"):
        kept_reference(tmp_path, ShapeReference, sut)
    blocked = tmp_path / "blocked"
    blocked.write_text("no directory", encoding="utf-8")
    with pytest.raises(EnvironmentLacksError, match="run document is complete"):
        keep_references(blocked, searched(sut))


def test_a_plan_records_its_reference(sut: Context, tmp_path: Path) -> None:
    keep_references(tmp_path, searched(sut))
    begun = begin(tmp_path)
    assert begun.plan.traffic_shape == kept_reference(tmp_path, ShapeReference, sut)
    printed = CliRunner().invoke(plan_command, [str(MACHINE), "--results", str(tmp_path), "--json"])
    assert json.loads(printed.output)["traffic_shape"]["run"]["id"] == "20260102T030405Z-0a1b"
    named = CliRunner().invoke(plan_command, ["example-lab/t3-sut2", "--results", str(tmp_path), "--json"])
    assert str(named.exception).startswith("unknown SUT 'example-lab/t3-sut2'")


def test_a_testbed_cannot_be_called_references(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a testbed cannot be called"):
        run_directory(tmp_path, "references", "sut", "run")


def test_platform_key_depends_on_relevant_facts_only(sut: Context) -> None:
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


def test_traffic_hash_covers_only_its_sources(tmp_path: Path) -> None:
    sources = ("load.c", "generator.c", "arch/streams.h", "arch/x/streams_a.c", "arch/x/widths.c", "arch/x/lines.c")
    for name in (*sources, "latency.c"):
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
        threads=2, streams=streams, prefetch_bytes=prefetch_bytes, hint="t0" if prefetch_bytes else "none",
        visit_lines=natural_visit_lines(streams), instruction="vector", width=width, delay=0, buffer_bytes=1 << 26,
    )  # fmt: skip
    return Tried(mix=mix, group="0-1@0", setting=setting, bandwidth_mb_s=estimate([[mb_s] * 3], "MB/s"))


def test_a_planted_hint_or_instruction_is_chosen_for_its_mix_alone() -> None:
    def other(mix: str, mb_s: float, **changes: object) -> Tried:
        plain = look(mix, 4, 0, "avx2", mb_s)
        return plain.model_copy(update={"setting": plain.setting.model_copy(update=changes)})

    base = [look(mix, 4, prefetch, "avx2", 10_000.0) for mix in ("reads", "1:1") for prefetch in (0, 512)]
    base += [look("write_nt", 4, 0, "avx2", 10_000.0)]
    zeros = other("write_nt", 20_000.0, instruction="clzero", visit_lines=1)
    hinted = other("reads", 12_000.0, prefetch_bytes=512, hint="nta", visit_lines=1)
    looks = [*base, zeros, hinted]
    assert choose(looks, ("reads", "1:1")) == ChosenShape(streams=4, prefetch_bytes=0, width="avx2")
    own = choose(looks, ("write_nt",))
    assert own is not None
    assert (own.text, own.extras) == ("4/0/t0/0/clzero", 1)
    found = choose(looks, ("reads",))
    assert found is not None
    assert found.text == "4/512/nta/0/vector"
    alike = [*base, other("reads", 10_200.0, prefetch_bytes=512, hint="nta", visit_lines=1)]
    assert choose(alike, ("reads",)) == ChosenShape(streams=4, prefetch_bytes=0, width="avx2")
    faster = [look(mix, 4, 512, "avx2", 12_000.0) for mix in ("reads", "1:1")]
    searched_values = declaration("traffic_shape").values.model_construct(tried=(*looks, *faster))
    done = declaration("traffic_shape").completed(searched_values, {"traffic_shape-avx2": searched_values})
    prefetching = ChosenShape(streams=4, prefetch_bytes=512, hint="t0", width="avx2")
    assert done.all_mixes == prefetching, "write_nt has no say in prefetches"


def test_the_fastest_shape_over_all_mixes_is_chosen() -> None:
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


def test_of_equal_shapes_the_nearest_to_the_default_is_chosen() -> None:
    alike = [
        look("reads", 8, 0, "avx512", 40_000.0),
        look("reads", 2, 512, "avx512", 39_900.0),
        look("reads", 2, 512, "avx2", 39_950.0),
        look("reads", DEFAULT_SHAPE.streams, DEFAULT_SHAPE.prefetch_bytes, "avx2", 39_000.0),
    ]
    assert choose(alike, ("reads",)) == ChosenShape(**DEFAULT_SHAPE.model_dump(), width="avx2")
    assert choose(alike[:3], ("reads",)) == ChosenShape(streams=2, prefetch_bytes=512, width="avx512")


def cache_look(threads: str, level: int, streams: int, mb_s: float, *, mix: str = "reads", width: str = "avx2") -> Any:
    fields = look(mix, streams, 0, width, mb_s).model_dump()
    return CacheLook.model_validate({**fields, "threads": threads, "level": level})


def chosen_streams(looks: Sequence[CacheLook]) -> dict[tuple[str, int, str], int]:
    return {(found.threads, found.level, found.mix): found.shape.streams for found in choose_levels(looks)}


@pytest.mark.parametrize(("mb_s", "streams"), [
    ({1: 253e3, 2: 263e3, 4: 207e3}, 2),
    ({1: 256e3, 2: 258e3, 4: 207e3, 8: 259e3}, 1),
    ({1: 100e3, 2: 101e3, 4: 99e3, 8: 102e3}, 4),
    ({1: 60e3, 2: 70e3, 4: 80e3, 8: 100e3}, 8),
    ({1: 60e3, 2: 70e3}, 2),
], ids=["best", "fewest of equal ones", "default of equal ones", "most", "one that failed"])  # fmt: skip
def test_the_best_streams_of_a_level_are_chosen(mb_s: dict[int, float], streams: int) -> None:
    looks = [cache_look("one", 2, count, value) for count, value in mb_s.items()]
    assert chosen_streams(looks) == {("one", 2, "reads"): streams}
    assert chosen_streams(looks[::-1]) == {("one", 2, "reads"): streams}, "whatever was tried first"


def test_a_disturbed_search_keeps_the_default() -> None:
    def looks(default: list[float], other: list[float]) -> list[CacheLook]:
        windows = {4: default, 2: other}
        return [
            cache_look("one", 2, streams, 1.0).model_copy(
                update={"bandwidth_mb_s": estimate([[mb_s] for mb_s in found], "MB/s")}
            )
            for streams, found in windows.items()
        ]

    assert chosen_streams(looks([207e3, 203e3, 210e3], [258e3, 90e3, 263e3])) == {("one", 2, "reads"): 2}
    assert chosen_streams(looks([2e3, 40e3, 250e3], [258e3, 90e3, 257e3])) == {("one", 2, "reads"): 4}


def test_levels_mixes_and_numbers_of_threads_choose_apart() -> None:
    best = {("one", 1, "reads"): 4, ("one", 2, "reads"): 1, ("one", 2, "copy"): 2, ("all", 2, "reads"): 8}
    looks = [
        cache_look(threads, level, streams, 2e5 if streams == most else 1e5, mix=mix)
        for (threads, level, mix), most in best.items()
        for streams in (1, 2, 4, 8)
    ]
    assert chosen_streams(looks) == best
    assert list(choose_levels([])) == []


@pytest.mark.parametrize(
    ("third", "width"),
    [(100e3, "avx512"), (300e3, "avx2"), (None, "avx512")],
    ids=["equal", "narrower", "not measured"],
)
def test_all_levels_of_a_command_have_one_width(third: float | None, width: str) -> None:
    looks = [cache_look("one", level, 4, 100e3, width=wide) for wide in ("avx512", "avx2") for level in (1, 2)]
    looks.append(cache_look("one", 3, 4, 100e3, width="avx512"))
    looks += [] if third is None else [cache_look("one", 3, 4, third, width="avx2")]
    assert {found.shape.width for found in choose_levels(looks)} == {width}


def cached_search(sut: Context, change: Callable[[Any], None] = lambda _: None) -> RunDocument:
    """Return a run of *sut* that searched memory and, with a *change* of what it printed, caches."""
    name = "traffic_shape-avx2-caches"
    raw = recorded(name)
    change(raw["result"]["points"])
    (caches,) = parsed_measurements(name, read_document(raw), sut)
    document = searched(sut, widths=("avx2",))
    assert document.plan is not None
    run = {found.id: found.values for found in (*document.measurements, caches)}
    measurements = tuple(
        found.model_copy(update={"values": declaration("traffic_shape").completed(found.values, run)})
        for found in (*document.measurements, caches)
    )
    plan = document.plan.model_copy(update={"steps": (step_of("avx2"), step_of("avx2-caches"))})
    return document.model_copy(update={"plan": plan, "measurements": measurements})


def plant(points: list[Any]) -> None:
    """Make one stream twice as fast in the second level as any other."""
    for point in points:
        for placement in point["placements"]:
            fast = point["buffer_bytes"] in (2 << 20, 1 << 20) and point["streams"] == 1
            placement["program_windows_mb_s"] = placement["windows_mb_s"] = [20e3 if fast else 10e3]


def test_a_search_in_caches_is_kept_and_used_by_the_next_ladder(sut: Context, tmp_path: Path) -> None:
    (path,) = keep_references(tmp_path, cached_search(sut, plant))
    kept = kept_reference(tmp_path, ShapeReference, sut)
    assert kept is not None
    found = {(level.threads, level.level): level.shape.streams for level in kept.levels}
    assert found == {(who, level): 1 if level == 2 else 4 for who in ("one", "all") for level in (1, 2, 3)}
    assert json.loads(path.read_text(encoding="utf-8"))["levels"][1]["shape"]["streams"] == 1
    for profile in ("quick", "nightly"):
        before = {step.id: step for step in make_plan(sut, load_profile(profile)).steps}
        steps = {step.id: step for step in make_plan(sut, load_profile(profile), kept).steps}
        for name in ("bandwidth_ladder", "bandwidth_ladder-all"):
            given = options(steps[name])
            assert (given["--streams"], given["--width"]) == ("1,4", "avx2")
            sizes = given["--buffer-bytes"].split(",")
            streams = [number % 2 * 3 + 1 for number in map(int, given["--only"].split(","))]
            share = {"bandwidth_ladder": 4 << 20, "bandwidth_ladder-all": 2 << 20}[name]
            assert streams == [1 if 32 << 10 < int(size) <= share else 4 for size in sizes]
            assert [number // 2 for number in map(int, given["--only"].split(","))] == list(range(len(sizes)))
            assert shape(before[name]) == ("4", "0", "auto")
            assert "--only" not in before[name].argv
            assert steps[name].expected_duration_s == before[name].expected_duration_s


def test_quick_plans_search_no_caches(sut: Context) -> None:
    assert not [step for step in make_plan(sut, load_profile("quick")).steps if step.kind == "traffic_shape"]
    found = [step for step in make_plan(sut, load_profile("nightly")).steps if step.id.endswith("-caches")]
    assert [step.id for step in found] == ["traffic_shape-avx2-caches", "traffic_shape-sse2-caches"]
    assert sum(step.expected_duration_s for step in found) < 15


def test_a_search_in_caches_that_misses_a_setting_is_not_kept(sut: Context, tmp_path: Path) -> None:
    def fail(points: list[Any]) -> None:
        plant(points)
        points[0].update(placements=None, error={"code": "no_memory", "message": "none left"})

    document = cached_search(sut, fail)
    assert [found.missing[0].reason for found in document.measurements if found.missing] == ["no_memory: none left"]
    values = document.measurements[-1].values
    assert isinstance(values, TrafficShapeValues)
    assert values.levels, "the rest is shown"
    assert keep_references(tmp_path, document) == []


def test_a_ladder_without_a_choice_or_with_its_own_shape_uses_one(sut: Context) -> None:
    kept = reference(sut, ChosenShape(streams=8, prefetch_bytes=512, width="sse2"), {})
    ladder = declaration("bandwidth_ladder")
    one = ChosenShape(streams=1, prefetch_bytes=0, width="sse2")
    some = kept.model_copy(update={"levels": (LevelShape(threads="one", level=2, mix="reads", shape=one),)})
    for given, reference_, expected in (
        ({}, None, ("4", "0", "auto")),
        ({}, kept, ("4", "0", "auto")),
        ({"shape": {"streams": 2, "prefetch_bytes": 64}}, some, ("2", "64", "auto")),
        ({"mixes": ["reads"]}, some, ("1,4", "0", "sse2")),
        ({"mixes": ["reads"], "width": "avx2"}, some, ("1,4", "0", "avx2")),
        ({"mixes": ["write"]}, some, ("4", "0", "sse2")),
    ):
        settings = ladder.settings.model_validate(given, strict=False)
        step = next(item for item in ladder.steps(Sut(sut, reference_), settings) if isinstance(item, Step))
        assert shape(step) == expected


def test_a_level_is_quoted_with_its_streams_and_the_page_names_where_they_are_from(sut: Context) -> None:
    raw = recorded("bandwidth_ladder")
    at_half = {"reads": 1, "write": 4, "copy": 2}
    for point in raw["result"]["points"]:
        if point["buffer_bytes"] == 2 << 20:
            point["streams"] = at_half[point["mix"]]
    raw["parameters"].update(streams=[1, 2, 4], width="avx2")
    (ladder,) = parsed_measurements("bandwidth_ladder", read_document(raw), sut)
    assert isinstance(ladder.values, BandwidthLadderValues)
    quoted = {metric.name: metric.value for metric in declaration("bandwidth_ladder").metrics(ladder.values)}
    for mix, streams in at_half.items():
        (point,) = [item for item in ladder.values.points if (item.mix, "L2/2" in item.names) == (mix, True)]
        assert point.setting.streams == streams
        assert quoted[f"bandwidth_ladder.one_CPU.{mix}.L2.program_mb_s"] == point.program_mb_s.value

    plain = reference(sut, ChosenShape(streams=8, prefetch_bytes=512, width="avx2"), {})
    levels = tuple(
        LevelShape(threads="one", level=2, mix=mix, shape=ChosenShape(streams=streams, prefetch_bytes=0, width="avx2"))
        for mix, streams in at_half.items()
    )
    kept = plain.model_copy(update={"levels": levels})
    default = ladder.model_copy(update={"parameters": {**ladder.parameters, "streams": [4]}})
    assert [shape_origin(kept, ladder), shape_origin(plain, ladder)] == ["kept", "profile"]
    assert [shape_origin(plain, default), shape_origin(None, default)] == ["default", "default"]
    document = run_document()
    assert document.plan is not None
    plan = document.plan.model_copy(update={"traffic_shape": kept})
    page = page_of(document.model_copy(update={"plan": plan, "measurements": (ladder,)})).text
    told = " ".join(page.split())
    assert f"(Streams found best in each cache on this platform by run {kept.run.id} of lab/t1, started" in told
    assert "reads, 2 MiB, 1 stream " in told


@pytest.mark.parametrize(("flags", "expected"), [
    (("sse2", "avx2", "avx512f"), ("avx512", "avx2")),
    (("sse2",), ("sse2",)),
    (("asimd", "sve"), ("auto", "neon")),
    (("asimd",), ("neon",)),
    ((), ("auto",)),
])  # fmt: skip
def test_the_two_widest_vectors_are_tried(sut: Context, flags: tuple[str, ...], expected: tuple[str, ...]) -> None:
    machine = sut.model_copy(update={"processor": sut.processor.model_copy(update={"flags": flags})})
    assert widths(machine, ShapeSettings()) == expected
    assert widths(machine, ShapeSettings(width="sse2")) == ("sse2",)


@pytest.fixture(scope="module")
def guest(sut: Context) -> Context:
    """The machine that the ladder was recorded on reports 32 MiB, of which its neighbours left it a tenth."""
    sizes = {1: 32 << 10, 2: 512 << 10, 3: 32 << 20}
    caches = tuple(
        sut.caches[0].model_copy(update={"level": level, "type": "Unified", "size_bytes": size})
        for level, size in sizes.items()
    )
    return sut.model_copy(update={"caches": caches})


def laddered(guest: Context, **fields: Any) -> RunDocument:
    """Return a run of *guest* with the recorded ladder as its one measurement, with *fields* of it replaced."""
    (ladder,) = parsed_measurements("latency_ladder", read_document(recorded("latency_ladder")), guest)
    return searched(guest).model_copy(update={"measurements": (ladder.model_copy(update={"missing": (), **fields}),)})


def of_size(guest: Context, found_bytes: int) -> CacheReference:
    return CacheReference(
        schema_version="last_level_cache/1",
        platform=platform_of(guest),
        run=reference(guest, ChosenShape(streams=4, prefetch_bytes=0, width="avx2"), {}).run,
        found_bytes=found_bytes,
        reported_bytes=Sut(guest).reported_llc_bytes,
    )


def chain_mib(plan: Plan, step_id: str) -> int:
    step = next(step for step in plan.steps if step.id == step_id)
    return max(int(size) for size in options(step)["--size-bytes"].split(",")) >> 20


def test_a_kept_last_level_cache_sizes_the_next_plan(guest: Context, tmp_path: Path) -> None:
    (path,) = keep_references(tmp_path, laddered(guest))
    assert path == path_of(tmp_path, CacheReference, platform_of(guest))
    assert path.parent == tmp_path / "references" / "last_level_cache"
    _, kept = kept_references(tmp_path, guest)
    assert kept is not None
    assert 2 << 20 < kept.found_bytes < 8 << 20
    assert (kept.reported_bytes, kept.run.id) == (32 << 20, "20260102T030405Z-0a1b")

    before = make_plan(guest, load_profile("quick"))
    later = make_plan(guest, load_profile("quick"), *kept_references(tmp_path, guest))
    assert (before.last_level_cache, later.last_level_cache) == (None, kept)
    assert (chain_mib(before, "idle_latency"), chain_mib(later, "idle_latency")) == (128, 64)
    ladder = "latency_ladder"
    assert chain_mib(before, ladder) == chain_mib(later, ladder) == 128, "the ladder looks beyond what is reported"
    assert later.expected_duration_s < before.expected_duration_s
    assert "Last-level cache" not in plan_text(before)
    told = "showed (32 MiB reported); buffers are sized for 16 MiB"
    assert "MiB as the latency ladder of run 20260102T030405Z-0a1b of lab/t1 " + told in " ".join(
        plan_text(later).split()
    )


def test_threads_share_the_found_cache(guest: Context) -> None:
    def buffer(kept: CacheReference | None) -> int:
        plan = make_plan(guest, load_profile("nightly"), None, kept)
        return int(options(next(step for step in plan.steps if step.id == "bandwidth_matrix"))["--buffer-bytes"])

    assert buffer(of_size(guest, 20 << 20)) * 32 == buffer(None) * 20


def test_at_least_half_of_the_reported_cache_is_assumed(guest: Context) -> None:
    found = {size: Sut(guest, None, of_size(guest, size << 20)).llc_bytes for size in (1, 20, 40)}
    assert found == {1: 16 << 20, 20: 20 << 20, 40: 40 << 20}
    assert "sized for" not in of_size(guest, 20 << 20).words
    silent = guest.model_copy(update={"caches": guest.caches[:1]})
    assert Sut(silent).llc_bytes is None
    assert Sut(silent, None, of_size(silent, 9 << 20)).llc_bytes == 9 << 20


def test_buffers_are_judged_by_the_cache_of_the_plan(sut: Context, tmp_path: Path) -> None:
    def flags(results: Path) -> list[str]:
        begun = begin(results)
        end_step(begun, "idle_latency")
        # what is kept later changes nothing: the plan says what it relied on
        path_of(results, CacheReference, platform_of(sut)).unlink(missing_ok=True)
        document = finish(begun.directory, now=WHEN)
        (found,) = document.measurements
        return [item.reason for item in found.validity.flags if item.code == "BUFFER_TOO_SMALL"]

    assert flags(tmp_path / "reported") == []
    path = path_of(tmp_path / "found", CacheReference, platform_of(sut))
    path.parent.mkdir(parents=True)
    path.write_text(of_size(sut, 40 << 20).model_dump_json(), encoding="utf-8")
    (reason,) = flags(tmp_path / "found")
    assert "128 MiB against a last-level cache of 40 MiB" in reason


def test_an_unclear_last_level_cache_is_not_kept(guest: Context, tmp_path: Path) -> None:
    values = laddered(guest).measurements[0].values
    assert isinstance(values, LatencyLadderValues)
    level = {level.name: level for level in values.levels}
    assert last_cache_bytes(values) == level["L3"].size_bytes

    slow = level["L3"].model_copy(update={"latency_ns": estimate([[level["memory"].latency_ns.value / 1.4]] * 6, "ns")})
    unclear = {
        "no memory": tuple(values.levels[:-1]),
        "memory alone": (level["memory"],),
        "no plateau of the last cache": (level["L1"], level["L2"], level["memory"]),
        "memory hardly slower": (level["L1"], level["L2"], slow, level["memory"]),
        "nothing": (),
    }
    for why, levels in unclear.items():
        shown = values.model_copy(update={"levels": levels})
        assert last_cache_bytes(shown) is None, why
        assert keep_references(tmp_path, laddered(guest, values=shown)) == [], why
    first = values.model_copy(update={"comparisons": values.comparisons[:1], "levels": (level["L1"], level["memory"])})
    assert last_cache_bytes(first) is None, "a first level alone is nobody's last"
    wrong = validity((flag("PLACEMENT_WRONG", "1 of 2 pages"),))
    assert keep_references(tmp_path, laddered(guest, validity=wrong)) == []
    gone = (Missing(what="1024 bytes", reason="no_memory"),)
    assert keep_references(tmp_path, laddered(guest, missing=gone)) == []
    assert list(tmp_path.iterdir()) == []


def test_page_shows_the_last_level_cache_of_the_plan(guest: Context) -> None:
    document = laddered(guest)
    assert document.plan is not None
    kept = of_size(guest, 6 << 20)
    shown = {
        fact.name: fact.value for fact in machine(guest, document.plan.model_copy(update={"last_level_cache": kept}))
    }
    assert shown["Last-level cache"] == kept.words
    assert "Last-level cache" not in {fact.name for fact in machine(guest, document.plan)}
