# SPDX-License-Identifier: Apache-2.0
"""The machine of a run, for the page."""

from collections.abc import Sequence

from calibration.context.facts import shown
from calibration.context.model import Context
from calibration.measurements.plan import Plan
from calibration.report import devices
from calibration.report.environment import Fact
from calibration.report.vulnerabilities import counts
from calibration.results.health import Health


def machine(context: Context, plan: Plan | None, healths: Sequence[Health] = ()) -> list[Fact]:
    """Return the facts about the SUT that affect its metrics, including what *plan* relied on and what it counted."""
    cache = None if plan is None else plan.last_level_cache
    return [
        *(Fact(label, text) for label, text in shown(context)),
        *(() if cache is None else (Fact("Last-level cache", cache.words),)),
        Fact("Vulnerabilities", counts(context)),
        *devices.health_facts(healths),
    ]
