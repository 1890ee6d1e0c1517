# SPDX-License-Identifier: Apache-2.0
"""Compares ``sutprobe`` with the tools it replaces: ``python -m bench.peers`` prints a table in reStructuredText.

A value depends on the state of the machine, a ratio of neighbours much less. A few starts find the best setting of
each side; then short windows of both alternate in random order until the interval of the ratio is narrow. Ours also
runs against itself: an interval of that row without 1 says that the intervals are too narrow. Peers are found on PATH;
none is built or installed, and one that is not there is listed as not compared.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Final, NamedTuple

import click

from bench import contenders as who
from bench.contenders import OURS, Contender, Machine
from bench.outputs import NotComparedError, Output
from bench.ratios import Spread, spread
from bench.tables import table
from calibration.base.errors import INTERRUPTED, CalibrationError
from calibration.build import TARGETS, build

OTHERS: Final = ("latency", "interruptions", "c2c", "wakeup")
CACHES: Final = tuple(f"{level}-{threads}" for threads in ("one", "all") for level in who.LEVELS)
BANDWIDTHS: Final = tuple(f"{quantity}-{threads}" for threads in ("one", "all") for quantity in who.TRAFFIC)
SECTIONS: Final = (*BANDWIDTHS, *CACHES, *OTHERS)  # in the order they run

PAIRS: Final = 100  # fewest alternations: the blocks of the interval need several each
LOOK: Final = 50  # alternations between two looks at the widths: stopping at a lucky one would cover less than 95 %
PRECISION: Final = 0.03  # intervals this narrow (±) end the alternation
MAX_S: Final = 150.0  # of a section: with its scouting, the whole table takes an hour and a quarter
SCOUTED: Final = 3  # starts of every setting before the alternation, of which the median counts: one may be lucky
AS_GOOD: Final = 0.95  # a second setting this close to the best after that alternates too: it may be the best
AGAIN: Final = f"{OURS} again"  # ours as its own peer

Block = Mapping[str, Mapping[str, float]]
"""The values of one alternation, by label of the contender and by quantity."""


class Row(NamedTuple):
    """A quantity of ours against one peer, from the pairs of an alternation."""

    ours: Spread
    theirs: Spread
    peer: str
    ratio: Spread
    pairs: int


@dataclass
class Session:
    """One comparison: what it is given, and what it has so far."""

    machine: Machine
    program: str
    found: Mapping[str, str]
    max_s: float = MAX_S
    not_compared: list[str] = field(default_factory=list)
    rows: list[tuple[str, ...]] = field(default_factory=list)

    def refuse(self, peer: str, reason: str) -> None:
        """List *peer* as not compared."""
        self.not_compared.append(f"{peer}: {reason}")
        say(f"  not compared: {peer}: {reason}")


def say(text: str) -> None:
    """Tell how far the comparison is."""
    click.echo(text, err=True)


def run(command: Sequence[str], environment: Mapping[str, str], timeout_s: float = 60.0) -> Output:
    """Run *command* and return what it printed; it ends with the call, and all it started if it does not end itself.

    Raises ``NotComparedError`` if it does not start, does not end in *timeout_s*, or fails.
    """
    try:
        with subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process:
            try:
                stdout, stderr = process.communicate(timeout=timeout_s)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
    except OSError as error:
        raise NotComparedError(f"does not start: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise NotComparedError(f"did not end within {timeout_s:g} s") from error
    if process.returncode != 0:
        lines = stderr.strip().splitlines() or stdout.strip().splitlines() or ["nothing"]
        raise NotComparedError(f"exit code {process.returncode}: {lines[-1][:160]}")
    return Output(stdout, stderr)


def values_of(contender: Contender) -> dict[str, float]:
    """Run a contender once and return its values. Raises ``NotComparedError`` if it has none."""
    output = run(contender.command, contender.environment)
    try:
        return {name: read(output) for name, read in contender.values.items()}
    except CalibrationError as error:
        raise NotComparedError(str(error)) from error


def scout(session: Session, quantity: str, settings: Sequence[Contender]) -> list[Contender]:
    """Start all *settings* and return the best, and a second one if as good. A program without any value is refused."""
    rates: dict[Contender, list[float]] = {}
    refused: dict[str, str] = {}
    for contender in [*settings] * SCOUTED:
        try:
            rates.setdefault(contender, []).append(values_of(contender)[quantity])
        except NotComparedError as error:
            refused[contender.peer] = f"{contender.label}: {error}"
    value = {contender: median(found) for contender, found in rates.items() if found}
    for peer in refused.keys() - {contender.peer for contender in value}:
        session.refuse(peer, refused[peer])
    best = sorted(value, key=lambda contender: value[contender], reverse=True)
    for contender in best:
        say(f"  {contender.label}: {value[contender]:.0f}")
    return [contender for contender in best[:2] if value[contender] >= AS_GOOD * value[best[0]]]


def alternate(session: Session, section: str, contenders: Sequence[Contender], blocks: list[Block]) -> None:
    """Start every contender once per alternation in random order, and add the values of each alternation to *blocks*.

    A peer that fails runs no more. Raises ``NotComparedError`` if ``sutprobe`` itself fails.
    """
    shuffled = random.Random(section)  # noqa: S311 - the order of starts, not a secret
    remaining = list(contenders)
    began = time.monotonic()
    while not _enough(contenders, blocks, late=time.monotonic() - began >= session.max_s):
        values: dict[str, Mapping[str, float]] = {}
        for contender in shuffled.sample(remaining, len(remaining)):
            try:
                values[contender.label] = values_of(contender)
            except NotComparedError as error:
                if contender.peer == OURS:
                    raise
                remaining.remove(contender)
                session.refuse(contender.peer, f"{contender.label}, alternation {len(blocks) + 1}: {error}")
        blocks.append(values)
    say(f"  {len(blocks)} alternations: {time.monotonic() - began:.0f} s")


def _enough(contenders: Sequence[Contender], blocks: Sequence[Block], *, late: bool) -> bool:
    """Tell whether the ratios of *blocks* are narrow, or it is too *late*."""
    if late and blocks:
        return True
    if len(blocks) < PAIRS or len(blocks) % LOOK:
        return False
    ratios = [row.ratio for row in rows_of(next(iter(contenders[0].values)), contenders, blocks)]
    return all(ratio.precision is not None and ratio.precision <= PRECISION for ratio in ratios)


def rows_of(quantity: str, contenders: Sequence[Contender], blocks: Sequence[Block]) -> list[Row]:
    """Return ours (the first of *contenders*) against each other, the best first, in pairs of which neither is 0."""
    ours, *peers = contenders
    rows = []
    for peer in peers:
        both = [block for block in blocks if all(block.get(one.label, {}).get(quantity) for one in (ours, peer))]
        if both:
            mine, theirs = ([block[one.label][quantity] for block in both] for one in (ours, peer))
            ratio = spread([one / other for one, other in zip(mine, theirs, strict=True)])
            rows.append(Row(spread(mine), spread(theirs), peer.label, ratio, len(both)))
    better = -1.0 if quantity in who.TRAFFIC else 1.0
    return sorted(rows, key=lambda row: (row.peer == AGAIN, better * row.theirs.value))


def contenders_of(session: Session, section: str, machine: Machine) -> list[Contender]:
    """Return who takes part in *section*, ours first. Raises ``NotComparedError`` if ours has no setting."""
    if section in OTHERS:
        held = os.access("/dev/cpu_dma_latency", os.W_OK)
        return who.others(machine, session.program, session.found, held=held)[section]
    quantity = "read" if machine.level else section.partition("-")[0]
    searches = [run(command, {}, 300.0) for command in who.our_searches(machine, quantity, session.program)]
    ours = scout(session, quantity, list(who.our_best(machine, quantity, session.program, searches)))
    if not ours:
        raise NotComparedError("no setting of the search could be measured")
    return [ours[0], *scout(session, quantity, list(who.bandwidth_peers(machine, quantity, session.found)))]


def measure(session: Session, section: str) -> None:
    """Measure one section; what it has is kept also if it is interrupted."""
    say(f"{section}:")
    blocks: list[Block] = []
    contenders: list[Contender] = []
    began = time.monotonic()
    machine = session.machine
    try:
        machine = machine.of_section(section)
        contenders = contenders_of(session, section, machine)
        if not session.rows or len(contenders) == 1:
            contenders.append(replace(contenders[0], label=AGAIN))
        began = time.monotonic()
        alternate(session, section, contenders, blocks)
    except (NotComparedError, CalibrationError) as error:
        session.refuse(OURS, f"{section}: {error}")
    finally:
        seconds, threads = time.monotonic() - began, "" if section in OTHERS else str(len(machine.cpus))
        for quantity in contenders[0].values if contenders else ():
            rows = rows_of(quantity, contenders, blocks)
            session.rows += [(machine.title(quantity), threads, *cells(row, seconds)) for row in rows]


HEAD: Final = ("Quantity", "Threads", "Ours", "Peer", "Which", "Ratio", "Pairs")


def cells(row: Row, seconds: float) -> tuple[str, ...]:
    """Return *row* as texts: the ratio with its interval, and how wide that is if it is not narrow after *seconds*."""
    low, high, precision = row.ratio.low, row.ratio.high, row.ratio.precision
    if low is None or high is None or precision is None:
        ratio = f"{row.ratio.value:.3g}, no interval"
    else:
        ratio = f"{row.ratio.value:.3g} [{low:.3g}, {high:.3g}]"
        if precision > PRECISION:
            ratio += f" ±{100 * precision:.1f} % after {seconds:.0f} s"
        if row.peer == AGAIN and not low <= 1.0 <= high:
            ratio += ", not 1: intervals are too narrow"
    values = (f"{one.value:,.0f}" if one.value >= 1000.0 else f"{one.value:.4g}" for one in (row.ours, row.theirs))
    return *values, row.peer, ratio, str(row.pairs)


@click.command()
@click.option("--max-s", type=click.FloatRange(1.0), default=MAX_S, show_default=True, help="Longest of a section.")
@click.option("--only", type=click.Choice((*SECTIONS, "caches")), multiple=True, help="Only this section; repeatable.")
def peers_command(max_s: float, only: tuple[str, ...]) -> None:
    """Compare sutprobe with the tools it replaces, in alternation, on this machine.

    All sections take about an hour and a quarter; --only read-one takes a few minutes. Peers are found on PATH. A
    section ends before --max-s if all its intervals are within ±3 %.
    """
    program = str(build(next(target for target in TARGETS if target == os.uname().machine)).path)
    machine = who.this_machine()
    found = {name: path for name in who.PEERS if (path := shutil.which(name))}
    session = Session(machine, program, found, max_s)
    for peer in who.PEERS:
        if peer not in found:
            session.refuse(peer, "not on PATH")
    code = 0
    try:
        for section in [one for name in only or SECTIONS for one in (CACHES if name == "caches" else (name,))]:
            measure(session, section)
    except KeyboardInterrupt:
        code = INTERRUPTED
        click.echo("interrupted: this is what was measured until then", err=True)
    sizes = (one.each_bytes * len(one.cpus) >> 20 for one in (machine, machine.of_section("read-one")))
    click.echo("{}; {} MiB over all threads, {} MiB for one; bandwidths in MB/s on the bus:\n".format(machine, *sizes))
    click.echo("\n".join([*table(HEAD, session.rows), *(f"\nNot compared: {line}" for line in session.not_compared)]))
    sys.exit(code)


if __name__ == "__main__":
    peers_command()
