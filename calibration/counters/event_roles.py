# SPDX-License-Identifier: Apache-2.0
"""The roles that can be counted: a closed list, independent of vendors' event names."""

from __future__ import annotations

from typing import Final, Literal

from calibration.model import Model


class EventRole(Model):
    """One role.

    ``unit`` is that of a count, or of a count times its scale. ``of`` is the scope: the whole machine, on one CPU per
    package, or each measuring thread.
    """

    unit: Literal["bytes", "cycles", "instructions", "lines", "loads", "pending loads times cycles"]
    of: Literal["machine", "thread"]
    purpose: str


EVENT_ROLES: Final = {
    "dram.reads": EventRole(unit="bytes", of="machine", purpose="read from memory, counted at the memory controller"),
    "dram.writes": EventRole(unit="bytes", of="machine", purpose="written to memory, counted at the memory controller"),
    "dram.reads_and_writes": EventRole(
        unit="bytes", of="machine", purpose="both, where hardware counts them as one; opened where neither is"
    ),
    "link.bytes": EventRole(unit="bytes", of="machine", purpose="sent over the links between packages"),
    "core.cycles": EventRole(unit="cycles", of="thread", purpose="clock cycles of the core"),
    "core.instructions": EventRole(unit="instructions", of="thread", purpose="instructions that ended"),
    "core.l1d_pending": EventRole(
        unit="pending loads times cycles", of="thread", purpose="alpha: loads outstanding in each cycle, summed"
    ),
    "core.l1_miss": EventRole(unit="loads", of="thread", purpose="beta: loads that missed the first cache"),
    "core.fb_hit": EventRole(unit="loads", of="thread", purpose="gamma: loads that hit a line already on its way"),
    "core.offcore_reads": EventRole(unit="lines", of="thread", purpose="lines that came from memory of the own node"),
    "core.local_reads": EventRole(unit="loads", of="thread", purpose="loads answered by memory of the own node"),
    "core.remote_reads": EventRole(unit="loads", of="thread", purpose="loads answered by memory of another node"),
}
"""All roles, by priority if counters are too few."""
