# SPDX-License-Identifier: Apache-2.0
"""The quick gate measures an inventory: one clock is enough to see that it does."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from support import PATIENCE_S, ROOT

from calibration.base.errors import INTERRUPTED, EnvironmentLacksError, InputError
from calibration.quick.gate import check_inventory, exit_code
from calibration.quick.here import ROUNDS, measure_here
from calibration.quick.measure import LOG, Sentry, Wanted
from calibration.results.find import find_run
from calibration.results.layout import REFERENCES
from calibration.results.store import read_run
from calibration.runner import lock

pytestmark = pytest.mark.slow

CLOCK = ["core_frequency"]


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    """An inventory with this machine under two names, and a host that nobody answers for."""
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    hosts = {
        f"host{number}": {**local, "calibration_testbed": "t1", "calibration_sut": f"sut{number}"} for number in (1, 2)
    }
    shared = {"calibration_remote_base": str(tmp_path / "remote"), "calibration_lock": f"calibration-{tmp_path.name}"}
    gone = {"ansible_host": "127.0.0.1", "ansible_port": 9, "calibration_testbed": "t1", "calibration_sut": "sut3"}
    path = tmp_path / "lab.yml"
    path.write_text(yaml.safe_dump({"all": {"hosts": {**hosts, "host3": gone}, "vars": shared}}), encoding="utf-8")
    (tmp_path / "remote").mkdir()
    return path


def sentry(folder: Path, wanted: Wanted) -> Sentry:
    """Return what measures into *folder*/gate, for the lab whose results are in *folder*/results."""
    (folder / "gate").mkdir()
    (folder / "results").mkdir(exist_ok=True)
    return Sentry(folder / "gate", folder / "results", wanted)


def test_only_the_suts_and_kinds_asked_for_are_measured(tmp_path: Path, inventory: Path) -> None:
    ours = sentry(tmp_path, Wanted(inventory, None, ()))
    found = ours.measure(CLOCK, [("t1", "sut2"), ("t1", "sut3")])
    log = (tmp_path / "gate" / LOG).read_text(encoding="utf-8")
    assert [(document.run.testbed, document.run.sut) for document in found] == [("t1", "sut2"), ("t1", "sut3")], log
    assert [measurement.kind for measurement in found[0].measurements] == CLOCK, log
    assert found[0].run.status == "complete"
    assert found[1].measurements == ()
    assert list((tmp_path / "results").iterdir()) == []
    assert "Rendering" not in log
    with pytest.raises(InputError, match="0 hosts for SUT sut4 of testbed t1"):
        ours.measure(CLOCK, [("t1", "sut4")])


def test_suts_of_one_machine_are_measured_in_turn(tmp_path: Path, inventory: Path) -> None:
    found = sentry(tmp_path, Wanted(inventory, None, ())).measure(CLOCK, [("t1", "sut1"), ("t1", "sut2")])
    log = (tmp_path / "gate" / LOG).read_text(encoding="utf-8")
    assert [document.run.status for document in found] == ["complete", "complete"], log
    first, second = sorted((document.run for document in found), key=lambda run: run.started_at)
    assert first.finished_at is not None
    assert first.finished_at <= second.started_at
    assert log.count("waits for another SUT of the same machine") == 1


def test_what_the_lab_knows_of_its_platforms_is_used(tmp_path: Path) -> None:
    (tmp_path / "results" / REFERENCES / "traffic_shape").mkdir(parents=True)
    (tmp_path / "results" / REFERENCES / "traffic_shape" / "some.json").write_text("{}", encoding="utf-8")
    with pytest.raises(InputError, match=r"some\.json: damaged"):
        sentry(tmp_path, Wanted(None, None, ()))


def test_a_wrong_inventory_is_bad_input_and_shows_the_log(tmp_path: Path) -> None:
    ours = sentry(tmp_path, Wanted(tmp_path / "nowhere.yml", None, ()))
    with pytest.raises(InputError, match=r"no SUT was measured; .*run\.log ends with:\n(.|\n)*nowhere\.yml"):
        ours.measure()


def test_an_interrupted_gate_ends_its_run(tmp_path: Path, inventory: Path) -> None:
    (tmp_path / "results").mkdir()
    output = tmp_path / "gate"
    log = output / LOG
    command = [sys.executable, "-m", "calibration.cli", "gate", "--results", str(tmp_path / "results"), "--quick"]
    command += ["-i", str(inventory), "--limit", "host1", "--output", str(output)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        began = time.monotonic()
        while time.monotonic() - began < PATIENCE_S and not (log.exists() and "round 1 of" in log.read_text()):
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == INTERRUPTED, log.read_text()
    assert "Interrupted: cleaning up on host1 " in log.read_text()
    assert list((tmp_path / "remote").iterdir()) == []


def test_suts_without_an_accepted_run_are_measured_and_undecided(
    tmp_path: Path, inventory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Sentry.measure
    monkeypatch.setattr(Sentry, "measure", lambda self, kinds=None, suts=(): whole(self, kinds or CLOCK, suts))
    (tmp_path / "gate").mkdir()
    (tmp_path / "results").mkdir()
    said: list[str] = []
    checks = check_inventory(tmp_path / "gate", tmp_path / "results", Wanted(inventory, "host1,host3", ()), said.append)
    assert exit_code(checks) == 3, said
    known = {(check.sut, check.check): check.outcome for check in checks}
    assert known["sut1", "measured"] == "passed"
    assert known["sut1", "context"] == known["sut1", "clock"] == "undecided"
    assert [name for sut, name in known if sut == "sut3"] == ["measured"]


def test_this_machine_is_measured_without_ansible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no program but those named by their path
    document = measure_here(tmp_path / "results", CLOCK)
    assert (document.run.status, document.run.sut) == ("complete", "localhost")
    (measured,) = document.measurements
    assert [measured.kind] == CLOCK
    assert measured.rounds == tuple(range(1, ROUNDS + 1))
    (found,) = document.attempts
    assert {check.name for check in found.checks} == {"background_load", "free_memory"}
    assert read_run(find_run(tmp_path / "results")) == document


def test_a_machine_that_is_reserved_is_not_measured(tmp_path: Path) -> None:
    with (
        lock.take("calibration"),
        pytest.raises(EnvironmentLacksError, match="not measured: the SUT is reserved by run"),
    ):
        measure_here(tmp_path / "results", CLOCK)
    assert not (tmp_path / "results").exists()
