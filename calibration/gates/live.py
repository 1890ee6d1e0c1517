# SPDX-License-Identifier: Apache-2.0
"""Keywords that log in to a SUT and see whether it is still what its run document says.

The connection is paramiko's: the SUT's host key must be known already, one logs in with the key file that the inventory
names or else with the agent's keys, and every wait has an end. Nothing but ``cat`` of files below ``/proc`` and
``/sys`` is run.
"""

import getpass
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import paramiko
from paramiko.pkey import UnknownKeyType
from robot.api import Failure, SkipExecution, logger
from robot.api.deco import keyword, library

from calibration.context.cpuinfo import identity, parse_cpuinfo
from calibration.context.tree import printable
from calibration.errors import CalibrationError, EnvironmentLacksError, InputError
from calibration.gates.findings import Findings, findings_of
from calibration.places import SHARE
from calibration.results.model import RunDocument
from calibration.text import message, visible

INVENTORY_S: Final = 60.0
"""How long ansible-inventory may take: it may ask a lab's own sources of inventories."""

ANSWER_BYTES: Final = 32 * 1024 * 1024
"""Most that is read of one file: /proc/cpuinfo of 8192 CPUs has half of this."""

SSH_OPTIONS: Final = ("ansible_ssh_common_args", "ansible_ssh_extra_args", "ansible_ssh_args")
"""Variables with options of the program ssh, which this connection is not."""

CONNECTIONS: Final = ("ssh", "smart", "paramiko", "paramiko_ssh", "ansible.builtin.ssh", "ansible.netcommon.paramiko")

FILES: Final = {
    "release": "/proc/sys/kernel/osrelease",
    "version": "/proc/sys/kernel/version",
    "cmdline": "/proc/cmdline",
    "cpuinfo": "/proc/cpuinfo",
    "microcode": "/sys/devices/system/cpu/cpu0/microcode/version",
    "boot_id": "/proc/sys/kernel/random/boot_id",
}
"""What is read of a SUT. The microcode's own file is asked where the kernel does not tell it in cpuinfo."""


@dataclass(frozen=True)
class Login:
    """How one logs in to a SUT; without a ``key_file`` by the keys of the agent."""

    sut: str
    host: str
    port: int
    user: str
    key_file: Path | None

    def __str__(self) -> str:
        return f"{self.user}@{self.host} port {self.port}"


@dataclass(frozen=True)
class Live:
    """What a SUT says of itself now; ``None`` where it does not say it."""

    release: str | None
    version: str | None
    cmdline: str | None
    microcode: str | None
    boot_id: str | None


# The inventory


def read_inventory(inventory: Path) -> Mapping[str, Any]:
    """Return the variables of each host, as ``ansible-inventory --list`` has them.

    Raises ``InputError`` where Ansible cannot read *inventory*, ``EnvironmentLacksError`` where it does not end.
    """
    if not inventory.exists():
        raise InputError(f"expected an inventory at {inventory}, found none")
    command = [sys.executable, "-m", "ansible", "inventory", "-i", str(inventory.absolute()), "--list"]
    environment = {"ANSIBLE_CONFIG": str(SHARE / "ansible.cfg"), **os.environ}
    try:
        done = subprocess.run(
            command,
            cwd=SHARE,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=INVENTORY_S,
        )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentLacksError(
            f"expected ansible-inventory to read {inventory} within {INVENTORY_S:g} s, found it waiting"
        ) from error
    try:
        hosts = json.loads(done.stdout)["_meta"]["hostvars"]
        if done.returncode == 0 and isinstance(hosts, dict):
            return hosts
    except (ValueError, LookupError, TypeError):
        pass  # what it said instead is told below
    raise InputError(f"expected an inventory that Ansible can read at {inventory}, it said: {done.stderr.strip()}")


def login_of(hosts: Mapping[str, Any], testbed: str, sut: str) -> Login:
    """Return how one logs in to *sut* of *testbed*, by the variables of its host in *hosts*.

    Raises ``InputError`` where the inventory does not have it, or says it in a way that this connection does not know.
    """
    found = [
        (name, variables)
        for name, variables in hosts.items()
        if str(variables.get("calibration_sut") or variables.get("hostname") or name) == sut
        and variables.get("calibration_testbed", testbed) == testbed
    ]
    if len(found) != 1:
        raise InputError(f"expected one host for SUT {sut} of testbed {testbed} in the inventory, found {len(found)}")
    ((name, variables),) = found

    def said(*names: str) -> str | None:
        value = next((variables[each] for each in names if variables.get(each) not in (None, "")), None)
        if value is not None and (not isinstance(value, str | int) or "{{" in str(value)):
            raise InputError(f"expected {names[0]} of {name} to be a plain value, found {value!r}")
        return None if value is None else str(value)

    connection = said("ansible_connection") or "ssh"
    if connection not in CONNECTIONS:
        raise InputError(f"expected {name} to be reached by ssh, found ansible_connection: {connection}")
    for option in SSH_OPTIONS:
        if variables.get(option):
            raise InputError(
                f"expected no {option} for {name}, found {variables[option]!r}: these are options of the program ssh, "
                "which this check does not use. Give known hosts with --known-hosts, and an inventory without options"
            )
    port = said("ansible_port", "ansible_ssh_port") or "22"
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise InputError(f"expected ansible_port of {name} to be a port, found {port!r}")
    key_file = said("ansible_ssh_private_key_file", "ansible_private_key_file")
    return Login(
        sut=sut,
        host=said("ansible_host", "ansible_ssh_host") or name,
        port=int(port),
        user=said("ansible_user", "ansible_ssh_user") or getpass.getuser(),
        key_file=None if key_file is None else Path(key_file).expanduser(),
    )


# The connection


@contextmanager
def connected(login: Login, known_hosts: Path, timeout_s: float) -> Iterator[paramiko.SSHClient]:
    """Log in to a SUT for as long as the context lasts; each wait (connect, banner, login, answer) has *timeout_s*.

    Raises ``EnvironmentLacksError`` where the SUT does not answer, has another host key than *known_hosts* or none that
    is known, or does not let one in; ``InputError`` where a file is not there.
    """
    with _key(login.key_file) as key, paramiko.SSHClient() as client:
        _load_known(client, known_hosts)
        client.set_missing_host_key_policy(paramiko.RejectPolicy())
        try:
            client.connect(
                login.host,
                port=login.port,
                username=login.user,
                pkey=key,
                allow_agent=key is None,
                look_for_keys=False,
                timeout=timeout_s,
                banner_timeout=timeout_s,
                auth_timeout=timeout_s,
                channel_timeout=timeout_s,
            )
        except paramiko.BadHostKeyException as error:
            raise EnvironmentLacksError(
                f"{login}: expected the host key {_fingerprint(error.expected_key)} of {known_hosts}, found "
                f"{_fingerprint(error.key)}. Find out why before that line is removed"
            ) from error
        except paramiko.AuthenticationException as error:
            by = "the keys of the agent" if login.key_file is None else f"the key {login.key_file}"
            raise EnvironmentLacksError(f"{login}: expected to be let in by {by}: {error}") from error
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise EnvironmentLacksError(
                f"{login}: expected it to answer within {timeout_s:g} s with a host key of {known_hosts}: "
                f"{error or type(error).__name__}"
            ) from error
        yield client


def _load_known(client: paramiko.SSHClient, known_hosts: Path) -> None:
    try:
        if "@revoked" in known_hosts.read_text(encoding="utf-8", errors="replace"):
            raise InputError(
                f"expected known hosts without revoked keys at {known_hosts}: these are not understood here"
            )
        client.load_host_keys(str(known_hosts))
    except OSError as error:
        raise InputError(f"expected the known hosts at {known_hosts}: {error.strerror}") from error


@contextmanager
def _key(path: Path | None) -> Iterator[paramiko.PKey | None]:
    """Yield the key of the file at *path*; one with a passphrase is the agent's, if that has it unlocked."""
    if path is None:
        yield None
        return
    try:
        key: paramiko.PKey | None = paramiko.PKey.from_path(path)
    except (paramiko.PasswordRequiredException, TypeError):  # the latter is what cryptography says of it
        key = None
    except (OSError, ValueError, paramiko.SSHException, UnknownKeyType) as error:
        raise InputError(f"expected a private key at {path}: {error}") from error
    if key is not None:
        yield key
        return
    public = path.with_name(f"{path.name}.pub")
    words = public.read_text(encoding="utf-8", errors="replace").split() if public.is_file() else []
    agent = paramiko.Agent()
    try:
        unlocked = next((each for each in agent.get_keys() if each.get_base64() in words), None)
        if unlocked is None:
            raise EnvironmentLacksError(
                f"expected the agent to have the key {path}, which has a passphrase, by its public half beside it: "
                "ssh-add it"
            )
        yield unlocked
    finally:
        agent.close()


def _fingerprint(key: paramiko.PKey) -> str:
    return f"{key.get_name()} {key.fingerprint}"


def read_file(client: paramiko.SSHClient, path: str, timeout_s: float) -> str | None:
    """Return the text of a file of the SUT, all of it within *timeout_s*; ``None`` where it cannot be read.

    Raises ``EnvironmentLacksError`` where the SUT does not answer in time, or answers without end.
    """
    deadline = time.monotonic() + timeout_s
    answer = bytearray()
    try:
        _, stdout, _ = client.exec_command(f"cat {path}", timeout=timeout_s)
        channel = stdout.channel
        while (left := deadline - time.monotonic()) > 0:
            channel.settimeout(left)
            piece = channel.recv(65536)
            if not piece:
                break
            answer += piece
            if len(answer) > ANSWER_BYTES:
                raise EnvironmentLacksError(f"expected at most {ANSWER_BYTES} bytes of {path}, found more")
        else:
            raise TimeoutError
        if not channel.status_event.wait(max(0.0, deadline - time.monotonic())):
            raise TimeoutError
    except (paramiko.SSHException, OSError, EOFError) as error:
        raise EnvironmentLacksError(
            f"expected {path} of the SUT within {timeout_s:g} s: {error or type(error).__name__}"
        ) from error
    return answer.decode("utf-8", errors="replace") if channel.recv_exit_status() == 0 else None


def look(login: Login, known_hosts: Path, timeout_s: float) -> Live:
    """Return what a SUT says of itself now. Raises like ``connected`` and ``read_file``."""
    with connected(login, known_hosts, timeout_s) as client:
        texts = {name: read_file(client, path, timeout_s) for name, path in FILES.items()}
    words = {name: None if text is None else printable(text.strip()) for name, text in texts.items()}
    return Live(
        release=words["release"],
        version=words["version"],
        cmdline=words["cmdline"],
        microcode=_microcode(texts["cpuinfo"]) or words["microcode"],
        boot_id=words["boot_id"],
    )


def _microcode(cpuinfo: str | None) -> str | None:
    try:
        info = parse_cpuinfo(cpuinfo or "")
    except ValueError:
        return None
    return _versions(identity(info, cpu).microcode for cpu in info.cpus)


def _versions(microcode: Iterator[str | None]) -> str | None:
    """Return all versions in use, as one text; ``None`` where none is told."""
    return ", ".join(sorted({each for each in microcode if each is not None})) or None


def still_as_measured(document: RunDocument, live: Live) -> Findings:
    """Return whether the SUT has the kernel, the command line and the microcode of *document* still."""
    if document.context is None:
        return Findings(untold=("the run never captured the SUT",))
    parsed = document.context.parsed
    facts = {
        "kernel release": (parsed.capture.kernel_release, live.release),
        "kernel version": (parsed.capture.kernel_version, live.version),
        "kernel command line": (
            None if parsed.cmdline is None else printable(parsed.cmdline.text.strip()),
            live.cmdline,
        ),
        "microcode": (_versions(each.microcode for each in parsed.processor.models), live.microcode),
    }
    return findings_of(
        (
            "shown" if then == now else "untold" if then is None or now is None else "faults",
            f"{name}: expected {then or 'none told'} as in the run, found {now or 'none told'}",
        )
        for name, (then, now) in facts.items()
    )


# Keywords


@library(scope="GLOBAL", version="1", doc_format="TEXT")
class LiveLibrary:
    """Keywords that log in to a SUT as the inventory says, with strict host keys, and read what it is now.

    Of the inventory ansible_host, ansible_port, ansible_user and ansible_ssh_private_key_file count, and nothing else
    of the login: no configuration of ssh, no password, no key that is not named. Without a key file the agent's keys
    are tried. Options of the program ssh in the inventory are refused.
    """

    def __init__(self, inventory: Path | None = None, known_hosts: Path | None = None, timeout_s: float = 15.0) -> None:
        """Log in by *inventory*, with the host keys of *known_hosts*, by default ~/.ssh/known_hosts.

        Each wait ends after *timeout_s* seconds.
        """
        self._inventory = inventory
        self._known_hosts = known_hosts or Path("~/.ssh/known_hosts").expanduser()
        self._timeout_s = timeout_s
        self._hosts: Mapping[str, Any] | None = None

    @keyword
    def look_at_sut(self, testbed: str, sut: str) -> Live:
        """Log in to the SUT and return what it says of itself; the gate is skipped where no inventory was given."""
        if self._inventory is None:
            raise SkipExecution("nobody gave an inventory to log in by: calibration gate --live INVENTORY")
        try:
            if self._hosts is None:
                self._hosts = read_inventory(self._inventory)
            return look(login_of(self._hosts, testbed, sut), self._known_hosts, self._timeout_s)
        except CalibrationError as error:
            raise Failure(message(str(error))) from error

    @keyword
    def check_still_as_measured(self, run: RunDocument, live: Live) -> Findings:
        """Return whether the SUT has the kernel, the command line and the microcode of the run still."""
        booted = run.attempts[-1].boot_id if run.attempts else None
        if live.boot_id != booted:
            logger.info(visible(f"booted since the run: boot id {booted or 'not known'} then, {live.boot_id} now"))
        return still_as_measured(run, live)
