# SPDX-License-Identifier: Apache-2.0
"""The comparison with stand-ins for peers; no value depends on time."""

import json
import math
import os
import random
import re
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bench import contenders, outputs, peers
from bench.contenders import TRAFFIC, Contender, Machine
from bench.outputs import NotComparedError, Output
from bench.ratios import Spread
from calibration.base.errors import INTERRUPTED
from calibration.build import TARGETS, build
from calibration.context.loader import load
from calibration.sutprobe.bandwidth import BandwidthResult
from calibration.sutprobe.document import read_result
from tests.suts import wait_until

FIXTURES = Path(__file__).parents[1] / "fixtures"
Compare = Callable[..., Result]


def captured(name: str) -> Machine:
    context = load(FIXTURES / "context" / f"{name}.tar.gz")
    return Machine(context, context.online_cpus)


MACHINE = captured("x86_64-two-nodes-smt")
"""Two nodes of four CPUs, with SSE and AVX."""


def reading(peer: str, label: str = "") -> Contender:
    return Contender(peer, label or peer, (), {"read": outputs.MULTICHASE})


@pytest.fixture
def starts() -> list[str]:
    return []


@pytest.fixture
def compare(starts: list[str], monkeypatch: pytest.MonkeyPatch) -> Compare:
    """Compare contenders with known values in sections; *starts* has their labels in order."""

    def compared(*sections: str, **values: Iterator[float]) -> Result:
        def values_of(contender: Contender) -> dict[str, float]:
            starts.append(contender.label)
            value = next(values[contender.peer])
            if value < 0:
                raise KeyboardInterrupt if value < -1 else NotComparedError("nonsense")
            return {"read": value}

        monkeypatch.setattr(peers, "values_of", values_of)
        monkeypatch.setattr(peers, "contenders_of", lambda *_: [reading(peer) for peer in values])
        monkeypatch.setattr(contenders, "this_machine", lambda: MACHINE)
        monkeypatch.setattr("shutil.which", lambda name: None if name == "rtla" else f"/bin/{name}")
        return CliRunner().invoke(peers.peers_command, [word for name in sections for word in ("--only", name)])

    return compared


def read_or_nothing(path: Path) -> bytes:
    """Return what a process file has; nothing of one that ended."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def always(value: float) -> Iterator[float]:
    return iter(lambda: value, None)


def table_of(result: Result) -> list[tuple[str, ...]]:
    """Return the cells from the value of ours on."""
    rows = [line.split("  ") for line in result.stdout.splitlines() if line.startswith("Read")]
    return [tuple(cell.strip() for cell in row if cell)[2:] for row in rows]


def test_sections_take_turns_there_and_back_and_once_with_ours_itself(compare: Compare, starts: list[str]) -> None:
    rates = {"sutprobe": 300.0, "mbw": 100.0, "mlc": 200.0, "bw_mem": -1.0}
    made = compare("read-one", "L1-all", "L3-all", **{peer: always(rate) for peer, rate in rates.items()})
    all_used = f"{peers.QUADRUPLES} of {peers.QUADRUPLES}"
    best = ("300", "200", "mlc", "1.5 [1.5, 1.5]", all_used)
    assert table_of(made) == [best, ("300", "300", "sutprobe again", "1 [1, 1]", all_used), best]
    assert "Read, L1, 16 KiB  8 " in made.stdout
    assert "768 MiB over all threads, 384 MiB for one" in made.stdout
    assert "Not within" not in made.stdout
    failed = [f"bw_mem: bw_mem, {section}, turn 1: nonsense" for section in ("read-one", "L1-all")]
    assert [line.removeprefix("Not compared: ") for line in made.stdout.splitlines() if "Not compared" in line] == [
        *("rtla: not on PATH", "sutprobe: L3-all: no size in the middle of L3", *failed)
    ]
    left, turns = [label for label in starts if label != "bw_mem"], []
    # Ours against itself tells the sections, the one that is not the best the first turns.
    for again, second in ((1, 1), (0, 1), (1, 0), (0, 0)):
        for _ in range(peers.LOOK):
            size = 2 * (2 + again + second)
            turns.append(left[:size])
            left = left[size:]
            assert turns[-1] == turns[-1][::-1]
            assert ("sutprobe again" in turns[-1], "mbw" in turns[-1], len(set(turns[-1]))) == (again, second, size / 2)
    assert not left
    assert len({tuple(turn) for turn in turns}) > peers.LOOK


def test_starts_that_saw_nothing_have_no_ratio(compare: Compare) -> None:
    made = compare("read-one", sutprobe=always(300.0), mbw=cycle([0.0, 200.0, 200.0, 200.0]))
    assert table_of(made)[0] == ("300", "200", "mbw", "1.5 [1.5, 1.5]", "12 of 12")


def test_time_goes_to_who_needs_least_until_it_is_over_and_a_wide_interval_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, source, starts = iter(range(100_000)), random.Random(3), []
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    noise = {"wild": 0.4, "noisy": 0.12, "steady": 0.0}

    def values_of(contender: Contender) -> dict[str, float]:
        starts.append(contender.label)
        return {"read": source.lognormvariate(5.0, noise.get(contender.label, 0.0))}

    monkeypatch.setattr(peers, "values_of", values_of)
    compared = [peers.Comparison(name, MACHINE, [reading("sutprobe", name), reading("mbw")]) for name in noise]
    peers.measure(peers.Session(MACHINE, "", {}), compared, 300.0)
    assert next(clock) < 305, "a turn asks for the time twice, and ends"
    wild, noisy, steady = compared
    assert len(steady.turns) == peers.QUADRUPLES < len(noisy.turns)
    assert noisy.wanted_s <= 0.0 < wild.wanted_s < math.inf
    assert starts[-1] in ("wild", "mbw")
    (row,) = wild.rows
    assert re.fullmatch(
        rf"Read, wild, mbw: ±\d+\.\d % after {wild.seconds:.0f} s; "
        r"two values of ours differ by \d\d\.\d %, of the peer's by 0\.0 %",
        peers.why_wide(wild, row),
    )
    few = peers.Row("read", peers.AGAIN, row.quadruples[:5], row.quadruples[:4], Spread(1.1, 1.05, 1.2))
    assert peers.cells(wild, few)[-2:] == ("1.1 [1.05, 1.2], not 1: intervals are too narrow", "4 of 5")


def test_an_interrupted_comparison_prints_complete_turns(compare: Compare) -> None:
    made = compare("read-one", sutprobe=iter((*[300.0] * 9, -2.0)), mbw=always(200.0))
    assert made.exit_code == INTERRUPTED
    assert [row[2:] for row in table_of(made)] == [
        *(("mbw", "1.5, no interval", "2 of 2"), ("sutprobe again", "1, no interval", "2 of 2"))
    ]
    assert "Not within ±3 %: Read, read-one, mbw: no interval after " in made.stdout
    narrow = compare("read-one", sutprobe=iter((*[300.0] * 29, -2.0)), mbw=always(200.0))
    assert table_of(narrow)[0][3:] == ("1.5 [1.5, 1.5]", "7 of 7")
    assert "Not within" not in narrow.stdout


def test_scouting_takes_medians_and_keeps_a_second_if_as_good(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {"steady": [100.0, 101.0, 99.0], "as good": [97.0] * 3, "lucky": [71.0, 900.0, 69.0], "far": [69.0]}
    given = {label: cycle(found) for label, found in rates.items()}
    starts = []

    def values_of(contender: Contender) -> dict[str, float]:
        starts.append(contender.label)
        return {"read": next(given[contender.label])}

    monkeypatch.setattr(peers, "values_of", values_of)
    offered = [reading("mbw", label) for label in rates]
    session = peers.Session(MACHINE, "", {})
    assert [kept.label for kept in peers.scout(session, "read", offered)] == ["steady", "as good"]
    assert [starts.count(label) for label in rates] == [3, 3, 3, 1]
    assert [kept.label for kept in peers.scout(session, "read", offered[::2])] == ["steady"]
    monkeypatch.undo()
    assert peers.scout(session, "read", [Contender("mbw", "bad", ("false",), {})]) == []
    assert session.not_compared == ["mbw: bad: exit code 1: nothing"]


@pytest.mark.parametrize(("script", "reason"), [
    ("echo nan", "not a positive number: 'nan'"),
    ("echo 17; exit 3", "exit code 3: 17"),
    ("sleep 600 & echo $! > pid; wait", "did not end within 1 s"),
])  # fmt: skip
def test_what_prints_nonsense_fails_or_hangs_has_no_value(
    script: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(peers.run, "__defaults__", (1.0 if "sleep" in script else 60.0,))
    command = contenders.bound(("sh", "-c", script), (max(os.sched_getaffinity(0)),))
    with pytest.raises(NotComparedError, match=reason):
        peers.values_of(Contender("mbw", "mbw", command, {"read": outputs.MULTICHASE}))
    if "sleep" in script:
        child = Path("/proc", Path("pid").read_text().strip(), "stat")
        wait_until(lambda: not child.exists() or child.read_text().rpartition(")")[2].split()[0] == "Z")


def test_wake_ups_and_interruptions_are_beside_a_load_that_ends_with_its_turn() -> None:
    last = max(os.sched_getaffinity(0))
    machine = Machine(MACHINE.context, (last, last))
    assert contenders.load_of(MACHINE, "latency") == contenders.load_of(Machine(MACHINE.context, (0,)), "wakeup") == ()
    load = contenders.load_of(machine, "wakeup")
    assert load == contenders.load_of(machine, "interruptions")

    def running() -> list[Path]:
        texts = [path for path in Path("/proc").glob("[0-9]*/cmdline") if path.parent.name != str(os.getpid())]
        return [path for path in texts if contenders.LOAD.encode() in read_or_nothing(path)]

    began = set(running())
    with peers.beside(load):
        wait_until(lambda: len(set(running()) - began) == 2)
    wait_until(lambda: not set(running()) - began)


def offered(machine: Machine, quantity: str) -> dict[str, Contender]:
    everywhere = {name: f"/peers/{name}" for name in contenders.PEERS}
    return {peer.label: peer for peer in contenders.bandwidth_peers(machine, quantity, everywhere)}


def test_bandwidth_peers_use_the_same_bytes() -> None:
    one, mib = MACHINE.of_section("read-one"), 1 << 20
    for label, quantity, words in (
        ("likwid-bench load_sse", "read", f"-t load_sse -i 5 -w M0:{384 * mib // 1000}kB:1"),
        ("bw_mem rd", "read", f"-P 1 -N 1 {384 * mib} rd"),
        ("sc-membench copy", "copy", f"-s {192 << 10} -o copy -p 1 -r 1 -H"),
        ("mbw memcpy", "copy_nt", "-q -t0 -n 2 192"),
    ):
        assert " ".join(offered(one, quantity)[label].command) == f"taskset -c 0 /peers/{label.split()[0]} {words}"
    # With several threads only who measures all in one window takes part.
    everybody = {label: peer for quantity in TRAFFIC for label, peer in offered(MACHINE, quantity).items()}
    assert {peer.peer for peer in everybody.values()} == contenders.COMMON_WINDOW
    assert not any("avx512" in label or "neon" in label for label in everybody)
    for machine, turns, each in ((MACHINE, 20, 96 * mib), (MACHINE.of_section("L2-all"), round(1e10 / mib), mib)):
        words = " ".join(f"-w M{node}:{4 * each // 1000}kB:4" for node in (0, 1))
        command = " ".join(offered(machine, "read")["likwid-bench load_avx"].command)
        assert command == f"taskset -c 0,1,2,3,4,5,6,7 /peers/likwid-bench -t load_avx -i {turns} {words}"


def test_all_rates_are_bytes_on_the_bus() -> None:
    def value(quantity: str, label: str, text: str, on: Machine) -> float:
        return offered(on, quantity)[label].values[quantity](Output(text, ""))

    one, arm = MACHINE.of_section("read-one"), captured("aarch64-four-nodes").of_section("read-one")
    likwid = "Group: 0 Thread 0 running on hwthread 0 - x\nMByte/s:\t\t1200.00\n"
    rates = {"load": 1200, "store": 2400, "store_mem": 1200, "copy": 1800, "copy_mem": 1200, "stream": 1600}
    for quantity, (kernel, rate) in zip(TRAFFIC, {**rates, "stream_mem": 1200}.items(), strict=True):
        assert value(quantity, f"likwid-bench {kernel}_sse", likwid, one) == rate
    assert value("copy", "bw_mem cp", "201.33 1000.00\n", one) == 3000.0
    assert value("copy", "sc-membench copy", "1,copy,1000,0,0", arm) == pytest.approx(2000.0 * outputs.MIB)
    assert value("copy", "likwid-bench copy_neon", likwid, arm) == 1200.0
    assert offered(arm, "copy_nt") == {}
    with pytest.raises(NotComparedError, match=r"ran on CPUs \[0\], wanted \[0, 1, 2"):
        value("read", "likwid-bench load_sse", likwid, MACHINE)


def test_our_mixes_declare_the_traffic_they_are_compared_in() -> None:
    """sutprobe prints reads, writes and lines read for a store; a mix of another traffic would compare unlike bytes."""
    program = str(build(next(target for target in TARGETS if target == os.uname().machine)).path)
    small = "--group 0@0 --buffer-bytes 1048576 --placements 1 --windows 1 --window-s 0.01"
    for traffic in TRAFFIC.values():
        output = peers.run((program, "bandwidth", "--mix", traffic.mix, *small.split()), {})
        made = read_result(outputs.document_of(output), BandwidthResult).points[0].accounting
        assert made.reads_per_step * traffic.writes == made.writes_per_step * traffic.reads
        moved = traffic.bus(os.uname().machine) / (8 * (traffic.reads + traffic.writes))
        assert made.model_dram_bytes_per_step / made.program_bytes_per_step == pytest.approx(moved)


def test_what_the_searches_found_best_runs_again() -> None:
    searches = list(contenders.our_searches(MACHINE.of_section("L2-all"), "read", "/p"))
    assert [command[command.index("--width") + 1] for command in searches] == ["avx2", "sse2"]
    assert all("--streams 1,2,4,8 --prefetch-bytes 0 --width" in " ".join(command) for command in searches)
    searched = Output((FIXTURES / "sutprobe" / "max_bandwidth-search.json").read_text(encoding="utf-8"), "")
    points = read_result(outputs.document_of(searched), BandwidthResult).points
    best = sorted(points, key=lambda point: statistics.median(point.placements[0].windows_mb_s))[-4:]
    made = list(contenders.our_best(MACHINE, "read", "/p", [searched, searched]))
    for point, setting in zip((*best, *best), made, strict=True):
        words = " ".join(setting.command)
        assert f"--group 0-3@0+4-7@1 --buffer-bytes {96 << 20} --pages thp --window-s 0.02 --mix reads" in words
        assert f"--streams {point.streams} --prefetch-bytes {point.prefetch_bytes}" in words
        assert ("--hint" in words) == (point.hint != "none")


def test_every_section_reads_what_sutprobe_prints() -> None:
    recorded = {"latency": "idle_latency", "interruptions": "jitter", "c2c": "c2c_latency", "wakeup": "wakeup"}
    offers = contenders.others(MACHINE, "/p", dict.fromkeys(contenders.PEERS, "/peer"), held=True, unthrottled=True)
    assert (tuple(offers), sum(map(len, offers.values()))) == (peers.OTHERS, 11)
    for section, (ours, *others) in offers.items():
        text = (FIXTURES / "sutprobe" / f"{recorded[section]}.json").read_text(encoding="utf-8")
        assert all(read(Output(text, "")) > 0.0 for read in ours.values.values())
        assert all(other.values.keys() == ours.values.keys() for other in others)
        failed = {**json.loads(text), "status": "failed", "error": {"code": "deadline", "message": "no time left"}}
        for broken, reason in ((json.dumps(failed), "no time left"), ("not JSON", "sutprobe: ")):
            with pytest.raises(NotComparedError, match=reason):
                next(iter(ours.values.values()))(Output(broken, ""))
