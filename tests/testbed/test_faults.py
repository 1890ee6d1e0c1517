# SPDX-License-Identifier: Apache-2.0
"""Faults on running SUTs: nothing that was measured is lost, the other SUTs finish, and all of it is told.

Each test adds its row to the table when it has found everything that the row says. On emulated SUTs no verdict is good,
so that a run without a fault ends with 1, a failed verdict; a lacking environment (3) outranks it.
"""

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
import yaml

from calibration.base.errors import ENVIRONMENT, VERDICT_FAILED
from calibration.results.model import RunDocument
from calibration.run.records import StepRecord, records
from tests.testbed.guest import Sut
from tests.testbed.support import Lab, Testbed

THREE = Path(__file__).parent / "profiles" / "three.yml"
STEPS = ("idle_latency", "jitter", "latency_matrix")
"""The steps of that profile. The middle one is long: faults happen to it."""

LONG = "jitter"
LAST = "latency"

FILL = "fallocate -l $(($(df --output=avail -B1 /var/tmp | tail -1) - 1048576)) /var/tmp/filler"
"""Takes all of a SUT's disk but 1 MiB, at once."""

RECONNECT = {"measure_reconnect_s": 600}
"""A guest on a busy machine takes its time until it answers again."""

PROGRAM = "$(ls -d /var/tmp/calibration-*/sutprobe)"

Scenario = Callable[[str, str, str, str], None]


@pytest.fixture
def sut(testbed: Testbed) -> Sut:
    return testbed.sut("small", "fault-1")


@pytest.fixture
def other(testbed: Testbed) -> Sut:
    return testbed.sut("small", "fault-2")


def outcomes(lab: Lab, sut: Sut) -> list[tuple[str, str]]:
    """Return step and outcome of all records of a SUT's newest run, in their order."""
    found = (record for record in records(lab.newest(sut)) if isinstance(record, StepRecord))
    return [(verdict.step.id, verdict.outcome) for verdict in found]


def measured(document: RunDocument) -> set[str]:
    return {measurement.kind for measurement in document.measurements}


def reasons(document: RunDocument) -> dict[str, str]:
    """Return why what was planned and not measured was not."""
    return {omitted.kind: omitted.reason for omitted in document.not_measured if omitted.cause != "not_planned"}


def assert_nothing_is_left(sut: Sut) -> None:
    assert sut.read("find /var/tmp /tmp -name 'calibration-*'") == ""
    assert sut.ssh("pgrep -f '^[^ ]*/sutprobe '").returncode == 1


@contextmanager
def undone(sut: Sut, command: str) -> Iterator[None]:
    """Run a command on a SUT when the block is over, however."""
    try:
        yield
    finally:
        sut.read(command)


def test_unreachable_sut_is_reported_at_the_start(
    testbed: Testbed, lab: Lab, sut: Sut, other: Sut, scenario: Scenario
) -> None:
    sut.link(up=False)
    ended = lab.calibrate(testbed.inventory({"suts": [sut, other]}))
    assert ended.rc == ENVIRONMENT, ended.text
    assert lab.document(other).run.status == "complete"
    document = lab.document(sut)
    assert document.run.status == "not_begun"
    assert "not reachable" in document.not_measured[0].reason
    assert "not reachable" in " ".join(lab.page(sut).split())
    scenario(
        "unreachable",
        "network cable pulled before the start",
        "the other SUT's run, complete",
        "status not_begun with the reason, exit 3",
    )


def test_a_link_that_is_cut_and_comes_back_costs_nothing(
    testbed: Testbed, lab: Lab, sut: Sut, scenario: Scenario
) -> None:
    inventory = testbed.inventory({"suts": [sut]}, RECONNECT)
    with lab.calibrating(inventory, profile=THREE) as running:
        running.until_step(sut, LONG)
        sut.link(up=False)
        running.until("the lost connection", lambda: "the connection was lost, trying again" in running.text)
        sut.link(up=True)
        ended = running.end()
    document = lab.document(sut)
    assert outcomes(lab, sut) == [(step, "ok") for step in STEPS], ended.text
    assert document.run.status == "complete"
    assert len(document.attempts) == 1
    assert ended.rc == VERDICT_FAILED
    assert_nothing_is_left(sut)
    scenario(
        "link cut and back",
        "cable pulled in the long step until its loss is noticed",
        "every step, each measured once",
        "the lost connection; status complete",
    )


def test_a_reboot_ends_the_run_with_that_reason(testbed: Testbed, lab: Lab, sut: Sut, scenario: Scenario) -> None:
    inventory = testbed.inventory({"suts": [sut]}, RECONNECT)
    with lab.calibrating(inventory, profile=THREE) as running:
        running.until_step(sut, LONG)
        sut.reboot()
        ended = running.end()
    document = lab.document(sut)
    assert measured(document) == {"idle_latency"}, ended.text
    assert document.run.status == "incomplete"
    assert all("restarted during the run" in reason for reason in reasons(document).values()), reasons(document)
    assert set(reasons(document)) == {"jitter", "latency_matrix"}
    assert ended.rc in {VERDICT_FAILED, ENVIRONMENT}
    assert_nothing_is_left(sut)
    scenario(
        "rebooted", "reset button in the long step", "the step before it", "both later steps: the SUT was restarted"
    )


@pytest.mark.parametrize(
    "fault",
    [
        ("kernel crashes", "SIGSEGV to sutprobe", "kill -SEGV $p", "killed", "SIGSEGV"),
        (
            "kernel is OOM-killed",
            "the OOM killer, told to begin with sutprobe",
            "echo 1000 > /proc/$p/oom_score_adj; echo f > /proc/sysrq-trigger",
            "killed",
            "SIGKILL",
        ),
        ("kernel hangs", "SIGSTOP to sutprobe", "kill -STOP $p", "timed_out", "no complete answer"),
    ],
    ids=lambda fault: fault[0],
)
def test_a_step_that_ends_badly_costs_that_step(
    fault: tuple[str, str, str, str, str], testbed: Testbed, lab: Lab, sut: Sut, scenario: Scenario
) -> None:
    name, injected, command, outcome, said = fault
    with lab.calibrating(testbed.inventory({"suts": [sut]}), profile=THREE) as running:
        running.until_step(sut, LONG, command)
        ended = running.end()
    document = lab.document(sut)
    assert measured(document) == {"idle_latency", "latency_matrix"}, ended.text
    assert ("jitter", outcome) in outcomes(lab, sut)
    assert said in reasons(document)["jitter"]
    assert document.run.status == "incomplete"
    assert said in " ".join(lab.page(sut).split())
    assert ended.rc == VERDICT_FAILED
    assert_nothing_is_left(sut)
    scenario(name, injected, "the steps before and after it", f"the step: {said}; status incomplete")


def test_cpu_offline_during_a_step_is_its_reason(testbed: Testbed, lab: Lab, scenario: Scenario) -> None:
    sut = testbed.sut("haswell")
    with (
        undone(sut, "echo 1 > /sys/devices/system/cpu/cpu1/online"),
        lab.calibrating(testbed.inventory({"suts": [sut]}), profile=THREE) as running,
    ):
        running.until_step(sut, LONG, "echo 0 > /sys/devices/system/cpu/cpu1/online")
        ended = running.end()
    said = "CPU 1 went offline during the measurement"
    document = lab.document(sut)
    assert "idle_latency" in measured(document), ended.text
    assert said in reasons(document)["jitter"], reasons(document)
    assert said in ended.text
    assert said in " ".join(lab.page(sut).split())
    assert document.run.status == "incomplete"
    assert_nothing_is_left(sut)
    scenario(
        "CPU goes offline",
        "a measured CPU offline in the long step",
        "the step before it",
        "the step: which CPU went offline; status incomplete",
    )


def test_garbage_from_sutprobe_is_no_answer(testbed: Testbed, lab: Lab, sut: Sut, scenario: Scenario) -> None:
    garbage = (
        r"printf '#!/bin/sh\nprintf \"{\\\\033[2J\\\\000 nonsense\"\n' > /var/tmp/garbage; chmod 755 /var/tmp/garbage"
    )
    with (
        undone(sut, "rm -f /var/tmp/garbage"),
        lab.calibrating(testbed.inventory({"suts": [sut]}), profile=THREE) as running,
    ):
        # a rename keeps the program that runs as it is; the next step finds the other one
        running.until_step(sut, LONG, f"{garbage}; mv /var/tmp/garbage {PROGRAM}")
        ended = running.end()
    document = lab.document(sut)
    assert measured(document) == {"idle_latency", "jitter"}, ended.text
    assert ("latency_matrix", "failed") in outcomes(lab, sut)
    assert reasons(document)["latency_matrix"].startswith("sutprobe printed no valid JSON document (")
    assert document.run.status == "incomplete"
    assert "\x1b" not in ended.text
    assert "\x1b" not in lab.page(sut)
    assert_nothing_is_left(sut)
    scenario(
        "garbage",
        "another program in sutprobe's place",
        "the steps before it",
        "the step: what was expected and what was found; status incomplete",
    )


REACHES = (
    "cp /bin/true $program",
    "mv /bin/true $program",
    "chmod 777 $directory",
    "mv $directory $directory.away",
    "rm -rf $directory",
    "ln -sfn /tmp $directory",
    "touch $directory/sutprobe.new",
    "ls $directory",
    "cat $program",
    "kill -STOP $p",
    "cat /proc/$p/mem",
    "readlink -v /proc/$p/exe",
)
"""What another user of the SUT may try with the program that was pushed, and with its process."""


def test_other_users_cannot_access_sutprobe_or_its_directory(
    testbed: Testbed, lab: Lab, sut: Sut, scenario: Scenario
) -> None:
    tries = " ".join(f"{command} > /dev/null && echo {number};" for number, command in enumerate(REACHES))
    setting = f"program={PROGRAM}; directory=$(dirname $program); export program directory p"
    as_another = f"runuser -u withpassword -- sh -c '{tries} true' > /run/reached 2> /run/refused"
    with (
        undone(sut, "rm -f /run/reached /run/refused"),
        lab.calibrating(testbed.inventory({"suts": [sut]}), profile=THREE) as running,
    ):
        running.until_step(sut, LONG, f"{setting}; {as_another}")
        ended = running.end()
        reached = sut.read("cat /run/reached")
        refusals = sut.read("cat /run/refused").splitlines()
    assert [REACHES[int(number)] for number in reached.split()] == []
    assert len(refusals) >= len(REACHES), refusals
    document = lab.document(sut)
    assert document.run.status == "complete", ended.text
    assert measured(document) == set(STEPS)
    assert_nothing_is_left(sut)
    scenario(
        "another user reaches for the kernel",
        "another login tries to replace, move, read and stop it, and to move its directory",
        "every step",
        "nothing: every try was refused; status complete",
    )


def test_a_full_disk_on_the_sut_is_found_before_anything_is_measured(
    testbed: Testbed, lab: Lab, sut: Sut, other: Sut, scenario: Scenario
) -> None:
    sut.read(FILL)
    with undone(sut, "rm -f /var/tmp/filler"):
        ended = lab.calibrate(testbed.inventory({"suts": [sut, other]}))
    assert ended.rc == ENVIRONMENT, ended.text
    assert lab.document(other).run.status == "complete"
    document = lab.document(sut)
    assert document.run.status == "not_begun"
    assert "free" in document.not_measured[0].reason
    assert_nothing_is_left(sut)
    scenario(
        "SUT's disk full",
        "1 MiB left on the SUT",
        "the other SUT's run, complete",
        "status not_begun: expected and found free space, exit 3",
    )


def test_a_clock_that_jumps_moves_no_figure_and_ends_no_step(
    testbed: Testbed, lab: Lab, sut: Sut, scenario: Scenario
) -> None:
    with (
        undone(sut, "date -s @$(($(date +%s) - 86400))"),
        lab.calibrating(testbed.inventory({"suts": [sut]}), profile=THREE) as running,
    ):
        running.until_step(sut, LONG, "date -s @$(($(date +%s) + 86400))")
        ended = running.end()
    document = lab.document(sut)
    assert document.run.status == "complete", ended.text
    assert measured(document) == set(STEPS)
    starts = [record.started_at for record in records(lab.newest(sut)) if isinstance(record, StepRecord)]
    assert starts == sorted(starts)
    assert all((measurement.duration_s or 0) < 3600 for measurement in document.measurements)
    assert_nothing_is_left(sut)
    scenario("clock jumps", "a day ahead in the long step", "every step, with its true duration", "status complete")


OLD_PYTHON: Final = """#!/usr/bin/python3 -I
import sys
sys.version, sys.version_info = "3.5.3 (simulated)", (3, 5, 3, "final", 0)
code = sys.argv.index("-c") + 1
program, sys.argv = sys.argv[code], ["-c", *sys.argv[code + 1:]]
exec(program)
"""


def test_missing_or_old_python_is_reported(
    testbed: Testbed, lab: Lab, sut: Sut, other: Sut, scenario: Scenario
) -> None:
    old = "/usr/local/bin/python3.5"
    # says that it is an old one to whatever program it is given
    sut.read(f"printf '%s' {shlex.quote(OLD_PYTHON)} > {old}; chmod 755 {old}")
    assert (
        sut.read(f"{old} -I -S -c 'import sys; print(sys.version_info[:2], sys.argv)' word")
        == "(3, 5) ['-c', 'word']\n"
    )
    hosts = {
        sut.name: {"ansible_python_interpreter": old},
        other.name: {"ansible_python_interpreter": "/usr/bin/no-python"},
    }
    with undone(sut, f"rm {old}"):
        ended = lab.calibrate(testbed.inventory({"suts": [sut, other]}, hosts=hosts))
    assert ended.rc == ENVIRONMENT, ended.text
    for item in (sut, other):
        document = lab.document(item)
        assert document.run.status == "not_begun"
        assert "Python" in document.not_measured[0].reason
        assert_nothing_is_left(item)
    scenario(
        "Python old or missing",
        "an interpreter that says 3.5; none at all",
        "nothing was begun",
        "status not_begun: the wanted Python and what was found, exit 3",
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_full_disk_on_the_controller_keeps_records(testbed: Testbed, lab: Lab, sut: Sut, scenario: Scenario) -> None:
    lab.results.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "testbed", str(lab.results)], check=True)
    filler = lab.results / "filler"
    inventory = testbed.inventory({"suts": [sut]}, {"preflight_results_free_bytes": 0})
    try:
        with lab.calibrating(inventory, profile=THREE) as running:
            running.until_step(sut, LONG)
            running.until("the result of the step before", lambda: outcomes(lab, sut) != [])
            # ends with an error when there is no space left
            subprocess.run(["dd", "if=/dev/zero", f"of={filler}", "bs=4k"], capture_output=True, check=False)
            assert shutil.disk_usage(lab.results).free == 0
            ended = running.end()
        assert ended.rc == ENVIRONMENT, ended.text
        assert "No space left" in ended.text
        assert outcomes(lab, sut)[0] == ("idle_latency", "ok")
        filler.unlink()
        again = lab.calibrate(inventory, "--resume", profile=THREE)
        assert again.rc == VERDICT_FAILED, again.text
        document = lab.document(sut)
        assert document.run.status == "complete"
        assert ["No space left" in (attempt.ended or "") for attempt in document.attempts] == [True, False]
        assert sorted(outcomes(lab, sut)) == [(step, "ok") for step in STEPS]
        assert_nothing_is_left(sut)
    finally:
        subprocess.run(["umount", "--lazy", str(lab.results)], check=True)
    scenario(
        "controller's disk full",
        "results on a full file system in the long step",
        "every step, each measured once: the SUT kept the others for --resume",
        "no space left, exit 3",
    )


def test_two_of_five_suts_fail_and_resume_finishes_what_is_missing(
    testbed: Testbed, lab: Lab, scenario: Scenario
) -> None:
    suts = testbed.suts(*(("small", f"fault-{number}") for number in range(1, 6)))
    inventory = testbed.inventory({"suts": suts})
    # Five SUTs share the CPUs of one machine: only the steps whose deadlines are generous.
    profile = yaml.safe_load(THREE.read_text(encoding="utf-8"))
    del profile["measurements"][LONG]
    brief = lab.directory / "two.yml"
    brief.write_text(yaml.safe_dump(profile), encoding="utf-8")
    first, last = profile["measurements"]
    unreachable, crashing, *good = suts
    unreachable.link(up=False)
    with lab.calibrating(inventory, profile=brief) as running:
        running.until_step(crashing, LAST, "kill -SEGV $p")
        ended = running.end()
    assert ended.rc == ENVIRONMENT, ended.text
    for item in good:
        assert lab.document(item).run.status == "complete"
    assert measured(lab.document(crashing)) == {last}
    assert lab.document(unreachable).run.status == "not_begun"
    kept = {item.name: (lab.newest(item) / "records.jsonl").read_bytes() for item in suts}
    unreachable.link(up=True)
    again = lab.calibrate(inventory, "--resume", profile=brief)
    assert again.rc == VERDICT_FAILED, again.text
    for item in suts:
        assert lab.document(item).run.status == "complete"
        assert measured(lab.document(item)) == {first, last}
        content = (lab.newest(item) / "records.jsonl").read_bytes()
        assert content.startswith(kept[item.name])
        assert (content == kept[item.name]) == (item in good), item.name
    assert [step for step, _ in outcomes(lab, crashing)] == [first, last, first]
    scenario(
        "two of five fail",
        "one unreachable, one kernel crashes",
        "three complete runs, and one of two steps of a fourth",
        "exit 3; --resume measured three steps and no other",
    )
