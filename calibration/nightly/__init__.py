# SPDX-License-Identifier: Apache-2.0
"""What the calibration of every night does beside measuring: it is alone, is published, and keeps what policy says."""

import re
from datetime import date

_NAMED_BY_TIME = re.compile(r"(\d{8})T\d{6}Z-[0-9a-f]{4}")


def night_of(run_id: str) -> date | None:
    """Return the night (UTC) that is in the name of a run; ``None`` if somebody else named it."""
    named = _NAMED_BY_TIME.fullmatch(run_id)
    try:
        return date.fromisoformat(named.group(1)) if named else None
    except ValueError:
        return None
