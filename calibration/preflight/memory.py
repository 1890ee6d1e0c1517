# SPDX-License-Identifier: Apache-2.0
"""The memory available on each node, and the plan's needs."""

from collections.abc import Iterator, Mapping

from calibration.audit.findings import UNKNOWN, Finding, outcome_of
from calibration.context.model import Context, Node
from calibration.measurements.sut import Sut, available_for, room_bytes


def short_of_memory(context: Context, needed: Mapping[int, int]) -> dict[int | None, int]:
    """Return the nodes whose available memory is too little for what is *needed* of them, and the bytes that suffice.

    The key ``None`` is all nodes together: the machine, or the memory limit of a control group.
    """
    sut = Sut(context)
    if not sut.lacking(needed):
        return {}
    wanted = {node: available_for(size) for node, size in needed.items()}
    short: dict[int | None, int] = {
        node.id: wanted[node.id]
        for node in context.nodes
        if node.available_bytes is not None and node.available_bytes < wanted.get(node.id, 0)
    }
    # Of the machine's memory, each node may use an equal part
    together = max(wanted.values()) * len(sut.available_bytes)
    room = room_bytes(context)
    if room is not None and room < together:
        short[None] = together
    return short


def _mib(size: int) -> str:
    return f"{-(-size // (1 << 20))} MiB"


def check_free_memory(context: Context, minimum: int, needed: Mapping[int, int]) -> Iterator[Finding]:
    """Yield whether each node has *minimum* bytes available, and enough for what is *needed* of it by the plan."""
    short = short_of_memory(context, needed)
    nodes = [node for node in context.nodes if node.memory_bytes is None or node.memory_bytes > 0]
    wanted = {node.id: max(minimum, short.get(node.id, 0)) for node in nodes}
    faults = [node for node in nodes if node.available_bytes is not None and node.available_bytes < wanted[node.id]]
    known = all(node.available_bytes is not None for node in nodes) and bool(nodes)
    expected = [f"at least {_mib(wanted[node.id])} available on node {node.id}" for node in nodes if wanted[node.id]]
    found = [_node_text(node) for node in nodes]
    if None in short:
        expected.append(f"at least {_mib(short[None])} on all nodes together")
        found.append(_room_text(context))
    yield Finding(
        "free_memory",
        ", ".join(expected) or "enough for the plan on each node",
        ", ".join(found) or "no node with memory",
        "not_met" if faults or None in short else outcome_of(True) if known else "unknown",
    )


def _room_text(context: Context) -> str:
    limit = Sut(context).memory_limit
    room = (room_bytes(context) or 0) >> 20
    if limit is not None:
        return f"{room} MiB left by the memory limit of control group {limit.group} ({limit.limit_bytes >> 20} MiB)"
    return f"{room} MiB on all nodes together"


def _node_text(node: Node) -> str:
    available = UNKNOWN if node.available_bytes is None else f"{node.available_bytes >> 20} MiB"
    of = "" if node.memory_bytes is None else f" of {node.memory_bytes >> 20} MiB"
    return f"node {node.id} {available}{of}"
