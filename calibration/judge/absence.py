# SPDX-License-Identifier: Apache-2.0
"""Why a run has no metric that a limit is for."""

from collections.abc import Iterator, Sequence

from calibration.acceptance.limits import Limit
from calibration.measurements import registry
from calibration.results.model import RunDocument


def absence(limit: Limit, documents: Sequence[RunDocument]) -> str:
    """Return that the runs *documents* measured nothing that *limit* is for, and the first reason known."""
    kind = limit.metric.partition(".")[0]
    reasons = dict.fromkeys(reason for document in documents for reason in _reasons(kind, document))
    return ": ".join(("not measured", *tuple(reasons)[:1]))


def _reasons(kind: str, document: RunDocument) -> Iterator[str]:
    """Yield why the run *document* has no metric, or not all, of *kind*; none if that is no kind."""
    if kind not in registry():
        return
    measured = [measurement for measurement in document.measurements if measurement.kind == kind]
    lost = [gone for gone in document.not_measured if gone.kind == kind]
    yield from (gone.reason for gone in sorted(lost, key=lambda gone: gone.cause == "not_planned"))
    for measurement in measured:
        if reason := registry()[kind].absence(measurement.values):
            yield reason
    if not measured and not lost:
        yield f"the profile {document.run.profile} does not have it"
