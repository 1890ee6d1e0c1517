# SPDX-License-Identifier: Apache-2.0
"""The comparison with stand-ins for peers; no value depends on time."""

import json
import os
import random
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bench import contenders, outputs, peers
from bench.contenders import OURS, TRAFFIC, Contender, Machine, Start, Window
from bench.outputs import NotComparedError
from bench.ratios import Spread
from calibration.errors import INTERRUPTED, InputError
from calibration.sutprobe.bandwidth import BandwidthResult
from calibration.sutprobe.document import read_result

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture
def machine() -> Machine:
    flags = frozenset({"sse2", "avx"})
    search = {"streams": "1,2", "prefetch-bytes": "0,512", "hint": "t0,nta", "instruction": "vector,clzero"}
    widths = ("avx512", "avx2")
    levels, one_levels = {"L1": 16 << 10, "L2": 512 << 10, "L3": 8 << 20}, {"L1": 16 << 10, "L3": 16 << 20}
    sizes = 768 << 20, 384 << 20
    return Machine(
        (0, 1), ((0, (0, 1)),), "x86_64", flags, True, *sizes, 2e9, "a machine", search, widths, levels, one_levels
    )


@pytest.fixture
def session(machine: Machine) -> peers.Session:
    return peers.Session(machine, "/bin/false", {}, 60.0, lambda _text: None)


def printing(peer: str, label: str, text: str, code: int = 0, **declared: Any) -> Contender:
    command = (sys.executable, "-c", f"import sys; print({text!r}); sys.exit({code})")
    reader = {"read": lambda output: outputs.multichase(output.text)}
    return Contender(peer, label, (Start(command),), reader, traffic=TRAFFIC["read"], **declared)


@pytest.fixture(name="measured")
def _measured(session: peers.Session, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Measure contenders in place of those of a section with exactly two alternations."""

    def measure(*of: Contender) -> None:
        monkeypatch.setattr(peers, "contenders_of", lambda *_: list(of))
        peers.measure(session, "latency_time")

    return measure


def planted(monkeypatch: pytest.MonkeyPatch, values: Mapping[str, float]) -> list[str]:
    """Give contenders known values in place of starts, and return the labels in the order of starts."""
    starts: list[str] = []

    def value_of(contender: Contender) -> dict[str, float]:
        starts.append(contender.label)
        return {"read": values[contender.label]}

    monkeypatch.setattr(peers, "values_of", value_of)
    return starts


def test_ratios_come_from_both_outputs(session: peers.Session, measured: Callable[..., None]) -> None:
    measured(printing(OURS, "ours", "300"), printing("bw_mem", "rd", "200"), printing("mbw", "mbw", "100"))
    best, other = peers.rows_of(session)
    assert best[:7] == ("Read", "1", "300", "200", "rd", "1.5, no interval", "2")
    assert other[:7] == ("Read", "1", "300", "100", "mbw", "3, no interval", "2")


def test_unpublishable_metrics_are_marked(session: peers.Session, measured: Callable[..., None]) -> None:
    measured(printing(OURS, "ours", "300"), printing("mlc", "mlc idle", "200"))
    assert peers.rows_of(session)[0][4] == "mlc idle (not for publication)"


@pytest.mark.parametrize(
    ("text", "code", "reason"),
    [
        ("all done", 0, "no number in the output"),
        ("nan", 0, "not a positive number"),
        ("17", 3, "exit code 3: 17"),
    ],
)
def test_a_peer_that_prints_nonsense_or_fails_is_not_compared(
    session: peers.Session, measured: Callable[..., None], text: str, code: int, reason: str
) -> None:
    measured(printing(OURS, "ours", "300"), printing("mbw", "mbw memcpy", text, code=code))
    (row,) = session.rows
    assert row.ours.value == pytest.approx(300.0)
    assert row.peer is None
    assert row.ratio is None
    (message,) = session.not_compared
    assert message.startswith("mbw: mbw memcpy, alternation 1: ")
    assert reason in message


def test_a_failure_of_sutprobe_has_no_value(session: peers.Session, measured: Callable[..., None]) -> None:
    measured(printing(OURS, "ours", "nonsense"))
    assert session.rows == []
    assert "number: 'nonsense'" in session.not_compared[0]


def test_an_interruption_keeps_complete_alternations(
    session: peers.Session, measured: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = planted(monkeypatch, {"ours": 300.0, "mbw": 200.0})
    planted_value = peers.values_of

    def value_or_stop(contender: Contender) -> dict[str, float]:
        if len(starts) == 3:
            raise KeyboardInterrupt
        return planted_value(contender)

    monkeypatch.setattr(peers, "values_of", value_or_stop)
    with pytest.raises(KeyboardInterrupt):
        measured(printing(OURS, "ours", ""), printing("mbw", "mbw", ""))
    (row,) = session.rows
    assert row.ratio is not None
    assert row.ratio.value == pytest.approx(1.5)
    assert row.pairs == 1


@pytest.mark.parametrize(("again", "warned"), [(Spread(1.0, 0.9, 1.1), False), (Spread(1.1, 1.05, 1.2), True)])
def test_an_interrupted_command_prints_what_it_has(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, again: Spread, warned: bool
) -> None:
    def interrupted(session: peers.Session, section: str) -> None:
        if section == "c2c":
            raise KeyboardInterrupt
        session.rows.append(peers.Row("latency", None, Spread(111.0, None, None), 1, 1.0))
        session.rows.append(replace(session.rows[0], peer=peers.AGAIN, theirs=Spread(110.0, None, None), ratio=again))

    monkeypatch.setattr(peers, "program_of", lambda: "/bin/false")
    monkeypatch.setattr(peers, "tick_hz_of", lambda _program: 2e9)
    monkeypatch.setattr(contenders, "describe_machine", lambda *_: machine)
    monkeypatch.setattr(peers, "measure", interrupted)
    made = CliRunner().invoke(peers.peers_command, ["--only", "latency", "--only", "c2c"])
    assert made.exit_code == INTERRUPTED
    assert "Random latency, huge pages, ns           111 " in made.stdout
    assert ("the intervals are too narrow" in made.stdout) == warned
    assert "Not compared: mlc: mlc is not on PATH" in made.stdout


def test_alternations_are_in_random_order_and_end_when_narrow(
    session: peers.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = [printing(OURS, "ours", ""), printing("bw_mem", "rd", "")]
    starts = planted(monkeypatch, {"ours": 3.0, "rd": 2.0})
    blocks: list[peers.Block] = []
    peers.alternate(session, "read-one", both, blocks)
    assert len(blocks) == peers.PAIRS
    pairs = list(zip(starts[::2], starts[1::2], strict=True))
    assert all(sorted(pair) == ["ours", "rd"] for pair in pairs), "each runs once in each"
    assert 0.35 * len(pairs) < pairs.count(("ours", "rd")) < 0.65 * len(pairs)
    first = list(starts)
    starts.clear()
    peers.alternate(session, "read-one", both, [])
    assert starts == first, "the order is reproducible"


def test_a_wide_interval_goes_on_until_the_time_is_over_and_says_so(
    session: peers.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(100_000))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    source = random.Random(3)
    monkeypatch.setattr(peers, "values_of", lambda _contender: {"read": source.lognormvariate(5.0, 0.4)})
    monkeypatch.setattr(peers, "contenders_of", lambda *_: [printing(OURS, "ours", ""), printing("bw_mem", "rd", "")])
    session.max_s = 180.0
    peers.measure(session, "read-one")
    ours, again = session.rows
    assert (ours.peer, again.peer) == ("rd", peers.AGAIN)
    assert 170 <= ours.pairs <= 190
    assert "% after 18" in peers.rows_of(session)[0][5]


def test_ours_runs_against_itself_in_the_first_section(session: peers.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, {"ours": 3.0, peers.AGAIN: 3.0, "rd": 2.0})
    monkeypatch.setattr(peers, "contenders_of", lambda *_: [printing(OURS, "ours", ""), printing("bw_mem", "rd", "")])
    peers.measure(session, "latency_time")
    peers.measure(session, "read-one")
    peers.measure(session, "read-all")
    assert [row.peer for row in session.rows] == ["rd", "rd", peers.AGAIN, "rd"]
    again = session.rows[2].ratio
    assert again is not None
    assert again.low == again.high == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("threads", "window", "best"),
    [(2, "per thread", "honest"), (2, "fixed work", "fast"), (1, "per thread", "fast")],
)
def test_a_sum_of_different_windows_is_shown_and_never_counts(
    session: peers.Session, monkeypatch: pytest.MonkeyPatch, threads: int, window: Window, best: str
) -> None:
    planted(monkeypatch, {"ours": 150.0, "fast": 200.0, "honest": 100.0, peers.AGAIN: 150.0})
    fast = printing("stress-ng", "fast", "", threads=threads, window=window)
    honest = printing("likwid-bench", "honest", "", threads=threads, window="fixed work")
    kept = peers.scout(session, "read", [fast, honest])
    assert [contender.label for contender in kept] == [best]
    if best == "honest":
        assert session.shown == [("Read", "2", "200", "fast", "no common window: does not count")]
    # Nor if it is alternated all the same.
    ours = printing(OURS, "ours", "", threads=threads)
    monkeypatch.setattr(peers, "contenders_of", lambda *_: [ours, fast, honest])
    peers.measure(session, "read-all")
    rivals = ["honest"] if best == "honest" else ["fast", "honest"]
    assert [row.peer for row in session.rows] == [*rivals, peers.AGAIN]


@pytest.mark.parametrize("unlike", [{"threads": 2}, {"traffic": TRAFFIC["write"]}])
def test_unlike_quantities_are_never_compared(
    session: peers.Session, measured: Callable[..., None], unlike: dict[str, Any]
) -> None:
    measured(printing(OURS, "ours", "300"), replace(printing("bw_mem", "rd", "200"), **unlike))
    assert session.rows == []
    assert "rd is not like ours" in session.not_compared[0]


def test_scouting_keeps_the_best_and_one_as_good(session: peers.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"fast": 100.0, "as fast": 96.0, "slow": 50.0, "close": 90.0, "other": 10.0}
    starts = planted(monkeypatch, values)
    offered = [
        *(printing("likwid-bench", label, "") for label in ("fast", "as fast", "slow", "close")),
        printing("mbw", "other", ""),
    ]
    assert [contender.label for contender in peers.scout(session, "read", offered)] == ["fast", "as fast"]
    expected = {"fast": 3, "as fast": 3, "close": 3, "slow": 1, "other": 1}
    assert {label: starts.count(label) for label in values} == expected
    assert session.shown == [("Read", "1", "10", "other", "slower")]


def test_a_peer_without_any_value_is_refused(session: peers.Session) -> None:
    assert peers.scout(session, "read", [printing("bw_mem", "broken", "none")]) == []
    assert [line.partition(":")[0] for line in session.not_compared] == ["bw_mem"]


def test_lines_in_flight_are_bytes_fetched_times_latency(session: peers.Session) -> None:
    assert contenders.lines_in_flight(16_000.0, "read", "x86_64", 100.0) == pytest.approx(25.0)
    assert contenders.lines_in_flight(16_000.0, "write", "x86_64", 100.0) == pytest.approx(12.5)
    assert contenders.lines_in_flight(16_000.0, "copy_nt", "x86_64", 100.0) == pytest.approx(12.5)
    assert contenders.lines_in_flight(16_000.0, "triad", "aarch64", 100.0) == pytest.approx(50.0 / 3.0)
    assert contenders.lines_in_flight(16_000.0, "write_nt", "x86_64", 100.0) is None
    spread = Spread(1.0, None, None)
    row = peers.Row("read", 1, spread, 1, 1.0, "peer", spread, spread)
    session.rows = [replace(row, in_flight=(24.0, 15.0)), replace(row, in_flight=(21.0, 20.5)), row]
    assert [cells[7:] for cells in peers.rows_of(session)] == [("24 / 15", "yes"), ("21 / 20", "no"), ("—", "—")]


def test_concurrent_processes_are_summed() -> None:
    start = Start((sys.executable, "-c", "print(7)"))
    both = Contender("mbw", "two", (start, start), {"read": lambda output: outputs.multichase(output.text)})
    assert peers.values_of(both) == {"read": 14.0}


def test_a_process_is_restricted_to_its_cpus() -> None:
    cpu = max(os.sched_getaffinity(0))
    before = os.sched_getaffinity(0)
    code = "import os; print(sorted(os.sched_getaffinity(0)))"
    output = peers.run_starts([Start((sys.executable, "-c", code), (cpu,))], {}, 30.0)[0]
    assert output.stdout.strip() == f"[{cpu}]"
    assert os.sched_getaffinity(0) == before


def test_a_hanging_peer_is_killed_with_its_children(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f"sleep 600 & echo $! > {pid_file}; wait"
    with pytest.raises(NotComparedError, match="did not end within 1 s"):
        peers.run_starts([Start(("sh", "-c", script))], {}, 1.0)
    child = int(pid_file.read_text(encoding="utf-8"))
    assert ended(child)


def ended(pid: int) -> bool:
    for _attempt in range(100):
        state = Path(f"/proc/{pid}/stat")
        if not state.exists() or state.read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False


def test_a_program_that_does_not_start_is_not_compared() -> None:
    with pytest.raises(NotComparedError, match="does not start"):
        peers.run_starts([Start(("/nowhere/peer",))], {}, 1.0)


def test_missing_peers_are_listed(tmp_path: Path) -> None:
    found, absent = peers.find_peers({}, str(tmp_path))
    assert not found
    assert set(absent) == set(contenders.PEERS)
    assert "--peer multichase=PATH" in absent["multichase"]


def test_peers_are_found_on_path_or_given(tmp_path: Path) -> None:
    for name in ("membench", "elsewhere"):
        (tmp_path / name).write_text("#!/bin/sh\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    found, absent = peers.find_peers({"pma-jitter": str(tmp_path / "elsewhere")}, str(tmp_path))
    assert found == {"sc-membench": str(tmp_path / "membench"), "pma-jitter": str(tmp_path / "elsewhere")}
    assert "sc-membench" not in absent


@pytest.mark.parametrize("pointed", [{"multichase": "/nowhere"}, {"unknown": "/bin/sh"}, {"mbw": "/etc"}])
def test_a_missing_program_is_bad_usage(pointed: dict[str, str]) -> None:
    with pytest.raises(InputError):
        peers.find_peers(pointed, "")


@pytest.mark.parametrize(
    "arguments",
    [["--only", "read"], ["--max-s", "0"], ["--peer", "multichase"], ["--peer", "multichase=/nowhere"]],
)
def test_bad_usage_is_refused_before_anything_runs(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "build", lambda _target: pytest.fail("nothing may be built"))
    assert CliRunner().invoke(peers.peers_command, arguments).exit_code == 2


def offered(machine: Machine, quantity: str) -> dict[str, Contender]:
    everywhere = {name: f"/peers/{name}" for name in contenders.PEERS}
    return {peer.label: peer for peer in contenders.bandwidth_peers(machine, quantity, everywhere)}


@pytest.mark.parametrize("threads", [1, 2])
def test_bandwidth_peers_use_the_same_bytes(machine: Machine, threads: int) -> None:
    machine = machine if threads == 2 else machine.one_thread()
    by_label = {label: peer for quantity in TRAFFIC for label, peer in offered(machine, quantity).items()}
    total = machine.total_bytes
    assert total == (768 << 20 if threads == 2 else 384 << 20)
    assert f"M0:{total // 1000}kB:{threads}" in by_label["likwid-bench load_sse"].starts[0].command
    assert str(total // threads) in by_label["bw_mem rd"].starts[0].command
    assert str(total // threads // 1024) in by_label["sc-membench read"].starts[0].command
    assert str(total // threads // 2 // 1024) in by_label["sc-membench copy"].starts[0].command
    assert [start.cpus for start in by_label["mbw memcpy"].starts] == [(0,), (1,)][:threads]
    assert str(total // threads // 2 >> 20) in by_label["mbw memcpy"].starts[0].command
    assert not any("avx512" in label or "neon" in label for label in by_label)
    assert {peer.threads for peer in by_label.values()} == {threads}


def test_peers_with_one_window_of_all_threads_are_two(machine: Machine) -> None:
    """Processes (bw_mem, mbw, stress-ng) and threads that each take their own time (multiload) have none."""
    on_all = [peer for quantity in TRAFFIC for peer in offered(machine, quantity).values()]
    assert {peer.peer for peer in on_all if peer.counts} == {"likwid-bench", "sc-membench"}
    assert {peer.peer for peer in on_all if not peer.counts} == {"bw_mem", "mbw", "multiload", "stress-ng"}
    on_one = [peer for quantity in TRAFFIC for peer in offered(machine.one_thread(), quantity).values()]
    assert all(peer.counts for peer in on_one)


def test_non_temporal_stores_meet_their_like_only(machine: Machine) -> None:
    """By their names: what likwid and multiload call mem and nontemporal, and memcpy that was forced to it."""
    for quantity, traffic in TRAFFIC.items():
        streaming = {
            label
            for label in offered(machine, quantity)
            if any(word in label for word in ("_mem_", "nontemporal", "memcpy", "nt"))
        }
        expected = set(offered(machine, quantity)) if traffic.stores == "non-temporal" else set()
        assert streaming == expected
        assert ("nt" in contenders.OUR_MIXES[quantity] or quantity == "triad_nt") == quantity.endswith("_nt")


def test_our_mixes_declare_the_traffic_they_are_compared_in() -> None:
    """sutprobe prints reads, writes and lines read for a store; a mix of another traffic would compare unlike bytes."""
    for quantity, traffic in TRAFFIC.items():
        command = (peers.program_of(), "bandwidth", "--group", "0@0", "--mix", contenders.OUR_MIXES[quantity])
        small = ("--buffer-bytes", str(1 << 20), "--placements", "1", "--windows", "1", "--window-s", "0.01")
        (output,) = peers.run_starts([Start((*command, *small))], {}, 60.0)
        for point in read_result(contenders.document_of(output), BandwidthResult).points:
            made = point.accounting
            assert made.reads_per_step * traffic.writes == made.writes_per_step * traffic.reads
            assert made.model_dram_bytes_per_step / made.program_bytes_per_step == pytest.approx(
                traffic.bus(os.uname().machine) / (8 * (traffic.reads + traffic.writes))
            )


def test_all_rates_are_bytes_on_the_bus(machine: Machine) -> None:
    def value(quantity: str, label: str, text: str, on: Machine = machine) -> float:
        return offered(on, quantity)[label].metrics[quantity](contenders.Output(text, "", 1.0))

    rows = "".join(f"Group: 0 Thread {cpu} running on hwthread {cpu} - x\n" for cpu in (0, 1))
    likwid = f"{rows}MByte/s:\t\t1200.00\n"
    assert value("read", "likwid-bench load_sse", likwid) == 1200.0
    assert value("write", "likwid-bench store_sse", likwid) == 2400.0
    assert value("write_nt", "likwid-bench store_mem_sse", likwid) == 1200.0
    assert value("copy", "likwid-bench copy_sse", likwid) == 1800.0
    assert value("copy_nt", "likwid-bench copy_mem_sse", likwid) == 1200.0
    assert value("triad", "likwid-bench stream_sse", likwid) == 1600.0
    assert value("triad_nt", "likwid-bench stream_mem_sse", likwid) == 1200.0
    assert value("copy", "bw_mem cp", "201.33 1000.00\n") == 3000.0
    membench = "1024,copy,1000.00,0,0,0,2,9,0.2\n"
    assert value("copy", "sc-membench copy", membench) == pytest.approx(3000.0 * outputs.MIB)
    arm = replace(machine, architecture="aarch64", flags=frozenset({"asimd"}))
    assert value("copy", "sc-membench copy", membench, arm) == pytest.approx(2000.0 * outputs.MIB)
    assert value("copy", "likwid-bench copy_neon", likwid, arm) == 1200.0
    assert not [label for label in offered(arm, "copy_nt") if "mbw" in label]


def test_reads_of_a_cache_use_its_middle_and_search_streams_alone(machine: Machine) -> None:
    cached = machine.in_cache("L2")
    assert (cached.total_bytes, cached.title("read")) == (1 << 20, "Read, L2, 512 KiB")
    (searched, _) = contenders.our_bandwidth_searches(cached, "read", "/p")
    tried = {option: value_after(f"--{option}", searched.command) for option in ("buffer-bytes", *machine.search)}
    assert tried == {
        "buffer-bytes": str(512 << 10), "streams": "1,2", "prefetch-bytes": "0", "hint": None, "instruction": None,
    }  # fmt: skip
    likwid = offered(cached, "read")["likwid-bench load_sse"].starts[0].command
    assert f"M0:{(1 << 20) // 1000}kB:2" in likwid
    assert int(value_after("-i", likwid) or 0) == round(contenders.LIKWID_CACHED_BYTES * 2 / (1 << 20))
    one = machine.one_thread()
    assert one.in_cache("L3").total_bytes == 16 << 20
    with pytest.raises(NotComparedError, match="no size in the middle of L2"):
        one.in_cache("L2")
    assert machine.title("read") == "Read"


@pytest.mark.parametrize(("asked", "ran"), [("caches", list(peers.CACHES)), ("L2-one", ["L2-one"])])
def test_all_caches_have_one_name(asked: str, ran: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    sections: list[str] = []
    monkeypatch.setattr(peers, "program_of", lambda: "/bin/false")
    monkeypatch.setattr(peers, "tick_hz_of", lambda _program: 2e9)
    monkeypatch.setattr(peers, "measure", lambda _session, section: sections.append(section))
    CliRunner().invoke(peers.peers_command, ["--only", asked])
    assert sections == ran


def test_a_row_of_a_cache_names_level_and_size(session: peers.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = Contender(OURS, "sutprobe streams 2", (), {"read": lambda _: 1.0}, traffic=TRAFFIC["read"], threads=2)
    rival = replace(ours, peer="likwid-bench", label="likwid-bench load_avx", window="fixed work")
    planted(monkeypatch, {ours.label: 258.0, rival.label: 220.0, peers.AGAIN: 258.0})
    monkeypatch.setattr(peers, "contenders_of", lambda *_: [ours, rival])
    session.latency_ns = 100.0
    peers.measure(session, "L2-all")
    first, *_ = peers.rows_of(session)
    assert first[:5] == ("Read, L2, 512 KiB", "2", "258", "220", "likwid-bench load_avx")
    assert first[7:] == ("—", "—"), "lines in flight are those of memory"


def test_a_cache_without_a_size_is_not_compared(session: peers.Session) -> None:
    peers.measure(session, "L2-one")
    assert (session.rows, session.not_compared) == ([], ["sutprobe: L2-one: no size in the middle of L2"])


def value_after(option: str, command: tuple[str, ...]) -> str | None:
    return command[command.index(option) + 1] if option in command else None


def test_every_width_is_searched_with_all_settings(machine: Machine) -> None:
    searches = contenders.our_bandwidth_searches(machine, "write_nt", "/p")
    assert [value_after("--width", search.command) for search in searches] == list(machine.widths)
    for search in searches:
        assert {option: value_after(f"--{option}", search.command) for option in machine.search} == machine.search


@pytest.mark.parametrize("hint", ["none", "nta"])
def test_what_the_searches_found_best_runs_again_with_all_it_was_searched_over(machine: Machine, hint: str) -> None:
    text = (CHECKOUT / "tests" / "fixtures" / "sutprobe" / "max_bandwidth.json").read_text(encoding="utf-8")
    document = json.loads(text)
    for point in document["result"]["points"]:
        point["hint"] = hint
    searched = contenders.Output(json.dumps(document), "", 1.0)
    points = read_result(contenders.document_of(searched), BandwidthResult).points
    full = [point for point in points if point.phase == "full" and point.placements]
    settings = contenders.our_best_settings(machine, "read", "/p", [searched, searched])
    assert len(settings) == 2 * len(full)
    for point, made in zip((*full, *full), settings, strict=True):
        command = made.starts[0].command
        assert value_after("--mix", command) == point.mix
        for option in ("streams", "prefetch-bytes", "instruction", "width"):
            assert value_after(f"--{option}", command) == str(getattr(point, option.replace("-", "_")))
        assert value_after("--hint", command) == (None if hint == "none" else hint)
        assert (made.traffic, made.threads, made.window) == (TRAFFIC["read"], 2, "common")


def test_our_best_setting_is_not_the_one_with_the_luckiest_start() -> None:
    rates = {"steady": iter((100.0, 101.0, 102.0)), "lucky": iter((90.0, 200.0, 91.0))}
    settings = [
        Contender(contenders.OURS, label, (Start(("true",)),), {"read": lambda _, found=found: next(found)})
        for label, found in rates.items()
    ]
    assert peers.best_of("read", settings).label == "steady"


def test_this_machine_is_described() -> None:
    machine = contenders.describe_machine(Path("/"), contenders.allowed_cpus(), 2e9)
    assert machine.cpus == tuple(sorted(os.sched_getaffinity(0)))
    assert machine.total_bytes % (len(machine.cpus) * 6 * (2 << 20)) == 0
    assert machine.total_bytes >= 768 << 20
    assert sorted(cpu for _node, cpus in machine.nodes for cpu in cpus) == list(machine.cpus)
    assert f"{len(machine.cpus)} CPUs" in machine.described


OURS_READ: list[tuple[str, Callable[[contenders.Output], float]]] = [
    ("jitter", contenders.our_turn),
    ("jitter", contenders.our_interruptions),
    ("idle_latency", contenders.our_latency),
    ("idle_latency", contenders.our_cycles),
    ("c2c_latency", contenders.our_transfer),
    ("max_bandwidth", contenders.our_bandwidth),
]


@pytest.mark.parametrize(("name", "value"), OURS_READ)
def test_sutprobe_documents_are_read(name: str, value: Callable[[contenders.Output], float]) -> None:
    text = (CHECKOUT / "tests" / "fixtures" / "sutprobe" / f"{name}.json").read_text(encoding="utf-8")
    assert value(contenders.Output(text, "", 1.0)) > 0.0


def test_a_failed_document_is_refused() -> None:
    text = (CHECKOUT / "tests" / "fixtures" / "sutprobe" / "jitter.json").read_text(encoding="utf-8")
    raw = json.loads(text)
    raw.update(status="failed", error={"code": "deadline", "message": "no time left"})
    with pytest.raises(NotComparedError, match="no time left"):
        contenders.our_turn(contenders.Output(json.dumps(raw), "", 1.0))
    with pytest.raises(NotComparedError):
        contenders.our_turn(contenders.Output("not JSON", "", 1.0))
