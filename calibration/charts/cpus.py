# SPDX-License-Identifier: Apache-2.0
"""CPUs of large machines in blocks that keep to their nodes, and an axis that names the nodes."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from math import ceil
from typing import Literal

from calibration.charts import base
from calibration.charts.base import Json, Scale

Nodes = Mapping[int, Sequence[int]]
"""The CPUs of each node, those of a core together."""


@dataclass(frozen=True)
class Blocks:
    """CPUs in blocks of *size* along an axis, by node; one node without a name if nodes are unknown."""

    size: int
    by_node: Mapping[str, Sequence[Sequence[int]]]

    @property
    def places(self) -> list[Sequence[int]]:
        """The CPUs at each place."""
        return list(chain.from_iterable(self.by_node.values()))

    @property
    def edges(self) -> list[int]:
        """The place at which each node begins, and the end of the last."""
        return list(accumulate(map(len, self.by_node.values()), initial=0))

    def boundaries(self, channel: Literal["x", "y"]) -> Json:
        """Return a layer of lines between the nodes."""
        return base.rules(channel, self.edges[1:-1], dash=[1, 0])

    def channel(self, scale: Scale, field: Literal["x", "y"], min_px: float) -> Json:
        """Return the channel of places: names of nodes at their middles, at least *min_px* apart, else of CPUs."""
        if len(self.by_node) > 1:
            middles = [(low + high) / 2 for low, high in zip(self.edges, self.edges[1:], strict=False)]
            names, title = list(self.by_node), "CPUs of node"
        else:
            middles = [place + 0.5 for place in range(len(self.places))]
            names, title = [str(block[0]) for block in self.places], "CPU"
        every = ceil(len(names) * min_px / scale.px)
        ticks, shown = middles[::every], names[::every]
        labels = f"{shown}[indexof({ticks}, datum.value)]"
        found = scale.channel(field, title, ticks=ticks, labels=labels, grid=False)
        return found | {"axis": found["axis"] | {"ticks": len(self.by_node) < 2}}


def in_blocks(cpus: Collection[int], nodes: Nodes, most: int) -> Blocks:
    """Return *cpus* in the order of *nodes*, in about *most* blocks of as many CPUs each, none across nodes."""
    here = {str(node): own for node, all_of in nodes.items() if (own := [cpu for cpu in all_of if cpu in cpus])}
    if len(here) < 2 or sum(map(len, here.values())) < len(cpus):
        here = {"": sorted(cpus)}
    most = max(most, len(here))
    size = next(size for size in range(1, len(cpus) + 1) if sum(ceil(len(own) / size) for own in here.values()) <= most)
    return Blocks(
        size,
        {node: [own[at : at + size] for at in range(0, len(own), size)] for node, own in here.items()},
    )
