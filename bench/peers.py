# SPDX-License-Identifier: Apache-2.0
"""Compares ``sutprobe`` with the tools it replaces: ``python -m bench.peers`` prints a table in reStructuredText.

A value depends on the state of the machine, a ratio of neighbours much less. A few starts find the best setting of
each side; then all sections take turns of short windows, there and back, and the time that is left goes to wide
intervals. Ours also runs against itself: an interval of that row without 1 says that the intervals are too narrow.
Peers are found on PATH; none is built or installed, and one that is not there is listed as not compared.
"""

import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import click

from bench import contenders as who
from bench.contenders import OURS, Contender, Machine
from bench.outputs import NotComparedError, Output
from bench.ratios import Quadruple, Spread, spread, undisturbed
from bench.tables import table
from calibration.base.errors import INTERRUPTED, CalibrationError
from calibration.build import TARGETS, build

OTHERS: Final = ("latency", "interruptions", "c2c", "wakeup")
CACHES: Final = tuple(f"{level}-{threads}" for threads in ("one", "all") for level in who.LEVELS)
BANDWIDTHS: Final = tuple(f"{quantity}-{threads}" for threads in ("one", "all") for quantity in who.TRAFFIC)
SECTIONS: Final = (*BANDWIDTHS, *CACHES, *OTHERS)  # in the order they run

QUADRUPLES: Final = 12  # fewest undisturbed of a row: the interval is one of order statistics
LOOK: Final = 6  # turns between two looks at the widths: stopping at a lucky one would cover less than 95 %
PRECISION: Final = 0.03  # a section whose intervals are this narrow (±) takes no more turns
SECTION_S: Final = 75.0  # of each section, with its scouting: all sections take half an hour
SCOUTED: Final = 3  # starts of a setting before the alternation, of which the median counts: one may be lucky
FAR: Final = 0.7  # a setting that never reached this share of what another always did is started no more
AS_GOOD: Final = 0.95  # a second setting this close to the best after that takes the first turns too: it may be best
RT_RUNTIME: Final = Path("/proc/sys/kernel/sched_rt_runtime_us")  # -1: a real-time thread keeps its CPU
SETTLE_S: Final = 0.2  # from the start of a load to what is measured beside it
AGAIN: Final = f"{OURS} again"  # ours as its own peer

Turn = Mapping[str, Sequence[Mapping[str, float]]]
"""The two values of each contender in one turn, by its label and by quantity."""


class Row(NamedTuple):
    """A quantity of ours against one peer, from those of all quadruples that are undisturbed."""

    quantity: str
    peer: str
    quadruples: list[Quadruple]
    used: list[Quadruple]
    ratio: Spread

    @property
    def wanted(self) -> float:
        """How many times as many quadruples as it has it should have: not above 1 if its interval is narrow."""
        precision = math.inf if self.ratio.precision is None else self.ratio.precision
        return max(QUADRUPLES / len(self.used), (precision / PRECISION) ** 2)


@dataclass
class Comparison:
    """A section: who takes part, ours first, beside which load, and what the turns gave."""

    section: str
    machine: Machine
    contenders: list[Contender]
    load: Sequence[str] = ()
    turns: list[Turn] = field(default_factory=list)
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.order = random.Random(self.section)  # noqa: S311 - the order of starts, not a secret

    @property
    def rows(self) -> list[Row]:
        """All quantities, each against the other contenders."""
        return [row for quantity in self.contenders[0].values for row in rows_of(quantity, self.contenders, self.turns)]

    @property
    def wanted_s(self) -> float:
        """The seconds that should make all intervals narrow; not above 0 if they are."""
        return self.seconds * max((row.wanted - 1.0 for row in self.rows), default=math.inf)

    def keep_best(self) -> None:
        """Leave the best of settings that scouting found as good."""
        others = [row.peer for row in self.rows if row.peer != AGAIN][1:]
        self.contenders = [one for one in self.contenders if one.label not in others]


@dataclass
class Session:
    """What all sections are given, and who could not be compared."""

    machine: Machine
    program: str
    found: Mapping[str, str]
    not_compared: list[str] = field(default_factory=list)

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
    """Start *settings* and return the best, and a second one if as good. A program without any value is refused."""
    rates: dict[Contender, list[float]] = {}
    refused: dict[str, str] = {}
    left = list(settings)
    for _ in range(SCOUTED):
        for contender in left:
            try:
                rates.setdefault(contender, []).append(values_of(contender)[quantity])
            except NotComparedError as error:
                refused[contender.peer] = f"{contender.label}: {error}"
        always = max((min(found) for found in rates.values() if found), default=0.0)
        left = [contender for contender in left if max(rates[contender], default=0.0) >= FAR * always]
    value = {contender: median(found) for contender, found in rates.items() if found}
    for peer in refused.keys() - {contender.peer for contender in value}:
        session.refuse(peer, refused[peer])
    best = sorted(value.keys() & set(left), key=lambda contender: value[contender], reverse=True)
    for contender in best:
        say(f"  {contender.label}: {value[contender]:.0f}")
    return [contender for contender in best[:2] if value[contender] >= AS_GOOD * value[best[0]]]


@contextmanager
def beside(load: Sequence[str]) -> Iterator[None]:
    """Run *load*, if there is any, while the body runs."""
    if not load:
        yield
        return
    with subprocess.Popen(load, stderr=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            time.sleep(SETTLE_S)
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def alternate(session: Session, comparison: Comparison) -> None:
    """Start the contenders in a random order and again in its reverse. A peer that fails runs no more.

    Raises ``NotComparedError`` if ``sutprobe`` itself fails.
    """
    began = time.monotonic()
    values: dict[str, list[Mapping[str, float]]] = {contender.label: [] for contender in comparison.contenders}
    there = comparison.order.sample(comparison.contenders, len(comparison.contenders))
    with beside(comparison.load):
        for contender in (*there, *reversed(there)):
            if contender not in comparison.contenders:
                continue
            try:
                values[contender.label].append(values_of(contender))
            except NotComparedError as error:
                if contender.peer == OURS:
                    raise
                comparison.contenders.remove(contender)
                turn = f"{comparison.section}, turn {len(comparison.turns) + 1}"
                session.refuse(contender.peer, f"{contender.label}, {turn}: {error}")
    comparison.turns.append(values)
    comparison.seconds += time.monotonic() - began


def rows_of(quantity: str, contenders: Sequence[Contender], turns: Sequence[Turn]) -> list[Row]:
    """Return ours (the first of *contenders*) against each other, the best first, from quadruples without a 0."""
    ours, *peers = contenders
    rows = []
    for peer in peers:
        values = [[one[quantity] for side in (ours, peer) for one in turn.get(side.label, ())] for turn in turns]
        quadruples = [Quadruple(*found) for found in values if len(found) == len(Quadruple._fields) and all(found)]
        if quadruples:
            used = undisturbed(quadruples)
            rows.append(Row(quantity, peer.label, quadruples, used, spread([one.ratio for one in used])))
    better = -1.0 if quantity in who.TRAFFIC else 1.0
    return sorted(rows, key=lambda row: (row.peer == AGAIN, better * median(one.theirs for one in row.used)))


def contenders_of(session: Session, section: str, machine: Machine) -> list[Contender]:
    """Return who takes part in *section*, ours first. Raises ``NotComparedError`` if ours has no setting."""
    if section in OTHERS:
        held = os.access("/dev/cpu_dma_latency", os.W_OK)
        unthrottled = RT_RUNTIME.read_text().strip() == "-1"
        return who.others(machine, session.program, session.found, held=held, unthrottled=unthrottled)[section]
    quantity = "read" if machine.level else section.partition("-")[0]
    searches = [run(command, {}, 300.0) for command in who.our_searches(machine, quantity, session.program)]
    ours = scout(session, quantity, list(who.our_best(machine, quantity, session.program, searches)))
    if not ours:
        raise NotComparedError("no setting of the search could be measured")
    return [ours[0], *scout(session, quantity, list(who.bandwidth_peers(machine, quantity, session.found)))]


def prepare(session: Session, section: str, *, again: bool) -> Comparison | None:
    """Return the comparison of one section, ours against itself too if *again* or without peers; ``None``: none."""
    say(f"{section}:")
    try:
        machine = session.machine.of_section(section)
        contenders = contenders_of(session, section, machine)
    except (NotComparedError, CalibrationError) as error:
        session.refuse(OURS, f"{section}: {error}")
        return None
    if again or len(contenders) == 1:
        contenders.append(replace(contenders[0], label=AGAIN))
    return Comparison(section, machine, contenders, who.load_of(machine, section))


def measure(session: Session, comparisons: Sequence[Comparison], until: float) -> None:
    """Let *comparisons* take turns, the fewest each, then who needs least for narrow intervals, *until* a time."""
    left = list(comparisons)
    while left and time.monotonic() < until:
        few = [one for one in left if len(one.turns) < QUADRUPLES]
        comparison = min(few, key=lambda one: len(one.turns)) if few else min(left, key=lambda one: one.wanted_s)
        try:
            for _ in range(LOOK):
                if time.monotonic() < until:
                    alternate(session, comparison)
        except (NotComparedError, CalibrationError) as error:
            session.refuse(OURS, f"{comparison.section}: {error}")
            left.remove(comparison)
            continue
        if comparison.section not in OTHERS and len(comparison.turns) == LOOK:
            comparison.keep_best()
        say(f"{comparison.section}: {len(comparison.turns)} turns, {comparison.seconds:.0f} s")
        if comparison.wanted_s <= 0.0 or len(comparison.contenders) == 1:
            left.remove(comparison)


HEAD: Final = ("Quantity", "Threads", "Ours", "Peer", "Which", "Ratio", "Quadruples")


def cells(comparison: Comparison, row: Row) -> tuple[str, ...]:
    """Return *row* as texts, the quadruples as those that count of all."""
    low, high = row.ratio.low, row.ratio.high
    interval = ", no interval" if low is None or high is None else f" [{low:.3g}, {high:.3g}]"
    if row.peer == AGAIN and low is not None and high is not None and not low <= 1.0 <= high:
        interval += ", not 1: intervals are too narrow"
    values = (median(one.ours for one in row.used), median(one.theirs for one in row.used))
    return (
        comparison.machine.title(row.quantity),
        "" if comparison.section in OTHERS else str(len(comparison.machine.cpus)),
        *(f"{value:,.0f}" if value >= 1000.0 else f"{value:.4g}" for value in values),
        row.peer,
        f"{row.ratio.value:.3g}{interval}",
        f"{len(row.used)} of {len(row.quadruples)}",
    )


def why_wide(comparison: Comparison, row: Row) -> str:
    """Return how wide the interval of *row* is, after which time, and how far the values of each side differ."""
    width = "no interval" if row.ratio.precision is None else f"±{100 * row.ratio.precision:.1f} %"
    mine, theirs = (
        100 * math.expm1(median(apart)) for apart in zip(*(one.apart for one in row.quadruples), strict=True)
    )
    name = f"{comparison.machine.title(row.quantity)}, {comparison.section}, {row.peer}"
    spreads = f"two values of ours differ by {mine:.1f} %, of the peer's by {theirs:.1f} %"
    return f"{name}: {width} after {comparison.seconds:.0f} s; {spreads}"


@click.command()
@click.option("--max-s", type=click.FloatRange(1.0), help=f"Longest in all; default: {SECTION_S:g} for each section.")
@click.option("--only", type=click.Choice((*SECTIONS, "caches")), multiple=True, help="Only this section; repeatable.")
def peers_command(max_s: float | None, only: tuple[str, ...]) -> None:
    """Compare sutprobe with the tools it replaces, in alternation, on this machine.

    All sections take half an hour. Peers are found on PATH. The comparison ends before --max-s if all intervals are
    within ±3 %; what one section does not need others get.
    """
    began = time.monotonic()
    program = str(build(next(target for target in TARGETS if target == os.uname().machine)).path)
    machine = who.this_machine()
    found = {name: path for name in who.PEERS if (path := shutil.which(name))}
    session = Session(machine, program, found)
    for peer in who.PEERS:
        if peer not in found:
            session.refuse(peer, "not on PATH")
    sections = [one for name in only or SECTIONS for one in (CACHES if name == "caches" else (name,))]
    comparisons: list[Comparison] = []
    code = 0
    try:
        for section in sections:
            comparison = prepare(session, section, again=not comparisons)
            comparisons += [comparison] if comparison else []
        measure(session, comparisons, began + (max_s or SECTION_S * len(sections)))
    except KeyboardInterrupt:
        code = INTERRUPTED
        click.echo("interrupted: this is what was measured until then", err=True)
    sizes = (one.each_bytes * len(one.cpus) >> 20 for one in (machine, machine.of_section("read-one")))
    click.echo("{}; {} MiB over all threads, {} MiB for one; bandwidths in MB/s on the bus:\n".format(machine, *sizes))
    rows = [(comparison, row) for comparison in comparisons for row in comparison.rows]
    click.echo("\n".join(table(HEAD, [cells(*row) for row in rows])))
    for comparison, row in rows:
        if row.ratio.precision is None or row.ratio.precision > PRECISION:
            click.echo(f"\nNot within ±{100 * PRECISION:g} %: {why_wide(comparison, row)}")
    for line in session.not_compared:
        click.echo(f"\nNot compared: {line}")
    sys.exit(code)


if __name__ == "__main__":
    peers_command()
