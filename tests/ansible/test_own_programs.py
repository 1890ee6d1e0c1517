# SPDX-License-Identifier: Apache-2.0
"""The operator's own programs in one calibration: Intel MLC and the checker for Spectre and Meltdown, by stand-ins.

They test how the programs are pushed, run with few privileges, limited, recorded and shown.
"""

import hashlib
import os
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support import HERE, ROOT, Ended, Lab, calibrate, inventory_of, pack, processes_of, run_of

from calibration.measurements.mlc_program import read_prefetchers
from calibration.report.summary import summary
from calibration.results.model import MeltdownChecker, Mlc, RunDocument
from calibration.results.store import read_run
from calibration.run.assemble import assemble
from calibration.run.records import MlcCommandRecord, append_record, records

pytestmark = pytest.mark.slow

MLC = ROOT / "tests" / "fixtures" / "mlc-stand-in" / "mlc"
CHECKER_OUTPUT = ROOT / "tests" / "fixtures" / "meltdown_checker" / "0.46.json"
PROFILE = HERE / "profiles" / "mlc.yml"

SCRIPTS = {
    "mlc-fails": "echo need 1000 huge pages >&2; exit 3",
    "mlc-garbage": "echo no such thing; exit 0",
    "checker": f"cat {shlex.quote(str(CHECKER_OUTPUT))}; echo accuracy might be reduced >&2; exit 2",
    "checker-fails": "echo no such option >&2; exit 255",
    "checker-garbage": "echo modprobe: not found; exit 0",
    "privileges": "grep -E '^(Cap|NoNewPrivs)' /proc/self/status; env; pwd",
    "mlc-hangs": 'sh -c "sleep 600; : $HOME" & sleep 600',
    "checker-prints": "while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done",
}

AGREED: dict[str, Any] = {"mlc_license_accepted": True, "mlc_timeout_s": 300.0}

SUTS: dict[str, dict[str, Any]] = {
    "private": {**AGREED, "mlc_archive": "{lab}/mlc_v0.tgz", "context_meltdown_checker": "{lab}/checker"},
    "published": {**AGREED, "mlc_archive": str(MLC), "mlc_publish": True, "mlc_prefetchers_ok": True},
    "absent": {**AGREED, "mlc_archive": "{lab}/absent", "context_meltdown_checker": "{lab}/absent.sh"},
    "fails": {
        **AGREED,
        "mlc_archive": "{lab}/mlc-fails",
        "mlc_publish": True,
        "context_meltdown_checker": "{lab}/checker-fails",
    },
    "garbage": {
        **AGREED,
        "mlc_archive": "{lab}/mlc-garbage",
        "mlc_publish": True,
        "context_meltdown_checker": "{lab}/checker-garbage",
    },
    "confined": {
        **AGREED,
        "mlc_archive": "{lab}/privileges",
        "context_meltdown_checker": "{lab}/privileges",
        "mlc_prefetchers_ok": True,
    },
    "endless": {
        **AGREED,
        "mlc_archive": "{lab}/mlc-hangs",
        "mlc_publish": True,
        "mlc_timeout_s": 1.0,
        "context_meltdown_checker": "{lab}/checker-prints",
    },
}

MLC_REASONS = {
    "absent": "Intel MLC cannot be read at {lab}/absent on the controller: No such file or directory; correct "
    "mlc_archive or leave it empty",
    "fails": "exit code 3; its last line: need 1000 huge pages",
    "garbage": "no result in what Intel MLC printed",
    "endless": "timed out after 1 s",
}

CHECKER_REASONS = {
    "absent": "spectre-meltdown-checker cannot be read at {lab}/absent.sh on the controller: No such file or "
    "directory; correct context_meltdown_checker or leave it empty",
    "fails": "the checker failed with exit code 255: no such option",
    "garbage": "not the output of spectre-meltdown-checker: not a line such as "
    "'CVE-2017-5754: OK (PTI)': 'modprobe: not found'",
    "endless": "the checker printed too much",
}


@dataclass(frozen=True)
class Calibrated:
    """One calibration of all SUTs."""

    lab: Lab
    ended: Ended

    def directory(self, name: str) -> Path:
        return run_of(self.lab, name)

    def document(self, name: str) -> RunDocument:
        return read_run(self.directory(name))

    def page(self, name: str) -> str:
        return (self.directory(name) / "report" / "page.rst").read_text(encoding="utf-8")

    def mlc(self, name: str) -> Mlc:
        found = self.document(name).mlc
        assert found is not None
        return found

    def checker(self, name: str) -> MeltdownChecker:
        found = self.document(name).meltdown_checker
        assert found is not None
        return found


@pytest.fixture(scope="module")
def calibrated(module_lab: Lab) -> Calibrated:
    folder = module_lab.directory
    pack(folder / "mlc_v0.tgz", "mlc_v0/Linux/mlc", MLC.read_bytes())
    for name, body in SCRIPTS.items():
        (folder / name).write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    hosts = {
        name: {key: value.format(lab=folder) if isinstance(value, str) else value for key, value in variables.items()}
        for name, variables in SUTS.items()
    }
    # One after another: they share a machine.
    ended = calibrate(module_lab, inventory_of(module_lab, hosts, PROFILE), "--forks", "1")
    assert ended.rc == 0, ended.text
    return Calibrated(module_lab, ended)


def test_measures_every_sut_whatever_the_programs_do(calibrated: Calibrated) -> None:
    documents = [calibrated.document(name) for name in SUTS]
    assert {document.run.status for document in documents} == {"complete"}
    assert {len(document.measurements) for document in documents} == {1}
    assert list(calibrated.lab.remote.iterdir()) == []
    assert processes_of(calibrated.lab.remote) == []


def test_runs_the_checker_before_measuring_and_mlc_after(calibrated: Calibrated) -> None:
    kinds = [record.record for record in records(calibrated.directory("private"))]
    programs = ["mlc", "meltdown_checker"]
    assert kinds == ["start", "probe", *programs, "step", "mlc_command", "mlc_command", "health", "end"]


def test_a_run_without_programs_has_no_trace_of_them(calibrated_lab: tuple[Lab, Ended]) -> None:
    (directory,) = calibrated_lab[0].runs()
    document = read_run(directory)
    assert (document.mlc, document.meltdown_checker) == (None, None)
    assert not (directory / "mlc").exists()
    assert not (directory / "meltdown-checker.txt").exists()
    assert "Intel MLC" not in (directory / "report" / "page.rst").read_text(encoding="utf-8")


DAC_READ_SEARCH, IPC_LOCK, SYS_RAWIO, SYS_NICE, SYSLOG = (1 << number for number in (2, 14, 17, 23, 34))
"""Capabilities, from linux/capability.h."""


@pytest.mark.parametrize(
    ("file", "allowed"),
    [
        ("meltdown-checker.txt", DAC_READ_SEARCH | SYSLOG),
        ("mlc/idle_latency.txt", DAC_READ_SEARCH | IPC_LOCK | SYS_RAWIO | SYS_NICE),
    ],
)
def test_the_programs_have_few_privileges_and_a_directory_of_their_own(
    calibrated: Calibrated, file: str, allowed: int
) -> None:
    lines = (calibrated.directory("confined") / file).read_text(encoding="utf-8").splitlines()
    status = dict(line.split(":\t") for line in lines if ":\t" in line)
    assert status["NoNewPrivs"] == "1"
    assert {status["CapInh"], status["CapAmb"]} == {f"{0:016x}"}
    for name in ("CapPrm", "CapEff"):
        assert int(status[name], 16) & ~allowed == 0, name
    if os.geteuid() == 0 and file.startswith("mlc"):
        assert int(status["CapEff"], 16) & SYS_RAWIO
    environment = dict(line.split("=", 1) for line in lines if "=" in line)
    assert set(environment) <= {"PATH", "LC_ALL", "HOME", "TMPDIR", "PWD", "_", "SHLVL", "OLDPWD"}
    assert environment["TMPDIR"] == environment["HOME"] == lines[-1]
    assert Path(lines[-1]).parent.parent == calibrated.lab.remote


# Spectre and Meltdown


def test_records_and_shows_the_output_of_the_checker(calibrated: Calibrated) -> None:
    directory, checker = calibrated.directory("private"), calibrated.checker("private")
    assert (directory / "meltdown-checker.txt").read_bytes() == CHECKER_OUTPUT.read_bytes()
    script = (calibrated.lab.directory / "checker").read_bytes()
    assert checker.script_sha256 == hashlib.sha256(script).hexdigest()
    assert checker.output_sha256 == hashlib.sha256(CHECKER_OUTPUT.read_bytes()).hexdigest()
    assert checker.argv == ("/bin/sh", "spectre-meltdown-checker.sh", "--batch", "json")
    assert (checker.rc, checker.user_id, checker.reason) == (2, os.geteuid(), None)
    assert checker.stderr == "accuracy might be reduced\n"
    assert len(checker.findings) == 16
    page = calibrated.page("private")
    assert "> CHECKER: VULNERABLE (IBRS+IBPB or retpoline+IBPB is needed to mitigate the vulnerability)" in page


@pytest.mark.parametrize("name", CHECKER_REASONS)
def test_records_and_shows_why_the_checker_has_no_answer(calibrated: Calibrated, name: str) -> None:
    reason = CHECKER_REASONS[name].format(lab=calibrated.lab.directory)
    checker = calibrated.checker(name)
    assert (checker.reason, checker.findings) == (reason, ())
    assert "The checker has no answer" in calibrated.page(name)
    assert (calibrated.directory(name) / "meltdown-checker.txt").exists() == (name != "absent")
    if name != "garbage":  # what it printed is read with the document
        assert f"{name}: the Spectre and Meltdown checker has no answer: {reason}" in calibrated.ended.text


# Intel MLC


def test_records_and_reads_the_output_of_mlc(calibrated: Calibrated) -> None:
    directory, mlc = calibrated.directory("private"), calibrated.mlc("private")
    content = MLC.read_bytes()
    assert mlc.program_sha256 == hashlib.sha256(content).hexdigest()
    assert mlc.archive_sha256 == hashlib.sha256((calibrated.lab.directory / "mlc_v0.tgz").read_bytes()).hexdigest()
    assert (mlc.archive, mlc.member, mlc.form, mlc.reason) == ("mlc_v0.tgz", "mlc_v0/Linux/mlc", "script", None)
    assert [command.argv for command in mlc.commands] == [
        ("mlc", "--idle_latency", "-e", "-r"),
        ("mlc", "--latency_matrix", "-e", "-r", "-b200000"),
    ]
    for command in mlc.commands:
        assert (command.outcome, command.rc, command.reason, command.user_id) == ("ok", 0, None, os.geteuid())
        assert command.output == f"mlc/{command.command}.txt"
        raw = (directory / command.output).read_bytes()
        assert hashlib.sha256(raw).hexdigest() == command.output_sha256
        assert raw.startswith(b"*** THIS IS A STAND-IN")
        assert command.prefetchers is not None
        assert command.prefetchers.state in {"as_before", "not_verified"}
    readings = {reading.id: reading for reading in read_run(directory).readings}
    assert set(readings) == {reading for run in mlc.commands for reading in run.readings}
    idle = readings["mlc.idle_latency.idle_latency"]
    assert (idle.instrument, idle.command) == ("Intel MLC 3.5", "mlc --idle_latency -e -r")
    assert [metric.value for metric in idle.values.metrics()] == [88.2]


def test_shows_values_of_mlc_only_if_the_operator_publishes_them(calibrated: Calibrated) -> None:
    page = calibrated.page("private")
    assert "2 results of it are kept in the run document and not shown here" in " ".join(page.split())
    assert "THIS IS A STAND" not in page
    for value in ("88.2", "87.6", "140.9"):
        assert value not in page.partition("Intel MLC\n---------")[2]
    shown = calibrated.page("published")
    assert "Intel MLC / sutprobe" in shown
    assert "88.20 ns" in shown
    assert "a SCRIPT, which may print anything" in shown
    assert "THIS IS A STAND" in shown


def test_mlc_may_switch_the_prefetchers_with_consent(calibrated: Calibrated) -> None:
    mlc = calibrated.mlc("published")
    assert [command.argv for command in mlc.commands] == [
        ("mlc", "--idle_latency"),
        ("mlc", "--latency_matrix", "-b200000"),
    ]
    assert (mlc.prefetchers_ok, mlc.member) == (True, None)
    assert "Intel MLC was allowed to switch them" in calibrated.page("published")


@pytest.mark.parametrize("name", MLC_REASONS)
def test_records_and_shows_why_mlc_has_no_values(calibrated: Calibrated, name: str) -> None:
    reason = MLC_REASONS[name].format(lab=calibrated.lab.directory)
    document = calibrated.document(name)
    missing = [gone for gone in document.not_measured if gone.kind == "mlc"]
    assert [gone.what for gone in missing] == ["Intel MLC --idle_latency", "Intel MLC --latency_matrix"]
    assert {gone.cause for gone in missing} == {"failed"}
    assert missing[0].reason.startswith(reason)
    if name != "garbage":  # what it printed is read with the document
        assert reason in calibrated.ended.text
    assert document.readings == ()
    page = calibrated.page(name)
    assert ("was not run" if name == "absent" else "Without a value of Intel MLC") in page


def test_reports_prefetchers_that_mlc_left_changed(calibrated: Calibrated, tmp_path: Path) -> None:
    directory = tmp_path / "t" / "s" / "r"
    shutil.copytree(calibrated.directory("private"), directory)
    document = read_run(directory)
    assert document.mlc is not None
    places = [{"where": "/dev/cpu/{0-3}/msr", "before": "0x0", "after": "0xf", "restored": None}]
    spoilt = document.mlc.commands[0].model_copy(
        update={"prefetchers": read_prefetchers({"places": places, "unread": None})}
    )
    assert summary(directory, document)["left_changed"] is None
    append_record(directory, MlcCommandRecord(run=spoilt))
    changed = assemble(directory, now=document.run.finished_at)
    assert summary(directory, changed)["left_changed"] == (
        "Not restored: prefetchers at /dev/cpu/{0-3}/msr: wanted 0x0, found 0xf: "
        "Intel MLC --idle_latency left it changed"
    )
