# SPDX-License-Identifier: Apache-2.0
"""Advice: what to change on a SUT, as far as the capture and the run support it, and what it costs there.

The rules are one table, :data:`calibration.report.advice.rules.RULES`. Their sources are pages of the kernel's
documentation and manual pages, each named by its rule.
"""

from calibration.report.advice.evidence import Evidence
from calibration.report.advice.model import Advice
from calibration.report.advice.rules import RULES
from calibration.results.model import RunDocument

__all__ = ["RULES", "Advice", "advice"]


def advice(document: RunDocument) -> tuple[Advice, ...]:
    """Return the advice that *document* supports, the greatest cost first.

    Empty if the SUT was not captured.
    """
    if document.context is None:
        return ()
    evidence = Evidence(document, document.context.parsed)
    found = [item for rule in RULES for item in rule.apply(evidence)]
    return tuple(sorted(found, key=lambda item: item.rank))
