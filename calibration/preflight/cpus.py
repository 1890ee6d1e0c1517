# SPDX-License-Identifier: Apache-2.0
"""The CPUs: isolated as requested, and without other load."""

from collections.abc import Collection, Iterator

from calibration.audit.findings import UNKNOWN, Finding, Outcome, outcome_of
from calibration.audit.kernel_arguments import last_cpu
from calibration.base import units
from calibration.base.cpulists import BOOT_CPU, parse_cpulist
from calibration.base.text import some_of, visible
from calibration.context.cmdline import parse_isolcpus
from calibration.context.model import Context, CpuLoad, Load


def check_isolation_kept(context: Context) -> Iterator[Finding]:
    """Yield whether the kernel isolates what its command line requests; nothing if it requests nothing.

    The boot CPU may stay outside: the kernel keeps the tick there, and one CPU for itself.
    """
    isolation = context.isolation
    requests = (
        ("isolated", _requested(context, "isolcpus"), isolation.isolated, isolation.isolated_source),
        ("nohz_full", _requested(context, "nohz_full"), isolation.nohz_full, isolation.nohz_full_source),
    )
    outcome: Outcome = "met"
    expected, found = [], []
    for name, wanted, kept, source in requests:
        if wanted is None:
            continue
        expected.append(f"{name} {wanted if isinstance(wanted, str) else units.cpus(wanted)}")
        found.append(f"{name} {units.cpus(kept)}" if source == "kernel" else f"{name} {UNKNOWN}")
        if source != "kernel":
            outcome = "unknown" if outcome == "met" else outcome
        elif wanted != set(kept) and not (wanted == {BOOT_CPU, *kept} and (kept or name == "nohz_full")):
            outcome = "not_met"
    if not expected:
        return
    notes = () if outcome == "met" else isolation.notes_of("isolcpus", "nohz_full")
    yield Finding(
        "isolation_kept",
        f"{', '.join(expected)} in /sys/devices/system/cpu",
        "; ".join((", ".join(found), *notes)),
        outcome,
    )


def _requested(context: Context, name: str) -> set[int] | str | None:
    """Return the existing CPUs of all lists of the parameter *name*, or a value that is no list; None without any."""
    known = set(context.cpus.possible or ()) | set(context.online_cpus)
    found: set[int] = set()
    values = [value for value in (context.cmdline.values(name) if context.cmdline else ()) if value]
    asks = False
    for value in values:
        try:
            parsed = parse_isolcpus(value, last_cpu(context)) if name == "isolcpus" else None
            cpus = parse_cpulist(value, last_cpu(context)) if parsed is None else parsed.cpus
        except ValueError:
            return visible(value)[:80]
        if parsed is None or parsed.isolates_domain:
            asks = True
            found.update(cpus)
    return found & known if asks else None


MAX_CPUS = 8
"""CPUs named in one sentence; the rest is counted."""

MAX_PROCESSES = 3
"""Processes named for one CPU, busiest first."""


def check_background_load(context: Context, measured: Collection[int], limit: float) -> Iterator[Finding]:
    """Yield whether each CPU of *measured*, and each sibling, was busy for at most *limit*."""
    wanted = frozenset(measured)
    cpus = wanted.union(*(core.cpus for core in context.topology.cores if not wanted.isdisjoint(core.cpus)))
    each = "each of " * (len(cpus) > 1)
    expected = f"at most {_percent(limit):g} % of {each}{units.numbered('CPU', cpus)} in use"
    load = context.load
    seen = [] if load is None else [cpu for cpu in load.cpus if cpu.cpu in cpus]
    if load is None or not seen:
        why = next((file.reason for file in context.unreadable if file.path == "/load"), "the capture has no snapshots")
        yield Finding("background_load", expected, f"{UNKNOWN}: {why}", "unknown")
        return
    busiest = sorted(seen, key=lambda cpu: (-cpu.busy - cpu.stolen, cpu.cpu))
    over = [cpu for cpu in busiest if _percent(cpu.busy + cpu.stolen) > _percent(limit)]
    named = [_busy_text(cpu, load, sibling=cpu.cpu not in measured) for cpu in (over or busiest[:1])[:MAX_CPUS]]
    if len(over) > MAX_CPUS:
        named.append(f"and {units.plural(len(over) - MAX_CPUS, 'more CPU')}")
    yield Finding(
        "background_load", expected, f"over {load.interval_s:.1f} s: {'; '.join(named)}", outcome_of(not over)
    )


def _percent(share: float) -> float:
    """Return a share of a CPU as it is compared and shown: ticks counted over a little more than their time are 100."""
    return round(min(1.0, share) * 100, 1)


def _busy_text(cpu: CpuLoad, load: Load, *, sibling: bool) -> str:
    shared = " (shares a core with a measured one)" if sibling else ""
    text = f"CPU {cpu.cpu}{shared} {_percent(cpu.busy + cpu.stolen):g} %"
    if cpu.stolen > load.resolution:
        text += f", {_percent(cpu.stolen):g} % of it stolen by the hypervisor"
    if cpu.busy <= load.resolution:
        return text
    there = [process for process in load.processes if cpu.cpu in process.cpus]
    names = some_of([f"{process.name} (process {process.pid})" for process in there], MAX_PROCESSES)
    return f"{text}, used by {names or 'no visible process'}"
