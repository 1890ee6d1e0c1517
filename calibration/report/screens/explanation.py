# SPDX-License-Identifier: Apache-2.0
"""Terminal output of what moved a lab's throughput: one screen, what follows the calibration first."""

from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap
from typing import Final, NamedTuple

from calibration.base.grouping import grouped
from calibration.base.text import WIDTH, some_of, visible
from calibration.base.units import plural
from calibration.judge.components import VarianceShare
from calibration.judge.explanation import (
    MIN_TESTED,
    Coincidence,
    CommonChange,
    ExplainedTest,
    Explanation,
    Outcome,
    ThroughputChange,
)
from calibration.judge.throughput import NEAR
from calibration.judge.words import amount, change, changed_fact, share

MAX_GROUPS: Final = 6
"""Changes of one outcome on the screen."""

MAX_TESTS: Final = 8
"""Tests whose variance is on the screen."""

MAX_NAMED: Final = 3
"""Changes of the calibration named beside one of the throughput."""

TEST_WIDTH: Final = 40
"""Columns of a test's name in the table."""

INDENT: Final = "    "

TITLES: Final[dict[Outcome, str]] = {
    "follows": "Follows the calibration (an association, not a proof)",
    "unexplained": "Calibration explains nothing here",
    "common": "Changed at both SUTs of the test",
}


LASTING: Final = "Differs all along from SUTs with the same processor (suspects, not a proof)"
BANDS: Final = "On two levels (an association, not a proof)"
NO_BANDS: Final = "nothing in the calibration has two levels on the same nights"


class _Group(NamedTuple):
    """Changes of several tests at one place on one night, the largest first."""

    suts: tuple[str, ...]
    changes: list[tuple[str, ThroughputChange]]
    tests: int


def explanation_text(found: Explanation, *, everything: bool = False) -> str:
    """Return *found* on one screen; with *everything* all changes and tests."""
    groups = {outcome: list(_groups(found, outcome)) for outcome in TITLES}
    lines = list(_head(found, groups))
    for outcome, title in TITLES.items():
        if groups[outcome]:
            lines += ["", title]
            lines += _limited([_group_lines(group) for group in groups[outcome]], everything=everything)
    for title, own in ((LASTING, _lasting(found)), (BANDS, _bands(found))):
        if own:
            lines += ["", title, *_limited(own, everything=everything)]
    common = list(_common(found))
    if common:
        lines += ["", "Changed at most SUTs: a cause they have in common, such as new software under test"]
        lines += _limited(common, everything=everything)
    rest = list(_rest(found))
    lines += [*(["", *rest] if rest else []), "", *_variances(found.tests, everything=everything)]
    return "\n".join(part for line in lines for part in _wrapped(visible(line))) + "\n"


def _wrapped(line: str) -> list[str]:
    indent = INDENT if not line.startswith(INDENT) else INDENT * 2
    return wrap(line, WIDTH, subsequent_indent=indent, break_on_hyphens=False, drop_whitespace=True) or [""]


def _head(found: Explanation, groups: dict[Outcome, list[_Group]]) -> Iterator[str]:
    suts = {row.suts for test in found.tests for row in test.suts}
    yield f"{plural(len(found.tests), 'test')} on {plural(len(suts), 'SUT')}, {found.first} to {found.last}"
    rows = [row for test in found.tests for row in test.suts]
    changed = f"changed on their own: {sum(bool(row.changes) for row in rows)} of {len(rows)} series (a test on a SUT)"
    follows, unexplained = len(groups["follows"]), len(groups["unexplained"])
    if found.shifts:
        yield changed
        yield (
            f"{plural(follows, 'change')} of single SUTs follow{'s' if follows == 1 else ''} the calibration, "
            f"{unexplained} {'does' if unexplained == 1 else 'do'} not; any false claim: at most "
            f"{share(found.false_claims)}"
        )
    else:
        so_far = f"{found.nights} of {MIN_TESTED} nights with throughput and calibration so far"
        yield f"{changed}; whether they follow the calibration is unknown: {so_far}"


def _groups(found: Explanation, outcome: Outcome) -> Iterator[_Group]:
    """Yield the changes with *outcome* by place and night, those of most tests first."""
    by_place: dict[tuple[str, ...], list[tuple[str, ThroughputChange]]] = {}
    tests: dict[tuple[str, ...], int] = {}
    for test in found.tests:
        for row in test.suts:
            tests[row.suts] = tests.get(row.suts, 0) + 1
            by_place.setdefault(row.suts, []).extend(
                (test.test, item) for item in row.changes if item.outcome == outcome
            )
    groups: list[_Group] = []
    for suts, changes in by_place.items():
        own: list[_Group] = []
        for name, item in sorted(changes, key=lambda pair: (-abs(pair[1].size), pair[0])):
            fitting = [
                group
                for group in own
                if abs((group.changes[0][1].night - item.night).days) <= NEAR
                and group.changes[0][1].size * item.size > 0.0
            ]
            if not fitting:
                fitting = [_Group(suts, [], tests[suts])]
                own += fitting
            fitting[0].changes.append((name, item))
        groups += own
    yield from sorted(groups, key=lambda group: (-len(group.changes), -abs(group.changes[0][1].size), group.suts))


def _group_lines(group: _Group) -> list[str]:
    test, worst = group.changes[0]
    where = test if len(group.changes) == 1 else f"{len(group.changes)} of {plural(group.tests, 'test')}"
    line = f"{' + '.join(group.suts)}  since {worst.night}  {change(worst.size, worst.interval)} on {where}"
    claimed = [one for one in worst.coincidences if one.claimed]
    if claimed:
        return [line, f"{INDENT}follows {_named(claimed)}; chance {share(claimed[0].chance)}"]
    near = f": {'; '.join(map(_doubted, worst.coincidences[:MAX_NAMED]))}" if worst.coincidences else ""
    more = len(worst.coincidences) - MAX_NAMED
    return [line, f"{INDENT}{worst.reason}{near}{f'; {more} more' if more > 0 else ''}"]


def _named(claimed: Sequence[Coincidence]) -> str:
    """Return the changes of the calibration, facts first."""
    ordered = sorted(claimed, key=lambda one: one.kind)  # stable: the strongest metric stays first
    return some_of(list(map(_what, ordered)), MAX_NAMED, "; ")


def _what(one: Coincidence) -> str:
    if one.size is None:
        return f"{one.what}: {changed_fact(one.before, one.after)}"
    return f"{one.what} {change(one.size, None)} ({_way(one.better)})"


def _way(better: bool | None) -> str:
    return "better" if better else "worse"


def _doubted(one: Coincidence) -> str:
    alike = f"{one.hits} of {one.alike} such changes had this effect"
    return f"{_what(one)} ({alike if 2 * one.hits <= one.alike else f'chance {share(one.chance)}'})"


def _lasting(found: Explanation) -> list[list[str]]:
    """Return SUTs that differ from equal ones, with what else they differ in: facts, and the worst metric of a kind."""
    groups = []
    for one in found.lasting:
        where = one.tests[0] if len(one.tests) == 1 else plural(len(one.tests), "test")
        worst = [items[0] for items in grouped((item.metric.partition(".")[0], item) for item in one.metrics).values()]
        metrics = [f"{item.metric} {change(item.size, None)} ({_way(item.better)})" for item in worst]
        texts = [*(item.text for item in one.facts), *metrics]
        line = f"{' + '.join(one.suts)}  {change(one.size, one.interval)} on {where}, against {one.others} others"
        also = f"differs in {some_of(texts, MAX_NAMED, '; ')}" if texts else "nothing in the calibration differs"
        groups.append([line, f"{INDENT}{also}"])
    return groups


def _bands(found: Explanation) -> list[list[str]]:
    """Return SUTs with results on two levels, with what is on two levels on the same nights."""
    groups = []
    for suts, bands in grouped((one.suts, one) for one in found.bands).items():
        worst = max(bands, key=lambda one: one.upper / one.lower)
        where = worst.test if len(bands) == 1 else f"{plural(len(bands), 'test')}, {worst.test}"
        low, high = amount(worst.lower, worst.unit), amount(worst.upper, worst.unit)
        line = f"{' + '.join(suts)}  {where}: {low} on {worst.nights} of {plural(worst.of, 'night')}, else {high}"
        named = [item for item in worst.together if item.claimed]
        texts = [f"{item.what} {item.lower}, else {item.upper} ({item.same} of {item.nights})" for item in named]
        with_it = f"with {some_of(texts, MAX_NAMED, '; ')}; chance {share(named[0].chance)}" if named else NO_BANDS
        groups.append([line, f"{INDENT}{with_it}"])
    return groups


def _common(found: Explanation) -> Iterator[list[str]]:
    """Yield the changes that most SUTs have in common, by night, the newest last."""
    changes = sorted(((item, test) for test in found.tests for item in test.common), key=lambda pair: pair[0].night)
    groups: list[list[tuple[CommonChange, ExplainedTest]]] = []
    for item, test in changes:
        if groups and (item.night - groups[-1][0][0].night).days <= NEAR and item.size * groups[-1][0][0].size > 0.0:
            groups[-1].append((item, test))
        else:
            groups.append([(item, test)])
    for group in groups:
        worst, test = max(group, key=lambda pair: abs(pair[0].size))
        where = test.test if len(group) == 1 else plural(len(group), "test")
        facts = dict.fromkeys(fact for item, _ in group for fact in item.facts)
        with_it = f"; or by what changed on most SUTs with it: {'; '.join(facts)}" if facts else ""
        yield [f"{worst.night}  {change(worst.size, worst.interval)} on {where}{with_it}"]


def _limited(groups: Sequence[Sequence[str]], *, everything: bool) -> list[str]:
    shown = groups if everything else groups[:MAX_GROUPS]
    more = len(groups) - len(shown)
    return [*(line for group in shown for line in group), *([f"and {more} more: --all"] if more else [])]


def _rest(found: Explanation) -> Iterator[str]:
    """Yield what could not be looked at."""
    rows = [row for test in found.tests for row in test.suts]
    reasons = grouped((row.reason, row) for row in rows if row.reason is not None)
    for reason, own in reasons.items():
        suts = dict.fromkeys(" + ".join(row.suts) for row in own)
        yield f"{reason}: {some_of(list(suts), MAX_NAMED)}"
    alone = [test.test for test in found.tests if not test.controlled]
    if alone:
        what = "too few SUTs to tell a change of one from one of all, such as new software under test"
        yield f"{what}: {some_of(alone, MAX_NAMED)}"
    for reason, count in found.skipped.items():
        yield f"left out: {count} {reason}"


def _variances(tests: Iterable[ExplainedTest], *, everything: bool) -> Iterator[str]:
    """Yield the table of the shares of variance, the tests with most of it between SUTs first."""
    known = [(test.variance, test) for test in tests if test.variance is not None]
    known.sort(key=lambda pair: -pair[0].between_suts.value)
    if not known:
        yield "variance between SUTs: unknown, no test has two SUTs with enough values"
        return
    yield f"{'Variance':{TEST_WIDTH}}  {'between SUTs':>18} {'of nights':>18} {'rest':>18}"
    for variance, test in known if everything else known[:MAX_TESTS]:
        cells = " ".join(f"{_share(part):>18}" for part in (variance.between_suts, variance.nights, variance.rest))
        yield f"{_tail(test.test):{TEST_WIDTH}}  {cells}"
    if len(known) > MAX_TESTS and not everything:
        yield f"and {len(known) - MAX_TESTS} more: --all"


def _tail(name: str) -> str:
    """Return the end of a long name: that is where names of tests differ."""
    return name if len(name) <= TEST_WIDTH else f"…{name[1 - TEST_WIDTH :]}"


def _share(part: VarianceShare | None) -> str:
    if part is None:
        return "unknown"
    return f"{100 * part.value:.0f} % ({100 * part.low:.0f} to {100 * part.high:.0f})"
