# SPDX-License-Identifier: Apache-2.0
"""``calibration run``: ``ansible-playbook`` with this project's exit codes, lock and clean-up after an interruption.

The playbook runs in this process. SIGTERM and SIGHUP interrupt it like Ctrl-C; then playbooks/cleanup.yml is run with
the options of the interrupted command: it ends the run on the SUTs and collects what they measured.
"""

import gc
import json
import locale
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO, Final

import click

from calibration.base.commandline import ansible_options, cleanup_command
from calibration.base.errors import (
    BAD_INPUT,
    ENVIRONMENT,
    GOOD,
    INTERRUPTED,
    VERDICT_FAILED,
    CalibrationError,
    EnvironmentLacksError,
)
from calibration.base.places import CACHE, HOME, HOME_VARIABLE, SHARE

ANSIBLE_EXIT_CODES: Final = {
    0: GOOD,
    2: VERDICT_FAILED,
    4: ENVIRONMENT,
    5: BAD_INPUT,
    99: INTERRUPTED,
    130: INTERRUPTED,
    250: ENVIRONMENT,
}
"""Our exit code for each of ``ansible-playbook``'s; others (errors in the inventory or the playbook) are bad input."""

NEWEST: Final = "newest"
"""Stands for the newest unfinished run; no run has this name."""

UTF_8: Final = "C.UTF-8"
"""The locale that every system has, and Ansible accepts."""

WORKERS_END_S: Final = 10.0
"""Time for interrupted workers to finish before their SUTs are cleaned anyway."""

REPEAT_S: Final = 0.01
"""Delay until an interruption that came within a fork is repeated: as often as it comes within one again."""


@dataclass
class Watched:
    """What the playbook of this process tells of itself, by the callback calibration_outcome.

    ``listening`` is false in a plain ``ansible-playbook``.
    """

    run_id: str | None = None
    results: Path | None = None
    begun: set[str] = field(default_factory=set)
    failures: set[int] = field(default_factory=set)
    passwords: Mapping[str, str | None] = field(default_factory=dict)
    listening: bool = False
    ended: bool = False
    nightly: bool = False
    locks: list[BinaryIO] = field(default_factory=list)

    def start(self) -> None:
        """Take over the signals, which Ansible has set up for itself when its playbook starts."""
        if self.listening:
            Interruptions()
            gc.freeze()  # a collection in a worker would copy every inherited page that it touches
            gc.enable()

    def name(self, run_id: str, results: str) -> None:
        """Note the run, and lock the results of a nightly run; end the playbook if another one has them."""
        self.run_id, self.results = run_id, Path(results)
        if not self.nightly or self.locks:
            return
        from calibration.nightly.lock import hold  # noqa: PLC0415 - nights only

        try:
            self.locks.append(hold(Path(results), datetime.now(UTC)))
        except CalibrationError as error:
            click.echo(f"error: {error}", err=True)
            self.failures.add(error.exit_code)
            raise SystemExit(error.exit_code) from error


watched = Watched()
"""The playbook of this process."""


def exit_code_of(ansible_code: int, noted: set[int]) -> int:
    """Return the command's exit code from ``ansible-playbook``'s and the *noted* ones.

    Ansible ends an interrupted run with one of several codes. Bad input outranks a lacking environment, which outranks
    a failed verdict: the first to fix comes first. Ansible's 2 without a failed task comes from its option parser.
    """
    if ansible_code == 0:
        return BAD_INPUT if BAD_INPUT in noted else GOOD
    if INTERRUPTED in noted:
        return INTERRUPTED
    code = ANSIBLE_EXIT_CODES.get(ansible_code, BAD_INPUT)
    if code == INTERRUPTED:
        return code
    for reason in (BAD_INPUT, ENVIRONMENT, VERDICT_FAILED):
        if reason in noted:
            return reason
    return BAD_INPUT if ansible_code == 2 else code


class Interruptions:
    """Turns signals into the interruption of the playbook, but not within a fork, where Python ignores exceptions."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.forking = False
        self.pending = False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # respect nohup
                signal.signal(number, self.handle)
        os.register_at_fork(before=self.begin, after_in_parent=self.end, after_in_child=self.end)

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Interrupt the playbook; a worker without its own handler ends."""
        if os.getpid() != self.process:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        watched.failures.add(INTERRUPTED)  # Ansible may notice the ended worker before its own interruption
        if self.forking:
            self.pending = True
        elif self._ignored_in(frame):
            self._repeat()
        else:
            raise KeyboardInterrupt

    def begin(self) -> None:
        """Begin a fork."""
        self.forking = True

    def end(self) -> None:
        """End a fork, and repeat an interruption that came meanwhile."""
        self.forking = False
        if self.pending and os.getpid() == self.process:
            self.pending = False
            self._repeat()

    def _ignored_in(self, frame: FrameType | None) -> bool:
        """Return whether *frame* runs within ``begin`` or ``end``."""
        while frame is not None:
            if frame.f_code in {Interruptions.begin.__code__, Interruptions.end.__code__}:
                return True
            frame = frame.f_back
        return False

    def _repeat(self) -> None:
        """Interrupt again in a moment."""
        threading.Timer(REPEAT_S, os.kill, (self.process, signal.SIGINT)).start()


def cleanup_after(given: Mapping[str, Any], run_id: str, suts: list[str]) -> list[str]:
    """Return the command that cleans up after *run_id* on *suts*, with the connection options *given*."""
    command = [sys.executable, "-m", "ansible", "playbook", str(SHARE / "playbooks" / "cleanup.yml")]
    command += ansible_options(given, typed=False)
    return [*command, "--limit", ",".join(suts), "-e", json.dumps({"calibration_run_id": run_id})]


def clean_up() -> None:
    """Clean up after an interrupted playbook: end the run on the SUTs that have begun, and collect it."""
    from ansible.context import CLIARGS  # noqa: PLC0415 - set when the playbook's command is parsed

    _await_workers()  # a surviving worker would recreate Ansible's temporary directory
    if watched.run_id is None or not watched.begun:
        return
    suts = sorted(watched.begun)
    command = cleanup_after(CLIARGS, watched.run_id, suts)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a second Ctrl-C gives up
    click.echo(f"Interrupted: cleaning up on {', '.join(suts)} (Ctrl-C again gives up)")
    try:
        code = _run_cleanup(command)
    except KeyboardInterrupt:
        code = INTERRUPTED
    if code != 0:
        click.echo(
            "The cleanup is incomplete. SUTs that were not reached complete the run and restore their settings by "
            "themselves. Options that may be secret are left out here. "
            f"Repeat it with: {cleanup_command(watched.run_id, suts, watched.results)}"
        )


def _await_workers() -> None:
    """Wait until the interrupted workers have finished writing."""
    until = time.monotonic() + WORKERS_END_S
    while time.monotonic() < until and multiprocessing.active_children():
        time.sleep(0.05)


def _run_cleanup(command: list[str]) -> int:
    """Run *command* with the typed passwords; return its exit code."""
    pipes = []
    for option, password in watched.passwords.items():
        if password:
            reader, writer = os.pipe()
            os.write(writer, str(password).encode())
            os.close(writer)
            pipes.append(reader)
            command = [*command, option, f"/dev/fd/{reader}"]
    sys.stdout.flush()
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=1,  # a child does not inherit Ansible's standard output and error
        stderr=2,
        pass_fds=pipes,
        start_new_session=True,
    ) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.terminate()
            raise
        finally:
            for reader in pipes:
                os.close(reader)


def _is_utf8() -> bool:
    """Return whether Ansible accepts the locale, after making it this process's."""
    try:
        locale.setlocale(locale.LC_ALL, "")
        encoding = locale.getlocale()[1] or ""
    except (locale.Error, ValueError):
        return False
    return encoding.lower() in {"utf-8", "utf8"} and sys.getfilesystemencoding() == "utf-8"


def use_utf8() -> None:
    """Use the locale C.UTF-8 if the environment's is not installed or not UTF-8: Ansible would not start.

    Raises ``EnvironmentLacksError`` if that is not possible.
    """
    if _is_utf8():
        return
    named = {name: value for name, value in sorted(os.environ.items()) if name == "LANG" or name.startswith("LC_")}
    given = " ".join(f"{name}={value}" for name, value in named.items() if value != UTF_8)
    os.environ["LC_ALL"] = UTF_8
    if not _is_utf8():
        raise EnvironmentLacksError(f"the locale ({given}) is not installed or not UTF-8: set LC_ALL={UTF_8}")
    click.echo(f"The locale ({given}) is not installed or not UTF-8: using {UTF_8}", err=True)


@click.command(
    "run",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": ["--help"]},
    epilog="Example: calibration run --profile nightly -i lab.yml --limit t1-sut1",
)
@click.option(
    "--profile",
    help="A profile (docs/guide/profiles.rst), by name, or by the path of a .yml file. "
    "Overrides the inventory's calibration_profile. Without either: quick, with --nightly nightly.",
)
@click.option(
    "--against",
    metavar="FILE",
    help="Acceptance file to judge the run by, by name or path (docs/guide/acceptance.rst).",
)
@click.option(
    "--resume",
    is_flag=False,
    flag_value=NEWEST,
    metavar="[RUN_ID]",
    help="Resume this run (default: the newest unfinished one) instead of starting a new one.",
)
@click.option(
    "--nightly",
    is_flag=True,
    help="Lock the results, measure, then judge and publish (docs/guide/nightly.rst).",
)
@click.argument("ansible_options", nargs=-1, type=click.UNPROCESSED)
def run_command(
    *, profile: str | None, against: str | None, resume: str | None, nightly: bool, ansible_options: tuple[str, ...]
) -> None:
    """Calibrate the SUTs of an inventory (default: this machine).

    ANSIBLE_OPTIONS are those of ansible-playbook. The most useful are -i INVENTORY, --limit SUTS, --become, --check
    (plan only), -e NAME=VALUE and -v.

    --resume runs the steps without a result; complete SUTs are skipped, unreached ones start. It is refused if the SUT
    (kernel, command line, microcode, BIOS, CPUs and nodes, isolation) or sutprobe has changed. For ansible-playbook,
    give -e calibration_resume=true.
    """
    gc.disable()  # until the playbook starts: what is imported and read before stays
    use_utf8()
    playbook = SHARE / "playbooks" / ("nightly.yml" if nightly else "calibrate.yml")
    os.environ.setdefault("ANSIBLE_CONFIG", str(SHARE / "ansible.cfg"))
    os.environ.setdefault("ANSIBLE_HOME", str(CACHE / "ansible"))
    os.environ.setdefault(HOME_VARIABLE, str(HOME))
    arguments = ["ansible-playbook", str(playbook), *ansible_options]
    if profile is not None:
        from calibration.profiles import profile_named  # noqa: PLC0415 - imports every measurement

        arguments += ["--extra-vars", f"calibration_profile={profile_named(profile)}"]
    if against is not None:
        arguments += ["--extra-vars", json.dumps({"calibration_acceptance": [against]})]
    if resume is not None:
        named = {} if resume == NEWEST else {"calibration_run_id": resume}
        arguments += ["--extra-vars", json.dumps({"calibration_resume": True, **named})]
    sys.argv = arguments
    watched.nightly = nightly and "--check" not in ansible_options and "-C" not in ansible_options

    from ansible.cli.playbook import PlaybookCLI  # noqa: PLC0415 - reads its configuration when imported

    from calibration.run import session  # noqa: F401, PLC0415 - imported here, before Ansible forks a worker per task

    watched.listening = True
    try:
        PlaybookCLI.cli_executor(arguments)
        code = GOOD
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else GOOD if ended.code is None else ENVIRONMENT
    except KeyboardInterrupt:
        code = INTERRUPTED
    if INTERRUPTED in watched.failures and not watched.ended:
        code = code or INTERRUPTED
        clean_up()
    gc.unfreeze()  # some extensions report frozen objects as leaks at exit
    gc.enable()
    sys.exit(exit_code_of(code, watched.failures))
