# SPDX-License-Identifier: Apache-2.0
"""Cache-to-cache latency: the duration of one load if another core's cache holds the line."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, permutations
from operator import attrgetter
from typing import Literal, NamedTuple

from pydantic import PositiveInt

from calibration import units
from calibration.errors import InputError
from calibration.measurements.base import (
    Declaration,
    HalfWidth,
    Metric,
    Parsed,
    Planned,
    RepeatedSettings,
    Step,
    Values,
    cells_of,
    missing_part,
    require_any,
)
from calibration.measurements.evidence import estimate_of, evidence_flags
from calibration.measurements.instructions import without_flush
from calibration.measurements.metric_rows import transfer
from calibration.measurements.neighbourhood import Neighbourhood, sampled
from calibration.measurements.sut import Sut, whole_pages
from calibration.statistics import Estimate
from calibration.sutprobe.c2c import C2cPair, C2cResult
from calibration.sutprobe.document import ProbeDocument, read_result
from calibration.validity import Flag, flag

ASYMMETRY = 0.05
"""Relative difference between the two directions of a transfer that is flagged."""

PLACEMENT_S = 0.015
"""Page read-back, core clock before and after, and warm-up, for the expected duration only."""

L2_PARTS = 2
"""The lines of a transfer, one of every four, span such a part of the second-level cache; sutprobe chooses them."""

WINDOW_S = 0.003
"""One window: some 16,000 lines prepared and loaded over a slow link, for the expected duration only."""

State = Literal["hit", "hitm"]


class Transfer(NamedTuple):
    """A transfer to time: ``reader`` loads lines of node ``home`` that ``writer`` has in its cache."""

    writer: int
    reader: int
    home: int
    state: State

    def __str__(self) -> str:
        return f"{self.writer}@{self.reader}:{self.home}:{self.state}"


class C2cSettings(RepeatedSettings):
    """How often a transfer is repeated in a round: *placements* fresh allocations of *windows* windows.

    Nodes of one package, and those of different packages, contribute *pairs_per_class* pairs at most, in both
    directions.
    """

    placements: PositiveInt = 3
    windows: PositiveInt = 5
    pairs_per_class: PositiveInt = 16
    target_half_width: HalfWidth = 0.03


Cells = tuple[tuple[Estimate | None, ...], ...]


class C2cLatencyValues(Values):
    """Latency in ns per load of a line that another core's cache holds.

    The local latencies are between cores of ``local_node``, with lines of node ``local_home``. The matrices have a row
    per writer's node and a column per reader's node, both ``nodes``; ``cpus`` are the CPUs that wrote and read, and
    ``lines`` the lines handed over at a time. Cells without a value are ``None``: the diagonal, those not planned,
    and those listed in ``missing``.
    """

    kind: Literal["c2c_latency"] = "c2c_latency"
    local_node: int | None
    local_home: int | None
    local_writer: int | None
    local_reader: int | None
    local_lines: int | None
    local_hit_ns: Estimate | None
    local_hitm_ns: Estimate | None
    nodes: tuple[int, ...]
    cpus: tuple[int, ...]
    lines: tuple[int, ...]
    remote_hitm_writer_homed_ns: Cells
    remote_hitm_reader_homed_ns: Cells


class C2cLatency(Declaration[C2cSettings, C2cLatencyValues]):
    """A random chase over lines just read or written by another core."""

    kind = "c2c_latency"
    title = "Cache-to-cache latency"
    question = "How long does one load take when another core's cache holds the line?"
    settings = C2cSettings
    values = C2cLatencyValues
    metric_rows = (
        transfer(
            "c2c_latency.local_{line:hit|hitm}_ns",
            "a line that another core of the same node has in its cache, clean or modified",
            "c2c_local_{line}_ns",
        ),
        transfer(
            "c2c_latency.{writer_node}.{reader_node}.remote_hitm_{home:writer|reader}_homed_ns",
            "a modified line from a writer in the first node to a reader in the second, by whose memory is its home",
            "c2c_{relation}_hitm_{home}_ns",
        ),
    )

    def steps(self, sut: Sut, settings: C2cSettings) -> Iterator[Planned]:
        """Yield one step with two transfers within a node and two for each ordered pair of nodes."""
        transfers: list[Transfer] = []
        if pair := _local_pair(sut):
            home = sut.home(sut.node_of(pair[0]))
            if reason := without_flush(sut.context):
                yield self.not_planned(reason, "Transfer of a clean line within a node")
            else:
                transfers.append(Transfer(*pair, home, "hit"))
            transfers.append(Transfer(*pair, home, "hitm"))
        else:
            yield self.not_planned("no node has CPUs of two cores that may be used", "Transfers within a node")
        measuring = {node: sut.measuring_cpu(node) for node in sut.cpu_nodes}
        homes = [node for node in measuring if node in sut.memory_nodes]
        if len(measuring) < 2:
            yield self.not_planned("no two nodes have CPUs that may be used", "Transfers between nodes")
        else:
            for node in (node for node in measuring if node not in homes):
                yield self.not_planned(f"node {node} has no memory", f"Transfers homed in node {node}")
        neighbourhood = Neighbourhood(sut.context, list(measuring.values()))
        chosen: set[frozenset[int]] = set()
        for name, pairs in neighbourhood.counts().items():
            sample = neighbourhood.sample(name, settings.pairs_per_class)
            chosen |= set(map(frozenset, sample))
            if len(sample) < pairs:
                yield self.not_planned(*sampled(name, pairs, len(sample), settings.pairs_per_class))
        for writer, reader in permutations(measuring, 2):
            if {measuring[writer], measuring[reader]} in chosen:
                transfers += [
                    Transfer(measuring[writer], measuring[reader], home, "hitm")
                    for home in (writer, reader)
                    if home in homes
                ]
        if not transfers:
            return
        nodes = f"between {len(measuring)} nodes" if len(measuring) > 1 else "within one node"
        per_placement_s = PLACEMENT_S + settings.windows * WINDOW_S
        cost_s = settings.placements * per_placement_s
        yield self.step(
            f"{units.plural(len(transfers), 'transfer')} {nodes}",
            "c2c",
            {
                "pair": transfers,
                "placements": settings.placements,
                "windows": settings.windows,
            },
            cpus=sorted({cpu for transfer in transfers for cpu in (transfer.writer, transfer.reader)}),
            memory_bytes={transfer.home: whole_pages(sut.l2_bytes // L2_PARTS) for transfer in transfers},
            tasks=2,
            cost_s=len(transfers) * cost_s,
            setup_s=len(transfers) * settings.placements * PLACEMENT_S,
            repeated=settings,
        )

    def parse(self, document: ProbeDocument, step: Step, sut: Sut) -> Iterator[Parsed]:
        """Yield all transfers; one without a value is ``None`` and listed with its reason."""
        result = read_result(document, C2cResult)
        target = step.target_half_width
        found = {_transfer(pair): pair for pair in result.pairs}
        if len(found) != len(result.pairs):
            raise InputError(f"a transfer of {step.id} appears twice")
        latencies = {
            transfer: estimate_of(pair.placements, attrgetter("windows_ns"), "ns", target)
            for transfer, pair in found.items()
            if pair.placements
        }
        require_any(latencies, result.pairs, "transfer")
        values = _values(sut, found, latencies)
        yield Parsed(
            id=step.id,
            values=values,
            flags=(*evidence_flags(document, result.pairs), *_asymmetry(values)),
            missing=tuple(missing_part(_words(transfer), pair.error) for transfer, pair in found.items() if pair.error),
        )

    def metrics(self, values: C2cLatencyValues) -> Iterator[Metric]:
        """Yield every transfer that has a value."""
        for name, latency in (("hit", values.local_hit_ns), ("hitm", values.local_hitm_ns)):
            if latency is not None:
                yield self.metric(f"local_{name}_ns", f"{self.title}, local {name.upper()}", latency)
        for homed, matrix in _matrices(values):
            for writer, reader, cell in cells_of(values.nodes, values.nodes, matrix):
                title = f"{self.title}, HITM, writer in node {writer}, reader in node {reader}, {homed} homed"
                yield self.metric(f"{writer}.{reader}.remote_hitm_{homed}_homed_ns", title, cell)


def _local_pair(sut: Sut) -> tuple[int, int] | None:
    """Return writer and reader on two cores of the first node with two; isolated CPUs first, then near ones."""
    domains = sut.context.topology.last_level_cache_domains
    lowest = min(sut.cpus, default=None)
    for node in sut.cpu_nodes:
        writer = sut.measuring_cpu(node)
        near = next((set(domain) for domain in domains if writer in domain), set[int]())
        others = set(sut.cpus_of(node)) - set(sut.siblings(writer))
        if others:
            order = {cpu: (cpu not in sut.isolated, cpu not in near, cpu == lowest, cpu) for cpu in others}
            return writer, min(others, key=lambda cpu: order[cpu])
    return None


def _transfer(pair: C2cPair) -> Transfer:
    if pair.method != "transfer" or pair.home is None or pair.state is None:
        raise InputError(f"{pair.method} of CPU {pair.writer} has no home node or line state")
    return Transfer(pair.writer, pair.reader, pair.home, pair.state)


def _words(transfer: Transfer) -> str:
    return (
        f"{transfer.state.upper()} from CPU {transfer.writer} to CPU {transfer.reader}, homed in node {transfer.home}"
    )


def _values(sut: Sut, pairs: Mapping[Transfer, C2cPair], latencies: Mapping[Transfer, Estimate]) -> C2cLatencyValues:
    """Return the *latencies* of *pairs* by node and home.

    Raises ``InputError`` if they are not those of a step of this kind.
    """
    lines = {pair.writer: pair.lines for pair in pairs.values()}
    local = [pair for pair in pairs if sut.node_of(pair.writer) == sut.node_of(pair.reader)]
    remote = [pair for pair in pairs if pair not in local]
    if len({pair[:3] for pair in local}) > 1:
        raise InputError(f"more than one local pair of CPUs: {_list(local)}")
    cpus: dict[int, int] = {}
    for pair in remote:
        homes = (sut.node_of(pair.writer), sut.node_of(pair.reader))
        if pair.home not in homes or pair.state != "hitm":
            raise InputError(f"modified line homed with neither writer nor reader: {pair}")
        for node, cpu in zip(homes, (pair.writer, pair.reader), strict=True):
            if cpus.setdefault(node, cpu) != cpu:
                raise InputError(f"remote transfers of node {node} use several CPUs: {_list(remote)}")
    nodes = sorted(cpus)
    one = next(iter(local), None)
    local_ns = {pair.state: latencies.get(pair) for pair in local}

    def matrix(home_of: Literal["writer", "reader"]) -> Cells:
        def cell(writer: int, reader: int) -> Estimate | None:
            home = writer if home_of == "writer" else reader
            return None if writer == reader else latencies.get(Transfer(cpus[writer], cpus[reader], home, "hitm"))

        return tuple(tuple(cell(writer, reader) for reader in nodes) for writer in nodes)

    return C2cLatencyValues(
        local_node=None if one is None else sut.node_of(one.writer),
        local_home=None if one is None else one.home,
        local_writer=None if one is None else one.writer,
        local_reader=None if one is None else one.reader,
        local_lines=None if one is None else lines[one.writer],
        local_hit_ns=local_ns.get("hit"),
        local_hitm_ns=local_ns.get("hitm"),
        nodes=tuple(nodes),
        cpus=tuple(cpus[node] for node in nodes),
        lines=tuple(lines[cpus[node]] for node in nodes),
        remote_hitm_writer_homed_ns=matrix("writer"),
        remote_hitm_reader_homed_ns=matrix("reader"),
    )


def _list(transfers: Iterable[Transfer]) -> str:
    return ", ".join(map(str, transfers))


def _matrices(values: C2cLatencyValues) -> Sequence[tuple[str, Cells]]:
    return ("writer", values.remote_hitm_writer_homed_ns), ("reader", values.remote_hitm_reader_homed_ns)


def _asymmetry(values: C2cLatencyValues) -> Iterator[Flag]:
    for homed, cells in _matrices(values):
        for row, column in combinations(range(len(values.nodes)), 2):
            there, back = cells[row][column], cells[column][row]
            if there is None or back is None:
                continue
            if abs(there.value - back.value) / min(there.value, back.value) > ASYMMETRY:
                yield flag(
                    "ASYMMETRIC",
                    f"{homed} homed, writer in node {values.nodes[row]} and reader in node {values.nodes[column]} take "
                    f"{there.value:.1f} ns, the reverse {back.value:.1f} ns",
                )


MEASUREMENT = C2cLatency()
