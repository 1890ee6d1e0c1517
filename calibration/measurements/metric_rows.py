# SPDX-License-Identifier: Apache-2.0
"""Metric rows: everything about a metric that does not depend on a machine, beside the declaration of its kind.

Limits, tolerances, causes, metrics of record, the map of a lab, references, exports and reference pages read these.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final, Literal, NamedTuple, get_args

from calibration.base.model import Model
from calibration.context.facts import Aspect

Better = Literal["lower", "higher"]
"""Which direction is better."""

Family = Literal[
    "local_latency",
    "remote_latency",
    "read_bandwidth",
    "mixed_bandwidth",
    "loaded_latency",
    "access_patterns",
    "pages",
    "L1",
    "L2",
    "L3",
    "L4",
    "transfers",
    "clock",
    "longest_gap",
    "lost_time",
    "wakeup",
    "burn_in",
    "undeclared",
]
"""Groups of metrics, in the order of the columns of a lab's map."""


class FamilyRow(NamedTuple):
    """A group of metrics: its column on a lab's map, its title, and where to look first if one got worse."""

    code: str
    title: str
    look: str


_DIMMS: Final = "check that all memory modules are there at full speed (dmidecode -t 17), and dmesg for memory errors"
_CORE: Final = "check limits of the core clock: cpupower frequency-info, and dmesg for throttling"
_UNCORE: Final = "check the uncore clock, cache allocation (resctrl) and sub-NUMA clustering"
_NOISE: Final = (
    "check interrupts, kernel threads and the command line of isolated CPUs: the run's page names the causes"
)

FAMILIES: Final[Mapping[Family, FamilyRow]] = {
    "local_latency": FamilyRow("lat", "idle latency, own node", "check huge pages, the core and the uncore clock"),
    "remote_latency": FamilyRow(
        "rem", "idle latency, other nodes", "check the links between sockets and the uncore clock"
    ),
    "read_bandwidth": FamilyRow("read", "read bandwidth", _DIMMS),
    "mixed_bandwidth": FamilyRow("mix", "other bandwidths", _DIMMS),
    "loaded_latency": FamilyRow("load", "loaded latency", _DIMMS),
    "access_patterns": FamilyRow("acc", "access patterns", "check that the prefetchers are as before"),
    "pages": FamilyRow("page", "page sizes", "check huge pages: THP, and those that are reserved"),
    "L1": FamilyRow("L1", "L1 cache", _CORE),
    "L2": FamilyRow("L2", "L2 cache", _CORE),
    "L3": FamilyRow("L3", "L3 cache", _UNCORE),
    "L4": FamilyRow("L4", "L4 cache", _UNCORE),
    "transfers": FamilyRow("c2c", "core to core", _UNCORE),
    "clock": FamilyRow("clk", "core clock", _CORE),
    "longest_gap": FamilyRow("gap", "longest interruption", _NOISE),
    "lost_time": FamilyRow("lost", "CPU time lost to interruptions", _NOISE),
    "wakeup": FamilyRow("wake", "wake-up latency", "check idle states: cpupower idle-info"),
    "burn_in": FamilyRow("burn", "burn-in", "see which node, CPU and time its errors have; dmesg and the cooling"),
    "undeclared": FamilyRow("old", "metrics of other versions", "measure with this version"),
}
"""The families of metrics, in the order of the columns."""

Quantity = Literal[
    "idle_latency",
    "read_bandwidth",
    "loaded_latency",
    "cache_latency",
    "clock",
    "worst_gap",
    "lost_share",
    "wakeup",
    "firmware_gap",
    "errors",
]
"""Quantities that have metrics of record, in the order in which they are shown."""


class Tolerance(Model):
    """How far two values of a metric may differ, relative to the first, and why."""

    fraction: float
    reason: str


class Record(NamedTuple):
    """The quantity that a metric is the figure of record of; the forms contain labels of the metric.

    ``place`` distinguishes figures of one quantity, for example ``0.1``. Of several metrics of a place, that with the
    lowest ``rank`` counts; with ``worst``, the largest of the isolated CPUs, or of all.
    """

    quantity: Quantity
    title: str
    place: str = ""
    rank: int = 0
    worst: bool = False


LABEL: Final = re.compile(r"\{(\w+)(?::(=?)([^{}]*))?\}")
"""A label in the form of a name: ``{cpu}``, a number; ``{order:fill|spread}``, what matches the expression;
``{memory_node:=cpu_node}``, the same as another label."""

PLACES: Final = frozenset({"cpu", "cpu_node", "memory_node", "reader_node", "writer_node"})
"""Labels that say where a metric was measured. One quantity has a value in each place; other labels, such as levels and
numbers of threads, distinguish quantities."""

CACHES: Final = ("L1", "L2", "L3", "L4")
"""Levels of caches that have metrics."""

MEMORY_LOADS: Final = frozenset[Aspect]({"memory", "time"})
MEMORY_TRAFFIC: Final = frozenset[Aspect]({"memory", "threads"})
CACHED: Final = frozenset[Aspect]({"caches", "clock", "time"})
CLOCKED: Final = frozenset[Aspect]({"clock", "threads", "turbo"})
INTERRUPTED: Final = frozenset[Aspect]({"clock", "interruptions", "threads", "time"})
"""Aspects of loads from memory, of traffic to it, of loads from a cache, of a core's clock, and of its work."""

P99_OF_CPUS: Final = "p99_of_cpus_max_ns"
"""Ends the name of what 99 % of the CPUs do not exceed with their longest time."""

BANDWIDTH_REPEATS: Final = Tolerance(fraction=0.02, reason="bandwidth of one machine repeats within 1 %")
LATENCY_REPEATS: Final = Tolerance(
    fraction=0.03, reason="latency moves by up to 3 % from boot to boot, because its memory lies elsewhere"
)
TRANSFER_REPEATS: Final = Tolerance(fraction=0.05, reason="a transfer depends on the cache slice of its address")
CLOCK_REPEATS: Final = Tolerance(fraction=0.01, reason="a clock that is not throttled repeats within 0.1 %")
ALIKE: Final = Tolerance(fraction=1.0, reason="equal cores differ by noise, which doubles from run to run")
DISTURBED: Final = Tolerance(fraction=0.25, reason="the disturbance of a core differs from minute to minute")


@dataclass(frozen=True)
class MetricRow:
    """Metrics whose names have one form, and everything that they have in common.

    ``name`` is the form of the names (``LABEL``); labels are those of exports. ``reference`` is the quantity of the
    references in which the metric is compared with other machines; ``{relation}`` in it is that of its two nodes.
    Metrics that are ``imported`` are those of texts only.
    """

    name: str
    meaning: str
    family: Family
    unit: str
    better: Better
    tolerance: Tolerance
    depends: frozenset[Aspect]
    record: Record | None = None
    reference: str | None = None
    imported: bool = False

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The regular expression of the names, with a group for each label."""
        expression, end = "", 0
        for found in LABEL.finditer(self.name):
            label, same, choice = found.groups()
            inner = f"(?P={choice})" if same else choice or r"\d+"
            expression += f"{re.escape(self.name[end : found.start()])}(?P<{label}>{inner})"
            end = found.end()
        return re.compile(expression + re.escape(self.name[end:]), re.ASCII)

    @property
    def words(self) -> str:
        """The form of the names for readers: ``N`` for a number, choices in brackets."""

        def shown(found: re.Match[str]) -> str:
            choice = "N" if found[2] else (found[3] or "N").replace(r"\d+", "N").replace("[a-z0-9]+", "WIDTH")
            choice = re.sub(r"\(\?:([^()]*)\)\?", r"[\1]", choice).replace("(?:", "(")
            return f"({choice})" if "|" in choice else choice

        return LABEL.sub(shown, self.name)

    @property
    def example(self) -> str:
        """A name of this form, if its choices are plain words."""
        return LABEL.sub(lambda found: "0" if found[2] else (found[3] or "0").partition("|")[0], self.name)

    def labels(self, name: str) -> dict[str, str] | None:
        """Return the labels of the metric *name*; ``None`` if its name has another form."""
        found = self.pattern.fullmatch(name)
        return None if found is None else found.groupdict()

    def quantity(self, name: str) -> tuple[str, ...]:
        """Return what the metrics *name* and its like in other places have in common; *name* if it has another form."""
        labels = self.labels(name)
        if labels is None:
            return (name,)
        return (self.name, *(value for label, value in labels.items() if label not in PLACES))


latency = partial(MetricRow, unit="ns", better="lower", tolerance=LATENCY_REPEATS, depends=MEMORY_LOADS)
"""Returns the row of a time, unless told otherwise of loads from memory."""

bandwidth = partial(MetricRow, unit="MB/s", better="higher", tolerance=BANDWIDTH_REPEATS, depends=MEMORY_TRAFFIC)
"""Returns the row of a bandwidth, unless told otherwise of memory."""

transfer = partial(
    latency,
    family="transfers",
    tolerance=TRANSFER_REPEATS,
    depends=frozenset[Aspect]({"caches", "clock", "interconnect", "time"}),
)
"""Returns the row of a transfer between cores."""

fraction = partial(MetricRow, unit="fraction")
"""Returns the row of a share or a relative difference, 1 for the whole."""

UNDECLARED: Final = MetricRow(
    name="",
    meaning="a metric of another version",
    family="undeclared",
    unit="",
    better="lower",
    tolerance=Tolerance(fraction=0.05, reason="no measurement of this version has it"),
    depends=frozenset(get_args(Aspect)),
)
"""Stands for the row of a metric that this version does not have."""
