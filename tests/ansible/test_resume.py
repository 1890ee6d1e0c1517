# SPDX-License-Identifier: Apache-2.0
"""A run whose controller was interrupted or killed is resumed; SUTs that are complete are left alone."""

import os
import re
import signal
from collections import Counter

import pytest
from support import (
    ANOTHER_DISPLAY,
    PATIENCE_S,
    SLOW,
    TWO,
    Lab,
    base_of,
    begun,
    calibrate,
    calibrate_command,
    held,
    inventory_of,
    let_go,
    over_ssh,
    probes_of,
    processes_of,
    run,
    run_of,
    stuck,
    wait_until,
)

from calibration.results.store import read_run
from calibration.run.records import StepRecord, records

pytestmark = pytest.mark.slow


def steps_of(lab: Lab, name: str) -> Counter[str]:
    """Return how often each step of the SUT's run was recorded."""
    runs = [path.parent for path in lab.results.glob(f"{name}/{name}/*/records.jsonl")]
    return Counter(record.step.id for run in runs for record in records(run) if isinstance(record, StepRecord))


def test_resumes_an_interrupted_run_and_skips_complete_suts(lab: Lab) -> None:
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        # A child would ignore it too, as under nohup. A handler is not inherited.
        signal.signal(signal.SIGHUP, lambda *_: None)
    lost = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
    cut = {**stuck(lab, "cut"), "calibration_profile": str(TWO)}
    inventory, log = inventory_of(lab, {"done": {}, "cut": cut, "late": lost}), lab.directory / "log"
    with begun(calibrate_command(inventory), lab.environment(**ANOTHER_DISPLAY), log) as process:
        wait_until(lambda: len(list(lab.results.glob("*/*/*/run.json"))) == 2, process, log)
        wait_until(lambda: steps_of(lab, "cut").total() == 1, process, log)
        os.killpg(process.pid, signal.SIGHUP)
        code = process.wait(PATIENCE_S)
    text = log.read_text(encoding="utf-8")
    assert code == 4, text
    assert "TASK [" in text
    before = read_run(run_of(lab, "cut"))
    assert before.run.status == "interrupted"
    assert lab.leftovers() == []
    (first,) = before.measurements
    assert read_run(run_of(lab, "late")).run.status == "not_begun"
    kept = (run_of(lab, "done") / "run.json").read_bytes()

    inventory = inventory_of(lab, {"done": {}, "cut": cut, "late": {}})  # it can be reached now
    ended = calibrate(lab, inventory, "--resume", "--forks", "1")
    assert ended.rc == 0, ended.text
    assert "cut: 1 step," in ended.text
    assert "done: 1 step," not in ended.text
    assert (run_of(lab, "done") / "run.json").read_bytes() == kept
    document = read_run(run_of(lab, "cut"))
    assert document.run.status == "complete"
    assert [measurement.kind for measurement in document.measurements] == ["idle_latency", "latency_matrix"]
    assert document.measurements[0] == first
    assert [attempt.ended for attempt in document.attempts] == ["interrupted", None]
    document = read_run(run_of(lab, "late"))
    assert document.run.status == "complete"
    assert [attempt.ended is None for attempt in document.attempts] == [False, True]
    assert len({path.name for path in lab.runs()}) == 1
    assert lab.leftovers() == []


KILLED_AT = ("start", "begin", "watch", "remove")
"""Questions whose answer a killed controller never read, though the SUT has acted on them."""


def test_nothing_is_lost_or_measured_twice_whenever_the_controller_is_killed(lab: Lab) -> None:
    """Until then a second controller is refused, with the name of the first; cleanup ends what is not resumed."""
    hosts = {name: {**over_ssh(lab, name, held(name)), **base_of(lab, name)} for name in KILLED_AT}
    generator = lab.directory / "generator"
    reserved = {"reserve_tg": "localhost", "reserve_tg_path": str(generator)}
    hosts["step"] = {**stuck(lab, "step"), **base_of(lab, "step"), **reserved}
    hosts["cleaned"] = {**base_of(lab, "cleaned"), "calibration_profile": str(SLOW)}
    inventory, log = inventory_of(lab, hosts, TWO), lab.directory / "log"
    with begun(calibrate_command(inventory), lab.environment(), log) as process:
        for name in KILLED_AT:
            wait_until((lab.directory / f"{name}-log.held").exists, process, log)
        slow = ("step", "cleaned")
        wait_until(lambda: all(steps_of(lab, name).total() == 1 for name in slow) and probes_of(lab), process, log)
        run_id = run_of(lab, "cleaned").name
        second = calibrate(lab, inventory, "--limit", "cleaned")
        assert second.rc == 3, second.text
        refusal = " ".join(second.text.split())
        assert f"reserved by run {run_id} of " in refusal
        assert "(step 2 of 2: Latency matrix" in refusal
        checked = calibrate(lab, inventory, "--limit", "cleaned,step", "--check")
        assert checked.rc == 3, checked.text
        said = " ".join(checked.text.split())
        assert f"cleaned: the SUT is reserved by run {run_id} of " in said
        assert f"the traffic generator is reserved at {generator} by calibration-{run_id}-step" in said
        (printed,) = re.findall(r"wait for it, or end it as that user or as root: (.+cleanup\.yml.+)", second.text)
        assert len(probes_of(lab)) == 1
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE_S)
    assert [path.name for path in generator.iterdir()] == [f"calibration-{run_id}-step"]
    resumed = (*KILLED_AT, "step")
    for name in resumed:
        let_go(lab, name)
    ended = calibrate(lab, inventory, "--resume", run_id, "--limit", ",".join(resumed))
    assert ended.rc == 0, ended.text
    for name in resumed:
        directory = lab.results / name / name / run_id
        assert read_run(directory).run.status == "complete", name
        assert steps_of(lab, name) == {"idle_latency": 1, "latency_matrix": 1}, name
        assert len(read_run(directory).attempts) == 1, name
        assert list((lab.remote / name).iterdir()) == [], name
    assert not generator.exists()
    assert len(probes_of(lab)) == 1
    assert lab.clean_up(inventory, run_id, "watch").rc == 0
    ended = run(["/bin/sh", "-c", printed], lab.environment())
    assert ended.rc == 0, ended.text
    assert list(lab.remote.glob("*/*")) == []
    assert processes_of(lab.remote) == []
    assert read_run(lab.results / "cleaned" / "cleaned" / run_id).run.status == "interrupted"
    assert "run interrupted, 1 of 2 steps measured" in " ".join(ended.text.split())
