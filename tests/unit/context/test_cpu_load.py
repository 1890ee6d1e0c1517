# SPDX-License-Identifier: Apache-2.0
"""The load while the capture slept: from two snapshots to shares and names."""

import base64
import json

import pytest

from calibration.context.cpu_load import parse_cpu_counts, parse_used
from calibration.context.loader import load
from calibration.runner import capture
from tests.unit.context.test_capture import members


def stat_row(cpu, *, user=0, system=0, idle=0, irq=0, steal=0):
    return f"cpu{cpu} {user} 0 {system} {idle} 0 {irq} 0 {steal} 0 0\n"


def process(pid, name, ticks, cpu):
    before = " ".join(["S", "1", "1", "1", "0", "-1", "4194304", "0", "0", "0", "0"])
    after = " ".join(["0", "0", "20", "0", "1", "0", "100", "0", "0", "0"] + ["0"] * 12 + ["17"])
    return f"{pid} ({name}) {before} {ticks} 0 {after} {cpu} 0 0 0 0 0 0 0 0 0 0 0 0 0\n"


def snapshots(**said):
    return {
        "/proc/cpuinfo": "",
        "/capture.json": json.dumps(
            {"load": {"interval_s": 2.0, "processes_interval_s": 4.0, "ticks_per_s": 100, "own": [7], **said}}
        ),
        "/load/before/proc/stat": "cpu  1 2 3\n" + stat_row(0, user=100, idle=50) + stat_row(3, idle=10),
        "/load/after/proc/stat": "cpu  1 2 3\n"
        + stat_row(0, user=250, system=10, idle=70, irq=20)
        + stat_row(3, idle=200, steal=10)
        + "intr 5 6\n",
        "/load/before/proc/42/stat": process(42, "busy (loop) x", 100, 0),
        "/load/after/proc/42/stat": process(42, "busy (loop) x", 280, 0),
        "/load/after/proc/42/task/42/stat": process(42, "busy (loop) x", 280, 0),
        "/load/after/proc/42/task/4000001/stat": process(4000001, "worker", 90, 3),
        "/load/after/proc/42/task/44/stat": process(44, "never ran", 0, 9),
        "/load/after/proc/42/task/45/stat": process(45, "on no CPU", 5, -1),
        "/load/after/proc/4000002/stat": process(4000002, "young", 40, 3),
        "/load/before/proc/7/stat": process(7, "python3", 1, 0),
        "/load/after/proc/7/stat": process(7, "python3", 90, 0),
    }


def test_load_is_the_difference_of_two_readings(make_root):
    found = load(make_root(snapshots())).load
    assert [(cpu.cpu, cpu.busy, cpu.stolen) for cpu in found.cpus] == [(0, 0.9, 0.0), (3, 0.0, 0.05)]
    assert found.resolution == 0.005
    assert [(item.pid, item.name, item.share, item.cpus) for item in found.processes] == [
        (42, "busy (loop) x", 0.45, (0, 3)),
        (4000002, "young", 0.1, (3,)),
    ]


def test_decreasing_counter_is_not_load(make_root):
    files = snapshots()
    files["/load/before/proc/stat"], files["/load/after/proc/stat"] = (
        files["/load/after/proc/stat"],
        files["/load/before/proc/stat"],
    )
    assert [(cpu.busy, cpu.stolen) for cpu in load(make_root(files)).load.cpus] == [(0.0, 0.0), (0.0, 0.0)]


@pytest.mark.parametrize(
    "said", [{"interval_s": None}, {"interval_s": 0}, {"ticks_per_s": "100"}, {"processes_interval_s": -1.0}]
)
def test_no_interval_no_load(make_root, said):
    assert load(make_root(snapshots(**said))).load is None


def test_lists_reason_and_damage(make_root):
    files = snapshots(reason="not watched: too slow")
    files["/load/after/proc/stat"] = "cpu0 1 2 x\n"
    files["/load/after/proc/42/stat"] = "42 (half"
    context = load(make_root(files))
    assert context.load is None
    reasons = {damaged.path: damaged.reason for damaged in context.unreadable}
    assert reasons["/load"] == "not watched: too slow"
    assert reasons["/load/after/proc/stat"].startswith("unparsable: no rows such as")


def test_process_names_are_text(make_root):
    files = snapshots()
    files["/load/after/proc/42/stat"] = process(42, "\x1b[31m)\n S 1", 280, 0)
    assert load(make_root(files)).load.processes[0].name == "\\x1b[31m)\\n S 1"


@pytest.mark.parametrize("text", ["", "cpu 1 2 3\n", "cpu0\n", "cpu0 1 2\nintr"])
def test_old_kernels_have_fewer_counts(text):
    if "cpu0 " in text:
        assert parse_cpu_counts(text)[0].busy == 3
    else:
        with pytest.raises(ValueError, match="no rows"):
            parse_cpu_counts(text)


@pytest.mark.parametrize("text", ["", "1 init S 0", "1 (init) S 0 1", "1 (init) " + "x " * 50])
def test_invalid_row_is_an_error(text):
    with pytest.raises(ValueError, match="no"):
        parse_used(text)


def test_capture_keeps_only_busy_processes(make_root):
    root = make_root(
        {
            "/proc/stat": stat_row(0),
            "/proc/10/stat": process(10, "idle", 5, 0),
            "/proc/11/stat": process(11, "busy", 5, 0),
            "/proc/11/task/11/stat": process(11, "busy", 90, 0),
            "/proc/self/stat": process(13, "reader", 5, 0),
        }
    )

    def work(_seconds):
        (root / "proc/stat").write_text(stat_row(0, user=80))
        (root / "proc/11/stat").write_text(process(11, "busy", 90, 0))
        (root / "proc/self/stat").write_text(process(13, "reader", 90, 0))
        (root / "proc/12").mkdir()
        (root / "proc/12/stat").write_text(process(12, "new", 3, 0))

    result = capture.capture(str(root), sleep=work)
    kept = {name for name in members(result["archive"]) if name.startswith("load/")}
    assert kept == {
        "load/before/proc/stat",
        "load/after/proc/stat",
        "load/before/proc/11/stat",
        "load/after/proc/11/stat",
        "load/after/proc/11/task/11/stat",
        "load/after/proc/12/stat",
    }
    archive = root / "capture.tar.gz"
    archive.write_bytes(base64.b64decode(result["archive"]))
    assert {item.name for item in load(archive).load.processes} == {"busy", "new"}


def test_observation_is_bounded(make_root, monkeypatch):
    files = {f"/proc/{pid}/stat": process(pid, "p", pid, 0) for pid in range(10, 20)}
    root = make_root({"/proc/stat": stat_row(0), **files})
    watch = capture.LoadWatch(str(root), 0, lambda: 1, sleep=lambda _: None).watch()
    assert watch.files == {}
    assert watch.description()["reason"] == "not watched: the capture took longer than 60 s"

    def work(_seconds):
        for pid in range(10, 20):
            (root / f"proc/{pid}/stat").write_text(process(pid, "p", pid * 2, 0))

    monkeypatch.setattr(capture, "MAX_BUSY_PROCESSES", 3)
    watch = capture.LoadWatch(str(root), 2, lambda: 1, sleep=work).watch()
    assert sorted(path for path in watch.files if "after/proc/1" in path) == [
        f"/load/after/proc/{pid}/stat" for pid in (17, 18, 19)
    ]


def test_machine_without_counts(make_root):
    result = capture.capture(str(make_root({"/proc/cpuinfo": ""})), sleep=lambda _: None)
    assert result["capture"]["load"]["reason"] == "/proc/stat cannot be read"
    assert result["capture"]["load"]["interval_s"] is None
