# SPDX-License-Identifier: Apache-2.0
"""The gate that logs in, against real sshd processes: accepted and refused logins, comparisons."""

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from nights import good_case, write_night
from report_documents import run_document
from robot.api import Failure, SkipExecution

from calibration.base.errors import EnvironmentLacksError, InputError
from calibration.context.loader import load
from calibration.gates import live
from calibration.gates.live import FILES, Live, LiveLibrary, Login, connected, login_of, look, still_as_measured
from calibration.gates.night import read_night
from calibration.gates.run import run_gates
from calibration.results.model import CapturedContext, RunDocument
from calibration.results.run_checks import Result
from tests.servers import Servers, Sut, user
from tests.tools import require_ssh

PATIENCE_S = 30.0
"""What a SUT that answers may take on a busy machine."""

IMPATIENCE_S = 0.5
"""What one that never answers is given."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    require_ssh()
    suts = [Sut("sut1", "127.85.1.1"), Sut("sut2", "127.85.1.2")]
    with Servers(suts, tmp_path_factory.mktemp("suts")) as running:
        yield running


def login(servers: Servers, **changes: Any) -> Login:
    fields: dict[str, Any] = {
        "host": servers.suts[0].address,
        "port": servers.port,
        "user": user(),
        "key_file": servers.key,
    }
    return Login(**{**fields, **changes})


def this_machine(document: RunDocument) -> RunDocument:
    """Return *document* as if it were of this machine, which all SUTs here are."""
    captured = CapturedContext(parsed=load(Path("/")), capture="context.tar.gz", capture_sha256="ab" * 32)
    return document.model_copy(update={"context": captured})


# Who is let in


def test_known_sut_matches_its_run(servers: Servers) -> None:
    now = look(login(servers), servers.known_hosts, PATIENCE_S)
    assert now.cmdline == Path("/proc/cmdline").read_text(encoding="utf-8").strip()
    assert now.boot_id == Path(FILES["boot_id"]).read_text(encoding="utf-8").strip()
    found = list(still_as_measured(this_machine(run_document(names=())), now))
    assert {verdict.outcome for verdict in found} <= {"passed", "undecided"}
    assert any(verdict.text.startswith("kernel release: ") and verdict.outcome == "passed" for verdict in found)


def test_secrets_on_the_command_line_are_compared_blanked(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cmdline").write_text("quiet rd.iscsi.password=hunter2\n")
    monkeypatch.setitem(FILES, "cmdline", str(tmp_path / "cmdline"))
    assert look(login(servers), servers.known_hosts, PATIENCE_S).cmdline == "quiet rd.iscsi.password=<blanked>"


def test_a_wrong_host_key_is_refused(servers: Servers, tmp_path: Path) -> None:
    other = (servers.folder / "sut2.key.pub").read_text(encoding="ascii").split()[:2]
    known = tmp_path / "known_hosts"
    known.write_text(f"[{servers.suts[0].address}]:{servers.port} {' '.join(other)}\n", encoding="ascii")
    with pytest.raises(EnvironmentLacksError, match=r"its host key SHA256:.* is not that of .*, SHA256:.*Find out why"):
        look(login(servers), known, PATIENCE_S)


def test_unknown_host_key_is_refused_and_not_stored(servers: Servers, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text("", encoding="ascii")
    with pytest.raises(EnvironmentLacksError, match="not found in known_hosts"):
        look(login(servers), known, PATIENCE_S)
    assert known.read_text(encoding="ascii") == ""


def test_revoked_keys_are_not_supported(servers: Servers, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    text = servers.known_hosts.read_text(encoding="ascii")
    known.write_text(f"{text}@revoked {text}", encoding="ascii")
    with pytest.raises(InputError, match="lines with @revoked are not supported"):
        look(login(servers), known, PATIENCE_S)


def test_missing_known_hosts_are_an_error(servers: Servers, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read the known hosts .*/none: No such file"):
        look(login(servers), tmp_path / "none", PATIENCE_S)


def test_a_wrong_login_key_is_refused(servers: Servers, tmp_path: Path) -> None:
    key = make_key(tmp_path / "other")
    with pytest.raises(EnvironmentLacksError, match=f"refuses the key {key}"):
        look(login(servers, key_file=key), servers.known_hosts, PATIENCE_S)


def test_keys_in_the_home_directory_are_not_used(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home" / ".ssh"
    home.mkdir(parents=True)
    shutil.copy(servers.key, home / "id_ed25519")
    monkeypatch.setenv("HOME", str(home.parent))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with pytest.raises(EnvironmentLacksError, match=f"{user()}@"):
        look(login(servers, key_file=None), servers.known_hosts, PATIENCE_S)


def test_file_without_a_key_is_an_error(servers: Servers, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("no key\n", encoding="ascii")
    with pytest.raises(EnvironmentLacksError, match="key"):
        look(login(servers, key_file=tmp_path / "key"), servers.known_hosts, PATIENCE_S)
    with pytest.raises(InputError, match=f"no private key at {tmp_path}/none"):
        look(login(servers, key_file=tmp_path / "none"), servers.known_hosts, PATIENCE_S)


def make_key(path: Path, passphrase: str = "") -> Path:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", "test", "-f", str(path)]
    subprocess.run(command, check=True)
    return path


@contextmanager
def agent(folder: Path) -> Iterator[Path]:
    """Run an agent without keys; yield its socket."""
    path = folder / "agent"
    with subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL) as process:
        try:
            while not path.exists():
                assert process.poll() is None
            yield path
        finally:
            process.terminate()


def test_the_agent_is_used(servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with agent(tmp_path) as path:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
        with pytest.raises(EnvironmentLacksError):
            look(login(servers, key_file=None), servers.known_hosts, PATIENCE_S)
        subprocess.run(["ssh-add", "-q", str(servers.key)], check=True)
        assert look(login(servers, key_file=None), servers.known_hosts, PATIENCE_S).release


def test_a_key_with_a_passphrase_is_taken_from_the_agent(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = tmp_path / "locked"
    shutil.copy(servers.key, locked)
    shutil.copy(servers.key.with_suffix(".pub"), f"{locked}.pub")
    command = ["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret", "-f", str(locked)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with agent(tmp_path) as path:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
        with pytest.raises(EnvironmentLacksError, match=f"refuses the key {locked}"):
            look(login(servers, key_file=locked), servers.known_hosts, PATIENCE_S)
        subprocess.run(["ssh-add", "-q", str(servers.key)], check=True)
        assert look(login(servers, key_file=locked), servers.known_hosts, PATIENCE_S).release


# Waits that end


def test_a_server_that_stops_after_its_banner_times_out(servers: Servers) -> None:
    with socket.create_server(("127.85.1.3", 0)) as server:
        held: list[socket.socket] = []

        def greet() -> None:
            connection, _ = server.accept()
            connection.sendall(b"SSH-2.0-OpenSSH_9.9\r\n")
            held.append(connection)

        thread = threading.Thread(target=greet)
        thread.start()
        where = login(servers, host="127.85.1.3", port=server.getsockname()[1])
        with pytest.raises(EnvironmentLacksError, match="cannot connect: "):
            look(where, servers.known_hosts, IMPATIENCE_S)
        thread.join()
        for item in held:
            item.close()


def test_a_command_that_does_not_end_times_out(servers: Servers, tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with connected(login(servers), servers.known_hosts, PATIENCE_S) as client:
        with pytest.raises(EnvironmentLacksError, match=f"cannot read {path} of the SUT within 0.5 s"):
            live.read_file(client, str(path), IMPATIENCE_S)
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))  # lets what waits there go
        assert live.read_file(client, "/proc/nothing", PATIENCE_S) is None


def test_an_endless_answer_is_refused(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MAX_FILE_BYTES", 1000)
    with (
        connected(login(servers), servers.known_hosts, PATIENCE_S) as client,
        pytest.raises(EnvironmentLacksError, match="/dev/zero of the SUT is larger than 1000 bytes"),
    ):
        live.read_file(client, "/dev/zero", PATIENCE_S)


# What is compared


def now_of(document: RunDocument) -> Live:
    assert document.context is not None
    parsed = document.context.parsed
    assert parsed.cmdline is not None
    return Live(
        release=parsed.capture.kernel_release,
        version=parsed.capture.kernel_version,
        cmdline=parsed.cmdline.text.strip(),
        microcode=parsed.processor.models[0].microcode,
        boot_id=None,
    )


@pytest.mark.parametrize(("field", "name"), [
    ("release", "kernel release"),
    ("version", "kernel version"),
    ("cmdline", "kernel command line"),
    ("microcode", "microcode"),
])  # fmt: skip
def test_differences_fail_and_unknown_values_are_undecided(field: str, name: str) -> None:
    document = run_document(names=())
    then = now_of(document)
    assert {verdict.outcome for verdict in still_as_measured(document, then)} == {"passed"}
    (fault,) = fell_out(document, then._replace(**{field: "another"}))
    assert fault == ("failed", f"{name}: {getattr(then, field)} in the run, another now")
    (unknown,) = fell_out(document, then._replace(**{field: None}))
    assert unknown.outcome == "undecided"
    assert unknown.text.endswith("unknown now")


def fell_out(document: RunDocument, now: Live) -> list[Result]:
    """Return what does not pass."""
    return [verdict for verdict in still_as_measured(document, now) if verdict.outcome != "passed"]


def test_a_run_without_a_capture_is_undecided() -> None:
    document = run_document(names=())
    found = still_as_measured(document.model_copy(update={"context": None}), now_of(document))
    assert list(found) == [("undecided", "the run has no capture of the SUT")]


# The inventory


def hosts(**variables: Any) -> dict[str, Any]:
    return {"sut1": {"ansible_host": "192.0.2.11", **variables}}


def test_the_login_is_that_of_the_inventory() -> None:
    found = login_of(
        hosts(ansible_port=2222, ansible_user="lab", ansible_ssh_private_key_file="/keys/lab"), "testbed1", "sut1"
    )
    assert found == Login(host="192.0.2.11", port=2222, user="lab", key_file=Path("/keys/lab"))
    assert login_of(hosts(), "testbed1", "sut1").port == 22


def test_sut_uses_its_own_name() -> None:
    both = {
        "one": {"calibration_sut": "sut1", "calibration_testbed": "testbed1", "ansible_host": "192.0.2.11"},
        "two": {"hostname": "sut1", "calibration_testbed": "testbed2", "ansible_host": "192.0.2.12"},
    }
    assert login_of(both, "testbed2", "sut1").host == "192.0.2.12"


@pytest.mark.parametrize(("variables", "wanted"), [
    *(
        ({f"ansible_ssh_{kind}args": "-o ProxyJump=gate"}, f"sut1: ansible_ssh_{kind}args is not supported")
        for kind in ("", "common_", "extra_")
    ),
    ({"ansible_connection": "local"}, "sut1: ansible_connection local is not supported"),
    ({"ansible_port": "ssh"}, "sut1: ansible_port 'ssh' is not a port"),
    ({"ansible_host": "{{ address }}"}, "sut1: templates in ansible_host"),
    ({"calibration_sut": "another"}, "the inventory has 0 hosts for SUT sut1 of testbed testbed1"),
], ids=["options of ssh", "common options", "extra options", "local", "port", "template", "not there"])  # fmt: skip
def test_unsupported_connection_settings_are_refused(variables: dict[str, Any], wanted: str) -> None:
    with pytest.raises(InputError, match=wanted.replace("{", r"\{")):
        login_of(hosts(**variables), "testbed1", "sut1")


def test_an_inventory_that_ansible_cannot_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no inventory at .*/none"):
        live.read_inventory(tmp_path / "none")
    (tmp_path / "hosts.yml").write_text("all: [", encoding="utf-8")
    with pytest.raises(InputError, match="ansible-inventory cannot read"):
        live.read_inventory(tmp_path / "hosts.yml")


def test_a_hanging_inventory_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "INVENTORY_TIMEOUT_S", 0.01)
    (tmp_path / "hosts.yml").write_text("all: {}\n", encoding="utf-8")
    with pytest.raises(EnvironmentLacksError, match="ansible-inventory has not read"):
        live.read_inventory(tmp_path / "hosts.yml")


def inventory(servers: Servers, folder: Path) -> Path:
    """Write an inventory of the SUTs whose login needs no option of the program ssh."""
    path = folder / "hosts.yml"
    path.write_text(yaml.safe_dump(servers.inventory(ansible_ssh_common_args="")), encoding="utf-8")
    return path


# The gate


def test_without_an_inventory_the_gate_is_skipped() -> None:
    with pytest.raises(SkipExecution, match="no inventory"):
        LiveLibrary().check_still_as_measured("sut1", "testbed1")


def test_a_failed_login_fails_the_gate(servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = tmp_path / ".ssh" / "known_hosts"
    known.parent.mkdir()
    known.write_text("", encoding="ascii")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(live, "read_inventory", cache(live.read_inventory))  # starting Ansible takes a second
    for given in (known, None):
        library = LiveLibrary(inventory(servers, tmp_path), given, PATIENCE_S)
        with pytest.raises(Failure, match="not found in known_hosts"):
            library.check_still_as_measured("sut1", "testbed1")


def test_another_kernel_fails_the_gate(servers: Servers, tmp_path: Path) -> None:
    same, other = good_case("sut1"), good_case("sut2")
    document = this_machine(other.document)
    assert document.context is not None
    parsed = document.context.parsed
    capture = parsed.capture.model_copy(update={"kernel_release": "5.4.0-1"})
    changed = document.context.model_copy(update={"parsed": parsed.model_copy(update={"capture": capture})})
    cases = [
        replace(same, document=this_machine(same.document)),
        replace(other, document=document.model_copy(update={"context": changed})),
    ]
    results, verdicts = write_night(tmp_path, cases)
    variables = {"LIVE": inventory(servers, tmp_path), "KNOWN_HOSTS": servers.known_hosts}
    tested = run_gates(tmp_path / "gate", read_night(results, verdicts=verdicts), (), variables)
    ended = {test.sut: test for test in tested if test.gate == "SUT Unchanged Since Run"}
    assert ended["testbed1 / sut1"].status == "PASS", ended
    assert ended["testbed1 / sut2"].status == "FAIL"
    now = Path(FILES["release"]).read_text(encoding="ascii").strip()
    assert ended["testbed1 / sut2"].message == f"kernel release: 5.4.0-1 in the run, {now} now"
