# SPDX-License-Identifier: Apache-2.0
"""Would a run be refused? Asks what the start of a run asks, in the same order, and changes nothing on the SUT."""

from __future__ import annotations

import os

from calibration.runner import directory, journal, lock, settings
from calibration.runner.files import Refused, printable


def rehearse(base, job, machine):
    """Return what the run *job* below *base* would restore first, as text; None if nothing.

    Raises Refused, with the reason, if the run would be refused.
    """
    if not os.access(base, os.W_OK | os.X_OK):
        raise Refused("no directory can be made in %s" % base)
    lock.refuse_if_taken(job["lock"])
    left = [text for other in directory.others(base) if (text := left_by(other, machine, job["settings"]))]
    try:
        settings.plan_changes(machine, job["settings"])
    except OSError as error:
        raise Refused("the SUT's settings cannot be read: %s" % error) from error
    return "; ".join(left) or None


def left_by(other, machine, wanted):
    """Return what the run *other* has left changed, as text; None if nothing. Raises Held if it is at work."""
    changed, faults = journal.read(other.descriptor)
    if (changed or faults or wanted) and other.of_this_boot(machine) and not other.hold():
        raise other.at_work()
    run = printable(other.job.get("run_id"))
    if faults and other.of_this_boot(machine):
        raise Refused(f"cannot restore what run {run} left on the SUT. {settings.not_restored(faults)}", faults=faults)
    count = sum(entry.wanted is not None for entry in changed)
    return "%d settings that run %s left changed are restored first" % (count, run) if count else None
