# SPDX-License-Identifier: Apache-2.0
"""Advice: each rule where it applies and where one part of its condition is missing; commands that a shell reads."""

import io
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from docutils import nodes

from calibration.base.validity import Validity, flag
from calibration.context.hardware import Device, Interleaving, NetworkInterface, Tuned
from calibration.context.model import (
    CommandLine,
    Context,
    Core,
    Dimm,
    FrequencyPolicy,
    IdleState,
    Interrupt,
    Parameter,
    ParameterNote,
    TransparentHugePageSize,
)
from calibration.measurements.idle_latency import IdleLatencyValues
from calibration.measurements.jitter import JitterValues
from calibration.measurements.memory_tiers import MemoryTiersValues
from calibration.measurements.node_matrix import NodeMatrixValues
from calibration.measurements.table import TableRow
from calibration.report.advice import RULES, Advice, advice
from calibration.report.advice.claims import CLAIMS, MIN_EVENTS, MIN_SHARE
from calibration.report.advice.commands import mask, numbers
from calibration.report.advice.interruptions import isolate
from calibration.report.advice.settings import DEEP_US
from calibration.report.advice.traced import UNEXPLAINED_SHARE
from calibration.report.show import print_run
from calibration.report.terminal import print_blocks
from calibration.results.health import read_health
from calibration.results.metrics_of_record import metrics_of_record
from calibration.results.model import CapturedContext, Measurement, RunDocument
from calibration.runner.health import KINDS
from calibration.sutprobe.attribution import Attribution, GapSource
from calibration.sutprobe.jitter import Period
from calibration.sutprobe.tracing import Traced, TracedCause, TracedView
from tests.report.report_documents import (
    attempt,
    context_of,
    first_screen,
    page_of,
    parsed,
    run_document,
    scaled,
    with_nodes,
    with_rows,
)
from tests.report.traced import cause, view

CPU = 2
"""An isolated CPU of the machine below, without ticks and RCU callbacks; 2, 3, 6 and 7 are isolated, whole cores."""

WALL_S = 10.0
LOST = 0.02
"""What the CPU was watched for, and the share of that which it lost."""


def changed(model: Any, **changes: Any) -> Any:
    """Return *model* with fields replaced; ``a__b`` is the field *b* of the field *a*."""
    updates: dict[str, Any] = {}
    for name, value in changes.items():
        first, _, rest = name.partition("__")
        old = updates.get(first, getattr(model, first))
        updates[first] = changed(old, **{rest: value}) if rest else value
    return model.model_copy(update=updates)


def machine(**changes: Any) -> Context:
    """Return a machine of bare metal that no static rule is about, with *changes*."""
    base = changed(
        context_of("x86_64-isolated"), virtualization__guest=False, memory__numa_balancing=0, clocksource__current="tsc"
    )
    found: Context = changed(base, **changes)
    return found


def watched(cpu: int = CPU, *, valid: bool = True, isolated: bool = True, **gaps: Any) -> Measurement:
    """Return what was measured of a CPU's jitter: nothing counted, traced or periodic but what *gaps* says."""
    (recorded,) = (item for item in run_document(names=("jitter",)).measurements if item.kind == "jitter")
    assert isinstance(recorded.values, JitterValues)
    fields: dict[str, Any] = {
        "wall_s": WALL_S, "lost_fraction": LOST, "lost": None, "interrupts": {}, "periods": (), "attribution": None,
    }  # fmt: skip
    values = changed(
        recorded.values, cpu=cpu, isolated=isolated, gaps=recorded.values.gaps.model_copy(update=fields | gaps)
    )
    flags = () if valid else (flag("EMULATED", "an emulator"),)
    found: Measurement = changed(
        recorded, id=f"jitter-cpu{cpu}", values=values, validity=Validity(valid=valid, flags=flags)
    )
    return found


def run(context: Context, *measured: Measurement, **changes: Any) -> RunDocument:
    """Return a run of *context* that *measured* so much."""
    captured = CapturedContext(parsed=context, capture="context.tar.gz", capture_sha256="ab" * 32)
    found: RunDocument = changed(
        run_document(names=()), context=captured, measurements=measured, record=metrics_of_record(measured), flags=(),
        **changes,
    )  # fmt: skip
    return found


def recorded(kind: str) -> tuple[Measurement, ...]:
    """Return what was recorded of *kind*, as valid."""
    valid = Validity(valid=True, flags=())
    return tuple(changed(item, validity=valid) for item in run_document(names=(kind,)).measurements)


def traced(*causes: TracedCause, cpu: int = CPU, context: Context | None = None, **fields: Any) -> RunDocument:
    """Return a run in which *causes* were traced on *cpu*."""
    unexplained, smi = fields.pop("unexplained", 0.0), fields.pop("smi", None)
    return _traced(view(*causes, unexplained=unexplained, smi=smi), cpu, context or machine(), **fields)


def _traced(seen: TracedView, cpu: int, context: Context, **fields: Any) -> RunDocument:
    return run(context, watched(cpu, traced=Traced(refused=None, tracers="", view=seen), **fields))


def found(document: RunDocument, rule: str) -> Advice | None:
    """Return the advice of *rule*; a rule gives one at most here."""
    items = [item for item in advice(document) if item.rule == rule]
    assert len(items) <= 1
    return items[0] if items else None


# Cases


@dataclass(frozen=True)
class Case:
    """Runs in which a rule applies and does not, and words of its advice."""

    fires: RunDocument
    words: str
    cost: str
    silent: Mapping[str, RunDocument]


IRQ = Interrupt(irq=36, name="eth0-rx", affinity=(2,), effective=(2,), isolated_cpus=(2,))
WATCHED = watched(interrupts={"LOC": 9})
TICKING = watched(interrupts={"LOC": int(250 * WALL_S)})
WEIGHTS = Interleaving(weights={0: 1, 1: 1}, automatic=None)


def tiers(best: tuple[int, int], factor: float) -> Measurement:
    """Return what was measured of tiers if the weights *best* move *factor* times as much as the machine's, 1:1."""
    (item,) = recorded("memory_tiers")
    values = item.values
    assert isinstance(values, MemoryTiersValues)
    now = values.table.cells("bandwidth_mb_s")["0", "1", "1:1"]
    own = changed(
        values.tiers[0], weights=best, bandwidth_mb_s=scaled(now, factor), machine=(1, 1), machine_mb_s=now
    )  # fmt: skip
    found: Measurement = changed(item, values=changed(values, tiers=(own,)))
    return found


STATES = (
    IdleState(name="C1", description=None, latency_us=2, residency_us=2, disabled_cpus=()),
    IdleState(name="C6", description=None, latency_us=170, residency_us=600, disabled_cpus=()),
)
HELD = Tuned(
    active="network-latency",
    mode=None,
    profiles=("network-latency", "latency-performance"),
    absent=(),
    met=0,
    differing=(),
    unchecked=("force_latency",),
)
POLICY = FrequencyPolicy(
    cpus=(0, 1, 2, 3), driver="intel_pstate", governor="powersave", energy_performance_preference=None,
    hardware_min_hz=10**9, hardware_max_hz=4 * 10**9, base_hz=None, min_hz=None, max_hz=None, current_hz=None,
    turbo=None,
)  # fmt: skip
HARDWARE = {"frequency__policies": (POLICY,), "frequency__hardware_max_hz": 4 * 10**9}
SLOW_CLOCK = {"clocksource__current": "hpet"}


def cores(*cpus: tuple[int, ...]) -> tuple[Core, ...]:
    """Return cores of these CPUs."""
    return tuple(
        Core(cpus=own, core_id=number, cluster_id=None, die_id=None, package_id=0) for number, own in enumerate(cpus)
    )


THREADS = cores((0, 1), (2, 4), (3, 5), (6, 7))


def dimms(*modules: tuple[int, int], empty: int = 0) -> tuple[Dimm, ...]:
    """Return modules of so many MT/s, configured and rated, and *empty* slots, of a channel each."""
    slots = [*modules, *[(0, 0)] * empty]
    return tuple(
        Dimm(
            locator=f"CPU0_DIMM_{chr(65 + number)}1", bank="NODE 0", size_bytes=32 << 30 if configured else 0,
            type="DDR5", form_factor="DIMM", data_width_bits=64, total_width_bits=80, ranks=2, speed_mt_s=rated or None,
            configured_mt_s=configured or None, manufacturer=None, part=None,
        )
        for number, (configured, rated) in enumerate(slots)
    )  # fmt: skip


def nic(**changes: Any) -> Device:
    """Return a network device of 25 Gbit/s on node 1."""
    interface = NetworkInterface(name="ens1f0", speed_mbit_s=25_000, duplex="full", mtu=1500, state="up")
    device = Device(
        address="0000:81:00.0", kind="network", class_code=0x020000, id="8086:1592", subsystem=None, driver="ice",
        driver_version=None, model=None, firmware=None, firmware_reason=None, node=1, local_cpus=(4, 5, 6, 7),
        iommu_group=None, interfaces=(interface,), virtual_functions=None, links=(), interrupts=0, interrupt_cpus=None,
        isolated_cpus=(),
    )  # fmt: skip
    return device.model_copy(update=changes)


def counted(kind: str, read: int = 1, **counts: int) -> tuple[Any, ...]:
    """Return the attempts of a run in which the machine counted *counts* of *kind*, and nothing else, in 46 s."""
    changes = {name.removeprefix("irq"): [100, 100 + count] for name, count in counts.items() if count}
    record = {
        "elapsed_s": 46.0,
        "counters": {name: {"read": read, "lost": [], "changed": changes if name == kind else {}} for name in KINDS},
        "temperatures_c": {},
        "energy": {},
        "unreadable": {},
    }
    return (attempt(health=read_health(record)),)


CAME = counted("isolated_interrupts", irq36=812)
PACKAGE_IDLE = tuple(
    changed(
        item,
        values__package_idle_ns=item.values.latency_ns,
        values__package_active_ns=scaled(item.values.latency_ns, 0.9),
    )
    for item in recorded("idle_latency")
    if isinstance(item.values, IdleLatencyValues)
)
MATRIX = tuple(
    changed(item, validity=Validity(valid=True, flags=()))
    for item in with_nodes(run_document(names=("latency_matrix", "bandwidth_matrix", "c2c_latency")), 2).measurements
    if item.kind == "latency_matrix"
)
PARTS = tuple(node.model_copy(update={"cpus": tuple(range(8))}) for node in machine().nodes)
"""Nodes that the kernel made of one: each lists the same CPUs."""

ON_NODE_0 = {"isolation__isolated": (2, 3), "isolation__interrupts": ()}

STATIC = {
    "interrupts": Case(
        run(machine(isolation__interrupts=(IRQ,)), attempts=CAME),
        "1 interrupt came to isolated CPUs 2-3, 6-7 (4 of 8): 36 (eth0-rx)",
        "812 of them came in the 46.0 s of the run",
        {
            "moved, and none came since": run(
                machine(isolation__interrupts=(changed(IRQ, affinity=(0,)),)), attempts=CAME
            ),
            "none may come": run(machine(isolation__interrupts=()), attempts=CAME),
            "all CPUs are isolated": run(
                machine(isolation__interrupts=(IRQ,), isolation__isolated=tuple(range(8))), attempts=CAME
            ),
        },
    ),
    "tick": Case(
        run(machine(isolation__nohz_full=()), TICKING),
        "The scheduler's tick interrupts CPU 2",
        "250 ticks a second on CPU 2",
        {
            "in nohz_full": run(machine(), TICKING),
            "single timers": run(machine(isolation__nohz_full=()), watched(interrupts={"LOC": int(9 * WALL_S)})),
            "not counted": run(machine(isolation__nohz_full=()), watched(interrupts=None)),
            "nothing isolated": run(machine(isolation__nohz_full=(), isolation__isolated=()), TICKING),
            "a housekeeping CPU": run(
                machine(isolation__nohz_full=()), changed(TICKING, values__cpu=0, values__isolated=False)
            ),
        },
    ),
    "tick_on_nohz_full": Case(
        run(machine(), TICKING),
        "CPU 2 still takes the timer tick despite nohz_full: the kernel's event tick_stop says why",
        "250 ticks a second on CPU 2",
        {
            "not in nohz_full": run(machine(isolation__nohz_full=()), TICKING),
            "one tick a second": run(machine(), watched(interrupts={"LOC": int(WALL_S)})),
            "not counted": run(machine(), watched(interrupts=None)),
        },
    ),
    "thp_always": Case(
        run(
            machine(memory__transparent_hugepages__enabled="always", memory__anonymous_huge_bytes=96 << 20),
            *recorded("page_sizes"),
        ),
        "to all programs",
        "96 MiB of anonymous huge pages in use when captured; a load takes",
        {
            state or "not captured": run(machine(memory__transparent_hugepages__enabled=state))
            for state in ("madvise", "never", None)
        },
    ),
    "numa_balancing": Case(
        run(machine(memory__numa_balancing=1), attempts=counted("numa_hint_faults", machine=5210)),
        "between 2 nodes",
        "5210 faults and 0 moved pages in the 46.0 s of the run",
        {
            "off": run(machine(), attempts=counted("numa_hint_faults", machine=5210)),
            "not captured": run(machine(memory__numa_balancing=None)),
            "one node": run(machine(memory__numa_balancing=1, nodes=machine().nodes[:1])),
        },
    ),
    "interleave_weights": Case(
        run(machine(interleaving=WEIGHTS), tiers((4, 1), 3.0)),
        "over node 0 with node 1 use the weights 1:1; 4:1 move more",
        "GB/s instead of ",
        {
            "within the intervals": run(machine(interleaving=WEIGHTS), tiers((4, 1), 1.01)),
            "one tier alone is best": run(machine(interleaving=WEIGHTS), tiers((1, 0), 3.0)),
            "no weights captured": run(machine(interleaving=None), tiers((4, 1), 3.0)),
            "not measured": run(machine(interleaving=WEIGHTS)),
        },
    ),
    "deep_idle": Case(
        run(machine(idle__states=STATES), *PACKAGE_IDLE),
        "CPUs 0-7 (8 of 8) may enter idle states that take long to leave: C6 (170 µs)",
        "ns from an idle machine, ",
        {
            "shallow states": run(machine(idle__states=STATES[:1])),
            "as long as the limit": run(machine(idle__states=(changed(STATES[1], latency_us=DEEP_US),))),
            "disabled": run(machine(idle__states=(changed(STATES[1], disabled_cpus=tuple(range(8))),))),
            "held off by tuned": run(machine(idle__states=STATES, tuned=HELD)),
            "no latency captured": run(machine(idle__states=(changed(STATES[1], latency_us=None),))),
        },
    ),
    "powersave": Case(
        run(machine(**HARDWARE), *recorded("core_frequency")),
        "Governor: powersave on CPUs 0-3 (4 of 8)",
        "a core that became busy ran at 3.189 GHz of 4.000 GHz",
        {
            "performance": run(machine(frequency__policies=(changed(POLICY, governor="performance"),))),
            "not captured": run(machine(frequency__policies=(changed(POLICY, governor=None),))),
        },
    ),
    "smt_sibling": Case(
        run(machine(topology__cores=THREADS), watched(2, lost_fraction=0.0), watched(6, lost_fraction=0.0)),
        "Isolated: CPUs 2-3 (2 of 8); sharing: CPUs 4-5 (2 of 8)",
        "fixed work varies by",
        {
            "whole cores": run(machine(), watched(2), watched(6)),
            "nothing isolated": run(machine(topology__cores=THREADS, isolation__isolated=())),
        },
    ),
    "dimm_missing": Case(
        run(
            machine(firmware__dimms=dimms((4800, 4800), (4800, 4800), (4800, 4800), empty=1), topology__cores=THREADS),
            *recorded("peak_injection_bandwidth"),
        ),
        "1 of 4 memory channels have no module: slots CPU0_DIMM_D1",
        "at that rate the empty ones add 5 GB/s",
        {
            "all populated": run(machine(firmware__dimms=dimms((4800, 4800), (4800, 4800)), topology__cores=THREADS)),
            "no table": run(machine(firmware__dimms=(), topology__cores=THREADS)),
        },
    ),
    "mixed_dimm_speed": Case(
        run(machine(firmware__dimms=dimms((4800, 4800), (4400, 4800))), *recorded("peak_injection_bandwidth")),
        "1 of 4800 MT/s, 1 of 4400 MT/s. Slower: CPU0_DIMM_B1",
        "a channel of 4400 MT/s moves 8.3 % less than one of 4800 MT/s",
        {
            "one speed": run(machine(firmware__dimms=dimms((4800, 4800), (4800, 5600), empty=1))),
            "no table": run(machine(firmware__dimms=())),
        },
    ),
    "nic_far": Case(
        run(machine(devices=(nic(),), **ON_NODE_0), *MATRIX),
        "Network devices are on node 1, the isolated CPUs on node 0: ens1f0",
        "a load takes 1",
        {
            "CPUs are isolated on both": run(machine(devices=(nic(),))),
            "nothing isolated": run(machine(devices=(nic(),), isolation__isolated=())),
            "node unknown": run(machine(devices=(nic(node=None),), **ON_NODE_0)),
            "parts of one node": run(machine(devices=(nic(),), nodes=PARTS, **ON_NODE_0)),
            "a disk": run(machine(devices=(nic(kind="storage"),), **ON_NODE_0)),
            "no link": run(
                machine(devices=(nic(interfaces=(changed(nic().interfaces[0], state="down"),)),), **ON_NODE_0)
            ),
            "for management": run(
                machine(devices=(nic(interfaces=(changed(nic().interfaces[0], speed_mbit_s=1000),)),), **ON_NODE_0)
            ),
            "not captured": run(machine(devices=None, **ON_NODE_0)),
        },
    ),
    "clocksource": Case(
        run(machine(**SLOW_CLOCK), changed(WATCHED, clock__source="monotonic_raw", clock__read_cost_ns=1210.0)),
        "The kernel's clock is hpet, and tsc is available",
        "programs need 1.21 µs to read the clock",
        {
            "fast": run(machine()),
            "not captured": run(machine(clocksource__current=None)),
            "a host's clock in a guest": run(
                machine(
                    **SLOW_CLOCK,
                    clocksource__available=("hpet",),
                    virtualization__guest=True,
                    processor__flags=("constant_tsc", "nonstop_tsc"),
                )
            ),
            "a TSC that stops": run(machine(**SLOW_CLOCK, clocksource__available=("hpet",), processor__flags=("tsc",))),
        },
    ),
    "watchdog": Case(
        run(machine(kernel__nmi_watchdog=1), watched(interrupts={"NMI": 3})),
        "The watchdog or a profiler interrupts CPU 2",
        "3 NMIs on CPU 2",
        {
            "no NMI": run(machine(kernel__nmi_watchdog=1), watched(interrupts={"NMI": 0})),
            "off": run(machine(kernel__nmi_watchdog=0), watched(interrupts={"NMI": 3})),
            "not captured": run(machine(kernel__nmi_watchdog=None), watched(interrupts={"NMI": 3})),
        },
    ),
}


def booted(*names: str, **changes: Any) -> Context:
    """Return the machine, booted with the kernel parameters *names* alone."""
    parameters = tuple(Parameter(name=name, value=None) for name in names)
    return machine(cmdline=CommandLine(text=" ".join(names), parameters=parameters, init_arguments=()), **changes)


OPEN = {"isolation__nohz_full": (), "isolation__rcu_nocbs": (), "isolation__isolated": ()}
"""What keeps ticks, callbacks and load balancing off the CPU, switched off."""

CAUSES: dict[str, tuple[str, TracedCause, Mapping[str, Any]]] = {
    "tick": ("tick interrupts CPU 2", cause("timer", "hrtimer", "tick_nohz_handler"), OPEN),
    "rcu_callbacks": ("RCU callbacks run on CPU 2", cause("softirq", "RCU"), OPEN),
    "rcu_expedited": ("(rcu_exp_handler)", cause("ipi", "function call", "rcu_exp_handler"), {}),
    "watchdog": ("interrupts CPU 2", cause("nmi", "perf_event_nmi_handler"), {}),
    "memory_statistics": ("on CPU 2", cause("work", "kworker/2:1", "vmstat_update", pid=41), {}),
    "unbound_workers": ("(wb_workfn)", cause("work", "kworker/u8:1", "wb_workfn", pid=42), {}),
    "bound_workers": ("(lru_add_drain_per_cpu)", cause("work", "kworker/2:1", "lru_add_drain_per_cpu"), {}),
    "program_timers": ("(posix_timer_fn)", cause("timer", "hrtimer", "posix_timer_fn"), {}),
    "network_packets": ("CPU 2 handles network packets", cause("softirq", "NET_RX"), {}),
    "load_balancing": ("balances load on CPU 2", cause("task", "migration/2", pid=20), OPEN),
    "memory_mappings": ("(flush_tlb_func)", cause("ipi", "function call", "flush_tlb_func"), {}),
    "memory_barriers": ("(membarrier, ipi_mb)", cause("ipi", "function call", "ipi_mb"), {}),
    "performance_counters": ("(__perf_event_read)", cause("ipi", "function call", "__perf_event_read"), {}),
    "model_registers": ("(__rdmsr_safe_on_cpu)", cause("ipi", "function call", "__rdmsr_safe_on_cpu"), {}),
    "code_patching": ("(do_sync_core)", cause("ipi", "function call", "do_sync_core"), {}),
    "interrupts": ("36 (eth0-rx)", cause("interrupt", "eth0-rx", irq=36), {}),
    "threads": ("stress (77)", cause("task", "stress", pid=77), {}),
}
"""Words of the advice of each rule about traced causes, such a cause, and what the machine must be like."""

SETTLED = {
    "tick": {"in nohz_full": machine(**{**OPEN, "isolation__nohz_full": (CPU,)})},
    "rcu_callbacks": {"in rcu_nocbs": machine()},
    "rcu_expedited": {
        "not after booting": booted("rcupdate.rcu_normal_after_boot"),
        "never": booted("rcupdate.rcu_normal"),
    },
    "watchdog": {"switched off": booted("nowatchdog")},
    "load_balancing": {"isolated": machine()},
}
"""Machines that are already set up as a rule wants it."""


def traced_case(rule: str) -> Case:
    """Return the case of a rule about traced causes, and the same without one part of it."""
    words, one, needs = CAUSES[rule]
    context = machine(**needs)
    rare = {"share": MIN_SHARE * 0.9}, {"events": MIN_EVENTS - 1}, {"share": None}
    weak = {str(change): traced(one.model_copy(update=change), context=context) for change in rare}
    settled = {name: traced(one, context=other) for name, other in SETTLED.get(rule, {}).items()}
    cost = "0.40 % of the time of CPU 2, 20 % of what it loses"
    return Case(traced(one, context=context), words, cost, {**weak, **settled, "not traced": run(context, watched())})


UNEXPLAINED = Case(
    traced(unexplained=UNEXPLAINED_SHARE, smi=7),
    "No event of the kernel explains interruptions on CPU 2; system management interrupts came 7 times",
    "0.20 % of the time of CPU 2, 10 % of what it loses",
    {
        "too little": traced(unexplained=UNEXPLAINED_SHARE * 0.9, smi=7),
        "not traced": run(machine(), watched()),
        "a housekeeping CPU": traced(cpu=0, unexplained=UNEXPLAINED_SHARE),
    },
)

CASES: dict[str, list[Case]] = {
    rule.id: [
        *([STATIC[rule.id]] if rule.id in STATIC else []),
        *([traced_case(rule.id)] if rule.id in CAUSES else []),
        *([UNEXPLAINED] if rule.id == "unexplained" else []),
    ]
    for rule in RULES
}

FIRING = [
    pytest.param(rule, case, id=f"{rule}-{number}")
    for rule, cases in CASES.items()
    for number, case in enumerate(cases)
]
SILENT = [
    pytest.param(rule, document, id=f"{rule}-{number}: {why}")
    for rule, cases in CASES.items()
    for number, case in enumerate(cases)
    for why, document in case.silent.items()
]


def test_every_rule_has_a_case_that_fires_and_one_that_is_silent() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)
    assert all(cases and all(case.silent for case in cases) for cases in CASES.values())
    assert set(STATIC) | set(CAUSES) | {"unexplained"} == set(CASES)
    assert {rule for rule, _ in CLAIMS} == set(CAUSES)


@pytest.mark.parametrize(("rule", "case"), FIRING)
def test_a_rule_applies(rule: str, case: Case) -> None:
    item = found(case.fires, rule)
    assert item is not None
    assert case.words in item.found
    assert (item.cost is None) == (item.metric is None) == (item.unmeasured is not None)
    assert case.cost
    assert case.cost in (item.cost or "")
    assert all(line for line in (item.title, *item.change, *item.undo))
    assert item.change
    assert item.undo
    assert item.source.title
    assert item.source.url.startswith("https://")


@pytest.mark.parametrize(("rule", "document"), SILENT)
def test_a_rule_is_silent_if_a_part_of_its_condition_is_missing(rule: str, document: RunDocument) -> None:
    assert found(document, rule) is None


@pytest.mark.parametrize("rule", [rule.id for rule in RULES if rule.host_only])
def test_a_guest_is_not_advised_what_only_its_host_can_change(rule: str) -> None:
    for case in CASES[rule]:
        assert case.fires.context is not None
        assert found(case.fires, rule) is not None
        assert found(changed(case.fires, context__parsed__virtualization__guest=True), rule) is None


@pytest.mark.parametrize(("rule", "case"), FIRING)
def test_commands_are_lines_that_a_shell_reads(rule: str, case: Case) -> None:
    item = found(case.fires, rule)
    assert item is not None
    for lines in (item.change, item.keep, item.undo):
        done = subprocess.run(["sh", "-n"], input="\n".join(lines), text=True, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), lines


def test_a_run_without_a_capture_has_no_advice() -> None:
    assert advice(changed(STATIC["thp_always"].fires, context=None)) == ()


# Cost


def test_the_greatest_cost_comes_first_and_what_costs_nothing_last() -> None:
    context = machine(
        isolation__interrupts=(IRQ,), isolation__nohz_full=(), memory__transparent_hugepages__enabled="always",
        memory__anonymous_huge_bytes=1 << 30, memory__numa_balancing=1, idle__states=STATES,
    )  # fmt: skip
    causes = (
        cause("softirq", "SCHED"),
        cause("task", "stress", pid=77, share=0.3),
        cause("ipi", "x", "ipi_mb", share=0.1),
    )
    traces = Traced(refused=None, tracers="", view=view(*causes))
    items = advice(run(context, watched(traced=traces), attempts=counted("isolated_interrupts", irq36=0)))
    costs = {"threads": "share", "memory_barriers": "share", "thp_always": "count", "deep_idle": "none"}
    assert [item.rule for item in items] == [*costs, "interrupts", "numa_balancing"]
    assert [item.cost is None for item in items] == [cost == "none" for cost in costs.values()] + [False, False]


def test_times_of_invalid_measurements_are_not_costs_but_counts_are() -> None:
    _, one, _ = CAUSES["threads"]
    item = found(traced(one, valid=False), "threads")
    assert item is not None
    assert (item.cost, item.share, item.count) == ("100 events while the kernel was traced", 0.0, 100)
    idle = [changed(item, validity__valid=False) for item in PACKAGE_IDLE]
    item = found(run(machine(idle__states=STATES), *idle), "deep_idle")
    assert item is not None
    assert item.unmeasured is not None


def test_interrupts_cost_the_time_that_counters_explain() -> None:
    source = GapSource(
        source="36", kind="interrupt", count=812, rate_per_s=81.2, explained_gaps=800.0,
        explained_lost_ns=WALL_S * 1e9 * 0.0013, reason=None,
    )  # fmt: skip
    explained = Attribution(
        slices=10,
        slice_s=1.0,
        gaps=800,
        lost_ns=1e6,
        sources=(source, source.model_copy(update={"source": "37"})),
        unattributed_gaps=0.0,
        unattributed_lost_ns=0.0,
        unattributed_share=None,
        unattributed_lost_share=None,
    )
    item = found(
        run(machine(isolation__interrupts=(IRQ,)), watched(attribution=explained), attempts=CAME), "interrupts"
    )
    assert item is not None
    assert item.share == pytest.approx(0.0013)
    assert item.cost == "812 of them came in the 46.0 s of the run, 0.13 % of the time of CPU 2"
    assert item.metric == "jitter.cpu2.gaps.lost_fraction, by counted interrupts"
    emulated = watched(attribution=explained, valid=False)
    item = found(run(machine(isolation__interrupts=(IRQ,)), emulated, attempts=CAME), "interrupts")
    assert item is not None
    assert (item.share, item.count) == (0.0, 812)


def test_a_tsc_that_the_kernel_gave_up_is_advised_on_bare_metal() -> None:
    flags = ("constant_tsc", "nonstop_tsc")
    item = found(run(machine(**SLOW_CLOCK, clocksource__available=("hpet",), processor__flags=flags)), "clocksource")
    assert item is not None
    assert "it gave up the TSC" in item.found
    assert item.change[0].startswith("dmesg")
    assert any("tsc=nowatchdog" in line for line in item.change)


def test_ticks_are_seen_in_the_periods_of_gaps_where_they_are_not_counted() -> None:
    period = Period(
        period_ns=4e6, hz=250.001, share_of_gaps=0.5, gaps=2500, cycles=2500, median_ns=3e3,
        lost_ns=WALL_S * 1e9 * 0.0008, window_ns=1e4,
    )  # fmt: skip
    open_machine = machine(isolation__nohz_full=())
    item = found(run(open_machine, watched(interrupts=None, periods=(period,))), "tick")
    assert item is not None
    assert item.share == pytest.approx(0.0008)
    other = changed(period, hz=99.7)
    assert found(run(open_machine, watched(interrupts=None, periods=(other,))), "tick") is None
    assert found(run(open_machine, watched(interrupts=None, periods=(period,), valid=False)), "tick") is None


@pytest.mark.parametrize(("changes", "words", "command"), [
    (SLOW_CLOCK, "the clock source is hpet", "events/timer/tick_stop/enable"),
    ({"isolation__isolated": (3, 6, 7)}, "the scheduler runs other threads", "isolcpus="),
    ({}, "the kernel's event tick_stop says why", "events/timer/tick_stop/enable"),
])  # fmt: skip
def test_what_keeps_the_tick_is_named_where_the_machine_shows_it(
    changes: dict[str, Any], words: str, command: str
) -> None:
    traces = Traced(refused=None, tracers="", view=view(CAUSES["tick"][1]))
    document = run(machine(**{**changes, "isolation__nohz_full": (2, 3)}), watched(3, traced=traces))
    if "isolation__isolated" in changes:
        document = run(machine(isolation__nohz_full=(2, 3), isolation__isolated=()), watched(2, traced=traces))
    item = found(document, "tick_on_nohz_full")
    assert item is not None
    assert words in item.found
    assert command in "\n".join(item.change)


def test_unmeasured_costs_name_the_measurement_and_its_profiles() -> None:
    item = found(run(machine(idle__states=STATES)), "deep_idle")
    assert item is not None
    assert item.unmeasured is not None
    assert "(wakeup) measures it" in item.unmeasured
    item = found(run(machine(firmware__dimms=dimms((4800, 4800), (4400, 4800)))), "mixed_dimm_speed")
    assert item is not None
    assert item.unmeasured is not None
    assert item.unmeasured.endswith("in the profiles quick, nightly, full, counters and sentinel")


# Names and commands


def test_a_measurement_without_the_value_is_told_from_one_that_is_not_there() -> None:
    item = found(run(machine(idle__states=STATES), *recorded("wakeup")), "deep_idle")
    assert item is not None
    assert item.unmeasured is not None
    assert item.unmeasured.endswith("measures it, with idle_latency_us: 0 in the profile")
    invalid = [changed(item, validity__valid=False) for item in recorded("core_frequency")]
    item = found(run(machine(**HARDWARE), *invalid), "powersave")
    assert item is not None
    assert item.unmeasured == "The clock of a busy core: Core frequency (core_frequency) of this run is not valid"


def test_a_large_machine_has_short_lists() -> None:
    online = tuple(range(504))
    many = tuple(changed(IRQ, irq=number, name=f"mlx5_comp{number}") for number in range(40, 2040))
    context = machine(
        cpus__online=online, isolation__isolated=online[2::2], isolation__interrupts=many, isolation__nohz_full=()
    )
    item = found(run(context, *(watched(cpu, interrupts={"LOC": 2500}) for cpu in online[2::2])), "interrupts")
    assert item is not None
    assert item.found.startswith("2000 interrupts may come to isolated CPUs 2, 4, 6, 8, ... (251 of 504)")
    assert item.found.endswith("and 1994 more")
    assert "for irq in $(seq 40 2039); do" in item.change[1]
    assert all(len(text) < 500 for text in (item.found, item.cost or "", item.metric or ""))


def test_interrupts_that_came_are_told_from_those_that_may() -> None:
    queue = changed(IRQ, irq=40, name="nvme0q3")
    context = machine(isolation__interrupts=(IRQ, queue))
    item = found(run(context, attempts=counted("isolated_interrupts", irq40=3)), "interrupts")
    assert item is not None
    assert item.found == "1 interrupt came to isolated CPUs 2-3, 6-7 (4 of 8): 40 (nvme0q3); 1 more may"
    assert "for irq in 40; do" in item.change[1]
    item = found(run(context, attempts=counted("isolated_interrupts")), "interrupts")
    assert item is not None
    assert "2 interrupts may come" in item.found
    assert (item.cost, item.count) == ("none of them came in the 46.0 s of the run", 0)
    for attempts in ((attempt(),), counted("isolated_interrupts", read=0)):
        item = found(run(context, attempts=attempts), "interrupts")
        assert item is not None
        assert (item.cost, item.unmeasured) == (
            None,
            "How often they come: /proc/interrupts was not read during this run",
        )


def test_weights_are_those_of_each_node_and_undone_as_they_were() -> None:
    folder = "/sys/kernel/mm/mempolicy/weighted_interleave"
    by_hand, automatic = (
        found(run(machine(interleaving=changed(WEIGHTS, automatic=state)), tiers((4, 1), 3.0)), "interleave_weights")
        for state in (False, True)
    )
    assert by_hand
    assert automatic
    assert by_hand.change[:2] == (f"echo 4 > {folder}/node0", f"echo 1 > {folder}/node1")
    assert "numactl --weighted-interleave=0-1" in by_hand.change[2]
    assert by_hand.undo[:2] == (f"echo 1 > {folder}/node0", f"echo 1 > {folder}/node1")
    assert automatic.undo[0] == f"for file in {folder}/*auto*; do echo true > $file; done"


def test_numbers_and_masks_are_as_shell_and_kernel_read_them() -> None:
    assert numbers([3, 5, 6, 7]) == "3 $(seq 5 7)"
    told = subprocess.run(
        ["sh", "-c", f"echo {numbers([3, 5, 6, 7])} | xargs"], capture_output=True, text=True, check=True
    )
    assert told.stdout.split() == ["3", "5", "6", "7"]
    assert mask([0, 1, 33]) == "2,00000003"
    assert mask([]) == "0"


def test_names_that_a_program_gave_itself_do_nothing_in_the_shell(tmp_path: Any) -> None:
    evil = f"x'; touch {tmp_path}/evil; echo '"
    item = found(traced(cause("task", evil)), "threads")
    assert item is not None
    script = "taskset() { :; }\npgrep() { :; }\n" + "\n".join((*item.change, *item.undo))
    subprocess.run(["sh", "-c", script], check=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["latency_matrix", "bandwidth_matrix"])
@pytest.mark.parametrize("times", [0.5, 2.0])
def test_memory_that_is_faster_elsewhere_costs_nothing(kind: str, times: float) -> None:
    matrix = next(
        item
        for item in with_nodes(
            run_document(names=("latency_matrix", "bandwidth_matrix", "c2c_latency")), 2
        ).measurements
        if item.kind == kind
    )
    assert isinstance(matrix.values, NodeMatrixValues)
    column, own = matrix.values.drawn[0], matrix.values.table.rows[0]
    rows = [own | {"memory_node": node, column: scaled(own[column], factor)} for node, factor in ((0, 1.0), (1, times))]
    values = with_rows(matrix.values, map(TableRow, rows))
    item = found(run(machine(devices=(nic(),), **ON_NODE_0), changed(matrix, values=values)), "nic_far")
    assert item is not None
    worse = times > 1 if kind == "latency_matrix" else times < 1
    assert item.share == pytest.approx(0.5 if worse else 0.0)


@pytest.mark.parametrize(("mode", "promotes"), [(1, False), (2, True), (3, True)])
def test_balancing_of_memory_tiers_is_not_switched_off_unsaid(mode: int, *, promotes: bool) -> None:
    item = found(
        run(machine(memory__numa_balancing=mode), attempts=counted("numa_hint_faults", machine=1)), "numa_balancing"
    )
    assert item is not None
    assert ("slower memory: without it they stay there" in item.found) is promotes


def test_isolcpus_is_replaced_because_a_second_may_be_refused() -> None:
    item = found(STATIC["nic_far"].fires, "nic_far")
    assert item is not None
    assert any("--remove-args=" in line and "isolcpus=" in line for line in item.change)
    assert any(line.startswith("# remove isolcpus=") for line in item.change)


def with_arguments(context: Context, *arguments: tuple[str, str]) -> Context:
    """Return *context* booted with *arguments* alone."""
    assert context.cmdline is not None
    parameters = tuple(Parameter(name=name, value=value) for name, value in arguments)
    return changed(context, cmdline__parameters=parameters)


def change_of(context: Context, rule: str, gaps: Measurement = TICKING) -> str:
    item = found(run(context, gaps), rule)
    assert item is not None
    return "\n".join((item.found, *item.change))


def test_all_isolcpus_are_replaced() -> None:
    twice = (("isolcpus", "domain,3"), ("isolcpus", "managed_irq,3"))
    change = isolate(with_arguments(machine(), *twice), "rule", (2, 3)).change
    assert any("--remove-args='isolcpus=domain,3 isolcpus=managed_irq,3'" in line for line in change)


@pytest.mark.parametrize(("release", "flags", "wanted"), [
    ("5.4.0-200-generic", (), "isolcpus=domain,2-3,6-7"),
    ("5.10.0", (), "isolcpus=managed_irq,domain,2-3,6-7"),
    ("4.18.0-553.el8_10.x86_64", (), "isolcpus=domain,2-3,6-7"),
    ("4.18.0-553.el8_10.x86_64", ("managed_irq",), "isolcpus=managed_irq,domain,2-3,6-7"),
    ("6.1.0", ("nohz", "domain"), "isolcpus=managed_irq,domain,2-3,6-7"),
])  # fmt: skip
def test_isolcpus_has_flags_that_the_kernel_knows(release: str, flags: tuple[str, ...], wanted: str) -> None:
    context = machine(isolation__isolcpus_flags=flags, capture__kernel_release=release)
    change = isolate(context, "rule", (2, 3, 6, 7)).change
    assert sum(f' {wanted}"' in line or f'"{wanted}"' in line for line in change) == 2


@pytest.mark.parametrize(("enabled", "own", "file"), [
    ("always", None, "transparent_hugepage/enabled"),
    ("always", "inherit", "transparent_hugepage/enabled"),
    ("never", "always", "hugepages-2048kB/enabled"),
    ("always", "never", None),
])  # fmt: skip
def test_the_file_that_decides_about_huge_pages_is_written(enabled: str, own: str | None, file: str | None) -> None:
    sizes = None if own is None else (TransparentHugePageSize(size_bytes=2 << 20, enabled=own),)
    pages = {"memory__transparent_hugepages__enabled": enabled, "memory__transparent_hugepages__sizes": sizes}
    item = found(run(machine(**pages)), "thp_always")
    assert (None if item is None else item.change[0].rpartition(" ")[2][-len(file or "") :]) == file


def test_kernels_with_one_mask_get_one_list() -> None:
    open_machine = {"isolation__nohz_full": (3,)}
    assert '--args="nohz_full=2-3,6-7"' in change_of(machine(**open_machine, capture__kernel_release="5.10.0"), "tick")
    assert '--args="nohz_full=2-3"' in change_of(machine(**open_machine, capture__kernel_release="6.1.0"), "tick")


def test_a_kernel_without_nohz_full_is_not_booted_with_it() -> None:
    note = ParameterNote(parameter="nohz_full", asked="nohz_full=2", found="refused", reason="built without")
    context = machine(isolation__nohz_full=(), isolation__nohz_full_supported=False, isolation__notes=(note,))
    text = change_of(context, "tick")
    assert "CONFIG_NO_HZ_FULL" in text
    assert "grubby" not in text
    assert "nohz_full=2: refused; built without" in text


@pytest.mark.parametrize(("isolated", "of_cores", "wanted"), [
    ((4, 5, 6, 7), ((0, 4), (1, 5), (2, 6), (3, 7)), "isolcpus=managed_irq,domain,1-3,5-7"),  # second threads
    ((1, 2, 3, 4, 5, 6, 7), ((0, 4), (1, 5), (2, 6), (3, 7)), "isolcpus=managed_irq,domain,1-3,5-7"),
    ((1, 2, 3, 5, 6, 7), ((0, 1, 2, 3), (4, 5, 6, 7)), "isolcpus=managed_irq,domain,4-7"),  # POWER
    ((4, 5, 6, 7), ((0, 1, 2, 3, 4, 5, 6, 7),), "nosmt"),
])  # fmt: skip
def test_housekeeping_is_never_taken_offline(
    isolated: tuple[int, ...], of_cores: tuple[tuple[int, ...], ...], wanted: str
) -> None:
    context = machine(isolation__isolated=isolated, isolation__nohz_full=(), topology__cores=cores(*of_cores))
    item = found(run(context, watched(isolated[0])), "smt_sibling")
    assert item is not None
    assert not any("/online" in line for line in item.change)
    assert any(f'--args="{wanted}"' in line for line in item.change)


@pytest.mark.parametrize(("release", "nohz_full", "wanted", "removed"), [
    ("5.15.0", (2, 3), "isolcpus=managed_irq,domain,6-7 nohz_full=6-7", "isolcpus=2-3 nohz_full=2-3"),
    ("5.15.0", (6, 7), "isolcpus=managed_irq,domain,6-7", "isolcpus=2-3"),
    ("6.1.0", (2, 3), "isolcpus=managed_irq,domain,6-7", "isolcpus=2-3"),
])  # fmt: skip
def test_isolcpus_and_nohz_full_have_one_list_where_the_kernel_wants_that(
    release: str, nohz_full: tuple[int, ...], wanted: str, removed: str
) -> None:
    booted_with = with_arguments(machine(), ("isolcpus", "2-3"), ("nohz_full", "2-3"))
    context = changed(
        booted_with, isolation__nohz_full=nohz_full, isolation__isolcpus_flags=(), capture__kernel_release=release
    )
    (line,) = (line for line in isolate(context, "rule", (6, 7)).change if line.startswith("grubby"))
    assert f"--remove-args={removed if ' ' not in removed else repr(removed)} " in line
    assert f'--args="{wanted}"' in line


def test_the_boot_cpu_is_not_advised_to_be_without_a_tick() -> None:
    context = machine(isolation__nohz_full=(), isolation__isolated=(0, 1, 2, 3))
    first = changed(TICKING, values__cpu=0, id="jitter-cpu0")
    alone = found(run(context, first), "tick")
    assert alone is not None
    assert alone.change == ("# boot with other CPUs isolated than CPU 0, which keeps the tick, as it keeps the time",)
    both = found(run(changed(context, capture__kernel_release="6.1.0"), first, TICKING), "tick")
    assert both is not None
    assert any('--args="nohz_full=2"' in line for line in both.change)


@pytest.mark.parametrize(("release", "rule", "words"), [
    ("5.4.0", "powersave", "'w /sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor - - - - performance'"),
    ("5.10.0", "powersave", '--args="cpufreq.default_governor=performance"'),
    ("6.1.0", "unbound_workers", "'w /sys/devices/virtual/workqueue/cpumask - - - - 33'"),
    ("6.6.0", "unbound_workers", '--args="workqueue.unbound_cpus=0-1,4-5"'),
    ("4.18.0-553.el8_10.x86_64", "unbound_workers", "'w /sys/devices/virtual/workqueue/cpumask"),
])  # fmt: skip
def test_what_lasts_is_known_to_the_kernel(release: str, rule: str, words: str) -> None:
    context = machine(**HARDWARE, capture__kernel_release=release)
    item = found(traced(CAUSES["unbound_workers"][1], context=context), rule)
    assert item is not None
    assert any(words in line for line in item.keep)


@pytest.mark.parametrize(("release", "line", "wanted", "removed"), [
    ("4.19.0", (), "tsc=reliable", None),
    ("6.1.0", (("tsc", "unstable"),), "tsc=nowatchdog", "tsc=unstable"),
    ("6.1.0", (("notsc", None),), "tsc=nowatchdog", "notsc"),
    ("6.1.0", (("tsc", "reliable"),), "tsc=nowatchdog", None),
])  # fmt: skip
def test_what_gives_up_the_tsc_is_removed(
    release: str, line: tuple[tuple[str, str | None], ...], wanted: str, removed: str | None
) -> None:
    context = machine(
        **SLOW_CLOCK,
        clocksource__available=("hpet",),
        processor__flags=("constant_tsc", "nonstop_tsc"),
        capture__kernel_release=release,
    )
    item = found(run(with_arguments(context, *line)), "clocksource")
    assert item is not None
    (grubby,) = (text for text in item.change if text.startswith("grubby"))
    assert f'--args="{wanted}"' in grubby
    assert (f"--remove-args={removed} " in grubby) if removed else "--remove-args" not in grubby


@pytest.mark.parametrize(("seconds", "undone"), [(None, 1), (10, 10), (120, None), (300, None)])
def test_memory_statistics_are_gathered_as_before_when_advice_is_undone(
    seconds: int | None, undone: int | None
) -> None:
    context = machine(kernel__stat_interval_s=seconds)
    item = found(traced(CAUSES["memory_statistics"][1], context=context), "memory_statistics")
    assert (item is None) is (undone is None)
    assert item is None or f"sysctl -w vm.stat_interval={undone}" in item.undo


def test_cores_that_differ_are_not_compared_with_the_fastest() -> None:
    slower = changed(POLICY, cpus=(4, 5, 6, 7), hardware_max_hz=3 * 10**9)
    context = machine(frequency__policies=(POLICY, slower), frequency__hardware_max_hz=4 * 10**9)
    item = found(run(context, *recorded("core_frequency")), "powersave")
    assert item is not None
    assert "of 4.000 GHz, which not all cores reach" in item.cost
    assert not item.share


# Shown


def many() -> RunDocument:
    """Return a run with advice of more rules than are open on the page."""
    context = machine(
        isolation__interrupts=(IRQ,), isolation__nohz_full=(), memory__transparent_hugepages__enabled="always",
        memory__numa_balancing=1, idle__states=STATES, **HARDWARE,
    )  # fmt: skip
    traces = Traced(refused=None, tracers="", view=view(cause("task", "evil\n* `name`_", pid=77)))
    return run(context, watched(traced=traces, interrupts={"LOC": 2500}), attempts=CAME)


def section(document: RunDocument) -> nodes.section:
    tree = parsed(page_of(document))
    return next(item for item in tree.findall(nodes.section) if item.children[0].astext() == "Advice")


def test_the_page_shows_five_and_folds_the_others() -> None:
    document = many()
    items = advice(document)
    assert len(items) == 7
    shown = section(document)
    (fold,) = (item for item in shown.findall(nodes.admonition) if "commands" not in item["classes"])
    assert fold.children[0].astext() == "2 more"
    texts = [block.astext() for block in shown.findall(nodes.literal_block)]
    assert [text.split("\n", 1)[0] for text in texts] == ["# change"] * 7
    assert len(list(fold.findall(nodes.literal_block))) == 2
    for item, text in zip(items, texts, strict=True):
        assert all(line in text for line in (*item.change, *item.keep, *item.undo))
    text = shown.astext()
    assert all(item.title in text and (item.cost or item.unmeasured or "") in text for item in items)


def test_the_terminal_has_the_commands_that_the_page_folds() -> None:
    document = many()
    stream = io.StringIO()
    print_blocks(page_of(document).blocks, stream)
    assert all(line in stream.getvalue() for item in advice(document)[:5] for line in item.change)


@pytest.mark.parametrize(("document", "text"), [
    (run(machine()), "No tuning advice for this run."),
    (changed(run(machine()), context=None), "The SUT was not captured."),
])  # fmt: skip
def test_a_page_says_that_there_is_no_advice(document: RunDocument, text: str) -> None:
    assert text in section(document).astext()


def test_the_first_screen_links_to_the_advice() -> None:
    document = many()
    screen = first_screen(document)
    assert screen.findings[0].endswith("Threads run on CPU 2: evil\\n* `name`_ (77).")
    assert screen.advised == screen.findings[:1]
    tree = parsed(page_of(document))
    links = [item for item in tree.findall(nodes.reference) if item.astext() == "Advice"]
    assert [link["refid"] for link in links] == ["advice", "advice"]
    assert links[0].parent.astext().endswith("(77). Advice")


def test_the_terminal_shows_the_first_and_counts_the_others() -> None:
    stream = io.StringIO()
    print_run(many(), Path("results/lab/sut1/run1"), stream)
    lines = [line for line in stream.getvalue().splitlines() if line.startswith("  > ")]
    assert len(lines) == 1
    assert lines[0].startswith("  > Bind threads to other CPUs: 0.40 % of the time of CPU 2")
    assert re.search(r"and \d+ more: ", stream.getvalue())
