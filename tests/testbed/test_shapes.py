# SPDX-License-Identifier: Apache-2.0
"""Each shape is what its data says, as the capture of a calibration tells; and it can be calibrated."""

from collections.abc import Callable

import pytest

from calibration.context.loader import load
from calibration.context.model import Context
from calibration.results.layout import CAPTURE
from calibration.results.store import read_run
from tests.testbed.shapes import shapes
from tests.testbed.support import Lab, Testbed

MIB = 1 << 20
GIB = 1 << 30


def pool(context: Context, size_bytes: int) -> list[int | None]:
    """Return how many huge pages of a size each node has."""
    return [
        hugepage.total for node in context.nodes for hugepage in node.hugepages if hugepage.size_bytes == size_bytes
    ]


ODDITIES: dict[str, Callable[[Context], bool]] = {
    "small": lambda context: context.cpus.online == (0,),
    "haswell": lambda context: (
        [(model.vendor, model.model) for model in context.processor.models] == [("GenuineIntel", "60")]
    ),
    "two-nodes": lambda context: context.distances == ((10, 20), (20, 10)),
    "four-nodes": lambda context: context.distances == shapes()["four-nodes"].distances,
    "memory-only": lambda context: context.memory_only_nodes == (1,) and context.distances == ((10, 17), (17, 10)),
    "no-memory": lambda context: context.cpu_only_nodes == (1,),
    "smt": lambda context: [core.cpus for core in context.topology.cores] == [(0, 1), (2, 3)],
    "offline": lambda context: (context.cpus.online, context.cpus.offline) == ((0, 1, 2), (3,)),
    "isolated": lambda context: (
        (context.isolation.isolated, context.isolation.nohz_full, context.isolation.rcu_nocbs)
        == ((1, 3), (1, 3), (1, 3))
    ),
    "hugepages": lambda context: (pool(context, GIB), pool(context, 2 * MIB)) == ([1, 0], [32, 64]),
}
"""What a shape is there for."""


def test_every_shape_is_tried_here() -> None:
    # test_devices.py, test_many_cpus.py, test_audit.py, test_nodes.py, test_states.py
    elsewhere = {"devices", "many-cpus", "configured", "misconfigured", "hmat"}
    elsewhere |= {"tuned-realtime", "tuned-cpu-partitioning"}
    assert set(ODDITIES) | elsewhere == {name for name, shape in shapes().items() if shape.architecture == "x86_64"}


@pytest.mark.parametrize("name", ODDITIES)
def test_shape_is_captured_and_calibrated_as_described(name: str, testbed: Testbed, lab: Lab) -> None:
    shape = shapes()[name]
    sut = testbed.sut(name)
    ended = lab.calibrate(testbed.inventory({"shapes": [sut]}, {"ansible_become": True}))
    testbed.stop(sut)  # a machine has memory for a few at a time
    [run] = lab.runs()
    context = load(run / CAPTURE)
    assert [node.id for node in context.nodes] == list(range(len(shape.nodes)))
    for node, wanted in zip(context.nodes, shape.nodes, strict=True):
        assert set(node.cpus) == set(wanted.cpus) & set(context.cpus.online)
        # firmware and kernel keep some of it
        assert wanted.memory_mib * MIB * 0.8 <= (node.memory_bytes or 0) <= wanted.memory_mib * MIB
    assert ODDITIES[name](context)
    assert read_run(run).run.status == "complete", ended.text
