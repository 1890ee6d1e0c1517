# SPDX-License-Identifier: Apache-2.0
"""SUTs that are this machine: an sshd per SUT on a loopback address, and a stand-in for ``sutprobe``.

Connections, keys of hosts and of the login, modules and files are real; the stand-in measures nothing.
"""

import hashlib
import json
import os
import pwd
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from calibration import __version__
from calibration.base.errors import EnvironmentLacksError
from calibration.measurements.base import Step
from tests.recorded import whole_of
from tests.rounds import in_rounds

SSHD_PLACES = ("/usr/sbin", "/usr/local/sbin", "/sbin")
"""Where sshd is besides PATH, which does not have these for everybody."""

START_S = 20.0
"""How long all servers may take until they listen."""


RECORDED = Path(__file__).parent / "fixtures" / "sutprobe"

ANSWER_S = 0.2
"""Seconds that the stand-in takes to answer."""

STAND_IN_BYTES = 450_000
"""The stand-in is filled up to about the size of ``sutprobe`` for x86_64: its way to the SUTs costs as much."""

STAND_IN = """\
#!/bin/sh
# Stands in for sutprobe: prints what it printed elsewhere.
case "$*" in
{cases}
*) echo "not a command of the plan: $*" >&2; exit 2 ;;
esac
place=0; [ ! -f "$0.$step" ] || read -r place <"$0.$step"; echo $((place + 1)) >"$0.$step"
answer={folder}/$step-$((place % rounds)).json
sleep {seconds}
exec cat "$answer"
exit
# """


@dataclass(frozen=True)
class Sut:
    """One simulated SUT: its name in the inventory, its address, and the user that logs in, by default who runs this.

    Nothing listens on the address of a *dead* one.
    """

    name: str
    address: str
    login: str | None = None
    dead: bool = False


def keep_probe(folder: Path, target: str, program: bytes, source: str) -> str:
    """Write *program* with its build record into *folder*, as a prebuilt sutprobe for *target*; return its sha256."""
    place = folder / target
    place.mkdir(parents=True)
    (place / "sutprobe").write_bytes(program)
    (place / "sutprobe").chmod(0o755)
    sha256 = hashlib.sha256(program).hexdigest()
    record: dict[str, Any] = {
        "path": "sutprobe", "sha256": sha256, "target": target, "version": __version__,
        "compiler": "none: recorded documents", "flags": [], "source_sha256": source,
    }  # fmt: skip
    (place / "build.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return sha256


def pattern_of(argv: Sequence[str]) -> str:
    """Return a shell pattern for the arguments of a command, in which sizes may differ.

    They depend on what memory is free, and on the last-level cache, which the first SUT of a fleet finds for the rest.
    """
    words = []
    for before, word in pairwise(argv):
        group = re.fullmatch(r"([0-9,-]+@[0-9]+:)[0-9]+", word)  # CPUs of a node and their bytes
        fixed = "" if before.endswith("-bytes") else group[1] if group else word
        words.append(shlex.quote(word) if fixed == word else f"{shlex.quote(fixed)}*")
    return "' '".join(words)


def likeness(step: Step, name: str, argv: Sequence[str]) -> tuple[bool, int]:
    """Return how similar *step* is to the step *name* with the command *argv*: what each is part of decides first."""
    return (step.part_of is None) == (whole_of(name) == name), len({*step.argv} & {*argv})


def stand_in(steps: Sequence[Step], folder: Path, source: str) -> bytes:
    """Return a program that answers each of *steps* with a recorded document, kept in *folder*.

    That is the one of the step's kind whose command was the most similar. All name *source* as the hash of their
    sources, as those of the real program would. Raises ``EnvironmentLacksError`` if a kind has none.
    """
    documents = {path.stem: json.loads(path.read_bytes()) for path in sorted(RECORDED.glob("*.json"))}
    folder.mkdir(parents=True)
    cases = []
    for number, step in enumerate(steps):
        alike = [name for name in documents if name.partition("-")[0] == step.kind]
        if not alike:
            raise EnvironmentLacksError(f"no recorded document of the kind {step.kind} in {RECORDED}")
        document = documents[max(alike, key=lambda name: likeness(step, name, documents[name]["argv"]))]
        answer = {**document, "argv": list(step.argv), "build": {**document["build"], "source_sha256": source}}
        for place, part in enumerate(in_rounds(answer, step.rounds)):
            (folder / f"{number}-{place}.json").write_text(json.dumps(part) + "\n", encoding="utf-8")
        # a round adds words of its own
        cases.append(f"{pattern_of(step.argv)}*) step={number} rounds={step.rounds} ;;")
    text = STAND_IN.format(cases="\n".join(cases), folder=shlex.quote(str(folder)), seconds=ANSWER_S)
    filler = hashlib.shake_256(b"filler").hexdigest(max(0, STAND_IN_BYTES - len(text)) // 2)
    return f"{text}{filler}\n".encode()


class Servers(AbstractContextManager["Servers"]):
    """The sshd of each SUT, running while the context lasts; *folder* must be private."""

    def __init__(self, suts: Sequence[Sut], folder: Path) -> None:
        self.suts = tuple(suts)
        self.folder = folder
        self.port = 0
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def key(self) -> Path:
        """The login's private key."""
        return self.folder / "login"

    @property
    def known_hosts(self) -> Path:
        """The host keys of all SUTs."""
        return self.folder / "known_hosts"

    def remote_base(self, sut: Sut) -> Path:
        """Return the directory of *sut* in which runs make theirs."""
        return self.folder / "remote" / sut.name

    def home(self, sut: Sut) -> Path:
        """Return the home directory of *sut*'s login: empty, as what its shell reads there is not measured."""
        return self.folder / "home" / sut.name

    def __enter__(self) -> Self:
        """Make the keys, start the servers and wait until each listens."""
        program = sshd_program()
        if os.geteuid() == 0:  # as root sshd wants this directory, which the system makes when it starts its own
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        self.folder.mkdir(mode=0o700, exist_ok=True)
        with socket.socket() as probe:  # a port that is free on the first address, and most likely on all
            probe.bind((self.suts[0].address, 0))
            self.port = probe.getsockname()[1]
        _make_key(self.key)
        shutil.copyfile(self.key.with_suffix(".pub"), self.folder / "authorized_keys")
        known = []
        for sut in self.suts:
            self.remote_base(sut).mkdir(parents=True)
            self.home(sut).mkdir(parents=True)
            host_key = self.folder / f"{sut.name}.key"
            _make_key(host_key)
            words = host_key.with_suffix(".key.pub").read_text(encoding="ascii").split()[:2]
            known.append(f"[{sut.address}]:{self.port} {' '.join(words)}\n")
        self.known_hosts.write_text("".join(known), encoding="ascii")
        try:
            for sut in self.suts:
                if not sut.dead:
                    self._start(program, sut)
            self._await()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the servers."""
        self._end()

    def _start(self, program: str, sut: Sut) -> None:
        config = self.folder / f"{sut.name}.conf"
        settings = {
            "ListenAddress": f"[{sut.address}]:{self.port}",
            "HostKey": self.folder / f"{sut.name}.key",
            "AuthorizedKeysFile": self.folder / "authorized_keys",
            "AllowUsers": sut.login or user(),
            "SetEnv": f"HOME={self.home(sut)}",
            "AuthenticationMethods": "publickey",
            "PermitRootLogin": "prohibit-password",
            "StrictModes": "no",  # the folder is private, those above it are not asked
            "PidFile": "none",
            "UsePAM": "no",
            "UseDNS": "no",
            "LogLevel": "ERROR",
        }
        config.write_text("".join(f"{name} {value}\n" for name, value in settings.items()), encoding="utf-8")
        with (self.folder / f"{sut.name}.log").open("wb") as log:
            self._processes[sut.name] = subprocess.Popen(
                [program, "-D", "-e", "-f", str(config)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def _await(self) -> None:
        """Wait until each server answers. Raises ``EnvironmentLacksError`` with the log of one that does not."""
        until = time.monotonic() + START_S
        for sut in self.suts:
            while not sut.dead and not _listens(sut.address, self.port):
                if self._processes[sut.name].poll() is not None or time.monotonic() > until:
                    output = (self.folder / f"{sut.name}.log").read_text(errors="replace").strip()
                    raise EnvironmentLacksError(f"sshd does not listen on {sut.address}:{self.port}: {output}")
                time.sleep(0.01)

    def _end(self) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            process.wait()

    def inventory(self, **variables: Any) -> dict[str, Any]:
        """Return an Ansible inventory of the SUTs, with *variables* for all of them."""
        options = ["-F", "none", "-o", f"UserKnownHostsFile={self.known_hosts}", "-o", "IdentitiesOnly=yes"]
        hosts = {
            sut.name: {
                "ansible_host": sut.address,
                "ansible_user": sut.login or user(),
                "calibration_remote_base": str(self.remote_base(sut)),
                "calibration_lock": f"calibration-{sut.name}-{self.port}",
            }
            for sut in self.suts
        }
        common = {
            "ansible_port": self.port,
            "ansible_ssh_private_key_file": str(self.key),
            "ansible_ssh_common_args": shlex.join(options),
            "ansible_become": False,
            "ansible_python_interpreter": sut_python(),
        }
        return {"all": {"hosts": hosts, "vars": {**common, **variables}}}


def sshd_program() -> str:
    """Return the path of sshd. Raises ``EnvironmentLacksError`` if an OpenSSH program is missing."""
    path = os.pathsep.join((os.environ.get("PATH", ""), *SSHD_PLACES))
    for name in ("sshd", "ssh", "ssh-keygen"):
        if shutil.which(name, path=path) is None:
            raise EnvironmentLacksError(f"{name} is not installed: install an OpenSSH server")
    return str(shutil.which("sshd", path=path))


def user() -> str:
    """Return the name of the login that runs this."""
    return pwd.getpwuid(os.geteuid()).pw_name


def sut_python() -> str:
    """Return the Python that the modules run with: the system's, as on a SUT, or the one that runs this."""
    system = Path("/usr/bin/python3")
    return str(system if system.exists() else sys.executable)


def _make_key(path: Path) -> None:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", path.name, "-f", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise EnvironmentLacksError(f"ssh-keygen cannot make {path}: {done.stderr.strip()}")


def _listens(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), 1.0):
            return True
    except OSError:
        return False
