# SPDX-License-Identifier: Apache-2.0
"""One running SUT: its QEMU process, its identity, and the hands that tests lay on it."""

import contextlib
import functools
import io
import json
import os
import re
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.testbed.image import ARCHITECTURES, CHECKOUT, LOGINS, Image, TestbedError, build, need, run, say
from tests.testbed.shapes import Shape, shapes

STATE = CHECKOUT / ".cache" / "testbed" / "state"
"""What belongs to this checkout: guests that run, and keys. Images may be shared (image.cache)."""

BOOT_PATIENCE_S = 600
"""A guest that has not booted by then hangs; 20 s to 30 s are usual, minutes on a machine that does much else."""

COMMAND_PATIENCE_S = 300
"""The same for a command in a guest."""

POLL_S = 0.5

LAUNCHES = 3
"""How often a guest is started whose QEMU crashes meanwhile. QEMU 7.2 was seen to end by SIGSEGV while the kernel of a
guest with several CPUs probed PCI, which says nothing about the SUT."""

CRASHES = {-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT}
"""Return codes of a QEMU that crashed. SIGKILL is somebody's decision, and none of them."""

KERNEL = ("root=/dev/vda", "rw", "console=ttyS0", "loglevel=5", "net.ifnames=0", "mitigations=off", "nowatchdog")
"""First part of every guest's kernel command line; its shape's part follows."""


@dataclass(frozen=True)
class Login:
    """Keys and the password of this state directory, which exist nowhere else."""

    directory: Path

    @property
    def key(self) -> Path:
        """The private key of all logins."""
        return self.directory / "login"

    @property
    def password(self) -> str:
        """The password that `withpassword` needs for sudo."""
        return (self.directory / "password").read_text(encoding="utf-8").strip()

    def make(self) -> "Login":
        """Make what is missing."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.directory.chmod(0o700)
        if not self.key.exists():
            generate(self.key, "testbed")
        if not (self.directory / "password").exists():
            write_private(self.directory / "password", secrets.token_urlsafe(12) + "\n")
        return self


def generate(path: Path, comment: str) -> None:
    """Make an SSH key pair at *path*."""
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)], "make an SSH key")


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner reads."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def started_ticks(pid: int) -> int | None:
    """Return when process *pid* was started, in the kernel's ticks; None if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


class CrashedError(TestbedError):
    """QEMU itself crashed."""


class Sut:
    """A guest. Everything about it stands in its directory, so that another process can take it over."""

    host = "127.0.0.1"

    def __init__(self, name: str, state: Path = STATE) -> None:
        self.name = name
        self.directory = state / "guests" / name
        self.login = Login(state / "login")
        self.user = "calibration"
        self.key = self.login.key
        self.known_hosts = self.directory / "known_hosts"
        self.process: subprocess.Popen[bytes] | None = None

    # what is stored

    @property
    def record(self) -> dict[str, object]:
        """What was stored when the guest was started; empty when it never was."""
        try:
            return dict(json.loads((self.directory / "guest.json").read_text(encoding="utf-8")))
        except FileNotFoundError:
            return {}

    @property
    def port(self) -> int:
        """Port on the loopback interface that leads to the guest's SSH."""
        return int(str(self.record["port"]))

    @property
    def shape(self) -> Shape:
        """The shape that it was started with."""
        return Shape.model_validate(self.record["shape"])

    @property
    def pid(self) -> int | None:
        """QEMU's process; None when it does not run."""
        record = self.record
        pid = record.get("pid")
        if not isinstance(pid, int) or started_ticks(pid) != record.get("started_ticks"):
            return None
        return pid

    # life

    def launch(self, shape_name: str, shape: Shape, image: Image, *, bound: bool) -> None:
        """Start QEMU; the guest boots meanwhile. *bound*: it ends when the calling thread's process does."""
        program = ARCHITECTURES[shape.architecture].qemu
        need(program, ARCHITECTURES[shape.architecture].package)
        need("ssh-keygen", "openssh-client")
        need("setpriv", "util-linux")
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        self.directory.chmod(0o700)
        self.login.make()
        self.identity()
        command = [
            *(["setpriv", "--pdeathsig", "KILL", "--"] if bound else []),
            program,
            *("-name", self.name, "-accel", "tcg,thread=multi", "-nodefaults", "-no-user-config", "-display", "none"),
            *("-machine", ARCHITECTURES[shape.architecture].machine),
            *shape.arguments(),
            *("-kernel", str(image.kernel), "-initrd", str(image.initrd)),
            *("-append", " ".join(self.kernel_arguments(shape))),
            *("-drive", f"file={image.root},format=raw,if=none,id=root,snapshot=on"),
            *("-device", "virtio-blk-pci,drive=root,bus=pcie.0"),
            *("-netdev", f"user,id=net0,restrict=on,hostfwd=tcp:{self.host}:0-:22"),
            *("-device", "virtio-net-pci,netdev=net0,id=nic0,romfile=,bus=pcie.0"),
            *("-fw_cfg", "name=opt/testbed/identity,file=identity.tar"),
            *("-serial", "file:console.log", "-qmp", "unix:qmp.sock,server=on,wait=off"),
        ]
        with (self.directory / "qemu.log").open("wb") as log:
            self.process = subprocess.Popen(
                command,
                cwd=self.directory,  # the sockets' names are short then, wherever the checkout is
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for who started it, who ends it in order
            )
        record = {
            "name": self.name,
            "shape_name": shape_name,
            "shape": shape.model_dump(mode="json"),
            "image": image.directory.name,
            "pid": self.process.pid,
            "started_ticks": started_ticks(self.process.pid),
            "bound_to": os.getpid() if bound else None,
        }
        self.store(record)
        self.store({**record, "port": self.find_port()})
        self.know_host()

    def store(self, record: Mapping[str, object]) -> None:
        """Replace what is stored."""
        new = self.directory / ".guest.json"
        new.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        new.rename(self.directory / "guest.json")

    def kernel_arguments(self, shape: Shape) -> list[str]:
        """Return the kernel's command line."""
        console = {"console=ttyS0": f"console={ARCHITECTURES[shape.architecture].console}"}
        return [*(console.get(item, item) for item in KERNEL), f"systemd.hostname={self.name}", *shape.kernel]

    def identity(self) -> None:
        """Make the archive of what only this guest has: its host key, who may log in, and the passwords."""
        generate(self.directory / "host", self.name)
        host = (self.directory / "host").read_bytes()
        authorized = self.key.with_suffix(".pub").read_bytes()
        homes = {"root": ("root", 0), **{login: (f"home/{login}", 1000 + n) for n, login in enumerate(LOGINS)}}
        with tarfile.open(self.directory / "identity.tar", "w") as archive:

            def add(name: str, content: bytes | None, mode: int, owner: int) -> None:
                entry = tarfile.TarInfo(name)
                entry.mode, entry.uid, entry.gid = mode, owner, owner
                entry.type = tarfile.DIRTYPE if content is None else tarfile.REGTYPE
                entry.size = len(content or b"")
                archive.addfile(entry, io.BytesIO(content or b""))

            add("etc/ssh/ssh_host_ed25519_key", host, 0o600, 0)
            for home, owner in homes.values():
                add(f"{home}/.ssh", None, 0o700, owner)
                add(f"{home}/.ssh/authorized_keys", authorized, 0o600, owner)
            add("etc/hosts", f"127.0.0.1 localhost {self.name}\n".encode(), 0o644, 0)
            add("run/testbed-passwords", f"withpassword:{self.login.password}\n".encode(), 0o600, 0)
        (self.directory / "identity.tar").chmod(0o600)

    def know_host(self) -> None:
        """Write down the guest's host key where ssh looks for it, before the first login."""
        kind, key = (self.directory / "host.pub").read_text(encoding="utf-8").split()[:2]
        self.known_hosts.write_text(f"[{self.host}]:{self.port} {kind} {key}\n", encoding="utf-8")

    def wait(self, patience_s: float = BOOT_PATIENCE_S, other_than: str | None = None) -> "Sut":
        """Wait until one can log in, and the boot identifier is *other_than* one."""
        end = time.monotonic() + patience_s
        while time.monotonic() < end:
            if self.pid is None:
                raise self.ended()
            if self.answers():
                done = self.ssh("cat /proc/sys/kernel/random/boot_id")
                if done.returncode == 0 and done.stdout.strip() != other_than:
                    return self
            time.sleep(POLL_S)
        msg = f"{self.name}: expected a login within {patience_s:g} s, found none. The console's end:\n{self.tail()}"
        raise TestbedError(msg)

    def ended(self) -> TestbedError:
        """Return the error for a QEMU that is no longer there."""
        code = self.process.wait() if self.process is not None else None
        how = "" if code is None else f" by {signal.Signals(-code).name}" if code < 0 else f" with {code}"
        error = CrashedError if code in CRASHES else TestbedError
        return error(f"{self.name}: QEMU has ended{how}:\n{self.tail()}")

    def answers(self) -> bool:
        """Return whether an SSH server sends its greeting."""
        try:
            with socket.create_connection((self.host, self.port), timeout=5) as connection:
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False

    def tail(self, lines: int = 25) -> str:
        """Return the end of what the guest's console and QEMU said."""
        found = []
        for name in ("console.log", "qemu.log"):
            with contextlib.suppress(OSError):
                text = (self.directory / name).read_text(encoding="utf-8", errors="replace")
                found += [f"  {name}: {line}" for line in text.splitlines()[-lines:]]
        return "\n".join(found) or "  nothing"

    def stop(self) -> None:
        """End QEMU, which is a power cut, and forget the guest."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def kill(self) -> None:
        """End QEMU: the guest loses its power."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()  # also if it has ended by itself: nobody else does
        pid = self.pid
        if pid is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        while self.pid is not None:
            time.sleep(0.05)

    # QEMU

    def qmp(self, command: str, **arguments: object) -> object:
        """Run a command of QEMU's machine protocol; return its answer."""
        directory = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(60)
                connection.connect(f"/proc/self/fd/{directory}/qmp.sock")
                with connection.makefile("rw", encoding="utf-8") as stream:
                    answer = None
                    for request in ({"execute": "qmp_capabilities"}, {"execute": command, "arguments": arguments}):
                        stream.write(json.dumps(request) + "\n")
                        stream.flush()
                        answer = reply(stream)
                    return answer
        finally:
            os.close(directory)

    def find_port(self) -> int:
        """Return the free port that QEMU has taken."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if self.process is not None and self.process.poll() is not None:
                raise self.ended()
            try:
                text = str(self.qmp("human-monitor-command", **{"command-line": "info usernet"}))
            except (FileNotFoundError, ConnectionError):
                time.sleep(0.1)
                continue
            found = re.search(r"HOST_FORWARD\]\s+\d+\s+\S+\s+(\d+)\s+\S+\s+22\s", text)
            if found is None:
                msg = f"{self.name}: expected a forwarded port in QEMU's list, found:\n{text}"
                raise TestbedError(msg)
            return int(found[1])
        msg = f"{self.name}: expected QEMU to answer within a minute, found no answer:\n{self.tail()}"
        raise TestbedError(msg)

    def link(self, up: bool) -> None:
        """Plug the network cable in, or pull it."""
        self.qmp("set_link", name="nic0", up=up)

    def reset(self) -> None:
        """Press the reset button, and do not wait."""
        self.qmp("system_reset")

    def reboot(self) -> None:
        """Press the reset button; return when one can log in again."""
        before = self.boot_id()
        self.reset()
        self.wait(other_than=before)

    # logins

    def options(self) -> list[str]:
        """Return ssh's options for this guest: its keys, nothing of the caller's, and host keys checked."""
        settings = {
            "UserKnownHostsFile": shlex.quote(str(self.known_hosts)),
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "yes",
            "IdentitiesOnly": "yes",
        }
        return [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]

    def ssh(
        self, command: str, *, user: str = "root", text: str | None = None, patience_s: float = COMMAND_PATIENCE_S
    ) -> subprocess.CompletedProcess[str]:
        """Run a shell command in the guest as *user* (root), with *text* as its input."""
        return subprocess.run(
            self.ssh_command(command, user),
            input=text if text is not None else "",
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=patience_s,
        )

    def ssh_command(self, command: str, user: str = "root") -> list[str]:
        """Return the command that runs a shell command in the guest."""
        options = ["-F", "/dev/null", "-o", "BatchMode=yes", "-o", "ConnectTimeout=30", "-o", "ServerAliveInterval=15"]
        return ["ssh", *options, *self.options(), *self.target(user), command]

    def target(self, user: str) -> list[str]:
        """Return ssh's arguments for a login."""
        return ["-i", str(self.key), "-p", str(self.port), f"{user}@{self.host}"]

    def user_ssh(
        self, command: str, *, text: str | None = None, patience_s: float = COMMAND_PATIENCE_S
    ) -> subprocess.CompletedProcess[str]:
        """Run a shell command in the guest as the login `calibration`."""
        return self.ssh(command, user=self.user, text=text, patience_s=patience_s)

    def read(self, command: str) -> str:
        """Return what a command run as root prints; it must succeed."""
        done = self.ssh(command)
        if done.returncode:
            msg = f"{self.name}: {command!r} ended with {done.returncode}: {done.stderr.strip()}"
            raise TestbedError(msg)
        return done.stdout

    def boot_id(self) -> str:
        """Return the identifier of this boot."""
        return self.read("cat /proc/sys/kernel/random/boot_id").strip()

    def inventory(self) -> dict[str, object]:
        """Return the host's variables for an inventory."""
        return {
            "ansible_host": self.host,
            "ansible_port": self.port,
            "ansible_user": self.user,
            "ansible_ssh_private_key_file": str(self.key),
            "ansible_ssh_common_args": "-F /dev/null " + shlex.join(self.options()),
        }


def reply(stream: io.TextIOWrapper) -> object:
    """Return the answer to a request; greeting and events come between."""
    for line in stream:
        message = json.loads(line)
        if "error" in message:
            msg = f"QEMU: {message['error'].get('desc')}"
            raise TestbedError(msg)
        if "return" in message:
            return message["return"]
    raise ConnectionResetError("QEMU has closed its socket")


def guests(state: Path = STATE) -> list[Sut]:
    """Return all guests that something is stored of, running or not."""
    return [Sut(path.name, state) for path in sorted((state / "guests").glob("*")) if path.is_dir()]


@contextlib.contextmanager
def ended_on_failure(suts: Iterable[Sut]) -> Iterator[None]:
    """End the guests when the block is left by an error or an interruption."""
    try:
        yield
    except BaseException:
        for sut in suts:
            sut.kill()
        raise


def start(wanted: Sequence[tuple[str, str]], *, bound: bool, state: Path = STATE) -> list[Sut]:
    """Return guests, given as pairs of shape and name: those that run are used, the others started side by side."""
    known = shapes()
    for shape_name, name in wanted:
        if shape_name not in known:
            msg = f"expected one of the shapes {', '.join(known)}, found {shape_name!r}"
            raise TestbedError(msg)
        if not re.fullmatch(r"[a-z][a-z0-9-]{0,62}", name):
            msg = f"expected a name of letters, digits and '-' for a guest, found {name!r}"
            raise TestbedError(msg)
    suts = [Sut(name, state) for _, name in wanted]
    fresh: dict[Sut, Callable[[], None]] = {}
    with ended_on_failure(fresh):
        for (shape_name, name), sut in zip(wanted, suts, strict=True):
            if sut.pid is not None:
                if sut.record["shape_name"] != shape_name:
                    msg = f"{name} runs with the shape {sut.record['shape_name']}, expected {shape_name}: stop it first"
                    raise TestbedError(msg)
                continue
            shape = known[shape_name]
            image = build(shape.architecture)
            fresh[sut] = functools.partial(sut.launch, shape_name, shape, image, bound=bound)
            fresh[sut]()
        if fresh:
            say(f"booting {', '.join(sut.name for sut in fresh)}")
        for sut in suts:
            if sut in fresh:
                boot(sut, fresh[sut])
            else:
                sut.wait()
    return suts


def boot(sut: Sut, launch: Callable[[], None]) -> None:
    """Wait until one can log in to a guest that *launch* has started, and starts again where QEMU crashes meanwhile."""
    for _ in range(LAUNCHES - 1):
        try:
            sut.wait()
        except CrashedError as error:
            say(f"{error}\nbooting {sut.name} again")
            launch()
        else:
            return
    sut.wait()
