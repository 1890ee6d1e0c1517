# SPDX-License-Identifier: Apache-2.0
"""Results of the gates from verdicts, independent of Robot Framework."""

from collections.abc import Iterable, Iterator
from typing import Final, Literal

from calibration.judge.verdicts import RUN, ContextChange, NightVerdict
from calibration.results.run_checks import Result

OUTCOMES: Final[dict[str, Literal["passed", "failed", "undecided"]]] = {
    "pass": "passed",
    "noted": "passed",
    "fail": "failed",
    "no_reference": "undecided",
}
"""The gate's result for each outcome of a verdict."""


def check_verdicts(verdicts: Iterable[NightVerdict]) -> Iterator[Result]:
    """Yield *verdicts* as results."""
    for verdict in verdicts:
        words = ("others have", "this one") if verdict.check == "homogeneity" else ("was", "is")
        changes = "; ".join(_change(change, *words) for change in verdict.context_changes)
        text = verdict.reason if verdict.metric == RUN else f"{verdict.metric}: {verdict.reason}"
        yield Result(OUTCOMES[verdict.outcome], f"{text}. Configuration: {changes}" if changes else text)


def _change(change: ContextChange, before: str, after: str) -> str:
    return f"{change.fact}: {before} {change.before or 'unknown'}, {after} {change.after or 'unknown'}"
