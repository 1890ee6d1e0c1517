# SPDX-License-Identifier: Apache-2.0
"""The memory available on each node, and the plan's needs."""

from collections.abc import Callable, Iterator, Mapping

from calibration.audit.findings import UNKNOWN, Finding, outcome_of
from calibration.context.model import Context, Node
from calibration.measurements.sut import room_bytes, without_memory_limits
from calibration.plan import Plan
from calibration.profiles import Profile

UNLIMITED_BYTES = 1 << 50
"""Memory of a node that limits no plan: a petabyte."""


def short_of_memory(
    context: Context, profile: Profile, planned: Callable[[Context, Profile], Plan]
) -> dict[int | None, int]:
    """Return the nodes whose available memory limits the plan, and the bytes that would suffice.

    The key ``None`` is all nodes together: the machine, or the memory limit of a control group. *planned* returns the
    plan for a context and a profile. The result is exact to 2 %.
    """
    unlimited = without_memory_limits(context)

    def steps(available: Mapping[int | None, int], chosen: Profile) -> list[tuple[str, tuple[str, ...]]]:
        nodes = tuple(
            node.model_copy(update={"available_bytes": available.get(node.id, UNLIMITED_BYTES)})
            if node.available_bytes is not None and node.memory_bytes
            else node
            for node in context.nodes
        )
        memory = context.memory.model_copy(update={"available_bytes": available.get(None, UNLIMITED_BYTES)})
        plan = planned(unlimited.model_copy(update={"nodes": nodes, "memory": memory}), chosen)
        return [(step.kind, step.argv) for step in plan.steps]

    known: dict[int | None, int] = {
        local.id: local.available_bytes for local in context.nodes if local.available_bytes and local.memory_bytes
    }
    if room := room_bytes(context):
        known[None] = room
    smaller = {kind for kind, _ in set(steps({}, profile)) ^ set(steps(known, profile))}
    if not smaller:
        return {}
    # Each node takes a dozen plans, so plan only the kinds that are short of memory.
    measurements = {kind: measurement for kind, measurement in profile.measurements.items() if kind in smaller}
    profile = profile.model_copy(update={"measurements": measurements})
    whole = steps({}, profile)
    short = {}
    for node, available in known.items():
        if steps({node: available}, profile) == whole:
            continue
        low = high = max(1 << 20, available)
        while high < UNLIMITED_BYTES and steps({node: high}, profile) != whole:
            low, high = high, high * 2
        while high - low > high // 50:
            middle = (low + high) // 2
            low, high = (low, middle) if steps({node: middle}, profile) == whole else (middle, high)
        short[node] = high
    return short


def _mib(size: int) -> str:
    return f"{-(-size // (1 << 20))} MiB"


def check_free_memory(context: Context, minimum: int, short: Mapping[int | None, int]) -> Iterator[Finding]:
    """Yield whether each node has *minimum* bytes available, and the nodes *short* of memory for the plan."""
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
    limit = None if context.confinement is None else context.confinement.memory_limit
    room = (room_bytes(context) or 0) >> 20
    if limit is not None and room == limit.left_bytes >> 20:
        return f"{room} MiB left by the memory limit of control group {limit.group} ({limit.limit_bytes >> 20} MiB)"
    return f"{room} MiB on all nodes together"


def _node_text(node: Node) -> str:
    available = UNKNOWN if node.available_bytes is None else f"{node.available_bytes >> 20} MiB"
    of = "" if node.memory_bytes is None else f" of {node.memory_bytes >> 20} MiB"
    return f"node {node.id} {available}{of}"
