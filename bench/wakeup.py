# SPDX-License-Identifier: Apache-2.0
"""Compares ``sutprobe wakeup`` with cyclictest and rtla timerlat: ``python -m bench.wakeup`` prints a table.

Each alternation runs every tool once on the same CPU, with the same period, priority and number of deadlines, in an
order that rotates. Tools are found on PATH; one that is not there or does not run is listed as not compared.
"""

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import click

from bench.contenders import Start, allowed_cpus
from bench.outputs import NotComparedError
from bench.peers import program_of, run_starts
from bench.ratios import FEWEST, Spread, spread
from bench.tables import table
from calibration.errors import CalibrationError
from calibration.measurements.wakeup import WakeupResult
from calibration.percentiles import percentile
from calibration.runner.intervals import median_ranks
from calibration.sutprobe.document import read_document, read_result

PRIORITY: Final = 80
"""What the manuals of both peers suggest."""

LONGEST_US: Final = 10_000
"""Buckets of the peers' histograms; what is later they count as overflow."""

THRESHOLDS_US: Final = (10, 20, 50, 100, 200, 500, 1000)
"""Those of ``sutprobe``, as far as the histograms of the peers reach."""

DMA_LATENCY: Final = Path("/dev/cpu_dma_latency")
"""cyclictest keeps CPUs out of idle states by it, and timerlat with an option: then so does ``sutprobe``."""

GRACE_S: Final = 60.0

ON_SUT: Final = "./sutprobe-bench"
"""Where sutprobe is put on a SUT."""

OURS: Final = "sutprobe"


class Seen(NamedTuple):
    """One run: wake-ups, the earliest and the median in µs, and how many were at least as late as each threshold in µs.

    The histograms of the peers have whole µs, rounded down: half a µs is added to what is read from them.
    """

    wakes: int
    min_us: float
    median_us: float
    above: dict[int, int]


class Tool(NamedTuple):
    """A command, and how its output is read."""

    command: tuple[str, ...]
    read: Callable[[str], Seen]


def read_ours(text: str) -> Seen:
    """Return what ``sutprobe wakeup`` saw on its one CPU."""
    result = read_result(read_document(json.loads(text)), WakeupResult)
    (cpu,) = result.conditions[0].cpus
    if cpu.min_ns is None:
        raise NotComparedError("no wake-up")
    counts = {threshold_ns // 1000: count for threshold_ns, count in zip(result.thresholds_ns, cpu.above, strict=True)}
    middle = percentile(cpu.late_ns, 50.0)
    if middle is None:
        raise NotComparedError(f"{cpu.wakes} wake-ups have no median")
    above = {threshold_us: counts[threshold_us] for threshold_us in THRESHOLDS_US}
    return Seen(cpu.wakes, cpu.min_ns / 1e3, middle.value / 1e3, above)


def _seen(buckets: Mapping[int, int], over: int) -> Seen:
    """Return what a histogram of whole µs, rounded down, says, and *over* beyond its end."""
    if not any(buckets.values()):
        raise NotComparedError("no wake-up in its histogram")
    above = {
        threshold_us: over + sum(count for us, count in buckets.items() if us >= threshold_us)
        for threshold_us in THRESHOLDS_US
    }
    wakes = over + sum(buckets.values())
    reached = zip(sorted(buckets), accumulate(buckets[us] for us in sorted(buckets)), strict=True)
    middle = next((us for us, count in reached if 2 * count >= wakes), LONGEST_US)
    return Seen(wakes, min(us for us, count in buckets.items() if count) + 0.5, middle + 0.5, above)


def read_cyclictest(text: str) -> Seen:
    """Return what ``cyclictest -h`` saw with one thread."""
    over = re.search(r"^# Histogram Overflows: (\d+)$", text, re.MULTILINE)
    if over is None:
        raise NotComparedError("cyclictest printed no histogram")
    return _seen({int(us): int(count) for us, count in re.findall(r"^(\d+) (\d+)$", text, re.MULTILINE)}, int(over[1]))


def read_timerlat(text: str) -> Seen:
    """Return what ``rtla timerlat hist`` saw on one CPU: its last column, which is the latest in a wake-up."""
    over = re.search(r"^over:(?: +\d+)* +(\d+) *$", text, re.MULTILINE)
    rows = re.findall(r"^(\d+)(?: +\d+)* +(\d+) *$", text, re.MULTILINE)
    if over is None or not re.search(r"^Index .*(?:Thr|Usr)-\d+ *$", text, re.MULTILINE):
        raise NotComparedError("rtla printed no histogram of threads")
    return _seen({int(us): int(count) for us, count in rows}, int(over[1]))


def tools(
    program: str, cpu: int, period_us: int, seconds: int, found: Callable[[str], str | None], *, held: bool
) -> dict[str, Tool]:
    """Return the tools that are there, ours first; *held*: CPUs can be kept out of idle states."""
    ours = [program, "wakeup", "--cpus", str(cpu), "--period-us", str(period_us), "--seconds", str(seconds)]
    ours += ["--fifo", str(PRIORITY)]
    if held:
        ours += ["--idle-latency-us", "0"]
    tools = {OURS: Tool(tuple(ours), read_ours)}
    if (cyclictest := found("cyclictest")) is not None:
        words = f"-m -p{PRIORITY} -i {period_us} -l {seconds * 1_000_000 // period_us} -h {LONGEST_US} -q -a {cpu} -t 1"
        tools["cyclictest"] = Tool((cyclictest, *words.split()), read_cyclictest)
    if (rtla := found("rtla")) is not None:
        words = f"timerlat hist -c {cpu} -P f:{PRIORITY} -p {period_us} -d {seconds}s -E {LONGEST_US} --dma-latency 0"
        tools["rtla timerlat"] = Tool((rtla, *words.split()), read_timerlat)
    return tools


def alternate(
    tools: Mapping[str, Tool], alternations: int, seconds: int, say: Callable[[str], None]
) -> dict[str, list[Seen]]:
    """Return the runs of each tool by alternation; a tool that fails is left out from then on."""
    runs: dict[str, list[Seen]] = {name: [] for name in tools}
    for number in range(alternations):
        names = list(runs)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            try:
                (output,) = run_starts([Start(tools[name].command)], {}, seconds + GRACE_S)
                runs[name].append(tools[name].read(output.stdout))
            except NotComparedError as error:
                if name == OURS:
                    raise
                say(f"not compared: {name}: {error}")
                del runs[name]
    return runs


def _text(found: Spread | None) -> str:
    if found is None or found.low is None or found.high is None:
        return "—"
    return f"{found.value:.3g} [{found.low:.3g}, {found.high:.3g}]"


def _difference(samples: Sequence[float]) -> Spread:
    """Return the median of *samples*, which may be negative, and the order statistics that enclose it."""
    if len(samples) < FEWEST:
        return Spread(median(samples), None, None)
    low, high, _coverage = median_ranks(len(samples))
    ordered = sorted(samples)
    return Spread(median(samples), ordered[low - 1], ordered[high - 1])


def rows(runs: Mapping[str, Sequence[Seen]]) -> list[tuple[str, ...]]:
    """Return minima and counts above thresholds, of all alternations together, with paired differences and ratios."""
    ours = runs[OURS]
    found = []
    for name, theirs in runs.items():
        if name == OURS:
            continue
        for quantity, of in (("minimum, µs", attrgetter("min_us")), ("median, µs", attrgetter("median_us"))):
            differences = [of(mine) - of(other) for mine, other in zip(ours, theirs, strict=True)]
            middles = (f"{median(map(of, each)):.3g}" for each in (ours, theirs))
            found.append((name, quantity, *middles, f"difference {_text(_difference(differences))}"))
        wakes = (str(sum(run.wakes for run in each)) for each in (ours, theirs))
        found.append((name, "wake-ups", *wakes, "—"))
        for threshold_us in THRESHOLDS_US:
            counts = ([run.above[threshold_us] for run in each] for each in (ours, theirs))
            pairs = list(zip(*counts, strict=True))
            ratios = [mine / other for mine, other in pairs if mine and other]
            sums = (str(sum(each)) for each in zip(*pairs, strict=True))
            ratio = _text(spread(ratios) if len(ratios) == len(pairs) else None)
            found.append((name, f"at least {threshold_us} µs", *sums, ratio))
    return found


def copied(program: str, login: Sequence[str]) -> str:
    """Copy sutprobe to the SUT of *login* and return its path there. Raises ``NotComparedError`` if that fails."""
    command = (*login, f"cat > {ON_SUT} && chmod 755 {ON_SUT}")
    done = subprocess.run(command, input=Path(program).read_bytes(), capture_output=True, check=False)
    if done.returncode:
        raise NotComparedError(f"sutprobe could not be copied: {done.stderr.decode(errors='replace').strip()}")
    return ON_SUT


def located(name: str, login: Sequence[str]) -> str | None:
    """Return the path of a tool on the SUT of *login*, on this machine without one."""
    if not login:
        return shutil.which(name)
    done = subprocess.run((*login, f"command -v {name}"), capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def may_hold(login: Sequence[str], path: Path = DMA_LATENCY) -> bool:
    """Return whether idle states can be switched off there: a file that exists may not be opened."""
    command = f"test -e {path} && : 3<>{path}"
    done = subprocess.run((*(login or ("sh", "-c")), command), capture_output=True, check=False)
    return done.returncode == 0


@click.command()
@click.option("--cpu", type=click.IntRange(0), help="CPU to measure; by default the last allowed one.")
@click.option(
    "--period-us", type=click.IntRange(1), default=1000, show_default=True, help="Time between two deadlines."
)
@click.option("--seconds", type=click.IntRange(1), default=5, show_default=True, help="Length of each run.")
@click.option("--alternations", type=click.IntRange(1), default=12, show_default=True, help="Runs of each tool.")
@click.option("--ssh", default="", help="Command that logs in as root to a SUT of this architecture, to measure there.")
def main(*, cpu: int | None, period_us: int, seconds: int, alternations: int, ssh: str) -> None:
    """Alternate between sutprobe wakeup, cyclictest and rtla timerlat, and print a table."""
    login = tuple(shlex.split(ssh))
    chosen = max(allowed_cpus()) if cpu is None else cpu
    try:
        program = program_of()
        if login:
            program = copied(program, login)
        held = may_hold(login)
        there = tools(program, chosen, period_us, seconds, lambda name: located(name, login), held=held)
        there = {name: Tool((*login, *tool.command), tool.read) for name, tool in there.items()}
        runs = alternate(there, alternations, seconds, lambda line: click.echo(line, err=True))
    except (CalibrationError, NotComparedError) as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
    click.echo("\n".join(table(("Tool", "Quantity", "Ours", "Theirs", "Ratio, paired"), rows(runs))))


if __name__ == "__main__":
    main()
