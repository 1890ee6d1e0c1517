# SPDX-License-Identifier: Apache-2.0
"""The answer on a SUT: is the machine all right, since when, what changed with it, what to do, may we test.

It is computed once from the verdicts of a night, and shown in the same words by pages, the terminal, gates, exports
and notifications. The machine and the measurement have a state each: a noisy virtual machine is no broken server.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date
from typing import Final, Literal, get_args

from calibration.base.grouping import grouped
from calibration.base.model import Model
from calibration.base.names import natural
from calibration.base.text import visible
from calibration.base.trust import NEAR
from calibration.base.units import plural
from calibration.judge.events import SAME_NIGHT, Event
from calibration.judge.judged import JudgedNights, describe, failure_order
from calibration.judge.prediction import ENOUGH_NIGHTS
from calibration.judge.verdicts import CHECKS, RUN, Check, ContextChange, NightVerdict, changes_text
from calibration.measurements import row_of
from calibration.measurements.metric_rows import FAMILIES
from calibration.results.history import Headline, Sut

State = Literal["fails", "not_measured", "faulty", "no_baseline", "changed", "as_accepted", "gone"]
"""State of a machine on a night, most urgent first. ``faulty``: the measurement is incomplete, invalid or
contradictory. ``changed``: for the better. ``gone``: not expected any more."""

URGENT: Final[Collection[State]] = ("fails", "not_measured", "faulty")
"""States with which a night fails."""

OF_THE_MEASUREMENT: Final[Collection[Check]] = ("unreadable", "complete", "missing", "consistency")
"""Checks whose failure says nothing about the machine."""

WORDS: Final[Mapping[State, str]] = {
    "fails": "fails",
    "not_measured": "unknown: not measured",
    "faulty": "unknown: faulty measurement",
    "no_baseline": "unknown: no baseline",
    "changed": "changed",
    "as_accepted": "as accepted",
    "gone": "not expected any more",
}

COUNTED: Final[Mapping[State, str]] = {
    "fails": "failed",
    "not_measured": "not measured",
    "faulty": "with a faulty measurement",
    "no_baseline": "without a baseline",
    "changed": "changed for the better",
    "as_accepted": "as accepted",
}
"""The states where SUTs are counted."""

Sharpness = Literal["sharp", "noisy", "invalid", "none"]
"""State of a measurement by its headline metrics. ``none``: there is no run of the night, or no interval in it."""

Look = Literal["good", "bad", "unknown"]
"""Look of one or several answers."""

May = Literal["yes", "no", "unknown"]

TEST: Final[Mapping[State, May]] = {
    "fails": "no",
    "not_measured": "unknown",
    "faulty": "unknown",
    "no_baseline": "unknown",
    "changed": "yes",
    "as_accepted": "yes",
    "gone": "unknown",
}
"""Whether a SUT may be tested."""

MAX_FACTS: Final = 3
"""Changed facts that are named; the others are counted."""

RUN_FIXES: Final[Mapping[Check, tuple[str, tuple[str, ...]]]] = {
    "restored": ("measure again: every run tries to restore first", ("calibration", "run", "--limit", "HOST")),
    "inventory": ("correct the SUT or its inventory", ("calibration", "audit", "{sut}")),
    "errors": ("replace the part that the errors or the kernel's log name", ("calibration", "show", "{sut}")),
    "complete": ("measure what is missing", ("calibration", "run", "--resume", "--limit", "HOST")),
    "missing": ("measure it", ("calibration", "run", "--limit", "HOST")),
}
"""What to do about a failed check of a run, and the command."""


def labelled(about: str, text: str) -> str:
    """Return a line of an answer: what it is about, and its *text*."""
    return f"{about} {text}" if about.endswith("?") else f"{about}: {text}"


class Answer(Model):
    """The answer on one SUT for one night.

    ``what`` says what is wrong, or what is missing for a judgement; ``since`` is its first night, ``others`` the number
    of further metrics that fail. ``changes`` are the facts that changed with it, ``peers`` what the testbed's other
    SUTs did that night. ``todo`` is what to do, with the ``command`` for it; ``nights`` the nights with a run so far.
    """

    testbed: str
    sut: str
    night: date
    run_id: str | None
    state: State
    since: date | None
    what: str
    others: int
    sharpness: Sharpness
    measured: str
    changes: tuple[ContextChange, ...]
    peers: str | None
    todo: str | None
    command: tuple[str, ...]
    test: May
    nights: int

    @property
    def machine(self) -> str:
        """The state of the machine, since when, and what is wrong, in one line."""
        since = "" if self.since is None or self.state not in {"fails", "changed"} else f" since {self.since}"
        more = f", and {plural(self.others, 'more metric')}" if self.others else ""
        return f"{WORDS[self.state]}{since}" + (f": {self.what}{more}" if self.what else "")

    @property
    def measurement(self) -> str:
        """The state of the measurement in one line."""
        return self.measured if self.sharpness == "none" else f"{self.sharpness}: {self.measured}"

    @property
    def changed(self) -> str | None:
        """What changed with it, and what the peers did; ``None`` if nothing is wrong."""
        if not self.changes and self.state not in {"fails", "changed"}:
            return None
        return "; ".join(filter(None, (changes_text(self.changes, MAX_FACTS), self.peers)))

    @property
    def text(self) -> str:
        """The answer as a text of some lines."""
        (_, first), *rest = self.lines()
        return "\n".join(map(visible, (first, *(labelled(about, text) for about, text in rest))))

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield the answer as lines: what each is about, and the text."""
        yield "Machine", self.machine
        yield "Measurement", self.measurement
        if self.changed is not None:
            yield "Changed", self.changed
        if self.todo is not None:
            yield "Do", self.todo + (f": {' '.join(self.command)}" if self.command else "")
        yield "May we test?", self.test


def answers(nights: JudgedNights) -> dict[Sut, Answer]:
    """Return the answer on every SUT of *nights* for the last one, by testbed and name."""
    return {sut: answer_of(nights, sut) for sut in sorted({*nights.history.runs, *nights.of_sut})}


def urgency(answer: Answer) -> tuple[int, list[tuple[int, str]], list[tuple[int, str]]]:
    """Return a sort key: the most urgent state first, then by testbed and name."""
    return get_args(State).index(answer.state), natural(answer.testbed), natural(answer.sut)


def headline(found: Sequence[Answer], night: date) -> str:
    """Return the number of SUTs of *night* in each state."""
    counts = Counter(answer.state for answer in found)
    every = len(found) - counts["gone"]
    states = [f"{counts[state]} {word}" for state, word in COUNTED.items() if counts[state]]
    return f"Night of {night}, {plural(every, 'SUT')}: {', '.join(states) or 'none expected'}"


def look(found: Sequence[Answer]) -> Look:
    """Return the look of a lab's headline: good only if every SUT may be tested."""
    states = {answer.state for answer in found} - {"gone"}
    if states & set(URGENT):
        return "bad"
    return "good" if states and states <= {"changed", "as_accepted"} else "unknown"


def grouped_answers(found: Iterable[Answer], events: Sequence[Event]) -> list[tuple[list[Answer], Answer]]:
    """Return the *found* answers, the most urgent first: those of SUTs that share a failed event are one.

    Each group comes with the answer that stands for it.
    """
    left = {f"{answer.testbed}/{answer.sut}": answer for answer in sorted(found, key=urgency)}
    groups = []
    while left:
        name, answer = next(iter(left.items()))
        event = next((event for event in events if event.failed and event.covers(name, answer.since)), None)
        names = [name] if event is None else [other for other, item in left.items() if event.covers(other, item.since)]
        groups.append(([left.pop(other) for other in names], answer))
    return groups


def changed_facts(found: Iterable[Answer]) -> list[tuple[str, list[Sut]]]:
    """Return the facts that changed tonight at SUTs where no metric did, with those SUTs, most SUTs first."""
    changed = grouped(
        (item.text, (answer.testbed, answer.sut))
        for answer in found
        if answer.state not in {*URGENT, "changed"}
        for item in answer.changes
    )
    return sorted(changed.items(), key=lambda item: -len(item[1]))


def answer_of(nights: JudgedNights, sut: Sut) -> Answer:
    """Return the answer on *sut* for the last of *nights*."""
    verdicts = nights.of_sut.get(sut, ())
    runs = nights.history.runs.get(sut, {})
    run = runs.get(nights.night)
    state = state_of(verdicts)
    worst, others = _worst(nights, state, verdicts)
    run_id, profile = (None, None) if run is None else (run.run_id, run.profile)
    sharpness, measured = _measured(state, verdicts, nights.history.headlines.get(sut, ()), profile)
    todo, command = _todo(sut, state, worst, len(runs))
    if todo is None or (state == "no_baseline" and profile == "quick"):
        todo, command = _sharper(sharpness, profile) or (todo, command)
    return Answer(
        testbed=sut[0],
        sut=sut[1],
        night=nights.night,
        run_id=run_id,
        state=state,
        since=None if worst is None else worst.since,
        what=_what(nights, state, worst, len(runs)),
        others=others,
        sharpness=sharpness,
        measured=measured,
        changes=nights.changed_tonight(sut) if worst is None else worst.context_changes,
        peers=None if worst is None or worst.since is None else _peers(nights, sut, worst.since),
        todo=todo,
        command=command,
        test=TEST[state],
        nights=len(runs),
    )


def state_of(verdicts: Sequence[NightVerdict]) -> State:
    """Return the state of the machine with these *verdicts* of one night; without any it is gone."""
    if all(verdict.check == "unreadable" for verdict in verdicts):
        return "faulty" if verdicts else "gone"
    limits = [verdict for verdict in verdicts if verdict.check == "limits"]
    failed = [verdict for verdict in verdicts if verdict.outcome == "fail"]
    absent = any((verdict.check, verdict.metric) == ("missing", RUN) for verdict in failed)
    if absent and all(limit.value is None for limit in limits):  # verdicts on levels have a value without a run, too
        return "not_measured"
    if failed:
        return "faulty" if all(verdict.check in OF_THE_MEASUREMENT for verdict in failed) else "fails"
    if not any(limit.outcome in {"pass", "noted"} for limit in limits):
        return "no_baseline"
    return "changed" if any(verdict.better for verdict in verdicts) else "as_accepted"


def _worst(nights: JudgedNights, state: State, verdicts: Sequence[NightVerdict]) -> tuple[NightVerdict | None, int]:
    """Return the verdict that the answer names, and the number of other metrics with one like it."""
    alike = [verdict for verdict in verdicts if verdict.outcome == "fail"]
    if state == "fails":
        alike = [verdict for verdict in alike if verdict.check not in OF_THE_MEASUREMENT]
    if state == "changed":
        alike = [verdict for verdict in verdicts if verdict.better]
    if not alike:
        return None, 0
    worst = min(alike, key=lambda verdict: failure_order(nights, verdict))
    return worst, len({verdict.metric for verdict in alike} - {worst.metric, RUN})


def _what(nights: JudgedNights, state: State, worst: NightVerdict | None, measured: int) -> str:
    if worst is not None:
        return describe(nights, worst)
    if state == "no_baseline" and measured < ENOUGH_NIGHTS:
        return f"{measured} of {ENOUGH_NIGHTS} nights so far"
    return ""


def _measured(
    state: State, verdicts: Sequence[NightVerdict], headlines: Sequence[Headline], profile: str | None
) -> tuple[Sharpness, str]:
    """Return the state of the measurement, and how many of its headline metrics are within their goal."""
    if state == "not_measured" and not headlines:
        return "none", "not measured"
    wrong = [item for item in verdicts if item.outcome == "fail" and item.check in {"complete", "consistency"}]
    if wrong:
        return "invalid", min(wrong, key=lambda verdict: CHECKS.index(verdict.check)).reason
    counts = Counter(item.trust for item in headlines)
    aimed = len(headlines) - counts["observed"]
    if not headlines:
        return "none", "not measured"
    if counts["invalid"]:
        return "invalid", f"{counts['invalid']} of {plural(len(headlines), 'headline metric')}"
    if not aimed:
        return "none", f"{plural(len(headlines), 'headline metric')}, observed once: no intervals"
    if not counts["poor"]:
        return "sharp", f"{counts['on_target']} of {plural(aimed, 'headline metric')} within the goal"
    quick = "quick look, " if profile == "quick" else ""
    wide = f"{counts['poor']} of {plural(aimed, 'headline metric')}"
    return "noisy", f"{quick}intervals of {wide} more than {NEAR} times wider than the goal"


def _sharper(sharpness: Sharpness, profile: str | None) -> tuple[str, tuple[str, ...]] | None:
    """Return what to do about a noisy measurement; ``None`` if there is nothing."""
    if sharpness != "noisy":
        return None
    if profile == "quick":
        return "measure longer, for narrower intervals", ("calibration", "run", "--profile", "nightly")
    return "measure again on an idle machine", ("calibration", "run")


def _peers(nights: JudgedNights, sut: Sut, since: date) -> str | None:
    """Return how many of the testbed's other SUTs changed about the night *since*; ``None`` if there are none."""
    peers = [other for other in nights.of_sut if other[0] == sut[0] and other != sut]
    moved = sum(any(abs(night - since) <= SAME_NIGHT for night in nights.moved.get(other, ())) for other in peers)
    if not peers:
        return None
    every = f"{plural(len(peers), 'other SUT')} of {sut[0]}"
    return f"{moved} of {every} changed then, too" if moved else f"none of {every} changed then"


def _todo(sut: Sut, state: State, worst: NightVerdict | None, measured: int) -> tuple[str | None, tuple[str, ...]]:
    """Return what to do, and the command for it; ``None`` if there is nothing to do."""
    name = "/".join(sut)
    if worst is not None and worst.metric == RUN:
        text, command = RUN_FIXES[worst.check]
        return text, tuple(word.format(sut=name) for word in command)
    if worst is not None and worst.check == "unreadable":
        return "restore the file from a backup, or remove it", ()
    if state == "changed":
        return "accept the new level if it was intended", _accept(name)
    if worst is not None:
        return FAMILIES[row_of(worst.metric).family].look, ()
    if state == "no_baseline" and measured < ENOUGH_NIGHTS:
        return f"measure {plural(ENOUGH_NIGHTS - measured, 'more night')}, then accept", _accept(name)
    return ("accept", _accept(name)) if state == "no_baseline" else (None, ())


def _accept(name: str) -> tuple[str, ...]:
    return "calibration", "accept", name, "--by", "NAME", "--reason", "TEXT"
