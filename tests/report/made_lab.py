# SPDX-License-Identifier: Apache-2.0
"""Synthetic results: a night of a large server, and a lab of many SUTs over some nights with a baseline.

Plans and documents are the harness's own; the measured numbers are recorded ones, scaled.
"""

import gzip
import io
import json
import random
import re
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, date, datetime, time, timedelta
from functools import cache, partial
from math import exp, log1p
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from calibration.finish import finish
from calibration.judge.baseline_files import add_acceptance
from calibration.judge.baselines import propose
from calibration.measurements.base import Step
from calibration.results.layout import RUN
from calibration.results.model import RunDocument
from calibration.run.attempts import record_probe
from calibration.run.lifecycle import begin
from calibration.run.records import EndRecord, StepRecord, append_record
from tests.machines import CORES_PER_LLC, Machine, answer
from tests.report.report_documents import PROBE
from tests.rounds import all_rounds

Sut = tuple[str, str]

STARTED: Final = datetime(2026, 1, 2, 1, tzinfo=UTC)
RUN_ID: Final = "20260102T010000Z-0a1b"

LARGE: Final = Machine(cpus=128, cpu_nodes=8, memory_only_nodes=0, lines=260, threads=1)
SMALL: Final = Machine(cpus=4, cpu_nodes=2, memory_only_nodes=0, lines=40, threads=1)

FIRST_NIGHT: Final = date(2026, 1, 1)
PER_TESTBED: Final = 10

DEVIATIONS: Final = {
    r"jitter": 0.2, r"core_frequency": 0.0008, r".*_ladder": 0.003, r"loaded_latency": 0.012, r".*bandwidth.*": 0.005,
    r".*": 0.008,
}  # fmt: skip
"""Relative standard deviation from night to night; the first kind that matches counts."""

BETWEEN_SUTS: Final = 0.001
"""Relative standard deviation of the SUTs of a testbed: less than any tolerance."""

MEASURED: Final = ("value", "interval", "minimum", "maximum", "samples")
"""Fields of estimates and metrics that are in their unit."""

MEASURED_ALONE: Final = re.compile(r".*_mb_s|(interval|length|max|maximum|median|minimum)_ns")
"""Fields of values that are measured numbers without an estimate."""


# A server


@cache
def server_document(machine: Machine = LARGE) -> RunDocument:
    """Return the document of a nightly run of *machine*."""
    now = STARTED
    with tempfile.TemporaryDirectory(prefix="calibration-made-") as folder:
        begun = begin(
            Path(folder), testbed="t4", sut="sut1", run_id=RUN_ID, profile="nightly", capture=capture(machine), now=now
        )
        record_probe(begun.directory, PROBE)
        for step, number, answered in all_rounds(begun.plan.steps, partial(scaled_answer, machine)):
            record = StepRecord(
                step=step, round=number, outcome="ok", reason=None, rc=0, started_at=now,
                duration_s=(answered or {})["duration_s"], document=answered, stderr="",
            )  # fmt: skip
            append_record(begun.directory, record)
            now += timedelta(seconds=round(step.expected_duration_s / step.rounds) + 1)
        append_record(begun.directory, EndRecord(finished_at=now, interrupted=False))
        return finish(begun.directory, now=now)


def capture(machine: Machine) -> bytes:
    """Return the capture of *machine*, the same bytes each time."""
    uname = {
        "sysname": "Linux",
        "nodename": "t4-sut1",
        "release": "6.1.0-13-amd64",
        "version": "#1 SMP",
        "machine": "x86_64",
    }
    described = {
        "schema": "sut-context/1", "captured_at": f"{STARTED:%Y-%m-%dT%H:%M:%SZ}", "hostname": "t4-sut1", "uid": 0,
        "python_version": "3.11.2", "uname": uname, "uname_a": " ".join(uname.values()),
        "affinity": f"0-{machine.cpus - 1}", "masked": [], "unreadable": [],
    }  # fmt: skip
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, compresslevel=1) as stream,
        tarfile.open(fileobj=stream, mode="w") as tar,
    ):
        for path, text in (("/capture.json", json.dumps(described)), *machine.files()):
            member = tarfile.TarInfo(path[1:])
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return packed.getvalue()


def scaled_answer(machine: Machine, step: Step) -> dict[str, Any]:
    """Return sutprobe's document for *step*, its points scaled by distance, threads and chance."""
    answered = answer(step)
    chance = random.Random(step.id)
    result = answered["result"]
    for part in ("points", "cells"):
        if step.kind in FACTORS and part in result:
            factor = FACTORS[step.kind]
            result[part] = [_scaled(point, factor(machine, point) * chance.gauss(1, 0.002)) for point in result[part]]
    return answered


def _scaled(value: Any, factor: float) -> Any:
    """Return *value* with all windows and rates multiplied by *factor*."""
    if isinstance(value, dict):
        return {
            name: _multiplied(item, factor)
            if re.fullmatch(r"(.*windows|per_thread)_(ns|mb_s|hz)", name)
            else _scaled(item, factor)
            for name, item in value.items()
        }
    if isinstance(value, list):  # a cell of a matrix has its windows without a name
        windows = all(isinstance(item, list) for item in value)
        return _multiplied(value, factor) if windows else [_scaled(item, factor) for item in value]
    return value


def _multiplied(value: Any, factor: float) -> Any:
    return [_multiplied(item, factor) for item in value] if isinstance(value, list) else value * factor


def _same_package(machine: Machine, node: int, other: int) -> bool:
    return node * 2 // machine.nodes == other * 2 // machine.nodes


def _latency_factor(machine: Machine, point: Mapping[str, Any]) -> float:
    own, node = machine.node_of(point["cpu"]), point["nodes"][0]
    return 1.0 if own == node else 1.06 if _same_package(machine, own, node) else 1.9 + 0.05 * abs(own - node) % 4


def _bandwidth_factor(machine: Machine, point: Mapping[str, Any]) -> float:
    own, node = machine.node_of(point["cpus"][0]), point["nodes"][0]
    share = 1.0 if own == node else 0.97 if _same_package(machine, own, node) else 0.3
    return share * (1 - exp(-point["threads"] / 4))


def _transfer_factor(machine: Machine, cell: Mapping[str, Any]) -> float:
    writer, reader = cell["writer"], cell["reader"]
    if machine.core_of(writer) // CORES_PER_LLC == machine.core_of(reader) // CORES_PER_LLC:
        return 0.3
    own, other = machine.node_of(writer), machine.node_of(reader)
    return 1.0 if own == other else 1.2 if _same_package(machine, own, other) else 2.3


FACTORS: Final[Mapping[str, Callable[[Machine, Mapping[str, Any]], float]]] = {
    "latency_matrix": _latency_factor,
    "bandwidth_matrix": _bandwidth_factor,
    "bandwidth_scaling": _bandwidth_factor,
    "c2c_matrix": _transfer_factor,
    "core_frequency": lambda _machine, point: random.Random(point["cpu"] // CORES_PER_LLC).gauss(1, 0.0025),
}


# A lab


class Template:
    """A run document as text with a gap for each measured number; ``kinds`` has the kind of each measurement."""

    def __init__(self, document: RunDocument) -> None:
        raw = json.loads(document.model_dump_json())
        self.run: dict[str, str] = raw["run"]
        self.kinds = [measurement["kind"] for measurement in raw["measurements"]]
        self._numbers: list[tuple[float, int]] = []
        places = {measurement["id"]: place for place, measurement in enumerate(raw["measurements"])}
        for measurement in raw["measurements"]:
            measurement["values"] = self._gaps(measurement["values"], places[measurement["id"]])
        of_metric: dict[str, int] = {}
        for judged in (*raw["verdicts"], *raw["record"]):
            if (metric := judged["metric"]) is not None:  # the same metric, the same factor
                place = of_metric.setdefault(metric["name"], places[judged["measurement"]])
                judged["metric"] = self._gaps(metric, place)
        pieces = re.split(r'"@(\d+)@"', json.dumps(raw, indent=1, ensure_ascii=False))
        self.form = "%.12g".join(piece.replace("%", "%%") for piece in pieces[::2])
        ordered = [self._numbers[int(piece)] for piece in pieces[1::2]]
        self.base = np.array([number for number, _ in ordered])
        self.place = np.array([place for _, place in ordered])

    def _gaps(self, value: Any, place: int, *, measured: bool = False) -> Any:
        """Return *value*, of the measurement at *place*, with gaps for its measured numbers."""
        if isinstance(value, dict):
            in_unit = MEASURED if value.get("unit", "fraction") != "fraction" else ()
            return {
                name: self._gaps(item, place, measured=name in in_unit or bool(MEASURED_ALONE.fullmatch(name)))
                for name, item in value.items()
            }
        if isinstance(value, list):
            return [self._gaps(item, place, measured=measured) for item in value]
        if not measured or not isinstance(value, float):
            return value
        self._numbers.append((value, place))
        return f"@{len(self._numbers) - 1}@"

    def text(self, factors: NDArray[np.float64]) -> str:
        """Return the document with the numbers of each measurement multiplied by one of *factors*."""
        return self.form % tuple((self.base * factors[self.place]).tolist())


@cache
def template() -> Template:
    """Return the template of all runs of a lab."""
    return Template(server_document(SMALL))


def names(suts: int) -> list[Sut]:
    """Return the SUTs by testbed and name."""
    return [(f"t{number // PER_TESTBED + 1}", f"sut{number % PER_TESTBED + 1:02d}") for number in range(suts)]


class Lab:
    """A lab of *suts* SUTs over *nights* nights, accepted three nights before the last.

    ``slower`` lost an eighth of its bandwidth two nights before the last. In the last, ``renewed`` have new microcode
    and ``missing`` has no run. ``unknown`` has no baseline.
    """

    def __init__(self, suts: int = 100, nights: int = 14) -> None:
        if suts < 4 or nights < 4:
            raise ValueError(f"at least 4 SUTs and 4 nights are needed, not {suts} and {nights}")
        everyone = names(suts)
        self.suts, self.nights = suts, nights
        self.slower: Sut = everyone[suts * 4 // 10]
        self.missing: Sut = everyone[suts * 6 // 10]
        self.unknown: Sut = everyone[suts * 8 // 10]
        self.renewed: tuple[Sut, ...] = tuple(everyone[: min(14, suts * 3 // 10)])

    def write(self, results: Path) -> None:
        """Write runs and baselines into *results*, which must not exist."""
        results.mkdir(parents=True)
        template()  # before the workers are forked
        with ProcessPoolExecutor() as workers:
            list(workers.map(self._write_sut, [results] * self.suts, range(self.suts)))
        accepted = self.nights - 4
        runs = [results.joinpath(*sut, _run_id(accepted)) for sut in names(self.suts) if sut != self.unknown]
        now = datetime.combine(FIRST_NIGHT + timedelta(days=accepted), time(12), UTC)
        for item in propose(runs, scope="sut", by="ann@example.org", reason="as delivered", metrics=(), now=now):
            if item.acceptance is not None:
                add_acceptance(results, item.place, item.acceptance)

    def _write_sut(self, results: Path, number: int) -> None:
        made, sut, last = template(), names(self.suts)[number], self.nights - 1
        chance = np.random.default_rng(number)
        deviations = [
            next(size for kinds, size in DEVIATIONS.items() if re.fullmatch(kinds, kind)) for kind in made.kinds
        ]
        slowed = np.array([log1p(-0.12) if "bandwidth" in kind else 0.0 for kind in made.kinds])
        level = chance.normal(scale=BETWEEN_SUTS, size=len(made.kinds))
        for night in range(self.nights):
            logarithms = level + chance.normal(scale=deviations)
            if sut == self.slower and night >= last - 2:
                logarithms += slowed
            if sut == self.missing and night == last:
                continue
            text = made.text(np.exp(logarithms))
            if sut in self.renewed and night == last:
                text = text.replace("0x2b000603", "0x2b000620")
            day = FIRST_NIGHT + timedelta(days=night)
            identity = {
                "id": _run_id(night),
                "testbed": sut[0],
                "sut": sut[1],
                "started_at": f"{day}T01:00:00Z",
                "finished_at": f"{day}T01:40:00Z",
            }
            for name, new in identity.items():
                text = text.replace(f'"{name}": "{made.run[name]}"', f'"{name}": "{new}"', 1)
            directory = results.joinpath(*sut, identity["id"])
            directory.mkdir(parents=True)
            (directory / RUN).write_text(text + "\n", encoding="utf-8")


def _run_id(night: int) -> str:
    return f"{FIRST_NIGHT + timedelta(days=night):%Y%m%d}T010000Z-{night:04x}"


if __name__ == "__main__":  # python -m tests.report.made_lab RESULTS [SUTS [NIGHTS]]
    Lab(*map(int, sys.argv[2:4])).write(Path(sys.argv[1]))
