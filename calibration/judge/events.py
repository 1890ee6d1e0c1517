# SPDX-License-Identifier: Apache-2.0
"""Group what began on several SUTs on the same night into one event, with the facts that changed.

A BIOS update or a warm night in the lab affects many metrics of many SUTs. Two SUTs share an event if their failures
are of the same kind and began within a day, or if the same fact changed to the same value.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta

from calibration.base.grouping import grouped
from calibration.base.model import Model
from calibration.judge.verdicts import ContextChange, NightVerdict
from calibration.results.history import Sut

SAME_NIGHT = timedelta(days=1)
"""Tolerance of dates: a weak change is dated a night early or late."""


class Event(Model):
    """What began on ``night`` at ``suts`` (testbed/SUT): ``metrics`` that fail or are noted; ``failed`` if any fails.

    ``context_changes`` are the facts that changed alike on at least two of the SUTs, most SUTs first; ``before`` is
    ``None`` if it differs between them.
    """

    night: date
    suts: tuple[str, ...]
    metrics: tuple[str, ...]
    failed: bool
    context_changes: tuple[ContextChange, ...]

    def has(self, verdict: NightVerdict) -> bool:
        """Return whether *verdict* belongs to this event."""
        return (
            self.covers(f"{verdict.testbed}/{verdict.sut}", verdict.since)
            and verdict.outcome in {"fail", "noted"}
            and verdict.check != "homogeneity"
        )

    def covers(self, sut: str, since: date | None) -> bool:
        """Return whether what began at *sut* on the night *since* belongs to this event."""
        return sut in self.suts and since is not None and abs(since - self.night) <= SAME_NIGHT


def find_events(verdicts: Iterable[NightVerdict]) -> tuple[Event, ...]:
    """Return the events among *verdicts* of one night, largest first."""
    by_night: dict[date, dict[Sut, list[NightVerdict]]] = {}
    for verdict in verdicts:
        if verdict.outcome in {"fail", "noted"} and verdict.since is not None and verdict.check != "homogeneity":
            by_night.setdefault(verdict.since, {}).setdefault((verdict.testbed, verdict.sut), []).append(verdict)
    found = []
    for night in sorted(by_night, key=lambda key: (-len(by_night[key]), key)):
        near = [other for other in sorted(by_night) if abs(other - night) <= SAME_NIGHT]
        of_sut: dict[Sut, list[NightVerdict]] = {}
        for other in near:
            for sut, those in by_night[other].items():
                of_sut.setdefault(sut, []).extend(those)
        for suts in _groups({sut: _traits(those) for sut, those in of_sut.items()}):
            found.append(_event(night, {sut: of_sut[sut] for sut in suts}))
            for other in near:
                for sut in suts:
                    by_night[other].pop(sut, None)
    return tuple(sorted(found, key=lambda run: (not run.failed, -len(run.suts), run.night, run.suts)))


def _traits(verdicts: Iterable[NightVerdict]) -> set[tuple[str, str | None]]:
    """Return what can link a SUT to others: kinds of its failures, and facts that changed when they began."""
    traits: set[tuple[str, str | None]] = set()
    for verdict in verdicts:
        if verdict.outcome == "fail":
            traits.add((verdict.metric.partition(".")[0], None))
        traits.update((change.fact, change.after) for change in verdict.context_changes if change.after is not None)
    return traits


def _groups(traits: Mapping[Sut, set[tuple[str, str | None]]]) -> list[tuple[Sut, ...]]:
    """Return groups of at least two SUTs that share a trait, directly or through others."""
    holders = grouped((trait, sut) for sut, own in traits.items() for trait in own)
    groups = []
    left = set(traits)
    while left:
        group, reached = set(), [left.pop()]
        while reached:
            sut = reached.pop()
            group.add(sut)
            for trait in traits[sut]:
                new = [item for item in holders.pop(trait, ()) if item in left]
                left.difference_update(new)
                reached += new
        if len(group) > 1:
            groups.append(tuple(sorted(group)))
    return sorted(groups)


def _event(night: date, of_sut: Mapping[Sut, Sequence[NightVerdict]]) -> Event:
    verdicts = [item for those in of_sut.values() for item in those]
    befores: dict[tuple[str, str | None], dict[Sut, str | None]] = {}
    for sut, those in of_sut.items():
        for entry in those:
            for change in entry.context_changes:
                befores.setdefault((change.fact, change.after), {})[sut] = change.before
    shared = [item for item in befores.items() if len(item[1]) > 1]
    shared.sort(key=lambda item: (-len(item[1]), item[0][0], item[0][1] or ""))
    return Event(
        night=Counter(verdict.since for verdict in verdicts if verdict.since).most_common(1)[0][0],
        suts=tuple("/".join(sut) for sut in sorted(of_sut)),
        metrics=tuple(sorted({verdict.metric for verdict in verdicts})),
        failed=any(verdict.outcome == "fail" for verdict in verdicts),
        context_changes=tuple(
            ContextChange(
                fact=fact,
                before=next(iter(before.values())) if len(set(before.values())) == 1 else None,
                after=after,
                night=night,
            )
            for (fact, after), before in shared
        ),
    )
