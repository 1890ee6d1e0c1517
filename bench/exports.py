# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: S608 - queries are put together from names in this file
"""Time and memory of the exports of a whole history: ``python -m bench.exports``.

The index of the run documents is made directly, of any number of SUTs, nights and metrics, each export in a process of
its own. Prints a table in reStructuredText for docs/development/benchmarks.rst.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final
from unittest.mock import patch

import click
import duckdb

from bench.tables import table
from calibration.exports.history import write_parquet
from calibration.exports.influx import influx
from calibration.places import CACHE_VARIABLE
from calibration.results import index

FORMS: Final = ("parquet", "influx")


def make(results: Path, suts: int, nights: int, metrics: int) -> None:
    """Write *results* without documents, and an index that has them."""
    home = index.index_of(results)
    home.mkdir(parents=True)
    with duckdb.connect(home / index.DATABASE) as db:
        db.execute(
            f"""CREATE TABLE runs AS SELECT 'lab' AS testbed, 'sut' || s AS sut,
                strftime(DATE '2025-01-01' + n::INT, '%Y%m%d') || 'T020000Z-0a1b' AS directory, 0 AS size,
                0 AS changed_ns, NULL::VARCHAR AS fault, DATE '2025-01-01' + n::INT AS night, 'complete' AS status,
                '2025-01-01T02:00:00Z' AS started_at, '{{}}' AS facts, []::VARCHAR[] AS reasons
                FROM range({suts}) AS suts(s), range({nights}) AS nights(n)"""
        )
        db.execute(
            f"""CREATE TABLE metrics AS SELECT testbed, sut, metric, night, directory, 'ns' AS unit,
                hash(sut || metric) AS series, 'lower' AS better, 100 + random() AS value, 99 + random() AS low,
                101 + random() AS high, NULL::DOUBLE AS lower, NULL::DOUBLE AS upper, 'no_reference' AS outcome,
                'no reference has been accepted for this SUT' AS reason, 'on_target' AS trust,
                night::TIMESTAMP + to_seconds(7200 + m) AS measured_at
                FROM runs, (SELECT m, 'latency_matrix.0.' || m || '.latency_ns' AS metric
                            FROM range({metrics}) AS metrics(m))"""
        )


def rows_of(form: str, results: Path, output: Path) -> int:
    """Write the export *form* to *output*, and return its number of rows."""
    if form == "parquet":
        return write_parquet(results, output)
    with output.open("w", encoding="utf-8") as file:
        return sum(1 for line in influx(results, None, print) if file.write(f"{line}\n"))


def measured(form: str, results: Path, output: Path) -> tuple[int, float, int]:
    """Return rows, seconds and MiB of the export *form* in a process of its own."""
    command = [sys.executable, "-m", "bench.exports", "run", form, str(results), str(output)]
    rows, seconds, kib = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    return int(rows), float(seconds), int(kib) >> 10


@click.group()
def exports() -> None:
    """Measure the exports of a history."""


@exports.command("run")
@click.argument("form", type=click.Choice(FORMS))
@click.argument("results", type=click.Path(path_type=Path))
@click.argument("output", type=click.Path(path_type=Path))
def run_command(form: str, results: Path, output: Path) -> None:
    """Print rows, seconds and the largest memory in KiB of one export."""
    begun = time.monotonic()
    with patch.object(index, "_refresh"):  # there are no documents: they would be forgotten
        rows = rows_of(form, results, output)
    status = Path("/proc/self/status").read_text(encoding="ascii")  # ru_maxrss would be the parent's, if that is larger
    (kib,) = re.findall(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    click.echo(f"{rows} {time.monotonic() - begun:.1f} {kib}")


@exports.command("table")
@click.option("--suts", default=100, show_default=True)
@click.option("--nights", default=365, show_default=True)
@click.option("--metrics", default=150, show_default=True)
def table_command(suts: int, nights: int, metrics: int) -> None:
    """Print a table of all exports."""
    with (
        tempfile.TemporaryDirectory(prefix="exports-") as folder,
        patch.object(index, "CACHE", Path(folder, "cache")),
        patch.dict(os.environ, {CACHE_VARIABLE: f"{folder}/cache"}),
    ):
        results = Path(folder, "results")
        results.mkdir()
        make(results, suts, nights, metrics)
        rows = []
        for form in FORMS:
            count, seconds, mib = measured(form, results, output := Path(folder, form))
            size = f"{output.stat().st_size / 1e6:.0f} MB"
            rows.append((f"``calibration export {form}``", f"{count}", f"{seconds:.0f} s", f"{mib} MiB", size))
        click.echo("\n".join(table(("Command", "Rows", "Wall time", "Memory", "Output"), rows)))


if __name__ == "__main__":
    exports()
