# SPDX-License-Identifier: Apache-2.0
"""The comparison with stand-ins for peers; no value depends on time."""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench import contenders, outputs, peers
from bench.contenders import OURS, Contender, Machine, Start
from bench.outputs import NotComparedError
from calibration.errors import InputError

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture
def machine() -> Machine:
    return Machine((0, 1), ((0, (0, 1)),), "x86_64", frozenset({"avx"}), True, 768 << 20, 2e9, "a machine")


@pytest.fixture
def session(machine: Machine) -> peers.Session:
    return peers.Session(machine, "/bin/false", {}, 3, lambda _text: None)


def printing(peer: str, label: str, text: str, quantity: str = "read", code: int = 0) -> Contender:
    command = (sys.executable, "-c", f"import sys; print({text!r}); sys.exit({code})")
    return Contender(peer, label, (Start(command),), {quantity: lambda output: outputs.multichase(output.text)})


@pytest.fixture(name="measured")
def _measured(session: peers.Session, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Measure contenders that stand in for those of the first-level cache."""

    def measure(*of: Contender) -> None:
        monkeypatch.setattr(peers, "contenders_of", lambda *_: list(of))
        peers.measure(session, "l1_cycles")

    return measure


def test_ratios_come_from_both_outputs(session: peers.Session, measured: Callable[..., None]) -> None:
    measured(printing(OURS, "ours", "300"), printing("bw_mem", "bw_mem rd", "200"), printing("mbw", "mbw", "100"))
    made = session.compared["read"]
    assert (made.ours.value, made.peer, made.ratio) == (300.0, "bw_mem rd", (1.5, 1.5, 1.5))
    assert peers.rows_of(session) == [("Read bandwidth, MB/s", "300", "200", "bw_mem rd", "1.5 [1.5, 1.5]")]


def test_unpublishable_metrics_are_marked(session: peers.Session, measured: Callable[..., None]) -> None:
    measured(printing(OURS, "ours", "300"), printing("mlc", "mlc peak injection", "200"))
    assert peers.rows_of(session)[0][3] == "mlc peak injection (not for publication)"


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
    made = session.compared["read"]
    assert (made.ours.value, made.peer, made.ratio) == (300.0, None, None)
    (message,) = session.not_compared
    assert message.startswith("mbw: mbw memcpy, alternation 1: ")
    assert reason in message


def test_a_failure_of_sutprobe_has_no_value(session: peers.Session, measured: Callable[..., None]) -> None:
    measured(printing(OURS, "ours", "nonsense"))
    assert session.compared == {}
    assert "number: 'nonsense'" in session.not_compared[0]


def test_an_interruption_keeps_complete_alternations(
    session: peers.Session, measured: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[str] = []

    def run_and_stop(contender: Contender) -> dict[str, float]:
        runs.append(contender.label)
        if len(runs) == 4:
            raise KeyboardInterrupt
        return {"read": 300.0 if contender.label == "ours" else 200.0}

    monkeypatch.setattr(peers, "values_of", run_and_stop)
    with pytest.raises(KeyboardInterrupt):
        measured(printing(OURS, "ours", ""), printing("mbw", "mbw", ""))
    assert session.compared["read"].ratio == (1.5, 1.5, 1.5)


def test_scouting_keeps_the_best_of_each_peer_and_all_close_to_the_best(session: peers.Session) -> None:
    offered = [
        printing("likwid-bench", "fast", "100"),
        printing("likwid-bench", "as fast", "95"),
        printing("likwid-bench", "slow", "50"),
        printing("mbw", "only one", "10"),
        printing("bw_mem", "broken", "none"),
    ]
    assert [item.label for item in peers.scout(session, "read", offered)] == ["fast", "as fast", "only one"]
    assert [line.partition(":")[0] for line in session.not_compared] == ["bw_mem"]


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
    [["--only", "reads"], ["--alternations", "0"], ["--peer", "multichase"], ["--peer", "multichase=/nowhere"]],
)
def test_bad_usage_is_refused_before_anything_runs(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "build", lambda _target: pytest.fail("nothing may be built"))
    assert CliRunner().invoke(peers.peers_command, arguments).exit_code == 2


def test_bandwidth_peers_use_the_same_bytes(machine: Machine) -> None:
    everywhere = {name: f"/peers/{name}" for name in contenders.PEERS}
    by_label = {
        peer.label: peer
        for quantity in peers.BANDWIDTHS
        for peer in contenders.bandwidth_peers(machine, quantity, everywhere)
    }
    total = machine.total_bytes
    assert f"M0:{total // 1000}kB:2" in by_label["likwid-bench load_sse"].starts[0].command
    assert str(total // 2) in by_label["bw_mem rd"].starts[0].command
    assert str(total // 2 // 1024) in by_label["sc-membench read"].starts[0].command
    assert str(total // 4 // 1024) in by_label["sc-membench copy"].starts[0].command
    assert [start.cpus for start in by_label["mbw memcpy"].starts] == [(0,), (1,)]
    assert str(total // 4 >> 20) in by_label["mbw memcpy"].starts[0].command
    assert not any("avx512" in label or "fma" in label for label in by_label)


def test_copies_are_compared_in_bus_bytes(machine: Machine) -> None:
    everywhere = {name: f"/peers/{name}" for name in contenders.PEERS}
    by_label = {peer.label: peer for peer in contenders.bandwidth_peers(machine, "copy_bus", everywhere)}

    def value(label: str, text: str) -> float:
        return by_label[label].metrics["copy_bus"](contenders.Output(text, "", 1.0))

    likwid = "MByte/s:\t\t1000.00\n"
    assert value("likwid-bench copy_sse", likwid) == 1500.0
    assert value("likwid-bench copy_mem_sse", likwid) == 1000.0
    assert value("bw_mem cp", "201.33 1000.00\n") == 3000.0
    assert value("sc-membench copy", "1024,copy,1000.00,0,0,0,2,9,0.2\n") == pytest.approx(3000.0 * outputs.MIB)


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
    ("max_bandwidth", lambda output: contenders.our_bandwidth(output, program=True)),
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
