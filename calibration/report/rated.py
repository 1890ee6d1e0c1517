# SPDX-License-Identifier: Apache-2.0
"""Memory as rated by firmware and CXL devices beside what was measured, for the page: what is rated alike together."""

from collections.abc import Sequence
from typing import NamedTuple

from calibration.base import units
from calibration.base.grouping import grouped
from calibration.context.model import Context
from calibration.results.model import Measurement
from calibration.results.rated import DISTANCE, LOCAL_DISTANCE, Compared, compared, rated_text


class RatedRow(NamedTuple):
    """Ratings of the memory of some nodes from one, as words; ``measurement`` is that of the measured values."""

    cpus: str
    memory: str
    source: str
    rated: str
    measured: str
    ratio: str
    measurement: Measurement | None


def rated_rows(context: Context, measurements: Sequence[Measurement]) -> list[RatedRow]:
    """Return a row for each rating of memory from one node."""
    others = (item for item in compared(context, measurements) if item.own is None or item.cpu_node != item.memory_node)
    alike = grouped(
        ((item.cpu_node, item.source, item.what, item.rated, _behind(context, item.memory_node)), item)
        for item in others
    )
    return [_row(items, behind) for (*_, behind), items in alike.items()]


def _row(items: Sequence[Compared], behind: str) -> RatedRow:
    first = items[0]
    is_distance = first.what == DISTANCE
    ratios = [ratio for item in items if (ratio := item.ratio) is not None]
    values = [item.measured[1].value for item in items if item.measured is not None]
    times = first.rated / LOCAL_DISTANCE
    local = [ratio.model_copy(update={"value": ratio.value * times, "unit": "times local"}) for ratio in ratios]
    return RatedRow(
        cpus="the nearest node" if first.cpu_node is None else f"node {first.cpu_node}",
        memory=f"{units.numbered('node', (item.memory_node for item in items))}{behind}",
        source=first.source if is_distance else f"{first.source}, {first.what}",
        rated=f"{rated_text(first)}, {times:g} times local" if is_distance else rated_text(first),
        measured=units.headline_range(local if is_distance else values),
        ratio=units.headline_range(ratios),
        measurement=None if first.measured is None else first.measured[0],
    )


def _behind(context: Context, node: int) -> str:
    """Return the cache before the memory of a node, if there is one."""
    size_bytes = context.memory_side_cache_bytes(node)
    if size_bytes:
        return f", behind a cache of {units.size(size_bytes)}"
    return ", behind a cache of unknown size" if context.side_cache_unknown(node) else ""
