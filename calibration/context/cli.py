# SPDX-License-Identifier: Apache-2.0
"""``calibration context DIR [--json]``: what is known about a machine."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import click

from calibration.context.cpulists import format_cpulist
from calibration.context.loader import load, to_contract
from calibration.context.model import Context

_UNKNOWN = "unknown"


def _size(size_bytes: int | None) -> str:
    """Bytes in the largest binary unit that leaves at most one decimal; ``unknown`` for None."""
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


def summary(context: Context) -> str:
    """The machine on one screen, one fact a line; what the capture does not say is ``unknown``."""
    topology, isolation, memory = context.topology, context.isolation, context.memory
    models = context.processor.models
    rows = [
        ("system", _joined([context.firmware.system_vendor, context.firmware.product_name])),
        (
            "firmware",
            _joined([context.firmware.bios_vendor, context.firmware.bios_version, context.firmware.bios_date]),
        ),
        ("kernel", context.capture.uname or context.capture.kernel_release or _UNKNOWN),
        ("cmdline", context.cmdline.text if context.cmdline else _UNKNOWN),
    ]
    rows.extend(
        (
            "cpu",
            f"{_joined([m.vendor, m.name or m.model])} (CPUs {_list(m.cpus)}, microcode {m.microcode or _UNKNOWN})",
        )
        for m in models
    )
    guest = context.virtualization.guest
    rows.append(
        (
            "guest",
            _UNKNOWN
            if guest is None
            else "no"
            if not guest
            else f"yes, {context.virtualization.vendor or 'vendor unknown'}",
        )
    )
    rows.append(("online CPUs", f"{_list(context.online_cpus)}; offline {_list(context.cpus.offline)}"))
    threads = _UNKNOWN if topology.threads_per_core is None else str(topology.threads_per_core)
    rows.append(
        (
            "threads/core",
            f"{threads}; cores {len(topology.cores) or _UNKNOWN}, packages {topology.packages or _UNKNOWN}",
        )
    )
    rows.append(
        (
            "isolated",
            f"{_list(isolation.isolated)}; nohz_full {_list(isolation.nohz_full)}; rcu_nocbs {_list(isolation.rcu_nocbs)}",
        )
    )
    if isolation.threads is not None:
        movable = [thread for thread in isolation.threads if not thread.per_cpu_kernel]
        rows.append(
            (
                "on isolated",
                f"{len(movable)} movable threads, {len(isolation.interrupts)} interrupts may run there",
            )
        )
    for node in context.nodes:
        note = ""
        if node.id in context.memory_only_nodes:
            note = " (memory only)"
        elif node.id in context.cpu_only_nodes:
            note = " (no memory)"
        pages = ", ".join(f"{p.total} x {_size(p.size_bytes)}" for p in node.hugepages if p.total)
        rows.append(
            (
                f"node {node.id}",
                f"CPUs {_list(node.cpus)}; {_size(node.memory_bytes)}, free {_size(node.free_bytes)}"
                f"{'; huge pages ' + pages if pages else ''}{note}",
            )
        )
    if context.distances is None:
        rows.append(("distances", _UNKNOWN))
    else:
        rows.append(("distances", " | ".join(" ".join(map(str, row)) for row in context.distances)))
    rows.extend(
        (
            f"L{cache.level} {cache.type}",
            f"{_size(cache.size_bytes)}, line {_size(cache.line_bytes)}, "
            f"shared by CPUs {_UNKNOWN if cache.shared_cpus is None else _list(cache.shared_cpus)}",
        )
        for cache in context.caches
    )
    frequency = context.frequency
    turbo = _UNKNOWN if frequency.turbo is None else "on" if frequency.turbo else "off"
    rows.append(
        (
            "frequency",
            f"driver {_joined(frequency.drivers)}, governor {_joined(frequency.governors)}, turbo {turbo}, "
            f"{_ghz(frequency.hardware_min_hz)} to {_ghz(frequency.hardware_max_hz)}",
        )
    )
    states = [f"{s.name}{' (off)' if s.disabled_cpus == context.online_cpus else ''}" for s in context.idle.states]
    rows.append(("idle states", _joined(states)))
    rows.append(("huge pages", f"transparent {memory.transparent_hugepages.enabled or _UNKNOWN}"))
    rows.append(("clock source", context.clocksource.current or _UNKNOWN))
    if context.firmware.dimms:
        filled = [d for d in context.firmware.dimms if d.size_bytes]
        kinds = sorted(
            {f"{_size(d.size_bytes)} {d.type or _UNKNOWN} {d.configured_mt_s or _UNKNOWN} MT/s" for d in filled}
        )
        rows.append(("memory slots", f"{len(filled)} of {len(context.firmware.dimms)} filled: {_joined(kinds)}"))
    rows.append(("unreadable", str(len(context.unreadable)) if context.unreadable else "none"))
    rows.extend(("", f"{item.path}: {item.reason}") for item in context.unreadable[:5])
    return "\n".join(f"{name:<13} {value}".rstrip() for name, value in rows)


@click.command("context", short_help="Describe a machine from its /proc and /sys, captured or live.")
@click.argument("root", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print everything known as one JSON document.")
def context_command(root: Path, as_json: bool) -> None:
    """Describe the machine whose root is DIR.

    DIR is / for this machine, a captured tree, its tar.gz, or a run's directory. Exit code 2 where it is none
    of these.
    """
    context = load(root)
    if as_json:
        click.echo(json.dumps(to_contract(context), indent=2, allow_nan=False))
    else:
        click.echo(summary(context))
