# SPDX-License-Identifier: Apache-2.0
"""Compares ``sutprobe`` with the tools it replaces: ``python -m bench.peers`` prints a table in reStructuredText.

A value depends on the state of the machine, a ratio taken within one alternation much less. Each alternation starts
every contender once, in an order that rotates; the ratios of all alternations give a median and its interval. Peers are
found on PATH or pointed at; none is built or installed, and one that is not there is listed as not compared.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click

from bench import contenders as who
from bench.contenders import Contender, Machine, Output, Start
from bench.outputs import NotComparedError
from bench.ratios import Comparison, compare
from bench.tables import table
from calibration.build import TARGETS, build
from calibration.errors import INTERRUPTED, CalibrationError, EnvironmentLacksError, InputError

BANDWIDTHS: Final = ("read", "write_nt", "copy_bus", "triad")

SECTIONS: Final = ("gap_step_ns", "latency", *BANDWIDTHS, "l1_cycles", "c2c")
"""What ``--only`` takes, in the order it runs."""

SCOUT_SHARE: Final = 0.9
"""A setting this close to the best one in the scouting start is kept: one start cannot distinguish them."""

MAX_SCOUTED: Final = 6
"""Contenders of a bandwidth comparison at most, so that an alternation stays short."""

ALTERNATIONS: Final = 7
"""Six are the fewest whose extremes cover the median 95 % of the time; one more leaves room for a lost one."""

UNPUBLISHED: Final = "mlc"
"""The licence of Intel MLC restricts publishing: the table marks its values."""


@dataclass
class Session:
    """One comparison: what it is given, and what it has so far, by quantity."""

    machine: Machine
    program: str
    found: dict[str, str]
    alternations: int
    say: Callable[[str], None]
    not_compared: list[str] = field(default_factory=list)
    compared: dict[str, Comparison] = field(default_factory=dict)

    def refuse(self, peer: str, reason: str) -> None:
        """List *peer* as not compared."""
        self.not_compared.append(f"{peer}: {reason}")
        self.say(f"  not compared: {peer}: {reason}")


def _end(processes: Sequence[subprocess.Popen[str]]) -> None:
    """End processes that still run, each with all it started."""
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    for process in processes:
        process.communicate()


def _started(start: Start, environment: Mapping[str, str]) -> subprocess.Popen[str]:
    """Start one process, in a group of its own and restricted to its CPUs."""
    before = os.sched_getaffinity(0)
    if start.cpus is not None:
        os.sched_setaffinity(0, start.cpus)
    try:
        return subprocess.Popen(
            start.command,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    finally:
        os.sched_setaffinity(0, before)


def run_starts(starts: Sequence[Start], environment: Mapping[str, str], timeout_s: float) -> list[Output]:
    """Run processes at the same time and return what each printed.

    Raises ``NotComparedError`` if one does not start, does not end in *timeout_s*, or fails. None outlives the call.
    """
    processes: list[subprocess.Popen[str]] = []
    began = time.monotonic()
    try:
        for start in starts:
            processes.append(_started(start, environment))  # noqa: PERF401 - those started must be known if one fails
        done = []
        for process in processes:
            stdout, stderr = process.communicate(timeout=max(0.1, began + timeout_s - time.monotonic()))
            done.append(Output(stdout, stderr, time.monotonic() - began))
    except OSError as error:
        raise NotComparedError(f"does not start: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise NotComparedError(f"did not end within {timeout_s:g} s") from error
    finally:
        _end(processes)
    for process, output in zip(processes, done, strict=True):
        if process.returncode != 0:
            lines = output.stderr.strip().splitlines() or output.stdout.strip().splitlines() or ["nothing"]
            raise NotComparedError(f"exit code {process.returncode}: {lines[-1][:160]}")
    return done


def values_of(contender: Contender) -> dict[str, float]:
    """Run a contender once and return its values. Raises ``NotComparedError`` if it has none."""
    done = run_starts(contender.starts, contender.environment, contender.timeout_s)
    try:
        return {name: sum(value(output) for output in done) for name, value in contender.metrics.items()}
    except CalibrationError as error:
        raise NotComparedError(str(error)) from error


def scout(session: Session, quantity: str, peers: Sequence[Contender]) -> list[Contender]:
    """Start every setting of every peer once; keep the best of each peer, and those close to the best of all."""
    rates: list[tuple[float, Contender]] = []
    refused: dict[str, str] = {}
    for contender in peers:
        try:
            rate = values_of(contender)[quantity]
        except NotComparedError as error:
            refused[contender.peer] = f"{contender.label}: {error}"
            continue
        session.say(f"  {contender.label}: {rate:.0f}")
        rates.append((rate, contender))
    rates.sort(key=lambda rated: rated[0], reverse=True)
    kept: list[Contender] = []
    for place, (rate, contender) in enumerate(rates):
        best_of_peer = contender.peer not in {known.peer for known in kept}
        if best_of_peer or (rate >= SCOUT_SHARE * rates[0][0] and place < MAX_SCOUTED):
            kept.append(contender)
    for peer, reason in refused.items():
        if peer not in {contender.peer for contender in kept}:
            session.refuse(peer, reason)
    return kept


Samples = dict[str, dict[str, list[float]]]
"""By quantity and by the label of a contender: one sample per alternation."""


def alternate(session: Session, contenders: Sequence[Contender], samples: Samples) -> None:
    """Start every contender once per alternation, and add its values to *samples*. A peer that fails is dropped.

    Raises ``NotComparedError`` if ``sutprobe`` itself fails.
    """
    remaining = list(contenders)
    for number in range(session.alternations):
        began = time.monotonic()
        turn = number % len(remaining)
        values: dict[str, dict[str, float]] = {}
        for contender in remaining[turn:] + remaining[:turn]:
            try:
                values[contender.label] = values_of(contender)
            except NotComparedError as error:
                if contender.peer == who.OURS:
                    raise
                remaining.remove(contender)
                for by_label in samples.values():
                    by_label.pop(contender.label, None)
                session.refuse(contender.peer, f"{contender.label}, alternation {number + 1}: {error}")
        for label, by_quantity in values.items():
            for quantity, value in by_quantity.items():
                samples.setdefault(quantity, {}).setdefault(label, []).append(value)
        session.say(f"  alternation {number + 1} of {session.alternations}: {time.monotonic() - began:.0f} s")


def contenders_of(session: Session, section: str) -> list[Contender]:
    """Return who takes part in *section*, ours first. Raises ``NotComparedError`` if ours has no setting."""
    machine, program, found = session.machine, session.program, session.found
    if section in BANDWIDTHS:
        searched = run_starts([who.our_bandwidth_search(machine, section, program)], {}, 120.0)[0]
        ours = who.our_best_setting(machine, section, program, searched)
        session.say(f"  {ours.label}")
        return [ours, *scout(session, section, who.bandwidth_peers(machine, section, found))]
    makers = {
        "latency": who.latency_contenders,
        "gap_step_ns": who.gap_contenders,
        "l1_cycles": who.first_level_contenders,
        "c2c": who.transfer_contenders,
    }
    return makers[section](machine, program, found)


def measure(session: Session, section: str) -> None:
    """Measure one section; what it has is kept also if it is interrupted."""
    session.say(f"{section}:")
    samples: Samples = {}
    ours = ""
    try:
        contenders = contenders_of(session, section)
        ours = contenders[0].label
        alternate(session, contenders, samples)
    except NotComparedError as error:
        session.refuse(who.OURS, f"{section}: {error}")
    finally:
        for quantity, by_label in samples.items():
            theirs = {label: values for label, values in by_label.items() if label != ours}
            better = quantity in who.HIGHER_IS_BETTER
            session.compared[quantity] = compare(by_label[ours], theirs, higher_is_better=better)


def rows_of(session: Session) -> list[tuple[str, ...]]:
    """Return a row for each quantity that was measured."""
    rows = []
    for quantity, made in session.compared.items():
        cells = [who.TITLES[quantity], value_text(made.ours.value), "—", "—", "—"]
        if made.peer is not None and made.theirs is not None and made.ratio is not None:
            peer = f"{made.peer} (not for publication)" if made.peer.startswith(UNPUBLISHED) else made.peer
            ratio = f"{made.ratio.value:.3g} [{made.ratio.low:.3g}, {made.ratio.high:.3g}]"
            cells[2:] = [value_text(made.theirs.value), peer, ratio]
        rows.append(tuple(cells))
    return rows


def value_text(value: float) -> str:
    """Return a value with as many digits as a reader can use."""
    return f"{value:,.0f}" if abs(value) >= 1000.0 else f"{value:.4g}"


def find_peers(pointed: Mapping[str, str], path: str | None = None) -> tuple[dict[str, str], dict[str, str]]:
    """Return peers by name with the path of each, and for those that are not there the reason.

    Raises ``InputError`` for a name that is no peer, or a path that is no program.
    """
    for name, given in pointed.items():
        if name not in who.PEERS:
            raise InputError(f"unknown peer {name!r}, expected one of {', '.join(who.PEERS)}")
        if not (Path(given).is_file() and os.access(given, os.X_OK)):
            raise InputError(f"--peer {name}: {given!r} is not executable")
    found: dict[str, str] = {}
    absent: dict[str, str] = {}
    for name, programs in who.PEERS.items():
        known = pointed.get(name) or next(
            filter(None, (shutil.which(program, path=path) for program in programs)), None
        )
        if known:
            found[name] = str(Path(known).resolve())
        else:
            absent[name] = f"{' or '.join(programs)} is not on PATH, point at it with --peer {name}=PATH"
    return found, absent


def program_of() -> str:
    """Return the path of sutprobe, built for this machine. Raises ``EnvironmentLacksError`` if there is no build."""
    target = next((target for target in TARGETS if target == os.uname().machine), None)
    if target is None:
        raise EnvironmentLacksError(f"this machine is none of {', '.join(TARGETS)}")
    return str(build(target).path)


def tick_hz_of(program: str) -> float:
    """Return the ticks per second of this machine's clock, as ``sutprobe info`` calibrates it."""
    clock = who.document_of(run_starts([Start((program, "info"))], {}, 30.0)[0]).clock
    if clock is None:
        raise EnvironmentLacksError("sutprobe info does not describe the clock")
    return clock.hz


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--alternations",
    type=click.IntRange(1, 1000),
    default=ALTERNATIONS,
    show_default=True,
    help="Times that every contender runs; fewer than 6 cannot give a 95 % interval.",
)
@click.option("--only", type=click.Choice(SECTIONS), multiple=True, help="Only this section; repeatable.")
@click.option("--peer", "peers", multiple=True, metavar="NAME=PATH", help=f"Where a peer is: {', '.join(who.PEERS)}.")
def peers_command(alternations: int, only: tuple[str, ...], peers: tuple[str, ...]) -> None:
    """Compare sutprobe with the tools it replaces, in alternation, on this machine.

    All sections take about half an hour; --only read takes a few minutes.
    """
    try:
        pointed = {name: path for name, _, path in (pair.partition("=") for pair in peers)}
        found, absent = find_peers(pointed)
        program = program_of()
        machine = who.describe_machine(Path("/"), who.allowed_cpus(), tick_hz_of(program))
    except CalibrationError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    session = Session(machine, program, found, alternations, lambda text: click.echo(text, err=True))
    for peer, reason in absent.items():
        session.refuse(peer, reason)
    code = 0
    try:
        for section in only or SECTIONS:
            measure(session, section)
    except KeyboardInterrupt:
        code = INTERRUPTED
        click.echo("interrupted: this is what was measured until then", err=True)
    size = f"{machine.total_bytes / 2**20:.0f} MiB over all threads, {alternations} alternations"
    click.echo(f"{machine.described}; {size}:\n")
    click.echo("\n".join(table(("Quantity", "Ours", "Best peer", "Which", "Ratio"), rows_of(session))))
    for line in session.not_compared:
        click.echo(f"\nNot compared: {line}")
    sys.exit(code)


if __name__ == "__main__":
    peers_command()
