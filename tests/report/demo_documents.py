# SPDX-License-Identifier: Apache-2.0
"""Make the documents that ``calibration demo`` varies: ``python -m tests.report.demo_documents``.

Plan and documents are the harness's own, of a made server of two sockets with 16 cores each and two nodes in each. Of
what sutprobe once recorded, the form stays, and the numbers become those that such a server would have.
"""

import gzip
import json
import random
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from calibration.context.facts import facts
from calibration.context.model import Context, Dimm
from calibration.demo.lab import BASES, DOCUMENTS, Base
from calibration.measurements.base import Step
from calibration.results.model import RunDocument
from tests.machines import Machine, answer
from tests.report.made_lab import document_of

SERVER: Final = Machine(cpus=32, cpu_nodes=4, memory_only_nodes=0, lines=8, threads=1, daemons=8, node_bytes=128 << 30)

PROFILE: Final = """\
title: A made night of a server
rounds: 6
measurements:
  jitter: {gap_s: 0.5, isolated: 2, housekeeping: false}
  wakeup: {loads: [none]}
  latency_ladder: {windows: 3, hops: 10000, points_per_octave: 2}
  latency_matrix: {windows: 5, hops: 30000}
  idle_latency: {windows: 5}
  bandwidth_matrix: {windows: 5, window_s: 0.03}
  peak_injection_bandwidth: {windows: 4, window_s: 0.03, plain_mixes: []}
  loaded_latency: {windows: 3, window_s: 0.03, delays: [0, 20000]}
not_measured: {}
"""
"""What a night of the demo measures: one of each group of metrics, so that a month of nights stays small."""

LOCAL_NS: Final = 98.0
"""Latency of a node's own memory."""
NODE_MB_S: Final = 131_000.0
"""Read bandwidth of a node of four channels of DDR5-4800: 85 % of the theoretical peak."""
FAR_MB_S: Final = 52_000.0
"""Read bandwidth from the other socket."""
CHAIN_BYTES: Final = 1 << 30
MIXES: Final[Mapping[str, float]] = {"reads": 1.0, "3:1": 0.93, "2:1": 0.91, "1:1": 0.87, "stream_triad": 0.9}
"""Share of the read bandwidth."""
LOADS: Final = (
    (0, 0.0, 1.0),
    (20000, 13323.0, 0.006),
    (105, 76.0, 0.26),
    (50, 36.6, 0.51),
    (28, 20.5, 0.75),
    (20, 14.6, 0.91),
)
"""Delay, delay in ns and share of the peak of each point of the load: those that the recorded search chose."""
LADDER_NS: Final = (
    (48 << 10, 1.236),
    (850 << 10, 3.87),
    (1500 << 10, 9.0),
    (26 << 20, 16.4),
    (40 << 20, 48.0),
    (80 << 20, 94.0),
)
"""Latency up to each size of the working set."""
LOST_MODULE: Final = ("1", 0.75)
"""The node that has lost one of its four modules, and what is left of its bandwidth."""
MAX_THREADS: Final = 40
"""Threads that are kept: all others are alike, and each is stored every night."""
WINDOWS: Final = re.compile(r"(windows|program_windows|per_thread|windows_ns)_(ns|mb_s|start|middle|end)")


def shaped(base: Base, step: Step) -> dict[str, Any]:
    """Return sutprobe's document for *step* on the server of *base*."""
    answered = json.loads(json.dumps(answer(step)))  # its points share what they have in common
    chance = random.Random(step.id)
    result = answered["result"]
    if step.kind == "wakeup":
        result["conditions"] = result["conditions"][:1]
    if step.kind == "latency_ladder":
        result["points"] = result["points"][::2]
    if step.kind == "loaded_latency" and "points" in result:
        result["points"] = result["points"][: len(LOADS)]
    if step.kind == "jitter":
        for cpu in result["cpus"]:
            _quiet(cpu)
    for number, point in enumerate(result.get("points", ())):
        if step.kind == "loaded_latency":
            point["inject_delay"], point["delay_ns"], share = LOADS[number]
            target = {"mb_s": share * 4 * NODE_MB_S * _left(base), "ns": LOCAL_NS * (1 + 0.08 * share + 0.5 * share**6)}
        else:
            target = TARGETS.get(step.kind, lambda *_: {})(base, point)
        _set(point, target, chance)
    if step.kind == "loaded_latency":
        for zero in result.get("zero_load", ()):
            _set(zero, {"ns": LOCAL_NS}, chance)
    return answered


def _set(value: Any, target: Mapping[str, float], chance: random.Random) -> None:
    """Give every window below *value* the value of *target* in its unit, with a little noise."""
    if isinstance(value, list):
        for item in value:
            _set(item, target, chance)
    if not isinstance(value, dict):
        return
    for name, item in value.items():
        if WINDOWS.fullmatch(name):
            wanted = target.get("mb_s" if name.endswith("mb_s") else "ns")
            if wanted is not None:
                share = len(item) if name.startswith("per_thread") else 1
                value[name] = [wanted / share * chance.gauss(1, 0.0015) for _ in item]
        else:
            _set(item, target, chance)
    if "program_windows_mb_s" in value:
        value["program_windows_mb_s"] = list(value["windows_mb_s"])


def _left(base: Base, nodes: int = 4) -> float:
    """Return what the lost module leaves of the bandwidth of *nodes* nodes."""
    return 1 - (1 - LOST_MODULE[1]) / nodes if base == "lost_module" else 1.0


def _chase(_base: Base, point: dict[str, Any]) -> dict[str, float]:
    point |= {"size_bytes": CHAIN_BYTES, "touched_bytes": CHAIN_BYTES, "chain_nodes": CHAIN_BYTES // 64}
    own, node = SERVER.node_of(point["cpu"]), point["nodes"][0]
    near = own // 2 == node // 2
    return {"ns": LOCAL_NS if own == node else 106.0 if near else 168.0 + 3 * (abs(own - node) % 2)}


def _ladder(_base: Base, point: Mapping[str, Any]) -> dict[str, float]:
    return {"ns": next((latency for size, latency in LADDER_NS if point["size_bytes"] <= size), LOCAL_NS)}


def _traffic(base: Base, point: Mapping[str, Any]) -> dict[str, float]:
    parts = point["group"].split("+")
    nodes = [int(part.partition("@")[2]) for part in parts]
    total = 0.0
    for node in nodes:
        near = any(SERVER.node_of(cpu) // 2 == node // 2 for cpu in point["cpus"])
        left = LOST_MODULE[1] if base == "lost_module" and str(node) == LOST_MODULE[0] else 1.0
        total += (NODE_MB_S if near else FAR_MB_S) * left
    return {"mb_s": total * MIXES.get(point["mix"], 0.85)}


TARGETS: Final[Mapping[str, Callable[[Base, dict[str, Any]], Mapping[str, float]]]] = {
    "latency_matrix": _chase, "idle_latency": _chase, "latency_ladder": _ladder, "bandwidth_matrix": _traffic,
    "peak_injection_bandwidth": _traffic,
}  # fmt: skip


def _quiet(cpu: dict[str, Any]) -> None:
    """Make of the gaps of a busy guest those of an isolated CPU."""
    gaps = cpu["gaps"]
    for rate in gaps["rates_per_s"]:
        rate["rate"] /= 500
    for row in gaps["histogram"]:
        row["count"] = -(-row["count"] // 500)
    for row in gaps["quantiles"]:
        row["gap_ns"] = max(row["gap_ns"] / 20, gaps["threshold_ns"])
    for row in gaps["longest"]:
        row["length_ns"] /= 20
    gaps |= {"count": gaps["count"] // 500, "max_ns": gaps["max_ns"] / 20, "periods": []}
    gaps["interference"]["interrupts"] = {"LOC": 12}
    gaps |= {"lost_ns": gaps["lost_ns"] / 2000, "lost_fraction": gaps["lost_fraction"] / 2000, "slices": []}
    for interval in (cpu["pma"] or {}).get("intervals", ()):
        low = interval["abs_min_cycles"] = interval["inst_min_cycles"] = 120_000
        interval |= {"inst_max_cycles": low + 9000 + 7 * interval["sample"], "abs_max_cycles": low + 9500}
        interval |= {"inst_jitter_cycles": interval["inst_max_cycles"] - low, "last_exec_cycles": low + 100}


def dimms(base: Base) -> tuple[Dimm, ...]:
    """Return the sixteen slots of the server; of *lost_module*, one is empty to the firmware."""
    return tuple(
        Dimm(
            locator=f"P{socket}_DIMM_{channel}1", bank=f"P{socket}_Node{number // 4}_Channel{number % 4}_Dimm0",
            size_bytes=0 if base == "lost_module" and (socket, channel) == (0, "F") else 32 << 30,
            type="DDR5", form_factor="DIMM", data_width_bits=64, total_width_bits=80, ranks=2, speed_mt_s=4800,
            configured_mt_s=4800, manufacturer="Demo", part="DEMO-32G",
        )
        for socket in (0, 1) for number, channel in enumerate("ABCDEFGH")
    )  # fmt: skip


def document(base: Base) -> RunDocument:
    """Return the document of a night of the server of *base*."""
    with tempfile.TemporaryDirectory(prefix="calibration-demo-") as folder:
        profile = Path(folder, "demo.yml")
        profile.write_text(PROFILE, encoding="utf-8")
        made = document_of(SERVER, str(profile), lambda step: shaped(base, step))
    if made.context is None or made.run.probe is None:
        raise TypeError("a made run has a context and a probe")
    context: Context = made.context.parsed
    firmware = context.firmware.model_copy(
        update={
            "bios_vendor": "Demo", "bios_version": "demo-2.1", "bios_date": "01/02/2026", "system_vendor": "Demo",
            "product_name": "made by calibration demo, not measured", "dimms": dimms(base),
        }
    )  # fmt: skip
    threads = context.isolation.threads
    isolation = context.isolation.model_copy(update={"threads": threads and threads[:MAX_THREADS]})
    nodes = tuple(
        node.model_copy(update={"memory_bytes": 96 << 30})
        if base == "lost_module" and str(node.id) == LOST_MODULE[0]
        else node
        for node in context.nodes
    )
    parsed = context.model_copy(update={"firmware": firmware, "isolation": isolation, "nodes": nodes})
    captured = made.context.model_copy(update={"parsed": parsed})
    changed = made.model_copy(update={"context": captured, "facts": facts(parsed, made.run.probe.sha256)})
    text = changed.model_dump_json()
    for old, new in (("Made Processor 8490H", "Demo Processor 8416"), ("t4-sut1", "demo-sut")):
        text = text.replace(old, new)
    raw = json.loads(text)
    raw["run"] |= {"testbed": "demo", "sut": "sut"}
    return RunDocument.model_validate_json(json.dumps(raw))


def main() -> None:
    """Write the documents into the package."""
    for base in BASES:
        packed = gzip.compress(document(base).model_dump_json().encode(), 9, mtime=0)
        (DOCUMENTS / f"{base}.json.gz").write_bytes(packed)


if __name__ == "__main__":
    main()
