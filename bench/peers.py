# SPDX-License-Identifier: Apache-2.0
"""Compares ``sutprobe`` with the tools it replaces: all in alternation, in one run, on this machine.

A figure depends on the state of the machine, a ratio taken within one alternation much less. Each alternation starts
every contender once, in an order that rotates; the ratios of all alternations give a median and its interval. Peers are
found on PATH or pointed at; none is built or installed, and one that is not there is listed as not compared.

Exit codes are those of every command: 0 done, also where a target is missed; 2 bad usage; 3 the environment cannot do
it; 4 interrupted, with what was measured until then.
"""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # started as a file, Python looks beside it only

from bench import contenders as who
from bench.contenders import Contender, Machine, Output, Start
from bench.outputs import NotComparedError
from bench.ratios import Spread, compare, hit_share, predicted_latency
from calibration import __version__
from calibration.build import TARGETS, Target, build
from calibration.errors import INTERRUPTED, CalibrationError, EnvironmentLacksError, InputError

SCHEMA = "peers/1"

RATIOS = ("read", "write_nt", "copy_bus", "triad", "latency", "latency_time", "gap_step_ns")
"""Quantities of ``ratios`` in the document; the others are under ``also``."""

LAW_COLUMNS = ("one node per line", "four", "predicted for four")

BANDWIDTHS = ("read", "write_nt", "copy_bus", "triad")

SECTIONS: Mapping[str, tuple[str, ...]] = {
    "gap_step_ns": ("gap_step_ns", "gap_coverage", "interruptions_per_s"),
    "latency": ("latency", "latency_half_width"),
    **{name: (name,) for name in BANDWIDTHS},
    "l1_cycles": ("l1_cycles",),
    "c2c": ("c2c",),
    "cache_hit_law": (),
    "latency_time": ("latency_time",),
    "latency_base_pages": ("latency_base_pages",),
}
"""What ``--only`` takes, in the order it runs, and the quantities that come of each."""

SCOUT_KEEP = 0.9
"""A setting this close to the best one in the scouting start stays in: one start cannot tell them apart."""

SCOUT_MOST = 6
"""Contenders of a bandwidth comparison at most, so that an alternation stays short."""

ALTERNATIONS = 7
"""Six are the fewest whose extremes cover the median 95 % of the time; one more leaves room for a lost one."""


HOLD_S = 60.0
"""Seconds after which lock files are let go, at the next end of an alternation."""


class Locks:
    """Lock files held while something is timed: others who hold them too keep off meanwhile.

    They are held over several alternations, as getting them may take longer than an alternation, but not over
    ``HOLD_S``: others must get their turn.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = tuple(paths)
        self._stack: ExitStack | None = None
        self._since = 0.0

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold all files, in their order, and let go afterwards where they have been held for long."""
        if self._stack is None:
            with ExitStack() as stack:
                for path in self.paths:
                    fcntl.flock(stack.enter_context(path.open("a")), fcntl.LOCK_EX)
                self._stack = stack.pop_all()
            self._since = time.monotonic()
        try:
            yield
        finally:
            if time.monotonic() - self._since > HOLD_S:
                self.release()

    def release(self) -> None:
        """Let go of all files."""
        if self._stack is not None:
            self._stack.close()
            self._stack = None


@dataclass
class Measured:
    """Samples of one section: per quantity and contender, one per alternation."""

    samples: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    peer_of: dict[str, str] = field(default_factory=dict)


@dataclass
class Session:
    """One run of the comparison: what it is given, and what it has so far."""

    machine: Machine
    program: str
    found: dict[str, str]
    alternations: int
    locks: Locks
    say: Callable[[str], None]
    not_compared: list[dict[str, str | None]] = field(default_factory=list)
    entries: dict[str, dict[str, Any]] = field(default_factory=dict)
    law: list[dict[str, float]] = field(default_factory=list)

    def refuse(self, peer: str, quantity: str | None, reason: str) -> None:
        """List *peer* as not compared, once for each reason."""
        entry = {"peer": peer, "quantity": quantity, "reason": reason}
        if entry not in self.not_compared:
            self.not_compared.append(entry)
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

    Raises ``NotComparedError`` where one does not start, does not end in *timeout_s*, or fails. None outlives the call.
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
            said = output.stderr.strip().splitlines() or output.stdout.strip().splitlines() or ["nothing"]
            raise NotComparedError(f"ended with {process.returncode} and said: {said[-1][:160]}")
    return done


def figures_of(contender: Contender) -> dict[str, float]:
    """Run a contender once and return its figures. Raises ``NotComparedError`` where it has none."""
    done = run_starts(contender.starts, contender.environment, contender.timeout_s)
    try:
        return {name: sum(figure(output) for output in done) for name, figure in contender.figures.items()}
    except CalibrationError as error:
        raise NotComparedError(str(error)) from error


def scout(session: Session, quantity: str, peers: Sequence[Contender]) -> list[Contender]:
    """Start every setting of every peer once; keep the best of each peer, and those close to the best of all."""
    rates: list[tuple[float, Contender]] = []
    refused: dict[str, str] = {}
    for contender in peers:
        try:
            with session.locks.held():
                rate = figures_of(contender)[quantity]
        except NotComparedError as error:
            refused[contender.peer] = f"{contender.label}: {error}"
            continue
        session.say(f"  {contender.label}: {rate:.0f}")
        rates.append((rate, contender))
    rates.sort(key=lambda each: each[0], reverse=True)
    kept: list[Contender] = []
    for place, (rate, contender) in enumerate(rates):
        best_of_peer = contender.peer not in {each.peer for each in kept}
        if best_of_peer or (rate >= SCOUT_KEEP * rates[0][0] and place < SCOUT_MOST):
            kept.append(contender)
    for peer, reason in refused.items():
        if peer not in {contender.peer for contender in kept}:
            session.refuse(peer, quantity, reason)
    return kept


def alternate(session: Session, section: str, contenders: Sequence[Contender], measured: Measured) -> None:
    """Start every contender once per alternation. A peer that fails in one is dropped, and listed with its reason.

    Raises ``NotComparedError`` where ``sutprobe`` itself fails. *measured* is filled as it goes.
    """
    remaining = list(contenders)
    for number in range(session.alternations):
        began = time.monotonic()
        turn = number % len(remaining)
        order = remaining[turn:] + remaining[:turn]
        this: list[tuple[Contender, dict[str, float]]] = []
        with session.locks.held():
            for contender in order:
                try:
                    this.append((contender, figures_of(contender)))
                except NotComparedError as error:
                    if contender.peer == who.OURS:
                        raise
                    remaining.remove(contender)
                    for samples in measured.samples.values():
                        samples.pop(contender.label, None)
                    session.refuse(contender.peer, section, f"{contender.label}, alternation {number + 1}: {error}")
        for contender, figures in this:
            for quantity, figure in figures.items():
                measured.samples.setdefault(quantity, {}).setdefault(contender.label, []).append(figure)
        session.say(f"  alternation {number + 1} of {session.alternations}: {time.monotonic() - began:.0f} s")


def _as_json(made: Spread) -> dict[str, float | list[float] | int]:
    return {
        "value": made.value,
        "spread": [made.low, made.high],
        "coverage": made.coverage,
        "alternations": made.count,
    }


def entry_of(quantity: str, measured: Measured) -> dict[str, Any]:
    """Return one quantity of the document: ours, the best peer, the median ratio with its spread, and the target."""
    target = who.TARGETS[quantity]
    by_label = measured.samples[quantity]
    our_label = next(label for label in by_label if measured.peer_of[label] == who.OURS)
    theirs = {label: samples for label, samples in by_label.items() if label != our_label}
    made = compare(by_label[our_label], theirs, higher_is_better=quantity in who.HIGHER_IS_BETTER)
    best = made.ratios[made.best_peer] if made.best_peer else None
    return {
        "ours": made.ours.value,
        "best_peer": made.peers[made.best_peer].value if made.best_peer else None,
        "peer": made.best_peer,
        "median_ratio": best.value if best else None,
        "spread": [best.low, best.high] if best else None,
        "coverage": best.coverage if best else None,
        "unit": who.UNITS[quantity],
        "alternations": made.ours.count,
        "ours_setting": our_label,
        "ours_spread": [made.ours.low, made.ours.high],
        "target": target.text(),
        "met": target.met(made.ours.value, best.value if best else None) if target.text() else None,
        "peers": {
            label: {"tool": measured.peer_of[label], "figure": _as_json(made.peers[label]), "ratio": _as_json(ratio)}
            for label, ratio in made.ratios.items()
        },
    }


def missing_entry(quantity: str, reason: str) -> dict[str, Any]:
    """Return the entry of a quantity without a figure."""
    keys = ("ours", "best_peer", "peer", "median_ratio", "spread")
    unit, target = who.UNITS[quantity], who.TARGETS[quantity].text()
    return {**dict.fromkeys(keys), "unit": unit, "target": target, "met": None, "reason": reason}


def _contenders(session: Session, section: str) -> list[Contender]:
    """Return who takes part in *section*, ours first. Raises ``NotComparedError`` where ours has no setting."""
    machine, program, found = session.machine, session.program, session.found
    if section in BANDWIDTHS:
        with session.locks.held():
            searched = run_starts([who.our_bandwidth_search(machine, section, program)], {}, 120.0)[0]
        ours = who.our_best_setting(machine, section, program, searched)
        session.say(f"  {ours.label}")
        return [ours, *scout(session, section, who.bandwidth_peers(machine, section, found))]
    if section == "l1_cycles":
        return who.first_level_contenders(machine, program)
    if section == "c2c" and len(machine.cpus) < 2:
        raise NotComparedError("expected two CPUs, found one")
    makers = {
        "latency": who.latency_contenders,
        "latency_base_pages": who.base_page_contenders,
        "latency_time": who.latency_time_contenders,
        "gap_step_ns": who.gap_contenders,
        "c2c": who.transfer_contenders,
        "cache_hit_law": who.law_contenders,
    }
    return makers[section](machine, program, found)


def law_rows(samples: Mapping[str, Mapping[str, Sequence[float]]], cache_bytes: int) -> list[dict[str, float]]:
    """Return, per buffer size, both latencies and what the cache-hit law makes of ours and the cache's own latency."""
    medians = {quantity: median(next(iter(by_label.values()))) for quantity, by_label in samples.items() if by_label}
    rows = []
    for multiple in who.LAW_MULTIPLES:
        needed = ("theirs 0.5", f"ours {multiple:g}", f"theirs {multiple:g}")
        if not all(name in medians for name in needed):
            continue
        hit_ns, ours_ns, theirs_ns = (medians[name] for name in needed)
        hits = hit_share(cache_bytes, cache_bytes * multiple, 4)
        predicted = predicted_latency(hit_ns, ours_ns, hits)
        row = {
            "buffer_bytes": cache_bytes * multiple,
            "hit_share": hits,
            "hit_ns": hit_ns,
            "one_node_per_line_ns": ours_ns,
            "four_nodes_per_line_ns": theirs_ns,
            "predicted_ns": predicted,
        }
        rows.append(row)
    return rows


def measure(session: Session, section: str) -> None:
    """Measure one section; what it has is kept also where it is interrupted."""
    session.say(f"{section}:")
    measured = Measured()
    reason, failed = "interrupted before its first alternation", False
    try:
        contenders = _contenders(session, section)
        if not contenders:
            session.refuse("sc-membench", section, "it, or the size of the second-level cache, is not known here")
            return
        measured.peer_of.update({contender.label: contender.peer for contender in contenders})
        alternate(session, section, contenders, measured)
    except NotComparedError as error:
        reason, failed = str(error), True
        session.say(f"  {reason}")
    finally:
        session.locks.release()
        if section == "cache_hit_law" and session.machine.second_level_bytes:
            session.law = law_rows(measured.samples, session.machine.second_level_bytes)
        for quantity in SECTIONS[section]:
            ours = [label for label in measured.samples.get(quantity, {}) if measured.peer_of[label] == who.OURS]
            session.entries[quantity] = entry_of(quantity, measured) if ours else missing_entry(quantity, reason)
            if failed:
                session.entries[quantity]["reason"] = reason


def document_of(session: Session, chosen: Sequence[str], stopped: str | None) -> dict[str, Any]:
    """Return the document: what was measured, and for the rest why not."""

    def entry(quantity: str) -> dict[str, Any]:
        section = next(name for name, quantities in SECTIONS.items() if quantity in quantities)
        reason = "interrupted before it" if section in chosen else "not asked for"
        return session.entries.get(quantity) or missing_entry(quantity, reason)

    quantities = [quantity for names in SECTIONS.values() for quantity in names]
    return {
        "schema": SCHEMA,
        "version": __version__,
        "started_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "stopped": stopped,
        "alternations": session.alternations,
        "machine": dict(session.machine.described),
        "ratios": {quantity: entry(quantity) for quantity in RATIOS},
        "also": {quantity: entry(quantity) for quantity in quantities if quantity not in RATIOS},
        "cache_hit_law": session.law,
        "not_compared": session.not_compared,
    }


def table_of(document: Mapping[str, Any]) -> str:
    """Return the document as lines for a person: one per quantity, then what was missed and what was not compared."""
    lines = [f"{'quantity':22}{'ours':>12}{'best peer':>12}  {'ratio':22}{'peer':34}target"]
    missed = []
    for quantity, entry in {**document["ratios"], **document["also"]}.items():
        if entry["ours"] is None:
            lines.append(f"{quantity:22}{'-':>12}{'-':>12}  {entry['reason']}")
            continue
        ratio = (
            f"{entry['median_ratio']:.3f} [{entry['spread'][0]:.3f}, {entry['spread'][1]:.3f}]"
            if entry["peer"]
            else "-"
        )
        theirs = f"{entry['best_peer']:.5g}" if entry["peer"] else "-"
        verdict = {True: " met", False: " MISSED", None: ""}[entry["met"]]
        name = f"{quantity}, {entry['unit']}" if entry["unit"] != "1" else quantity
        peer = entry["peer"] or "-"
        lines.append(f"{name:22}{entry['ours']:>12.5g}{theirs:>12}  {ratio:22}{peer:34}{entry['target']}{verdict}")
        if entry["met"] is False:
            missed.append(quantity)
    for row in document["cache_hit_law"]:
        latencies = [row[name] for name in ("one_node_per_line_ns", "four_nodes_per_line_ns", "predicted_ns")]
        named = ", ".join(f"{what} {ns:.1f} ns" for what, ns in zip(LAW_COLUMNS, latencies, strict=True))
        lines.append(f"cache-hit law, {row['buffer_bytes'] / 1024:.0f} KiB: {named}")
    lines += [f"target missed: {quantity}" for quantity in missed]
    for entry in document["not_compared"]:
        where = f" ({entry['quantity']})" if entry["quantity"] else ""
        lines.append(f"not compared: {entry['peer']}{where}: {entry['reason']}")
    return "\n".join(lines)


def find_peers(pointed: Mapping[str, str], path: str | None = None) -> tuple[dict[str, str], dict[str, str]]:
    """Return peers by name with the path of each, and for those that are not there the reason.

    Raises ``InputError`` for a name that is no peer, or a path that is no program.
    """
    for name, given in pointed.items():
        if name not in who.PEERS:
            raise InputError(f"expected a peer's name before '=', one of {', '.join(who.PEERS)}; found {name!r}")
        if not (Path(given).is_file() and os.access(given, os.X_OK)):
            raise InputError(f"expected a program for --peer {name}, found nothing executable at {given!r}")
    found: dict[str, str] = {}
    absent: dict[str, str] = {}
    for name, programs in who.PEERS.items():
        known = pointed.get(name) or next(filter(None, (shutil.which(each, path=path) for each in programs)), None)
        if known:
            found[name] = str(Path(known).resolve())
        else:
            absent[name] = f"{' or '.join(programs)} is not on PATH and was not pointed at with --peer {name}=PATH"
    return found, absent


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write the document whole or not at all. Raises ``InputError`` where it cannot be written."""
    text = json.dumps(document, indent=1, allow_nan=False) + "\n"
    beside = path.with_name(f".{path.name}.new")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise InputError(f"expected to write {path}, found: {error}") from error


def _probe(program: str) -> float:
    """Return the ticks per second of this machine's clock, as ``sutprobe info`` calibrates it."""
    output = run_starts([Start((program, "info"))], {}, 30.0)[0]
    clock = who.document_of(output).clock
    if clock is None:
        raise EnvironmentLacksError("expected sutprobe info to describe the clock, found none")
    return clock.hz


def _split(pairs: Sequence[str]) -> dict[str, str]:
    pointed = {}
    for pair in pairs:
        name, separator, path = pair.partition("=")
        if not separator or not path:
            raise InputError(f"expected --peer NAME=PATH, found {pair!r}")
        if name in pointed:
            raise InputError(f"expected --peer {name} once, found it twice")
        pointed[name] = path
    return pointed


def _sections(only: str | None) -> tuple[str, ...]:
    if only is None:
        return tuple(SECTIONS)
    names = only.split(",")
    for name in names:
        if name not in SECTIONS:
            raise InputError(f"expected --only with names of {', '.join(SECTIONS)}; found {name!r}")
    return tuple(section for section in SECTIONS if section in names)


def _target() -> Target:
    """Return the target of this machine. Raises ``EnvironmentLacksError`` where there is none."""
    machine = os.uname().machine
    for target in TARGETS:
        if target == machine:
            return target
    raise EnvironmentLacksError(f"expected one of {', '.join(TARGETS)}, found {machine}")


def _as_interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _run(session: Session, chosen: Sequence[str], json_file: Path | None) -> int:
    """Measure all *chosen* sections, writing the document after each. Returns the exit code."""
    stopped: str | None = None
    try:
        for section in chosen:
            measure(session, section)
            if json_file is not None:
                write_json(json_file, document_of(session, chosen, "running"))
    except KeyboardInterrupt:
        stopped = "interrupted"
    document = document_of(session, chosen, stopped)
    if json_file is not None:
        write_json(json_file, document)
    click.echo(table_of(document))
    if stopped:
        click.echo("interrupted: this is what was measured until then", err=True)
    return INTERRUPTED if stopped else 0


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), help="Write the document here.")
@click.option(
    "--alternations",
    type=click.IntRange(1, 1000),
    default=ALTERNATIONS,
    show_default=True,
    help="Times that every contender runs; fewer than 6 cannot give a 95 % interval.",
)
@click.option("--only", help=f"Comma list of {', '.join(SECTIONS)}.")
@click.option("--peer", "peers", multiple=True, metavar="NAME=PATH", help=f"Where a peer is: {', '.join(who.PEERS)}.")
@click.option(
    "--lock",
    "locks",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to hold an exclusive lock on during each alternation.",
)
def peers_command(
    json_file: Path | None, alternations: int, only: str | None, peers: tuple[str, ...], locks: tuple[Path, ...]
) -> None:
    """Compare sutprobe with the tools it replaces, in alternation, on this machine.

    All sections take about half an hour; --only read,latency takes a few minutes. CALIBRATION_PEERS may name
    directories, separated by ':', to search before PATH.
    """
    try:
        chosen = _sections(only)
        if json_file is not None and not json_file.absolute().parent.is_dir():
            raise InputError(f"expected --json in a directory that is there, found {json_file}")
        path = os.pathsep.join(filter(None, (os.environ.get("CALIBRATION_PEERS"), os.environ.get("PATH"))))
        found, absent = find_peers(_split(peers), path)
        program = str(build(_target()).path)
        machine = who.describe_machine(Path("/"), who.allowed_cpus(), _probe(program))
        session = Session(machine, program, found, alternations, Locks(locks), lambda text: click.echo(text, err=True))
        for peer, reason in absent.items():
            session.refuse(peer, None, reason)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _as_interrupt)  # SIGINT too: a shell starts background jobs with it ignored
        sys.exit(_run(session, chosen, json_file))
    except NotComparedError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(EnvironmentLacksError.exit_code)
    except CalibrationError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        click.echo("interrupted before anything was measured", err=True)
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    peers_command()
