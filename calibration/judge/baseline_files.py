# SPDX-License-Identifier: Apache-2.0
"""Baseline files: accepted bounds, stored below ``<results>/references/baselines/``.

``sut/<testbed>/<sut>.json``, ``testbed/<testbed>.json`` and ``platform/<key>.json`` each list the acceptances of one
SUT, testbed or platform, oldest first. The newest acceptance that has a metric counts; a SUT's own bounds override its
testbed's, and these its platform's. An acceptance applies from the night of the accepted run: earlier nights are judged
without it.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from calibration.base.errors import InputError
from calibration.base.files import able_to, pending, refuse_links
from calibration.base.model import Model, UtcTime
from calibration.judge.words import within
from calibration.results.documents import read_reference
from calibration.results.history import NightRun, Sut
from calibration.results.layout import REFERENCES

FOLDER: Final = f"{REFERENCES}/baselines"
"""Directory of the baseline files, relative to the results."""

Scope = Literal["sut", "testbed", "platform"]
"""What bounds apply to: one SUT, all SUTs of a testbed, or all of a platform."""

PLATFORM_FACTS: Final = ("processor", "cores", "nodes", "distances between nodes")
"""Facts that identify a platform: what a machine is, not its settings or its amount of memory. A SUT that lost a DIMM
or returned from repair with another BIOS is still compared with its platform's baseline."""

Method = Literal["nights", "other nights", "run", "constant", "SUTs"]
"""Source of the spread."""

USED_IF: Final[Mapping[Method, str]] = {
    "nights": "this level has enough nights, or there is no other level",
    "other nights": "it has fewer: earlier levels with the same spread are included",
    "run": "there are still too few: rounds of the run, or its placements. The bounds are its prediction for the next "
    "run, at 0.01 % per side: wide",
    "constant": "the metric never varied: any other value fails",
    "SUTs": "bounds are for a testbed or platform: runs of several SUTs, and the differences between them",
}
"""When the spread is from there."""


class RunName(Model):
    """A run that bounds were computed from."""

    testbed: str
    sut: str
    id: str


class AcceptedRun(RunName):
    """An accepted run and its night."""

    night: date


class Bounds(Model):
    """Bounds of one metric: ``lower``, ``upper`` or both.

    ``value`` is the level between them. ``spread`` is the standard deviation of the prediction, in the metric's unit,
    or as a fraction if ``relative``. ``nights`` counts the nights used, over all SUTs.
    """

    value: float
    lower: float | None
    upper: float | None
    unit: str
    method: Method
    why: str
    spread: float = Field(ge=0)
    relative: bool
    nights: int = Field(gt=0)

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.lower is None and self.upper is None:
            raise ValueError("no lower or upper bound")
        if self.excludes(self.value):
            raise ValueError(f"the value {self.value:g} is out of its bounds")
        return self

    def excludes(self, value: float) -> bool:
        """Return whether *value* is out of bounds."""
        return (self.lower is not None and value < self.lower) or (self.upper is not None and value > self.upper)

    @property
    def words(self) -> str:
        """The range as text."""
        return within(self.lower, self.upper, self.unit)


class Acceptance(Model):
    """One act of acceptance: the ``accepted`` runs, and ``bounds`` by metric, computed from ``runs``.

    ``outside`` is the expected fraction of nights of an unchanged metric beyond each bound.
    """

    accepted_by: str = Field(min_length=1)
    accepted_at: UtcTime
    reason: str = Field(min_length=1)
    outside: float = Field(gt=0, lt=0.5)
    accepted: tuple[AcceptedRun, ...] = Field(min_length=1)
    runs: tuple[RunName, ...] = Field(min_length=1)
    bounds: dict[str, Bounds]

    @property
    def night(self) -> date:
        """The first night it applies to."""
        return max(run.night for run in self.accepted)

    @property
    def source(self) -> str:
        """Who accepted it and when, as part of a sentence."""
        return f"accepted by {self.accepted_by} on {self.accepted_at.date()}"


class BaselineFile(Model):
    """All acceptances of a SUT, a testbed or a platform, oldest first; ``platform`` has the platform's facts."""

    schema_version: Literal["baselines/1"]
    scope: Scope
    testbed: str | None
    sut: str | None
    platform: dict[str, str] | None
    acceptances: tuple[Acceptance, ...]


class Place(NamedTuple):
    """The scope and name of one baseline file."""

    scope: Scope
    testbed: str | None
    sut: str | None
    platform: dict[str, str] | None

    def path(self, results: Path) -> Path:
        """Return the path of the file."""
        folder = results / FOLDER / self.scope
        if self.platform is not None:
            return folder / f"{platform_key(self.platform)}.json"
        return (
            folder / str(self.testbed) / f"{self.sut}.json" if self.sut is not None else folder / f"{self.testbed}.json"
        )

    @property
    def words(self) -> str:
        """Its name in messages."""
        if self.platform is not None:
            return f"platform {platform_key(self.platform)} ({self.platform[PLATFORM_FACTS[0]]})"
        return f"SUT {self.testbed}/{self.sut}" if self.sut is not None else f"testbed {self.testbed}"


def platform_of(facts: Mapping[str, str]) -> dict[str, str] | None:
    """Return the platform of a machine with *facts*; ``None`` if a fact is missing."""
    return {name: facts[name] for name in PLATFORM_FACTS} if all(name in facts for name in PLATFORM_FACTS) else None


def platform_key(platform: Mapping[str, str]) -> str:
    """Return a short file name: the first half of the hash of the platform's facts."""
    return hashlib.sha256(json.dumps(platform, sort_keys=True).encode()).hexdigest()[:32]


def place_of(scope: Scope, sut: Sut, facts: Mapping[str, str]) -> Place:
    """Return the place that bounds of *scope* from runs of *sut* belong to.

    Raises ``InputError`` if *scope* is the platform and the run lacks its facts.
    """
    testbed, name = sut
    if scope == "sut":
        return Place(scope, testbed, name, None)
    if scope == "testbed":
        return Place(scope, testbed, None, None)
    platform = platform_of(facts)
    if platform is None:
        raise InputError(f"the platform of {testbed}/{name} is unknown: the run lacks its facts")
    return Place(scope, None, None, platform)


class Baseline(NamedTuple):
    """The bounds in force for one metric of a SUT, and their origin."""

    bounds: Bounds
    acceptance: Acceptance
    scope: Scope

    @property
    def source(self) -> str:
        """Who accepted them, and for what."""
        return self.acceptance.source if self.scope == "sut" else f"{self.acceptance.source} for the {self.scope}"


class AcceptedLevel(NamedTuple):
    """The newest night on which a SUT's level of a metric was accepted."""

    night: date
    acceptance: Acceptance


class Accepted(NamedTuple):
    """What is accepted for a SUT, by metric, as known on a night.

    ``faults`` maps unreadable files, relative to the results, to the reason.
    """

    bounds: Mapping[str, Baseline]
    levels: Mapping[str, AcceptedLevel]
    faults: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Baselines:
    """The accepted bounds of *results*; files are read on demand."""

    results: Path
    files: dict[Path, tuple[Acceptance, ...]] = field(default_factory=dict)

    def of(self, sut: Sut, facts: Mapping[str, str], night: date) -> Accepted:
        """Return what is accepted for *sut*, a machine with *facts*, as known on *night*."""
        bounds: dict[str, Baseline] = {}
        levels: dict[str, AcceptedLevel] = {}
        faults: list[tuple[str, str]] = []
        for place in _places(sut, facts):
            try:
                acceptances = self._acceptances(place)
            except InputError as error:
                path = place.path(self.results)
                faults.append((str(path.relative_to(self.results)), str(error).removeprefix(f"{path}: ")))
                continue
            for acceptance in acceptances:
                if acceptance.night > night:
                    continue
                for metric, bound in acceptance.bounds.items():
                    bounds[metric] = Baseline(bound, acceptance, place.scope)
                own = [run.night for run in acceptance.accepted if (run.testbed, run.sut) == sut]
                for metric in acceptance.bounds if own else ():
                    if metric not in levels or levels[metric].night <= max(own):
                        levels[metric] = AcceptedLevel(max(own), acceptance)
        return Accepted(bounds, levels, tuple(faults))

    def acceptance_of(self, run: RunName, facts: Mapping[str, str]) -> Acceptance | None:
        """Return the newest acceptance of *run*, of a machine with *facts*; ``None`` if it was not accepted.

        Raises ``InputError`` for a damaged file.
        """
        found = [
            acceptance
            for place in _places((run.testbed, run.sut), facts)
            for acceptance in self._acceptances(place)
            if any((own.testbed, own.sut, own.id) == (run.testbed, run.sut, run.id) for own in acceptance.accepted)
        ]
        return max(found, key=lambda acceptance: acceptance.accepted_at, default=None)

    def before(self, place: Place, night: date) -> dict[str, Bounds]:
        """Return the bounds of *place* only, by metric, as known on *night*."""
        known = (acceptance for acceptance in self._acceptances(place) if acceptance.night <= night)
        return {metric: bounds for item in known for metric, bounds in item.bounds.items()}

    def _acceptances(self, place: Place) -> tuple[Acceptance, ...]:
        path = place.path(self.results)
        if path not in self.files:
            self.files[path] = read_baseline_file(self.results, path, place)
        return self.files[path]


class NoBaselines(Baselines):
    """Nothing is accepted."""

    def __init__(self) -> None:
        super().__init__(Path())

    def _acceptances(self, place: Place) -> tuple[Acceptance, ...]:
        del place
        return ()


def _places(sut: Sut, facts: Mapping[str, str]) -> Iterator[Place]:
    """Yield the places that may have bounds for *sut*, highest precedence last."""
    if platform_of(facts) is not None:
        yield place_of("platform", sut, facts)
    yield place_of("testbed", sut, facts)
    yield place_of("sut", sut, facts)


def facts_of(runs: Mapping[date, NightRun]) -> Mapping[str, str]:
    """Return the facts of the newest of *runs* that has facts."""
    known = [night for night in runs if runs[night].facts]
    return runs[max(known)].facts if known else {}


def read_baseline_file(results: Path, path: Path, place: Place) -> tuple[Acceptance, ...]:
    """Return the acceptances in the file at *path* in *results*, for *place*; empty if the file does not exist.

    Raises ``InputError`` if the file is malformed or belongs to another place.
    """
    remedy = "restore it from its history, or remove it and accept a run again"
    found = read_reference(results, path, BaselineFile, remedy)
    if found is None:
        return ()
    if (found.scope, found.testbed, found.sut, found.platform) != place:
        raise InputError(f"{path}: not the bounds of {place.words}; {remedy}")
    return found.acceptances


def add_acceptance(results: Path, place: Place, acceptance: Acceptance) -> Path:
    """Append *acceptance* to the file of *place* atomically, and return its path.

    Raises ``InputError`` if the existing file is damaged, ``EnvironmentLacksError`` if it cannot be written.
    """
    path = place.path(results)
    file = BaselineFile(
        schema_version="baselines/1",
        **place._asdict(),
        acceptances=(*read_baseline_file(results, path, place), acceptance),
    )
    refuse_links(path.parent, below=results)
    with able_to(f"write the bounds to {path}", "; nothing was accepted"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with pending(path, _lines(file.model_dump(mode="json"), depth=4).encode() + b"\n") as written:
            read_baseline_file(results, written, place)
            written.replace(path)
    return path


def _lines(value: Any, depth: int, indent: str = "") -> str:
    """Return *value* as JSON with each innermost object on one line, so that diffs are readable."""
    if depth == 0 or not value or not isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    inner = indent + " "
    if isinstance(value, dict):
        parts: Sequence[str] = [f"{json.dumps(name)}: {_lines(item, depth - 1, inner)}" for name, item in value.items()]
        opening, closing = "{", "}"
    else:
        parts = [_lines(item, depth - 1, inner) for item in value]
        opening, closing = "[", "]"
    lines = f",\n{inner}".join(parts)
    return f"{opening}\n{inner}{lines}\n{indent}{closing}"
