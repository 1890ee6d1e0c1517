# SPDX-License-Identifier: Apache-2.0
"""Memory curves of a made machine, which saturates its memory: the recorded document with values of a model."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any

from calibration.results.model import Measurement, RunDocument
from calibration.sutprobe.document import ProbeDocument, read_document
from tests.recorded import FOLDER
from tests.report.report_documents import MACHINE, context_of, parsed_measurements, run_document

MIXES = {"reads": (1, 0), "3:1": (3, 1), "2:1": (2, 1), "1:1": (1, 1), "write_nt": (0, 1)}
"""Lines that memory reads and writes in a step."""

LOST = {"code": "check_failed", "message": "made"}

SHARES = (10, 20, 30, 40, 50, 60, 70, 80, 90, 95)

Model = Callable[[str, float], float]
"""Latency in ns of a mix at a share of its own bandwidth."""


def queue(idle_ns: float, mix: str, share: float) -> float:
    """Return a latency that rises as that of a queue, and trebles at full load."""
    del mix
    return idle_ns * (1 + 0.1 * share / (1.05 - share))


def made_rounds(
    place: tuple[int, int, int],
    full_mb_s: dict[str, float],
    latency_ns: Model,
    *,
    shares: Sequence[int] = SHARES,
    noise: float = 0.0,
    rounds: int = 6,
    lost: frozenset[int] = frozenset(),
) -> ProbeDocument:
    """Return the document of a sweep in *rounds* by the CPU, its node and the memory's node in *place*.

    Each mix has *full_mb_s* without delay, and a relative *noise* in every window. Rounds *lost* have no point.
    """
    cpu, _, node = place
    random = Random(7)
    sweep: dict[str, Any] = json.loads((FOLDER / "memory_curves.json").read_text(encoding="utf-8"))
    search: dict[str, Any] = json.loads((FOLDER / "memory_curves-search.json").read_text(encoding="utf-8"))
    sweep["parameters"].update(probe=[f"{cpu}@{node}"], load=f"{cpu + 1}-{cpu + 1}@{node}", mix=list(full_mb_s))
    point, zero = sweep["result"]["points"][0], sweep["result"]["zero_load"][0]
    search["result"]["shares"] = [
        {"mix": mix, "share_percent": share, "inject_delay": 100 - share, "share_found": share / 100}
        for mix in full_mb_s
        for share in shares
    ]
    noisy: Callable[[float], float] = lambda value: value * random.gauss(1.0, noise)  # noqa: E731 - of one line
    documents = []
    for number in range(1, rounds + 1):
        points = []
        for mix, peak in full_mb_s.items():
            reads, writes = MIXES[mix]
            accounting = {**point["accounting"], "reads_per_step": reads, "writes_per_step": writes}
            for share in (100, *shares):
                placement = {
                    **point["placements"][0],
                    "windows_mb_s": [noisy(peak * share / 100) for _ in range(2)],
                    "probes": [
                        {
                            "cpu": cpu,
                            "node": node,
                            "windows_ns": [noisy(latency_ns(mix, share / 100)) for _ in range(2)],
                            "probe_mb_s": 500.0,
                        }
                    ],
                }
                made = {"mix": mix, "inject_delay": 100 - share, "accounting": accounting, "placements": [placement]}
                if number in lost:
                    made |= {"placements": None, "stopped": None, "checked": False, "error": LOST}
                points.append({**point, **made})
        moments = {
            f"windows_ns_{moment}": [noisy(latency_ns("reads", 0.0)) for _ in range(2)]
            for moment in ("start", "middle", "end")
        }
        sweep["result"] = {"points": points, "zero_load": [{**zero, "cpu": cpu, "node": node, **moments}]}
        documents.append((number, read_document(sweep), None))
    return ProbeDocument.merged(documents).with_parts([read_document(search)])


def curves_document() -> RunDocument:
    """Return a run with curves of two memories, of all mixes: the first node's own, and that of the other."""
    local = dict(zip(MIXES, (205e3, 186e3, 178e3, 161e3, 148e3), strict=True))
    far = dict(zip(MIXES, (92e3, 103e3, 108e3, 84e3, 61e3), strict=True))
    found: list[Measurement] = []
    for name, node, full, idle_ns in (("memory_curves", 0, local, 98.0), ("memory_curves-0-1", 1, far, 163.0)):
        document = made_rounds((1, 0, node), full, partial(queue, idle_ns), noise=0.01)
        found += parsed_measurements(name, document, context_of(MACHINE))
    return run_document(names=()).model_copy(update={"measurements": tuple(found)})
