# SPDX-License-Identifier: Apache-2.0
"""Compares ``sutprobe`` with the tools it replaces: ``python -m bench.peers`` prints a table in reStructuredText.

A value depends on the state of the machine, a ratio of neighbours much less. A few starts find the best setting of
each side; then short windows of both alternate in random order until the interval of the ratio is narrow. Ours also
runs against itself: an interval of that row without 1 says that the intervals are too narrow. Peers are found on PATH
or pointed at; none is built or installed, and one that is not there is listed as not compared.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Final

import click

from bench import contenders as who
from bench.contenders import Contender, Machine, Output, Start
from bench.outputs import NotComparedError
from bench.ratios import Spread, spread
from bench.tables import table
from calibration.build import TARGETS, build
from calibration.errors import INTERRUPTED, CalibrationError, EnvironmentLacksError, InputError

BANDWIDTHS: Final = {f"{quantity}-{threads}": quantity for threads in ("one", "all") for quantity in who.TRAFFIC}
"""The sections of bandwidth, with one thread and with all, and the quantity of each."""

CACHES: Final = {f"{level}-{threads}": level for threads in ("one", "all") for level in who.LEVELS}
"""The sections of reads from caches, and the level of each."""

SECTIONS: Final = (*BANDWIDTHS, *CACHES, "latency", "latency_time", "gap_step_ns", "l1_cycles", "c2c")
"""What ``--only`` takes, in the order it runs."""

GROUPS: Final = {"caches": tuple(CACHES)}
"""Several sections under one name."""

PAIRS: Final = 100
"""Fewest alternations: the blocks of the interval need several each."""

LOOK: Final = 50
"""Alternations between two looks at the widths: to stop at the first lucky one would cover less than 95 %."""

PRECISION: Final = 0.03
"""Intervals this narrow (±) end the alternation."""

EXACTLY: Final = {"latency_time": 2, "l1_cycles": 8}
"""Alternations of sections that do not run until the interval is narrow: a start takes a minute, or has no peer."""

MAX_S: Final = 150.0
"""Longest alternation of a section: with its scouting, the whole table takes an hour and a quarter."""

SCOUTED: Final = 3
"""Starts of a good setting before the alternation: one cannot distinguish them."""

SCOUT_AGAIN: Final = 0.85
"""Settings of a peer this close to the best in their first start get the other starts."""

AS_GOOD: Final = 0.95
"""A second setting this close to the best after that alternates too: it may be the best."""

RESERVE: Final = 1.2
"""A peer that waits for fewer lines than the most of one thread divided by this leaves misses unused."""

AGAIN: Final = f"{who.OURS} again"
"""The label of ours as its own peer."""

UNPUBLISHED: Final = "mlc"
"""The licence of Intel MLC restricts publishing: the table marks its values."""


@dataclass(frozen=True)
class Row:
    """A quantity of ours, and against one peer if there is one, from the pairs of *seconds* of alternation."""

    quantity: str
    threads: int | None
    ours: Spread
    pairs: int
    seconds: float
    peer: str | None = None
    theirs: Spread | None = None
    ratio: Spread | None = None
    in_flight: tuple[float, float] | None = None
    title: str = ""


@dataclass
class Session:
    """One comparison: what it is given, and what it has so far."""

    machine: Machine
    program: str
    found: dict[str, str]
    max_s: float
    say: Callable[[str], None]
    not_compared: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    shown: list[tuple[str, ...]] = field(default_factory=list)
    latency_ns: float | None = None

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


def best_of(quantity: str, settings: Sequence[Contender]) -> Contender:
    """Return the best of our settings by the median of as many starts as a good setting of a peer gets."""
    rates: dict[str, list[float]] = {}
    for contender in [*settings] * SCOUTED:
        rates.setdefault(contender.label, []).append(values_of(contender)[quantity])
    return max(settings, key=lambda contender: median(rates[contender.label]))


def scout(session: Session, quantity: str, peers: Sequence[Contender], title: str = "") -> list[Contender]:
    """Start every setting of every peer, good ones three times. Return the best that counts, and a second if as good.

    The best setting of each other peer is shown under *title*, and why it is not compared.
    """
    rates: dict[str, list[float]] = {}
    refused: dict[str, str] = {}

    def start(contender: Contender) -> None:
        try:
            rates.setdefault(contender.label, []).append(values_of(contender)[quantity])
        except NotComparedError as error:
            refused[contender.peer] = f"{contender.label}: {error}"

    for contender in peers:
        start(contender)
    measured = [contender for contender in peers if rates.get(contender.label)]
    best = max((rates[contender.label][0] for contender in measured if contender.counts), default=0.0)
    for contender in [rival for rival in measured if rates[rival.label][0] >= SCOUT_AGAIN * best] * (SCOUTED - 1):
        start(contender)
    value = {contender.label: median(rates[contender.label]) for contender in measured}
    measured.sort(key=lambda contender: value[contender.label], reverse=True)
    for contender in measured:
        session.say(f"  {contender.label}: {value[contender.label]:.0f}")
    counting = [contender for contender in measured if contender.counts]
    kept = [rival for rival in counting[:2] if value[rival.label] >= AS_GOOD * value[counting[0].label]]
    known = {contender.peer for contender in kept}
    for contender in measured:
        if contender.peer not in known:
            known.add(contender.peer)
            reason = "slower" if contender.counts else "no common window: does not count"
            cells = (title or who.TITLES[quantity], str(contender.threads), value_text(value[contender.label]))
            session.shown.append((*cells, contender.label, reason))
    for peer, reason in refused.items():
        if peer not in known:
            session.refuse(peer, reason)
    return kept


Block = Mapping[str, Mapping[str, float]]
"""The values of one alternation, by label of the contender and by quantity."""


def alternate(session: Session, section: str, contenders: Sequence[Contender], blocks: list[Block]) -> None:
    """Start every contender once per alternation in random order, and add the values of each alternation to *blocks*.

    A peer that fails runs no more. Raises ``NotComparedError`` if ``sutprobe`` itself fails.
    """
    shuffled = random.Random(section)  # noqa: S311 - the order of starts, not a secret
    remaining = list(contenders)
    began = time.monotonic()
    while not _enough(section, contenders, blocks, time.monotonic() - began >= session.max_s):
        values: dict[str, Mapping[str, float]] = {}
        for contender in shuffled.sample(remaining, len(remaining)):
            try:
                values[contender.label] = values_of(contender)
            except NotComparedError as error:
                if contender.peer == who.OURS:
                    raise
                remaining.remove(contender)
                session.refuse(contender.peer, f"{contender.label}, alternation {len(blocks) + 1}: {error}")
        blocks.append(values)
    session.say(f"  {len(blocks)} alternations: {time.monotonic() - began:.0f} s")


def _enough(section: str, contenders: Sequence[Contender], blocks: Sequence[Block], late: bool) -> bool:
    """Tell whether *blocks* are as many as the section needs: exactly so many, or until its ratios are narrow."""
    if section in EXACTLY:
        return len(blocks) >= EXACTLY[section]
    if late and blocks:
        return True
    if len(blocks) < PAIRS or len(blocks) % LOOK:
        return False
    quantity = quantity_of(section)
    spreads = [row.ratio or row.ours for row in _rows(quantity, contenders, blocks, 0.0)]
    return all(found.precision is not None and found.precision <= PRECISION for found in spreads)


def _rows(quantity: str, contenders: Sequence[Contender], blocks: Sequence[Block], seconds: float) -> Iterator[Row]:
    """Return ours (the first of *contenders*) against each other, the best first; just ours if there is no other.

    Raises ``ValueError`` if a peer's traffic or number of threads is not ours.
    """
    ours, *peers = contenders
    threads = ours.threads if ours.traffic else None
    rows = []
    for peer in peers:
        if (peer.traffic, peer.threads) != (ours.traffic, ours.threads):
            raise ValueError(f"{peer.label} is not like {ours.label}")
        both = [block for block in blocks if ours.label in block and quantity in block.get(peer.label, {})]
        pairs = [(block[ours.label][quantity], block[peer.label][quantity]) for block in both]
        if not pairs or not peer.counts:
            continue
        mine, theirs = ([pair[side] for pair in pairs] for side in (0, 1))
        ratio = spread([one / other for one, other in pairs])
        rows.append(Row(quantity, threads, spread(mine), len(pairs), seconds, peer.label, spread(theirs), ratio))
    better = -1.0 if ours.traffic else 1.0
    rows.sort(key=lambda row: (row.peer == AGAIN, better * row.theirs.value if row.theirs else 0.0))
    if rows:
        return iter(rows)
    alone = [block[ours.label][quantity] for block in blocks if ours.label in block]
    return iter([Row(quantity, threads, spread(alone), len(alone), seconds)] if alone else [])


def quantity_of(section: str) -> str:
    """Return the quantity that the rows of *section* are of."""
    return "read" if section in CACHES else BANDWIDTHS.get(section, section)


def machine_of(session: Session, section: str) -> Machine:
    """Return the machine with the threads and bytes of a *section* of bandwidth.

    Raises ``NotComparedError`` if it has no such cache.
    """
    machine = session.machine.one_thread() if section.endswith("-one") else session.machine
    return machine.in_cache(CACHES[section]) if section in CACHES else machine


def contenders_of(session: Session, section: str) -> list[Contender]:
    """Return who takes part in *section*, ours first. Raises ``NotComparedError`` if ours has no setting."""
    machine, program, found = session.machine, session.program, session.found
    if section in BANDWIDTHS or section in CACHES:
        quantity = quantity_of(section)
        machine = machine_of(session, section)
        if section in BANDWIDTHS and section.endswith("-one") and session.latency_ns is None:
            start = who.our_latency_start(machine, program, who.LATENCY_BYTES, 1)
            session.latency_ns = who.our_latency(run_starts([start], {}, 60.0)[0])
        searches = who.our_bandwidth_searches(machine, quantity, program)
        searched = [run_starts([search], {}, 300.0)[0] for search in searches]
        ours = best_of(quantity, who.our_best_settings(machine, quantity, program, searched))
        session.say(f"  {ours.label}")
        peers = who.bandwidth_peers(machine, quantity, found)
        return [ours, *scout(session, quantity, peers, machine.title(quantity))]
    makers = {
        "latency": who.latency_contenders,
        "latency_time": who.latency_time_contenders,
        "gap_step_ns": who.gap_contenders,
        "l1_cycles": who.first_level_contenders,
        "c2c": who.transfer_contenders,
    }
    return makers[section](machine, program, found)


def measure(session: Session, section: str) -> None:
    """Measure one section; what it has is kept also if it is interrupted."""
    session.say(f"{section}:")
    blocks: list[Block] = []
    contenders: list[Contender] = []
    began = time.monotonic()
    try:
        contenders = contenders_of(session, section)
        if section not in EXACTLY and not any(row.peer == AGAIN for row in session.rows):
            contenders.append(replace(contenders[0], label=AGAIN))
        began = time.monotonic()
        alternate(session, section, contenders, blocks)
    except (NotComparedError, CalibrationError) as error:
        session.refuse(who.OURS, f"{section}: {error}")
    finally:
        seconds = time.monotonic() - began
        for quantity in contenders[0].metrics if contenders else ():
            try:
                rows = list(_rows(quantity, contenders, blocks, seconds))
            except ValueError as error:
                session.refuse(who.OURS, f"{section}: {quantity}: {error}")
                continue
            if section in CACHES:
                title = machine_of(session, section).title(quantity)
                session.rows.extend(replace(row, title=title) for row in rows)
            else:
                session.rows.extend(_with_lines(session, row) for row in rows)


def _with_lines(session: Session, row: Row) -> Row:
    """Add the lines in flight of both sides to a row of one thread."""
    if row.threads != 1 or row.theirs is None or session.latency_ns is None:
        return row
    ours, theirs = (
        who.lines_in_flight(rate.value, row.quantity, session.machine.architecture, session.latency_ns)
        for rate in (row.ours, row.theirs)
    )
    return row if ours is None or theirs is None else replace(row, in_flight=(ours, theirs))


HEAD: Final = ("Quantity", "Threads", "Ours", "Peer", "Which", "Ratio", "Pairs", "In flight", "Unused")


def rows_of(session: Session) -> list[tuple[str, ...]]:
    """Return the cells of each row that was measured."""
    capacity = max((max(row.in_flight) for row in session.rows if row.in_flight), default=0.0)
    cells: list[tuple[str, ...]] = []
    for row in session.rows:
        threads = "" if row.threads is None else str(row.threads)
        peer, theirs, ratio, lines, unused = "—", "—", "—", "—", "—"
        if row.peer is not None and row.theirs is not None and row.ratio is not None:
            peer = f"{row.peer} (not for publication)" if row.peer.startswith(UNPUBLISHED) else row.peer
            theirs, ratio = value_text(row.theirs.value), _ratio_text(row.ratio, row.seconds)
        if row.in_flight is not None:
            lines = f"{row.in_flight[0]:.0f} / {row.in_flight[1]:.0f}"
            unused = "yes" if row.in_flight[1] < capacity / RESERVE else "no"
        values = (value_text(row.ours.value), theirs, peer, ratio, str(row.pairs), lines, unused)
        cells.append((row.title or who.TITLES[row.quantity], threads, *values))
    return cells


def _holds_one(row: Row) -> bool:
    """Tell whether the interval of a ratio contains 1, or there is none."""
    ratio = row.ratio
    return ratio is None or ratio.low is None or ratio.high is None or ratio.low <= 1.0 <= ratio.high


def _ratio_text(ratio: Spread, seconds: float) -> str:
    """Return a ratio with its interval, and how wide that is if it did not become narrow in time."""
    if ratio.low is None or ratio.high is None or ratio.precision is None:
        return f"{ratio.value:.3g}, no interval"
    text = f"{ratio.value:.3g} [{ratio.low:.3g}, {ratio.high:.3g}]"
    return text if ratio.precision <= PRECISION else f"{text} ±{100 * ratio.precision:.1f} % after {seconds:.0f} s"


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
    "--max-s",
    type=click.FloatRange(1.0, 3600.0),
    default=MAX_S,
    show_default=True,
    help="Longest alternation of a section; it ends before if all intervals are within ±3 %.",
)
@click.option(
    "--only",
    type=click.Choice((*SECTIONS, *GROUPS)),
    multiple=True,
    help="Only this section, or these of the caches; repeatable.",
)
@click.option("--peer", "peers", multiple=True, metavar="NAME=PATH", help=f"Where a peer is: {', '.join(who.PEERS)}.")
def peers_command(max_s: float, only: tuple[str, ...], peers: tuple[str, ...]) -> None:
    """Compare sutprobe with the tools it replaces, in alternation, on this machine.

    All sections take about an hour and a quarter; --only read-one takes a few minutes.
    """
    try:
        pointed = {name: path for name, _, path in (pair.partition("=") for pair in peers)}
        found, absent = find_peers(pointed)
        program = program_of()
        machine = who.describe_machine(Path("/"), who.allowed_cpus(), tick_hz_of(program))
    except CalibrationError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    session = Session(machine, program, found, max_s, lambda text: click.echo(text, err=True))
    for peer, reason in absent.items():
        session.refuse(peer, reason)
    code = 0
    try:
        for section in [one for name in only or SECTIONS for one in GROUPS.get(name, (name,))]:
            measure(session, section)
    except KeyboardInterrupt:
        code = INTERRUPTED
        click.echo("interrupted: this is what was measured until then", err=True)
    size = f"{machine.total_bytes / 2**20:.0f} MiB over all threads, {machine.one_bytes / 2**20:.0f} MiB for one"
    click.echo(f"{machine.described}; {size}; bandwidths in MB/s on the bus:\n")
    click.echo("\n".join(table(HEAD, rows_of(session))))
    for row in session.rows:
        if row.peer == AGAIN and not _holds_one(row):
            click.echo("\nOurs against itself is not 1: the intervals are too narrow.")
    if session.shown:
        click.echo("\nOther peers, from their first starts:\n")
        click.echo("\n".join(table(("Quantity", "Threads", "Peer", "Which", "Why"), session.shown)))
    for line in session.not_compared:
        click.echo(f"\nNot compared: {line}")
    sys.exit(code)


if __name__ == "__main__":
    peers_command()
