# SPDX-License-Identifier: Apache-2.0
"""The three plays: what a SUT that cannot be measured leaves, that no SUT waits for another, and what resuming does."""

import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support import PATIENCE_S, TINY, TWO, Lab, begun, calibrate, inventory_of, load_plugin, processes_of, wait_until

from calibration.results.records import StepRecord, records
from calibration.results.store import read_run

END = load_plugin("callback", "calibration_end")

SLOW_SSH = """#!/bin/sh
# Stands for ssh to a SUT whose kernel answers only when it is let go.
[ "$1" = -V ] || [ "$#" -lt 3 ] && exit 0
for command; do :; done
case "$command" in
*sutprobe*latency*) touch {waiting}; while [ ! -e {let_go} ]; do sleep 0.2; done;;
esac
ulimit -S -d unlimited  # a SUT has not the bounds of its controller
exec /bin/sh -c "$command"
"""

STUCK_SSH = """#!/bin/sh
# Stands for ssh to a SUT whose second kernel never answers, the first time.
[ "$1" = -V ] || [ "$#" -lt 3 ] && exit 0
for command; do :; done
case "$command" in *sutprobe*latency*)
    echo started >> {log}
    if [ "$(grep -c started {log})" -eq 2 ]; then
        while [ ! -e {let_go} ]; do sleep 0.2; done
        exit 1
    fi;;
esac
ulimit -S -d unlimited  # a SUT has not the bounds of its controller
exec /bin/sh -c "$command"
"""

CUT_SSH = """#!/bin/sh
# Stands for ssh to a SUT whose link is cut under the second kernel that is started, once.
[ "$1" = -V ] || [ "$#" -lt 3 ] && exit 0
for command; do :; done
case "$command" in *sutprobe*latency*)
    echo started >> {log}
    if [ "$(grep -c started {log})" -eq 2 ]; then
        echo 'client_loop: send disconnect: Broken pipe' >&2
        exit 255
    fi;;
esac
ulimit -S -d unlimited  # a SUT has not the bounds of its controller
exec /bin/sh -c "$command"
"""


HASTY_SSH = """#!/bin/sh
# Stands for ssh that refuses the SUT's key, and that has, the first time, not ended yet when its input is closed.
[ "$1" = -V ] || [ "$#" -lt 3 ] && exit 0
if mkdir {log} 2>/dev/null; then
    exec 0<&-
    sleep 1
    exit 255
fi
echo 'Host key verification failed.' >&2
exit 255
"""


def over(lab: Lab, name: str, script: str, **places: Path) -> dict[str, Any]:
    """Return the variables of a SUT that is reached through a stand-in for ssh."""
    ssh = lab.directory / name
    ssh.write_text(script.format(**places))
    ssh.chmod(0o755)
    return {"ansible_connection": "ssh", "ansible_ssh_executable": str(ssh)}


def test_suts_that_cannot_be_measured_have_documents_and_pages_that_say_why(lab: Lab) -> None:
    hosts = {
        "broken": {"calibration_remote_base": str(lab.directory / "missing")},
        "lost": {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1},
        "hasty": over(lab, "hasty-ssh", HASTY_SSH, log=lab.directory / "hasty"),
        "good": {},
    }
    ended = calibrate(lab, inventory_of(lab, hosts))
    assert ended.rc == 3, ended.text
    found = {run.parts[-2]: read_run(run) for run in lab.runs()}
    assert {name: document.run.status for name, document in found.items()} == {
        "broken": "not_begun",
        "lost": "not_begun",
        "hasty": "not_begun",
        "good": "complete",
    }
    assert len({document.run.id for document in found.values()}) == 1
    (gone,) = found["lost"].not_measured
    assert "Connection refused" in gone.reason
    assert found["lost"].context is None
    (gone,) = found["hasty"].not_measured
    assert "Host key verification failed" in gone.reason
    (gone,) = found["broken"].not_measured
    assert "found nothing" in gone.reason
    assert [each.outcome for each in found["broken"].attempts[0].checks if each.effect == "blocking"].count("met") > 0
    for name in hosts:
        (page,) = lab.results.glob(f"{name}/{name}/*/report/page.rst")
        assert ("admonition:: Not measured: " in page.read_text(encoding="utf-8")) == (name != "good")
    assert "lost: Expected a complete run" in ended.text
    assert list(lab.remote.iterdir()) == []


def test_settings_that_are_wrong_write_nothing_and_outrank_the_rest(lab: Lab) -> None:
    hosts = {
        "wrong": {"calibration_profile": "thorough"},
        "broken": {"calibration_remote_base": str(lab.directory / "missing")},
    }
    ended = calibrate(lab, inventory_of(lab, hosts))
    assert ended.rc == 2, ended.text
    assert [run.parts[-2] for run in lab.runs()] == ["broken"]


def test_a_slow_sut_delays_nobody_else(lab: Lab) -> None:
    waiting, let_go = lab.directory / "waiting", lab.directory / "let-go"
    hosts = {"aslow": over(lab, "ssh", SLOW_SSH, waiting=waiting, let_go=let_go), "quick1": {}, "quick2": {}}
    command = [sys.executable, "-m", "calibration.cli", "run", "-i", str(inventory_of(lab, hosts))]
    log = lab.directory / "log"
    with begun(command, lab.environment(), log) as process:
        try:
            pages = [f"{name}/{name}/*/report/page.rst" for name in ("quick1", "quick2")]
            wait_until(lambda: all(list(lab.results.glob(page)) for page in pages), process, log)
            wait_until(waiting.exists, process, log)
            assert not list(lab.results.glob("aslow/*/*/run.json"))
        finally:
            let_go.touch()
        assert process.wait(PATIENCE_S) == 0, log.read_text(encoding="utf-8")
    assert {read_run(run).run.status for run in lab.runs()} == {"complete"}
    assert len(lab.runs()) == 3


def test_a_link_that_was_cut_for_a_moment_costs_no_figure(lab: Lab) -> None:
    log = lab.directory / "started"
    log.touch()
    hosts = {"sut1": over(lab, "ssh", CUT_SSH, log=log)}
    ended = calibrate(lab, inventory_of(lab, hosts, TWO), "-e", "measure_reconnect_s=30")
    (run_dir,) = lab.runs()
    assert ended.rc == 0, ended.text
    assert read_run(run_dir).run.status == "complete"
    steps = [each for each in records(run_dir) if isinstance(each, StepRecord)]
    assert [each.outcome for each in steps] == ["ok", "failed", "ok"]
    assert "Broken pipe" in str(steps[1].reason)
    assert list(lab.remote.iterdir()) == []


def test_a_run_is_resumed_where_it_was_cut_off_and_complete_suts_are_left_alone(lab: Lab) -> None:
    started, let_go = lab.directory / "started", lab.directory / "let-go"
    started.touch()
    hosts = {"done": {"calibration_profile": str(TINY)}, "cut": over(lab, "ssh", STUCK_SSH, log=started, let_go=let_go)}
    inventory = inventory_of(lab, hosts, TWO)
    log = lab.directory / "log"
    command = [sys.executable, "-m", "calibration.cli", "run", "-i", str(inventory)]
    with begun(command, lab.environment(), log) as process:
        try:
            wait_until(lambda: list(lab.results.glob("done/done/*/report/page.rst")), process, log)
            wait_until(lambda: started.read_text().count("started") == 2, process, log)
            os.killpg(process.pid, signal.SIGINT)
            code = process.wait(PATIENCE_S)
        finally:
            let_go.touch()
    assert code == 4, log.read_text(encoding="utf-8")
    (cut,) = lab.results.glob("cut/cut/*")
    (done,) = lab.results.glob("done/done/*")
    before = read_run(cut)
    assert before.run.status == "interrupted"
    kept = (done / "run.json").read_bytes()
    (first,) = before.measurements
    ended = calibrate(lab, inventory, "--resume")
    assert ended.rc == 0, ended.text
    assert "cut: 1 step," in ended.text
    assert "done: 1 step," not in ended.text
    document = read_run(cut)
    assert document.run.status == "complete"
    assert document.run.id == cut.name
    assert [each.kind for each in document.measurements] == ["idle_latency", "latency_matrix"]
    assert document.measurements[0] == first
    assert [each.ended for each in document.attempts] == ["it was interrupted", None]
    assert (done / "run.json").read_bytes() == kept
    assert lab.runs() == [cut, done]
    assert list(lab.remote.iterdir()) == []
    nothing = calibrate(lab, inventory, "--resume")
    assert nothing.rc == 2
    assert "something is missing" in nothing.text


def test_a_run_whose_controller_was_killed_is_resumed_on_the_sut_that_it_still_holds(lab: Lab) -> None:
    started, let_go = lab.directory / "started", lab.directory / "let-go"
    started.touch()
    inventory = inventory_of(lab, {"cut": over(lab, "ssh", STUCK_SSH, log=started, let_go=let_go)}, TWO)
    log = lab.directory / "log"
    command = [sys.executable, "-m", "calibration.cli", "run", "-i", str(inventory)]
    with begun(command, lab.environment(), log) as process:
        try:
            wait_until(lambda: started.read_text().count("started") == 2, process, log)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(PATIENCE_S)
        finally:
            let_go.touch()
    (reservation,) = lab.remote.glob("reservation-*")
    assert reservation.is_dir()
    ended = calibrate(lab, inventory, "--resume")
    assert ended.rc == 0, ended.text
    (run,) = lab.runs()
    assert read_run(run).run.status == "complete"
    assert list(lab.remote.iterdir()) == []


def test_a_sut_that_could_not_be_reached_begins_when_the_run_is_resumed(lab: Lab) -> None:
    lost = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
    assert calibrate(lab, inventory_of(lab, {"sut1": lost})).rc == 3
    (run_dir,) = lab.runs()
    ended = calibrate(lab, inventory_of(lab, {"sut1": {}}), "--resume", run_dir.name)
    assert ended.rc == 0, ended.text
    document = read_run(run_dir)
    assert document.run.status == "complete"
    assert [each.ended is None for each in document.attempts] == [False, True]
    assert processes_of(lab.remote) == []


@pytest.mark.parametrize("name", ["nightly", "../up"])
def test_a_run_that_does_not_exist_is_begun_or_refused(lab: Lab, name: str) -> None:
    ended = calibrate(lab, inventory_of(lab, {"sut1": {}}), "--resume", name, "--check")
    assert ended.rc == (2 if name == "../up" else 0), ended.text
    assert not lab.results.exists()


@pytest.mark.parametrize(("suts", "look_s"), [(1, 0.02), (8, 0.02), (100, 0.25)])
def test_the_controller_looks_at_its_workers_more_rarely_the_more_suts_there_are(
    suts: int, look_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(END.atexit, "register", lambda _function: None)
    monkeypatch.setattr(END.gc, "freeze", lambda: None)
    monkeypatch.setattr(END.C, "DEFAULT_INTERNAL_POLL_INTERVAL", 0.02)
    known = SimpleNamespace(get_vars=lambda **_: {"ansible_play_hosts_all": [f"sut{each}" for each in range(suts)]})
    plugin = END.CallbackModule()
    for _ in range(2):
        plugin.v2_playbook_on_play_start(SimpleNamespace(get_variable_manager=lambda: known))
        assert look_s == END.C.DEFAULT_INTERNAL_POLL_INTERVAL
