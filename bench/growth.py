# SPDX-License-Identifier: Apache-2.0
"""How the cost of commands grows: ``python -m bench.growth`` runs them on labs and machines of several sizes.

``suts`` are labs after one night, ``nights`` one SUT's, ``cpus`` one run of one SUT: synthetic documents of the profile
``nightly``. Each command runs in a process of its own (bench/meter.py). It fails if an exponent is above ``MOST``.
"""

import math
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import click

from bench.fleet import metered, tail
from bench.meter import Usage
from bench.tables import table
from calibration.base.errors import VERDICT_FAILED, EnvironmentLacksError
from calibration.demo.nights import MadeSut, Template, accept, write
from calibration.results.layout import run_directory
from tests.machines import Machine
from tests.report.made_lab import FIRST_NIGHT, SMALL, names, recorded, scaled_answer, server_document

MOST: Final = 1.1
"""The exponent that is allowed: linear, and what a benchmark cannot tell from it."""

NOISE: Final = 0.2
"""Growth by less than this share of the smallest cost is none: its exponent would be that of noise, or, for memory, of
two phases of which the larger counts."""

CPUS_PER_NODE: Final = 32
LINES: Final = 1000
"""Interrupt lines of each machine: a table that grows with the CPUs, and not with their square."""

JUDGED: Final = (
    "import sys; from pathlib import Path; from calibration.nightly.judgement import judge; "
    "judge(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))"
)  # the action of the playbook has no command


@dataclass(frozen=True)
class Command:
    """A command by its words, where RESULTS, RUN, ID and OUT stand for the results, a run, its identifier and a place.

    ``fresh``: before it, the index and all else that is kept between commands are removed.
    """

    title: str
    words: tuple[str, ...]
    fresh: bool = False
    program: tuple[str, ...] = ("-m", "calibration.cli")


def _cli(title: str, words: str, *, fresh: bool = False) -> Command:
    return Command(title, tuple(words.split()), fresh)


@dataclass(frozen=True)
class Dimension:
    """What grows: its sizes, what makes results of a size and returns a run in them, the commands in their order."""

    sizes: tuple[int, ...]
    make: Callable[[Path, int], Path]
    commands: tuple[Command, ...]


def make_lab(results: Path, *, suts: int, nights: int) -> Path:
    """Write the runs of *suts* SUTs in *nights* nights into *results*, and return the newest of the first SUT."""
    made = [MadeSut(*sut, range(nights), 0) for sut in names(suts)]
    write(results, made, {"server": Template(server_document(SMALL))}, FIRST_NIGHT)
    accept(results, made, FIRST_NIGHT, by="bench", reason="as delivered")
    return run_directory(results, made[0].testbed, made[0].name, made[0].run_id(FIRST_NIGHT, nights - 1))


def make_machine(results: Path, cpus: int) -> Path:
    """Record a nightly run of a machine with *cpus* CPUs in *results*, not assembled, and return its directory."""
    nodes = max(1, cpus // CPUS_PER_NODE)
    machine = Machine(cpus=cpus, cpu_nodes=nodes, memory_only_nodes=0, lines=LINES, threads=1)
    return recorded(results, machine, "nightly", partial(scaled_answer, machine))[0]


NIGHT: Final = (
    _cli("judge, index from nothing", "judge --results RESULTS", fresh=True),
    _cli("judge", "judge --results RESULTS"),
    Command("The judgement of a night, with its gates", ("RESULTS", "ID", "OUT/night"), program=("-c", JUDGED)),
)
EXPORTS: Final = tuple(
    _cli(f"export {form}", f"export {form} --results RESULTS -o OUT/{form}")
    for form in ("openmetrics", "influx", "parquet")
)
DIMENSIONS: Final[Mapping[str, Dimension]] = {
    "suts": Dimension(
        (1, 10, 100, 1000),
        lambda results, suts: make_lab(results, suts=suts, nights=1),
        (*NIGHT, *EXPORTS, _cli("report --html, from nothing", "report RESULTS --html OUT/site")),
    ),
    "nights": Dimension(
        (1, 30, 365),
        lambda results, nights: make_lab(results, suts=1, nights=nights),
        (*NIGHT, *EXPORTS, _cli("report, the newest run", "report RUN --results RESULTS")),
    ),
    "cpus": Dimension(
        (2, 64, 512),
        make_machine,
        (
            _cli("context", "context RUN --json"),
            _cli("plan", "plan RUN --profile nightly"),
            _cli("assemble", "assemble RUN --results RESULTS"),
            _cli("validate", "validate RUN"),
            _cli("report", "report RUN --results RESULTS"),
            _cli("show", "show RUN --results RESULTS"),
        ),
    ),
}


def exponent(sizes: Sequence[int], costs: Sequence[float]) -> float | None:
    """Return the exponent of the growth of *costs* between the last two *sizes*; None: they do not grow.

    The least cost of the other sizes is fixed: growth is what is above it. Where that is nothing before the last size,
    such as memory below what the start takes, the exponent is that of the whole cost.
    """
    if costs[-1] - costs[0] <= NOISE * costs[0]:
        return None
    fixed, first = min(zip(costs[:-1], sizes, strict=False))
    if costs[-2] - fixed <= NOISE * fixed:
        fixed = first = 0
    (fewer, most), (less, more) = ((pair[-2], pair[-1]) for pair in (sizes, costs))
    return math.log((more - fixed) / (less - fixed)) / math.log((most - first) / (fewer - first))


def costs_of(dimension: Dimension, size: int, folder: Path) -> Iterator[Usage]:
    """Yield what each command of *dimension* costs at *size*. Raises ``EnvironmentLacksError`` if one fails."""
    results, out, kept = (folder / name for name in ("results", "out", "kept"))
    run = dimension.make(results, size)
    out.mkdir()
    stands = {"RESULTS": str(results), "RUN": str(run), "ID": run.name, "OUT": str(out)}
    environment = {**os.environ, "CALIBRATION_CACHE_DIR": str(kept), "LC_ALL": "C.UTF-8"}
    for command in dimension.commands:
        if command.fresh:
            shutil.rmtree(kept, ignore_errors=True)
        words = ["/".join(stands.get(part, part) for part in word.split("/")) for word in command.words]
        usage = metered([sys.executable, *command.program, *words], environment, folder / "log")
        if usage.exit_code not in {0, VERDICT_FAILED}:
            raise EnvironmentLacksError(
                f"{command.title} ended with {usage.exit_code} at {size}:\n{tail(folder / 'log')}"
            )
        click.echo(f"{size}: {command.title}: {usage.cpu_s:.1f} s CPU, {usage.peak_pss_bytes >> 20} MiB", err=True)
        yield usage


def usages_of(dimension: Dimension, work: Path) -> Iterator[tuple[Command, Sequence[Usage]]]:
    """Yield each command of *dimension* with what it costs, by size."""
    by_size: list[list[Usage]] = []
    for size in dimension.sizes:
        folder = work / str(size)
        folder.mkdir(parents=True)
        by_size.append(list(costs_of(dimension, size, folder)))
        shutil.rmtree(folder)
    yield from zip(dimension.commands, zip(*by_size, strict=True), strict=True)


def short(value: float) -> str:
    """Return *value* with three digits, or all of its whole ones."""
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def grown(sizes: Sequence[int], usages: Sequence[Usage]) -> tuple[list[str], dict[str, float | None]]:
    """Return the cells of what a command costs at each of *sizes*, and the exponents of its costs by their name."""
    costs = {
        "CPU time": [usage.cpu_s for usage in usages],
        "memory": [usage.peak_pss_bytes / 2**20 for usage in usages],
    }
    powers = {what: exponent(sizes, values) for what, values in costs.items()}
    cells = ["/".join(map(short, pair)) for pair in zip(*costs.values(), strict=True)]
    return [*cells, "/".join("none" if power is None else f"{power:.2f}" for power in powers.values())], powers


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--only", type=click.Choice(tuple(DIMENSIONS)), multiple=True, help="Only this dimension; repeatable.")
def growth_command(only: tuple[str, ...]) -> None:
    """Measure how the cost of commands grows with SUTs, nights and CPUs; fail if one grows faster than linearly."""
    steep = []
    with tempfile.TemporaryDirectory(prefix="growth-") as work:
        for name in only or DIMENSIONS:
            dimension, rows = DIMENSIONS[name], []
            for command, usages in usages_of(dimension, Path(work) / name):
                cells, powers = grown(dimension.sizes, usages)
                rows.append((command.title, *cells))
                steep += [
                    f"{command.title}: {what} grows with {name} to the power of {power:.2f}"
                    for what, power in powers.items()
                    if power is not None and power > MOST
                ]
            head = (f"By {name}", *map(str, dimension.sizes), "Exponents")
            click.echo("\n".join(table(head, rows)) + "\n")
    for line in steep:
        click.echo(line, err=True)
    sys.exit(bool(steep))


if __name__ == "__main__":
    growth_command()
