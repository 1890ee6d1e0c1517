# SPDX-License-Identifier: Apache-2.0
"""The result of ``sutprobe c2c``."""

from typing import Literal

from calibration.model import Model
from calibration.sutprobe.placement import Interference, Outcome, Placement


class C2cPlacement(Placement):
    """One placement of a cache-to-cache chase: windows in ns per load of a line in the writer's cache."""

    windows_ns: tuple[float, ...]


class C2cTransfer(Outcome):
    """A pair of CPUs, its setting, and how it ended.

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
    """A pair with its placements."""

    placements: tuple[C2cPlacement, ...] | None


class C2cCell(C2cTransfer):
    """A pair of a matrix: windows in ns per placement, and the evidence for all placements together.

    Interference has only the threads' own counts; the machine's are read for the whole matrix.
    """

    placements: tuple[tuple[float, ...], ...] | None
    evidence: Placement | None


class C2cEstimate(Model):
    """The expected duration of a matrix of ``pairs``, from the first ``measured_on``; ``chosen`` are measured.

    ``budget_s`` is the limit, 0 for none.
    """

    pairs: int
    measured_on: int
    pair_s: float
    expected_s: float
    budget_s: float
    chosen: int


class C2cLeftOut(Model):
    """Pairs of a matrix that were skipped, each as ``WRITER@READERS``, and why."""

    code: str
    message: str
    pairs: tuple[str, ...]


class C2cResult(Model):
    """Result of ``sutprobe c2c``: the listed pairs, in order, and those of a matrix by CPU.

    ``estimate`` and ``interference`` (of all CPUs of the matrix over its whole time) are ``None`` without a matrix.
    """

    pairs: tuple[C2cPair, ...]
    estimate: C2cEstimate | None
    cells: tuple[C2cCell, ...]
    not_measured: tuple[C2cLeftOut, ...]
    interference: Interference | None
