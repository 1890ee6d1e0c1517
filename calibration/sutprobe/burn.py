# SPDX-License-Identifier: Apache-2.0
"""The result of ``sutprobe burn``."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from calibration.base.grouping import grouped, of_known
from calibration.base.model import Model
from calibration.sutprobe.bandwidth import Telemetry
from calibration.sutprobe.document import Part, ProbeError, Result
from calibration.sutprobe.placement import Interference, Pages

LISTED = 20
"""Most words that differ and are listed, as many as sutprobe lists."""

Hex = Annotated[str, Field(pattern="^0x[0-9a-f]{16}$")]


class Mismatch(Model):
    """A word of memory that was not what was written there.

    ``offset_bytes`` is counted from the start of the CPU's memory on ``node``, ``physical_address`` is the machine's
    (``None`` if unreadable). ``found_again`` is what a second read found, past the caches if the processor can do that.
    """

    at_unix_ns: int
    cpu: int
    node: int
    offset_bytes: int
    in_pass: int
    physical_address: Hex | None
    expected: Hex
    found: Hex
    found_again: Hex

    @property
    def at(self) -> str:
        """When it was found, UTC."""
        return f"{datetime.fromtimestamp(self.at_unix_ns / 1e9, UTC):%Y-%m-%d %H:%M:%S}"


class BurnWindow(Model):
    """All CPUs in one part of the load: memory verified, blocks of arithmetic, and the clocks of the cores."""

    verified_mb_s: float
    blocks_per_s: float
    median_hz: float | None
    lowest_hz: float | None
    lowest_cpu: int | None


class BurnedCpu(Model):
    """One CPU: what it verified, and what was wrong. Clocks are the lowest and highest of its windows."""

    cpu: int
    cpu_verified: bool
    error: ProbeError | None
    bytes: int
    verified_bytes: int
    passes: int
    wrong_words: int
    wrong_bits: int
    blocks: int
    wrong_sums: int
    wrong_lanes: int
    wrong_at_unix_ns: int | None
    lowest_hz: float | None
    highest_hz: float | None

    @classmethod
    def summed(cls, parts: Sequence[Self]) -> Self:
        """Return one CPU's *parts*, of several rounds, as one."""
        sums = ("verified_bytes", "passes", "wrong_words", "wrong_bits", "blocks", "wrong_sums", "wrong_lanes")
        changes: dict[str, Any] = {name: sum(getattr(part, name) for part in parts) for name in sums}
        return parts[0].model_copy(
            update={
                **changes,
                "cpu_verified": all(part.cpu_verified for part in parts),
                "error": next((part.error for part in parts if part.error is not None), None),
                "wrong_at_unix_ns": of_known(min, (part.wrong_at_unix_ns for part in parts)),
                "lowest_hz": of_known(min, (part.lowest_hz for part in parts)),
                "highest_hz": of_known(max, (part.highest_hz for part in parts)),
            }
        )


class BurnedNode(Model):
    """Memory of one node: ``bytes`` were under test at once, ``verified_bytes`` were read back and compared."""

    node: int
    bytes: int
    verified_bytes: int
    wrong_words: int

    @classmethod
    def summed(cls, parts: Sequence[Self]) -> Self:
        """Return one node's *parts*, of several rounds, as one."""
        sums = {name: sum(getattr(part, name) for part in parts) for name in ("verified_bytes", "wrong_words")}
        return parts[0].model_copy(update=sums)


class BurnRound(Model):
    """The course of one round."""

    round: int | None
    window_s: float
    windows: tuple[BurnWindow, ...]
    telemetry: Telemetry | None


class BurnResult(Result):
    """All CPUs at once, for ``load_s``; ``rounds`` has the windows of each."""

    work: str
    stopped: Literal["time", "interrupted"]
    fill_s: float
    load_s: float
    window_s: float
    windows: tuple[BurnWindow, ...]
    cpus: tuple[BurnedCpu, ...]
    nodes: tuple[BurnedNode, ...]
    mismatches: tuple[Mismatch, ...]
    pages: Pages
    interference: Interference
    telemetry: Telemetry | None
    rounds: tuple[BurnRound, ...] = ()

    @property
    def course(self) -> tuple[BurnRound, ...]:
        """The rounds; of a result that is one, itself."""
        return self.rounds or (self._round(None),)

    def _round(self, number: int | None) -> BurnRound:
        return BurnRound(round=number, window_s=self.window_s, windows=self.windows, telemetry=self.telemetry)

    @classmethod
    def merged(cls, rounds: Sequence[tuple[Part, Self]]) -> Self:
        """Return *rounds* as one load."""
        results = [result for _, result in rounds]
        mismatches = sorted(_of_all(results, "mismatches"), key=lambda found: found.at_unix_ns)
        changes: dict[str, Any] = {
            "stopped": max((result.stopped for result in results), key=("time", "interrupted").index),
            "fill_s": sum(result.fill_s for result in results),
            "load_s": sum(result.load_s for result in results),
            "cpus": tuple(map(BurnedCpu.summed, grouped((cpu.cpu, cpu) for cpu in _of_all(results, "cpus")).values())),
            "nodes": tuple(
                map(BurnedNode.summed, grouped((node.node, node) for node in _of_all(results, "nodes")).values())
            ),
            "mismatches": tuple(mismatches[:LISTED]),
            "interference": Interference.summed([result.interference for result in results]),
            "rounds": tuple(result._round(part.round) for part, result in rounds),  # noqa: SLF001 - of this class
        }
        return results[0].model_copy(update=changes)


def _of_all(results: Iterable[BurnResult], name: str) -> list[Any]:
    return [item for result in results for item in getattr(result, name)]
