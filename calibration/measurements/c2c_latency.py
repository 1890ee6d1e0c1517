# SPDX-License-Identifier: Apache-2.0
"""Cache-to-cache latency: the duration of one load if another core's cache holds the line."""

from collections.abc import Iterator
from itertools import permutations
from operator import attrgetter
from typing import Any, ClassVar, Literal, NamedTuple, get_args

from pydantic import PositiveInt

from calibration.base import units
from calibration.base.errors import InputError
from calibration.base.statistics import Estimate
from calibration.base.validity import Flag, flag
from calibration.measurements.base import (
    Declaration,
    GridValues,
    HalfWidth,
    Metric,
    Parsed,
    Planned,
    RepeatedSettings,
    Step,
)
from calibration.measurements.evidence import estimate_of, evidence_flags, missing_parts, require_any, uneven
from calibration.measurements.instructions import without_flush
from calibration.measurements.metric_rows import transfer
from calibration.measurements.neighbourhood import Neighbourhood, sampled
from calibration.measurements.sut import Sut, whole_pages
from calibration.measurements.table import Table, TableRow
from calibration.sutprobe.c2c import C2cPair, C2cResult
from calibration.sutprobe.document import ProbeDocument, read_result

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


TransferKind = Literal["local_hit", "local_hitm", "remote_hitm_writer_homed", "remote_hitm_reader_homed"]
"""Transfers of clean and modified lines within a node, and of modified ones between nodes, by whose memory is their
home."""

LOCAL, REMOTE = get_args(TransferKind)[:2], get_args(TransferKind)[2:]


class C2cLatencyValues(GridValues):
    """Latency in ns per load of a line that another core's cache holds.

    Local transfers are between cores of a node, which texts do not name. ``home_node`` has the line's memory;
    ``writer`` and ``reader`` are the CPUs, which handed over ``lines`` at a time.
    """

    kind: Literal["c2c_latency"] = "c2c_latency"

    axes: ClassVar = {"transfer": TransferKind, "writer_node": int | None, "reader_node": int | None}
    columns: ClassVar = {"home_node": int, "writer": int, "reader": int, "lines": int, "latency_ns": Estimate | None}

    @property
    def cpus(self) -> list[int]:
        """The CPU of each node in transfers between nodes, in order of the nodes."""
        remote = [row for row in self.table.rows if row.transfer in REMOTE]
        found = {row.writer_node: row.writer for row in remote} | {row.reader_node: row.reader for row in remote}
        return [found[node] for node in sorted(found)]

    @classmethod
    def check(cls, table: Table, *, read: bool = False) -> None:
        """Raise ``ValueError`` unless *table* is of this kind, and remote transfers have nodes."""
        super().check(table, read=read)
        if any(row.transfer in REMOTE and None in table.labels_of(row) for row in table.rows):
            raise ValueError("a transfer between nodes without its nodes")

    @classmethod
    def printed(cls, table: Table) -> dict[str, Any]:
        """Return the latencies as Intel MLC prints them: local ones, and a matrix of the remote ones for each home."""
        local = {labels[0]: latency for labels, latency in table.cells("latency_ns").items()}
        remote = {kind: table.where(transfer=kind) for kind in REMOTE}
        nodes = tuple(sorted({node for homed in remote.values() for axis in homed.axes for node in homed.labels(axis)}))
        return {
            **{f"{kind}_ns": local.get(kind) for kind in LOCAL},
            "nodes": nodes,
            **{
                f"{kind}_ns": homed.grid("latency_ns", nodes).cells if homed.rows else ()
                for kind, homed in remote.items()
            },
        }


class C2cLatency(Declaration[C2cSettings, C2cLatencyValues]):
    """A random chase over lines just read or written by another core."""

    title = "Cache-to-cache latency"
    question = "How long does one load take when another core's cache holds the line?"
    local = LOCAL
    metric_rows = (
        transfer(
            "c2c_latency.local_{line:hit|hitm}_ns",
            "a line that another core of the same node has in its cache, clean or modified",
            reference="c2c_local_{line}_ns",
        ),
        transfer(
            "c2c_latency.{writer_node}.{reader_node}.remote_hitm_{home:writer|reader}_homed_ns",
            "a modified line from a writer in the first node to a reader in the second, by whose memory is its home",
            reference="c2c_{relation}_hitm_{home}_ns",
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
        latencies = [
            estimate_of(pair.placements, attrgetter("windows_ns"), "ns", target) if pair.placements else None
            for pair in result.pairs
        ]
        require_any([found for found in latencies if found is not None], result.pairs, "transfer")
        rows = [_row(sut, pair, found) for pair, found in zip(result.pairs, latencies, strict=True)]
        rows.sort(
            key=lambda row: (get_args(TransferKind).index(row["transfer"]), row["writer_node"], row["reader_node"])
        )
        uses = {
            (side if row["transfer"] in LOCAL else "remote", row[f"{side}_node"], row[side])
            for row in rows
            for side in ("writer", "reader")
        }
        if len({use[:2] for use in uses}) < len(uses):
            raise InputError(f"transfers of one node use several CPUs: {', '.join(map(_words, result.pairs))}")
        table = C2cLatencyValues.table_of(rows)
        yield Parsed(
            values=C2cLatencyValues(table=table),
            flags=(*evidence_flags(document, result.pairs), *_asymmetry(table)),
            missing=missing_parts(result.pairs, _words),
        )

    def table_metrics(self, table: Table) -> Iterator[Metric]:
        """Yield every transfer that has a value."""
        for row in table.rows:
            where = "" if row.transfer in LOCAL else f"{row.writer_node}.{row.reader_node}."
            if row.latency_ns is not None:
                yield self.metric(f"{where}{row.transfer}_ns", f"{self.title}, {self.words(row)}", row.latency_ns)

    def words(self, row: TableRow) -> str:
        """Return the transfer of *row* in words."""
        if row.transfer in LOCAL:
            return f"local {row.transfer.split('_')[1].upper()}"
        home = row.transfer.split("_")[2]
        return f"HITM, writer in node {row.writer_node}, reader in node {row.reader_node}, {home} homed"


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


def _row(sut: Sut, pair: C2cPair, latency: Estimate | None) -> dict[str, Any]:
    """Return the row of *pair*. Raises ``InputError`` if no step of this kind has it."""
    if pair.method != "transfer" or pair.home is None or pair.state is None:
        raise InputError(f"{pair.method} of CPU {pair.writer} has no home node or line state")
    writer, reader = sut.node_of(pair.writer), sut.node_of(pair.reader)
    home = {writer: "writer", reader: "reader"}.get(pair.home)
    if writer != reader and (home is None or pair.state != "hitm"):
        raise InputError(f"modified line homed with neither writer nor reader: {_words(pair)}")
    return {
        "transfer": f"local_{pair.state}" if writer == reader else f"remote_hitm_{home}_homed",
        "writer_node": writer,
        "reader_node": reader,
        "home_node": pair.home,
        "writer": pair.writer,
        "reader": pair.reader,
        "lines": pair.lines,
        "latency_ns": latency,
    }


def _words(pair: C2cPair) -> str:
    state = (pair.state or "line").upper()
    return f"{state} from CPU {pair.writer} to CPU {pair.reader}, homed in node {pair.home}"


def _asymmetry(table: Table) -> Iterator[Flag]:
    for (kind, writer, reader), there, back, _ in uneven(table.cells("latency_ns")):
        yield flag(
            "ASYMMETRIC",
            f"{kind.split('_')[2]} homed, writer in node {writer} and reader in node {reader} take "
            f"{there.value:.1f} ns, the reverse {back.value:.1f} ns",
        )
