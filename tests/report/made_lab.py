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
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from functools import cache, partial
from math import exp
from pathlib import Path
from typing import Any, Final

from calibration.demo.nights import Change, MadeSut, Template, accept, write
from calibration.finish import finish
from calibration.measurements.base import Step
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
TIERED: Final = Machine(cpus=16, cpu_nodes=1, memory_only_nodes=1, lines=40, threads=1)
SMALL: Final = Machine(cpus=4, cpu_nodes=2, memory_only_nodes=0, lines=40, threads=1)

FIRST_NIGHT: Final = date(2026, 1, 1)
PER_TESTBED: Final = 10


# A server


@cache
def server_document(machine: Machine = LARGE) -> RunDocument:
    """Return the document of a nightly run of *machine*."""
    return document_of(machine, "nightly", partial(scaled_answer, machine))


def document_of(machine: Machine, profile: str, answered: Callable[[Step], dict[str, Any]]) -> RunDocument:
    """Return the document of a run of *profile* on *machine*, whose sutprobe answers each step with *answered*."""
    with tempfile.TemporaryDirectory(prefix="calibration-made-") as folder:
        directory, ended = recorded(Path(folder), machine, profile, answered)
        return finish(directory, now=ended)


def recorded(
    results: Path, machine: Machine, profile: str, answered: Callable[[Step], dict[str, Any]]
) -> tuple[Path, datetime]:
    """Record a run as ``document_of`` does, below *results*; return its directory, to be assembled, and its end."""
    now = STARTED
    begun = begin(results, testbed="t4", sut="sut1", run_id=RUN_ID, profile=profile, capture=capture(machine), now=now)
    record_probe(begun.directory, PROBE)
    for step, number, document in all_rounds(begun.plan.steps, answered):
        record = StepRecord(
            step=step, round=number, outcome="ok", reason=None, rc=0, started_at=now,
            duration_s=(document or {})["duration_s"], document=document, stderr="",
        )  # fmt: skip
        append_record(begun.directory, record)
        now += timedelta(seconds=round(step.expected_duration_s / step.rounds) + 1)
    append_record(begun.directory, EndRecord(finished_at=now, interrupted=False))
    return begun.directory, now


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


def _tiers_factor(machine: Machine, point: Mapping[str, Any]) -> float:
    """Return how the slower of two tiers limits both: the far one has 30 % of the near one's bandwidth."""
    pages = Counter(point["placements"][0].get("node_pages") or dict.fromkeys(map(str, point["nodes"]), 1))
    far = sum(count for node, count in pages.items() if int(node) >= machine.cpu_nodes) / pages.total()
    return float(((1 - far) ** 6 + (far / 0.3) ** 6) ** (-1 / 6))


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
    "memory_tiers": _tiers_factor,
    "c2c_matrix": _transfer_factor,
    "core_frequency": lambda _machine, point: random.Random(point["cpu"] // CORES_PER_LLC).gauss(1, 0.0025),
}


# A lab


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
        self.slower: Sut = everyone[suts * 4 // 10]
        self.missing: Sut = everyone[suts * 6 // 10]
        self.unknown: Sut = everyone[suts * 8 // 10]
        self.renewed: tuple[Sut, ...] = tuple(everyone[: min(14, suts * 3 // 10)])
        slowed = Change(nights - 3, factors={".*bandwidth.*": 0.88})
        renewed = Change(nights - 1, texts={"0x2b000603": "0x2b000620"})
        self.made = [
            MadeSut(
                *sut, range(nights - (sut == self.missing)), None if sut == self.unknown else nights - 4,
                ((slowed,) if sut == self.slower else ()) + ((renewed,) if sut in self.renewed else ()),
            )
            for sut in everyone
        ]  # fmt: skip

    def write(self, results: Path) -> None:
        """Write runs and baselines into *results*, which must not exist."""
        results.mkdir(parents=True)
        write(results, self.made, {"server": Template(server_document(SMALL))}, FIRST_NIGHT)
        accept(results, self.made, FIRST_NIGHT, by="ann@example.org", reason="as delivered")


if __name__ == "__main__":  # python -m tests.report.made_lab RESULTS [SUTS [NIGHTS]]
    Lab(*map(int, sys.argv[2:4])).write(Path(sys.argv[1]))
