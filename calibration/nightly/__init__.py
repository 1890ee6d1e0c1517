# SPDX-License-Identifier: Apache-2.0
"""What a nightly calibration does besides measuring: locking, judging, publishing and retention."""

import re
from datetime import date

_NAMED_BY_TIME = re.compile(r"(\d{8})T\d{6}Z-[0-9a-f]{4}")


def night_of(run_id: str) -> date | None:
    """Return the night (UTC) in the name of a run; ``None`` if the harness did not name it."""
    named = _NAMED_BY_TIME.fullmatch(run_id)
    try:
        return date.fromisoformat(named.group(1)) if named else None
    except ValueError:
        return None
