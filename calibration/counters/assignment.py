# SPDX-License-Identifier: Apache-2.0
"""Assignment of a hardware thread's counters to events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from calibration.counters.tables import CoreEvent, SampledEvent, Table

SAMPLES = "samples"
"""Name used if no loads can be sampled."""

CYCLES = "core.cycles"


class Counters:
    """The counters of one hardware thread, and their assignment."""

    def __init__(self, table: Table | None, smt_off: bool, nmi_watchdog: int | None) -> None:
        self._table = table
        general = None if table is None else table.general_counters
        self._general = table.without_smt if table and smt_off and table.without_smt else general
        self._watched = bool(nmi_watchdog)
        self._rows: list[CoreEvent | SampledEvent] = []

    def take(self, rows: Sequence[CoreEvent | SampledEvent]) -> str | None:
        """Give each of *rows* a counter, all or none; return the reason if none."""
        if self._general is None or assign([self._possible(row) for row in (*self._rows, *rows)]) is not None:
            self._rows += rows
            return None
        held = ", ".join(dict.fromkeys(row.role for row in self._rows if isinstance(row, CoreEvent))) or "nothing else"
        watchdog = " and the kernel's NMI watchdog" if self._watched else ""
        return f"no free counter beside {held}{watchdog}: request it without them"

    def _possible(self, row: CoreEvent | SampledEvent) -> Sequence[int]:
        """Return the counters that *row* may use; those from -1 down are the fixed ones."""
        general = range(self._general or 0)
        fixed = self._table.fixed if self._table else ()
        role = row.role if isinstance(row, CoreEvent) else SAMPLES
        if role in fixed and not (self._watched and role == CYCLES):  # the NMI watchdog uses the cycle counter
            return (-1 - fixed.index(role), *general)
        return [counter for counter in row.counters if counter in general] if row.counters is not None else general


def assign(possible: Sequence[Sequence[int]]) -> Mapping[int, int] | None:
    """Return a counter for each event, given those each may use; None if impossible (augmenting paths)."""
    holder: dict[int, int] = {}

    def place(event: int, tried: set[int]) -> bool:
        for counter in possible[event]:
            if counter in tried:
                continue
            tried.add(counter)
            if counter not in holder or place(holder[counter], tried):
                holder[counter] = event
                return True
        return False

    return holder if all(place(event, set()) for event in range(len(possible))) else None
