# SPDX-License-Identifier: Apache-2.0
"""The roles that can be counted: a closed list, independent of vendors' event names."""

from typing import Final, Literal

EVENT_ROLES: Final[dict[str, Literal["machine", "thread"]]] = {
    "dram.reads": "machine",  # bytes read from memory, counted at the memory controller
    "dram.writes": "machine",  # bytes written to memory, counted at the memory controller
    "dram.reads_and_writes": "machine",  # both, if hardware counts them as one; opened if neither is
    "link.bytes": "machine",  # bytes sent over the links between packages
    "core.cycles": "thread",  # clock cycles of the core
    "core.instructions": "thread",  # retired instructions
    "core.l1d_pending": "thread",  # alpha: loads outstanding in each cycle, summed
    "core.l1_miss": "thread",  # beta: loads that missed the first cache
    "core.fb_hit": "thread",  # gamma: loads that hit a line already on its way
    "core.offcore_reads": "thread",  # lines that came from memory of the own node
    "core.local_reads": "thread",  # loads answered by memory of the own node
    "core.remote_reads": "thread",  # loads answered by memory of another node
}
"""All roles with their scope, by priority if counters are too few.

The scope is the whole machine, counted on one CPU per package, or each measuring thread.
"""
