# SPDX-License-Identifier: Apache-2.0
"""Waivers: failures that somebody knows of and takes responsibility for, each until a night and for a reason.

``<results>/references/waivers.yml`` is a list that people write. A waiver that is no longer needed, and one that has
expired, is a failure itself: what nobody looks after any more does not stay.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Final, get_args

import yaml

from calibration.errors import InputError
from calibration.files import read_regular
from calibration.judge.verdicts import Check, NightVerdict, Waived, failed, unreadable
from calibration.model import Model
from calibration.results.history import Sut
from calibration.results.layout import REFERENCES
from calibration.text import visible

FILE: Final = f"{REFERENCES}/waivers.yml"
"""Where waivers are, relative to the results."""

MAX_BYTES: Final = 1024 * 1024
"""A larger file is refused: people do not look after five thousand waivers, and YAML takes ten seconds for each MiB."""

FIELDS: Final = ("testbed", "sut", "metric", "check", "reason", "by", "until")

Key = tuple[str, str, str, str]
"""Testbed, SUT, metric and check."""


class Waiver(Model):
    """One entry of the file; ``line`` is where it begins."""

    testbed: str
    sut: str
    metric: str
    check: Check
    reason: str
    by: str
    until: date
    line: int

    @property
    def words(self) -> str:
        """How messages name it."""
        return f"the waiver of line {self.line} of {FILE}, by {self.by} until {self.until}: {self.reason}"


class Waivers:
    """All waivers of the results, by what they are for; *fault* is why their file cannot be read."""

    def __init__(self, waivers: Iterable[Waiver] = (), fault: str | None = None) -> None:
        self.fault = fault
        self.by_key: Mapping[Key, Waiver] = {
            (each.testbed, each.sut, each.metric, each.check): each for each in waivers
        }

    def applied(
        self, verdicts: Iterable[NightVerdict], night: date, run_ids: Mapping[Sut, str]
    ) -> Iterator[NightVerdict]:
        """Yield *verdicts* of *night* as they are with the waivers, and a failure for each that nothing is left of.

        Where the waivers cannot be read none is known, and each SUT fails with the reason. A waiver of a figure that is
        missing tonight, or whose SUT is, is left alone: nobody can know whether it is needed still. *run_ids* are
        tonight's runs.
        """
        left = dict(self.by_key)
        missing = set()
        suts: set[Sut] = set()
        for each in verdicts:
            suts.add((each.testbed, each.sut))
            waiver = left.pop((each.testbed, each.sut, each.metric, each.check), None) if left else None
            if each.check == "missing" and each.outcome == "fail":
                missing.add((each.testbed, each.sut, each.metric))
            yield each if waiver is None else _waived(each, waiver)
        for sut in sorted(suts) if self.fault is not None else ():
            yield unreadable(sut, FILE, self.fault or "", night, run_ids.get(sut))
        for waiver in left.values():
            if not {(waiver.testbed, waiver.sut, name) for name in (waiver.metric, "run")} & missing:
                yield _unnecessary(waiver, night, run_ids.get((waiver.testbed, waiver.sut)))


def _waived(verdict: NightVerdict, waiver: Waiver) -> NightVerdict:
    """Return *verdict*, which *waiver* is for, as it is with it."""
    expired = verdict.night > waiver.until
    if verdict.outcome != "fail":
        found = f"it is no longer necessary: remove it ({verdict.reason})"
        return verdict.model_copy(update={"outcome": "fail", "reason": f"{waiver.words}: {found}"})
    if expired:
        reason = f"waived only until {waiver.until} by {waiver.by}: {waiver.reason}; {verdict.reason}"
        return verdict.model_copy(update={"reason": reason})
    reason = f"waived until {waiver.until} by {waiver.by}: {waiver.reason}; {verdict.reason}"
    waived = Waived(reason=waiver.reason, by=waiver.by, until=waiver.until)
    return verdict.model_copy(update={"outcome": "pass", "reason": reason, "waiver": waived})


def _unnecessary(waiver: Waiver, night: date, run_id: str | None) -> NightVerdict:
    reason = f"{waiver.words}: nothing is judged tonight that it names: correct or remove it"
    return failed((waiver.testbed, waiver.sut), waiver.metric, waiver.check, reason, night=night, run_id=run_id)


def read_waivers(results: Path) -> Waivers:
    """Return the waivers of *results*; none where there is no such file.

    A file with anything in it that is no waiver has no waivers but a fault, with the line: an unknown or a missing key,
    a check or a date that is none, an empty reason, two waivers for the same.
    """
    path = results / FILE
    try:
        return Waivers(_waivers(read_regular(path, MAX_BYTES, below=results)))
    except FileNotFoundError:
        return Waivers()
    except InputError as error:
        return Waivers(fault=str(error).removeprefix(f"{path}: "))


def _waivers(content: bytes) -> Iterable[Waiver]:
    try:
        tree = yaml.compose(content.decode("utf-8"), Loader=yaml.SafeLoader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"not valid YAML: {visible(str(error))}") from error
    except RecursionError as error:
        raise InputError("nested too deeply, expected a list of waivers") from error
    if tree is None:
        return ()
    if not isinstance(tree, yaml.SequenceNode):
        raise InputError("expected a list of waivers, found another form")
    found: dict[Key, Waiver] = {}
    for number, node in enumerate(tree.value, 1):
        waiver = _waiver(node, f"line {node.start_mark.line + 1}, waiver {number}")
        key = (waiver.testbed, waiver.sut, waiver.metric, waiver.check)
        if key in found:
            raise InputError(
                f"line {waiver.line}, waiver {number}: expected one waiver for {' '.join(key)}, found another "
                f"in line {found[key].line}"
            )
        found[key] = waiver
    return found.values()


def _waiver(node: yaml.Node, where: str) -> Waiver:
    if not isinstance(node, yaml.MappingNode):
        raise InputError(f"{where}: expected a mapping of {', '.join(FIELDS)}, found another form")
    given: dict[str, str] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.value not in FIELDS:
            raise InputError(f"{where}: expected the keys {', '.join(FIELDS)}, found {visible(str(key.value))!r}")
        if key.value in given:
            raise InputError(f"{where}: expected {key.value} once, found it twice")
        text = value.value.strip() if isinstance(value, yaml.ScalarNode) and not value.tag.endswith(":null") else ""
        if not text or not text.isprintable():
            raise InputError(f"{where}: expected {key.value} to be a line of text, found {visible(str(value.value))!r}")
        given[key.value] = text
    for name in FIELDS:
        if name not in given:
            raise InputError(f"{where}: expected {name}, found none")
    if given["check"] not in get_args(Check):
        raise InputError(f"{where}: expected check to be one of {', '.join(get_args(Check))}, found {given['check']!r}")
    try:
        until = date.fromisoformat(given.pop("until"))
    except ValueError as error:
        raise InputError(f"{where}: expected until to be a date such as 2026-01-31: {error}") from error
    return Waiver.model_validate({**given, "until": until, "line": node.start_mark.line + 1})
