# SPDX-License-Identifier: Apache-2.0
"""A whole nightly run of a server that nobody has at hand: two packages of 64 cores, eight nodes, sixteen memory slots.

The plan is the real one for its capture, the answers have the form that ``sutprobe`` prints, and the real assembler
makes the document of them. The figures follow a small model of the machine (:class:`Server`) with seeded noise: what is
slow, disturbed or contradictory is so because it was asked for.
"""

import gzip
import io
import json
import random
import struct
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import product
from math import exp
from pathlib import Path
from typing import Any

from calibration.cpulists import format_cpulist, parse_cpulist
from calibration.lifecycle import begin, finish
from calibration.measurements.base import Step
from calibration.measurements.traffic import Part, read_group
from calibration.results.attempts import record_kernels
from calibration.results.model import RunDocument
from calibration.results.records import EndRecord, append_record
from tests.machines import CPU, NODE, RECORDED, Machine
from tests.report.made_documents import KERNELS, record_answer

STARTED = datetime(2026, 1, 2, 1, 0, 0, tzinfo=UTC)
RUN_ID = "20260102T010000Z-0a1b"
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
DIMM_BYTES = 64 * GIB
MT_S = 4800
TSC_HZ = 2.4e9
NOISY_CPU = 37
"""Its interrupt takes 0.3 % of its time."""

NOISY = {(6, 2): 0.02, (2, 7): 0.06}
"""Relative deviation of the placements of a pair of nodes, CPUs' first."""

BIMODAL = (3, 6)

CACHE_BYTES = (32 * KIB, MIB, 32 * MIB)
CACHE_NS = (1.1, 3.8, 12.5)
CACHE_MB_S = (190e3, 105e3, 46e3)
"""Reads of one thread by level."""

CORE_MB_S = 26e3
"""Reads from memory of one thread alone on its node."""

EFFICIENCY = {"reads": 0.88, "3:1": 0.82, "2:1": 0.80, "1:1": 0.77, "stream_triad": 0.78}
"""Share of the theoretical peak by mix, in the best shape."""

LINK_MB_S = 368e3
"""What the CPUs of all nodes together get from the other package."""

CLOCKS_HZ = {
    ("scalar", "alone"): 3.70e9,
    ("scalar", "all"): 3.25e9,
    ("avx2", "alone"): 3.66e9,
    ("avx2", "all"): 3.10e9,
    ("avx512", "alone"): 3.40e9,
    ("avx512", "all"): 2.75e9,
}

INTEL = {
    "intel_pstate\n": "amd-pstate-epp\n",
    "intel_idle\n": "acpi_idle\n",
    "3500000\n": "3700000\n",
    "1900000\n": "2450000\n",
}
"""What the larger machines' files say, and what this one's do."""

QUIET: dict[str, Any] = {
    "involuntary_switches": 0,
    "voluntary_switches": 0,
    "minor_faults": 0,
    "major_faults": 0,
    "steal_ms": 0,
    "interrupts": {"LOC": 2},
    "softirqs": {},
    "smi": 0,
    "core_throttle": 0,
    "package_throttle": 0,
    "pages_migrated": 0,
}


@dataclass(frozen=True)
class Server(Machine):
    """The machine and what is wrong with it.

    *empty_slot* leaves a node (5 of 8) one memory channel less, *interrupt* lets one isolated CPU serve a disk,
    *unsteady* makes two pairs of nodes noisy and one bimodal, *contradiction* makes the idle latency differ from that
    of the same place in the latency ladder.
    """

    cpus: int = 128
    cpu_nodes: int = 8
    memory_only_nodes: int = 0
    lines: int = 260
    threads: int = 1
    empty_slot: bool = True
    interrupt: bool = True
    unsteady: bool = True
    contradiction: bool = False
    microcode: str = "0xa10113e"
    slots: int = 16
    empty_slot_index: int = 11

    @property
    def isolated_cpus(self) -> str:
        """All CPUs but the first core of each package."""
        return format_cpulist(cpu for cpu in range(self.cpus) if self.core_of(cpu) % (self.cores // 2))

    def channels(self, node: int) -> int:
        """Return how many memory channels of *node* are populated."""
        return self.slots // self.nodes - (self.empty_slot and node == self.empty_slot_index * self.nodes // self.slots)

    def peak_mb_s(self, node: int) -> float:
        """Return the theoretical peak of *node*."""
        return self.channels(node) * MT_S * 8.0

    def block(self, cpu: int) -> str:
        """Return what /proc/cpuinfo says of a CPU."""
        return (
            super()
            .block(cpu)
            .replace("GenuineIntel", "AuthenticAMD")
            .replace("Made Processor 8490H", "Made 9554 64-Core Processor")
            .replace("0x2b000603", self.microcode)
            .replace("constant_tsc", "sse2 avx2 fma avx512f constant_tsc")
        )

    def node_files(self, node: int) -> Iterator[tuple[str, str]]:
        """Yield a node's files."""
        total = self.channels(node) * DIMM_BYTES - GIB
        sizes = {"MemTotal": total, "MemFree": total - 2 * GIB, "FilePages": 0, "SReclaimable": 0}
        own = {
            f"{NODE}/node{node}/distance": " ".join(str(self.distance(node, other)) for other in range(self.nodes)),
            f"{NODE}/node{node}/meminfo": "\n".join(
                f"Node {node} {name}: {size >> 10} kB" for name, size in sizes.items()
            ),
        }
        for path, text in super().node_files(node):
            yield path, f"{own[path]}\n" if path in own else text

    def process_files(self, pid: int) -> Iterator[tuple[str, str]]:
        """Yield what a capture keeps of a process; daemons stay away from isolated CPUs."""
        for path, text in super().process_files(pid):
            if path.endswith("status"):
                yield path, text.replace(f"0-{self.cpus - 1}", f"0,{self.cores // 2}")

    def distance(self, node: int, other: int) -> int:
        """Return the distance of two nodes as firmware gives it."""
        return 10 if node == other else 12 if self.same_package(node, other) else 32

    def same_package(self, node: int, other: int) -> bool:
        """Return whether two nodes belong to one package."""
        return node * 2 // self.nodes == other * 2 // self.nodes

    def files(self) -> Iterator[tuple[str, str]]:
        """Yield the files by path, those of firmware and power among them."""
        for path, text in super().files():
            if "intel_pstate" not in path:
                yield path, INTEL.get(text, text)
        dmi = {
            "bios_vendor": "Made Firmware",
            "bios_version": "2.4",
            "bios_date": "10/01/2025",
            "sys_vendor": "Made Systems",
            "product_name": "Made Server 2x64",
            "board_vendor": "Made Systems",
            "board_name": "MB-2S",
        }
        for name, text in dmi.items():
            yield f"/sys/class/dmi/id/{name}", f"{text}\n"
        yield f"{CPU}/cpufreq/boost", "1\n"
        yield f"{CPU}/smt/control", "on\n" if self.threads > 1 else "off\n"
        yield f"{CPU}/vulnerabilities/meltdown", "Not affected\n"
        yield f"{CPU}/vulnerabilities/spectre_v2", "Mitigation: Enhanced / Automatic IBRS; IBPB: conditional\n"
        yield "/proc/sys/kernel/numa_balancing", "0\n"
        yield "/sys/kernel/mm/transparent_hugepage/defrag", "always defer defer+madvise [madvise] never\n"

    def archive(self) -> bytes:
        """Return the capture, byte for byte the same each time."""
        uname = {"sysname": "Linux", "nodename": "t4-sut1", "release": "6.1.0-13-amd64", "machine": "x86_64"}
        uname["version"] = "#1 SMP PREEMPT_DYNAMIC"
        capture = {
            "schema": "sut-context/1",
            "captured_at": f"{STARTED:%Y-%m-%dT%H:%M:%SZ}",
            "hostname": "t4-sut1",
            "uid": 0,
            "python_version": "3.11.2",
            "uname": uname,
            "uname_a": f"Linux t4-sut1 {uname['release']} {uname['version']} x86_64 GNU/Linux",
            "affinity": f"0-{self.cpus - 1}",
            "masked": [],
            "unreadable": [],
        }
        table = b"".join(
            smbios_slot(slot, empty=self.empty_slot and slot == self.empty_slot_index) for slot in range(self.slots)
        )
        content = {path: text.encode() for path, text in self.files()}
        content["/capture.json"] = json.dumps(capture).encode()
        content["/sys/firmware/dmi/tables/DMI"] = table + bytes([127, 4, 0, 0, 0, 0])
        packed = io.BytesIO()
        with (
            gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, compresslevel=1) as stream,
            tarfile.open(fileobj=stream, mode="w") as tar,
        ):
            for path, data in content.items():
                member = tarfile.TarInfo(path[1:])
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
        return packed.getvalue()

    def latency_ns(self, cpu: int, node: int) -> float:
        """Return the idle latency of memory of *node* from *cpu*."""
        own = self.node_of(cpu)
        if own == node:
            return 108.0
        steps = abs(own % (self.nodes // 2) - node % (self.nodes // 2))
        return 114 + 3.0 * steps if self.same_package(own, node) else 203 + 5.0 * steps

    def node_mb_s(self, parts: Sequence[Part], node: int, mix: str) -> float:
        """Return what threads of *parts*, all on memory of *node*, move together when they do nothing else."""
        rate = 0.0
        share = EFFICIENCY[mix] * self.peak_mb_s(node)
        full = EFFICIENCY["reads"] * self.slots // self.nodes * MT_S * 8
        for part in parts:
            cores = len({self.core_of(cpu) for cpu in part.cpus})
            own = self.node_of(part.cpus[0])
            limit = (
                share
                if own == node
                else 0.97 * share
                if self.same_package(own, node)
                else min(LINK_MB_S / self.nodes, share)
            )
            rate += limit * (1 - exp(-1.25 * cores * CORE_MB_S / full))
        return min(rate, share)

    def transfer_ns(self, writer: int, reader: int) -> float:
        """Return the latency of a modified line from the cache of *writer*."""
        own, other = self.node_of(writer), self.node_of(reader)
        if self.core_of(writer) == self.core_of(reader):
            return 9.0
        if self.core_of(writer) // 8 == self.core_of(reader) // 8:
            return 26.0
        if own == other:
            return 88.0
        steps = abs(own % (self.nodes // 2) - other % (self.nodes // 2))
        return 101 + 4.0 * steps if self.same_package(own, other) else 207 + 4.0 * steps


def smbios_slot(slot: int, *, empty: bool) -> bytes:
    """Return a structure of type 17 (DSP0134 7.18): slots A1 to H1 of two packages."""
    area = bytearray(0x5C)
    package, channel = divmod(slot, 8)
    area[0x00], area[0x01] = 17, 0x5C
    struct.pack_into("<HHH", area, 0x08, 80, 64, 0 if empty else 0x7FFF)
    area[0x0E], area[0x10], area[0x11], area[0x12] = 9, 1, 2, 2 if empty else 0x22
    texts = [f"P{package + 1}-DIMM{'ABCDEFGH'[channel]}1", f"P{package}_Node0_Channel{channel}_Dimm0"]
    if not empty:
        struct.pack_into("<H", area, 0x15, MT_S)
        area[0x17], area[0x1A], area[0x1B] = 3, 4, 2
        struct.pack_into("<I", area, 0x1C, DIMM_BYTES >> 20)
        struct.pack_into("<H", area, 0x20, MT_S)
        texts += ["Made Memory", "MM-64"]
    return bytes(area) + b"".join(text.encode() + b"\0" for text in texts) + b"\0"


def _rises(size: float, at: float) -> float:
    """Return the share of loads that miss a cache of *at* bytes with a working set of *size*."""
    return (size / at) ** 16 / (1 + (size / at) ** 16)


def _by_level(size: float, levels: Sequence[float], memory: float) -> float:
    """Return what is seen of *levels* and *memory*, per level, at a working set of *size* bytes."""
    seen = levels[0]
    for at, below, above in zip(CACHE_BYTES, levels, (*levels[1:], memory), strict=True):
        seen += (above - below) * _rises(size, at * 1.1)
    return seen


ACCOUNTING = {
    point["mix"]: point["accounting"]
    for point in json.loads((RECORDED / "max_bandwidth.json").read_text())["result"]["points"]
}


class Answers:
    """What ``sutprobe`` prints on *server*, step by step, with noise by *seed*."""

    step: Step
    chance: random.Random

    def __init__(self, server: Server, seed: int) -> None:
        self.server = server
        self.seed = seed

    def answer(self, step: Step, started: datetime) -> dict[str, Any]:
        """Return the document that *step* prints."""
        self.step, self.chance = step, random.Random(f"{self.seed}/{step.id}")
        parameters: dict[str, Any] = {}
        for name, value in zip(step.argv[2:], step.argv[3:], strict=False):
            if name.startswith("--"):
                parameters.setdefault(name[2:].replace("-", "_"), []).append(_number(value))
        repeated = {"at", "group", "pair", "all_pairs", "probe", "companion"}
        single = {name: found if name in repeated else found[0] for name, found in parameters.items()}
        for name in ("mix", "streams", "prefetch_bytes", "size_bytes", "stride_bytes", "order", "delay", "work"):
            if name in single and not (name == "mix" and step.argv[1] == "loaded"):
                single[name] = [_number(part) for part in str(single[name]).split(",")]
        result = {
            "jitter": self.jitter,
            "frequency": self.frequency,
            "latency": self.latency,
            "bandwidth": self.bandwidth,
            "loaded": self.loaded,
            "c2c": self.transfers,
        }[step.argv[1]](single)
        return {
            "schema": "sutprobe/1",
            "subcommand": step.argv[1],
            "argv": list(step.argv),
            "build": {
                "version": KERNELS.version,
                "target": "x86_64-linux-musl",
                "compiler": KERNELS.compiler,
                "flags": KERNELS.flags,
                "source_sha256": KERNELS.source_sha256,
            },
            "status": "ok",
            "error": None,
            "host": {"nodename": "t4-sut1", "release": "6.1.0-13-amd64", "machine": "x86_64"},
            "started_at_unix_ns": int(started.timestamp() * 1e9),
            "duration_s": step.expected_duration_s,
            "clock": {
                "source": "tsc",
                "hz": TSC_HZ,
                "hz_uncertainty_ppm": 0.02,
                "invariant": True,
                "read_cost_ns": 17.5,
                "resolution_ns": 1e9 / TSC_HZ,
                "reason": None,
            },
            "warnings": [],
            "parameters": single,
            "result": result,
        }

    def noisy(self, value: float, deviation: float) -> float:
        """Return *value* with noise of that relative deviation."""
        return float(f"{value * (1 + self.chance.gauss(0, deviation)):.9g}")

    def level(self, value: float, deviation: float, pair: tuple[int, int] | None, number: int) -> float:
        """Return the level of placement *number* of a pair of nodes, by what is unsteady; ``None`` is no pair."""
        if self.server.unsteady and pair == BIMODAL and number % 2:
            value *= 1.08
        return self.noisy(value, NOISY.get(pair, deviation) if self.server.unsteady and pair else deviation)

    def windows(self, value: float, count: int, deviation: float) -> list[float]:
        """Return so many windows of one placement around *value*."""
        return [self.noisy(value, deviation) for _ in range(count)]

    def evidence(self, pages: int, *, clock_hz: float = 3.70e9) -> dict[str, Any]:
        """Return what stands beside the figures of a placement with *pages* of base size."""
        return {
            "seed": self.chance.getrandbits(48),
            "pages": {
                "wanted": "auto",
                "obtained": "thp",
                "base_bytes": 4096,
                "huge_bytes": 2 * MIB,
                "huge_fraction": 1,
                "total": pages,
                "checked": pages,
                "on_node": pages,
                "elsewhere": 0,
            },
            "cpus_verified": True,
            "core_hz_before": self.noisy(clock_hz, 2e-4),
            "core_hz_after": self.noisy(clock_hz, 2e-4),
            "interference": QUIET,
        }

    def latency(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Return the points of a chase."""
        points = []
        places = [(int(cpu), tuple(map(int, nodes.split("+")))) for cpu, _, nodes in map(_split, asked["at"])]
        copies = len(places) if "--together" in self.step.argv else 1
        for (cpu, nodes), size, stride, order in product(
            places, asked["size_bytes"], asked["stride_bytes"], asked["order"]
        ):
            if stride > size:
                continue
            memory = sum(self.server.latency_ns(cpu, node) for node in nodes) / len(nodes) * (1 + 0.012 * (copies - 1))
            levels: Sequence[float] = CACHE_NS
            if order != "random":  # prefetchers follow it, less so the longer the stride
                memory *= min(1.0, 0.055 * (stride / 64) ** 0.9)
                levels = (1.1, 2.1, 4.2)
            value = _by_level(size, levels, memory)
            if self.step.id == "idle_latency" and self.server.contradiction:
                value *= 1.3
            pages = max(1, size // 4096)
            pair = (self.server.node_of(cpu), nodes[0]) if self.step.kind == "latency_matrix" else None
            placements = []
            for number in range(asked["placements"]):
                level = self.level(value, 0.0015, pair, number)
                awake = level * (0.985 if size > CACHE_BYTES[-1] else 1.0)
                proof = self.evidence(pages)
                placement = {
                    **proof,
                    "pages_by_node": [pages // len(nodes)] * len(nodes),
                    "windows_ns": self.windows(level, asked["windows"], 0.001),
                    "dirty_windows": [],
                }
                if "companion" in asked:
                    placement["awake"] = {
                        "first": False,
                        "windows_ns": self.windows(awake, asked["windows"], 0.001),
                        "dirty_windows": [],
                        "core_hz_before": proof["core_hz_before"],
                        "core_hz_after": proof["core_hz_after"],
                        "cpu_verified": True,
                        "interference": QUIET,
                        "companions": [
                            {"cpu": int(other), "node": int(node), "mb_s": self.noisy(310, 0.01)}
                            for other, _, node in map(_split, asked["companion"])
                        ],
                    }
                placements.append(placement)
            points.append(
                {
                    "cpu": cpu,
                    "nodes": list(nodes),
                    "copies": copies,
                    "size_bytes": size,
                    "stride_bytes": stride,
                    "line_bytes": 64,
                    "order": order,
                    "chain_nodes": size // stride,
                    "touched_bytes": size,
                    "chain_proved": True,
                    "hops_per_window": asked["hops"],
                    "order_check": None,
                    "loop_overhead_ns": 1.1,
                    "stopped": "placements",
                    "error": None,
                    "placements": placements,
                }
            )
        return {"points": points}

    def moved_mb_s(self, parts: Sequence[Part], mix: str, buffer_bytes: int, shape: tuple[int, int]) -> float:
        """Return what threads of *parts* move together, each with buffers of *buffer_bytes*."""
        by_node: dict[int, list[Part]] = {}
        for part in parts:
            by_node.setdefault(part.node, []).append(part)
        memory = sum(self.server.node_mb_s(own, node, mix) for node, own in by_node.items())
        memory *= 0.965 if shape == (1, 0) else 0.985 if shape[1] == 512 or shape[0] in {1, 8} else 1.0
        threads = sum(len(part.cpus) for part in parts)
        sharers = min(8 * self.server.threads, max(len(part.cpus) for part in parts))
        seen = CACHE_MB_S[0]
        limits = (*CACHE_BYTES[:2], CACHE_BYTES[2] // sharers)
        for at, below, above in zip(limits, CACHE_MB_S, (*CACHE_MB_S[1:], memory / threads), strict=True):
            seen += (above - below) * _rises(buffer_bytes, at * 1.1)
        return seen * threads

    def bandwidth(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Return the points of traffic: all settings, and in a search the best of each mix again."""
        sizes = [int(part) for part in str(asked["buffer_bytes"]).split(",")]
        search = "keep_best" in asked
        settings = list(
            product(asked["group"], asked["mix"], sizes, asked["streams"], asked.get("prefetch_bytes", [0]))
        )
        points = [self.traffic(asked, setting, "scan" if search else "full") for setting in settings]
        if search:
            best: dict[str, tuple[float, tuple[Any, ...]]] = {}
            for setting, point in zip(settings, points, strict=True):
                rate = point["placements"][0]["windows_mb_s"][0]
                if rate > best.get(point["mix"], (0.0, setting))[0]:
                    best[point["mix"]] = (rate, setting)
            points += [self.traffic(asked, setting, "full") for _, setting in best.values()]
        return {"points": points}

    def traffic(self, asked: dict[str, Any], setting: tuple[Any, ...], phase: str) -> dict[str, Any]:
        """Return one point of traffic."""
        group, mix, size, streams, prefetch = setting
        parts = read_group(group)
        size = int(group.partition(":")[2] or size)
        cpus = [cpu for part in parts for cpu in part.cpus]
        value = self.moved_mb_s(parts, mix, size, (streams, prefetch))
        accounting = ACCOUNTING[mix]
        wasted = accounting["program_bytes_per_step"] / accounting["model_dram_bytes_per_step"]
        course = self.step.kind == "sustained_bandwidth"
        pair = (self.server.node_of(cpus[0]), parts[0].node) if self.step.kind == "bandwidth_matrix" else None
        placements = []
        for number in range(1 if phase == "scan" else asked["placements"]):
            level = self.level(value, 0.002, pair, number)
            windows = self.windows(level, asked["windows"], 0.0015)
            if course:
                windows = [window * (1 - 0.006 * (1 - exp(-number / 30))) for number, window in enumerate(windows)]
            each = level / len(cpus)
            placement = {
                **self.evidence(len(cpus) * max(1, size // 4096), clock_hz=3.25e9 if len(cpus) > 8 else 3.70e9),
                "windows_mb_s": windows,
                "program_windows_mb_s": [window * wasted for window in windows],
                "per_thread_mb_s": self.windows(each, len(cpus), 0.01),
            }
            if course:
                placement["course"] = self.course(asked)
            placements.append(placement)
        return {
            "group": group,
            "cpus": cpus,
            "nodes": [part.node for part in parts],
            "mix": mix,
            "streams": streams,
            "prefetch_bytes": prefetch,
            "width": "avx512" if asked["width"] == "auto" else asked["width"],
            "delay": 0,
            "buffer_bytes": size,
            "phase": phase,
            "threads": len(cpus),
            "accounting": accounting,
            "checked": True,
            "start_skew_ns": 180.0 if len(cpus) > 1 else 0.0,
            "stopped": "placements",
            "error": None,
            "placements": placements,
        }

    def course(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Return clock, energy and temperature, second by second."""
        seconds = round(asked["windows"] * asked["window_s"])
        return {
            "sources": [
                {"kind": "clock", "name": "cpu0", "unit": "Hz"},
                {"kind": "energy", "name": "package-0", "unit": "J"},
                {"kind": "energy", "name": "package-1", "unit": "J"},
                {"kind": "temperature", "name": "k10temp Tctl", "unit": "degC"},
            ],
            "readings": [
                {
                    "s": float(second),
                    "values": [
                        self.noisy(3.25e9 - 2e6 * second, 1e-4),
                        self.noisy(278.0 * second, 0.002),
                        self.noisy(271.0 * second, 0.002),
                        round(52 + 9 * (1 - exp(-second / 4)), 1),
                    ],
                }
                for second in range(seconds + 1)
            ],
            "unreadable": [],
        }

    def loaded(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Return the sweep: each node's latency climbs as its load comes near to what its channels carry."""
        parts = read_group(asked["load"])
        probes = [(int(cpu), int(node)) for cpu, _, node in map(_split, asked["probe"])]
        cores = {part.node: len({self.server.core_of(cpu) for cpu in part.cpus}) for part in parts}
        points = []
        for delay in asked["delay"]:
            moved, probed = 0.0, []
            for part, (cpu, node) in zip(parts, probes, strict=True):
                limit = self.server.node_mb_s([part], node, asked["mix"])
                wanted = cores[node] * CORE_MB_S / (1 + delay / 21)
                used = (wanted**-6 + limit**-6) ** (-1 / 6)  # the smaller one, with a soft corner
                queue = min(used / limit, 0.996)
                latency = self.server.latency_ns(cpu, node) * (1 + 0.10 * queue / (1 - 0.965 * queue))
                moved += used
                probed.append((cpu, node, latency))
            placements = [
                {
                    **self.evidence(len(self.step.cpus) * asked["buffer_bytes"] // 4096, clock_hz=3.25e9),
                    "windows_mb_s": self.windows(self.noisy(moved, 0.002), asked["windows"], 0.0015),
                    "probes": [
                        {
                            "cpu": cpu,
                            "node": node,
                            "windows_ns": self.windows(self.noisy(latency, 0.004), asked["windows"], 0.003),
                            "probe_mb_s": 64e3 / latency,
                        }
                        for cpu, node, latency in probed
                    ],
                }
                for _ in range(asked["placements"])
            ]
            points.append(
                {
                    "inject_delay": delay,
                    "delay_ns": delay / 3.25,
                    "accounting": ACCOUNTING[asked["mix"]],
                    "checked": True,
                    "stopped": "placements",
                    "error": None,
                    "placements": placements,
                }
            )
        idle = [
            {
                "cpu": cpu,
                "node": node,
                **{
                    f"windows_ns_{when}": self.windows(self.server.latency_ns(cpu, node), 18, 0.002)
                    for when in ("start", "middle", "end")
                },
            }
            for cpu, node in probes
        ]
        return {"points": points, "zero_load": idle}

    def transfers(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Return pairs, one by one or as a matrix."""
        method = asked.get("method", "transfer")
        pairs, cells = [], []
        for text in asked.get("pair", ()):
            cpus, home, state = text.split(":")
            writer, reader = map(int, cpus.split("@"))
            pairs.append(self.transfer(asked, (writer, reader), int(home), state, method))
        for block in asked.get("all_pairs", ()):
            writers, _, readers = block.partition(":")[0].partition("@")
            for writer, reader in product(parse_cpulist(writers), parse_cpulist(readers or writers)):
                if writer != reader:
                    state = "hitm" if method == "transfer" else None
                    home = self.server.node_of(writer)
                    cells.append(self.transfer(asked, (writer, reader), home, state, method))
        for cell in cells:
            cell["evidence"] = self.evidence(512)
            cell["placements"] = [placement["windows_ns"] for placement in cell["placements"]]
        cells = list({(cell["writer"], cell["reader"]): cell for cell in cells}.values())
        estimate = {
            "pairs": len(cells),
            "measured_on": 1,
            "pair_s": 0.012,
            "expected_s": 0.012 * len(cells),
            "budget_s": asked.get("matrix_budget_s", 0),
            "chosen": len(cells),
        }
        return {
            "pairs": pairs,
            "estimate": estimate if cells else None,
            "cells": cells,
            "not_measured": [],
            "interference": QUIET if cells else None,
        }

    def transfer(
        self, asked: dict[str, Any], cpus: tuple[int, int], home: int, state: str | None, method: str
    ) -> dict[str, Any]:
        """Return one pair."""
        writer, reader = cpus
        value = self.server.transfer_ns(writer, reader) * (1.9 if method == "pingpong" else 1.0)
        value *= 0.9 if state == "hit" else 1.0
        value *= 1.0 if home in {self.server.node_of(writer), None} else 1.06
        return {
            "writer": writer,
            "reader": reader,
            "home": home,
            "state": state,
            "method": method,
            "lines": 1024,
            "checked": True,
            "stopped": "converged",
            "error": None,
            "placements": [
                {**self.evidence(512), "windows_ns": self.windows(self.noisy(value, 0.006), asked["windows"], 0.006)}
                for _ in range(asked["placements"])
            ],
        }

    def frequency(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Return the clock of each core: cores behind one cache are alike."""
        points = []
        everyone, alone = parse_cpulist(str(asked["cpus"])), parse_cpulist(str(asked["alone_cpus"]))
        for work, active in product(asked["work"], str(asked["active"]).split(",")):
            for cpu in everyone if active == "all" else alone:
                lot = random.Random(f"{self.seed}/{cpu // 8}").gauss(0, 0.0025)
                value = CLOCKS_HZ[(work, active)] * (1 + (lot if active == "all" else lot / 4))
                value = self.noisy(value, 4e-4)
                points.append(
                    {
                        "cpu": cpu,
                        "active": active,
                        "active_cpus": len(everyone) if active == "all" else 1,
                        "work": work,
                        "cpu_verified": True,
                        "checked": True,
                        "stopped": "converged",
                        "error": None,
                        "windows_hz": self.windows(value, asked["windows"], 1e-4),
                        "share": 0.9998,
                        "windows_share": [0.9998] * asked["windows"],
                        "dirty_windows": [],
                        "lost_windows": 0,
                        "chain_ratio": None if work == "scalar" else 0.9991,
                        "interference": QUIET,
                    }
                )
        return {"points": points}

    def jitter(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Return both views of each CPU: those that are not isolated tick, one serves a disk, the others are quiet."""
        isolated = set(parse_cpulist(self.server.isolated_cpus))
        return {"cpus": [self.disturbed(cpu, cpu in isolated, asked) for cpu in self.step.cpus]}

    def disturbed(self, cpu: int, isolated: bool, asked: dict[str, Any]) -> dict[str, Any]:
        """Return both views of one CPU, made of a list of its gaps."""
        wall_s = float(asked["gap_s"])
        sources = (
            [("LOC", 1.0, 1400.0, 0.25), ("RES", 0.08, 4800.0, 0.5)]
            if isolated
            else [
                ("LOC", 250.0, 3300.0, 0.35),
                ("RES", 40.0, 9000.0, 0.9),
            ]
        )
        if cpu == NOISY_CPU and self.server.interrupt:
            sources.append(("217", 1180.0, 2500.0, 0.18))
        gaps = sorted(
            (
                (self.chance.uniform(0, wall_s * 1e9), length * exp(self.chance.gauss(0, spread)), source)
                for source, rate, length, spread in sources
                for _ in range(max(1, round(rate * wall_s * self.chance.uniform(0.97, 1.03))))
            ),
            key=lambda source: -source[1],
        )
        lengths = [length for _, length, _ in gaps]
        lost_ns = sum(lengths)
        count = len(gaps)
        interrupts = {source: sum(gap[2] == source for gap in gaps) for source, *_ in sources}
        return {
            "cpu": cpu,
            "cpu_verified": True,
            "pma": self.executions(lengths, wall_s, asked),
            "gaps": {
                "stopped": "time",
                "rate_half_width": min(1.0, 1.96 / count**0.5),
                "wall_s": wall_s,
                "turns": int(wall_s * 1.1e8),
                "turn_ns": {"min": 8.75, "median": 9.17},
                "threshold_ns": 200.0,
                "coverage_fraction": 0.99998,
                "backward_steps": 0,
                "count": count,
                "max_ns": lengths[0],
                "lost_ns": lost_ns,
                "lost_fraction": lost_ns / (wall_s * 1e9),
                "histogram": _histogram(lengths),
                "rates_per_s": [
                    {"threshold_ns": limit, "rate": sum(length >= limit for length in lengths) / wall_s}
                    for limit in (200, 500, *(step * 10**power for power in (3, 4, 5, 6) for step in (1, 2, 5)), 1e7)
                ],
                "quantiles": [
                    {"time_fraction": 1 - 10.0**-power, "gap_ns": _quantile(lengths, wall_s * 1e9 * 10.0**-power)}
                    for power in range(1, 8)
                ],
                "longest": [{"at_ns": when, "length_ns": length} for when, length, _ in gaps[:20]],
                "ring_full": False,
                "periods": [] if isolated else [_period(lengths, wall_s)],
                "attribution": {
                    "slices": 150,
                    "slice_s": wall_s / 150,
                    "gaps": count,
                    "lost_ns": lost_ns,
                    "sources": [
                        {
                            "source": source,
                            "kind": "interrupt",
                            "count": interrupts[source],
                            "rate_per_s": interrupts[source] / wall_s,
                            "explained_gaps": interrupts[source],
                            "explained_lost_ns": sum(length for _, length, gap in gaps if gap == source),
                            "reason": None,
                        }
                        for source, *_ in sources
                    ],
                    "unattributed_gaps": 0,
                    "unattributed_lost_ns": 0.0,
                    "unattributed_share": 0.0,
                    "unattributed_lost_share": 0.0,
                },
                "core_hz_before": 3.70e9,
                "core_hz_after": 3.70e9,
                "interference": {**QUIET, "interrupts": interrupts},
            },
        }

    def executions(self, lengths: Sequence[float], wall_s: float, asked: dict[str, Any]) -> dict[str, Any]:
        """Return the PMA-compatible view: in each interval the longest of a share of the gaps shows."""
        ticks = TSC_HZ / 1e9
        fastest, least, most, intervals = 103_800, 1 << 62, 0, []
        chances = len(lengths) * 0.87 / wall_s
        for sample in range(1, asked["intervals"] + 1):
            seen = self.chance.choices(lengths, k=min(len(lengths), max(1, round(chances))))
            low, high = fastest + self.chance.randrange(40), fastest + 60 + round(max(seen) * ticks)
            least, most = min(least, low), max(most, high)
            intervals.append(
                {
                    "inst_min_cycles": low,
                    "inst_max_cycles": high,
                    "inst_jitter_cycles": high - low,
                    "last_exec_cycles": fastest + self.chance.randrange(90),
                    "abs_min_cycles": least,
                    "abs_max_cycles": most,
                    "tmp": self.chance.getrandbits(31),
                    "interval_cycles": round(asked["executions"] * fastest * 1.001),
                    "sample": sample,
                    "interference": QUIET,
                }
            )
        return {
            "loops": asked["loops"],
            "executions": asked["executions"],
            "tick_hz": TSC_HZ,
            "blind_fraction": 0.0006,
            "stopped": "intervals",
            "intervals": intervals,
        }


def _number(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        try:
            return float(text)
        except ValueError:
            return text


def _split(place: str) -> tuple[str, str, str]:
    return place.partition("@")


def _histogram(lengths: Sequence[float]) -> list[dict[str, Any]]:
    """Return the gaps by length: eight bins per octave from 200 ns on, those with gaps only."""
    bins: dict[tuple[float, float], int] = {}
    for length in lengths:
        octave = 200.0
        while octave * 2 <= length:
            octave *= 2
        at = int((length / octave - 1) * 8)
        edges = (octave * (1 + at / 8), octave * (1 + (at + 1) / 8))
        bins[edges] = bins.get(edges, 0) + 1
    return [{"from_ns": low, "to_ns": high, "count": count} for (low, high), count in sorted(bins.items())]


def _quantile(descending: Sequence[float], rest_ns: float) -> float:
    """Return the length of gap that all but *rest_ns* of the time is spent below; the threshold if it is in none."""
    beyond = 0.0
    for length in descending:
        beyond += length
        if beyond > rest_ns:
            return length
    return 200.0


def _period(lengths: Sequence[float], wall_s: float) -> dict[str, Any]:
    ticks = int(250 * wall_s)
    return {
        "period_ns": 4e6,
        "hz": 250.0,
        "share_of_gaps": ticks / len(lengths),
        "gaps": ticks,
        "cycles": ticks,
        "median_ns": 3300.0,
        "lost_ns": 3300.0 * ticks,
        "window_ns": 10000.0,
    }


@cache
def large_document(server: Server = Server(), seed: int = 1) -> RunDocument:
    """Return the document of a nightly run of *server*, as the harness writes it."""
    answers = Answers(server, seed)
    now = STARTED
    with tempfile.TemporaryDirectory(prefix="calibration-made-") as folder:
        begun = begin(
            Path(folder),
            testbed="t4",
            sut="sut1",
            run_id=RUN_ID,
            profile="nightly",
            capture=server.archive(),
            now=now,
            boot_id="5d1e4b0e-6a3c-4c57-9a52-0f6f1b0c8d11",
        )
        run = begun.directory
        record_kernels(run, KERNELS)
        for step in begun.plan.steps:
            answer = answers.answer(step, now)
            record_answer(run, step, answer, now)
            now += timedelta(seconds=round(step.expected_duration_s) + 1)
        append_record(run, EndRecord(finished_at=now, interrupted=False))
        return finish(run, now=now)


@cache
def lab_document() -> RunDocument:
    """Return that of a smaller one, of 16 CPUs and two nodes, with which nothing is wrong."""
    return large_document(Server(cpus=16, cpu_nodes=2, lines=40, empty_slot=False, interrupt=False, unsteady=False))
