# SPDX-License-Identifier: Apache-2.0
"""Trees of servers larger than any captured one: ``/proc`` and ``/sys`` of any number of CPUs and nodes.

The formats are those of Linux 6.1 on x86_64, as in the captured machines in ``fixtures/context``.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from math import ceil
from pathlib import Path
from typing import Any

from calibration.base.cpulists import format_cpulist, parse_cpulist
from calibration.measurements.base import SEARCH_SUFFIX, Step
from calibration.measurements.traffic import group_text, read_group, read_sizes
from calibration.measurements.traffic_shape import CACHE_SUFFIX
from calibration.sutprobe.burn import LISTED
from calibration.sutprobe.tracing import Traced
from tests.report.traced import cause, view

CPU = "/sys/devices/system/cpu"
NODE = "/sys/devices/system/node"

CORES_PER_LLC = 8
"""Cores behind one last-level cache, as on AMD's processors: many caches are more work than few."""

CACHES = (("1", "Data", "32K"), ("1", "Instruction", "32K"), ("2", "Unified", "1024K"), ("3", "Unified", "32768K"))
IDLE_STATES = (("POLL", 0, 0), ("C1", 1, 1), ("C1E", 2, 4), ("C6", 170, 600))
FLAGS = " ".join(f"flag{number}" for number in range(190)) + " constant_tsc nonstop_tsc"

THREADS_PER_CPU = 7
"""Kernel threads that every CPU has: cpuhp, idle_inject, migration, ksoftirqd, and two or three workers."""

NODE_BYTES = 48 << 30

TRACED_CAUSES = 64
"""Different interrupts, tasks and functions that a trace of one CPU has."""


@dataclass(frozen=True)
class Machine:
    """A server with two packages, numbered as by firmware: second threads after all cores."""

    cpus: int
    cpu_nodes: int
    memory_only_nodes: int
    lines: int
    isolated: bool = True
    threads: int = 2
    daemons: int = 400
    node_bytes: int = NODE_BYTES

    @property
    def cores(self) -> int:
        """Number of cores."""
        return self.cpus // self.threads

    def core_of(self, cpu: int) -> int:
        """Return the core of a CPU."""
        return cpu % self.cores

    def package_of(self, cpu: int) -> int:
        """Return the package of a CPU."""
        return self.core_of(cpu) * 2 // self.cores

    def node_of(self, cpu: int) -> int:
        """Return the node of a CPU."""
        return self.core_of(cpu) * self.cpu_nodes // self.cores

    def together(self, cpu: int, cores: int) -> str:
        """Return the CPUs of the *cores* cores in a row to which a CPU belongs."""
        first = self.core_of(cpu) // cores * cores
        found = range(first, min(first + cores, self.cores))
        return format_cpulist(core + thread * self.cores for thread in range(self.threads) for core in found)

    @property
    def isolated_cpus(self) -> str:
        """All CPUs but the first core of each node."""
        firsts = {self.node_of(cpu): cpu for cpu in reversed(range(self.cores))}.values()
        return format_cpulist(cpu for cpu in range(self.cpus) if self.core_of(cpu) not in firsts)

    def files(self) -> Iterator[tuple[str, str]]:
        """Yield the files by path, global ones first."""
        every, all_kib = f"0-{self.cpus - 1}", self.nodes * self.node_bytes >> 10
        isolation = f" isolcpus=managed_irq,domain,{self.isolated_cpus} nohz_full={self.isolated_cpus}"
        yield "/proc/cmdline", f"BOOT_IMAGE=/vmlinuz ro{isolation if self.isolated else ''}\n"
        yield "/proc/version", "Linux version 6.1.0-13-amd64 (made@example) #1 SMP PREEMPT_DYNAMIC\n"
        yield "/proc/sys/kernel/ostype", "Linux\n"
        yield "/proc/sys/kernel/osrelease", "6.1.0-13-amd64\n"
        yield "/proc/self/status", f"Name:\tpython3\nCapEff:\t000001ffffffffff\nCpus_allowed_list:\t{every}\n"
        yield "/proc/self/cgroup", "0::/\n"
        yield "/proc/uptime", "4711.00 9000.00\n"
        yield "/proc/loadavg", "0.10 0.20 0.30 1/999 4711\n"
        yield "/proc/meminfo", f"MemTotal: {all_kib} kB\nMemFree: 9 kB\nMemAvailable: {all_kib * 9 // 10} kB\n"
        yield "/proc/vmstat", "".join(f"counter_{number} 4711\n" for number in range(180))
        yield "/proc/cpuinfo", "".join(map(self.block, range(self.cpus)))
        yield "/proc/interrupts", self.interrupts()
        yield "/proc/softirqs", self.table([f"SOFTIRQ{number}" for number in range(10)], "{:>12}:", "")
        yield "/proc/stat", self.stat()
        yield "/proc/irq/default_smp_affinity", ",".join(["ffffffff"] * (-(-self.cpus // 32))) + "\n"
        for name in ("online", "possible", "present"):
            yield f"{CPU}/{name}", f"{every}\n"
        for name in ("isolated", "nohz_full"):
            yield f"{CPU}/{name}", f"{self.isolated_cpus if self.isolated else ''}\n"
        yield f"{CPU}/offline", "\n"
        yield f"{CPU}/smt/active", f"{int(self.threads > 1)}\n"
        yield f"{CPU}/cpuidle/current_driver", "intel_idle\n"
        yield f"{CPU}/intel_pstate/no_turbo", "0\n"
        yield "/sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n"
        yield "/sys/devices/system/clocksource/clocksource0/available_clocksource", "tsc hpet acpi_pm\n"
        yield "/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"
        for node in range(self.nodes):
            yield from self.node_files(node)
        for cpu in range(self.cpus):
            yield from self.cpu_files(cpu)
        for line in range(self.lines):
            where = f"{line % self.cpus}\n"
            yield f"/proc/irq/{line}/smp_affinity_list", where if line % 3 else f"{every}\n"
            yield f"/proc/irq/{line}/effective_affinity_list", where
            yield f"/sys/kernel/irq/{line}/actions", f"nvme{line % 16}q{line}\n"
        for pid in range(1, self.daemons + THREADS_PER_CPU * self.cpus + 1):
            yield from self.process_files(pid)

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return self.cpu_nodes + self.memory_only_nodes

    def block(self, cpu: int) -> str:
        """Return the /proc/cpuinfo block of a CPU."""
        rows = {
            "processor": cpu, "vendor_id": "GenuineIntel", "cpu family": 6, "model": 143,
            "model name": "Made Processor 8490H", "stepping": 8, "microcode": "0x2b000603", "cpu MHz": "1900.000",
            "physical id": self.package_of(cpu), "siblings": self.cpus // 2,
            "core id": self.core_of(cpu) % (self.cores // 2), "flags": FLAGS, "bugs": "spectre_v1 spectre_v2",
        }  # fmt: skip
        return "".join(f"{name}\t: {value}\n" for name, value in rows.items()) + "\n"

    def table(self, names: list[str], form: str, tail: str) -> str:
        """Return a table with a column for each CPU."""
        head = "           " + "".join(f"CPU{cpu:<7}" for cpu in range(self.cpus)) + "\n"
        row = "".join(f"{cpu * 977 % 100_000:>10} " for cpu in range(self.cpus))
        return head + "".join(f"{form.format(name)}{row}{tail}\n" for name in names)

    def interrupts(self) -> str:
        """Return /proc/interrupts."""
        names = [str(line) for line in range(self.lines)]
        architecture = ["NMI", "LOC", "SPU", "PMI", "IWI", "RTR", "RES", "CAL", "TLB", "TRM", "THR", "DFR", "MCE"]
        return self.table(names, "{:>5}:", " PCI-MSIX-0000:17:00.0 1-edge nvme0q1") + "".join(
            self.table(architecture, "{:>5}:", " Interrupts").split("\n", 1)[1]
        )

    def stat(self) -> str:
        """Return /proc/stat."""
        rows = "".join(f"cpu{cpu} 1000 0 1000 9000000 0 10 10 0 0 0\n" for cpu in range(self.cpus))
        return f"cpu  1 0 1 9 0 0 0 0 0 0\n{rows}intr 9{' 1' * self.lines}\nctxt 9\nbtime 1700000000\nprocesses 9\n"

    def node_files(self, node: int) -> Iterator[tuple[str, str]]:
        """Yield a node's files."""
        if node == 0:
            yield f"{NODE}/online", f"0-{self.nodes - 1}\n"
            yield f"{NODE}/possible", f"0-{self.nodes - 1}\n"
            yield f"{NODE}/has_memory", f"0-{self.nodes - 1}\n"
            yield f"{NODE}/has_cpu", f"0-{self.cpu_nodes - 1}\n"
        base = f"{NODE}/node{node}"
        yield f"{base}/cpulist", format_cpulist(cpu for cpu in range(self.cpus) if self.node_of(cpu) == node) + "\n"
        yield f"{base}/distance", " ".join("10" if node == other else "21" for other in range(self.nodes)) + "\n"
        total = self.node_bytes >> 10
        sizes = {"MemTotal": total, "MemFree": total * 9 // 10, "FilePages": 0, "SReclaimable": 0}
        yield f"{base}/meminfo", "".join(f"Node {node} {name}: {size} kB\n" for name, size in sizes.items())
        for size_kib in (2048, 1048576):
            for name in ("nr_hugepages", "free_hugepages", "surplus_hugepages"):
                yield f"{base}/hugepages/hugepages-{size_kib}kB/{name}", "0\n"

    def cpu_files(self, cpu: int) -> Iterator[tuple[str, str]]:
        """Yield a CPU's files, including some that no capture reads."""
        base = f"{CPU}/cpu{cpu}"
        if cpu:
            yield f"{base}/online", "1\n"
        yield f"{base}/topology/core_cpus_list", self.together(cpu, 1) + "\n"
        yield f"{base}/topology/thread_siblings_list", self.together(cpu, 1) + "\n"
        yield f"{base}/topology/core_id", f"{self.core_of(cpu) % (self.cores // 2)}\n"
        yield f"{base}/topology/physical_package_id", f"{self.package_of(cpu)}\n"
        yield f"{base}/topology/die_id", "0\n"
        yield f"{base}/topology/cluster_id", f"{self.core_of(cpu) % (self.cores // 2) * 8}\n"
        for index, (level, kind, size) in enumerate(CACHES):
            cache = f"{base}/cache/index{index}"
            yield f"{cache}/level", f"{level}\n"
            yield f"{cache}/type", f"{kind}\n"
            yield f"{cache}/size", f"{size}\n"
            yield f"{cache}/coherency_line_size", "64\n"
            yield f"{cache}/shared_cpu_list", self.together(cpu, CORES_PER_LLC if level == "3" else 1) + "\n"
        for state, (name, latency, residency) in enumerate(IDLE_STATES):
            idle = f"{base}/cpuidle/state{state}"
            yield f"{idle}/name", f"{name}\n"
            yield f"{idle}/desc", f"{name} of the made processor\n"
            yield f"{idle}/latency", f"{latency}\n"
            yield f"{idle}/residency", f"{residency}\n"
            yield f"{idle}/disable", "0\n"
        yield f"{base}/thermal_throttle/core_throttle_count", "0\n"
        yield f"{base}/thermal_throttle/package_throttle_count", "0\n"
        yield f"{base}/microcode/version", "0x2b000603\n"
        policy = f"{CPU}/cpufreq/policy{cpu}"
        yield f"{policy}/affected_cpus", f"{cpu}\n"
        yield f"{policy}/related_cpus", f"{cpu}\n"
        yield f"{policy}/scaling_driver", "intel_pstate\n"
        yield f"{policy}/scaling_governor", "performance\n"
        yield f"{policy}/scaling_available_governors", "performance powersave\n"
        yield f"{policy}/energy_performance_preference", "performance\n"
        for name, khz in (("min", 800_000), ("max", 3_500_000)):
            yield f"{policy}/scaling_{name}_freq", f"{khz}\n"
            yield f"{policy}/cpuinfo_{name}_freq", f"{khz}\n"
        yield f"{policy}/base_frequency", "1900000\n"

    def process_files(self, pid: int) -> Iterator[tuple[str, str]]:
        """Yield the files of a process of one thread; kernel threads are bound to a CPU each."""
        cpu = (pid - 1) % self.cpus
        kernel = pid <= THREADS_PER_CPU * self.cpus
        name = f"ksoftirqd/{cpu}" if kernel else f"daemon{pid}"
        status = f"Name:\t{name}\nState:\tS (sleeping)\nPid:\t{pid}\nKthread:\t{int(kernel)}\n"
        allowed = f"Cpus_allowed_list:\t{cpu if kernel else f'0-{self.cpus - 1}'}\nMems_allowed_list:\t0\n"
        rest = "S 2 0 0 0 -1 69238848 0 0 0 0 0 7 0 0 20 0 1 0 5" + " 0" * 30 + "\n"
        yield f"/proc/{pid}/stat", f"{pid} ({name}) {rest}"
        yield f"/proc/{pid}/comm", f"{name}\n"
        yield f"/proc/{pid}/task/{pid}/status", status + allowed
        yield f"/proc/{pid}/task/{pid}/stat", f"{pid} ({name}) {rest}"

    def write(self, root: Path) -> Path:
        """Write the tree below *root* and return *root*."""
        made: set[Path] = set()
        for path, text in self.files():
            target = root / path[1:]
            if target.parent not in made:
                target.parent.mkdir(parents=True, exist_ok=True)
                made.add(target.parent)
            target.write_text(text, encoding="ascii")
        return root


LARGE = Machine(cpus=512, cpu_nodes=12, memory_only_nodes=4, lines=2000)
"""Slightly larger than the largest machines of labs."""


RECORDED = Path(__file__).parent / "fixtures" / "sutprobe"


def answer(step: Step) -> dict[str, Any]:
    """Return sutprobe's document for *step*: a recorded one, repeated for all that was asked."""
    named = [RECORDED / f"{name}.json" for name in (step.id, f"{step.kind}{_form(step.id)}", step.kind)]
    others = [path for path in sorted(RECORDED.glob(f"{step.kind}-*.json")) if _form(path.stem) == _form(step.id)]
    path = next(path for path in (*named, *others) if path.exists())
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    document["argv"] = list(step.argv)
    grow = None if _form(step.id) == SEARCH_SUFFIX and step.kind in SHORT else GROWN.get(step.kind)
    if grow is not None:
        grow(document, step)
    return document


def _form(name: str) -> str:
    """Return the end of a step's name if others of its kind have no such answers."""
    return next((suffix for suffix in (CACHE_SUFFIX, SEARCH_SUFFIX) if name.endswith(suffix)), "")


def options(step: Step, name: str) -> list[str]:
    """Return the values of an option of *step*."""
    return [value for option, value in zip(step.argv, step.argv[1:], strict=False) if option == f"--{name}"]


def _jitter(document: dict[str, Any], step: Step) -> None:
    (recorded,) = document["result"]["cpus"]
    if "--attribute" in step.argv:
        recorded = {**recorded, "pma": None, "gaps": {**recorded["gaps"], "traced": _traced()}}
    document["result"]["cpus"] = [{**recorded, "cpu": cpu} for cpu in step.cpus]


def _traced() -> dict[str, Any]:
    """Return a traced view with as much different work of the kernel as a busy CPU has."""
    causes = [cause("interrupt", f"eth0-TxRx-{number}", irq=number) for number in range(TRACED_CAUSES)]
    return Traced(refused=None, tracers="hwlat osnoise", view=view(*causes)).model_dump(mode="json")


def _wakeups(document: dict[str, Any], step: Step) -> None:
    """Give each CPU a wake-up in each bucket that it can fill; what ran before, only the latest of all have."""
    wakes = round(float(options(step, "seconds")[0]) * 1e6 / int(options(step, "period-us")[0]))
    late_ns = _late_ns(wakes)
    asked = options(step, "loads")[0].split(",")
    conditions = {condition["load"]: condition for condition in document["result"]["conditions"]}
    document["result"]["conditions"] = [conditions[load] for load in asked]
    for condition in document["result"]["conditions"]:
        (recorded,) = condition["cpus"]
        silent = [{**wake, "ran": None} for wake in recorded["worst"]]
        full = {**recorded, "wakes": wakes, "late_ns": late_ns}
        condition["cpus"] = [
            {**full, "cpu": cpu, "worst": silent if number else recorded["worst"]}
            for number, cpu in enumerate(step.cpus)
        ]


def _late_ns(wakes: int) -> dict[str, Any]:
    """Return *wakes* wake-ups late by 1 to 33 us in buckets of sutprobe: each has one, the first have the rest."""
    buckets = [((64 + part) << shift, 1 << shift) for shift in range(4, 9) for part in range(64)][:wakes]
    left = wakes - len(buckets)
    counts = []
    for place in range(len(buckets)):
        more = left if place == len(buckets) - 1 else ceil(left / 16)
        counts.append(1 + more)
        left -= more
    starts, widths = zip(*buckets, strict=True)
    return {"longest": starts[-1], "starts": starts, "widths": widths, "counts": counts}


def _firmware(document: dict[str, Any], step: Step) -> None:
    (recorded,) = document["result"]["cpus"]
    document["result"]["cpus"] = [{**recorded, "cpu": cpu} for cpu in step.cpus]


def _burnt(document: dict[str, Any], step: Step) -> None:
    """Give each CPU and node what one has, a broken memory, and as many sensors as sutprobe reads."""
    result = document["result"]
    document["parameters"]["group"] = options(step, "group")
    result["cpus"] = [{**result["cpus"][0], "cpu": cpu} for cpu in step.cpus]
    result["nodes"] = [{**result["nodes"][0], "node": node, "bytes": size} for node, size in step.memory_bytes.items()]
    word = f"0x{(1 << 64) - 1:016x}"
    words = dict.fromkeys(("physical_address", "expected", "found", "found_again"), word)
    places = {"cpu": step.cpus[-1], "node": max(step.memory_bytes), "offset_bytes": 1 << 39, "in_pass": 9999}
    result["mismatches"] = [
        {"at_unix_ns": document["started_at_unix_ns"] + k, **places, **words} for k in range(LISTED)
    ]
    result["cpus"][-1] |= {"wrong_words": 10**15, "wrong_bits": 64 * 10**15}
    count = len(result["windows"])
    sensors = [{"kind": "temperature", "name": f"coretemp Package id {k}", "unit": "degC"} for k in range(SENSORS)]
    readings = [{"s": 29.999999999 * k, "values": [71.375 + k] * SENSORS} for k in range(count)]
    result["telemetry"] = {"sources": sensors, "readings": readings, "unreadable": []}


def _frequency(document: dict[str, Any], step: Step) -> None:
    points = {(point["work"], point["active"]): point for point in document["result"]["points"]}
    some = {str(len(cpus)): cpus for cpus in map(parse_cpulist, options(step, "together"))}
    groups = {"alone": parse_cpulist(options(step, "alone-cpus")[0]), "all": step.cpus, **some}
    document["result"]["points"] = [
        {
            **points[work, "alone" if who == "alone" else "all"],
            "active": who,
            "cpu": cpu,
            "active_cpus": 1 if who == "alone" else len(cpus),
        }
        for work in dict.fromkeys(work for work, _ in points)
        for who, cpus in groups.items()
        for cpu in cpus
    ]


def _chases(document: dict[str, Any], step: Step) -> None:
    recorded = document["result"]["points"][0]
    places = [at.partition(":")[0].split("@") for at in options(step, "at")]
    document["result"]["points"] = [{**recorded, "cpu": int(cpu), "nodes": [int(node)]} for cpu, node in places]


def _chains(document: dict[str, Any], step: Step) -> None:
    """Give each place that was asked for each number of chains."""
    by_chains = {point["chains"]: point for point in reversed(document["result"]["points"])}
    places = [at.partition(":")[0].split("@") for at in options(step, "at")]
    document["result"]["points"] = [
        {**by_chains[chains], "cpu": int(cpu), "nodes": [int(node)]}
        for cpu, node in places
        for chains in sorted(by_chains)
    ]


def _ladder(document: dict[str, Any], step: Step) -> None:
    """Give each point the CPUs and nodes that were asked for, once for each copy."""
    places = [at.split("@") for at in options(step, "at")]
    points = {(one["order"], one["size_bytes"], one["stride_bytes"]): one for one in document["result"]["points"]}
    document["result"]["points"] = [
        {**point, "cpu": int(cpu), "nodes": [int(node) for node in nodes.split("+")], "copies": len(places)}
        for point in points.values()
        for cpu, nodes in places
    ]


def _traffic(document: dict[str, Any], step: Step) -> None:
    groups = options(step, "group")
    points = document["result"]["points"]
    one_by_one = len(groups) > 2  # a point for each group, not all points with all of them
    if _form(step.id) == CACHE_SUFFIX:  # all settings of a group, of each mix
        settings = points[: len(points) // len(document["parameters"]["group"])]
        mixes = options(step, "mix")[0].split(",")
        numbered = [(group, {**point, "mix": mix}) for group in groups for mix in mixes for point in settings]
    elif one_by_one:
        numbered = [(group, points[0]) for group in groups]
    else:
        numbered = [(groups[number % len(groups)], point) for number, point in enumerate(points)]
    found = []
    for group, point in numbered:
        parts = read_group(group)
        text = group_text(parts)
        cpus = [cpu for part in parts for cpu in part.cpus]
        placements = [
            {**placement, "per_thread_mb_s": placement["per_thread_mb_s"][:1] * len(cpus)}
            for placement in point["placements"]
        ]
        nodes = [part.node for part in parts]
        shares = [part.memory.shares for part in parts if part.spread]
        pages = {str(node): sum(round(720 * own.get(node, 0)) for own in shares) for own in shares for node in own}
        placements = [placement | ({"node_pages": pages} if pages else {}) for placement in placements]
        shape = {"group": text, "cpus": cpus, "nodes": nodes, "threads": len(cpus)}
        if sizes := read_sizes(group):
            shape["buffer_bytes"] = max(sizes)
        found.append({**point, **shape, "placements": placements})
    document["parameters"]["group"] = groups
    document["result"]["points"] = found


def _loaded(document: dict[str, Any], step: Step) -> None:
    document["parameters"].update(load=options(step, "load")[0], probe=options(step, "probe"))
    places = [dict(zip(("cpu", "node"), map(int, option.split("@")), strict=True)) for option in options(step, "probe")]
    for point in document["result"]["points"]:
        for placement in point["placements"]:
            placement["probes"] = [{**placement["probes"][0], **place} for place in places]
    document["result"]["zero_load"] = [{**document["result"]["zero_load"][0], **place} for place in places]


def _transfers(document: dict[str, Any], step: Step) -> None:
    recorded = {pair["state"]: pair for pair in document["result"]["pairs"]}
    found = []
    for text in options(step, "pair"):
        cpus, home, state = text.split(":")
        writer, reader = map(int, cpus.split("@"))
        found.append({**recorded[state], "writer": writer, "reader": reader, "home": int(home)})
    document["result"]["pairs"] = found


def _matrix(document: dict[str, Any], step: Step) -> None:
    recorded = document["result"]["cells"][0]
    pairs: dict[tuple[int, int], None] = {}
    for block in options(step, "all-pairs"):
        writers, _, readers = block.partition(":")[0].partition("@")
        pairs |= dict.fromkeys(product(parse_cpulist(writers), parse_cpulist(readers or writers)))
    document["result"]["cells"] = [
        {**recorded, "writer": writer, "reader": reader} for writer, reader in pairs if writer != reader
    ]


SENSORS = 64
"""As many as sutprobe reads."""

SHORT = {"c2c_matrix", "loaded_latency", "memory_curves"}
"""Kinds whose search has an answer of the same length on every machine."""

GROWN: dict[str, Callable[[dict[str, Any], Step], None]] = {
    "jitter": _jitter, "wakeup": _wakeups, "firmware": _firmware, "core_frequency": _frequency,
    "burn_in": _burnt,
    "latency_ladder": _ladder, "load_tail": _chases, "memory_parallelism": _chains,
    "latency_matrix": _chases, "core_latency": _chases, "random_bandwidth": _traffic, "bandwidth_matrix": _traffic,
    "memory_tiers": _traffic, "bandwidth_scaling": _traffic,
    "peak_injection_bandwidth": _traffic, "max_bandwidth": _traffic,
    "sustained_bandwidth": _traffic, "bandwidth_ladder": _traffic, "traffic_shape": _traffic, "loaded_latency": _loaded,
    "memory_curves": _loaded,
    "c2c_latency": _transfers, "c2c_matrix": _matrix,
}  # fmt: skip
"""Kinds whose documents grow with the machine."""
