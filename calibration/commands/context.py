# SPDX-License-Identifier: Apache-2.0
"""``calibration context DIR [--json]``: print what is known about a machine."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import click

from calibration.context.confinement import limits
from calibration.context.hmat import cache_text, rated_text
from calibration.context.loader import load, to_contract
from calibration.context.model import UNSEEN_GROUPS, Context
from calibration.cpulists import format_cpulist

_UNKNOWN = "unknown"
_SHOWN_UNREADABLE = 5
"""Files listed on the screen; the JSON document has them all."""


def _size(size_bytes: int | None) -> str:
    """Bytes in the largest binary unit that needs at most one decimal; ``unknown`` for None."""
    if size_bytes is None:
        return _UNKNOWN
    value = float(size_bytes)
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.1f}".removesuffix(".0") + f" {unit}"


def _list(numbers: Iterable[int]) -> str:
    return format_cpulist(numbers) or "none"


def _joined(words: Iterable[str | None]) -> str:
    return ", ".join(word for word in words if word) or _UNKNOWN


def _ghz(hertz: int | None) -> str:
    return _UNKNOWN if hertz is None else f"{hertz / 1e9:.2f} GHz"


def _cpu_rows(context: Context) -> list[tuple[str, str]]:
    topology, isolation = context.topology, context.isolation
    rows = []
    for model in context.processor.models:
        name = _joined([model.vendor, model.name or model.model])
        rows.append(("cpu", f"{name} (CPUs {_list(model.cpus)}, microcode {model.microcode or _UNKNOWN})"))
    guest, vendor = context.virtualization.guest, context.virtualization.vendor or "vendor unknown"
    rows.append(("guest", _UNKNOWN if guest is None else f"yes, {vendor}" if guest else "no"))
    container = None if context.confinement is None else context.confinement.container
    if container is not None:
        rows.append(("container", container))
    rows.append(("online CPUs", f"{_list(context.online_cpus)}; offline {_list(context.cpus.offline)}"))
    threads = _UNKNOWN if topology.threads_per_core is None else str(topology.threads_per_core)
    counts = f"cores {len(topology.cores) or _UNKNOWN}, packages {topology.packages or _UNKNOWN}"
    if limited := limits(context):
        rows.append(("limited to", ", ".join(limited)))
    rows.append(("threads/core", f"{threads}; {counts}"))
    rcu = _UNKNOWN if isolation.rcu_nocbs_source is None else _list(isolation.rcu_nocbs)
    others = f"nohz_full {_list(isolation.nohz_full)}; rcu_nocbs {rcu}"
    by = f" (by cpusets {_list(isolation.cpuset_isolated)})" if isolation.cpuset_isolated else ""
    if isolation.cpuset_unknown:
        by += f" (unknown for {_list(isolation.cpuset_unknown)}: {UNSEEN_GROUPS})"
    if isolation.managed_irq:
        others += f"; managed_irq {_list(isolation.managed_irq)}"
    if isolation.housekeeping:
        others += f"; housekeeping {_list(isolation.housekeeping)}"
    rows.append(("isolated", f"{_list(context.isolated_cpus)}{by}; {others}"))
    rows.extend(("not as asked", note.sentence) for note in isolation.notes or ())
    if isolation.threads is not None:
        movable = sum(not thread.per_cpu_kernel for thread in isolation.threads)
        rows.append(("on isolated", f"{movable} movable threads, {len(isolation.interrupts)} interrupts may run there"))
    if isolation.tickless_threads is not None:
        movable = sum(not thread.per_cpu_kernel for thread in isolation.tickless_threads)
        interrupts = len(isolation.tickless_interrupts or ())
        rows.append(("on tickless", f"{movable} movable kernel threads, {interrupts} interrupts may run there"))
    return rows


def _memory_rows(context: Context) -> list[tuple[str, str]]:
    rows = []
    for node in context.nodes:
        text = f"CPUs {_list(node.cpus)}; {_size(node.memory_bytes)}, free {_size(node.free_bytes)}"
        pages = ", ".join(f"{pool.total} x {_size(pool.size_bytes)}" for pool in node.hugepages if pool.total)
        if pages:
            text += f"; huge pages {pages}"
        if node.id in context.memory_only_nodes:
            text += " (memory only)"
        elif node.id in context.cpu_only_nodes:
            text += " (no memory)"
        if (first := context.parts_of(node.id)[0]) != node.id:
            text += f" (emulated: the CPUs are those of node {first})"
        rows.append((f"node {node.id}", text))
        rows += [("", f"memory-side cache: {cache_text(cache)}") for cache in node.memory_side_caches or ()]
        rows += [("", f"rated by the firmware: {rated_text(rated)}") for rated in node.rated_accesses or ()]
    distances = context.distances
    rows.append(("distances", " | ".join(" ".join(map(str, row)) for row in distances) if distances else _UNKNOWN))
    for cache in context.caches:
        shared = _UNKNOWN if cache.shared_cpus is None else _list(cache.shared_cpus)
        text = f"{_size(cache.size_bytes)}, line {_size(cache.line_bytes)}, shared by CPUs {shared}"
        rows.append((f"L{cache.level} {cache.type}", text))
    topology = context.topology
    sizes = dict(zip(topology.last_level_cache_domains, topology.last_level_cache_bytes or (), strict=False))
    if len(set(sizes.values()) - {None}) > 1:
        rows.append(("last levels", "; ".join(f"{_size(sizes[cpus])} on CPUs {_list(cpus)}" for cpus in sizes)))
    rows.append(("huge pages", f"transparent {context.memory.transparent_hugepages.words or _UNKNOWN}"))
    if context.firmware.dimms:
        filled = [dimm for dimm in context.firmware.dimms if dimm.size_bytes]
        kinds = {
            f"{_size(dimm.size_bytes)} {dimm.type or _UNKNOWN} {dimm.configured_mt_s or _UNKNOWN} MT/s"
            for dimm in filled
        }
        slots = f"{len(filled)} of {len(context.firmware.dimms)} filled"
        rows.append(("memory slots", f"{slots}: {_joined(sorted(kinds))}"))
    return rows


def _power_rows(context: Context) -> list[tuple[str, str]]:
    frequency = context.frequency
    turbo = frequency.turbo_text or _UNKNOWN
    limits = f"{_ghz(frequency.hardware_min_hz)} to {_ghz(frequency.hardware_max_hz)}"
    policy = f"driver {_joined(frequency.drivers)}, governor {_joined(frequency.governors)}"
    states = [
        state.name + (" (off)" if state.disabled_cpus == context.online_cpus else "") for state in context.idle.states
    ]
    return [("frequency", f"{policy}, turbo {turbo}, {limits}"), ("idle states", _joined(states))]


def summary(context: Context) -> str:
    """Describe the machine on one screen, one fact per line; missing facts are ``unknown``."""
    firmware = context.firmware
    rows = [
        ("system", _joined([firmware.system_vendor, firmware.product_name])),
        ("firmware", _joined([firmware.bios_vendor, firmware.bios_version, firmware.bios_date])),
        ("kernel", context.capture.uname or context.capture.kernel_release or _UNKNOWN),
        ("cmdline", context.cmdline.text if context.cmdline else _UNKNOWN),
        *_cpu_rows(context),
        *_memory_rows(context),
        *_power_rows(context),
        ("preemption", context.kernel.preemption or _UNKNOWN),
        ("clock source", context.clocksource.current or _UNKNOWN),
        ("unreadable", str(len(context.unreadable)) if context.unreadable else "none"),
    ]
    rows.extend(("", f"{item.path}: {item.reason}") for item in context.unreadable[:_SHOWN_UNREADABLE])
    return "\n".join(f"{name:<15} {value}".rstrip() for name, value in rows)


@click.command(
    "context",
    short_help="Describe a machine from its /proc and /sys.",
    epilog="Example: calibration context /",
)
@click.argument("root", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print everything known as one JSON document: first nodes (id, cpus, memory_bytes), distances, online_cpus, "
    "isolated_cpus, threads_per_core, caches (of the lowest online CPU), memory_only_nodes, cpu_only_nodes, cmdline "
    "and unreadable, then the rest as in the context of the run document (docs/reference/run_document.rst).",
)
def context_command(root: Path, as_json: bool) -> None:
    """Describe the machine in DIR.

    DIR is / for this machine, a captured tree, its tar.gz, or a run's directory.
    """
    context = load(root)
    if as_json:
        click.echo(json.dumps(to_contract(context), indent=2, allow_nan=False))
    else:
        click.echo(summary(context))
