# SPDX-License-Identifier: Apache-2.0
"""Nights: by the names of runs, and which of them a wrong clock has dated."""

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Final

_NAMED_BY_TIME = re.compile(r"(\d{8})T\d{6}Z-[0-9a-f]{4}")

APART: Final = timedelta(days=31)
"""Nights after the clock are misdated only if they are farther from the others: a clock is wrong by a time zone or by
years, and a controller that is some days behind must not doubt its own last nights."""


REDATE: Final = "set the controller's clock, and delete the runs of the wrong date or move them out of the results"
"""What to do about misdated nights."""


def night_of(run_id: str) -> date | None:
    """Return the night (UTC) in the name of a run; ``None`` if the harness did not name it."""
    named = _NAMED_BY_TIME.fullmatch(run_id)
    try:
        return date.fromisoformat(named.group(1)) if named else None
    except ValueError:
        return None


def today() -> date:
    """Return the date of this machine's clock, in UTC."""
    return datetime.now(UTC).date()


def misdated(nights: Iterable[date]) -> frozenset[date]:
    """Return those of *nights* that were dated by a wrong clock.

    By this machine's clock, nights later than tomorrow cannot be. If a gap separates them from the others, the clock
    was wrong on the fewer: it ran ahead then, or it has gone back since. The newest night is the last of the rest.
    """
    ordered = sorted(set(nights))
    late = [night for night in ordered if night > today() + timedelta(days=1)]
    early = ordered[: len(ordered) - len(late)]
    if not late or not early or late[0] - early[-1] <= APART:
        return frozenset()
    return frozenset(late if len(late) <= len(early) else early)
