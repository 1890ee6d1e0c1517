# SPDX-License-Identifier: Apache-2.0
"""Baselines, the bounds that somebody accepted, as files: ``<results>/references/baselines/``.

``sut/<testbed>/<sut>.json``, ``testbed/<testbed>.json`` and ``platform/<key>.json`` each hold all acceptances for what
they are named after, oldest first. Of a metric the newest acceptance counts that has it; a SUT's own come before its
testbed's, and these before its platform's. An acceptance counts from the night of the run that was accepted: nights
before are judged as they were known then.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Self

from pydantic import Field, ValidationError, model_validator

from calibration.errors import EnvironmentLacksError, InputError
from calibration.files import pending, read_regular, refuse_links
from calibration.judge.words import within
from calibration.model import Model, UtcTime
from calibration.results.history import NightRun, Sut
from calibration.results.layout import MAX_REFERENCE_BYTES, REFERENCES

FOLDER: Final = f"{REFERENCES}/baselines"
"""Where accepted bounds are, relative to the results."""

Scope = Literal["sut", "testbed", "platform"]
"""What bounds hold for: one SUT, all of a testbed, or all of the same platform."""

PLATFORM_FACTS: Final = ("processor", "cores", "nodes", "distances between nodes")
"""The facts that make a platform: what a machine is, not how it is set up or how much memory it has. A SUT that lost a
DIMM or came back from a repair with another BIOS is compared with what it was bought as."""

Method = Literal["nights", "other nights", "run", "constant", "SUTs"]
"""What the spread was measured on: the nights of the level itself; those of the levels before it as well; the
placements within a run; nothing, as the figure never varied; or the nights of several SUTs and their levels."""


class RunName(Model):
    """A run that bounds come from."""

    testbed: str
    sut: str
    id: str


class AcceptedRun(RunName):
    """A run that was accepted, and its night."""

    night: date


class Bounds(Model):
    """The bounds of one metric; at least one of ``lower`` and ``upper`` is there.

    ``value`` is the level they lie around. ``spread`` is the standard deviation of what is predicted, in the unit, or
    where ``relative`` as a share. ``nights`` is how many the bounds come from, of all SUTs.
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
            raise ValueError("expected a lower or an upper bound, found neither")
        if self.excludes(self.value):
            raise ValueError(f"expected a value within its bounds, found {self.value:g}")
        return self

    def excludes(self, value: float) -> bool:
        """Return whether *value* is outside."""
        return (self.lower is not None and value < self.lower) or (self.upper is not None and value > self.upper)

    @property
    def words(self) -> str:
        """The range as a person says it."""
        return within(self.lower, self.upper, self.unit)


class Acceptance(Model):
    """What one person accepted at one time: ``accepted`` runs, and ``bounds`` by metric that come from ``runs``.

    ``outside`` is the share of the nights of an unchanged figure that is expected beyond each bound.
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
        """From this night on it counts."""
        return max(run.night for run in self.accepted)

    @property
    def source(self) -> str:
        """Who accepted it, and when, as a part of a sentence."""
        return f"accepted by {self.accepted_by} on {self.accepted_at:%Y-%m-%d}"


class BaselineFile(Model):
    """All acceptances for a SUT, a testbed or a platform, oldest first; ``platform`` has the facts that make it."""

    schema_version: Literal["baselines/1"]
    scope: Scope
    testbed: str | None
    sut: str | None
    platform: dict[str, str] | None
    acceptances: tuple[Acceptance, ...]


class Place(NamedTuple):
    """What a file is for, and which it is."""

    scope: Scope
    testbed: str | None
    sut: str | None
    platform: dict[str, str] | None

    def path(self, results: Path) -> Path:
        """Return where the bounds are kept."""
        folder = results / FOLDER / self.scope
        if self.platform is not None:
            return folder / f"{platform_key(self.platform)}.json"
        return (
            folder / str(self.testbed) / f"{self.sut}.json" if self.sut is not None else folder / f"{self.testbed}.json"
        )

    @property
    def words(self) -> str:
        """What it is called where bounds are told."""
        if self.platform is not None:
            return f"platform {platform_key(self.platform)} ({self.platform[PLATFORM_FACTS[0]]})"
        return f"SUT {self.testbed}/{self.sut}" if self.sut is not None else f"testbed {self.testbed}"


def platform_of(facts: Mapping[str, str]) -> dict[str, str] | None:
    """Return the platform of a machine with *facts*; ``None`` if they do not say it."""
    return {name: facts[name] for name in PLATFORM_FACTS} if all(name in facts for name in PLATFORM_FACTS) else None


def platform_key(platform: Mapping[str, str]) -> str:
    """Return a short name for files: the first half of the hash of the platform's facts."""
    return hashlib.sha256(json.dumps(platform, sort_keys=True).encode()).hexdigest()[:32]


def place_of(scope: Scope, sut: Sut, facts: Mapping[str, str]) -> Place:
    """Return what bounds of *scope* made from runs of *sut* hold for.

    Raises ``InputError`` if it is the platform, and the facts of the run do not say it.
    """
    testbed, name = sut
    if scope == "sut":
        return Place(scope, testbed, name, None)
    if scope == "testbed":
        return Place(scope, testbed, None, None)
    platform = platform_of(facts)
    if platform is None:
        raise InputError(f"expected a run of {testbed}/{name} that says its platform, found none of its facts")
    return Place(scope, None, None, platform)


class Baseline(NamedTuple):
    """The bounds that count for a metric of a SUT, and what they come from."""

    bounds: Bounds
    acceptance: Acceptance
    scope: Scope

    @property
    def source(self) -> str:
        """Who accepted them, and for what."""
        return self.acceptance.source if self.scope == "sut" else f"{self.acceptance.source} for the {self.scope}"


class AcceptedLevel(NamedTuple):
    """The newest night of a SUT at which somebody accepted the level of a metric."""

    night: date
    acceptance: Acceptance


class Accepted(NamedTuple):
    """What was accepted of a SUT, by metric, as known on a night.

    ``faults`` are the files that cannot be read, relative to the results, and why: what is in them is not known.
    """

    bounds: Mapping[str, Baseline]
    levels: Mapping[str, AcceptedLevel]
    faults: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Baselines:
    """The accepted bounds of *results*; files are read as they are asked for."""

    results: Path
    files: dict[Path, tuple[Acceptance, ...]] = field(default_factory=dict)

    def of(self, sut: Sut, facts: Mapping[str, str], night: date) -> Accepted:
        """Return what was accepted of *sut*, a machine with *facts*, as known on *night*."""
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

    def before(self, place: Place, night: date) -> dict[str, Bounds]:
        """Return the bounds of *place* alone, by metric, as known on *night*."""
        known = (acceptance for acceptance in self._acceptances(place) if acceptance.night <= night)
        return {metric: bounds for item in known for metric, bounds in item.bounds.items()}

    def _acceptances(self, place: Place) -> tuple[Acceptance, ...]:
        path = place.path(self.results)
        if path not in self.files:
            self.files[path] = read_baseline_file(self.results, path, place)
        return self.files[path]


def _places(sut: Sut, facts: Mapping[str, str]) -> Iterator[Place]:
    """Yield what bounds *sut* may have, those that others take the place of first."""
    if platform_of(facts) is not None:
        yield place_of("platform", sut, facts)
    yield place_of("testbed", sut, facts)
    yield place_of("sut", sut, facts)


def facts_of(runs: Mapping[date, NightRun]) -> Mapping[str, str]:
    """Return the facts of the newest of *runs* that has any."""
    known = [night for night in runs if runs[night].facts]
    return runs[max(known)].facts if known else {}


def read_baseline_file(results: Path, path: Path, place: Place) -> tuple[Acceptance, ...]:
    """Return the acceptances in the file at *path* in *results*, for *place*; none if there is no such file.

    Raises ``InputError`` for a file that is there and has another form, or is for something else.
    """
    remedy = "restore it from its history, or remove it and accept a run again"
    try:
        text = read_regular(path, MAX_REFERENCE_BYTES, below=results)
    except FileNotFoundError:
        return ()
    except InputError as error:
        raise InputError(f"{error}; {remedy}") from error
    try:
        found = BaselineFile.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = "/".join(map(str, first["loc"])) or "the top"
        raise InputError(f"{path}: damaged at {where}: {first['msg']}; {remedy}") from error
    if (found.scope, found.testbed, found.sut, found.platform) != place:
        raise InputError(f"{path}: expected the bounds of {place.words}, found those of something else; {remedy}")
    return found.acceptances


def add_acceptance(results: Path, place: Place, acceptance: Acceptance) -> Path:
    """Add *acceptance* to those for *place*, and return the file: it appears whole, or stays as it was.

    Raises ``InputError`` if the file that is there is damaged, ``EnvironmentLacksError`` if it cannot be written.
    """
    path = place.path(results)
    file = BaselineFile(
        schema_version="baselines/1",
        **place._asdict(),
        acceptances=(*read_baseline_file(results, path, place), acceptance),
    )
    refuse_links(path.parent, below=results)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with pending(path, _lines(file.model_dump(mode="json"), depth=4).encode() + b"\n") as written:
            read_baseline_file(results, written, place)
            written.replace(path)
    except OSError as error:
        raise EnvironmentLacksError(
            f"the bounds cannot be written to {path}: {error.strerror or error}; nothing was accepted"
        ) from error
    return path


def _lines(value: Any, depth: int, indent: str = "") -> str:
    """Return *value* as JSON whose innermost objects are one line each, so that a difference shows what changed."""
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
