# SPDX-License-Identifier: Apache-2.0
"""What moved a lab's throughput: what its changes follow in the calibration, or that calibration explains nothing.

An association is not a proof: something else may have changed both. docs/method/explanation.rst explains the method.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from math import isfinite
from pathlib import Path
from typing import Final, Literal, NamedTuple

import numpy as np

from calibration.base.errors import InputError
from calibration.base.gc_pause import paused_collector
from calibration.base.grouping import grouped
from calibration.base.model import Model
from calibration.base.names import not_one
from calibration.formats.throughput import Measured, Throughput
from calibration.judge.association import (
    FALSE_CLAIMS,
    MIN_NIGHTS,
    WITHIN,
    Associated,
    Evidence,
    Occurrence,
    associate,
)
from calibration.judge.candidates import Calibration, Candidate, Kind, read_calibration
from calibration.judge.components import Variance, components_of
from calibration.judge.detector import FIRST_REFERENCE, MIN_VALUES, Floats, Integers
from calibration.judge.lasting import Bands, Lasting, Results, bands_of, flipping_suts, lasting_differences
from calibration.judge.throughput import MIN_SIDE, NEAR, Changes, Moved, bound_of, changes_of
from calibration.judge.words import changed_fact
from calibration.results.find import suts_of
from calibration.results.history import Sut

Outcome = Literal["follows", "unexplained", "common"]
"""``follows``: it came with a change of the calibration, more closely than chance. ``unexplained``: calibration
explains nothing here. ``common``: all SUTs of the test changed that night, so the cause is one they have in common."""

MIN_TESTED: Final = MIN_NIGHTS + FIRST_REFERENCE + MIN_SIDE - 1
"""Nights with throughput and calibration that are needed for a claim."""

Place = tuple[str, ...]
"""Hosts that were tested together, as named in the lab's files."""


class Coincidence(Model):
    """What changed in the calibration of ``sut`` (testbed/SUT) with a change of the throughput.

    ``what`` is a metric, with its change as a share in ``size``, or a fact, with its text ``before`` and ``after``;
    ``better`` is whether a metric changed for the better.
    ``chance`` is the probability of a coincidence as good anywhere in the lab if nothing follows the calibration; it is
    ``claimed`` if that is at most 0.05. Of ``alike`` such changes in the lab, ``hits`` had the same effect.
    """

    sut: str
    kind: Kind
    what: str
    night: date
    size: float | None
    better: bool | None
    before: str | None
    after: str | None
    chance: float
    claimed: bool
    hits: int
    alike: int


class ThroughputChange(Model):
    """A change of a test on a SUT: ``night`` is the first, ``size`` the change as a share, with its 95 % interval.

    ``reason`` says why nothing is claimed; ``None`` if something is.
    """

    night: date
    size: float
    interval: tuple[float, float] | None
    outcome: Outcome
    coincidences: tuple[Coincidence, ...]
    reason: str | None


class MeasuredSut(Model):
    """One test on a SUT (testbed/SUT), or on several that were tested together.

    ``level`` is the median of the values since the last change, in the unit of the test. ``reason`` says why changes
    cannot be found or not be explained; ``None`` if they can.
    """

    suts: tuple[str, ...]
    values: int
    first: date
    last: date
    level: float
    changes: tuple[ThroughputChange, ...]
    reason: str | None


class CommonChange(Model):
    """A change that most SUTs have in common, as a share with its 95 % interval.

    ``facts`` changed with it on most of these SUTs, which cannot be told apart from new software under test.
    """

    night: date
    size: float
    interval: tuple[float, float] | None
    facts: tuple[str, ...]


class ExplainedTest(Model):
    """One test. ``controlled`` is whether enough SUTs ran it to tell a SUT's own changes from the lab's.

    ``variance`` is ``None`` if fewer than two SUTs have enough values, or the values do not vary.
    """

    test: str
    unit: str | None
    variance: Variance | None
    controlled: bool
    common: tuple[CommonChange, ...]
    suts: tuple[MeasuredSut, ...]


class Explanation(Model):
    """The answer for all tests.

    ``nights`` counts those with throughput and calibration, at the SUT with most of them. ``false_claims`` is the
    probability of any claim in a lab where nothing follows the calibration, by that many ``shifts`` of the dates; with
    0 there are too few nights, and nothing is claimed. ``lasting`` are SUTs whose results differ from those of equal
    ones all along, ``bands`` results that flip between two levels. ``skipped`` counts results without a value, by what
    they are.
    """

    first: date
    last: date
    nights: int
    false_claims: float
    shifts: int
    skipped: dict[str, int]
    lasting: tuple[Lasting, ...]
    bands: tuple[Bands, ...]
    tests: tuple[ExplainedTest, ...]


@paused_collector()
def explain(results: Path, throughput: Throughput, names: Mapping[str, str]) -> Explanation:
    """Return what moved *throughput*, by the calibrations in *results*.

    *names* are the names of SUTs by their addresses. Raises ``InputError`` if no host of the files is a SUT of the
    results, or if one is a SUT of several testbeds.
    """
    known = suts_of(results)
    places = {place: _suts(place, names, known) for place, _ in throughput.series}
    if not any(places.values()):
        host = next(iter(places))[0]
        raise not_one(names.get(host, host), [], known, "SUT")
    flipping = flipping_suts(_results(test, places, ()) for test in _tests(throughput))
    calibration = read_calibration(results, {sut for suts in places.values() for sut in suts}, flipping)
    return explained(throughput, places, calibration)


def _suts(place: Place, names: Mapping[str, str], known: Sequence[str]) -> tuple[Sut, ...]:
    """Return the SUTs of *place* among the *known*; a traffic generator is none."""
    suts = []
    for host in place:
        name = names.get(host, host)
        found = [sut for sut in known if name in {sut, sut.partition("/")[2]}]
        if len(found) > 1:
            raise InputError(f"several SUTs are named {name}: {', '.join(found)}; write testbed/sut")
        suts += [(testbed, own) for testbed, _, own in (sut.partition("/") for sut in found)]
    return tuple(suts)


@dataclass(frozen=True)
class _Test:
    """One test: ``values`` of shape (places, nights), NaN for missing; ``days`` are the nights' ordinals."""

    test: str
    unit: str | None
    places: tuple[Place, ...]
    days: Integers
    values: Floats


@dataclass
class _Event:
    """What changed at one place together: several tests, with one cause. ``positions`` are among the place's nights."""

    direction: int
    positions: list[int]

    @property
    def position(self) -> int:
        """The median: single tests may be dated a night or two off."""
        return sorted(self.positions)[len(self.positions) // 2]


class _Key(NamedTuple):
    """A change: number of the test, its row and its column."""

    test: int
    row: int
    column: int


@dataclass
class _Lab:
    """Everything of a lab that is needed to answer for one change.

    ``days`` are the nights, as ordinals, on which a place was tested while it was calibrated (``_inner``). ``found``
    are the occurrences with the candidates they were made from.
    """

    places: Mapping[Place, tuple[Sut, ...]]
    calibration: Calibration
    tests: Sequence[_Test]
    changes: Sequence[Changes]
    days: dict[Place, Integers]
    events: dict[Place, list[_Event]] = field(default_factory=dict)
    event_of: dict[_Key, _Event] = field(default_factory=dict)
    found: dict[Place, list[tuple[int, Occurrence, Candidate]]] = field(default_factory=dict)

    def keys(self) -> Iterator[tuple[_Key, Moved]]:
        """Yield all changes of single places."""
        for at, changed in enumerate(self.changes):
            for row, own in enumerate(changed.own):
                for item in own:
                    yield _Key(at, row, item.column), item

    def place_of(self, key: _Key) -> Place:
        return self.tests[key.test].places[key.row]

    def of_both(self, key: _Key, item: Moved) -> bool:
        """Return whether the only other SUT of the test changed too: what they have in common is not known."""
        changed = self.changes[key.test]
        return (
            not changed.controlled
            and len(changed.own) == 2
            and any(
                abs(other.column - item.column) <= NEAR and other.size * item.size > 0.0
                for other in changed.own[1 - key.row]
            )
        )


def explained(throughput: Throughput, places: Mapping[Place, tuple[Sut, ...]], calibration: Calibration) -> Explanation:
    """Return what moved *throughput*, measured at *places* with these SUTs, by the changes in *calibration*."""
    tests = _tests(throughput)
    bound = bound_of(sum(int(np.isfinite(test.values).sum()) for test in tests))
    changes = changes_of([test.values for test in tests], bound)
    days = _days(tests, places, calibration)
    lab = _Lab(places, calibration, tests, changes, {place: _inner(own) for place, own in days.items()})
    _find_events(lab)
    associated = _associated(lab)
    results = [
        _results(test, places, [not own for own in changed.own]) for test, changed in zip(tests, changes, strict=True)
    ]
    return Explanation(
        first=date.fromordinal(min(int(test.days[0]) for test in tests)),
        last=date.fromordinal(max(int(test.days[-1]) for test in tests)),
        nights=max(map(len, days.values()), default=0),
        false_claims=FALSE_CLAIMS,
        shifts=associated.shifts,
        skipped=dict(throughput.skipped),
        lasting=lasting_differences(results, calibration.standing, calibration.tolerances),
        bands=bands_of(results, calibration.standing),
        tests=tuple(_explained_test(lab, associated, at) for at in range(len(tests))),
    )


def _results(test: _Test, places: Mapping[Place, tuple[Sut, ...]], steady: Sequence[bool]) -> Results:
    suts = [places[place] for place in test.places]
    return Results(test.test, test.unit, suts, test.days, test.values, steady)


def _tests(throughput: Throughput) -> list[_Test]:
    """Return the tests in the order of their names; several values of a night become their median."""
    by_test = grouped((series.test, series) for series in throughput.series.values())
    found = []
    for name, rows in sorted(by_test.items()):
        rows.sort(key=lambda row: row.hosts)
        nightly = [_nightly(row) for row in rows]
        days = np.unique(np.concatenate([own for own, _ in nightly]))
        values = np.full((len(rows), len(days)), np.nan)
        for number, (own, numbers) in enumerate(nightly):
            values[number, np.searchsorted(days, own)] = numbers
        found.append(_Test(name, rows[0].unit, tuple(row.hosts for row in rows), days, values))
    return found


def _nightly(row: Measured) -> tuple[Integers, Floats]:
    days = np.array(row.days, np.intp)
    order = np.argsort(days, kind="stable")
    found, first = np.unique(days[order], return_index=True)
    values = np.array(row.values)[order]
    if len(found) == len(values):
        return found, values
    return found, np.array([np.median(part) for part in np.split(values, first[1:])])


def _days(
    tests: Sequence[_Test], places: Mapping[Place, tuple[Sut, ...]], calibration: Calibration
) -> dict[Place, Integers]:
    """Return the nights of each place while one of its SUTs was calibrated."""
    days: dict[Place, list[Integers]] = {place: [] for place in places}
    for test in tests:
        for place, values in zip(test.places, test.values, strict=True):
            days[place].append(test.days[np.isfinite(values)])
    found = {}
    for place, own in days.items():
        nights = [calibration.nights[sut] for sut in places[place] if sut in calibration.nights]
        all_days = np.unique(np.concatenate(own))
        first = min((night.toordinal() for night, _ in nights), default=0)
        last = max((night.toordinal() for _, night in nights), default=-1)
        found[place] = all_days[(all_days >= first) & (all_days <= last)]
    return found


def _inner(days: Integers) -> Integers:
    """Return *days* without the first and the last.

    No change is found there, so that leaving them in would make coincidences seem rarer than they are.
    """
    return days[FIRST_REFERENCE : len(days) - MIN_SIDE + 1]


def _find_events(lab: _Lab) -> None:
    """Group the changes of each place: tests that changed together, in one direction, have one cause.

    Changes outside of the calibrated nights, and those of both SUTs, belong to no event.
    """
    for key, item in sorted(lab.keys(), key=lambda pair: -pair[1].significance):
        place, day = lab.place_of(key), int(lab.tests[key.test].days[key.column])
        days = lab.days[place]
        if not len(days) or not days[0] <= day <= days[-1] or lab.of_both(key, item):
            continue
        position, direction = int(np.searchsorted(days, day)), 1 if item.size > 0.0 else -1
        own = lab.events.setdefault(place, [])
        near = [one for one in own if one.direction == direction and abs(one.positions[0] - position) <= NEAR]
        if near:
            near[0].positions.append(position)
        else:
            near = [_Event(direction, [position])]
            own += near
        lab.event_of[key] = near[0]


def _associated(lab: _Lab) -> Associated:
    """Return the evidence for all changes in the calibration, and note these by place."""
    occurrences: list[Occurrence] = []
    order = [place for place, days in lab.days.items() if len(days)]
    for number, place in enumerate(order):
        days = lab.days[place]
        for sut in lab.places[place]:
            for item in lab.calibration.candidates.get(sut, ()):
                first = int(np.searchsorted(days, item.before.toordinal() + 1))
                last = int(np.searchsorted(days, item.night.toordinal()))
                if days[0] <= item.night.toordinal() and last < len(days):
                    made = Occurrence(item.family, number, first, last, item.direction, item.strength)
                    lab.found.setdefault(place, []).append((len(occurrences), made, item))
                    occurrences.append(made)
    return associate(
        [len(lab.days[place]) for place in order],
        {
            number: [(event.position, event.direction) for event in lab.events.get(place, ())]
            for number, place in enumerate(order)
        },
        occurrences,
    )


def _explained_test(lab: _Lab, associated: Associated, at: int) -> ExplainedTest:
    test, changed = lab.tests[at], lab.changes[at]
    rows = []
    for row, (place, own) in enumerate(zip(test.places, changed.own, strict=True)):
        known = np.flatnonzero(np.isfinite(test.values[row]))
        since = known[known >= own[-1].column] if own else known
        rows.append(
            MeasuredSut(
                suts=tuple("/".join(sut) for sut in lab.places[place]) or place,
                values=len(known),
                first=_date(test, int(known[0])),
                last=_date(test, int(known[-1])),
                level=float(np.median(test.values[row, since])),
                changes=tuple(_explained_change(lab, associated, _Key(at, row, item.column), item) for item in own),
                reason=_why_not(lab, place, len(known)),
            )
        )
    return ExplainedTest(
        test=test.test,
        unit=test.unit,
        variance=components_of(test.values),
        controlled=changed.controlled,
        common=tuple(_common_change(lab, test, item) for item in changed.common),
        suts=tuple(rows),
    )


def _date(test: _Test, column: int) -> date:
    return date.fromordinal(int(test.days[column]))


def _why_not(lab: _Lab, place: Place, values: int) -> str | None:
    if values < MIN_VALUES:
        return f"too few nights to find a change: {values} of {MIN_VALUES} so far"
    if not lab.places[place]:
        return "not calibrated: no such SUT in the results"
    if not len(lab.days[place]):
        return "not calibrated for long enough while it was tested"
    return None


def _explained_change(lab: _Lab, associated: Associated, key: _Key, item: Moved) -> ThroughputChange:
    event, place = lab.event_of.get(key), lab.place_of(key)
    near = [] if event is None else list(_coincidences(lab, associated, place, event))
    near.sort(key=lambda one: one.chance)
    outcome: Outcome = "unexplained"
    reason: str | None = None
    if any(one.claimed for one in near):
        outcome = "follows"
    elif lab.of_both(key, item):
        outcome, reason = "common", "both SUTs changed: it cannot be told from a change of what they have in common"
    elif event is None:
        reason = "not calibrated for long enough before and after"
    elif not associated.shifts:
        reason = f"too few nights to tell from chance: {MIN_TESTED} with throughput and calibration are needed"
    elif not near:
        reason = "nothing in the calibration changed with it"
    else:
        reason = "what changed with it may be a coincidence"
    return ThroughputChange(
        night=_date(lab.tests[key.test], key.column),
        size=item.size,
        interval=_finite(item),
        outcome=outcome,
        coincidences=tuple(near),
        reason=reason,
    )


def _coincidences(lab: _Lab, associated: Associated, place: Place, event: _Event) -> Iterator[Coincidence]:
    """Yield what changed in the calibration of the SUTs of *place* with *event*, strongest first."""
    for number, occurrence, candidate in sorted(lab.found.get(place, ()), key=lambda item: -item[1].strength):
        evidence = associated.evidence.get((number, event.direction))
        if evidence is not None and occurrence.first - WITHIN <= event.position <= occurrence.last + WITHIN:
            yield _coincidence(candidate, evidence)


def _coincidence(candidate: Candidate, evidence: Evidence) -> Coincidence:
    return Coincidence(
        sut="/".join(candidate.sut),
        kind=candidate.kind,
        what=candidate.what,
        night=candidate.night,
        size=candidate.size,
        better=candidate.direction > 0 if candidate.kind == "metric" else None,
        before=candidate.old,
        after=candidate.new,
        chance=evidence.chance,
        claimed=evidence.claimed,
        hits=evidence.hits,
        alike=evidence.alike,
    )


def _common_change(lab: _Lab, test: _Test, item: Moved) -> CommonChange:
    """Return a change of most SUTs, with the facts that changed alike on more than half of them within a night."""
    day = int(test.days[item.column])
    suts = {sut for place in test.places for sut in lab.places[place]}
    counts: dict[str, int] = {}
    for sut in suts:
        near = [one for one in lab.calibration.candidates.get(sut, ()) if abs(one.night.toordinal() - day) <= WITHIN]
        for text in {f"{one.what}: {changed_fact(one.old, one.new)}" for one in near if one.kind == "fact"}:
            counts[text] = counts.get(text, 0) + 1
    return CommonChange(
        night=_date(test, item.column),
        size=item.size,
        interval=_finite(item),
        facts=tuple(sorted(text for text, count in counts.items() if 2 * count > len(suts))),
    )


def _finite(item: Moved) -> tuple[float, float] | None:
    return item.interval if all(map(isfinite, item.interval)) else None
