# SPDX-License-Identifier: Apache-2.0
"""The display: live lines on a terminal, plain lines elsewhere, complete failures."""

import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.utils.display import Display
from support import PATIENCE_S, ROOT, SLOW, Lab, calibrate_command, inventory_of, load_plugin

from calibration.judge.judged import JudgedNights
from calibration.judge.night import judge_testbed
from calibration.judge.standing import Standings
from calibration.report.story import told
from calibration.results.store import read_run
from tests.report.report_documents import RECORDED, judged, run_document, store

CALLBACK = load_plugin("callback", "progress")

STEPS = [
    {"id": "a", "title": "Core jitter", "expected_duration_s": 10.0},
    {"id": "b", "title": "Latency ladder", "expected_duration_s": 60.0},
    {"id": "c", "title": "Idle latency", "expected_duration_s": 5.0},
]


class Stream(io.StringIO):
    """A stream that is a terminal or not."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.mark.parametrize(
    ("terminal", "environment", "wanted"),
    [
        (True, {"TERM": "xterm"}, (True, True)),
        (True, {"TERM": "xterm", "NO_COLOR": "1"}, (True, False)),
        (True, {"TERM": "dumb"}, (False, False)),
        (True, {}, (False, False)),
        (False, {"TERM": "xterm"}, (False, False)),
    ],
)
def test_live_lines_and_colour_need_a_capable_terminal(
    terminal: bool, environment: dict[str, str], wanted: tuple[bool, bool]
) -> None:
    assert CALLBACK.terminal_wants(Stream(terminal=terminal), environment) == wanted


def step_records(*steps: str) -> bytes:
    """Return records of *steps*."""
    return b"".join(json.dumps({"record": "step", "step": {"id": step}}).encode() + b"\n" for step in steps)


def test_progress_follows_the_records_and_estimates_the_rest(tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    progress = CALLBACK.Progress("sut1", str(records))
    progress.follow(190.0)  # not begun
    assert progress.left == []
    records.write_bytes(json.dumps({"record": "start", "plan": {"steps": STEPS}}).encode() + b"\n")
    progress.follow(200.0)
    assert progress.line(204.0) == "sut1: step 1 of 3 (4 s elapsed, about 1:11 left): Core jitter"
    with records.open("ab") as stream:
        stream.write(step_records("a") + b'{"record":"note"}\n' + step_records("b")[:9])
        stream.flush()
        progress.follow(212.0)
        assert progress.line(222.0) == "sut1: step 2 of 3 (22 s elapsed, about 55 s left): Latency ladder"
        assert progress.remaining_s(400.0) == 5.0
        stream.write(step_records("b")[9:] + step_records("b"))  # tried once more
        stream.flush()
        progress.follow(280.0)
        assert [step["id"] for step in progress.left] == ["c"]
        stream.write(b'{"record":"resume"}\n' + step_records("c"))
    progress.follow(286.0)
    assert progress.remaining_s(290.0) == 0.0
    assert progress.line(290.0) == "sut1: step 3 of 3 (4 s elapsed, about 0 s left): all steps done"


def test_progress_through_rounds_names_the_round(tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    progress = CALLBACK.Progress("sut1", str(records))
    steps = [{**step, "rounds": 3, "expected_duration_s": 30.0} for step in STEPS[:2]]
    steps.append({**STEPS[2], "expected_duration_s": 5.0})
    records.write_bytes(json.dumps({"record": "start", "plan": {"steps": steps}}).encode() + b"\n")
    progress.follow(100.0)
    assert progress.line(100.0) == "sut1: round 1 of 3, 0 of 2 steps done (0 s elapsed, about 1:05 left)"
    with records.open("ab") as stream:
        stream.write(step_records("b", "a", "a"))
    progress.follow(130.0)
    assert progress.line(130.0) == "sut1: round 2 of 3, 1 of 2 steps done (30 s elapsed, about 35 s left)"
    with records.open("ab") as stream:
        stream.write(step_records("b", "b", "a", "a"))  # a further round of one of them
    progress.follow(160.0)
    assert progress.line(162.0) == f"sut1: step 3 of 3 (1:02 elapsed, about 3 s left): {STEPS[2]['title']}"


def screen(*, live: bool, colour: bool = False) -> tuple[Any, Stream]:
    stream = Stream(terminal=live)
    return CALLBACK.Screen(stream, live, colour, threading.RLock()), stream


def test_a_log_has_only_plain_lines() -> None:
    shown, stream = screen(live=False)
    shown.draw(["live"])
    shown.message("first", "red")
    shown.draw(["live"])
    shown.clear()
    assert stream.getvalue() == "first\n"


ERASED = "\r\033[1A\033[2K"
"""What erases a live line."""


def test_a_terminal_replaces_its_live_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    shown, stream = screen(live=True)
    shown.draw(["one", "a line that is much too long for it"])
    shown.draw(["two \x07"])
    shown.message("said")
    assert re.split(r"\r?(?:\033\[(?:2K|1A|\?25[lh]))+", stream.getvalue()) == [
        *("", "one\na line that is much…", "two \\x07"),
        *("two \\x07\n", "", "said\n"),
    ]
    assert stream.getvalue().endswith(f"{ERASED}said\n")


def test_output_of_ansible_appears_above_the_live_lines() -> None:
    shown, stream = screen(live=True)
    shown.draw(["live"])
    CALLBACK.BesideScreen(stream, shown).write("a \x07 warning\n")
    assert stream.getvalue().endswith(f"live\n\033[?25h{ERASED}a \\x07 warning\n")


def test_drawing_and_ansibles_own_messages_never_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    drawing = threading.Event()

    class Terminal(Stream):
        """Ansible locks its display around each write to the terminal."""

        def write(self, text: str) -> int:
            drawing.set()
            with Display()._lock:
                return super().write(text)

    monkeypatch.setattr(sys, "stdout", stream := Terminal(terminal=True))
    monkeypatch.setenv("TERM", "xterm")
    shown = CALLBACK.CallbackModule().screen
    drawer = threading.Thread(target=shown.draw, args=(["live"],), daemon=True)
    with Display()._lock:  # as Ansible does to print a message, which then clears the live lines
        drawer.start()
        drawing.wait(0.2)
        free = shown.lock.acquire(blocking=False)
    assert free
    shown.lock.release()
    drawer.join(PATIENCE_S)
    assert "live" in stream.getvalue()


def test_counts_suts_that_do_not_fit_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "6")
    shown, stream = screen(live=True)
    shown.draw([f"sut{number}" for number in range(10)])
    assert stream.getvalue().endswith("sut0\nsut1\nsut2\nand 7 more SUTs")


def test_many_suts_that_end_without_a_word_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(CALLBACK, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    shown, stream = screen(live=False)
    callback = SimpleNamespace(screen=shown, measuring=set(), done=0, finished={}, stop_refreshing=lambda: None)
    beside = CALLBACK.BesideScreen(stream, shown)
    for number in range(1, 101):
        clock[0] += 1.0
        if number == 60:
            beside.write("sut60: step 1 of 1\n")
        result = SimpleNamespace(task=SimpleNamespace(action=CALLBACK.MEASURE), host=SimpleNamespace(), result={})
        result.host.get_name = f"sut{number}".__str__
        CALLBACK.CallbackModule.task_ended(callback, result)
    assert stream.getvalue().splitlines() == ["31 SUTs are done", "sut60: step 1 of 1", "91 SUTs are done"]


def test_the_first_word_comes_before_the_first_task() -> None:
    shown, stream = screen(live=False)
    callback = SimpleNamespace(screen=shown, phases=set())
    for name in ("preflight", "measure"):
        role = SimpleNamespace(get_name=lambda name=name, **_: name)
        task = SimpleNamespace(_role=role, action="ansible.builtin.validate_argument_spec", check_mode=False)
        CALLBACK.CallbackModule.v2_playbook_on_task_start(callback, task, False)
    assert stream.getvalue().splitlines() == ["Checking the controller and the SUTs"]


def test_shows_a_failure_completely() -> None:
    long = "expected this, " * 100
    assert CALLBACK.failure_text({"msg": long}) == long.strip()
    assert CALLBACK.failure_text({}) == "no reason was given"


def test_a_terminal_shows_the_current_step_until_interrupted(lab: Lab) -> None:
    controller, terminal = pty.openpty()
    seen = b""
    with subprocess.Popen(
        calibrate_command(inventory_of(lab, {"localhost": {}}, SLOW)),
        cwd=ROOT,
        env=lab.environment(TERM="xterm", COLUMNS="100", LINES="30"),
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=terminal,
        process_group=0,
    ) as process:
        os.close(terminal)
        try:
            until = time.monotonic() + PATIENCE_S
            interrupted = False
            while True:
                left_s = until - time.monotonic()
                assert left_s > 0, seen.decode()
                if not select.select([controller], [], [], left_s)[0]:
                    continue
                try:
                    seen += os.read(controller, 65536)
                except OSError:  # the other end is closed
                    break
                if not interrupted and seen.count(b"step 2 of 2") >= 3:
                    os.killpg(process.pid, signal.SIGINT)
                    interrupted = True
            code = process.wait(PATIENCE_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    os.close(controller)
    text = seen.decode()
    assert code == 4, text
    assert re.search(r"localhost: step 2 of 2 \([\d: s]+ elapsed, about \S+ left\): Latency matrix", text)
    assert "\033[1A" in text
    (run,) = lab.runs()
    assert f"Results: {run}\r\n" in text
    assert lab.leftovers() == []
    document = read_run(run)
    assert document.run.status == "interrupted"
    assert [measurement.kind for measurement in document.measurements] == ["idle_latency"]
    assert [gone.kind for gone in document.not_measured if gone.cause == "interrupted"] == ["latency_matrix"]
    page = (run / "report" / "page.rst").read_text(encoding="utf-8")
    assert "a signal ended the measurement before it was done" in page
    assert "run interrupted, 1 of 2 steps measured" in text


def test_a_reason_is_shown_once() -> None:
    """The action that examines a SUT says at once why it refuses it; the verdict has the reason again."""
    shown, stream = screen(live=False)
    callback = SimpleNamespace(screen=shown, shown=set(), task_ended=lambda _: None, show_details=lambda _: None)
    callback.say = partial(CALLBACK.CallbackModule.say, callback)
    host, task = SimpleNamespace(get_name=lambda: "sut1"), SimpleNamespace(action="calibration.harness.preflight")
    refused = {"fit": False, "reason": "not reachable: no route"}
    CALLBACK.CallbackModule.v2_runner_on_ok(callback, SimpleNamespace(host=host, task=task, result=refused))
    failed = SimpleNamespace(host=host, task=task, result={"msg": "Calibration failed\nnot reachable: no route\nmore"})
    for _ in range(2):
        CALLBACK.CallbackModule.v2_runner_on_failed(callback, failed)
    assert stream.getvalue().splitlines() == ["sut1: Calibration failed", "  more"]


@pytest.mark.parametrize("count", [1, 4, 5])
def test_a_run_ends_with_a_screen_per_sut_or_a_line_for_many(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = judged(run_document(names=tuple(name for name in RECORDED if name != "burn_in")))  # that runs alone
    names = [f"sut{number}" for number in range(count)]
    runs = {
        name: store(document.model_copy(update={"run": document.run.model_copy(update={"sut": name})}), tmp_path)
        for name in names
    }
    answers = {name: told(read_run(run), run, Standings()).answer[0][1] for name, run in runs.items()}
    read: list[str] = []

    def judge_counted(*args: Any, **named: Any) -> JudgedNights:
        read.append(named["sut"])
        return judge_testbed(*args, **named)

    monkeypatch.setattr("calibration.judge.standing.judge_testbed", judge_counted)
    shown, stream = screen(live=False, colour=count > 4)
    ended = {"status": "complete", "document": None, "pace": None}
    callback = SimpleNamespace(
        screen=shown,
        finished={name: {**ended, "directory": str(run)} for name, run in runs.items()},
        page_in_site=lambda _document: None,
    )
    callback.finished["sut0"]["status"] = "incomplete"
    CALLBACK.CallbackModule.show_finished(callback, SimpleNamespace(failures={"sut1": 1}, dark={"sut2": 1}))
    lines = stream.getvalue().splitlines()
    if count > 4:
        assert read == [None], "a testbed is judged once for all of its SUTs"
        assert lines == [
            f"\033[31m{name}: {machine}\033[0m" if name in {"sut0", "sut1", "sut2"} else f"{name}: {machine}"
            for name, machine in answers.items()
        ]
    else:
        assert read == names
        assert len(lines) <= 24 * count, "a terminal has 24 rows"
        assert [line for line in lines if "Results:" in line] == [f"  Results: {run}" for run in runs.values()]
        heads = [f"{document.run.testbed} / {name} " for name in names]
        assert [head for head in heads for line in lines if line.startswith(f"? {head}")] == heads
