# SPDX-License-Identifier: Apache-2.0
"""Log in to a SUT and check that it still matches its run document.

Uses paramiko: the host key must be known, and every wait has a timeout. The only command is ``cat`` of files in
``/proc`` and ``/sys``.
"""

import getpass
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

import paramiko
from robot.api import Failure, SkipExecution, logger
from robot.api.deco import keyword, library
from robot.libraries.BuiltIn import BuiltIn

from calibration.base.errors import CalibrationError, EnvironmentLacksError, InputError
from calibration.base.parsers import parse_json
from calibration.base.places import SHARE
from calibration.base.text import message, visible
from calibration.context.cpuinfo import identity, parse_cpuinfo
from calibration.gates.library import require
from calibration.results.model import RunDocument
from calibration.results.run_checks import Result
from calibration.runner.blanking import blank

INVENTORY_TIMEOUT_S: Final = 60.0
"""For ansible-inventory, which may query a lab's own inventory sources."""

MAX_FILE_BYTES: Final = 32 * 1024 * 1024
"""Twice the size of /proc/cpuinfo for 8192 CPUs."""

SSH_OPTIONS: Final = ("ansible_ssh_common_args", "ansible_ssh_extra_args", "ansible_ssh_args")
"""Variables with options of the ssh program, which paramiko does not support."""

FILES: Final = {
    "release": "/proc/sys/kernel/osrelease",
    "version": "/proc/sys/kernel/version",
    "cmdline": "/proc/cmdline",
    "cpuinfo": "/proc/cpuinfo",
    "microcode": "/sys/devices/system/cpu/cpu0/microcode/version",
    "boot_id": "/proc/sys/kernel/random/boot_id",
}
"""Files read from a SUT. The microcode file is read if the kernel does not report it in cpuinfo."""


class Login(NamedTuple):
    """How to log in to a SUT: with ``key_file`` if there is one, and the keys of the agent."""

    host: str
    port: int
    user: str
    key_file: Path | None

    def __str__(self) -> str:
        return f"{self.user}@{self.host} port {self.port}"


class Live(NamedTuple):
    """The current state of a SUT; ``None`` if unknown."""

    release: str | None
    version: str | None
    cmdline: str | None
    microcode: str | None
    boot_id: str | None


def read_inventory(inventory: Path | None) -> Mapping[str, Any]:
    """Return the variables of each host, as merged by ``ansible-inventory --list``; ``None`` is Ansible's default.

    Raises ``InputError`` if Ansible cannot read *inventory*, ``EnvironmentLacksError`` if it times out.
    """
    command = [sys.executable, "-m", "ansible", "inventory", "--list"]
    if inventory is not None:
        if not inventory.exists():
            raise InputError(f"no inventory at {inventory}")
        command += ["-i", str(inventory.absolute())]
    try:
        done = subprocess.run(
            command,
            cwd=SHARE,
            env={"ANSIBLE_CONFIG": str(SHARE / "ansible.cfg"), **os.environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=INVENTORY_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentLacksError(
            f"ansible-inventory has not read {inventory} after {INVENTORY_TIMEOUT_S:g} s"
        ) from error
    if done.returncode != 0:
        raise InputError(f"ansible-inventory cannot read {inventory}: {done.stderr.strip()}")
    hosts: Mapping[str, Any] = parse_json(done.stdout)["_meta"]["hostvars"]
    return hosts


def host_of(hosts: Mapping[str, Any], testbed: str, sut: str) -> str:
    """Return the name of the host that is *sut* of *testbed*. Raises ``InputError`` unless exactly one is."""
    found = [
        name
        for name, variables in hosts.items()
        if str(variables.get("calibration_sut") or variables.get("hostname") or name) == sut
        and variables.get("calibration_testbed", testbed) == testbed
    ]
    if len(found) != 1:
        raise InputError(f"the inventory has {len(found)} hosts for SUT {sut} of testbed {testbed}, expected 1")
    return found[0]


def login_of(hosts: Mapping[str, Any], testbed: str, sut: str) -> Login:
    """Return the login for *sut* of *testbed*, from the variables of its host in *hosts*.

    Raises ``InputError`` unless exactly one host matches and paramiko can reach it that way.
    """
    name = host_of(hosts, testbed, sut)
    variables = hosts[name]
    for option in SSH_OPTIONS:
        if variables.get(option):
            raise InputError(f"{name}: {option} is not supported: use an inventory without, and --known-hosts")
    if variables.get("ansible_connection", "ssh") not in {"ssh", "smart", "paramiko"}:
        raise InputError(f"{name}: ansible_connection {variables['ansible_connection']} is not supported")
    key_file = variables.get("ansible_ssh_private_key_file")
    login = (variables.get("ansible_host", name), variables.get("ansible_user"), key_file)
    if "{{" in f"{login}":
        raise InputError(f"{name}: templates in ansible_host, ansible_user or its key file are not supported")
    try:
        port = int(variables.get("ansible_port", 22))
    except ValueError as error:
        raise InputError(f"{name}: ansible_port {variables['ansible_port']!r} is not a port") from error
    return Login(
        host=str(login[0]),
        port=port,
        user=str(login[1] or getpass.getuser()),
        key_file=None if key_file is None else Path(key_file).expanduser(),
    )


@contextmanager
def connected(login: Login, known_hosts: Path, timeout_s: float) -> Iterator[paramiko.SSHClient]:
    """Log in to a SUT while the context is open; each wait (connect, banner, login, answer) lasts at most *timeout_s*.

    Raises ``EnvironmentLacksError`` if the SUT does not answer, its host key differs from *known_hosts*, or it refuses
    the login; ``InputError`` if a file cannot be used.
    """
    if login.key_file is not None and not login.key_file.is_file():
        raise InputError(f"no private key at {login.key_file}")
    with paramiko.SSHClient() as client:
        _load_known_hosts(client, known_hosts)
        client.set_missing_host_key_policy(paramiko.RejectPolicy())
        try:
            client.connect(
                login.host,
                port=login.port,
                username=login.user,
                key_filename=None if login.key_file is None else str(login.key_file),
                look_for_keys=False,
                timeout=timeout_s,
                banner_timeout=timeout_s,
                auth_timeout=timeout_s,
                channel_timeout=timeout_s,
            )
        except paramiko.BadHostKeyException as error:
            raise EnvironmentLacksError(
                f"{login}: its host key {error.key.fingerprint} is not that of {known_hosts}, "
                f"{error.expected_key.fingerprint}. Find out why before removing that line"
            ) from error
        except paramiko.AuthenticationException as error:
            key = "" if login.key_file is None else f"the key {login.key_file} and "
            raise EnvironmentLacksError(f"{login}: refuses {key}the keys of the agent: {error}") from error
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise EnvironmentLacksError(f"{login}: cannot connect: {error or type(error).__name__}") from error
        yield client


def _load_known_hosts(client: paramiko.SSHClient, known_hosts: Path) -> None:
    try:
        if "@revoked" in known_hosts.read_text(encoding="utf-8", errors="replace"):
            raise InputError(f"{known_hosts}: lines with @revoked are not supported")
        client.load_host_keys(str(known_hosts))
    except OSError as error:
        raise InputError(f"cannot read the known hosts {known_hosts}: {error.strerror}") from error


def read_file(client: paramiko.SSHClient, path: str, timeout_s: float) -> str | None:
    """Return the text of a file on the SUT; ``None`` if it cannot be read.

    Raises ``EnvironmentLacksError`` if the SUT is silent for *timeout_s*, or sends without end.
    """
    try:
        _, stdout, _ = client.exec_command(f"cat {path}", timeout=timeout_s)
        answer = stdout.read(MAX_FILE_BYTES + 1)
        if len(answer) > MAX_FILE_BYTES:
            raise EnvironmentLacksError(f"{path} of the SUT is larger than {MAX_FILE_BYTES} bytes")
        if not stdout.channel.status_event.wait(timeout_s):
            raise TimeoutError
    except (paramiko.SSHException, OSError, EOFError) as error:
        raise EnvironmentLacksError(
            f"cannot read {path} of the SUT within {timeout_s:g} s: {error or type(error).__name__}"
        ) from error
    return answer.decode("utf-8", errors="replace") if stdout.channel.recv_exit_status() == 0 else None


def look(login: Login, known_hosts: Path, timeout_s: float) -> Live:
    """Return the current state of a SUT. Raises like ``connected`` and ``read_file``."""
    with connected(login, known_hosts, timeout_s) as client:
        texts = {name: read_file(client, path, timeout_s) for name, path in FILES.items()}
    words = {name: None if text is None else visible(text.strip()) for name, text in texts.items()}
    microcode = _microcode(texts["cpuinfo"]) or words["microcode"]
    cmdline = words["cmdline"] and blank(words["cmdline"])  # as the run has it
    return Live(words["release"], words["version"], cmdline, microcode, words["boot_id"])


def _microcode(cpuinfo: str | None) -> str | None:
    try:
        info = parse_cpuinfo(cpuinfo or "")
    except ValueError:
        return None
    return _versions(identity(info, cpu).microcode for cpu in info.cpus)


def _versions(microcode: Iterable[str | None]) -> str | None:
    """Return all versions in use as one text; ``None`` if none is known."""
    return ", ".join(sorted({version for version in microcode if version is not None})) or None


def still_as_measured(document: RunDocument, live: Live) -> Iterator[Result]:
    """Yield whether kernel, command line and microcode of the SUT still match *document*."""
    if document.context is None:
        yield Result("undecided", "the run has no capture of the SUT")
        return
    parsed = document.context.parsed
    cmdline = None if parsed.cmdline is None else visible(parsed.cmdline.text.strip())
    for name, then, now in (
        ("kernel release", parsed.capture.kernel_release, live.release),
        ("kernel version", parsed.capture.kernel_version, live.version),
        ("kernel command line", cmdline, live.cmdline),
        ("microcode", _versions(model.microcode for model in parsed.processor.models), live.microcode),
    ):
        text = f"{name}: {then or 'unknown'} in the run, {now or 'unknown'} now"
        yield Result("passed" if then == now else "undecided" if then is None or now is None else "failed", text)


@library(scope="GLOBAL", version="1", doc_format="TEXT")
class LiveLibrary:
    """Keywords that log in to a SUT with strict host keys and read its current state.

    From the inventory, only ansible_host, ansible_port, ansible_user and ansible_ssh_private_key_file are used: no ssh
    configuration, password or ssh options. Keys of the agent are tried too.
    """

    def __init__(self, inventory: Path | None = None, known_hosts: Path | None = None, timeout_s: float = 15.0) -> None:
        """Log in by *inventory*, with the host keys of *known_hosts* (default: ~/.ssh/known_hosts).

        Each wait lasts at most *timeout_s* seconds.
        """
        self._inventory = inventory
        self._known_hosts = known_hosts or Path("~/.ssh/known_hosts").expanduser()
        self._timeout_s = timeout_s

    @cached_property
    def _hosts(self) -> Mapping[str, Any]:
        if self._inventory is None:
            raise SkipExecution("no inventory to log in by: give --live INVENTORY")
        return read_inventory(self._inventory)

    @keyword("SUT ${sut} of testbed ${testbed} is still what was measured")
    def check_still_as_measured(self, sut: str, testbed: str) -> None:
        """Log in to the SUT; fail unless its kernel, command line and microcode match ${RUN}."""
        try:
            live = look(login_of(self._hosts, testbed, sut), self._known_hosts, self._timeout_s)
        except CalibrationError as error:
            raise Failure(message(str(error))) from error
        run: RunDocument = BuiltIn().get_variable_value("${RUN}")
        booted = run.attempts[-1].boot_id if run.attempts else None
        if live.boot_id != booted:
            logger.info(visible(f"booted since the run: boot id {booted or 'unknown'} then, {live.boot_id} now"))
        require(still_as_measured(run, live))
