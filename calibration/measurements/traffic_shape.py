# SPDX-License-Identifier: Apache-2.0
"""Access pattern: streams, prefetches, instructions and vector width that move most, searched per platform."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import exp, log
from typing import Annotated, Literal, TypeVar

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from calibration.base import units
from calibration.base.statistics import estimate
from calibration.context.model import Context
from calibration.measurements.bandwidth_ladder import ladder_groups, level_of, level_sizes, shares
from calibration.measurements.base import SEARCH_SUFFIX, Metric, Parsed, Planned, Step, Values
from calibration.measurements.evidence import evidence_flags, require_any
from calibration.measurements.metric_rows import bandwidth
from calibration.measurements.platform import ChosenShape, Hint, Instruction, LevelShape, Threads
from calibration.measurements.sut import Sut
from calibration.measurements.traffic import (
    ANY_MIX,
    DEFAULT_SHAPE,
    PLAIN,
    Mix,
    TrafficDeclaration,
    TrafficSettings,
    all_cores,
    buffer_bytes,
    group_text,
    read_group,
    scan_s,
)
from calibration.measurements.traffic_points import (
    MixBandwidth,
    Tried,
    best_points,
    looks_of,
    missing_points,
    search_results,
    setting_of,
    traffic_flags,
)
from calibration.sutprobe.bandwidth import BandwidthPoint, BandwidthResult
from calibration.sutprobe.document import ProbeDocument, read_result

LOOK_TOLERANCE = 0.03
"""Relative difference below which short looks are equal: three windows of 15 ms in one placement rank no finer. Of
equal ones the nearest to the default is chosen, so that equal machines get equal settings."""

WIDTH_FLAGS = (
    ("avx512", "avx512f"),
    ("avx2", "avx2"),
    ("sse2", "sse2"),
    ("auto", "sve"),
    ("neon", "asimd"),
)
"""sutprobe's vector widths, widest first, and the CPU flag that each needs. SVE's flag does not give the register
length; sutprobe uses SVE if its registers are longer than NEON's."""

WIDTHS = 2
"""Number of the widest widths to try: on some cores the widest lowers the clock and the next is faster; a third never
was."""

CACHE_SUFFIX = "-caches"
"""End of the name of a step that searches in caches."""

CACHE_PLACEMENTS = 3
"""What disturbs one placement leaves the median of three."""

CACHE_WINDOWS, CACHE_WINDOW_S = 3, 0.004
"""Many short windows in caches, which are steady within 4 ms: one of the nine of a setting is hardly disturbed."""

K = TypeVar("K")
C = TypeVar("C")

INSTRUCTIONS: dict[Instruction, tuple[Mix, str]] = {
    "clzero": ("write_nt", "clzero"),
    "movdir64b": ("write_nt", "movdir64b"),
    "rep_stosb": ("write_nt", "erms"),
    "dc_zva": ("write_nt", "asimd"),
    "ldnp": ("reads", "asimd"),
}
"""Instructions beside vectors, with the mix that each is for and the CPU flag that it needs. Those of aarch64 are part
of its baseline, which has the flag of NEON; sutprobe refuses DC ZVA where the kernel or firmware prohibits it."""

PREFETCHW_FLAG = "3dnowprefetch"
"""CPU flag of PREFETCHW on x86_64; processors without it ignore the instruction."""


class ShapeSettings(TrafficSettings):
    """Every combination of *streams* and *prefetch_bytes* with each of the widths, for each of *mixes*.

    Then, with the widest, other *hints*, *visit_lines* and *instructions* than the first: each beside the best found so
    far, not with every combination. By default those instructions that the processor has. *width* ``auto`` tries the
    two widest of the processor. *placements* and *windows* apply to the best of each mix and width, which is measured
    again.

    In the middle of each cache level, *streams* alone are tried, for each of *cache_mixes*.
    """

    placements: PositiveInt = 1
    windows: PositiveInt = 3
    window_s: PositiveFloat = 0.03
    mixes: tuple[Mix, ...] = ("reads", "1:1", "stream_triad", "write_nt")
    streams: tuple[PositiveInt, ...] = (1, 2, 4, 8)
    prefetch_bytes: tuple[NonNegativeInt, ...] = (0, 512, 2048)
    hints: Annotated[tuple[Hint, ...], Field(min_length=1)] = ("t0", "t1", "nta", "w")
    visit_lines: Annotated[tuple[Literal[0, 1, 2, 4], ...], Field(min_length=1)] = (0, 1, 2, 4)
    instructions: tuple[Instruction, ...] | None = None
    cache_mixes: tuple[Mix, ...] = ("reads", "copy")


class CacheLook(Tried):
    """One setting tried in the middle of cache *level*, by one CPU or by all at once."""

    threads: Threads
    level: PositiveInt


class TrafficShapeValues(Values):
    """The search with one vector ``width``, and the best of each mix measured again.

    ``all_mixes`` and ``mixes`` are the choice over all widths of the run: the best shape for the mixes together, and
    for each alone. ``plain`` is one stream without software prefetch in the same search. Looks that differ by less than
    ``alike_fraction`` are equal.

    The search in caches has ``cached`` instead of ``tried``, ``plain`` and ``best``; ``levels`` are the choice from it.
    """

    kind: Literal["traffic_shape"] = "traffic_shape"
    width: Annotated[str, Field(pattern="^[a-z0-9]+$")]
    group: str
    tried: tuple[Tried, ...]
    plain: dict[str, float]
    best: dict[str, MixBandwidth]
    all_mixes: ChosenShape | None
    mixes: dict[str, ChosenShape]
    alike_fraction: float
    cached: tuple[CacheLook, ...] = ()
    levels: tuple[LevelShape, ...] = ()


class TrafficShape(TrafficDeclaration[ShapeSettings, TrafficShapeValues]):
    """All CPUs, no delay, a short look at every shape."""

    title = "Access pattern"
    question = "With which streams, prefetches, instructions and vector width does this platform move most?"
    once = True
    metric_rows = (
        bandwidth(
            f"traffic_shape.{{vector:[a-z0-9]+}}.{{mix:{ANY_MIX}}}.bandwidth_mb_s",
            "the best access pattern with that vector width, by mix",
            "mixed_bandwidth",
        ),
    )

    def steps(self, sut: Sut, settings: ShapeSettings) -> Iterator[Planned]:
        """Yield a search and a measurement per vector width, and a step for caches if their sizes are known.

        Or why no search is needed, if a choice is kept for the platform.
        """
        if sut.traffic_shape is not None:
            yield self.not_planned(f"searched once per platform: {sut.traffic_shape.words}", f"{self.title}, search")
            return
        parts = all_cores(sut)
        size_bytes = buffer_bytes(sut, parts, settings.mixes)
        tries = len(settings.streams) * len(settings.prefetch_bytes)
        for number, width in enumerate(widths(sut.context, settings)):
            extras = extra_options(sut.context, settings) if number == 0 else {}
            looks = [tries + extra_looks(mix, extras) for mix in settings.mixes]
            what = f"{units.plural(tries, 'setting')} x {units.plural(len(settings.mixes), 'mix')}"
            what += "; then others" if extras else ""
            tried: dict[str, object] = {
                "streams": ",".join(map(str, settings.streams)),
                "prefetch-bytes": ",".join(map(str, settings.prefetch_bytes)),
                "delay": 0,
                **extras,
            }
            measured = self.traffic_step(
                f"{width}, {what}",
                [parts],
                settings.mixes,
                size_bytes,
                {**tried, **settings.options(), "width": width},
                cost=settings.cost_s,
                repeated=settings,
                suffix=f"-{width}",
            )
            search = self.traffic_step(
                f"{width}, search of {what}",
                [parts],
                settings.mixes,
                size_bytes,
                {**tried, "keep-best": 1, "width": width},
                cost=partial(scan_s, tries=looks),
                suffix=f"-{width}{SEARCH_SUFFIX}",
            )
            yield from measured.after(search, "--only")
            yield from self._in_caches(sut, settings, width)

    def _in_caches(self, sut: Sut, settings: ShapeSettings, width: str) -> Iterator[Planned]:
        """Yield the step that tries streams at each cache level."""
        groups = [
            (parts, size)
            for parts in ladder_groups(sut).values()
            for size in level_sizes(sut, parts, settings.cache_mixes).values()
        ]
        if not groups or not settings.cache_mixes:
            return
        tries, cells = len(settings.streams), len(groups) * len(settings.cache_mixes)
        cached = TrafficSettings(placements=CACHE_PLACEMENTS, windows=CACHE_WINDOWS, window_s=CACHE_WINDOW_S)
        yield self.traffic_step(
            f"{width} in caches, {units.plural(tries, 'setting')} x {units.plural(cells, 'level and mix')}",
            [parts for parts, _ in groups],
            settings.cache_mixes,
            [size for _, size in groups],
            {
                "streams": ",".join(map(str, settings.streams)),
                "prefetch-bytes": 0,
                "delay": 0,
                **cached.options(),
                "width": width,
            },
            cost=partial(cached.cost_s, repeats=tries),
            repeated=settings,
            suffix=f"-{width}{CACHE_SUFFIX}",
        )

    def parse(self, document: ProbeDocument, step: Step, sut: Sut) -> Iterator[Parsed]:
        """Yield the search with one width."""
        points, looks = read_result(document, BandwidthResult).points, looks_of(document)
        cached: tuple[CacheLook, ...] = ()
        best: dict[str, MixBandwidth] = {}
        tried = search_results(looks)
        group, flags = points[0].group, evidence_flags(document, points)
        if step.id.endswith(CACHE_SUFFIX):
            cached = tuple(cache_looks(sut, points))
            require_any(cached, points, "setting")
            group = " and ".join(dict.fromkeys(group_text(read_group(point.group)) for point in points))
        else:
            fastest, best = best_points(points, step.target_half_width)
            flags = traffic_flags(sut, document, fastest, best)
        yield Parsed(
            values=TrafficShapeValues(
                width=points[0].width,
                group=group,
                tried=tried,
                plain={look.mix: look.bandwidth_mb_s.value for look in tried if look.setting.shape == PLAIN},
                best=best,
                all_mixes=None,
                mixes={},
                alike_fraction=LOOK_TOLERANCE,
                cached=cached,
            ),
            flags=tuple(flags),
            missing=missing_points((*looks, *points)),
        )

    def completed(self, values: TrafficShapeValues, run: Mapping[str, Values]) -> TrafficShapeValues:
        """Return *values* with the choice over all widths of the run."""
        searches = [other for other in run.values() if isinstance(other, TrafficShapeValues)]
        looks = [look for other in searches for look in other.tried]
        mixes = tuple(dict.fromkeys(look.mix for look in looks))
        # What stores past the caches fetches nothing, so it has no look with a prefetch and no say in that.
        fetching = {look.mix for look in looks if look.setting.prefetch_bytes}
        together = tuple(mix for mix in mixes if mix in fetching) or mixes
        return values.model_copy(
            update={
                "all_mixes": choose(looks, together),
                "mixes": {mix: choose(looks, (mix,)) for mix in mixes},
                "levels": tuple(choose_levels([look for other in searches for look in other.cached])),
            }
        )

    def metrics(self, values: TrafficShapeValues) -> Iterator[Metric]:
        """Yield the best of each mix with this width."""
        for name, mix in values.best.items():
            instruction = mix.setting.instruction
            how = "" if instruction == "vector" else f" ({instruction})"
            title = f"Best access pattern of {values.width}, {name}{how}"
            yield self.metric(f"{values.width}.{name}.bandwidth_mb_s", title, mix.bandwidth_mb_s)


def widths(context: Context, settings: ShapeSettings) -> tuple[str, ...]:
    """Return the vector widths to try: by the processor's flags, or ``auto``."""
    if settings.width != "auto":
        return (settings.width,)
    known = tuple(width for width, flag in WIDTH_FLAGS if flag in context.processor.flags)
    return known[:WIDTHS] or ("auto",)


def extra_options(context: Context, settings: ShapeSettings) -> dict[str, object]:
    """Return sutprobe's options for the hints, lines and instructions to try."""
    flags = context.processor.flags
    prefetchw = context.processor.architecture != "x86_64" or PREFETCHW_FLAG in flags
    hints = [hint for hint in settings.hints if hint != "w" or prefetchw]
    there = settings.instructions
    if there is None:
        there = tuple(name for name, (mix, flag) in INSTRUCTIONS.items() if flag in flags and mix in settings.mixes)
    return {
        "hint": ",".join(hints),
        "visit-lines": ",".join(map(str, settings.visit_lines)),
        "instruction": ",".join(dict.fromkeys(("vector", *there))),
    }


def extra_looks(mix: Mix, extras: Mapping[str, object]) -> int:
    """Return about how many looks at *mix* follow from *extras*: one for each value, and half as many on top."""
    if not extras:
        return 0
    hints, lines, instructions = (str(extras[name]).split(",")[1:] for name in ("hint", "visit-lines", "instruction"))
    own = [name for name in instructions if any(name == known and mix == of for known, (of, _) in INSTRUCTIONS.items())]
    return (len(hints) + len(lines) + len(own)) * 3 // 2


def cache_looks(sut: Sut, points: Sequence[BandwidthPoint]) -> Iterator[CacheLook]:
    """Yield what each of *points* tried in a cache, in program bytes; failed settings are left to ``missing``."""
    for point in points:
        level = level_of(tuple(shares(sut, read_group(point.group))), point.buffer_bytes)
        if point.placements and level is not None:
            yield CacheLook(
                mix=point.mix,
                group=point.group,
                setting=setting_of(point),
                bandwidth_mb_s=estimate([one.program_windows_mb_s for one in point.placements], "MB/s"),
                threads="one" if point.threads == 1 else "all",
                level=level,
            )


def choose_levels(looks: Sequence[CacheLook]) -> Iterator[LevelShape]:
    """Yield the best shape at each level for each mix, for one CPU and for all.

    Of equal numbers of streams the default comes first, then fewer. A command has one vector width, so one CPU has the
    first tried of those whose best shapes move most over levels and mixes together, and all CPUs have theirs. What a
    disturbed window lost, another may have: a setting is equal to the best if its fastest window reaches the best
    median.
    """
    for threads in dict.fromkeys(look.threads for look in looks):
        own = [look for look in looks if look.threads == threads]
        cells = tuple(dict.fromkeys((look.level, look.mix) for look in own))
        for width in _equal(own, cells, lambda look: look.setting.width)[:1]:
            for level, mix in cells:
                tried = [look for look in own if look.setting.width == width and look.level == level]
                streams = _equal(tried, ((level, mix),), lambda look: look.setting.streams)
                best = min(streams, key=lambda count: (count != DEFAULT_SHAPE.streams, count))
                shape = ChosenShape(streams=best, prefetch_bytes=0, width=width)
                yield LevelShape(threads=threads, level=level, mix=mix, shape=shape)


def _equal(looks: Sequence[CacheLook], cells: Sequence[tuple[int, str]], key: Callable[[CacheLook], K]) -> list[K]:
    """Return the values of *key* that are equally good at all *cells*, each a level and a mix."""
    medians: dict[K, dict[tuple[int, str], float]] = {}
    fastest: dict[K, dict[tuple[int, str], float]] = {}
    for look in looks:
        for found, mb_s in ((medians, look.bandwidth_mb_s.value), (fastest, look.bandwidth_mb_s.maximum)):
            best = found.setdefault(key(look), {})
            best[look.level, look.mix] = max(best.get((look.level, look.mix), 0.0), mb_s)
    return alike(medians, cells, fastest)


def alike(found: Mapping[K, Mapping[C, float]], wanted: Sequence[C], reach: Mapping[K, Mapping[C, float]]) -> list[K]:
    """Return those of *found*, of those with all *wanted*, whose *reach* is the best less ``LOOK_TOLERANCE`` or more.

    Compared by the geometric mean of their shares of the best of each: all *wanted* have equal weight.
    """
    whole = {name: values for name, values in found.items() if all(values.get(one, 0) > 0 for one in wanted)}
    if not whole or not wanted:
        return []
    most = {one: max(values[one] for values in whole.values()) for one in wanted}

    def score(values: Mapping[C, float]) -> float:
        return exp(sum(log(values[one] / most[one]) for one in wanted) / len(wanted))

    enough = max(map(score, whole.values())) * (1 - LOOK_TOLERANCE)
    return [name for name in whole if score(reach[name]) >= enough]


def choose(looks: Sequence[Tried], mixes: tuple[str, ...]) -> ChosenShape | None:
    """Return the best shape for *mixes* together among *looks*; ``None`` if none was tried with all.

    Among equal ones the default comes first, then what needs no hint, lines or instruction of its own, fewer streams,
    shorter prefetch and the width tried first.
    """
    seen: dict[ChosenShape, dict[str, float]] = {}
    for look in looks:
        shape = ChosenShape(**look.setting.shape.model_dump(), width=look.setting.width)
        seen.setdefault(shape, {})[look.mix] = look.bandwidth_mb_s.value
    order = {width: place for place, width in enumerate(dict.fromkeys(shape.width for shape in seen))}

    def distance(shape: ChosenShape) -> tuple[bool, int, int, int, int]:
        default = shape.text == DEFAULT_SHAPE.text
        return (not default, shape.extras, shape.streams, shape.prefetch_bytes, order[shape.width])

    return min(alike(seen, mixes, seen), key=distance, default=None)
