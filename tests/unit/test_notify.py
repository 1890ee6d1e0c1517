# SPDX-License-Identifier: Apache-2.0
"""Changed states reach a command and a URL, once, and neither can harm the night or show a secret."""

import contextlib
import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from calibration.base.errors import InputError
from calibration.gates.run import GateOutcome
from calibration.judge.answer import Answer
from calibration.judge.night import Judgement
from calibration.nightly import notify as module
from calibration.nightly.notify import NOTIFIED, Hook, Notification, notify
from tests.suts import gone, wait_until
from tests.unit.made_answers import NIGHT, answer

HIDDEN = "s3cr3t"


class Sink(HTTPServer):
    """A server that keeps what it is sent, and answers with ``code``."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Kept)
        self.code, self.bodies, self.kinds = 204, list[bytes](), list[str | None]()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/{HIDDEN}"


class _Kept(BaseHTTPRequestHandler):
    server: Sink

    def do_POST(self) -> None:
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.kinds.append(self.headers["Content-Type"])
        self.send_response(self.server.code)
        self.send_header("Location", f"{self.server.url}/elsewhere")
        self.end_headers()

    def do_GET(self) -> None:
        self.server.bodies.append(b"a redirect was followed")
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@pytest.fixture
def sink(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sink]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with Sink() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class Lab:
    """Results, and the folder of the judgement."""

    def __init__(self, directory: Path) -> None:
        self.results, self.folder = directory / "results", directory / "night"
        for path in (self.results, self.folder):
            path.mkdir()

    def judged(self, *answers: Answer, gates: tuple[GateOutcome, ...] = ()) -> None:
        judgement = Judgement(night=NIGHT, verdicts=(), answers=answers)
        (self.folder / "judgement.json").write_text(judgement.model_dump_json())
        (self.folder / "gates.json").write_text(json.dumps([gate._asdict() for gate in gates]))

    def notify(self, hook: Hook, only: set[tuple[str, str]] | None = None) -> module.Outcome:
        return notify(self.results, self.folder, hook, only)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


@pytest.fixture
def kept(tmp_path: Path) -> tuple[Hook, Callable[[], list[Notification]]]:
    """A command that appends its input to a file, and what is in the file."""
    path = tmp_path / "kept; $(touch hurt)"
    script = f"import sys; open({str(path)!r}, 'a').write(sys.stdin.read() + '\\n')"

    def read() -> list[Notification]:
        lines = path.read_text().splitlines() if path.exists() else []
        return [Notification.model_validate_json(line) for line in lines]

    return Hook([sys.executable, "-c", script], ""), read


def test_only_changes_are_told_and_both_are_told_the_same(
    lab: Lab, sink: Sink, kept: tuple[Hook, Callable[[], list[Notification]]]
) -> None:
    hook = Hook(kept[0].command, sink.url)
    lab.judged(answer("a", "as_accepted"), answer("b", "no_baseline"), answer("c", "fails"), answer("d", "changed"))
    assert lab.notify(hook).changed == ("t1/c",), "SUTs that are new and do not fail need no mention"
    assert lab.notify(hook) == ((), ()), "a night that is judged again repeats nothing"
    lab.judged(answer("a", "fails", what="a\x1b[1m µ"), answer("b", "no_baseline"), answer("c", "fails", others=3))
    assert lab.notify(hook) == (("t1/a",), ())
    lab.judged(answer("a", "as_accepted"), answer("b", "as_accepted"), answer("c", "not_measured"))
    assert lab.notify(hook) == (("t1/a", "t1/b", "t1/c"), ())
    told = kept[1]()
    assert [Notification.model_validate_json(body) for body in sink.bodies] == told
    assert sink.kinds == ["application/json"] * 3
    assert all(body.isascii() and b"\x1b" not in body for body in sink.bodies)
    assert [(item.sut, item.before, item.after) for one in told[:2] for item in one.changes] == [
        ("c", None, "fails"),
        ("a", "as_accepted", "fails"),
    ]
    assert [(item.sut, item.before, item.after) for item in told[2].changes] == [
        ("a", "fails", "as_accepted"),
        ("b", "no_baseline", "as_accepted"),
        ("c", "fails", "not_measured"),
    ]
    assert told[2].text == (
        "Night of 2026-11-22, 3 SUTs: 1 not measured, 2 as accepted; 3 SUTs changed state\n"
        "t1/a as accepted (was: fails)\n"
        "t1/b as accepted (was: unknown: no baseline)\n"
        "t1/c unknown: not measured: no run this night (was: fails)"
    )
    assert told[0].changes[0].answer[0] == "fails since 2026-11-22: it is too slow"
    assert told[1].changes[0].answer == (
        "fails since 2026-11-22: a\\x1b[1m µ",
        "Measurement: sharp: 2 of 2 headline metrics within the goal",
        "Changed: no configuration change",
        "May we test? no",
    )


def test_a_command_gets_json_on_its_input_and_no_shell(
    lab: Lab, kept: tuple[Hook, Callable[[], list[Notification]]], tmp_path: Path
) -> None:
    what = "$(touch hurt); `touch hurt` ' \" \n <!channel>"
    lab.judged(answer("a", "fails", what=what))
    assert lab.notify(kept[0]).undelivered == ()
    (told,) = kept[1]()
    assert told.changes[0].answer[0] == f"fails since {NIGHT}: {what}".replace("\n", "\\n"), "it forges no line"
    assert not list(tmp_path.rglob("hurt"))


def test_what_a_sut_says_addresses_no_chat(lab: Lab, sink: Sink) -> None:
    """Chats interpret the text."""
    what = "Kernel: found <!channel> @all ![](https://example.org/#x) `a` *b* ~c\n# d & " + "e" * 400
    gate = GateOutcome("Own", "t1 / b", "FAIL", "@here\n# quoted", verdicts=False)
    lab.judged(answer("a", "fails", what=what), answer("b", "as_accepted"), gates=(gate,))
    lab.notify(Hook([], sink.url))
    first, *lines = Notification.model_validate_json(sink.bodies[0]).text.split("\n")
    assert first == "Night of 2026-11-22, 2 SUTs: 2 failed; 2 SUTs changed state"
    assert lines[0].startswith(
        "t1/a fails since 2026-11-22: Kernel: found ??channel? ?all ???(https:/?example.org/?x) ?a? ?b? ?c?? d ? eee"
    )
    assert lines[1:] == ["t1/b gate failed: Own: ?here?? quoted"]
    assert len(lines[0]) <= module.MAX_LINE + len("t1/a ")


def test_what_a_sut_reports_is_bounded(lab: Lab, sink: Sink) -> None:
    gates = tuple(GateOutcome(f"gate {number}", "t1 / s0", "FAIL", "it is", verdicts=False) for number in range(40))
    lab.judged(*(answer(f"s{number}", "fails") for number in range(100)), gates=gates)
    assert len(lab.notify(Hook([], sink.url)).changed) == 100
    told = Notification.model_validate_json(sink.bodies[0])
    assert len(told.changes) == 100
    assert max(len(item.gates) for item in told.changes) == module.MAX_FAILURES
    assert told.text.splitlines()[-1] == f"and {100 - module.MAX_LINES} more"


def test_an_own_gate_fails_a_sut_and_one_of_verdicts_repeats_nothing(lab: Lab, sink: Sink) -> None:
    gates = (
        GateOutcome("Own", "t1 / a", "FAIL", "it is not", verdicts=False),
        GateOutcome("Of Verdicts", "t1 / b", "FAIL", "m", verdicts=True),
        GateOutcome("Of The Lab", "", "FAIL", "m", verdicts=False),
        GateOutcome("Own", "t1 / c", "FAIL", "it is not", verdicts=False),
        GateOutcome("Own", "t1 / d", "FAIL", "it is not", verdicts=False),
    )
    states = {"a": "as_accepted", "b": "as_accepted", "c": "no_baseline", "d": "faulty"}
    lab.judged(*(answer(sut, state) for sut, state in states.items()), gates=gates)  # type: ignore[arg-type]
    assert lab.notify(Hook([], sink.url)).changed == ("t1/a", "t1/c", "t1/d")
    told = Notification.model_validate_json(sink.bodies[0])
    assert [change.after for change in told.changes] == ["fails", "fails", "faulty"]
    assert {change.gates for change in told.changes} == {("Own: it is not",)}
    assert told.text.splitlines()[1:] == [
        "t1/a gate failed: Own: it is not",
        "t1/c gate failed: Own: it is not",
        "t1/d unknown: faulty measurement",
    ]


def test_suts_left_out_on_purpose_are_not_told_and_not_forgotten(lab: Lab, sink: Sink) -> None:
    hook = Hook([], sink.url)
    lab.judged(answer("a", "as_accepted"), answer("b", "fails"))
    lab.notify(hook)
    lab.judged(answer("a", "fails"), answer("b", "as_accepted"))
    assert lab.notify(hook, {("t1", "a")}).changed == ("t1/a",)
    assert lab.notify(hook).changed == ("t1/b",)


def test_a_sut_that_left_the_lab_is_forgotten(lab: Lab, sink: Sink) -> None:
    lab.judged(answer("a", "fails"), answer("b", "fails"))
    lab.notify(Hook([], sink.url))
    lab.judged(answer("a", "fails"), answer("b", "gone"))
    assert lab.notify(Hook([], sink.url)).changed == ()
    assert json.loads((lab.results / NOTIFIED).read_bytes()) == {"states": {"t1/a": "fails"}}


@pytest.mark.parametrize("code", [302, 307, 404, 500])
def test_what_a_server_refuses_is_told_again(lab: Lab, sink: Sink, code: int) -> None:
    lab.judged(answer("a", "fails"), answer("b", "as_accepted"))
    sink.code = code
    refused = lab.notify(Hook([], sink.url))
    assert refused == (("t1/a",), (f"the server of notify_url answered {code}",))
    sink.code = 200
    assert lab.notify(Hook([], sink.url)) == (("t1/a",), ())
    assert sink.bodies[0] == sink.bodies[1]
    assert len(sink.bodies) == 2, "no redirect is followed"
    assert lab.notify(Hook([], sink.url)) == ((), ())


def test_a_recovery_that_was_not_delivered_is_told_with_the_state_before(lab: Lab, sink: Sink) -> None:
    hook = Hook([], sink.url)
    lab.judged(answer("a", "fails"))
    lab.notify(hook)
    lab.judged(answer("a", "as_accepted"))
    sink.code = 503
    lab.notify(hook)
    sink.code = 200
    assert lab.notify(hook) == (("t1/a",), ())
    (change,) = Notification.model_validate_json(sink.bodies[-1]).changes
    assert (change.before, change.after) == ("fails", "as_accepted")


@pytest.mark.parametrize(("command", "said"), [
    (["false", HIDDEN], "notify_command ended with exit code 1"),
    (["sh", "-c", f"echo {HIDDEN}; echo {HIDDEN} >&2; kill -9 $$"], "notify_command ended with exit code -9"),
    ([f"/nowhere/{HIDDEN}"], "notify_command cannot be run: No such file or directory"),
    (["/", HIDDEN], "notify_command cannot be run: Permission denied"),
    ([f"a\0{HIDDEN}"], "notify_command cannot be run: ValueError"),
])  # fmt: skip
def test_a_command_that_fails_is_reported_without_what_it_says(
    lab: Lab, command: list[str], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    lab.judged(answer("a", "fails"))
    assert lab.notify(Hook(command, "")).undelivered == (said,)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("url", "said"), [
    (f"ftp://example.org/{HIDDEN}", "notify_url is not a URL that begins with http:// or https://"),
    (HIDDEN, "notify_url is not a URL that begins with http:// or https://"),
    (f"file:///{HIDDEN}", "notify_url is not a URL that begins with http:// or https://"),
    (f"http://user:{HIDDEN}@127.0.0.1:1/", "the server of notify_url"),
    (f"http://127.0.0.1:1/{HIDDEN}", "the server of notify_url cannot be reached: Connection refused"),
    (f"http://[{HIDDEN}/", "the server of notify_url gave no answer: ValueError"),
    (f"http://127.0.0.1:1/a b{HIDDEN}", "the server of notify_url gave no answer: InvalidURL"),
])  # fmt: skip
@pytest.mark.usefixtures("sink")
def test_a_url_that_cannot_be_reached_is_reported_and_not_shown(lab: Lab, url: str, said: str) -> None:
    lab.judged(answer("a", "fails"))
    (fault,) = lab.notify(Hook([], url)).undelivered
    assert fault.startswith(said)
    assert HIDDEN not in fault


def test_a_command_that_hangs_is_ended_with_its_children(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "TIMEOUT_S", 0.5)
    lab.judged(answer("a", "fails"))
    command = ["sh", "-c", f"sleep 600 & echo $! > {tmp_path}/child; wait"]
    assert lab.notify(Hook(command, "")).undelivered == ("notify_command has not ended within 0.5 s",)
    child = int((tmp_path / "child").read_text())
    wait_until(lambda: gone(child))


def test_a_server_that_hangs_is_given_up(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMEOUT_S", 0.2)
    lab.judged(answer("a", "fails"))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/{HIDDEN}"
        (fault,) = lab.notify(Hook([], url)).undelivered
    assert fault.startswith("the server of notify_url ")
    assert "imeout" in fault or "timed out" in fault or "has not answered within 0.2 s" in fault


ENDLESS = {
    "header": (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
    "informational": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "status": (b"HTTP", b"x"),
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_a_server_whose_answer_never_ends_is_given_up(lab: Lab, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(module, "TIMEOUT_S", 0.5)
    lab.judged(answer("a", "fails"))
    ended = threading.Event()

    def trickle() -> None:
        peer, _ = server.accept()
        with peer, contextlib.suppress(OSError):
            peer.sendall(ENDLESS[kind][0])
            while not ended.wait(0.01):
                peer.sendall(ENDLESS[kind][1])

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=trickle, daemon=True)
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.getsockname()[1]}/{HIDDEN}"
            (fault,) = lab.notify(Hook([], url)).undelivered
        finally:
            ended.set()
            thread.join()
    assert fault == "the server of notify_url has not answered within 0.5 s"


def test_an_endless_body_is_not_read(lab: Lab) -> None:
    lab.judged(answer("a", "fails"))
    closed = threading.Event()

    def reply() -> None:
        peer, _ = server.accept()
        with peer, contextlib.suppress(OSError):
            peer.recv(1 << 16)
            peer.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                peer.sendall(b"x" * 4096)
        closed.set()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=reply, daemon=True).start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/{HIDDEN}"
        assert lab.notify(Hook([], url)).undelivered == ()
        assert closed.wait(60)


def test_a_command_that_prints_without_end_or_reads_nothing_is_no_problem(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TIMEOUT_S", 2.0)
    lab.judged(*(answer(f"sut-{number}", "fails", what="x" * 400) for number in range(1000)))
    assert lab.notify(Hook(["true"], "")).undelivered == ()
    (lab.results / NOTIFIED).unlink()
    assert lab.notify(Hook(["yes"], "")).undelivered == ("notify_command has not ended within 2 s",)
    assert len(lab.notify(Hook(["head", "-c", "99999999", "/dev/zero"], "")).changed) == 1000, "told again"


def test_if_one_of_two_fails_both_are_told_again(
    lab: Lab, sink: Sink, kept: tuple[Hook, Callable[[], list[Notification]]]
) -> None:
    lab.judged(answer("a", "fails"))
    sink.code = 503
    assert lab.notify(Hook(kept[0].command, sink.url)).undelivered == ("the server of notify_url answered 503",)
    sink.code = 200
    assert lab.notify(Hook(kept[0].command, sink.url)).undelivered == ()
    assert (len(kept[1]()), len(sink.bodies)) == (2, 2)


def test_states_that_cannot_be_read_are_told_again(lab: Lab, sink: Sink) -> None:
    lab.judged(answer("a", "fails"))
    (lab.results / NOTIFIED).write_text('{"states": {"t1/a": "unheard of"}}')
    assert lab.notify(Hook([], sink.url)).changed == ("t1/a",)
    assert lab.notify(Hook([], sink.url)).changed == ()


def test_states_are_no_link_and_can_be_written(lab: Lab, sink: Sink, tmp_path: Path) -> None:
    lab.judged(answer("a", "fails"))
    (lab.results / NOTIFIED).symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_text('{"states": {}}')
    with pytest.raises(InputError, match="a symbolic link; remove it"):
        lab.notify(Hook([], sink.url))
    (lab.results / NOTIFIED).unlink()
    (lab.results / NOTIFIED).mkdir()
    with pytest.raises(InputError, match="not a regular file"):
        lab.notify(Hook([], sink.url))


def test_a_judgement_that_is_missing_is_an_error(lab: Lab, sink: Sink) -> None:
    with pytest.raises(InputError, match="cannot read the judgement in "):
        lab.notify(Hook([], sink.url))
    assert sink.bodies == []
