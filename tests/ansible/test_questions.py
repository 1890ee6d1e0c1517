# SPDX-License-Identifier: Apache-2.0
"""Every query to a SUT ends within its time limit, over Ansible's own connections."""

import contextlib
import gc
import inspect
import os
import re
import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play_context import PlayContext
from ansible.playbook.task import Task
from ansible.plugins.loader import connection_loader
from ansible.template import Templar
from support import PATIENCE_S, ROOT, executable, load_plugin

from ansible.plugins import loader
from ansible.plugins.action import ActionBase
from tests.servers import Servers, Sut, sut_python
from tests.tools import require_ssh

PLUGINS = load_plugin("plugin_utils", "actions")
PROCESSES = load_plugin("plugin_utils", "processes")
ACTIONS = sorted(path.stem for path in (ROOT / "ansible" / "plugins" / "action").glob("*.py"))

DRIPS = "while :; do printf .; sleep 0.1; done"
HANGS = "exec sleep 600"

LIMIT_S = 3.0
"""Time limit of a query without an answer."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    require_ssh()
    with Servers([Sut("sut1", "127.85.4.1")], tmp_path_factory.mktemp("servers") / "suts") as running:
        yield running


def action(servers: Servers, connection: str, limit_s: float = PATIENCE_S, **variables: Any) -> Any:
    """Return an action that queries the SUT over Ansible's own *connection*."""
    if connection not in connection_loader:
        pytest.skip(f"this machine has an ansible-core without the connection {connection}")
    inventory = servers.inventory()["all"]
    host = inventory["vars"] | inventory["hosts"]["sut1"]
    known = {
        **host,
        "ansible_ssh_args": "-o ControlMaster=no",
        "ansible_private_key_file": host["ansible_ssh_private_key_file"],
        "ansible_host_key_checking": False,
        "ansible_paramiko_host_key_checking": False,
        "ansible_pipelining": connection != "paramiko_ssh",
        "inventory_hostname": "sut1",
        **variables,
    }
    context = PlayContext()
    context.remote_addr = host["ansible_host"]
    context.executable = "/bin/sh"
    plugin = connection_loader.get(connection, context, os.devnull)
    plugin.set_options(var_options=known)
    plugin._shell.set_options(var_options=known)
    files = DataLoader()
    asker = PLUGINS.SutAction(Task(), plugin, context, files, Templar(files, variables=known), loader)
    asker.ANSWER_S = limit_s
    asker.task_vars = known
    return asker


# Python warns of abandoned processes.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def _warned_in_time() -> Iterator[None]:
    yield
    gc.collect()  # Python 3.11 fails to compile a module where such a warning comes meanwhile


def running(others: set[int]) -> set[int]:
    """Return the children of this process, but *others*, that have not ended."""
    found = PLUGINS.children() - others
    return {pid for pid in found if os.waitpid(pid, os.WNOHANG)[0] == 0}


def ask(asker: Any, script: str, limit_s: float = PATIENCE_S) -> str:
    """Return the output of *script* on the SUT."""
    answer: str
    if asker._connection.has_pipelining:
        answer = asker.call("the weather", script, b"", limit_s=limit_s, max_bytes=1 << 20)
    else:  # the servers here have no SFTP, by which files would be copied
        with asker.question("the weather", limit_s):
            answer = asker._low_level_execute_command(script)["stdout"]
    return answer.strip()


@pytest.mark.parametrize("script", [DRIPS, HANGS], ids=["drips", "hangs"])
@pytest.mark.parametrize("connection", ["ssh", "paramiko_ssh", "local"])
def test_an_endless_answer_times_out_and_the_next_arrives(connection: str, script: str, servers: Servers) -> None:
    asker = action(servers, connection)
    others = PLUGINS.children()
    with pytest.raises(PLUGINS.NoAnswerError, match=r"^the weather had no complete answer within 3 s") as caught:
        ask(asker, script, LIMIT_S)
    assert not asker.asking
    if connection == "ssh" and script == DRIPS:
        assert re.search(r"; stdout: \.\.\.+; check what keeps the SUT", str(caught.value))
    while running(others):
        time.sleep(0.01)
    assert ask(asker, "echo fine") == "fine"


def test_nested_queries_share_one_limit(servers: Servers) -> None:
    asker = action(servers, "local")
    with (
        pytest.raises(PLUGINS.NoAnswerError, match=r"^many had no complete answer within 1 s"),
        asker.question("many", 1.0),
    ):
        ask(asker, HANGS)


def test_files_and_connections_have_a_limit(servers: Servers, tmp_path: Path) -> None:
    drips = str(executable(tmp_path / "ssh", DRIPS))
    asker = action(servers, "ssh", LIMIT_S, ansible_ssh_executable=drips, ansible_ssh_transfer_method="piped")
    with pytest.raises(PLUGINS.NoAnswerError, match=rf"^the copy of {drips} had no complete answer within 3 s"):
        asker._transfer_file(drips, "/tmp/nowhere")
    with pytest.raises(PLUGINS.NoAnswerError, match=r"^the connection had no complete answer within 3 s"):
        asker.reconnect()


@pytest.mark.slow
@pytest.mark.parametrize("connection", ["ssh", "paramiko_ssh"])
def test_a_gibibyte_of_output_does_not_fill_the_memory(connection: str, servers: Servers, tmp_path: Path) -> None:
    prints = str(executable(tmp_path / "prints", "head -c 1073741824 /dev/zero"))
    asks = {"a command": lambda: ask(action(servers, connection), prints)}
    if connection == "ssh":
        copier = action(servers, connection, ansible_ssh_executable=prints, ansible_ssh_transfer_method="piped")
        asks["a copy"] = lambda: copier._transfer_file(prints, "/tmp/nowhere")
    for what, question in asks.items():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(PLUGINS.AnswerTooLongError, match=r"answer exceeds 1048576 bytes"):
            question()
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 128 << 10, what  # KiB


def test_reports_a_python_that_fails_or_prints(servers: Servers, tmp_path: Path) -> None:
    python = executable(tmp_path / "python", "echo 'no licence\x1b[2J'\nprintf 'call IT\\377\\n' >&2\nexit 9")
    remote = action(servers, "ssh", ansible_python_interpreter=str(python)).remote(str(tmp_path), "calibration-test")
    said = r"exit code 9; stderr: call IT\\udcff; stdout: no licence\\x1b\[2J$"
    with pytest.raises(PLUGINS.SutError, match=r"^the check of the SUT failed: " + said):
        remote.facts()
    executable(python, f"echo 'no licence'\nexec {sut_python()} \"$@\"")
    with pytest.raises(PLUGINS.SutError, match=r"^the check of the SUT: no answer of the runner: no licence\\n\{"):
        remote.facts()


def test_a_controller_without_ssh_does_not_blame_the_sut(servers: Servers, tmp_path: Path) -> None:
    remote = action(servers, "ssh", ansible_ssh_executable="/no/such/ssh").remote(str(tmp_path), "calibration-test")
    with pytest.raises(PLUGINS.ConnectionLostError, match=r"/no/such/ssh'?: install it on the controller$"):
        remote.facts()


def test_asks_over_a_connection_without_standard_input(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asker = action(servers, "local", ansible_remote_tmp=str(tmp_path / "tmp"))
    monkeypatch.setattr(asker._connection, "has_pipelining", False)
    assert asker.remote(str(tmp_path), "calibration-test").facts()["system"] == "Linux"
    assert list((tmp_path / "tmp").iterdir()) == []


def test_keeps_the_timeout_of_the_task() -> None:
    def late(*_: object) -> None:
        raise TimeoutError

    previous = signal.signal(signal.SIGALRM, late)
    try:
        signal.setitimer(signal.ITIMER_REAL, 600)
        with PROCESSES.backstop(600):
            pass
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 600
        assert signal.getsignal(signal.SIGALRM) is late
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        with pytest.raises(TimeoutError):  # noqa: PT012 - it comes once the block is over
            with PROCESSES.backstop(600):
                time.sleep(0.1)
            time.sleep(600)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def test_repeats_a_timeout_that_python_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PROCESSES, "REPEAT_S", 0.1)
    with pytest.raises(PROCESSES.GiveUp), PROCESSES.backstop(0.1):  # noqa: PT012 - the second time
        with contextlib.suppress(PROCESSES.GiveUp):
            time.sleep(600)
        time.sleep(600)


def test_an_error_caused_by_the_timeout_counts_as_one() -> None:
    with pytest.raises(PROCESSES.GiveUp), PROCESSES.backstop(0.01):
        interrupted()


def interrupted() -> None:
    try:
        time.sleep(600)
    except PROCESSES.GiveUp:
        raise SystemError from None


def test_limits_cover_all_of_ansibles_ways_to_a_sut() -> None:
    ways = {
        name
        for name, method in inspect.getmembers(ActionBase, inspect.isfunction)
        if re.search(r"_connection\.(exec_command|put_file|fetch_file|reset)\(", inspect.getsource(method))
    }
    assert ways == {"_low_level_execute_command", "_transfer_file"}
    assert ways <= set(vars(PLUGINS.SutAction))
    assert isinstance(PLUGINS.SutAction.ANSWER_S, float)


@pytest.mark.parametrize("name", ACTIONS)
def test_actions_query_suts_within_limits(name: str) -> None:
    plugin = load_plugin("action", name)
    found = plugin.ActionModule
    assert issubclass(found, PLUGINS.SutAction) == found._requires_connection
    assert "_connection." not in inspect.getsource(plugin)
