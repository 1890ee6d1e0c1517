# SPDX-License-Identifier: Apache-2.0
"""Decisions of the actions, without Ansible."""

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import yaml
from ansible.cli.playbook import PlaybookCLI
from ansible.errors import AnsibleConnectionFailure
from support import ROOT, load_plugin

from calibration.base.errors import VERDICT_FAILED, ConnectionLostError, InputError, RefusedError
from calibration.base.tuning import Unrestored
from calibration.commands import playbook_run
from calibration.judge.run import verdicts_of
from calibration.report.summary import failures, summary
from calibration.run.remote import Found
from tests.report.report_documents import not_begun_document, run_document, store

CLEANUP = load_plugin("action", "cleanup")

ACTIONS = load_plugin("plugin_utils", "actions")

MEASURE = load_plugin("action", "measure").ActionModule

BOOT, OTHER_BOOT = "11111111-2222-3333-4444-555555555555", "22222222-2222-3333-4444-555555555555"


@pytest.mark.parametrize("records", [None, b"", b'{"record": "sta'])
def test_removes_a_run_that_did_not_begin_with_its_empty_parents(tmp_path: Path, records: bytes | None) -> None:
    results = tmp_path / "results"
    directory = results / "testbed1" / "sut1" / "run"
    directory.mkdir(parents=True)
    (directory / "context.tar.gz").write_bytes(b"half")
    if records is not None:
        (directory / "records.jsonl").write_bytes(records)
    CLEANUP.remove_partial(directory)
    assert list(results.iterdir()) == []


def test_removes_a_partial_document_and_keeps_the_run(tmp_path: Path) -> None:
    directory = tmp_path / "testbed1" / "sut1" / "run"
    directory.mkdir(parents=True)
    (directory / ".run.json.4711").write_bytes(b"{")
    (directory / "records.jsonl").write_bytes(b'{"record": "start"}\n')
    CLEANUP.remove_partial(directory)
    assert [path.name for path in directory.iterdir()] == ["records.jsonl"]


TURBO = Unrestored(setting="turbo", where="no_turbo", wanted="0", found="1", error=None)


class Refusing:
    """A SUT with a run that it does not end, or does not restore."""

    def __init__(self, cancel: Exception | None, faults: tuple[Unrestored, ...]) -> None:
        self.found = [Found(directory="/b/calibration-r-s-00000000", boot_id=None, planned=True)]
        self.error, self.faults = cancel, faults

    def find(self, _run_id: str, _sut: str) -> list[Found]:
        return self.found

    def cancel(self, _directory: str, *, limit_s: float) -> None:
        assert limit_s > 0
        if self.error:
            raise self.error

    def remove(self, _directory: str, *, limit_s: float) -> tuple[tuple[()], tuple[Unrestored, ...]]:
        assert limit_s > 0
        return (), self.faults


@pytest.mark.parametrize(
    ("sut", "said"),
    [
        (Refusing(RefusedError("the run does not end within 20 s"), ()), "the run does not end within 20 s"),
        (Refusing(None, (TURBO,)), "Not restored: turbo at no_turbo: wanted 0, found 1"),
    ],
    ids=["does not end", "is not restored"],
)
def test_a_sut_that_cannot_be_cleaned_fails_the_cleanup(sut: Refusing, said: str, tmp_path: Path) -> None:
    action = CLEANUP.ActionModule.__new__(CLEANUP.ActionModule)
    action.task_vars = {"inventory_hostname": "sut1"}
    action.remote = lambda *_: sut
    names = {"testbed": "t1", "sut": "sut1", "run_id": "r1", "lock": "l", "remote_base": "/b"}
    result = action.act({"results_dir": str(tmp_path), **names})
    assert (result["failed"], result["msg"]) == (True, said)


class WaitsError(Exception):
    """A SUT waits for another."""


@pytest.mark.parametrize(
    ("boot_id", "lock", "waits"),
    [(BOOT, "l", True), (OTHER_BOOT, "l", False), (BOOT, "of a container", False), (None, "l", False)],
    ids=["one machine", "another machine", "another lock", "unknown"],
)
def test_a_sut_waits_for_those_of_its_own_machine_alone(
    boot_id: str | None, lock: str, *, waits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ansible.constants.DEFAULT_LOCAL_TMP", str(tmp_path))
    first, second = (CLEANUP.ActionModule.__new__(CLEANUP.ActionModule) for _ in range(2))

    def say(_text: str) -> None:
        raise WaitsError

    second.say = say
    with first.turn(BOOT, "l"), pytest.raises(WaitsError) if waits else nullcontext(), second.turn(boot_id, lock):
        pass
    with second.turn(BOOT, "l"):
        pass


@pytest.mark.parametrize("check_mode", [True, False])
def test_check_mode_neither_reserves_nor_releases_the_generator(*, check_mode: bool) -> None:
    plugin = load_plugin("action", "reserve_generator")
    action = plugin.ActionModule.__new__(plugin.ActionModule)
    action._task = SimpleNamespace(check_mode=check_mode)
    asked: list[str] = []

    def hold(*_: str, only_check: bool) -> bool:
        asked.append("whether it is free" if only_check else "hold")
        return True

    def release(*_: str) -> bool:
        asked.append("release")
        return True

    action.remote = lambda *_: SimpleNamespace(hold_generator=hold, release_generator=release)
    for state in ("held", "released"):
        action.act({"state": state, "path": "/tmp/reservation_dir", "run_id": "r1", "sut": "sut1"})
    assert asked == (["whether it is free"] if check_mode else ["hold", "release"])


def test_an_unreadable_reference_keeps_all_runs(tmp_path: Path) -> None:
    plugin = load_plugin("action", "delete_old_runs")
    action = plugin.ActionModule.__new__(plugin.ActionModule)
    warnings: list[str] = []
    action._display = SimpleNamespace(warning=warnings.append)
    action._task = SimpleNamespace(check_mode=False)
    (tmp_path / "references").mkdir()
    (tmp_path / "references" / "x.json").write_text("{")
    policy = {"nights": 1, "raw_nights": 1}
    assert action.act({"results": str(tmp_path), "run_id": "20261122T023005Z-3f2a", **policy}) == {"removed": []}
    (warning,) = warnings
    assert "references/x.json" in warning
    assert "nothing was removed" in warning


def test_ages_count_from_the_night_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = load_plugin("action", "delete_old_runs")
    action = plugin.ActionModule.__new__(plugin.ActionModule)
    action._task = SimpleNamespace(check_mode=False)
    asked: list[date] = []
    monkeypatch.setattr(plugin, "expired", lambda _results, tonight, _policy: asked.append(tonight) or [])
    for run_id in ("20260101T023005Z-3f2a", "of-a-person"):
        action.act({"results": str(tmp_path), "run_id": run_id, "nights": 1, "raw_nights": 1})
    assert asked[0] == date(2026, 1, 1)
    assert asked[1] > asked[0], "today"


@pytest.mark.parametrize("limited", [True, False])
def test_suts_that_a_limit_leaves_out_are_neither_missed_nor_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, limited: bool
) -> None:
    hosts, asked = {("t1", "a"): "host"}, {}
    task_vars = {"ansible_limit": "host"} if limited else {}

    def failures(*_given: object, limited: bool) -> dict[str, list[str]]:
        asked["judge"] = limited
        return {}

    def tell(*given: object) -> tuple[tuple[()], tuple[()]]:
        asked["notify"] = given[-1]
        return (), ()

    judged = (SimpleNamespace(answers=()), (), False)
    monkeypatch.setattr("calibration.nightly.judgement.judge", lambda *_: judged)
    monkeypatch.setattr("calibration.nightly.judgement.screen", lambda *_: "")
    monkeypatch.setattr("calibration.nightly.judgement.failures", failures)
    monkeypatch.setattr("calibration.nightly.notify.notify", tell)
    given = {
        "results": "r",
        "output": str(tmp_path),
        "judgement": "j",
        "run_id": "x",
        "gates": (),
        "command": (),
        "url": "",
    }
    for name in ("judge", "notify"):
        plugin = load_plugin("action", name)
        action = plugin.ActionModule.__new__(plugin.ActionModule)
        action.task_vars, action._loader = task_vars, None
        action._display = SimpleNamespace(display=lambda _text: None)
        monkeypatch.setattr(plugin, "hosts_by_names", lambda *_: hosts)
        action.act(given)
    assert asked == {"judge": limited, "notify": set(hosts) if limited else None}


def test_a_document_without_a_page_fails_after_the_others_have_theirs(tmp_path: Path) -> None:
    plugin = load_plugin("action", "report")
    action = plugin.ActionModule.__new__(plugin.ActionModule)
    store(run_document(names=("idle_latency",), sut="good"), tmp_path)
    store(run_document(names=("idle_latency",), sut="bad"), tmp_path)
    (broken,) = tmp_path.glob("*/bad/*/run.json")
    broken.write_bytes(b"{")
    result = action.act({"results": str(tmp_path), "run_id": None, "site": None})
    (page,) = result["pages"]
    assert "/good/" in page
    assert (result["failed"], result["exit_code"]) == (True, VERDICT_FAILED)
    assert str(broken) in result["msg"]


def test_reports_failed_verdicts_by_kind_with_the_worst_first(tmp_path: Path) -> None:
    run = run_document(names=("idle_latency", "latency_matrix"))
    some = list(verdicts_of(run.measurements))[:1] * 5
    values = [
        ("a", "fail", 1.0),
        ("b", "fail", 2.0),
        ("c", "invalid", None),
        ("d", "invalid", None),
        ("e", "pass", 9.0),
    ]
    verdicts = tuple(
        verdict.model_copy(
            update={
                "name": name,
                "outcome": outcome,
                "reason": f"{name} is wrong",
                "upper": None if off is None else verdict.metric.value / (1 + off),
            }
        )
        for verdict, (name, outcome, off) in zip(some, values, strict=True)
    )
    judged = run.model_copy(update={"verdicts": verdicts, "consistency": ()})
    assert summary(tmp_path, judged)["failed_verdicts"] == [
        "b: b is wrong (and 1 more limit)",
        "c: c is wrong (and 1 more invalid metric)",
    ]
    missing = verdicts[0].model_copy(update={"name": "z", "metric": None})
    judged = judged.model_copy(update={"verdicts": (*verdicts, missing)})
    assert summary(tmp_path, judged)["failed_verdicts"][0] == "z: a is wrong (and 2 more limits)"


def test_a_run_that_did_not_begin_fails_with_the_reason_that_was_said_before(tmp_path: Path) -> None:
    document = not_begun_document()
    (missing,) = document.not_measured
    assert failures(summary(tmp_path, document), "again")[:2] == ["Calibration failed, run not begun", missing.reason]


def test_what_ssh_says_of_a_lost_connection_is_one_line() -> None:
    action = ACTIONS.SutAction.__new__(ACTIONS.SutAction)
    action._connection, action.login = SimpleNamespace(become=None), lambda: "lab"
    with pytest.raises(ConnectionLostError, match=r"^not reachable: timed out during banner; closed$"):  # noqa: SIM117
        with action.question("a command"):
            raise AnsibleConnectionFailure("timed out during banner\r\nclosed\r\n")


PRIVILEGES = load_plugin("plugin_utils", "privileges")


@dataclass(frozen=True)
class Become:
    """A plugin to become another user."""

    name: str

    def get_option(self, _name: str) -> None:
        """Return the option's default."""


@pytest.mark.parametrize(
    ("name", "code", "said", "reason"),
    [
        ("sudo", 127, "/bin/sh: 1: sudo: not found", "sudo is not installed on the SUT: install it"),
        ("community.general.doas", 127, "bash: line 1: doas: command not found", "doas is not installed on the SUT"),
        ("sudo", 1, "sudo: sorry, you must have a tty to run sudo", "sudo requires a terminal: remove requiretty"),
        ("sudo", 1, "lab is not in the sudoers file.", "sudo is not permitted to lab on the SUT: allow it there"),
        ("sudo", None, "Missing sudo password", "sudo asks lab for a password"),
        ("sudo", None, "Incorrect sudo password", "sudo refuses the password of lab"),
        ("su", None, "Timeout (22s) waiting for privilege escalation prompt: ", "su asks lab for a password"),
        ("doas", 1, "doas: Operation not permitted", "doas is not permitted to lab on the SUT"),
        ("doas", 1, "Welcome\ndoas: Authentication failed", "doas reads passwords from a terminal only: permit lab"),
        ("sudo", 1, "This account is currently not available.", ""),
        ("sudo", 127, "rbash: /bin/sh: restricted", ""),
    ],
)
def test_names_why_a_login_does_not_become_root(name: str, code: int | None, said: str, reason: str) -> None:
    found = PRIVILEGES.reason(Become(name), "lab", said, code)
    assert found.startswith(reason)
    assert bool(found) == bool(reason)
    assert PRIVILEGES.reason(None, "lab", said, code) == ""


@pytest.mark.parametrize(
    ("given", "agreed"),
    [("false", False), ("no", False), (False, False), ("true", True), ("yes", True), (True, True)],
)
def test_consent_of_the_command_line_is_a_truth_value(given: object, agreed: bool) -> None:
    """``-e name=false`` is text, which is true in Python."""
    action = object.__new__(MEASURE)
    action.task_vars = {"ansible_play_hosts_all": ["sut1"]}
    action.request_for = lambda _arguments, **request: request
    action._templar = SimpleNamespace(template=lambda value: value)
    action.task_vars |= yaml.safe_load((ROOT / "roles" / "measure" / "defaults" / "main.yml").read_text("utf-8"))
    action.task_vars |= {"calibration_resume": "no", "measure_keep_s": "1"}
    consents = ("tune_prefetchers_ok", "tune_governor_ok", "context_bmc_ok", "context_serials_ok")
    action.task_vars |= dict.fromkeys(consents, given)
    arguments = action.settings()
    assert (arguments["resume"], arguments["keep_s"]) == (False, 1.0)
    request = action.request(arguments, {})
    assert [request[name] for name in ("prefetchers_ok", "bmc_ok", "serials_ok")] == [agreed] * 3
    tuned = {**arguments, "tune_governor": "performance"}
    with nullcontext() if agreed else pytest.raises(InputError, match="tune_governor_ok"):
        assert action.request(tuned, {})["settings"] == {"governor": "performance"}


PROCESSES = load_plugin("plugin_utils", "processes")


def test_work_apart_is_done_in_another_process_and_answers_as_here() -> None:
    assert PROCESSES.apart(os.getpid) != os.getpid()
    with pytest.raises(RefusedError, match="reserved") as refused:
        PROCESSES.apart(Mock(side_effect=RefusedError("reserved", (TURBO,), "r1")))
    assert (refused.value.faults, refused.value.run_id) == ((TURBO,), "r1")


@pytest.mark.parametrize(
    ("work", "code"),
    [(lambda: os.kill(os.getpid(), signal.SIGKILL), -signal.SIGKILL), (lambda: os._exit(3), 3)],
    ids=["killed", "ended"],
)
def test_a_worker_dies_as_its_work_apart_did(work: Callable[[], None], code: int) -> None:
    worker = PROCESSES.FORK.Process(target=PROCESSES.apart, args=(work,))
    worker.start()
    worker.join()
    assert worker.exitcode == code


def test_work_apart_has_no_handlers_of_the_worker() -> None:
    """Ansible's kills the worker's group, by a number that only the worker knows."""
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        assert PROCESSES.apart(lambda: signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)
    finally:
        signal.signal(signal.SIGTERM, before)


LOADED = """
import importlib, sys
from ansible.plugins.loader import init_plugin_loader
init_plugin_loader([sys.argv[1]])
for plugin in sys.argv[2:]:
    importlib.import_module(f"ansible_collections.calibration.harness.plugins.{plugin}")
print(*sorted({"docutils", "duckdb", "scipy", "vl_convert"} & sys.modules.keys()))
"""


@pytest.mark.parametrize(("action", "found"), [("measure", ""), ("report", "docutils duckdb scipy vl_convert")])
def test_no_sut_waits_for_what_only_pages_and_judgements_need(action: str, found: str) -> None:
    plugins = (
        "callback.progress",
        *(f"action.{name}" for name in ("name_run", "preflight", "compare_testbeds", action)),
    )
    command = [sys.executable, "-c", LOADED, ROOT / "playbooks" / "collections", *plugins]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == found, done.stderr


def test_nothing_is_collected_before_the_playbook_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    states = []

    def play(_: list[str]) -> None:
        states.append((gc.isenabled(), gc.get_freeze_count()))
        playbook_run.watched.start()
        states.append((gc.isenabled(), gc.get_freeze_count() > 0))
        raise SystemExit(0)

    monkeypatch.setattr(playbook_run, "watched", playbook_run.Watched())
    monkeypatch.setattr(playbook_run, "Interruptions", list)
    monkeypatch.setattr(PlaybookCLI, "cli_executor", play)
    monkeypatch.setattr(sys, "argv", ["calibration"])
    for name in ("ANSIBLE_CONFIG", "ANSIBLE_HOME", "CALIBRATION_HOME"):
        monkeypatch.setenv(name, "unused")
    with pytest.raises(SystemExit):
        playbook_run.run_command.main([])
    assert states == [(False, 0), (True, True)]
    assert (gc.isenabled(), gc.get_freeze_count()) == (True, 0)
