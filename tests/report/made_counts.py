# SPDX-License-Identifier: Apache-2.0
"""A run document with synthetic hardware counts, on recorded times and a described machine.

Counts and samples follow rules with known results; the instrument's name ends "with made counts".
"""

import json
from functools import cache
from statistics import median
from typing import Any, Literal

from calibration.context.facts import facts
from calibration.context.model import Context
from calibration.results.model import CapturedContext, Measurement, RunDocument
from calibration.sutprobe.document import read_document
from tests.event_trees import context_of, described
from tests.report.report_documents import FIXTURES, PROBE, RECORDED, parsed_measurements, run_document

MACHINE = "broadwell_ep"
"""The machine of the article with the fastest memory."""

SOCKETS = (0, 22)
"""The CPUs on which its memory controllers are counted."""

CORE_HZ = 2.2e9
BACKGROUND_LINES_PER_S = 1e5
OVERCOUNTED = 1.01
"""Bytes that the memory controllers count per byte moved."""

PREFETCHED = 0.8
"""Share of lines fetched by hardware prefetchers, which the core's own counter omits."""


@cache
def context() -> Context:
    """Return the described machine."""
    return context_of(described(FIXTURES / "event_sources" / f"{MACHINE}.yml"))


def event(name: str, count: float, wall_s: float, **changes: Any) -> dict[str, Any]:
    return {
        "name": name, "pmus": ["made"], "cpu": None, "threads": None, "count": round(count), "scaled": count,
        "running_fraction": 1.0, "wall_s": wall_s, "wall_uncertainty_s": 1e-5, "steps": None, "hops": None,
        "background_count": None, "background_wall_s": None, **changes,
    }  # fmt: skip


def memory(name: str, lines: float, wall_s: float, steps: float | None) -> list[dict[str, Any]]:
    """Return what the controllers of both packages count while *lines* move from or to the first one's memory."""
    quiet = BACKGROUND_LINES_PER_S * wall_s
    watched = {"background_count": BACKGROUND_LINES_PER_S, "background_wall_s": 1.0, "steps": steps}
    of_cpu = dict.fromkeys(SOCKETS, quiet) | {SOCKETS[0]: quiet + lines * OVERCOUNTED}
    return [event(name, count, wall_s, cpu=cpu, **watched) for cpu, count in of_cpu.items()]


def counters(lines: float, wall_s: float, threads: int, latency_ns: float, *, prefetchers: bool) -> dict[str, Any]:
    """Return made counters of threads that read *lines*, each of which takes *latency_ns* to come."""
    misses = lines * ((1 - PREFETCHED) if prefetchers else 0.99)
    of_threads = {
        "core.cycles": CORE_HZ * wall_s * threads,
        "core.l1d_pending": lines * latency_ns * CORE_HZ / 1e9,
        "core.l1_miss": misses,
        "core.fb_hit": lines - misses,
        "core.offcore_reads": misses,
    }
    found = [*memory("dram.reads", lines, wall_s, lines), *memory("dram.writes", 0.0, wall_s, lines)]
    found += [event("link.bytes", 0.0, wall_s, cpu=cpu, steps=lines) for cpu in SOCKETS]
    found += [event(name, count, wall_s, threads=threads, steps=lines) for name, count in of_threads.items()]
    return {"background_s": 1.0, "events": found, "refused": []}


def samples(latency_ns: float) -> dict[str, Any]:
    cycles = latency_ns * CORE_HZ / 1e9
    spread = {"mean": cycles, "median": cycles, "p10": cycles * 0.9, "p90": cycles * 1.3}
    return {
        "method": "pebs",
        "period": 10007,
        "taken": 1000,
        "lost": 0,
        "kept": 900,
        "reasons": {"TLB miss": 60, "not local DRAM": 40},
        "latency_cycles": {**spread, "min": cycles * 0.8, "max": cycles * 4},
        "histogram": [{"from_cycles": 128.0, "count": 900}],
        "refused": None,
    }


def regulated(name: str, *, prefetchers: bool) -> dict[str, Any]:
    """Return the recorded sweep *name* with made counters, with or without prefetchers."""
    raw: dict[str, Any] = json.loads(RECORDED[name].read_text(encoding="utf-8"))
    for point in raw["result"]["points"]:
        for number, placement in enumerate(point["placements"]):
            wall_s = 0.1
            rate = median(placement["windows_mb_s"]) * 1e6
            probes = sum(value["probe_mb_s"] for value in placement.get("probes", ())) * 1e6
            threads = len(placement.get("per_thread_mb_s", [0]))
            latency_ns = 90.0 + rate / 1e9 * 10 + number
            placement["counters"] = counters(rate * wall_s / 64, wall_s, threads, latency_ns, prefetchers=prefetchers)
            reads = [item for item in placement["counters"]["events"] if item["name"] == "dram.reads"]
            reads[0]["scaled"] += probes * wall_s / 64
            placement["samples"] = samples(latency_ns * (1 + number / 20))
    return raw


def volume(reads: float = OVERCOUNTED) -> dict[str, Any]:
    """Return the recorded triads with made counters, which count *reads* for each byte that is read."""
    raw: dict[str, Any] = json.loads(RECORDED["counted_volume"].read_text(encoding="utf-8"))
    known = raw["result"]["known"]
    for repeat in raw["result"]["repeats"]:
        lines = known["read_bytes"] / 64
        found = memory("dram.reads", lines * reads / OVERCOUNTED, repeat["seconds"], None)
        found += memory("dram.writes", known["written_bytes"] / 64, repeat["seconds"], None)
        found.append(event("core.offcore_reads", lines * (1 - PREFETCHED), repeat["seconds"], threads=2))
        refused = {
            "name": "link.bytes",
            "pmu": "uncore_qpi_0",
            "cpu": 0,
            "errno": "ENODEV",
            "reason": "made: the machine has no such link",
        }
        repeat["counters"] = {"background_s": 1.0, "events": found, "refused": [refused]}
    return raw


def measured(raw: dict[str, Any], identifier: str, prefetchers: Literal["off"] | None = None) -> list[Measurement]:
    """Return the measurements in the made document *raw*."""
    raw["build"]["version"] += " with made counts"
    document = read_document(raw)
    return parsed_measurements(identifier, document, context(), prefetchers)


def counted_document(reads: float = OVERCOUNTED) -> RunDocument:
    """Return a run of the described machine with made counts, which count *reads* for each byte that triads read."""
    return run_document(names=(), profile="counters").model_copy(
        update={
            "context": CapturedContext(parsed=context(), capture="context.tar.gz", capture_sha256="ab" * 32),
            "facts": facts(context(), PROBE.sha256),
            "measurements": (
                *measured(volume(reads), "counted_volume"),
                *(
                    item
                    for prefetchers in (None, "off")
                    for threads, name in ((1, "regulation"), (2, "regulation-2"))
                    for item in measured(
                        regulated(name, prefetchers=prefetchers is None),
                        f"regulation-{threads}{'' if prefetchers is None else '-off'}",
                        prefetchers,
                    )
                ),
            ),
        }
    )
