# SPDX-License-Identifier: Apache-2.0
"""The comparison as a whole, with programs that stand in for peers: no figure here depends on time."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bench import contenders, outputs, peers
from bench.contenders import OURS, Contender, Machine, Start
from bench.outputs import NotComparedError
from calibration.errors import InputError

CHECKOUT = Path(__file__).resolve().parents[2]

PATIENCE_S = 300
"""What takes longer hangs, also on a busy machine."""


@pytest.fixture
def machine() -> Machine:
    described = {"architecture": "x86_64"}
    return Machine((0, 1), ((0, (0, 1)),), frozenset({"avx"}), True, 524288, 32 << 20, 768 << 20, 2e9, described)


@pytest.fixture
def session(machine: Machine) -> peers.Session:
    return peers.Session(machine, "/bin/false", {}, 3, peers.Locks(()), lambda _text: None)


def printing(peer: str, label: str, text: str, quantity: str = "read", code: int = 0) -> Contender:
    command = (sys.executable, "-c", f"import sys; print({text!r}); sys.exit({code})")
    return Contender(peer, label, (Start(command),), {quantity: lambda output: outputs.multichase(output.text)})


def measured_of(*of: Contender) -> peers.Measured:
    return peers.Measured({}, {each.label: each.peer for each in of})


def test_ratios_come_of_what_both_printed(session: peers.Session) -> None:
    ours, theirs = printing(OURS, "ours", "300"), printing("bw_mem", "bw_mem rd", "200")
    measured = measured_of(ours, theirs)
    peers.alternate(session, "read", [ours, theirs], measured)
    entry = peers.entry_of("read", measured)
    assert entry["ours"] == 300.0
    assert (entry["best_peer"], entry["peer"]) == (200.0, "bw_mem rd")
    assert entry["median_ratio"] == 1.5
    assert entry["spread"] == [1.5, 1.5]
    assert entry["alternations"] == 3
    assert entry["met"] is True
    assert entry["peers"]["bw_mem rd"]["tool"] == "bw_mem"


@pytest.mark.parametrize(
    ("text", "code", "reason"),
    [("all done", 0, "expected one number"), ("nan", 0, "above zero"), ("17", 3, "ended with 3 and said: 17")],
)
def test_a_peer_that_prints_nonsense_or_fails_is_not_compared(
    session: peers.Session, text: str, code: int, reason: str
) -> None:
    ours, theirs = printing(OURS, "ours", "300"), printing("mbw", "mbw memcpy", text, code=code)
    measured = measured_of(ours, theirs)
    peers.alternate(session, "read", [ours, theirs], measured)
    entry = peers.entry_of("read", measured)
    assert entry["ours"] == 300.0
    assert entry["best_peer"] is entry["median_ratio"] is entry["spread"] is entry["met"] is None
    assert [each["peer"] for each in session.not_compared] == ["mbw"]
    assert reason in str(session.not_compared[0]["reason"])


def test_our_own_failure_is_never_a_figure(session: peers.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "_contenders", lambda *_: [printing(OURS, "ours", "nonsense", "l1_cycles")])
    peers.measure(session, "l1_cycles")
    entry = session.entries["l1_cycles"]
    assert entry["ours"] is None
    assert "found 'nonsense'" in entry["reason"]


def test_scouting_keeps_the_best_of_each_peer_and_all_close_to_the_best(session: peers.Session) -> None:
    offered = [
        printing("likwid-bench", "fast", "100"),
        printing("likwid-bench", "as fast", "95"),
        printing("likwid-bench", "slow", "50"),
        printing("mbw", "only one", "10"),
        printing("bw_mem", "broken", "none"),
    ]
    assert [each.label for each in peers.scout(session, "read", offered)] == ["fast", "as fast", "only one"]
    assert [each["peer"] for each in session.not_compared] == ["bw_mem"]


def test_processes_of_one_contender_run_together_and_are_summed() -> None:
    start = Start((sys.executable, "-c", "print(7)"))
    both = Contender("mbw", "two", (start, start), {"read": lambda output: outputs.multichase(output.text)})
    assert peers.figures_of(both) == {"read": 14.0}


def test_a_process_is_restricted_to_its_cpus() -> None:
    cpu = max(os.sched_getaffinity(0))
    before = os.sched_getaffinity(0)
    code = "import os; print(sorted(os.sched_getaffinity(0)))"
    output = peers.run_starts([Start((sys.executable, "-c", code), (cpu,))], {}, 30.0)[0]
    assert output.stdout.strip() == f"[{cpu}]"
    assert os.sched_getaffinity(0) == before


def test_a_peer_that_hangs_is_ended_with_all_it_started(tmp_path: Path) -> None:
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


def test_peers_that_are_not_there_are_named_with_the_reason(tmp_path: Path) -> None:
    found, absent = peers.find_peers({}, str(tmp_path))
    assert not found
    assert set(absent) == set(contenders.PEERS)
    assert "--peer multichase=PATH" in absent["multichase"]


def test_a_peer_is_found_on_path_under_either_name_or_pointed_at(tmp_path: Path) -> None:
    for name in ("membench", "elsewhere"):
        (tmp_path / name).write_text("#!/bin/sh\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    found, absent = peers.find_peers({"pma-jitter": str(tmp_path / "elsewhere")}, str(tmp_path))
    assert found == {"sc-membench": str(tmp_path / "membench"), "pma-jitter": str(tmp_path / "elsewhere")}
    assert "sc-membench" not in absent


@pytest.mark.parametrize("pointed", [{"multichase": "/nowhere"}, {"unknown": "/bin/sh"}, {"mbw": "/etc"}])
def test_pointing_at_nothing_is_bad_usage(pointed: dict[str, str]) -> None:
    with pytest.raises(InputError):
        peers.find_peers(pointed, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--only", "reads"],
        ["--only", ""],
        ["--alternations", "0"],
        ["--alternations", "many"],
        ["--peer", "multichase"],
        ["--peer", "multichase=/nowhere"],
        ["--peer", "mbw=/bin/sh", "--peer", "mbw=/bin/sh"],
        ["--json", "/nowhere/at/all.json"],
        ["--fast"],
        ["trailing"],
    ],
)
def test_bad_usage_is_refused_before_anything_runs(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "build", lambda _target: pytest.fail("nothing may be built"))
    done = CliRunner().invoke(peers.peers_command, arguments)
    assert done.exit_code == 2, done.output


def test_help_is_quick_and_starts_from_the_file_itself(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(CHECKOUT / "bench" / "peers.py"), "--help"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    assert "--alternations" in done.stdout


def test_the_document_has_every_quantity_also_where_nothing_was_measured(session: peers.Session) -> None:
    document = peers.document_of(session, ("read",), "interrupted")
    assert tuple(document["ratios"]) == peers.RATIOS
    for entry in document["ratios"].values():
        assert {"ours", "best_peer", "peer", "median_ratio", "spread"} <= set(entry)
        assert entry["ours"] is None
    assert document["ratios"]["read"]["reason"] == "interrupted before it"
    assert document["ratios"]["triad"]["reason"] == "not asked for"
    json.dumps(document, allow_nan=False)


def test_an_interruption_keeps_the_alternations_that_were_whole(
    session: peers.Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, theirs = printing(OURS, "ours", "300", "l1_cycles"), printing("mbw", "mbw", "200", "l1_cycles")
    runs: list[str] = []

    def run_and_stop(contender: Contender) -> dict[str, float]:
        runs.append(contender.label)
        if len(runs) == 4:
            raise KeyboardInterrupt
        return {"l1_cycles": 300.0 if contender.label == "ours" else 200.0}

    monkeypatch.setattr(peers, "_contenders", lambda *_: [ours, theirs])
    monkeypatch.setattr(peers, "figures_of", run_and_stop)
    target = tmp_path / "peers.json"
    assert peers._run(session, ("l1_cycles", "c2c"), target) == 4
    document = json.loads(target.read_text(encoding="utf-8"))
    assert document["stopped"] == "interrupted"
    assert document["also"]["l1_cycles"]["alternations"] == 1
    assert document["also"]["l1_cycles"]["median_ratio"] == 1.5
    assert document["also"]["c2c"]["reason"] == "interrupted before it"
    assert "l1_cycles" in capsys.readouterr().out


def test_a_signal_ends_the_peer_that_runs_and_leaves_a_document(tmp_path: Path) -> None:
    fake = tmp_path / "pma-jitter"
    fake.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec /bin/sleep 600\n", encoding="utf-8")
    fake.chmod(0o755)
    target = tmp_path / "peers.json"
    command = [sys.executable, str(CHECKOUT / "bench" / "peers.py"), "--only", "gap_step_ns", "--json", str(target)]
    environment = {**os.environ, "PATH": str(tmp_path), "CALIBRATION_PEERS": ""}
    pid_file = tmp_path / "pid"
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        # In a fresh clone it builds sutprobe first.
        while process.poll() is None and not (pid_file.exists() and pid_file.read_text(encoding="utf-8").strip()):
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate()
    assert process.returncode == 4, stderr
    assert ended(int(pid_file.read_text(encoding="utf-8")))
    document: dict[str, Any] = json.loads(target.read_text(encoding="utf-8"))
    assert document["stopped"] == "interrupted"
    assert document["ratios"]["gap_step_ns"]["ours"] is None
    assert "not compared: oslat" in stdout


def test_a_missed_target_is_said_and_fails_nothing(session: peers.Session) -> None:
    ours, theirs = printing(OURS, "ours", "100"), printing("bw_mem", "bw_mem rd", "200")
    measured = measured_of(ours, theirs)
    peers.alternate(session, "read", [ours, theirs], measured)
    session.entries["read"] = peers.entry_of("read", measured)
    session.refuse("mlc", None, "it is not there")
    text = peers.table_of(peers.document_of(session, ("read",), None))
    assert "target missed: read" in text
    assert "not compared: mlc: it is not there" in text


def test_locks_are_held_over_alternations_and_let_go_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lock"

    def free() -> bool:
        return subprocess.run(["flock", "-n", str(path), "true"], check=False).returncode == 0

    locks = peers.Locks([path])
    with locks.held():
        assert not free()
    assert not free()
    monkeypatch.setattr(peers, "HOLD_S", 0.0)
    with locks.held():
        assert not free()
    assert free()


def test_bandwidth_commands_ask_every_peer_for_the_same_bytes(machine: Machine) -> None:
    everywhere = {name: f"/peers/{name}" for name in contenders.PEERS}
    by_label = {
        each.label: each
        for quantity in peers.BANDWIDTHS
        for each in contenders.bandwidth_peers(machine, quantity, everywhere)
    }
    total = machine.total_bytes
    assert f"M0:{total // 1000}kB:2" in by_label["likwid-bench load_sse"].starts[0].command
    assert str(total // 2) in by_label["bw_mem rd"].starts[0].command
    assert str(total // 2 // 1024) in by_label["sc-membench read"].starts[0].command
    assert str(total // 4 // 1024) in by_label["sc-membench copy"].starts[0].command
    assert [start.cpus for start in by_label["mbw memcpy"].starts] == [(0,), (1,)]
    assert str(total // 4 >> 20) in by_label["mbw memcpy"].starts[0].command
    assert not any("avx512" in label or "fma" in label for label in by_label)


def test_copies_are_compared_in_the_bytes_the_bus_moves(machine: Machine) -> None:
    everywhere = {name: f"/peers/{name}" for name in contenders.PEERS}
    by_label = {each.label: each for each in contenders.bandwidth_peers(machine, "copy_bus", everywhere)}

    def figure(label: str, text: str) -> float:
        return by_label[label].figures["copy_bus"](contenders.Output(text, "", 1.0))

    likwid = "MByte/s:\t\t1000.00\n"
    assert figure("likwid-bench copy_sse", likwid) == 1500.0
    assert figure("likwid-bench copy_mem_sse", likwid) == 1000.0
    assert figure("bw_mem cp", "201.33 1000.00\n") == 3000.0
    assert figure("sc-membench copy", "1024,copy,1000.00,0,0,0,2,9,0.2\n") == pytest.approx(3000.0 * outputs.MIB)


def test_the_law_predicts_from_ours_and_the_caches_own_latency() -> None:
    samples = {"theirs 0.5": {"a": [4.0]}, "ours 2": {"b": [20.0]}, "theirs 2": {"c": [14.0]}}
    (row,) = peers.law_rows(samples, 1000)
    hits = 1 - 0.5**0.75
    assert row["hit_share"] == pytest.approx(hits)
    assert row["predicted_ns"] == pytest.approx(hits * 4 + (1 - hits) * 20)
    assert row["four_nodes_per_line_ns"] == 14.0


def test_this_machine_is_described(tmp_path: Path) -> None:
    machine = contenders.describe_machine(Path("/"), contenders.allowed_cpus(), 2e9)
    assert machine.cpus == tuple(sorted(os.sched_getaffinity(0)))
    assert machine.total_bytes % (len(machine.cpus) * 6 * (2 << 20)) == 0
    assert machine.total_bytes >= 8 * (machine.last_level_bytes or 0)
    assert sorted(cpu for _node, cpus in machine.nodes for cpu in cpus) == list(machine.cpus)
    assert json.dumps(machine.described)
    assert tmp_path.is_dir()


OURS_READ: list[tuple[str, Callable[[contenders.Output], float]]] = [
    ("jitter", contenders.our_turn),
    ("jitter", contenders.our_coverage),
    ("jitter", contenders.our_interruptions),
    ("idle_latency", contenders.our_latency),
    ("idle_latency", contenders.our_half_width),
    ("idle_latency", contenders.our_cycles),
    ("c2c_latency", contenders.our_transfer),
    ("max_bandwidth", lambda output: contenders.our_bandwidth(output, program=True)),
]


@pytest.mark.parametrize(("name", "figure"), OURS_READ)
def test_our_own_documents_are_read(name: str, figure: Callable[[contenders.Output], float]) -> None:
    text = (CHECKOUT / "tests" / "fixtures" / "sutprobe" / f"{name}.json").read_text(encoding="utf-8")
    assert figure(contenders.Output(text, "", 1.0)) > 0.0


def test_a_document_that_failed_is_not_read() -> None:
    text = (CHECKOUT / "tests" / "fixtures" / "sutprobe" / "jitter.json").read_text(encoding="utf-8")
    raw = json.loads(text)
    raw.update(status="failed", error={"code": "deadline", "message": "no time left"})
    with pytest.raises(NotComparedError, match="no time left"):
        contenders.our_turn(contenders.Output(json.dumps(raw), "", 1.0))
    with pytest.raises(NotComparedError):
        contenders.our_turn(contenders.Output("not JSON", "", 1.0))
