# SPDX-License-Identifier: Apache-2.0
"""The operator's Intel MLC, by scripts that stand for it.

They prove how it is pushed, bounded, run, recorded and shown, and nothing of what the real program prints or does.
"""

import hashlib
import io
import os
import sys
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support import HERE, ROOT, Ended, Lab, calibrate, inventory_of, load_plugin, processes_of

from calibration.results import store
from calibration.results.model import Mlc, NotMeasured

PLUGIN = load_plugin("action", "calibration_mlc")
MODULE = load_plugin("modules", "sut_mlc")
PROGRAMS = sys.modules["calibration_programs"]  # as the plugin imported it
GUARDIAN = MODULE.guardian

STAND_IN = ROOT / "tests" / "fixtures" / "mlc-stand-in" / "mlc"
PROFILE = HERE / "profiles" / "mlc.yml"
CAPTURE = ROOT / "tests" / "fixtures" / "context" / "x86_64-two-nodes-smt.tar.gz"
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

SCRIPTS = {
    "garbage": "echo no such thing; exit 0",
    "hangs": "echo Measuring idle latencies; sleep 600 & sleep 600",
    "fails": "echo need 1000 huge pages >&2; exit 3",
    "endless": "while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done",
    "child": f'sleep 600 & {STAND_IN} "$@"',
}
"""What each SUT's stand-in does that is not as it should be; ``child`` leaves a process behind, and answers."""

REASONS_OF = {
    "garbage": "expected a result of Intel MLC in mlc/idle_latency.txt, found none",
    "hangs": "it was ended: it was not over after 3 s; its last words: Measuring idle latencies",
    "fails": "expected it to end with exit code 0, found 3; its last words: need 1000 huge pages",
    "endless": "it was ended: it printed more than 131072 bytes; its last words: xxxx",
    "absent": "expected Intel MLC at {folder}/absent on the controller: No such file or directory; set mlc_archive to "
    "where it is, or leave it empty",
    "empty": "expected Linux/mlc once in the archive {folder}/empty.tgz, found it 0 times",
}


def archive(path: Path, name: str, content: bytes) -> Path:
    """Make an archive with one file in it, as Intel's has the program."""
    with tarfile.open(path, "w:gz") as packed:
        member = tarfile.TarInfo(name)
        member.size, member.mode = len(content), 0o755
        packed.addfile(member, io.BytesIO(content))
    return path


# The role


@pytest.fixture(scope="module")
def calibrated(module_lab: Lab) -> Ended:
    folder = module_lab.directory
    agreed = {"mlc_license_accepted": True, "mlc_timeout_s": 300.0}
    packed = str(archive(folder / "mlc_v0.tgz", "mlc_v0/Linux/mlc", STAND_IN.read_bytes()))
    hosts: dict[str, dict[str, Any]] = {
        "private": {**agreed, "mlc_archive": packed},
        "published": {**agreed, "mlc_archive": packed, "mlc_publish": True},
        "allowed": {**agreed, "mlc_archive": str(STAND_IN), "mlc_publish": True, "mlc_prefetchers_ok": True},
        "absent": {**agreed, "mlc_archive": str(folder / "absent")},
        "empty": {**agreed, "mlc_archive": str(archive(folder / "empty.tgz", "Linux/readme", b"none"))},
        "without": {},
    }
    for name, body in SCRIPTS.items():
        script = folder / f"{name}.sh"
        script.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        hosts[name] = {**agreed, "mlc_archive": str(script), "mlc_publish": True}
    hosts["hangs"]["mlc_timeout_s"] = 3.0
    # One after another: at the same time they would take the machine that stands for all of them from each other.
    return calibrate(module_lab, inventory_of(module_lab, hosts, PROFILE), "--forks", "1")


def run_of(lab: Lab, name: str) -> Path:
    (run,) = [run for run in lab.runs() if run.parts[-2] == name]
    return run


def page_of(lab: Lab, name: str) -> str:
    return (run_of(lab, name) / "report" / "page.rst").read_text(encoding="utf-8")


def mlc_of(lab: Lab, name: str) -> Mlc:
    document = store.read_run(run_of(lab, name))
    assert document.run.status == "complete"
    assert document.mlc is not None
    return document.mlc


def missing_of(lab: Lab, name: str) -> list[NotMeasured]:
    return [each for each in store.read_run(run_of(lab, name)).not_measured if each.kind == "mlc"]


def test_whatever_mlc_does_every_sut_is_measured(calibrated: Ended, module_lab: Lab) -> None:
    assert calibrated.rc == 0, calibrated.text
    documents = [store.read_run(run) for run in module_lab.runs()]
    assert len(documents) == 6 + len(SCRIPTS)
    assert {each.run.status for each in documents} == {"complete"}
    assert {len(each.measurements) for each in documents} == {1}
    assert list(module_lab.remote.iterdir()) == []
    assert processes_of(module_lab.remote) == []


def test_what_mlc_prints_is_kept_with_its_hash_and_read(calibrated: Ended, module_lab: Lab) -> None:
    assert calibrated.rc == 0, calibrated.text
    run, mlc = run_of(module_lab, "private"), mlc_of(module_lab, "private")
    content = STAND_IN.read_bytes()
    assert mlc.program_sha256 == hashlib.sha256(content).hexdigest()
    assert mlc.archive_sha256 == hashlib.sha256((module_lab.directory / "mlc_v0.tgz").read_bytes()).hexdigest()
    assert (mlc.archive, mlc.member, mlc.form, mlc.reason) == ("mlc_v0.tgz", "mlc_v0/Linux/mlc", "script", None)
    assert [each.argv for each in mlc.commands] == [
        ("mlc", "--idle_latency", "-e", "-r"),
        ("mlc", "--latency_matrix", "-e", "-r", "-b200000"),
    ]
    for each in mlc.commands:
        assert (each.outcome, each.rc, each.reason, each.user_id) == ("ok", 0, None, os.geteuid())
        assert each.output == f"mlc/{each.command}.txt"
        raw = (run / each.output).read_bytes()
        assert hashlib.sha256(raw).hexdigest() == each.output_sha256
        assert raw.startswith(b"*** THIS IS A STAND-IN")
        assert each.prefetchers is not None
        assert each.prefetchers.state in {"as_before", "not_verified"}
    readings = {each.id: each for each in store.read_run(run).readings}
    assert set(readings) == {each for run in mlc.commands for each in run.readings}
    idle = readings["mlc.idle_latency.idle_latency"]
    assert (idle.instrument, idle.command) == ("Intel MLC 3.5", "mlc --idle_latency -e -r")
    assert [each.value for each in idle.values.metrics()] == [99.0]


def test_it_comes_after_everything_that_is_measured(calibrated: Ended, module_lab: Lab) -> None:
    assert calibrated.rc == 0, calibrated.text
    kinds = [each.record for each in store.records(run_of(module_lab, "private"))]
    assert kinds == ["start", "kernels", "step", "mlc", "mlc_command", "mlc_command", "end"]


def test_figures_stay_off_the_page_unless_the_operator_says_otherwise(calibrated: Ended, module_lab: Lab) -> None:
    assert calibrated.rc == 0, calibrated.text
    page = page_of(module_lab, "private")
    assert "2 results of\nit are kept in the run document and not shown here" in page
    assert "THIS IS A STAND" not in page
    for figure in ("99.0", "132.0", "141.2"):
        assert figure not in page.partition("Intel MLC\n---------")[2]
    shown = page_of(module_lab, "published")
    assert "Intel MLC / sutprobe" in shown
    assert "99.00 ns" in shown
    assert "a SCRIPT, which may print anything" in shown
    assert "THIS IS A STAND" in shown


def test_with_consent_it_is_not_told_to_leave_the_prefetchers_alone(calibrated: Ended, module_lab: Lab) -> None:
    assert calibrated.rc == 0, calibrated.text
    mlc = mlc_of(module_lab, "allowed")
    assert [each.argv for each in mlc.commands] == [("mlc", "--idle_latency"), ("mlc", "--latency_matrix", "-b200000")]
    assert (mlc.prefetchers_ok, mlc.member) == (True, None)
    assert "Intel MLC was allowed to switch them" in page_of(module_lab, "allowed")


@pytest.mark.parametrize("name", REASONS_OF)
def test_what_went_wrong_is_a_reason_and_shown(calibrated: Ended, module_lab: Lab, name: str) -> None:
    assert calibrated.rc == 0, calibrated.text
    reason = REASONS_OF[name].format(folder=module_lab.directory)
    missing = missing_of(module_lab, name)
    assert [each.what for each in missing] == ["Intel MLC --idle_latency", "Intel MLC --latency_matrix"]
    assert {each.cause for each in missing} == {"failed"}
    assert missing[0].reason.startswith(reason)
    if name != "garbage":  # what it printed is read with the document
        assert reason in calibrated.text
    assert store.read_run(run_of(module_lab, name)).readings == ()
    assert ("was not run" if name in {"absent", "empty"} else "Without a figure of Intel MLC") in page_of(
        module_lab, name
    )


def test_what_it_leaves_behind_is_ended_with_it(calibrated: Ended, module_lab: Lab) -> None:
    assert calibrated.rc == 0, calibrated.text
    assert {each.outcome for each in mlc_of(module_lab, "child").commands} == {"ok"}
    assert missing_of(module_lab, "child") == []


def test_a_sut_without_it_has_none(calibrated: Ended, module_lab: Lab) -> None:
    assert calibrated.rc == 0, calibrated.text
    run = run_of(module_lab, "without")
    assert store.read_run(run).mlc is None
    assert not (run / "mlc").exists()
    assert "Intel MLC" not in page_of(module_lab, "without")


def test_without_its_licence_nothing_is_touched(lab: Lab) -> None:
    ended = lab.run("calibrate.yml", "-e", f"mlc_archive={STAND_IN}", profile=PROFILE)
    assert ended.rc == 2, ended.text
    assert "expected mlc_license_accepted: true beside mlc_archive" in ended.text
    assert lab.runs() == []
    assert lab.leftovers() == []
