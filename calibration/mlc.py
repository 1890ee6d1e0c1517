# SPDX-License-Identifier: Apache-2.0
"""Intel MLC, the operator's own copy, as a second instrument: which commands, which program, what may be believed.

MLC is never downloaded and never part of this project. It is a guest: whatever it does, the run's own measurements
stand as they are.
"""

import hashlib
import io
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal, get_args

from pydantic import ValidationError

from calibration.archives import GZIP, UNREADABLE, TooLargeError, members, opened
from calibration.errors import EnvironmentLacksError, InputError
from calibration.formats.lines import first_of
from calibration.formats.mlc import read_mlc
from calibration.model import Model, fault_of
from calibration.results.readings import Reading

NAME = "Intel MLC"

ARCHITECTURE = "x86_64"
"""What there is an MLC for."""

CommandName = Literal[
    "idle_latency",
    "latency_matrix",
    "bandwidth_matrix",
    "peak_injection_bandwidth",
    "max_bandwidth",
    "loaded_latency",
    "c2c_latency",
]
COMMANDS: tuple[CommandName, ...] = get_args(CommandName)
"""The commands that are run; each measures what the kind of the same name does."""

UNTOUCHED: Mapping[CommandName, tuple[str, ...]] = {
    **dict.fromkeys(("idle_latency", "latency_matrix", "loaded_latency"), ("-e", "-r")),
    **dict.fromkeys(("bandwidth_matrix", "peak_injection_bandwidth", "max_bandwidth"), ("-e",)),
    "c2c_latency": (),
}
"""What has a command leave the prefetchers alone.

``-e`` is the option for that. A chase in order would then be prefetched, so that latencies take random access, ``-r``.
That ``--c2c_latency`` takes ``-e`` is not known: the kernel keeps it from the registers, as it does all of them.
"""

OPTION = re.compile(r"-(?:[BHLPQRTUXYZaruv]|[CDKSWbcdfijklmnptwx][0-9][0-9A-Fa-fx,-]{0,200})")
"""The options that a profile may give: none that names a file or an object on the SUT (``-g``, ``-J``, ``-M``, ``-o``,
``-s``), and not ``-e``, which follows from the operator's consent."""

PROGRAM = ("Linux", "mlc")
"""Where the program is in the archive, below whatever folder."""

MAX_PROGRAM_BYTES = 32 << 20
MAX_ARCHIVE_BYTES = 256 << 20
MAX_MEMBERS = 10_000
"""Far more than an archive with a program for each system and some texts needs."""

ELF_X86_64 = 62
"""``e_machine`` of a program for x86_64, in the two bytes at 18. From elf.h."""

MAX_LINES = 4_000
"""Most lines that are read of one output: latencies of 1024 CPUs have a quarter. Each reading has all of the notes."""

MAX_NOTES = 4 << 20
"""Most characters of notes that the readings of one output may have together; an ordinary one has a few hundred."""

MAX_REASONS = 5
"""Most sections without a figure named in a message."""

MAX_PLACES = 20_000
"""Most places believed in the state of a SUT's prefetchers: each of 8192 CPUs can have a value of its own."""


class MlcCommand(Model):
    """One command of MLC that a profile asks for, with options of its own."""

    command: CommandName
    options: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """What it is called among what was not measured."""
        return f"{NAME} --{self.command}"

    def argv(self, *, prefetchers_ok: bool) -> tuple[str, ...]:
        """Return the command line; the prefetchers are left alone unless *prefetchers_ok*."""
        options = self.options if prefetchers_ok else (*UNTOUCHED[self.command], *self.options)
        return ("mlc", f"--{self.command}", *dict.fromkeys(options))


def read_commands(raw: Any, source: str) -> tuple[MlcCommand, ...]:
    """Return the commands that *raw*, the list of a profile, asks for: names, or names with a list of options.

    Raises ``InputError`` for anything else, *source* named in it.
    """
    form = f"expected mlc in {source} to list commands ({', '.join(COMMANDS)}), each with a list of options or none"
    if not isinstance(raw, list):
        raise InputError(f"{form}, found {raw!r}")
    found = []
    for each in raw:
        named = {each: []} if isinstance(each, str) else each
        name, options = next(iter(named.items())) if isinstance(named, dict) and len(named) == 1 else (None, None)
        if name not in COMMANDS or not isinstance(options, list):
            raise InputError(f"{form}, found {each!r}")
        for option in options:
            if not isinstance(option, str) or not OPTION.fullmatch(option):
                raise InputError(
                    f"expected options of MLC that name no file and leave the prefetchers to mlc_prefetchers_ok in "
                    f"{source}, such as -X or -b200000, found {option!r}"
                )
        found.append(MlcCommand(command=name, options=tuple(options)))
    if len({each.command for each in found}) < len(found):
        raise InputError(f"expected each command of MLC once in {source}, found one twice")
    return tuple(found)


def check_licence(archive: str, *, accepted: bool) -> None:
    """Raise ``InputError`` where there is an *archive* and nobody accepted its licence."""
    if archive and not accepted:
        raise InputError(
            f"expected mlc_license_accepted: true beside mlc_archive ({archive}), found false: Intel MLC is run only "
            "for who has read its licence and accepts it. Accept it, or leave mlc_archive empty"
        )


@dataclass(frozen=True)
class Program:
    """MLC as the operator gave it: the bytes to run, the hash of what they came in, and where in that they were.

    ``member`` is ``None`` where the file itself is the program.
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
    """Return the program at *path*, an archive with ``Linux/mlc`` in it, or the program itself.

    Nothing is unpacked to the disk. Raises ``InputError`` where there is none, where the archive holds anything that
    reaches out of it or is too large, and for a program of another machine. A script is a program too, and is said to
    be one: an operator may have it start MLC.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_PROGRAM_BYTES + 1)
            if len(content) > MAX_PROGRAM_BYTES:
                raise InputError(f"expected at most {MAX_PROGRAM_BYTES} bytes at {path}, found a longer file")
    except OSError as error:
        raise InputError(
            f"expected Intel MLC at {path} on the controller: {error.strerror}; set mlc_archive to where it is, or "
            "leave it empty"
        ) from error
    digest, member = hashlib.sha256(content).hexdigest(), None
    if content.startswith(GZIP):
        member, content = _member(path, content)
    return Program(content=content, archive_sha256=digest, member=member, form=_form(content, path))


def _member(path: Path, content: bytes) -> tuple[str, bytes]:
    """Return name and bytes of the program in the archive with *content*, read from *path*. Raises ``InputError``."""
    where = "/".join(PROGRAM)
    found: list[tuple[str, bytes]] = []
    try:
        with opened(io.BytesIO(content), most_bytes=MAX_ARCHIVE_BYTES) as archive:
            for each in members(archive, most=MAX_MEMBERS):
                name = PurePosixPath(each.name)
                if name.is_absolute() or ".." in name.parts:
                    raise InputError(f"expected names inside the archive {path}, found {each.name[:200]!r}")
                if name.parts[-2:] != PROGRAM:
                    continue
                if not each.isreg():
                    raise InputError(f"expected {where} in {path} to be a file, found a link or something else")
                if each.size > MAX_PROGRAM_BYTES:
                    raise InputError(f"expected a program of at most {MAX_PROGRAM_BYTES} bytes in {path}, found more")
                member = archive.extractfile(each)
                found.append((each.name, b"" if member is None else member.read()))
    except TooLargeError as error:
        raise InputError(
            f"expected an archive of at most {MAX_ARCHIVE_BYTES} bytes in {MAX_MEMBERS} members at {path}, found more"
        ) from error
    except UNREADABLE as error:
        raise InputError(f"expected a .tgz that can be unpacked at {path}: {error}") from error
    if len(found) != 1:
        raise InputError(f"expected {where} once in the archive {path}, found it {len(found)} times")
    return found[0]


def _form(content: bytes, path: Path) -> Literal["elf", "script"]:
    if content.startswith(b"#!"):
        return "script"
    if not content.startswith(b"\x7fELF\x02\x01"):
        raise InputError(f"expected a program for 64 bits in {path}, found {content[:8]!r} at its beginning")
    machine = int.from_bytes(content[18:20], "little")
    if machine != ELF_X86_64:
        raise InputError(f"expected a program for x86_64 (ELF machine {ELF_X86_64}) in {path}, found machine {machine}")
    return "elf"


State = Literal["as_before", "put_back", "changed", "not_verified"]


def read_output(content: bytes, argv: tuple[str, ...]) -> tuple[Reading, ...]:
    """Return the results in what the command *argv* printed. Raises ``InputError`` where there is none, or too much."""
    text = content.decode("utf-8", "replace")
    if len(text.splitlines()) > MAX_LINES:
        raise InputError(f"expected at most {MAX_LINES} lines of {NAME}, found more")
    read = read_mlc(text, whole=True, command=shlex.join(argv))
    if not read.readings:
        reasons = "; ".join(first_of([each.reason for each in read.not_read], MAX_REASONS))
        raise InputError(f"expected a result in what {NAME} printed, found none{reasons and f': {reasons}'}")
    if sum(len(note) for each in read.readings for note in each.notes) > MAX_NOTES:
        raise InputError(f"expected fewer words beside the figures that {NAME} printed: they are not kept")
    return read.readings


class PrefetcherPlace(Model):
    """A place on the SUT where prefetchers are switched, and what it read around a command of MLC.

    ``after`` is ``None`` where it could not be read again; ``restored`` is what it read once it was put back, ``None``
    where that was not done or could not be.
    """

    where: str
    before: str
    after: str | None
    restored: str | None

    @property
    def state(self) -> State:
        """What became of it."""
        if self.after == self.before:
            return "as_before"
        if self.restored == self.before:
            return "put_back"
        return "not_verified" if self.after is None and self.restored is None else "changed"


class Prefetchers(Model):
    """What the state of a SUT's hardware prefetchers was around one command of MLC.

    The places are the registers of the CPUs (MSR 0x1a4; those of equal values are one place) and the kernel's driver
    for them. ``unread`` says which could not be read and why. ``state`` is the worst of them.
    """

    places: tuple[PrefetcherPlace, ...]
    unread: str | None
    state: State


def read_prefetchers(raw: Any) -> Prefetchers:
    """Return the state of prefetchers in a SUT's answer. Raises ``EnvironmentLacksError`` where it is none."""
    try:
        places = tuple(raw["places"])
        if len(places) > MAX_PLACES:
            raise EnvironmentLacksError(f"expected at most {MAX_PLACES} places of prefetchers, found {len(places)}")
        found = Prefetchers.model_validate({**raw, "places": places, "state": "not_verified"})
    except (TypeError, KeyError, ValidationError) as error:
        raise EnvironmentLacksError(
            f"expected the state of prefetchers in the SUT's answer: {fault_of(error)}"
        ) from error
    states = {each.state for each in found.places} | ({"not_verified"} if found.unread is not None else set())
    order: tuple[State, ...] = ("changed", "not_verified", "put_back", "as_before")
    return found.model_copy(update={"state": next((each for each in order if each in states), "not_verified")})
