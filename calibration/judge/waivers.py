# SPDX-License-Identifier: Apache-2.0
"""Waivers: known failures, accepted with a reason until a date.

``<results>/references/waivers.yml`` is maintained by hand. An expired waiver, or one that is no longer needed, is
itself a failure, so that the list stays current.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Final

from calibration.base.errors import InputError
from calibration.base.model import Model
from calibration.judge.entries import Line, read_entries
from calibration.judge.verdicts import Check, NightVerdict, Waived, failed, unreadable
from calibration.results.history import Sut
from calibration.results.layout import REFERENCES

FILE: Final = f"{REFERENCES}/waivers.yml"
"""Path of the waivers, relative to the results."""

Key = tuple[str, str, str, str]
"""Testbed, SUT, metric and check."""


class Waiver(Model):
    """One entry of the file."""

    testbed: Line
    sut: Line
    metric: Line
    check: Check
    reason: Line
    by: Line
    until: date

    @property
    def key(self) -> Key:
        """The metric and check it applies to."""
        return self.testbed, self.sut, self.metric, self.check


class Waivers:
    """All waivers of the results with their lines; *fault* is why the file cannot be read."""

    def __init__(self, waivers: Iterable[tuple[int, Waiver]] = (), fault: str | None = None) -> None:
        self.fault = fault
        self.by_key: Mapping[Key, tuple[int, Waiver]] = {waiver.key: (line, waiver) for line, waiver in waivers}

    @property
    def testbeds(self) -> Collection[str]:
        """The testbeds of all waivers."""
        return {testbed for testbed, *_ in self.by_key}

    def of(self, testbeds: Collection[str]) -> "Waivers":
        """Return the waivers for SUTs of *testbeds*."""
        return Waivers((item for item in self.by_key.values() if item[1].testbed in testbeds), self.fault)

    def applied(
        self, verdicts: Iterable[NightVerdict], night: date, run_ids: Mapping[Sut, str]
    ) -> Iterator[NightVerdict]:
        """Yield *verdicts* of *night* with the waivers applied, and a failure for each waiver that is no longer needed.

        If the waivers cannot be read, none applies and each SUT fails with the reason. A waiver for a metric or a SUT
        missing tonight is skipped: it is unknown whether it is still needed. *run_ids* are tonight's runs.
        """
        left = dict(self.by_key)
        missing = set()
        suts: set[Sut] = set()
        for verdict in verdicts:
            sut = verdict.testbed, verdict.sut
            suts.add(sut)
            waived = left.pop((*sut, verdict.metric, verdict.check), None) if left else None
            if verdict.check == "missing" and verdict.outcome == "fail":
                missing.add((*sut, verdict.metric))
            yield verdict if waived is None else _waived(verdict, *waived)
        for sut in sorted(suts) if self.fault is not None else ():
            yield unreadable(sut, FILE, self.fault or "", night, run_ids.get(sut))
        for line, waiver in left.values():
            sut = waiver.testbed, waiver.sut
            if not {(*sut, name) for name in (waiver.metric, "run")} & missing:
                reason = f"{_words(line, waiver)}: it matches no verdict of tonight: correct or remove it"
                yield failed(sut, waiver.metric, waiver.check, reason, night=night, run_id=run_ids.get(sut))


def _words(line: int, waiver: Waiver) -> str:
    return f"the waiver of line {line} of {FILE}, by {waiver.by} until {waiver.until}: {waiver.reason}"


def _waived(verdict: NightVerdict, line: int, waiver: Waiver) -> NightVerdict:
    """Return *verdict* with *waiver* applied."""
    if verdict.outcome != "fail":
        reason = f"{_words(line, waiver)}: no longer necessary: remove it ({verdict.reason})"
        return replace(verdict, outcome="fail", reason=reason)
    expired = verdict.night > waiver.until
    when = f"waived {'only ' if expired else ''}until {waiver.until}"
    reason = f"{when} by {waiver.by}: {waiver.reason}; {verdict.reason}"
    if expired:
        return replace(verdict, reason=reason)
    waived = Waived(reason=waiver.reason, by=waiver.by, until=waiver.until)
    return replace(verdict, outcome="pass", reason=reason, waiver=waived)


def read_waivers(results: Path) -> Waivers:
    """Return the waivers of *results*; empty if there is no file.

    An invalid file yields only a fault that names the line: an unknown or missing key, an invalid check or date, an
    empty reason, or a duplicate.
    """
    try:
        return Waivers(_by_key(read_entries(results, FILE, Waiver, "waiver")).values())
    except FileNotFoundError:
        return Waivers()
    except InputError as error:
        return Waivers(fault=str(error).removeprefix(f"{results / FILE}: "))


def _by_key(entries: Iterable[tuple[int, Waiver]]) -> Mapping[Key, tuple[int, Waiver]]:
    found: dict[Key, tuple[int, Waiver]] = {}
    for line, waiver in entries:
        if waiver.key in found:
            name = " ".join(waiver.key)
            raise InputError(f"line {line}: {name} is waived in line {found[waiver.key][0]} already")
        found[waiver.key] = line, waiver
    return found
