# SPDX-License-Identifier: Apache-2.0
"""What the gates find in a run document and in the verdicts of a night, without Robot Framework."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from calibration.judge.verdicts import ContextChange, NightVerdict
from calibration.preflight import refusal
from calibration.results.model import RunDocument, of_the_run


@dataclass(frozen=True)
class Findings:
    """What a gate found: what it saw to be as it should, what is not, and what cannot be told, a sentence each."""

    shown: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    untold: tuple[str, ...] = ()


def findings_of(sentences: Iterable[tuple[str, str]]) -> Findings:
    """Return the findings that pairs of a field of ``Findings`` and a sentence are."""
    found: dict[str, list[str]] = {"shown": [], "faults": [], "untold": []}
    for field, sentence in sentences:
        found[field].append(sentence)
    return Findings(**{field: tuple(each) for field, each in found.items()})


# The inventory's promises


def promises(document: RunDocument) -> Findings:
    """Return which expectations of the inventory were met before each start of the run.

    What could not be established is not met. A start that was refused measured nothing: it counts where no other did.
    """
    begun = [each for each in document.attempts if each.capture is not None and refusal(each.checks) is None]
    return findings_of(
        (
            "faults" if check.failed else "shown",
            f"{check.title}: expected {check.expected}, found {check.found}",
        )
        for attempt in begun or document.attempts
        for check in attempt.checks
    )


def left_as_found(document: RunDocument) -> Findings:
    """Return which settings of the SUT are after the run what they were before it."""

    def found() -> Iterator[tuple[str, str]]:
        if not any(attempt.changes for attempt in document.attempts):
            yield "shown", "the run changed no setting of the SUT"
        for attempt in document.attempts:
            for change in attempt.changes:
                where = f"{change.setting} of {change.where}"
                if change.restored is None:
                    yield (
                        "faults",
                        f"{where}: expected {change.before} as before the run, nobody is known to have put it back",
                    )
                else:
                    field = "shown" if change.restored == change.before else "faults"
                    yield field, f"{where}: expected {change.before} as before the run, found {change.restored}"
        if document.mlc is not None:
            for command, place in document.mlc.changed_prefetchers:
                now = place.restored or place.after
                yield (
                    "faults",
                    f"prefetchers of {place.where}: expected {place.before} as before --{command}, found {now}",
                )

    return findings_of(found())


def completeness(document: RunDocument) -> Findings:
    """Return whether everything that was planned has a figure, and a valid one."""
    run = document.run
    lost = [each for each in of_the_run(document.not_measured) if each.cause != "not_planned"]
    sentences = [("faults", f"{each.what}: not measured: {each.reason}") for each in lost]
    if run.status != "complete" and not sentences:
        sentences.append(("faults", f"expected a complete run, found one that is {run.status}"))
    for each in document.measurements:
        reasons = [flag.reason for flag in each.validity.flags if flag.severity == "invalid"]
        if each.validity.valid:
            sentences.append(("shown", f"{each.title}: measured, and valid"))
        else:
            sentences.append(("faults", f"{each.title}: invalid: {'; '.join(reasons)}"))
    return findings_of(sentences)


# Verdicts of the night


def judged(verdicts: Iterable[NightVerdict]) -> Findings:
    """Return *verdicts* as findings: one without a reference is neither as it should be nor a fault."""
    fields = {"pass": "shown", "noted": "shown", "fail": "faults", "no_reference": "untold"}
    return findings_of((fields[each.outcome], _verdict(each)) for each in verdicts)


def _verdict(verdict: NightVerdict) -> str:
    text = f"{verdict.metric}: {verdict.reason}"
    words = ("others have", "this one") if verdict.check == "homogeneity" else ("was", "is")
    changes = "; ".join(_change(each, *words) for each in verdict.context_changes)
    return f"{text}. In the context: {changes}" if changes else text


def _change(change: ContextChange, before: str, after: str) -> str:
    return f"{change.fact}: {before} {change.before or 'not known'}, {after} {change.after or 'not known'}"
