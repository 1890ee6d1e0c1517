# SPDX-License-Identifier: Apache-2.0
"""Event tables: one file per microarchitecture; each row names the vendor's list it comes from.

``any.yml`` has the events that the kernel names on every model. A table ``like`` another inherits its fields; a row of
``core`` or ``boxes`` overrides the inherited row of the same role. An event with a ``series`` expands to ``count``
events, numbered from 0, with the numbers from ``first`` on in their terms.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator

from calibration.base.errors import InputError
from calibration.base.model import Model
from calibration.base.parsers import YamlError, read_yaml
from calibration.context.model import CpuModel
from calibration.counters.encoding import parse_terms
from calibration.counters.event_roles import EVENT_ROLES

ANY = "any"
"""The table of events common to all models."""


def _role(name: str) -> str:
    if name not in EVENT_ROLES:
        raise ValueError(f"unknown role {name!r}, known are {', '.join(EVENT_ROLES)}")
    return name


def _terms(text: str) -> str:
    try:
        parse_terms(text)
    except InputError as error:
        raise ValueError(str(error)) from error
    return text


def _expression(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"not a regular expression: {text!r}: {error}") from error
    return text


def _numbers(text: str) -> range:
    """Return the numbers of ``0x8f`` or ``0x30-0x7f``. Raises ``ValueError``."""
    first, _, last = text.partition("-")
    found = range(int(first, 0), int(last or first, 0) + 1)
    if not found:
        raise ValueError(f"not a number or an ascending span: {text!r}")
    return found


def _span(text: str) -> str:
    _numbers(text)
    return text


RoleName = Annotated[str, AfterValidator(_role)]
Terms = Annotated[str, AfterValidator(_terms)]
Expression = Annotated[str, AfterValidator(_expression)]
Span = Annotated[str, AfterValidator(_span)]


class Listing(Model):
    """A published list of events: name, version and date."""

    list: str
    version: str
    date: str


class Processors(Model):
    """The processors of a table, as in ``/proc/cpuinfo``: x86 by family and model, Arm by part."""

    vendor: str
    family: str | None = None
    models: tuple[Span, ...] = Field(min_length=1)
    steppings: tuple[Span, ...] | None = None

    def has(self, vendor: str | None, family: str | None, model: str | None, stepping: str | None) -> bool:
        """Return whether a processor is one of these; false if it is unknown or not a number."""
        return (
            vendor == self.vendor
            and self.family in (None, family)
            and _within(model, self.models)
            and (self.steppings is None or _within(stepping, self.steppings))
        )


def _within(text: str | None, spans: tuple[str, ...]) -> bool:
    if text is None or re.fullmatch(r"0x[0-9a-f]{1,8}|[0-9]{1,8}", text) is None:
        return False
    number = int(text, 16) if text.startswith("0x") else int(text)
    return any(number in _numbers(span) for span in spans)


class CoreEvent(Model):
    """An event that a core counts for a thread.

    ``counters`` are the core counters that can count it, any if None. Events of one ``group`` run together or not at
    all. ``generic`` events are the kernel's own, which it encodes itself.
    """

    role: RoleName
    event: str
    source: str
    terms: Terms
    counters: tuple[int, ...] | None = None
    group: int | None = None
    generic: bool = False
    caution: str | None = None


class BoxEvent(Model):
    """An event of an uncore box: by the kernel's name, by its terms, or by either."""

    event: str
    source: str
    alias: str | None = None
    terms: Terms | None = None

    @model_validator(mode="after")
    def _named(self) -> Self:
        if self.alias is None and self.terms is None:
            raise ValueError(f"{self.event} has neither an alias nor terms")
        return self


class Boxes(Model):
    """An uncore role: all of ``events`` on each source whose name matches ``pmus``.

    ``architecture`` limits boxes of a table for any model. ``scale_bytes`` is the bytes per count, unless the kernel
    gives a scale; ``counters`` is how many events a box counts at once.
    """

    role: RoleName
    pmus: Expression
    events: tuple[BoxEvent, ...] = Field(min_length=1)
    scale_bytes: float | None
    counters: int
    architecture: Literal["x86_64", "aarch64"] | None = None
    caution: str | None = None


class SampledEvent(Model):
    """Loads sampled by hardware, with their latency.

    ``counters`` are the core counters that can sample, None for dedicated hardware. ``aux`` must precede the event on
    models whose kernel has the event ``aux_alias``. ``optional`` terms are used if the source has them.
    """

    method: Literal["pebs", "ibs", "spe"]
    pmus: Expression
    event: str
    source: str
    terms: Terms
    counters: tuple[int, ...] | None = None
    aux: Terms | None = None
    aux_alias: str | None = None
    optional: tuple[Terms, ...] = ()
    period: int
    caution: str | None = None


class Table(Model):
    """The events of one microarchitecture.

    Each hardware thread has ``general_counters`` counters, ``without_smt`` if SMT is off; roles in ``fixed`` have
    dedicated counters. ``absent`` says why a role has no event.
    """

    microarchitecture: str | None
    processors: tuple[Processors, ...] = ()
    sources: dict[str, Listing]
    general_counters: int | None = None
    without_smt: int | None = None
    fixed: tuple[RoleName, ...] = ()
    core: tuple[CoreEvent, ...] = ()
    boxes: tuple[Boxes, ...] = ()
    sampling: SampledEvent | None = None
    absent: dict[RoleName, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _sources_are_listed(self) -> Self:
        used = {row.source for row in self.core} | {event.source for boxes in self.boxes for event in boxes.events}
        used |= {self.sampling.source} if self.sampling else set()
        if used != set(self.sources):
            raise ValueError(f"rows name the sources {sorted(used)}, listed are {sorted(self.sources)}")
        return self

    @model_validator(mode="after")
    def _a_role_is_there_or_absent(self) -> Self:
        given = {row.role for row in self.core} | {box.role for box in self.boxes}
        if both := given & set(self.absent):
            raise ValueError(f"both an event and a reason for its absence: {', '.join(sorted(both))}")
        return self


def parse_table(text: str, source: str) -> Table:
    """Return the table in *text*; *source* names it in messages. Raises ``InputError``."""
    try:
        raw = _inherit(read_yaml(text))
        for boxes in raw.get("boxes", ()):
            boxes["events"] = [numbered for event in boxes["events"] for numbered in _series(event)]
        return Table.model_validate_json(json.dumps(raw))
    except (YamlError, OSError, AttributeError, LookupError, TypeError, ValidationError) as error:
        raise InputError(f"{source}: not a table of events: {error}") from error


def _inherit(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of *raw* merged over those of the table it is ``like``, if any."""
    if "like" not in raw:
        return raw
    text = files(__package__).joinpath(f"{raw.pop('like')}.yml").read_text(encoding="utf-8")
    found = _inherit(read_yaml(text))
    for field, value in raw.items():
        if field in ("core", "boxes"):
            found[field] = _merge_rows(found[field], value)
        elif isinstance(value, dict):
            found[field] = found[field] | value
        else:
            found[field] = value
    return found


def _merge_rows(rows: list[dict[str, Any]], changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return *rows* with each of *changes* replacing the next row of its role, or appended."""
    unchanged = list(range(len(rows)))
    merged = list(rows)
    for change in changes:
        place = next((index for index in unchanged if rows[index]["role"] == change["role"]), None)
        if place is None:
            merged.append(change)
        else:
            unchanged.remove(place)
            merged[place] = rows[place] | change
    return merged


def _series(event: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield *event*, or the events of its series."""
    series = event.pop("series", None)
    if series is None:
        yield event
        return
    for number in range(series["count"]):
        terms = event["terms"] % (series["first"] + number * series["step"])
        yield {**event, "event": f"{event['event']}{number}", "terms": terms}


@cache
def tables() -> dict[str, Table]:
    """Return all tables by file name without suffix."""
    entries = sorted(files(__package__).iterdir(), key=lambda entry: entry.name)
    return {
        entry.name.removesuffix(".yml"): parse_table(entry.read_text(encoding="utf-8"), entry.name)
        for entry in entries
        if entry.name.endswith(".yml")
    }


def table_of(vendor: str | None, family: str | None, model: str | None, stepping: str | None) -> Table | None:
    """Return the table of a processor, given as in ``/proc/cpuinfo``; None if no table has it."""
    of = (vendor, family, model, stepping)
    return next((table for table in tables().values() if any(one.has(*of) for one in table.processors)), None)


def table_for(models: Iterable[CpuModel]) -> Table | None:
    """Return the table of the first of *models* that has one; None if none has."""
    found = (table_of(model.vendor, model.family, model.model, model.stepping) for model in models)
    return next((table for table in found if table is not None), None)
