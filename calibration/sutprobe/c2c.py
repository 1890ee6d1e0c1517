# SPDX-License-Identifier: Apache-2.0
"""The result of ``sutprobe c2c``."""

from typing import Literal

from calibration.model import Model
from calibration.sutprobe.placement import Interference, Outcome, Placement


class C2cPlacement(Placement):
    """One placement of a cache-to-cache chase: its windows in ns per load of a line that the writer's cache holds."""

    windows_ns: tuple[float, ...]


class C2cTransfer(Outcome):
    """What a pair of CPUs was asked to do, and how it ended: one of a list, or one of a matrix.

    With method ``transfer`` the reader loads ``lines`` cache lines of node ``home`` from the writer's cache, if they
    are modified (state ``hitm``) or clean (``hit``); with ``pingpong`` the two shake hands over two of the lines, which
    then have no state. ``home`` is ``None`` if it is a CPU's own node and no thread ran on that CPU.
    """

    writer: int
    reader: int
    home: int | None
    state: Literal["hit", "hitm"] | None
    method: Literal["transfer", "pingpong"]
    lines: int
    checked: bool


class C2cPair(C2cTransfer):
    """A pair with all its evidence, placement by placement."""

    placements: tuple[C2cPlacement, ...] | None


class C2cCell(C2cTransfer):
    """A pair of a matrix: windows in ns of each placement, and the evidence for all of them together.

    Of its interference only the threads' own counts are known; the machine's were read for the whole matrix.
    """

    placements: tuple[tuple[float, ...], ...] | None
    evidence: Placement | None


class C2cEstimate(Model):
    """How long a matrix of ``pairs`` was expected to take, by the first ``measured_on``, and how many were ``chosen``.

    ``budget_s`` is what it was allowed, 0 for no limit.
    """

    pairs: int
    measured_on: int
    pair_s: float
    expected_s: float
    budget_s: float
    chosen: int


class C2cLeftOut(Model):
    """Pairs of a matrix that were not measured, each as ``WRITER@READERS``, and why."""

    code: str
    message: str
    pairs: tuple[str, ...]


class C2cResult(Model):
    """Result of ``sutprobe c2c``: the pairs asked for one by one, in that order, and those of a matrix by CPU.

    ``estimate`` and ``interference`` (of all CPUs of the matrix over its whole time) are ``None`` without a matrix.
    """

    pairs: tuple[C2cPair, ...]
    estimate: C2cEstimate | None
    cells: tuple[C2cCell, ...]
    not_measured: tuple[C2cLeftOut, ...]
    interference: Interference | None
