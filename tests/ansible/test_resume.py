# SPDX-License-Identifier: Apache-2.0
"""An interrupted run is resumed; SUTs that are complete are left alone."""

import json
import os
import re
import signal

from support import (
    ANOTHER_DISPLAY,
    PATIENCE_S,
    SLOW,
    STUCK,
    TINY,
    TWO,
    Lab,
    base_of,
    begun,
    calibrate,
    calibrate_command,
    inventory_of,
    over_ssh,
    probes_of,
    processes_of,
    run_of,
    steps_recorded,
    wait_until,
)

from calibration.results.store import read_run

PATIENT = {"measure_grace_s": PATIENCE_S}
"""For a SUT that waits for the test: its step must not time out."""


def test_resumes_an_interrupted_run_and_skips_complete_suts(lab: Lab) -> None:
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        # A child would ignore it too, as under nohup. A handler is not inherited.
        signal.signal(signal.SIGHUP, lambda *_: None)
    done = {"calibration_profile": str(TINY)}
    cut = {**over_ssh(lab, "cut", STUCK), **PATIENT}
    lost = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
    inventory, log = inventory_of(lab, {"done": done, "cut": cut, "late": lost}, TWO), lab.directory / "log"
    with begun(calibrate_command(inventory), lab.environment(**ANOTHER_DISPLAY), log) as process:
        try:
            wait_until(lambda: len(list(lab.results.glob("*/*/*/report/page.rst"))) == 2, process, log)
            wait_until(lambda: (lab.directory / "cut-log").read_text().count("started") == 2, process, log)
            os.killpg(process.pid, signal.SIGHUP)
            code = process.wait(PATIENCE_S)
        finally:
            (lab.directory / "cut-log.let-go").touch()
    text = log.read_text(encoding="utf-8")
    assert code == 4, text
    assert "TASK [" in text
    before = read_run(run_of(lab, "cut"))
    assert before.run.status == "interrupted"
    assert f"Results: {run_of(lab, 'cut')}" in text
    assert (list(lab.remote.iterdir()), processes_of(lab.remote)) == ([], [])
    (first,) = before.measurements
    assert read_run(run_of(lab, "late")).run.status == "not_begun"
    kept = (run_of(lab, "done") / "run.json").read_bytes()

    late = {"calibration_profile": str(TINY)}  # it can be reached now
    inventory = inventory_of(lab, {"done": done, "cut": cut, "late": late}, TWO)
    ended = calibrate(lab, inventory, "--resume", "--forks", "1")
    assert ended.rc == 0, ended.text
    assert "cut: 1 step," in ended.text
    assert "done: 1 step," not in ended.text
    document = read_run(run_of(lab, "cut"))
    assert document.run.status == "complete"
    assert [measurement.kind for measurement in document.measurements] == ["idle_latency", "latency_matrix"]
    assert document.measurements[0] == first
    assert [attempt.ended for attempt in document.attempts] == ["interrupted", None]
    assert (run_of(lab, "done") / "run.json").read_bytes() == kept
    document = read_run(run_of(lab, "late"))
    assert document.run.status == "complete"
    assert [attempt.ended is None for attempt in document.attempts] == [False, True]
    assert len({path.name for path in lab.runs()}) == 1
    assert list(lab.remote.iterdir()) == []
    assert processes_of(lab.remote) == []


def test_suts_of_a_killed_controller_are_resumed_cleaned_or_release_themselves(lab: Lab) -> None:
    """Until then a second controller is refused, with the name of the first."""
    hosts = {
        "freed": {},
        "cleaned": {},
        "resumed": {**over_ssh(lab, "resumed", STUCK), **PATIENT, "calibration_profile": str(TWO)},
    }
    hosts = {name: {**base_of(lab, name), **variables} for name, variables in hosts.items()}
    inventory, log = inventory_of(lab, hosts, SLOW), lab.directory / "log"
    with begun(calibrate_command(inventory), lab.environment(), log) as process:
        try:
            wait_until(lambda: (lab.directory / "resumed-log").read_text().count("started") == 2, process, log)
            wait_until(lambda: steps_recorded(lab) == 3 and len(probes_of(lab)) == 2, process, log)
            (run_id,) = {path.name for path in lab.runs()}
            since = json.loads((lab.remote / "cleaned" / "reservation" / "holder.json").read_bytes())["started_at"]
            second = calibrate(lab, inventory, "--limit", "cleaned")
            assert second.rc == 3, second.text
            refusal = " ".join(second.text.split())
            assert f"the SUT is reserved by run {run_id} of " in refusal
            assert f"started at {since}" in refusal
            assert f"playbooks/cleanup.yml -e calibration_run_id={run_id} --limit cleaned" in refusal
            assert len(probes_of(lab)) == 2
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(PATIENCE_S)
        finally:
            (lab.directory / "resumed-log.let-go").touch()
    wait_until(lambda: probes_of(lab) == [])
    # What ends a guardian before its lease does, as a shutdown would.
    (guardian,) = [process for process in processes_of(lab.remote) if re.search(r"-freed-\w+/guardian", process)]
    os.kill(int(guardian.split()[1].rstrip(":")), signal.SIGTERM)
    wait_until(lambda: not list((lab.remote / "freed").iterdir()))
    assert {path.parent.name for path in lab.remote.glob("*/reservation")} == {"cleaned", "resumed"}
    ended = calibrate(lab, inventory, "--resume", run_id, "--limit", "resumed")
    assert ended.rc == 0, ended.text
    (resumed, cleaned) = (lab.results / name / name / run_id for name in ("resumed", "cleaned"))
    assert read_run(resumed).run.status == "complete"
    # A SUT on which nothing is left is left as it is.
    ended = lab.clean_up(inventory, run_id, "cleaned,freed")
    assert ended.rc == 0, ended.text
    assert list(lab.remote.glob("*/*")) == []
    assert processes_of(lab.remote) == []
    assert read_run(cleaned).run.status == "interrupted"
    assert "Interrupted: 1 of 2 steps measured" in ended.text
