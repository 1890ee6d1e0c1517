# SPDX-License-Identifier: Apache-2.0
"""``calibration context DIR [--json]``: print what is known about a machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click

from calibration.base import units
from calibration.context.facts import shown, text_of
from calibration.context.loader import load, to_contract
from calibration.context.model import Context

_SHOWN_UNREADABLE = 5
"""Files listed on the screen; the JSON document has them all."""


def _node_rows(context: Context) -> Iterator[tuple[str, str]]:
    for node in context.nodes:
        free = "" if node.free_bytes is None else f", free {units.size(node.free_bytes)}"
        memory = "unknown" if node.memory_bytes is None else units.size(node.memory_bytes)
        pools = (f"{pool.total} x {units.size(pool.size_bytes)}" for pool in node.hugepages if pool.total)
        pages = ", ".join(pools)
        huge = f"; huge pages {pages}" if pages else ""
        yield f"Node {node.id}", f"CPUs {units.cpus(node.cpus)}; memory {memory}{free}{huge}"


def _cache_rows(context: Context) -> Iterator[tuple[str, str]]:
    for cache in context.caches:
        shared = "unknown" if cache.shared_cpus is None else units.cpus(cache.shared_cpus)
        sizes = f"{units.size(cache.size_bytes)}, line {units.size(cache.line_bytes)}"
        yield f"L{cache.level} {cache.type}", f"{sizes}, shared by CPUs {shared}"
    topology = context.topology
    sizes_of = dict(zip(topology.last_level_cache_domains, topology.last_level_cache_bytes or (), strict=False))
    if len(set(sizes_of.values()) - {None}) > 1:
        parts = (f"{units.size(size)} on CPUs {units.cpus(cpus)}" for cpus, size in sizes_of.items())
        yield "Last-level caches", "; ".join(parts)


def summary(context: Context) -> str:
    """Describe the machine on one screen, one fact per line; missing facts are ``unknown``."""
    rows: list[tuple[str, str | None]] = [
        *shown(context),
        *_node_rows(context),
        ("Distances between nodes", text_of("distances between nodes", context)),
        *_cache_rows(context),
        ("Kernel", context.capture.uname or context.capture.kernel_release),
        ("Command line", context.cmdline.text if context.cmdline else None),
        ("Unreadable files", str(len(context.unreadable)) if context.unreadable else "none"),
        *(("", f"{item.path}: {item.reason}") for item in context.unreadable[:_SHOWN_UNREADABLE]),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {text or 'unknown'}" for name, text in rows)


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
