# SPDX-License-Identifier: Apache-2.0
"""Figures with known answers: what was executed, counted by instruction, over the time of a virtual clock."""

import platform
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.probe.binary import Instruction
from tests.probe.conftest import Probe
from tests.probe.test_instructions import READS, WRITES
from tests.probe.virtual_clock import READ_COST, TICKS_PER_NS, VirtualRun
from tests.tools import require_two

HZ = TICKS_PER_NS * 1e9
CHUNK = 500_000 * TICKS_PER_NS
"""Ticks of half a millisecond, between the bounds on a chunk of a load: all chunks have the same number of steps."""

WINDOW_S = 0.0203
"""No whole number of chunks: what was done at its ends is interpolated."""

WRITE_ALLOCATED = {"WRITE": 1, "COPY": 1, "TRIAD": 1}
"""Lines read by memory because a regular store to them missed, in each step."""

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="this machine has no time-stamp counter to trap")


@pytest.fixture(scope="module")
def widths(probe: Probe) -> list[str]:
    return list(probe("info").document["result"]["widths"])


def exactly(expected: Any) -> Any:
    return pytest.approx(expected, rel=1e-6)


def constant(ticks: int) -> Callable[[int], int]:
    return lambda _: ticks


def growing(ticks: int, by: int = 2) -> Callable[[int], int]:
    return lambda read: ticks + by * read


def durations(run: VirtualRun) -> set[int]:
    """Return the ticks between successive reads of all measuring threads."""
    return {after - before for reads in run.reads() for before, after in pairwise(reads)}


def chained_loads(run: VirtualRun) -> int:
    """Return how many counted loads took their address from the load before."""

    def chained(instruction: Instruction) -> bool:
        return instruction.access.read_bytes == 8 and instruction.operands.split(",")[0] in instruction.access.registers

    return sum(count for item, count in run.executed(1) if chained(item))


def additions(run: VirtualRun) -> int:
    """Return how many counted additions were of one register to another."""
    return sum(
        count for instruction, count in run.executed() if instruction.mnemonic == "add" and "," in instruction.operands
    )


def test_the_counter_is_calibrated_and_the_cost_of_a_read_known(native: Path) -> None:
    clock = VirtualRun(str(native), "info", steps=constant(CHUNK)).document()["clock"]
    assert clock["hz"] == exactly(HZ)
    assert clock["read_cost_ns"] == exactly(READ_COST / TICKS_PER_NS)
    assert 0 < clock["hz_uncertainty_ppm"] < 10


def test_a_short_command_ends_when_its_clock_is_known_and_a_long_one_knows_it_better(
    native: Path, cpus: list[int]
) -> None:
    load = ("bandwidth", "--group", f"{cpus[0]}@0", "--mix", "reads", "--buffer-bytes", "8192", "--pages", "base",
            "--placements", "1", "--windows", "1", "--window-s", "1")  # fmt: skip
    short, long = (
        VirtualRun(str(native), *words, steps=constant(50 * CHUNK)).document() for words in (("info",), load)
    )
    assert 0.01 <= short["duration_s"] < 0.015, "of virtual time, in which work takes none"
    assert long["duration_s"] > 1
    assert long["clock"]["hz_uncertainty_ppm"] < short["clock"]["hz_uncertainty_ppm"] / 40


HOPS, WINDOWS = 640, 7
LATENCY = ("--size-bytes", "8388608", "--pages", "base", "--placements", "1", "--windows", str(WINDOWS), "--hops",
           str(HOPS))  # fmt: skip


def test_a_latency_is_the_time_of_a_window_over_its_loads(native: Path, cpus: list[int]) -> None:
    command = (str(native), "latency", "--at", f"{cpus[0]}@0", *LATENCY)
    before = VirtualRun(*command, steps=growing(90_000))
    begin, _ = before.places_of(WINDOWS)
    run = VirtualRun(*command, steps=growing(90_000), count=(begin, 1))
    (point,) = run.document()["result"]["points"]
    (placement,) = point["placements"]
    loads = chained_loads(run)
    assert loads == point["hops_per_window"]
    ticks = [ns * loads * TICKS_PER_NS for ns in placement["windows_ns"]]
    assert ticks == exactly([ticks[0] + 4 * window for window in range(WINDOWS)]), "two reads in each window"
    assert min(abs(ticks[0] - duration) for duration in durations(run)) < 0.01
    assert placement["dirty_windows"] == list(range(WINDOWS)), "each was interrupted to read the clock"


CHAINS = (1, 3, 12, 32)


def test_a_latency_of_several_chains_is_the_time_of_a_window_over_all_their_loads(
    native: Path, cpus: list[int]
) -> None:
    hops = 960
    command = (
        str(native), "latency", "--at", f"{cpus[0]}@0", "--size-bytes", "8388608", "--pages", "base", "--placements",
        "1", "--windows", str(WINDOWS), "--hops", str(hops), "--chains",
    )  # fmt: skip
    for chains in CHAINS:
        before = VirtualRun(*command, str(chains), steps=constant(90_000))
        begin, _ = before.places_of(WINDOWS)
        run = VirtualRun(*command, str(chains), steps=constant(90_000), count=(begin, 1))
        (point,) = run.document()["result"]["points"]
        (placement,) = point["placements"]
        loads = sum(
            count
            for item, count in run.executed(1)
            if item.access.read_bytes == 8 and len(item.access.registers) == 2 and count >= hops // chains // 8
        )
        assert loads == point["hops_per_window"] == hops
        assert placement["windows_ns"] == exactly([90_000 / TICKS_PER_NS / hops] * WINDOWS)


def test_the_overhead_of_a_chase_is_the_shortest_of_its_trials(native: Path, cpus: list[int]) -> None:
    """With times that grow the shortest trial is the first, with times that shrink the last of three."""
    hops, found = 64_000, []
    for by in (2, -2):
        run = VirtualRun(str(native), "latency", "--at", f"{cpus[0]}@0", *LATENCY, steps=growing(90_000, by))
        (point,) = run.document()["result"]["points"]
        ticks = point["loop_overhead_ns"] * hops * TICKS_PER_NS
        found.append((ticks - 90_000) / by)
    first, last = found
    assert last - first == pytest.approx(4, abs=0.01), "two reads in each trial"


def test_core_clocks_are_the_additions_of_a_chain(native: Path, cpus: list[int]) -> None:
    command = (str(native), "latency", "--at", f"{cpus[0]}@0", *LATENCY)
    before = VirtualRun(*command, steps=constant(90_000))
    places = [place for place, reads in before.places.items() if reads > 3 * WINDOWS]
    run = VirtualRun(*command, steps=constant(90_000), count=(places[0], 1))
    (placement,) = run.document()["result"]["points"][0]["placements"]
    assert additions(run) > 1000
    for moment in ("before", "after"):
        assert placement[f"core_hz_{moment}"] == exactly(additions(run) / (90_000 - READ_COST) * HZ)


def test_copies_of_a_chase_are_timed_over_what_each_walked(native: Path, cpus: list[int]) -> None:
    require_two(cpus)
    command = (
        str(native), "latency", "--at", f"{cpus[0]}@0", "--at", f"{cpus[1]}@0", "--together", "--size-bytes", "4096",
        "--pages", "base", "--placements", "1", "--windows", "50", "--hops", "6400",
    )  # fmt: skip
    chunk = VirtualRun(*command, steps=constant(CHUNK)).places.most_common(1)[0][0]
    run = VirtualRun(*command, steps=constant(CHUNK), count=(chunk, 500))
    for point in run.document()["result"]["points"]:
        assert point["placements"][0]["windows_ns"] == exactly([CHUNK / TICKS_PER_NS / chained_loads(run)] * 50)


def bandwidth(native: Path, cpu: int, *more: str) -> tuple[str, ...]:
    return (
        str(native), "bandwidth", "--group", f"{cpu}@0", "--buffer-bytes", "8192", "--pages", "base",
        "--placements", "1", "--windows", "3", "--window-s", str(WINDOW_S), *more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def chunk_end(native: Path, cpus: list[int]) -> int:
    """Where a load reads the clock after each chunk."""
    run = VirtualRun(*bandwidth(native, cpus[0], "--mix", "reads"), steps=constant(CHUNK))
    return run.places.most_common(1)[0][0]


MIXES = {mix.lower().replace("_1", ":1") if mix[0].isdigit() else mix.lower(): mix for mix in READS}


@pytest.mark.parametrize("mix", MIXES)
def test_a_bandwidth_is_the_bytes_that_were_moved_over_their_time(
    native: Path, cpus: list[int], chunk_end: int, widths: list[str], mix: str
) -> None:
    reads, writes = READS[MIXES[mix]], WRITES[MIXES[mix]]
    allocated = WRITE_ALLOCATED.get(MIXES[mix], 0)
    # What differs by width is in the loops, whose instructions are compared for all mixes elsewhere.
    for width in widths if mix == "reads" else widths[:1]:
        command = bandwidth(native, cpus[0], "--mix", mix, "--width", width, "--streams", "4")
        run = VirtualRun(*command, steps=constant(CHUNK), count=(chunk_end, 70))
        loaded, stored = run.vector_bytes()
        assert loaded + stored > 0
        assert loaded * writes == stored * reads
        moved = (loaded + stored) / CHUNK * HZ / 1e6
        model = moved * (reads + writes + allocated) / (reads + writes)
        (point,) = run.document()["result"]["points"]
        (placement,) = point["placements"]
        assert placement["program_windows_mb_s"] == exactly([moved] * 3), width
        assert placement["windows_mb_s"] == exactly([model] * 3), width
        assert placement["per_thread_mb_s"] == exactly([model]), width


def test_threads_add_up(native: Path, cpus: list[int]) -> None:
    require_two(cpus)
    alone = VirtualRun(*bandwidth(native, cpus[0], "--mix", "copy"), steps=constant(CHUNK)).document()
    both = VirtualRun(
        str(native), "bandwidth", "--group", f"{cpus[0]}@0+{cpus[1]}@0", "--mix", "copy", "--buffer-bytes", "8192",
        "--pages", "base", "--placements", "1", "--windows", "3", "--window-s", str(WINDOW_S), steps=constant(CHUNK),
    ).document()  # fmt: skip
    one, two = (document["result"]["points"][0]["placements"][0] for document in (alone, both))
    assert two["windows_mb_s"] == exactly([2 * item for item in one["windows_mb_s"]])
    assert two["per_thread_mb_s"] == exactly(2 * one["per_thread_mb_s"])


def test_delays_of_a_load_are_their_additions(native: Path, cpus: list[int]) -> None:
    require_two(cpus)
    delay, turns = 50, 64
    command = (
        str(native), "loaded", "--probe", f"{cpus[0]}@0", "--load", f"{cpus[1]}@0", "--probe-size-bytes", "8192",
        "--buffer-bytes", "8192", "--pages", "base", "--placements", "1", "--windows", "2", "--window-s", "0.01",
        "--delay", str(delay),
    )  # fmt: skip
    (point,) = VirtualRun(*command, steps=constant(CHUNK)).document()["result"]["points"]
    assert point["delay_ns"] * turns == exactly((CHUNK - READ_COST) / TICKS_PER_NS)


def test_a_loaded_latency_and_its_bandwidth_share_their_windows(native: Path, cpus: list[int], chunk_end: int) -> None:
    """Each thread on its own clock: a chunk of the load and one of the probe take the same time."""
    require_two(cpus)
    command = (
        str(native), "loaded", "--probe", f"{cpus[0]}@0", "--load", f"{cpus[1]}@0", "--probe-size-bytes", "8192",
        "--buffer-bytes", "8192", "--pages", "base", "--placements", "1", "--windows", "3", "--window-s",
        str(WINDOW_S), "--delay", "0",
    )  # fmt: skip
    before = VirtualRun(*command, steps=constant(CHUNK))
    load = VirtualRun(*command, steps=constant(CHUNK), count=(chunk_end, 70))
    probe_end = next(place for place, reads in before.places.most_common() if reads > 100 and place != chunk_end)
    probe = VirtualRun(*command, steps=constant(CHUNK), count=(probe_end, 70))
    (point,) = load.document()["result"]["points"]
    (placement,) = point["placements"]
    (probed,) = placement["probes"]
    assert placement["windows_mb_s"] == exactly([sum(load.vector_bytes()) / CHUNK * HZ / 1e6] * 3)
    loads = chained_loads(probe)
    assert probed["windows_ns"] == exactly([CHUNK / TICKS_PER_NS / loads] * 3)
    assert probed["probe_mb_s"] == exactly(64 * loads / CHUNK * HZ / 1e6)
    (zero,) = load.document()["result"]["zero_load"]
    for moment in ("start", "middle", "end"):
        windows = zero[f"windows_ns_{moment}"]
        assert windows == exactly([CHUNK / TICKS_PER_NS / loads] * len(windows))


def test_only_a_load_settles_as_long_as_it_is_told(native: Path, cpus: list[int]) -> None:
    """In virtual time: 0.4 s more for the one run with a load, nothing for the three without."""
    require_two(cpus)
    command = (
        str(native), "loaded", "--probe", f"{cpus[0]}@0", "--load", f"{cpus[1]}@0", "--probe-size-bytes", "8192",
        "--buffer-bytes", "8192", "--pages", "base", "--placements", "1", "--windows", "1", "--window-s", "0.002",
        "--delay", "0", "--settle-s",
    )  # fmt: skip
    brief_s, long_s = (
        VirtualRun(*command, settle_s, steps=constant(CHUNK)).document()["duration_s"] for settle_s in ("0.1", "0.5")
    )
    assert 0.2 < long_s - brief_s < 0.6


def test_a_package_has_time_to_fall_asleep_and_to_wake_up(native: Path, cpus: list[int]) -> None:
    """In virtual time, in which the walks take next to none: 20 ms before each of the two."""
    require_two(cpus)
    command = (str(native), "latency", "--at", f"{cpus[0]}@0", "--keep-awake", f"{cpus[1]}@0", *LATENCY)
    assert 0.04 < VirtualRun(*command, steps=constant(90_000)).document()["duration_s"] < 0.06


def test_a_look_sees_the_bandwidth_of_a_point(native: Path, cpus: list[int]) -> None:
    """Work takes no virtual time, so no delay changes anything: the whole is there at once, and the least never."""
    require_two(cpus)
    command = (
        str(native), "loaded", "--probe", f"{cpus[0]}@0", "--load", f"{cpus[1]}@0", "--probe-size-bytes", "8192",
        "--buffer-bytes", "8192", "--pages", "base", "--delay", "0",
    )  # fmt: skip
    brief = ("--placements", "1", "--windows", "1", "--window-s", "0.002", "--settle-s", "0.01")
    (none,) = VirtualRun(*command, *brief, steps=constant(CHUNK)).document()["result"]["points"]
    search = (*command, "--share-percent", "100,25", "--choose")
    result = VirtualRun(*search, steps=constant(CHUNK)).document()["result"]
    whole, least = result["shares"]
    (rate,) = none["placements"][0]["windows_mb_s"]
    delays = [look["inject_delay"] for look in result["looks"]]
    assert delays[0] == whole["inject_delay"] == 0
    assert delays[-1] == 20000
    assert [look["best_mb_s"] for look in result["looks"]] == exactly([rate] * len(delays))
    assert whole["share_found"] == least["share_found"] == exactly(1.0)


PAIRS = [("--pair", "{}@{}"), ("--all-pairs", "{}@{}")]


def windows_of(document: dict[str, Any]) -> list[float]:
    result = document["result"]
    if result["pairs"]:
        return [ns for placement in result["pairs"][0]["placements"] for ns in placement["windows_ns"]]
    return [ns for windows in result["cells"][0]["placements"] for ns in windows]


@pytest.mark.parametrize("ask", PAIRS, ids=["pair", "matrix"])
def test_a_hand_shake_is_half_a_round_trip(native: Path, cpus: list[int], ask: tuple[str, str]) -> None:
    """As many round trips are made as asked for: sutprobe proves it by what both sides have stored."""
    require_two(cpus)
    trips, ticks = 100, 90_000
    command = ("c2c", ask[0], ask[1].format(*cpus), "--method", "pingpong", "--pages", "base", "--placements", "1",
               "--windows", "5", "--hops", str(trips))  # fmt: skip
    run = VirtualRun(str(native), *command, steps=constant(ticks))
    assert windows_of(run.document()) == exactly([(ticks - READ_COST) / TICKS_PER_NS / (2 * trips)] * 5)


@pytest.mark.parametrize("state", ["hit", "hitm"])
@pytest.mark.parametrize("ask", PAIRS, ids=["pair", "matrix"])
def test_a_transfer_is_the_time_of_its_rounds_over_their_loads(
    native: Path, cpus: list[int], ask: tuple[str, str], state: str
) -> None:
    require_two(cpus)
    lines, rounds, windows, ticks, by = 64, 3, 5, 90_000, 1000
    command = (str(native), "c2c", ask[0], ask[1].format(*cpus), "--state", state, "--pages", "base", "--placements",
               "1", "--lines", str(lines), "--windows", str(windows), "--hops", str(rounds * lines - 1))  # fmt: skip
    before = VirtualRun(*command, steps=growing(ticks, by))
    begin = next(place for place, reads in before.places.items() if windows * rounds < reads <= windows * rounds + 8)
    run = VirtualRun(*command, steps=growing(ticks, by), count=(begin, windows * rounds))
    loads = chained_loads(run)
    assert loads == lines
    measured = [ns * rounds * loads * TICKS_PER_NS for ns in windows_of(run.document())]
    assert measured == exactly([measured[0] + 2 * by * rounds**2 * window for window in range(windows)])
    # Three rounds are two reads apart each: their mean is the middle one's.
    assert min(abs(measured[0] / rounds + READ_COST - duration) for duration in durations(run)) < 0.01


@pytest.mark.parametrize("by", [2, -2])
def test_jitter_intervals_add_up_read_by_read(native: Path, cpus: list[int], by: int) -> None:
    loops, executions, intervals, ticks = 9, 1200, 2, 90_000
    command = (str(native), "jitter", "--cpus", str(cpus[0]), "--view", "pma", "--loops", str(loops), "--executions",
               str(executions), "--intervals", str(intervals))  # fmt: skip
    before = VirtualRun(*command, steps=growing(ticks, by))
    made = 1000 + intervals * executions  # with the warm-up
    begin, _ = before.places_of(made)
    run = VirtualRun(*command, steps=growing(ticks, by), count=(begin, 5))
    assert {count for instruction, count in run.executed() if instruction.mnemonic.startswith("and")} == {loops}
    (cpu,) = run.document()["result"]["cpus"]
    pma = cpu["pma"]
    assert pma["tick_hz"] == exactly(HZ)
    first = pma["intervals"][0]["inst_min_cycles" if by > 0 else "inst_max_cycles"]
    assert first in durations(run)
    # Of two reads for each execution the second ends it.
    steps = [first + 2 * by * execution for execution in range(intervals * executions)]
    worked = passed = 0
    for number, interval in enumerate(pma["intervals"]):
        until = (number + 1) * executions
        own = steps[until - executions : until]
        assert (interval["inst_min_cycles"], interval["inst_max_cycles"]) == (min(own), max(own))
        assert (interval["abs_min_cycles"], interval["abs_max_cycles"]) == (min(steps[:until]), max(steps[:until]))
        assert interval["inst_jitter_cycles"] == max(own) - min(own)
        assert interval["last_exec_cycles"] == own[-1]
        assert interval["interval_cycles"] == 2 * sum(own) - by * executions
        worked, passed = worked + sum(own), passed + interval["interval_cycles"]
    assert pma["blind_fraction"] == exactly(1 - worked / passed)


TURN = 15_000
"""Ticks of a turn of the loop that looks for gaps: 5 us. Each read of the clock costs the test some 40 us."""

TURNS_TIMED = 20_000
"""How many turns are timed first, without looking for gaps."""

GAPS = [TICKS_PER_NS * ns for ns in (19_500, 20_000, 20_500, 31_000, 33_000, 40_000, 63_000, 65_000, 150_000, 250_000)]


def with_gaps(read: int) -> int:
    return GAPS[read // 50 % len(GAPS)] + read // 50 if read % 50 == 49 else TURN


@pytest.mark.parametrize("threshold", ["auto", "26500"])
def test_gaps_are_those_of_the_clock(native: Path, cpus: list[int], threshold: str) -> None:
    run = VirtualRun(
        str(native), "jitter", "--cpus", str(cpus[0]), "--view", "gaps", "--gap-s", "0.02", "--longest", "10000",
        "--threshold-ns", threshold, steps=with_gaps,
    )  # fmt: skip
    document = run.document()
    gaps, hz = document["result"]["cpus"][0]["gaps"], document["clock"]["hz"]
    (reads,) = run.reads()
    assert gaps["turn_ns"]["min"] == gaps["turn_ns"]["median"] == exactly(TURN / TICKS_PER_NS)
    least = 4 * gaps["turn_ns"]["median"] if threshold == "auto" else float(threshold)
    assert gaps["threshold_ns"] == exactly(least)
    longest = [(round(gap["at_ns"] * TICKS_PER_NS), round(gap["length_ns"] * TICKS_PER_NS)) for gap in gaps["longest"]]
    begins = {read - at for read, ticks in steps_of(reads) for at, length in longest[:1] if ticks == length}
    (begin,) = begins
    # It warms up for 50 ms and, after the last system call, for 1 ms: else the first gaps are its own misses.
    assert begin - reads[TURNS_TIMED] >= 0.051 * HZ
    wall = round(gaps["wall_s"] * HZ)
    seen = [(read - begin, ticks) for read, ticks in steps_of(reads) if begin <= read < begin + wall]
    assert sum(ticks for _, ticks in seen) == wall >= 0.02 * HZ
    found = sorted(((ticks, at) for at, ticks in seen if ticks >= least * TICKS_PER_NS), reverse=True)
    assert len(found) > 2 * len(GAPS)
    assert [(at, ticks) for ticks, at in found] == longest
    lengths = [ticks * 1e9 / hz for ticks, _ in found]
    assert gaps["count"] == len(found)
    assert gaps["lost_ns"] == exactly(sum(lengths))
    assert gaps["lost_fraction"] == exactly(sum(lengths) * TICKS_PER_NS / wall)
    assert gaps["max_ns"] == exactly(max(lengths))
    assert gaps["coverage_fraction"] == exactly(1 - len(found) * TURN / wall), "a turn goes into recording each gap"
    assert gaps["turns"] == len(seen) - len(found)
    for bucket in gaps["histogram"]:
        assert bucket["count"] == sum(bucket["from_ns"] <= ns < bucket["to_ns"] for ns in lengths)
    assert sum(bucket["count"] for bucket in gaps["histogram"]) == len(found)
    known = {rate["threshold_ns"]: rate["rate"] for rate in gaps["rates_per_s"]}
    assert min(known) >= least
    assert known == exactly({ns: sum(length >= ns for length in lengths) / gaps["wall_s"] for ns in known})
    assert len({rate for rate in known.values() if rate}) >= 3
    for quantile in gaps["quantiles"]:
        check_quantile(quantile["gap_ns"], quantile["time_fraction"], lengths, least, wall * 1e9 / hz)


def steps_of(reads: list[int]) -> Iterator[tuple[int, int]]:
    return ((before, after - before) for before, after in pairwise(reads))


def check_quantile(gap_ns: float, fraction: float, lengths: list[float], least: float, wall_ns: float) -> None:
    """Steps up to *gap_ns* make up at least *fraction* of the time; those an eighth shorter do not."""

    def made_up(ns: float) -> float:
        return 1 - sum(length for length in lengths if length > ns * (1 + 1e-9)) / wall_ns

    assert made_up(gap_ns) >= fraction - 1e-9
    assert gap_ns == exactly(least) or made_up(gap_ns / 1.126) < fraction


def test_a_volume_takes_the_time_between_its_first_and_last_read(native: Path, cpus: list[int]) -> None:
    passes, repeats, ticks = 5, 3, 90_000
    command = (str(native), "volume", "--group", f"{cpus[0]}@0", "--array-bytes", "4096", "--passes", str(passes),
               "--repeats", str(repeats))  # fmt: skip
    before = VirtualRun(*command, steps=growing(ticks, 2000))
    fill, _, triad, _ = before.places_of(repeats)
    counted = [VirtualRun(*command, steps=growing(ticks, 2000), count=(place, 1)) for place in (fill, triad)]
    result = counted[0].document()["result"]
    assert counted[0].vector_bytes() == (0, result["known"]["init"]["program_written_bytes"])
    triads = result["known"]["triad"]
    assert counted[1].vector_bytes() == (triads["program_read_bytes"], triads["program_written_bytes"])
    for repeat in result["repeats"]:
        init, triad_s, whole = (repeat[key] * HZ for key in ("init_seconds", "triad_seconds", "seconds"))
        assert triad_s - init == exactly(2 * 2000), "the end of the triads is two reads after that of the filling"
        assert whole == exactly(3 * init + 3 * 2000), "with the read between"
        assert min(abs(init - duration) for duration in durations(counted[0])) < 0.1


def test_a_frequency_is_the_additions_of_a_slice_over_its_time(native: Path, cpus: list[int]) -> None:
    ticks = 90_000
    command = (str(native), "frequency", "--cpus", str(cpus[0]), "--active", "alone", "--work", "scalar", "--windows",
               "3", "--settle-s", "0.002")  # fmt: skip
    begin = VirtualRun(*command, steps=constant(ticks)).places.most_common(1)[0][0]
    run = VirtualRun(*command, steps=constant(ticks), count=(begin, 50))
    (point,) = run.document()["result"]["points"]
    made = additions(run)
    assert made > 0
    assert point["windows_hz"] == exactly([made / (ticks - READ_COST) * HZ] * 3)
    assert point["share"] == 1
    late = VirtualRun(*command, steps=lambda read: 2 * ticks if read % 10 == 0 else ticks).document()
    (disturbed,) = late["result"]["points"]
    assert disturbed["windows_hz"] == exactly(point["windows_hz"]), "slices that take longer do not count"
    assert 0.75 < disturbed["share"] < 0.95
