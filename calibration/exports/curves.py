# SPDX-License-Identifier: Apache-2.0
"""Memory curves in the files of Mess (MICRO 2024, https://github.com/bsc-mem): of its plotters, and of simulators.

Percentages of reads are those in the traffic of memory, as Mess counts them: a regular store is a read and a write.

* ``memory_curves.csv``, GB/s and ns, is what the plotters of Mess 2.0 write, and draw applications on.
* ``bwlat_<percentage of reads>.txt``, MB/s and ns, are what Mess's simulators read. They search from the first line
  for the first bandwidth below that wanted, so the highest comes first. They expect every even percentage, and take
  the next file for a missing one: each has the nearest measured curve.
"""

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from calibration.base.errors import InputError
from calibration.base.files import able_to, write_whole
from calibration.base.grouping import grouped
from calibration.measurements.memory_curves import MemoryCurvesValues
from calibration.results.find import find_run, suts_of
from calibration.results.store import read_run

SIMULATED: Final = range(0, 101, 2)
"""Percentages of reads that simulators have a curve for."""

HEADER: Final = ("read_pct_rounded", "bandwidth_mean", "latency_mean", "bandwidth_smooth", "latency_smooth")
"""Columns of the CSV that the plotters read. They draw the last two, after judging the first three."""


class Exported(NamedTuple):
    """How many *pairs* of nodes of how many *suts* ``export_curves`` wrote."""

    pairs: int
    suts: int


def export_curves(results: Path, directory: Path, left_out: Callable[[str], None]) -> Exported:
    """Write the curves of the newest run of each SUT in *results*, each pair of nodes in a directory below *directory*.

    Tell *left_out* what lacks, and why. Raises ``InputError`` if no run has curves, ``EnvironmentLacksError`` if they
    cannot be written.
    """
    pairs, suts = 0, set()
    for sut in suts_of(results):
        try:
            document = read_run(find_run(results, str(results / sut)))
        except InputError as error:
            left_out(f"{sut} left out: {error}")
            continue
        for measurement in document.measurements:
            if not isinstance(values := measurement.values, MemoryCurvesValues):
                continue
            if not measurement.validity.valid:
                left_out(f"{sut}/{document.run.id}: {measurement.id} left out: {measurement.validity.flags[0].reason}")
                continue
            of_pair = directory / sut / f"{values.cpu_node}-{values.memory_node}"
            with able_to(f"write {directory}"):
                directory.mkdir(exist_ok=True)
                of_pair.mkdir(parents=True, exist_ok=True)
                for name, text in files_of(values).items():
                    write_whole(of_pair / name, text.encode())
            pairs += 1
            suts.add(sut)
    if not pairs:
        raise InputError(f"no memory curves in the newest runs of {results}")
    return Exported(pairs, len(suts))


Curve = list[tuple[float, float]]
"""Bandwidth (MB/s) and latency (ns), by increasing bandwidth, from no load on."""


def files_of(values: MemoryCurvesValues) -> dict[str, str]:
    """Return the text of each file for *values*, by name."""
    curves = _curves(values)
    written = io.StringIO()
    table = csv.writer(written, lineterminator="\n")
    table.writerow(HEADER)
    for reads, curve in curves.items():
        for mb_s, ns in curve:
            table.writerow((round(reads), *2 * (round(mb_s / 1e3, 9), ns)))
    files = {"memory_curves.csv": written.getvalue()}
    for wanted in SIMULATED:
        nearest = min(curves, key=lambda reads: abs(reads - wanted))
        files[f"bwlat_{wanted}.txt"] = "".join(f"{mb_s}\t{ns}\n" for mb_s, ns in reversed(curves[nearest]))
    return files


def _curves(values: MemoryCurvesValues) -> dict[float, Curve]:
    """Return the curves of *values* by percentage of reads; of equal bandwidths, that under more load remains."""
    points = sorted((row for row in values.points if row.latency_ns is not None), key=lambda row: row.share)
    found = grouped((100 * (1 - row.write_share), row) for row in points)
    unloaded = 0.0, values.unloaded_ns.value
    return {
        reads: sorted(dict([unloaded, *((row.bandwidth_mb_s.value, row.latency_ns.value) for row in rows)]).items())
        for reads, rows in sorted(found.items())
    }
