# SPDX-License-Identifier: Apache-2.0
"""A run on a SUT, however it ends: what was measured is kept, the settings are restored, nothing stays."""

import base64
import fcntl
import hashlib
import io
import json
import os
import platform
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from calibration.runner import client, worker
from calibration.runner.alone import KEPT as ALONE
from calibration.runner.bundle import packed
from calibration.runner.directory import Directory
from calibration.runner.files import Refused
from tests.suts import (
    EVERYTHING,
    MSR,
    NO_TURBO,
    ONLINE,
    PATIENCE_S,
    Run,
    Sut,
    changed,
    gone,
    peek,
    runners,
    stat_of,
    step,
    wait_until,
)
from tests.tools import require_root

pytestmark = pytest.mark.timeout(300)

SLEEP = Path("/bin/sleep").read_bytes()


def waiting(sut: Sut, name: str = "begun", more: str = "") -> bytes:
    """Return a program that makes the file *name* and measures for long."""
    return f"#!/bin/sh\n{more}\n: >{sut.base}/../{name}\nexec sleep 600\n".encode()


def writing(program: bytes) -> dict[str, Any]:
    """Return how an operator's *program* that may write registers is run."""
    sha256 = hashlib.sha256(program).hexdigest()
    return {"kept": ["sys_rawio"], "max_bytes": 1000, "watch_prefetchers": True, "sha256": sha256}


def await_step(sut: Sut, name: str = "begun") -> None:
    wait_until((sut.directory / name).exists)


def measuring(sut: Sut, **options: Any) -> Run:
    """Return a run that changed everything, measured the step ``first`` and measures the step ``long``."""
    run = sut.start(**{"settings": EVERYTHING, **options})
    run.begin(step("first"), step("long", "long"), step("last"), long=waiting(sut))
    await_step(sut)
    return run


def kinds(records: list[dict[str, Any]]) -> list[tuple[str, Any, Any]]:
    """Return what was recorded but what the machine counted (``test_health.py``)."""
    wanted = (record for record in records if record["record"] != "health")
    return [(record["record"], record.get("id"), record.get("rc")) for record in wanted]


def values(records: list[dict[str, Any]], name: str) -> set[Any]:
    (restored,) = [record for record in records if record["record"] == "restored"]
    return {change[name] for change in restored["changes"]}


# The normal end


def test_a_run_measures_as_asked_restores_everything_and_leaves_nothing(sut: Sut) -> None:
    before = sut.settings()
    run = sut.start(settings=EVERYTHING)
    assert run.path.parent == sut.base
    assert run.path.stat().st_mode & 0o7777 == 0o1700  # others see that settings are changed, and cannot enter
    assert {change["setting"] for change in run.answer["changes"]} == set(EVERYTHING)
    tuned = sut.settings()
    probe = f'#!/bin/sh\ncat {sut.file(NO_TURBO)}; echo "$@" >&2; exit "$2"\n'
    run.begin(step("one", "sutprobe", "x y", "0"), step("two", "sutprobe", "z", "7"), sutprobe=probe.encode())
    state, records = run.follow()
    assert state == "ended"
    assert kinds(records) == [("step", "one", 0), ("step", "two", 7), ("done", None, None), ("restored", None, None)]
    one = records[0]
    assert (one["stdout"], one["stderr"], one["fault"]) == ("1", "x y 0\n", None)
    assert 0 <= one["began_s"] <= one["at_s"] <= records[1]["began_s"]
    assert tuned != before
    assert sut.settings() == before
    assert values(records, "restored_by") == {"run"}
    assert values(records, "restored") == values(records, "before")
    assert run.path.stat().st_mode & 0o7777 == 0o700
    assert sut.ask("find", str(sut.base), "run1", "sut1")[0]["found"] == [
        {"directory": str(run.path), "boot_id": run.answer["boot_id"], "planned": True}
    ]
    sut.start("run2").remove()  # the SUT is free
    assert run.remove()["faults"] == []
    wait_until(lambda: sut.left() == [])
    assert run.remove()["faults"] == []


def test_results_that_nobody_collects_are_removed(sut: Sut) -> None:
    sut.start(keep_s=0.5, settings=EVERYTHING).begin(step("one"))
    wait_until(lambda: sut.left() == [])


def test_results_of_a_long_run_are_kept_as_long_as_it_took(sut: Sut) -> None:
    sut.modules = changed(sut.modules, "keeper", "time.monotonic() - began", "3600.0")
    run = sut.start(keep_s=0.0).begin(step("one"))
    assert run.follow()[0] == "ended"
    assert sut.left() != []
    run.remove()
    wait_until(lambda: sut.left() == [])


def test_a_run_without_a_plan_gives_the_sut_back(sut: Sut) -> None:
    before = sut.settings()
    sut.start(wait_s=0.5, keep_s=0.0, settings=EVERYTHING)
    wait_until(lambda: sut.left() == [])
    assert sut.settings() == before


def outlast(sut: Sut, wait_s: float, sign: Callable[[], object]) -> None:
    """Give a *sign* again and again until a run without any has waited *wait_s* for its plan, and has given up."""
    other = sut.start("clock", wait_s=wait_s, keep_s=0.0, lock=f"{sut.lock}-clock")

    def ended() -> bool:
        sign()
        return not other.path.exists()

    wait_until(ended)


def test_a_controller_that_still_receives_the_answer_is_waited_for(sut: Sut) -> None:
    sut.modules = changed(sut.modules, "client", "b64encode(stream.read())", "b64encode(bytes(1 << 18))")
    starting = sut.popen("start", str(sut.base), json.dumps(sut.job(wait_s=5.0)))
    fcntl.fcntl(starting.stdout, fcntl.F_SETPIPE_SZ, 4096)
    wait_until(lambda: list(sut.base.glob("*/answer.json")))
    answer: list[bytes] = []
    outlast(sut, 5.0, lambda: answer.append(os.read(starting.stdout.fileno(), 512)))
    assert starting.poll() is None
    answer.append(starting.communicate(timeout=PATIENCE_S)[0])
    run = Run(sut, json.loads(b"".join(answer)))
    assert run.begin(step("one")).follow()[0] == "ended"


def test_a_controller_that_still_sends_the_plan_is_waited_for(sut: Sut) -> None:
    run = sut.start(wait_s=5.0)
    plan = io.BytesIO(packed({"plan.json": json.dumps({"steps": [step("one")], "programs": {}}).encode()}))
    with sut.popen("begin", str(run.path), stdin=subprocess.PIPE, bufsize=0) as sending:
        outlast(sut, 5.0, lambda: sending.stdin.write(plan.read(1)))
        answer = sending.communicate(plan.read(), timeout=PATIENCE_S)[0]
    assert "refused" not in json.loads(answer)
    assert run.follow()[0] == "ended"


def test_a_controller_that_falls_silent_while_it_receives_the_answer_frees_the_sut(sut: Sut) -> None:
    before = sut.settings()
    job = sut.job(wait_s=0.5, keep_s=0.0, settings=EVERYTHING)
    with sut.popen("start", str(sut.base), json.dumps(job)) as starting:
        fcntl.fcntl(starting.stdout, fcntl.F_SETPIPE_SZ, 4096)
        wait_until(lambda: list(sut.base.glob("*/answer.json")))
        wait_until(lambda: list(sut.base.iterdir()) == [])
        assert sut.settings() == before
        sut.start("run2")  # the SUT is free
        assert starting.poll() is None
        starting.kill()


def test_a_controller_that_falls_silent_while_it_sends_the_plan_frees_the_sut(sut: Sut) -> None:
    before = sut.settings()
    run = sut.start(wait_s=5.0, keep_s=0.0, settings=EVERYTHING)
    with sut.popen("begin", str(run.path), stdin=subprocess.PIPE) as sending:
        answer = json.loads(sending.stdout.readline())
        assert answer["refused"] == client.PLANLESS
        wait_until(lambda: sut.left() == [])
    assert sut.settings() == before


@pytest.mark.parametrize("lost", ["its end", "its connection"])
def test_a_controller_that_is_lost_while_it_receives_the_answer_frees_the_sut(sut: Sut, lost: str) -> None:
    before = sut.settings()
    killed = lost == "its end"
    job = sut.job(wait_s=1.0 if killed else 3600.0, keep_s=0.0, settings=EVERYTHING)
    with sut.popen("start", str(sut.base), json.dumps(job)) as starting:
        fcntl.fcntl(starting.stdout, fcntl.F_SETPIPE_SZ, 4096)
        wait_until(lambda: list(sut.base.glob("*/answer.json")))
        if killed:
            starting.kill()
        else:
            starting.stdout.close()
        wait_until(lambda: sut.left() == [])
    assert sut.settings() == before


def test_the_runner_sleeps_and_keeps_off_isolated_cpus_while_sutprobe_measures(sut: Sut) -> None:
    run = measuring(sut)
    keeper, work = run.processes()[:2]

    def switches() -> list[str]:
        text = "".join(Path(f"/proc/{process}/status").read_text() for process in (keeper, work))
        return [line for line in text.splitlines() if "ctxt_switches" in line]

    wait_until(lambda: [stat_of(process)[0] for process in (keeper, work)] == ["S", "S"])
    time.sleep(0.5)
    asleep = switches()
    time.sleep(2)
    assert switches() == asleep
    run.kill(keeper, work)


def test_sutprobe_has_the_logins_cpus_and_is_ended_first_if_memory_runs_out(
    sut: Sut, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[set[int]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cpus: asked.append(cpus))
    worker.keep_off_measured_cpus(sut.machine)
    assert asked == []
    sut.put("/sys/devices/system/cpu/isolated", "1\n")
    sut.put("/sys/devices/system/cpu/nohz_full", "2-3\n")
    worker.keep_off_measured_cpus(sut.machine)
    assert asked == [{0}]
    sut.put("/sys/fs/cgroup/cpuset.cpus.isolated", "0-3\n")  # a login in a partition has no others
    worker.keep_off_measured_cpus(sut.machine)
    assert asked == [{0}, {3}]
    sut.put("/sys/fs/cgroup/cpuset.cpus.isolated", "\n")
    monkeypatch.undo()
    cpus = os.sched_getaffinity(0)
    sut.put("/sys/devices/system/cpu/isolated", "0\n")  # the runner leaves it
    probe = (
        b"#!/usr/bin/env python3\nimport os\nprint(os.sched_getaffinity(0), open('/proc/self/oom_score_adj').read())\n"
        b"print(os.sched_getaffinity(os.getppid()))"
    )
    _, records = sut.start().begin(step("one"), sutprobe=probe).follow()
    assert records[0]["stdout"].split("\n") == [f"{cpus} 1000", "", f"{cpus - {0, 2, 3} or cpus}", ""]


def test_steps_run_where_the_kernel_refuses_to_choose_cpus(sut: Sut) -> None:
    sut.modules = changed(sut.modules, "processes", "sched_setaffinity(0, affinity)", "sched_setaffinity(0, {8000})")
    _, records = sut.start().begin(step("one")).follow()
    assert kinds(records)[0] == ("step", "one", 0)


# One run at a time


def test_a_second_run_is_refused_with_the_holder_and_a_remedy(sut: Sut) -> None:
    run = measuring(sut)
    before = sut.settings()
    with pytest.raises(Refused) as refused:
        sut.start("run2", settings={"turbo": "on"})
    text = str(refused.value)
    assert "reserved by run run1 of somebody@there for t1-sut1 since 2026-11-21T03:27:12Z (step 2 of 3: long)" in text
    assert refused.value.run_id == "run1"
    assert sut.settings() == before
    assert [path.name for path in sut.base.iterdir()] == [run.path.name]
    facts, _ = sut.ask("facts", str(sut.base), sut.lock)
    assert "run run1 of somebody@there" in facts["holder"]
    assert facts["holder_run_id"] == "run1"


def test_a_rehearsal_is_refused_like_a_start_and_changes_nothing(sut: Sut) -> None:
    def refusals(**options: Any) -> list[str]:
        asked = json.dumps(sut.job("run2", asked=[], **options))
        found = []
        for question in ("rehearse", "start"):
            with pytest.raises(Refused) as refused:
                sut.ask(question, str(sut.base), asked)
            found.append(re.sub(r"; nothing was changed.*", "", str(refused.value)))
        return found

    before = sut.settings()
    for options in ({"settings": {"governor": "userspace"}}, {"settings": {"hugepages_2m": {"7": 1}}}):
        assert len(set(refusals(**options))) == 1
    with closing(socket.socket(socket.AF_UNIX)) as silent:
        silent.bind(f"\0{sut.lock}")
        rehearsed, started = refusals()
        assert rehearsed == started
        assert "says nothing" in started
    assert sut.left() == []
    sut.file("/proc/cpuinfo").rename(sut.directory / "cpuinfo")
    assert len(set(refusals(settings={"prefetchers": "off"}))) == 1
    (sut.directory / "cpuinfo").rename(sut.file("/proc/cpuinfo"))
    run = measuring(sut)
    changed_by_it = sut.settings()
    rehearsed, started = refusals()
    assert rehearsed == started
    assert "reserved by run run1 of somebody@there for t1-sut1" in started
    run.kill(*run.processes()[:2])
    answer, _ = sut.ask("rehearse", str(sut.base), json.dumps(sut.job("run2", asked=[])))
    assert answer["left"] == "8 settings that run run1 left changed are restored first"
    assert answer["capture"]
    assert sut.settings() == changed_by_it != before
    assert [path.name for path in sut.base.iterdir()] == [run.path.name]


def test_one_of_simultaneous_runs_restores_what_a_killed_one_left(sut: Sut) -> None:
    before = sut.settings()
    dead = measuring(sut)
    dead.kill(*dead.processes()[:2])
    assert sut.settings() != before
    starting = [sut.popen("start", str(sut.base), json.dumps(sut.job(f"next{number}"))) for number in range(4)]
    answers = [json.loads(process.communicate()[0]) for process in starting]
    (held,) = [answer for answer in answers if "refused" not in answer]
    assert all("reserved by run next" in answer["refused"] for answer in answers if "refused" in answer)
    assert held["taken_over"]["holder"]["run_id"] == "run1"
    assert held["taken_over"]["why"] == "its runner was killed"
    assert {change["restored_by"] for change in held["taken_over"]["changes"]} == {"cleanup"}
    assert sut.settings() == before
    assert {path.name for path in sut.base.iterdir()} == {dead.path.name, Path(held["directory"]).name}


def another(sut: Sut, way: str) -> dict[str, Any]:
    """Return options of a run that does not see the lock of others by its name."""
    if way == "name":
        return {"lock": f"{sut.lock}-other"}
    require_root()
    python = sut.directory / "python"
    python.write_text(f'#!/bin/sh\nexec unshare --net {sut.python} "$@"\n')
    python.chmod(0o755)
    sut.python = str(python)
    return {}


@pytest.mark.parametrize("way", ["name", "container"])
def test_a_run_that_changed_settings_is_not_taken_for_dead_by_one_that_does_not_see_its_lock(
    sut: Sut, way: str
) -> None:
    before = sut.settings()
    run = measuring(sut)
    tuned, journal, other = sut.settings(), (run.path / "journal").read_bytes(), another(sut, way)
    for number in range(2):
        with pytest.raises(Refused, match="in use by run run1 of somebody@there for t1-sut1 since 2026") as refused:
            sut.start(f"next{number}", **other)
        assert refused.value.run_id == "run1"
    assert sut.settings() == tuned
    assert (run.path / "journal").read_bytes() == journal
    assert run.watch()[0] == "running"
    run.kill(*run.processes()[:2])
    assert sut.start("run2", **other).answer["taken_over"]["holder"]["run_id"] == "run1"
    assert sut.settings() == before


def test_settings_are_not_changed_beside_a_run_at_work(sut: Sut) -> None:
    before = sut.settings()
    run, other = measuring(sut, settings={}), another(sut, "name")
    with pytest.raises(Refused, match="in use by run run1"):
        sut.start("run2", settings={"turbo": "off"}, **other)
    beside = sut.start("run2", **other).begin(
        step("off", prefetchers="off"),
        step("tool", "tool", confined=writing(b"#!/bin/sh\n")),
        step("last"),
        tool=b"#!/bin/sh\n",
    )
    _, records = beside.follow()
    assert kinds(records)[:3] == [("refused", "off", None), ("step", "tool", None), ("step", "last", 0)]
    assert "cannot be started: the SUT is in use by run run1" in records[1]["fault"]
    assert "could not be switched off: the SUT is in use by run run1" in records[0]["reason"]
    assert sut.settings() == before
    run.cancel()
    sut.start("run3", settings={"turbo": "off"}, **other)  # ended runs are in nobody's way


def test_settings_are_changed_more_than_once_beside_a_run_that_is_kept(sut: Sut) -> None:
    assert sut.start().begin(step("one")).follow()[0] == "ended"
    plan = [step("off", prefetchers="off"), step("on"), step("off again", prefetchers="off")]
    _, records = sut.start("run2", settings={"turbo": "off"}).begin(*plan).follow()
    told = [(record["record"], record["id"]) for record in records if record["record"] in ("step", "refused")]
    assert told == [("step", "off"), ("step", "on"), ("step", "off again")]


def test_the_record_names_the_field_that_an_answer_lacks(sut: Sut) -> None:
    known = {"rounds": 2, "more_rounds": 1, "target_half_width": 0.1, "figures": ["result", "points", "*", "ns"]}
    program = b"""#!/bin/sh\necho '{"result": {"points": [{"ns": [1.0]}, {"NS": [1.0]}]}}'\n"""
    _, records = sut.start().begin(step("a", **known), sutprobe=program).follow()
    assert [record["lacks"] for record in records if record["record"] == "step"] == ["result.points.1.ns"] * 2


@pytest.mark.parametrize("chosen", ["[3, 17]", "null"])
def test_what_a_search_chooses_is_measured_and_nothing_where_it_fails(sut: Sut, chosen: str) -> None:
    choice = {"step": "search", "field": ["result", "chosen"], "option": "--only"}
    program = b"""#!/bin/sh\necho '{"result": {"chosen": %s}}'; echo "$*" >&2\n""" % chosen.encode()
    plan = [step("a", rounds=2, choice=choice), step("search")]
    _, records = sut.start().begin(*plan, sutprobe=program).follow()
    told = [(record["record"], record["id"], record.get("stderr") or record.get("reason")) for record in records[:3]]
    search = ("step", "search", "search\n")
    measured = ("step", "a", "a --only 3,17\n") if chosen != "null" else ("refused", "a", "its search, search, failed")
    assert told == [search, measured, measured]


@pytest.mark.parametrize("killed", [False, True])
def test_a_run_of_another_machine_that_shares_the_directory_is_left_alone(sut: Sut, killed: bool) -> None:
    run = measuring(sut, keep_s=0.0)
    if killed:
        run.kill(*run.processes()[:2])
    job = json.loads((run.path / "job.json").read_text())
    job |= {"boot_id": "11111111-2222-3333-4444-555555555555", "nodename": "elsewhere"}
    (run.path / "job.json").write_text(json.dumps(job))
    journal = (run.path / "journal").read_bytes()
    assert sut.start("run2", **another(sut, "name")).answer["taken_over"] is None
    assert (run.path / "journal").read_bytes() == journal


def test_a_directory_without_locks_is_refused(sut: Sut) -> None:
    sut.modules = changed(
        sut.modules, "directory", "fcntl.flock(descriptor, ", "raise OSError(38, 'Function not implemented')  # "
    )
    with pytest.raises(Refused, match=r"no file can be locked in .* \(Function not implemented\): set "):
        sut.start(settings=EVERYTHING)
    wait_until(lambda: sut.left() == [])


# Other ends


@pytest.mark.parametrize("stubborn", ["", "trap '' TERM"], ids=["", "ignores SIGTERM"])
def test_a_cancelled_run_restores_and_keeps_what_it_measured(sut: Sut, stubborn: str) -> None:
    before = sut.settings()
    run = sut.start(settings=EVERYTHING)
    run.begin(step("first"), step("long", "long"), step("last"), long=waiting(sut, more=stubborn))
    await_step(sut)
    run.cancel()
    assert sut.settings() == before
    state, records = run.follow()
    assert state == "ended"
    rc = -signal.SIGKILL if stubborn else -signal.SIGTERM
    assert kinds(records) == [
        ("step", "first", 0),
        ("step", "long", rc),
        ("cancelled", None, None),
        ("restored", None, None),
    ]
    assert records[1]["fault"] == "cancelled"
    run.cancel()
    assert run.follow()[0] == "ended"  # it is kept still
    sut.start("run2", settings=EVERYTHING)


def test_a_run_at_work_is_not_restored_by_others(sut: Sut) -> None:
    run = measuring(sut)
    tuned = sut.settings()
    with sut.popen("restore", str(run.path)) as restoring:
        restoring.communicate(timeout=PATIENCE_S)
    assert sut.settings() == tuned
    assert run.watch()[0] == "running"


def test_a_run_is_cancelled_while_it_waits_for_its_plan(sut: Sut) -> None:
    before = sut.settings()
    run = sut.start(settings=EVERYTHING)
    run.cancel()
    assert sut.settings() == before
    assert run.remove()["faults"] == []
    wait_until(lambda: sut.left() == [])


def test_the_end_of_a_login_does_not_end_the_run(sut: Sut) -> None:
    run = measuring(sut)
    for process in run.processes()[:2]:
        for number in (signal.SIGHUP, signal.SIGINT):
            os.kill(process, number)
    assert run.watch()[0] == "running"
    assert not gone(run.processes()[0])
    run.cancel()


def test_removing_a_run_that_measures_ends_and_restores_it(sut: Sut) -> None:
    before = sut.settings()
    measuring(sut).remove()
    assert sut.settings() == before
    wait_until(lambda: sut.left() == [])


KILLED: dict[str, tuple[Callable[[list[int]], list[int]], str, list[tuple[str, Any, Any]]]] = {
    "worker": (
        lambda all_of: all_of[1:2],
        "ended",
        [("step", "first", 0), ("lost", None, None), ("restored", None, None)],
    ),
    "keeper": (
        lambda all_of: all_of[:1],
        "dead",
        [("step", "first", 0), ("step", "long", -15), ("cancelled", None, None), ("restored", None, None)],
    ),
    "keeper and worker": (lambda all_of: all_of[:2], "dead", [("step", "first", 0)]),
    "all": (lambda all_of: all_of, "dead", [("step", "first", 0)]),
    "sutprobe": (
        lambda all_of: all_of[2:],
        "ended",
        [
            ("step", "first", 0),
            ("step", "long", -9),
            ("step", "last", 0),
            ("done", None, None),
            ("restored", None, None),
        ],
    ),
}


def test_a_directory_that_another_process_removes_meanwhile_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Directory.create(str(tmp_path), {"run_id": "run1", "sut": "sut1"}) as made:
        listdir = os.listdir

        def meanwhile(path: str) -> list[str]:
            names = listdir(path)
            monkeypatch.setattr(os, "listdir", listdir)
            with Directory(made.path) as other:
                other.remove()
            return names

        monkeypatch.setattr(os, "listdir", meanwhile)
        made.remove()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("chosen", "state", "expected"), KILLED.values(), ids=KILLED)
def test_sigkill_of_any_process_loses_nothing_and_leaves_nothing(
    sut: Sut, chosen: Callable[[list[int]], list[int]], state: str, expected: list[tuple[str, Any, Any]]
) -> None:
    before = sut.settings()
    run = measuring(sut)
    all_of = run.processes()
    assert len(all_of) == 3
    run.kill(*chosen(all_of))
    found, records = run.follow()
    if state == "dead":
        wait_until(lambda: runners(sut) == [])
    assert (found, kinds(records)) == (state, expected)
    removed = run.remove()
    assert removed["faults"] == []
    if expected[-1][0] == "restored":
        assert sut.settings() == before
    who = "run" if expected[-1][0] == "restored" else "cleanup"
    assert {change["restored_by"] for change in removed["changes"]} == {who}
    assert {change["setting"] for change in removed["changes"]} == set(EVERYTHING)
    assert sut.settings() == before
    wait_until(lambda: sut.left() == [])


def test_the_next_run_ends_what_a_killed_one_left_running(sut: Sut) -> None:
    run = sut.start(settings=EVERYTHING)
    # It leaves its process group, and does not die with its parent.
    leave = f"{sys.executable} -c 'import os, sys; os.setsid(); os.execv(sys.argv[1], sys.argv[1:])'"
    run.begin(step("long", "long"), long=waiting(sut, more=f"{leave} ${{0%/*}}/orphan 600 &"), orphan=SLEEP)
    await_step(sut)
    run.kill(*run.processes()[:2])
    wait_until(lambda: len(runners(sut)) == 1)  # the step dies with its parent, a moment later
    (orphan,) = runners(sut)
    sut.start("run2")
    wait_until(lambda: gone(orphan))


def test_settings_are_not_restored_after_a_reboot(sut: Sut) -> None:
    run = measuring(sut)
    run.kill(*run.processes()[:2])
    job = json.loads((run.path / "job.json").read_text())
    (run.path / "job.json").write_text(json.dumps({**job, "boot_id": "11111111-2222-3333-4444-555555555555"}))
    rebooted = sut.settings()  # what the machine came up with
    answer = sut.start("run2").answer
    assert answer["taken_over"]["why"] == "the SUT was restarted"
    assert sut.settings() == rebooted
    assert {change["restored_by"] for change in answer["taken_over"]["changes"]} == {None}
    assert kinds(run.follow()[1])[:1] == [("step", "first", 0)]


def test_what_cannot_be_restored_keeps_the_sut_refused_until_it_can(sut: Sut) -> None:
    run = sut.start(settings={"prefetchers": "off", "turbo": "off"})
    register = sut.file(MSR % 1)
    register.rename(register.with_name("away"))
    sut.put(ONLINE, "0\n")
    run.begin(step("one"))
    state, records = run.follow()
    assert state == "ended"
    fault = {
        "setting": "prefetchers",
        "where": "/dev/cpu/1/msr:0x1a4",
        "wanted": "0x40",
        "found": None,
        "error": "its CPUs are offline: put them online",
    }
    assert records[-1]["faults"] == [fault]
    assert (sut.read(NO_TURBO), peek(sut.file(MSR % 0), 0x1A4)) == ("0", "40")
    assert run.remove()["faults"] == [fault]
    for _ in range(2):
        with pytest.raises(Refused, match=r"left on the SUT. Not restored: prefetchers at .* put them online") as left:
            sut.start("run2")
        assert left.value.faults == [fault]
    register.with_name("away").rename(register)
    sut.put(ONLINE, "1\n")
    assert sut.start("run2").answer["taken_over"]["holder"]["run_id"] == "run1"
    assert peek(register, 0x1A4) == "40"


def test_a_refused_change_leaves_nothing(sut: Sut) -> None:
    before = sut.settings()
    with pytest.raises(Refused, match="no governor ondemand"):
        sut.start(settings={"turbo": "off", "governor": "ondemand"})
    assert sut.settings() == before
    wait_until(lambda: sut.left() == [])


# Steps


def test_a_step_that_hangs_or_floods_or_is_missing_is_recorded_and_the_next_one_runs(sut: Sut) -> None:
    sut.modules = changed(sut.modules, "directory", "STEP_BYTES = 32 << 20", "STEP_BYTES = 100")
    run = sut.start().begin(
        step("hangs", "hangs", deadline_s=0.2),
        step("floods", "floods"),
        step("absent", "absent"),
        step("bytes", "bytes"),
        step("last"),
        grace_s=0.3,
        hangs=b"#!/bin/sh\necho some\nexec sleep 600\n",
        floods=b"#!/bin/sh\nexec yes\n",
        bytes=b"#!/bin/sh\nprintf 'a\\377\\033'\nprintf '\\377' >&2\n",
    )
    _, records = run.follow()
    assert [(record["id"], record["fault"]) for record in records[:5]] == [
        ("hangs", "late"),
        ("floods", "long"),
        ("absent", f"cannot be started: [Errno 2] No such file or directory: '{run.path}/absent'"),
        ("bytes", None),
        ("last", None),
    ]
    assert records[0]["stdout"] == "some\n"
    assert len(records[1]["stdout"]) == 100
    assert (records[3]["stdout"], records[3]["stderr"]) == ("a\\xff\x1b", "\\xff")
    assert records[0]["rc"] == -signal.SIGTERM
    assert records[0]["duration_s"] >= 0.5, "its own deadline, and the time beyond it"


def test_prefetchers_are_off_for_the_steps_that_ask_for_it_only(sut: Sut) -> None:
    before = sut.settings()
    shown = sut.file(MSR % 1)
    probe = f"#!/bin/sh\ndd if={shown} bs=1 skip=420 count=1 2>/dev/null | od -An -tx1\n".encode()
    plan = [step("on"), step("off", prefetchers="off"), step("off again", prefetchers="off"), step("on again")]
    run = sut.start(settings={"turbo": "off"})
    run.begin(*plan, sutprobe=probe)
    _, records = run.follow()
    assert [(record["id"], record["stdout"].strip()) for record in records if record["record"] == "step"] == [
        ("on", "40"),
        ("off", "4f"),
        ("off again", "4f"),
        ("on again", "40"),
    ]
    switched = [change for record in records if record["record"] == "switched" for change in record["changes"]]
    assert [(change["after"], change["restored"]) for change in switched] == [("0x4f", None), ("0x4f", "0x40")]
    assert values(records, "setting") == {"turbo"}
    assert sut.settings() == before
    run.remove()
    run = sut.start(prefetchers_ok=False)
    run.begin(*plan, sutprobe=probe)
    _, records = run.follow()
    assert kinds(records)[1:3] == [("refused", "off", None), ("refused", "off again", None)]
    assert records[1]["reason"] == "no consent to switch the prefetchers off"


def test_an_operators_program_is_confined_and_what_it_changes_is_restored(sut: Sut) -> None:
    before = sut.settings()
    register = sut.file(MSR % 0)
    tool = f"#!/bin/sh\ntouch here; pwd; echo err >&2; printf '\\000' | dd of={register} bs=1 seek=420 conv=notrunc\n"
    confined: dict[str, Any] = {"kept": ["sys_rawio"], "max_bytes": 1000, "merged": True, "watch_prefetchers": True}
    status = b"grep -E 'NoNewPrivs|CapEff|CapPrm' /proc/self/status\n"
    run = sut.start().begin(
        step("tool", "./tool", confined={**confined, "sha256": hashlib.sha256(tool.encode()).hexdigest()}),
        step("other", "tool", confined={**confined, "sha256": "0" * 64}),
        step(
            "script",
            "script",
            confined={
                "kept": [],
                "max_bytes": 1000,
                "interpreter": "/bin/sh",
                "sha256": hashlib.sha256(status).hexdigest(),
            },
        ),
        tool=tool.encode(),
        script=status,
    )
    _, records = run.follow()
    said = base64.b64decode(records[0]["stdout"]).decode().splitlines()
    assert Path(said[0]).parent == run.path
    assert not Path(said[0]).exists()
    assert said[1] == "err"
    driver, *places = records[0]["prefetchers"]["places"]
    assert driver["where"] == worker.DRIVER
    assert {(place["where"], place["after"], place["restored"]) for place in places} == {
        ("/dev/cpu/0/msr:0x1a4", "0x0", "0x40"),
        ("/dev/cpu/1/msr:0x1a4", "0x40", None),
    }
    assert records[1]["fault"].startswith("cannot be started: the program has sha256")
    rows = dict(line.split(":\t") for line in base64.b64decode(records[2]["stdout"]).decode().splitlines())
    assert rows == {"NoNewPrivs": "1", "CapEff": "0" * 16, "CapPrm": "0" * 16}
    assert sut.settings() == before


def test_what_an_operators_program_changed_is_restored_though_the_run_is_killed_meanwhile(sut: Sut) -> None:
    before = sut.settings()
    write = f"printf '\\000' | dd of={sut.file(MSR % 0)} bs=1 seek=420 conv=notrunc"
    tool = waiting(sut, more=write)
    run = sut.start().begin(step("tool", "tool", confined=writing(tool)), tool=tool)
    await_step(sut)
    assert sut.settings() != before
    run.kill(*run.processes())
    removed = run.remove()
    assert removed["faults"] == []
    assert sut.settings() == before


# Watching


def test_records_are_handed_over_from_any_line_and_in_batches(sut: Sut) -> None:
    sut.modules = changed(sut.modules, "client", "BATCH_BYTES = 8 << 20", "BATCH_BYTES = 700")
    run = sut.start().begin(*(step(f"step{number}", "sutprobe", "x" * 100 * number) for number in range(6)))
    state, records = run.follow()
    assert [record.get("id") for record in records[:6]] == [f"step{number}" for number in range(6)]
    assert kinds(records)[6:] == [("done", None, None)]
    lines = (run.path / "records.jsonl").read_bytes().splitlines(keepends=True)
    for first in range(len(lines) + 1):
        offset = sum(map(len, lines[:first]))
        state, batch = run.watch(offset, at_most_s=PATIENCE_S)
        assert b"".join(lines[first:]).startswith(batch)
        assert bool(batch) is (first < len(lines))
        assert state == ("ended" if offset + len(batch) == sum(map(len, lines)) else "running")


def test_a_watcher_is_woken_by_the_next_record(sut: Sut) -> None:
    go = sut.directory / "go"
    os.mkfifo(go)
    run = sut.start().begin(step("first"), step("second"), sutprobe=f"#!/bin/sh\ncat {go}\n".encode())
    asking = ("watch", str(run.path), "0", "0", "3600")
    watchers = [sut.popen(*asking) for _ in range(2)]
    with pytest.raises(subprocess.TimeoutExpired):
        watchers[0].wait(1)
    go.write_text("some")
    for watcher in watchers:
        answer, record = watcher.communicate(timeout=PATIENCE_S)[0].splitlines()
        assert json.loads(answer)["state"] == "running"
        assert json.loads(record)["id"] == "first"
    watcher = sut.popen("watch", str(run.path), str(len(record) + 1), "0", "3600")
    os.kill(watcher.pid, signal.SIGKILL)  # its connection is lost
    watcher.communicate()
    go.write_text("more")
    assert run.follow()[0] == "ended"


# A SUT that has no space left


def test_records_that_cannot_be_written_end_the_run_and_what_was_measured_is_kept(sut: Sut) -> None:
    before = sut.settings()
    limit = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))}
    run = sut.start(settings=EVERYTHING, popen=limit)
    run.begin(step("first"), step("large", "large"), step("last"), large=b"#!/bin/sh\nhead -c 3000000 /dev/zero\n")
    state, records = run.follow()
    assert state == "ended"
    assert kinds(records) == [("step", "first", 0), ("lost", None, None), ("restored", None, None)]
    assert records[-2]["reason"] == "the runner on the SUT failed: OSError: [Errno 27] File too large"
    assert sut.settings() == before


@pytest.mark.parametrize("limit", [10, 30_000])
def test_a_run_that_cannot_be_prepared_leaves_nothing(sut: Sut, limit: int) -> None:
    before = sut.settings()
    limited = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))}
    with pytest.raises(Refused, match="File too large"):
        sut.start(settings=EVERYTHING, popen=limited)
    assert sut.settings() == before
    wait_until(lambda: sut.left() == [])


def test_a_runner_that_cannot_even_answer_is_refused_with_the_reason(sut: Sut) -> None:
    sut.modules = changed(
        sut.modules,
        "worker",
        "def prepare(self):",
        "def prepare(self):\n        raise ValueError('no luck')\n\n    def old(self):",
    )
    with pytest.raises(Refused, match="the runner ended at once: ValueError: no luck"):
        sut.start(settings=EVERYTHING)
    wait_until(lambda: sut.left() == [])


def test_a_runner_that_does_not_begin_in_time_is_refused(sut: Sut) -> None:
    sut.modules = changed(sut.modules, "client", "START_S = 60.0", "START_S = 0.0")
    sut.modules = changed(sut.modules, "keeper", "os.umask(0o077)", "return")
    before = sut.settings()
    with pytest.raises(Refused, match=r"did not begin within 0 s: .* journalctl -u calibration-run1-sut1-[0-9a-f]{8}$"):
        sut.start(settings=EVERYTHING)
    assert sut.settings() == before
    wait_until(lambda: sut.left() == [])


def test_a_program_that_arrives_changed_is_refused(sut: Sut) -> None:
    run = sut.start()
    plan = {"steps": [step("one")], "programs": {"sutprobe": "0" * 64}}
    with pytest.raises(Refused, match=r"sutprobe on the SUT has sha256 .*, not 0000"):
        sut.ask("begin", str(run.path), content=packed({"plan.json": json.dumps(plan).encode(), "sutprobe": b"other"}))
    run.remove()
    with pytest.raises(Refused, match="no directory of a run"):
        run.begin(step("one"))


# Without a controller


def alone(sut: Sut, *steps: Any, probe: bytes = b"#!/bin/sh\n", **options: Any) -> subprocess.Popen[bytes]:
    """Start a run without a controller."""
    plan = sut.directory / "plan.json"
    plan.write_text(json.dumps({"steps": steps}))
    sut.modules = changed(sut.modules, "alone", '"lock": "calibration"', f'"lock": {sut.lock!r}')
    carried = {f"{platform.machine()}/sutprobe": probe, f"{platform.machine()}/build.json": b"{}"}
    return sut.popen(str(plan), carried=carried, cwd=sut.base, **options)  # type: ignore[no-any-return]


def test_runs_without_a_controller_leave_their_results_and_nothing_else(sut: Sut) -> None:
    kept: list[Path] = []
    for code, said in ((0, b"2 of 2"), (7, b"0 of 2")):
        with alone(sut, step("one"), step("two"), probe=b"#!/bin/sh\nexit %d\n" % code) as run:
            output = run.communicate(timeout=120)[0]
        assert said in output
        assert run.returncode == (0 if code == 0 else 1)
        kept.append(Path(output.decode().split()[-1]))
        del sut.modules
    assert {path.name for path in sut.base.iterdir()} == {path.name for path in kept}
    for path in kept:
        assert {item.name for item in path.iterdir()} == set(ALONE)
    first, second = (json.loads((path / "plan.json").read_text())["seed"] for path in kept)
    assert first != second


def test_a_run_without_a_controller_that_is_not_known_to_have_restored_the_sut_fails_and_says_so(sut: Sut) -> None:
    sut.modules = changed(sut.modules, "directory", "self.of_this_boot(machine):", "machine.breaks():")
    with alone(sut, step("one")) as run:
        measured, told = run.communicate(timeout=120)[0].decode().splitlines()
    assert measured.startswith("1 of 1 steps measured: ")
    path = measured.rpartition(": ")[2]
    assert told == f"Not restored: {path}: 'Machine' object has no attribute 'breaks'"
    assert run.returncode == 1
    assert json.loads(Path(path, "records.jsonl").read_text().splitlines()[-1])["faults"]


def test_a_run_without_a_controller_ends_at_ctrl_c_and_is_refused_while_another_runs(sut: Sut) -> None:
    with alone(sut, step("one"), step("two"), probe=waiting(sut)) as run:
        await_step(sut)
        with pytest.raises(Refused, match=r"reserved by run .* of nobody"):
            sut.start()
        run.send_signal(signal.SIGINT)
        output = run.communicate(timeout=PATIENCE_S)[0]
    assert b"0 of 2 steps" in output
    assert run.returncode == 1
    records = Path(output.decode().split()[-1], "records.jsonl").read_text().splitlines()
    assert [json.loads(line)["record"] for line in records] == ["step", "health", "cancelled"]


def test_a_run_without_a_controller_is_refused_and_leaves_nothing_while_another_runs(sut: Sut) -> None:
    held = sut.start()
    with alone(sut, step("one")) as run:
        assert "reserved by run run1" in json.loads(run.communicate(timeout=PATIENCE_S)[0])["refused"]
    assert [path.name for path in sut.base.iterdir()] == [held.path.name]
