# SPDX-License-Identifier: Apache-2.0
"""The result of ``sutprobe c2c``."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

from calibration.base.grouping import of_known
from calibration.base.model import Model
from calibration.sutprobe.document import Part, Result
from calibration.sutprobe.placement import Interference, Placement, Point, merged_points


class C2cPlacement(Placement):
    """One placement of a cache-to-cache chase: windows in ns per load of a line in the writer's cache."""

    windows_ns: tuple[float, ...]


class C2cTransfer(Point):
    """A pair of CPUs, its setting, and how it ended.

    With method ``transfer`` the reader loads ``lines`` cache lines of node ``home`` from the writer's cache, if they
    are modified (state ``hitm``) or clean (``hit``); with ``pingpong`` the two shake hands over two of the lines, which
    then have no state. ``home`` is ``None`` if it is a CPU's own node and no thread ran on that CPU.
    """

    IDENTITY: ClassVar = ("writer", "reader", "home", "state", "method")

    writer: int
    reader: int
    home: int | None
    state: Literal["hit", "hitm"] | None
    method: Literal["transfer", "pingpong"]
    lines: int
    checked: bool


class C2cPair(C2cTransfer):
    """A pair with its placements."""

    placements: tuple[C2cPlacement, ...] | None


class C2cCell(C2cTransfer):
    """A pair of a matrix: windows in ns per placement, and the evidence for all placements together.

    Interference has only the threads' own counts; the machine's are read for the whole matrix. A cell of several rounds
    has the round of each placement in ``rounds``, and the evidence of each in ``evidences``.
    """

    placements: tuple[tuple[float, ...], ...] | None
    evidence: Placement | None
    rounds: tuple[int, ...] = ()
    evidences: tuple[Placement, ...] = ()

    @classmethod
    def combined(cls, parts: Sequence[tuple[Part, Self]]) -> dict[str, Any]:
        """Return the placements of all *parts*, lists of windows, with their rounds and evidence beside them."""
        placed = [(part.round, windows) for part, cell in parts for windows in cell.placements or ()]
        return {
            "placements": tuple(windows for _, windows in placed),
            "rounds": tuple(number for number, _ in placed),
            "evidences": tuple(cell.evidence for _, cell in parts if cell.evidence is not None),
            "checked": all(cell.checked for _, cell in parts),
            "stopped": parts[-1][1].stopped,
        }

    @property
    def all_evidence(self) -> tuple[Placement, ...]:
        """The evidence of every round."""
        return self.evidences or (() if self.evidence is None else (self.evidence,))


class C2cEstimate(Model):
    """The expected duration of a matrix of ``pairs``, from the first ``measured_on``.

    Those ``chosen`` take at most ``budget_s``.
    """

    pairs: int
    measured_on: int
    pair_s: float
    expected_s: float
    budget_s: float
    chosen: int


class C2cSearch(Result):
    """Result of ``sutprobe c2c --matrix-budget-s``: ``chosen`` are a number of pairs, and the seed of their order."""

    chosen: tuple[int, int]
    estimate: C2cEstimate


class C2cLeftOut(Model):
    """Pairs of a matrix that were skipped, each as ``WRITER@READERS``, and why."""

    code: str
    message: str
    pairs: tuple[str, ...]


class C2cResult(Result):
    """Result of ``sutprobe c2c``: the listed pairs, in order, and those of a matrix by CPU.

    ``interference``, of all CPUs of the matrix over its whole time, is ``None`` without a matrix.
    """

    pairs: tuple[C2cPair, ...]
    cells: tuple[C2cCell, ...]
    not_measured: tuple[C2cLeftOut, ...]
    interference: Interference | None

    @classmethod
    def merged(cls, rounds: Sequence[tuple[Part, Self]]) -> Self:
        """Return the results of *rounds* as one; pairs skipped are the same in all."""
        return rounds[0][1].model_copy(
            update={
                "pairs": merged_points([(part, result.pairs) for part, result in rounds]),
                "cells": merged_points([(part, result.cells) for part, result in rounds]),
                "interference": of_known(Interference.summed, (result.interference for _, result in rounds)),
            }
        )
