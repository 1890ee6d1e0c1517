# SPDX-License-Identifier: Apache-2.0
"""Intel MLC, the operator's own copy, as a second instrument: commands, program, and prefetcher state.

MLC is never downloaded and never part of this project. Whatever it does, the run's own measurements are unaffected.
"""

import hashlib
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal, get_args

from pydantic import ValidationError

from calibration.base.archives import GZIP, UNREADABLE, TooLargeError, members, opened
from calibration.base.errors import EnvironmentLacksError, InputError
from calibration.base.model import Model, fault_of

NAME: Final = "Intel MLC"

ARCHITECTURE: Final = "x86_64"
"""The only architecture of MLC."""

CommandName = Literal[
    "idle_latency",
    "latency_matrix",
    "bandwidth_matrix",
    "peak_injection_bandwidth",
    "max_bandwidth",
    "loaded_latency",
    "c2c_latency",
]
COMMANDS: Final[tuple[CommandName, ...]] = get_args(CommandName)
"""The supported commands; each measures the same as the kind of the same name."""

NO_SWITCH_OPTIONS: Final[Mapping[CommandName, tuple[str, ...]]] = {
    **dict.fromkeys(("idle_latency", "latency_matrix", "loaded_latency"), ("-e", "-r")),
    **dict.fromkeys(("bandwidth_matrix", "peak_injection_bandwidth", "max_bandwidth"), ("-e",)),
    "c2c_latency": (),
}
"""The options with which a command does not switch the prefetchers.

``-e`` is the option for that. A sequential chase would then be prefetched, so latencies use random access, ``-r``.
Whether ``--c2c_latency`` accepts ``-e`` is unknown: the kernel denies all commands access to the registers.
"""

OPTION: Final = re.compile(r"-(?:[BHLPQRTUXYZaruv]|[CDKSWbcdfijklmnptwx][0-9][0-9A-Fa-fx,-]{0,200})")
"""Options allowed in a profile: none that names a file or an object on the SUT (``-g``, ``-J``, ``-M``, ``-o``,
``-s``), and not ``-e``, which follows from the operator's consent."""

PROGRAM: Final = ("Linux", "mlc")
"""Path of the program in the archive, below any folder."""

MAX_PROGRAM_BYTES = 32 << 20
MAX_ARCHIVE_BYTES = 256 << 20
MAX_MEMBERS = 10_000
"""Far more than an archive of programs and texts needs."""

ELF_X86_64: Final = 62
"""``e_machine`` of x86_64 programs, two bytes at offset 18. From elf.h."""

MAX_PLACES: Final = 20_000
"""Most prefetcher settings in a SUT's answer: each of 8192 CPUs can have its own value."""


class MlcCommand(Model):
    """One command of MLC in a profile, with its options."""

    command: CommandName
    options: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Its title among skipped measurements."""
        return f"{NAME} --{self.command}"

    def argv(self, *, prefetchers_ok: bool) -> tuple[str, ...]:
        """Return the command line; it does not switch the prefetchers unless *prefetchers_ok*."""
        options = self.options if prefetchers_ok else (*NO_SWITCH_OPTIONS[self.command], *self.options)
        return ("mlc", f"--{self.command}", *dict.fromkeys(options))


def read_commands(raw: Any, source: str) -> tuple[MlcCommand, ...]:
    """Return the commands in *raw*, the list of a profile: names, or names with a list of options.

    Raises ``InputError`` for anything else, naming *source*.
    """
    form = f"mlc in {source} must list commands ({', '.join(COMMANDS)}), each with a list of options or none"
    if not isinstance(raw, list):
        raise InputError(f"{form}, not {raw!r}")
    found: dict[str, MlcCommand] = {}
    for item in raw:
        named = {item: []} if isinstance(item, str) else item
        name, options = next(iter(named.items())) if isinstance(named, dict) and len(named) == 1 else (None, None)
        if name not in COMMANDS or not isinstance(options, list):
            raise InputError(f"{form}, not {item!r}")
        if name in found:
            raise InputError(f"mlc in {source} lists {name} twice")
        for option in options:
            if not isinstance(option, str) or not OPTION.fullmatch(option):
                raise InputError(
                    f"mlc in {source}: option {option!r} is not allowed: options such as -X or -b200000 are, but none "
                    "that names a file, and not -e (set mlc_prefetchers_ok instead)"
                )
        found[name] = MlcCommand(command=name, options=tuple(options))
    return tuple(found.values())


def check_licence(archive: str, *, accepted: bool) -> None:
    """Raise ``InputError`` if there is an *archive* whose licence was not *accepted*."""
    if archive and not accepted:
        raise InputError(
            f"mlc_archive is set ({archive}) without mlc_license_accepted: true. Read the licence of Intel MLC and "
            "accept it, or leave mlc_archive empty"
        )


@dataclass(frozen=True)
class Program:
    """The operator's MLC: the bytes to run, the hash of the file they came in, and their path in it.

    ``member`` is ``None`` if the file itself is the program.
    """

    content: bytes
    archive_sha256: str
    member: str | None
    form: Literal["elf", "script"]

    @property
    def sha256(self) -> str:
        """The hash of the program."""
        return hashlib.sha256(self.content).hexdigest()


def read_program(path: Path) -> Program:
    """Return the program at *path*: an archive with ``Linux/mlc`` in it, or the program itself.

    Nothing is unpacked to disk. Raises ``InputError`` if there is no program, the archive is too large or has a path
    that leads out of it, or the program is for another machine. A script that starts MLC is accepted too.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_PROGRAM_BYTES + 1)
    except OSError as error:
        raise InputError(
            f"Intel MLC cannot be read at {path} on the controller: {error.strerror}; correct mlc_archive or leave it "
            "empty"
        ) from error
    if len(content) > MAX_PROGRAM_BYTES:
        raise InputError(f"{path} is too large: at most {MAX_PROGRAM_BYTES} bytes are read")
    archive_sha256, member = hashlib.sha256(content).hexdigest(), None
    if content.startswith(GZIP):
        member, content = _unpacked(path, content)
    return Program(content, archive_sha256, member, _form(content, path))


def _unpacked(path: Path, content: bytes) -> tuple[str, bytes]:
    """Return name and bytes of the program in the archive *content*, read from *path*. Raises ``InputError``."""
    wanted = "/".join(PROGRAM)
    found: list[tuple[str, bytes]] = []
    try:
        with opened(io.BytesIO(content), most_bytes=MAX_ARCHIVE_BYTES) as archive:
            for member in members(archive, most=MAX_MEMBERS):
                name = PurePosixPath(member.name)
                if name.is_absolute() or ".." in name.parts:
                    raise InputError(f"the archive {path} has a path that leads out of it: {member.name[:200]!r}")
                if name.parts[-2:] != PROGRAM:
                    continue
                if not member.isreg():
                    raise InputError(f"{wanted} in {path} is a link or a special file")
                if member.size > MAX_PROGRAM_BYTES:
                    raise InputError(f"{wanted} in {path} is too large: at most {MAX_PROGRAM_BYTES} bytes are read")
                file = archive.extractfile(member)
                found.append((member.name, b"" if file is None else file.read()))
    except TooLargeError as error:
        raise InputError(
            f"the archive {path} is too large: at most {MAX_ARCHIVE_BYTES} bytes in {MAX_MEMBERS} members are read"
        ) from error
    except UNREADABLE as error:
        raise InputError(f"{path} is not a valid .tgz archive: {error}") from error
    if len(found) != 1:
        raise InputError(f"the archive {path} has {wanted} {len(found)} times, expected once")
    return found[0]


def _form(content: bytes, path: Path) -> Literal["elf", "script"]:
    if content.startswith(b"#!"):
        return "script"
    if not content.startswith(b"\x7fELF\x02\x01"):
        raise InputError(f"{path} is not a 64-bit ELF program: it begins with {content[:8]!r}")
    machine = int.from_bytes(content[18:20], "little")
    if machine != ELF_X86_64:
        raise InputError(f"{path} is not an x86_64 program: its ELF machine is {machine}, not {ELF_X86_64}")
    return "elf"


State = Literal["changed", "not_verified", "put_back", "as_before"]
"""Outcome for the prefetchers, worst first."""


class PrefetcherPlace(Model):
    """One prefetcher setting on the SUT, and its value before and after a command of MLC.

    ``after`` is ``None`` if it could not be read again; ``restored`` is the value after restoring, ``None`` if that was
    not done or failed.
    """

    where: str
    before: str
    after: str | None
    restored: str | None

    @property
    def state(self) -> State:
        """The outcome."""
        if self.after == self.before:
            return "as_before"
        if self.restored == self.before:
            return "put_back"
        return "not_verified" if self.after is None and self.restored is None else "changed"


class Prefetchers(Model):
    """The state of a SUT's hardware prefetchers around one command of MLC.

    The settings are the CPUs' registers (MSR 0x1a4; those of equal values are grouped) and the kernel's driver for
    them. ``unread`` says which could not be read and why. ``state`` is the worst of them.
    """

    places: tuple[PrefetcherPlace, ...]
    unread: str | None
    state: State


def read_prefetchers(raw: Any) -> Prefetchers:
    """Return the prefetcher state in a SUT's answer. Raises ``EnvironmentLacksError`` if it is invalid."""
    if not isinstance(raw, dict):
        raise EnvironmentLacksError("the SUT's answer lacks the state of the prefetchers")
    try:
        places = tuple(raw["places"])
        if len(places) > MAX_PLACES:
            raise EnvironmentLacksError(f"at most {MAX_PLACES} places of prefetchers are read, the SUT named more")
        found = Prefetchers.model_validate({**raw, "places": places, "state": "not_verified"})
    except (TypeError, KeyError, ValidationError) as error:
        raise EnvironmentLacksError(f"the SUT's answer about prefetchers is not valid: {fault_of(error)}") from error
    states = {place.state for place in found.places}
    if found.unread is not None or not states:
        states.add("not_verified")
    return found.model_copy(update={"state": min(states, key=get_args(State).index)})
