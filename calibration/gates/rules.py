# SPDX-License-Identifier: Apache-2.0
"""Results of the gates from verdicts, independent of Robot Framework."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal, NamedTuple

from calibration.base.grouping import grouped
from calibration.base.text import message
from calibration.base.units import plural
from calibration.judge.verdicts import RUN, Check, ContextChange, NightVerdict, Outcome
from calibration.results.history import Sut
from calibration.results.run_checks import Result

NOTHING: Final = "nothing to check"
"""Why a gate without a verdict is skipped."""

MAX_NAMED: Final = 20
"""Failures in the message of a gate of all SUTs; its log has all. Robot Framework cuts a message after 40 lines."""

Status = Literal["FAIL", "SKIP", "PASS"]

COUNTED: Final[Mapping[Status, str]] = {"FAIL": "failed", "SKIP": "skipped", "PASS": "passed"}
"""How the SUTs of a gate are counted, worst first."""


class Told(NamedTuple):
    """What a gate needs of a verdict. ``text`` is empty if it only counts: it passes, without a waiver."""

    check: Check
    metric: str
    outcome: Outcome
    text: str


def told(verdict: NightVerdict) -> Told:
    """Return what a gate needs of *verdict*."""
    if verdict.outcome in {"pass", "noted"} and verdict.waiver is None:
        return Told(verdict.check, verdict.metric, verdict.outcome, "")
    words = ("others have", "this one") if verdict.check == "homogeneity" else ("was", "is")
    changes = "; ".join(_change(change, *words) for change in verdict.context_changes)
    text = f"{verdict.reason}. Configuration: {changes}" if changes else verdict.reason
    return Told(verdict.check, verdict.metric, verdict.outcome, text)


def check_verdicts(verdicts: Iterable[Told]) -> Iterator[Result]:
    """Yield *verdicts* as results: those of several metrics that are undecided for one reason are counted."""
    undecided: list[Told] = []
    passed = 0
    for verdict in verdicts:
        if verdict.outcome == "no_reference":
            undecided.append(verdict)
        elif verdict.text:
            yield Result("failed" if verdict.outcome == "fail" else "passed", _about(verdict.metric, verdict.text))
        else:
            passed += 1
    for reason, metrics in grouped((verdict.text, verdict.metric) for verdict in undecided).items():
        yield Result("undecided", _about(metrics[0] if len(metrics) == 1 else f"{len(metrics)} metrics", reason))
    if passed:
        yield Result("passed", "")


def _about(metric: str, text: str) -> str:
    return text if metric == RUN else f"{metric}: {text}"


def _change(change: ContextChange, before: str, after: str) -> str:
    return f"{change.fact}: {before} {change.before or 'unknown'}, {after} {change.after or 'unknown'}"


class Decision(NamedTuple):
    """How a gate ends for a SUT, why, and what else is worth reading."""

    status: Status
    message: str
    notes: tuple[str, ...] = ()


def decide(results: Iterable[Result], empty: str = NOTHING) -> Decision:
    """Return a failure with all failed *results*, else a skip with the undecided ones.

    It is a skip with the noted ones if there are no others, with *empty* if there are none at all.
    """
    texts = grouped((result.outcome, message(result.text)) for result in results)
    notes = tuple(text for outcome in ("passed", "noted") for text in texts.get(outcome, ()) if text)
    if "failed" in texts:
        return Decision("FAIL", "\n".join(texts["failed"]), notes)
    if "undecided" in texts or "passed" not in texts:
        return Decision("SKIP", "\n".join(texts.get("undecided", texts.get("noted", ()))) or empty, notes)
    return Decision("PASS", "", notes)


def decide_all(decisions: Mapping[Sut, Decision]) -> Decision:
    """Return how a gate of all SUTs ends: like the worst of *decisions*, with the counts, and the first failures."""
    counts = Counter(decision.status for decision in decisions.values())
    worst: Status = next((status for status in COUNTED if counts[status]), "SKIP")
    failed = [(sut, item.message.split("\n")) for sut, item in decisions.items() if item.status == "FAIL"]
    lines = [
        f"{' / '.join(sut)}: {first}{f' (and {len(rest)} more)' if rest else ''}"
        for sut, (first, *rest) in failed[:MAX_NAMED]
    ]
    more = [f"and {plural(len(failed) - MAX_NAMED, 'more SUT')}"] if len(failed) > MAX_NAMED else []
    words = ", ".join(f"{counts[status]} {word}" for status, word in COUNTED.items() if counts[status])
    return Decision(worst, "\n".join([f"{plural(len(decisions), 'SUT')}: {words or NOTHING}", *lines, *more]))
