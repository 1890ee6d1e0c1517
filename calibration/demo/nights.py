# SPDX-License-Identifier: Apache-2.0
"""Nights of a lab made from a run document: its measured numbers vary by SUT and night, and change where planted."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from math import log
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from calibration.judge.baseline_files import add_acceptance
from calibration.judge.baselines import propose
from calibration.results.layout import RUN
from calibration.results.model import RunDocument

DEVIATIONS: Final = {
    r"jitter": 0.1, r"core_frequency": 0.0008, r".*_ladder": 0.003, r"loaded_latency": 0.012, r".*bandwidth.*": 0.005,
    r".*": 0.008,
}  # fmt: skip
"""Relative standard deviation from night to night; the first kind that matches counts."""

BETWEEN_SUTS: Final = 0.001
"""Relative standard deviation of the SUTs of a testbed: less than any tolerance."""

MEASURED: Final = ("value", "interval", "minimum", "maximum", "samples")
"""Fields of estimates and metrics that are in their unit."""

MEASURED_ALONE: Final = re.compile(r".*_mb_s|(interval|length|max|maximum|median|minimum)_ns")
"""Fields of values that are measured numbers without an estimate."""


SMALL_SHARE: Final = 0.01
"""Smaller fractions vary, too: larger ones might exceed 1."""


class Template:
    """A run document as text with a gap for each measured number, for names and for days.

    ``kinds`` has the kind of each measurement.
    """

    def __init__(self, document: RunDocument) -> None:
        text = document.model_dump_json().replace(f'"{document.run.started_at:%Y-%m-%d}T', '"@day@T')
        raw: dict[str, Any] = json.loads(text)  # noqa: TID251 - written by the line above
        raw["run"] |= {name: f"@{name}@" for name in ("id", "testbed", "sut")}
        self.kinds = [measurement["kind"] for measurement in raw["measurements"]]
        self._numbers: list[tuple[float, int]] = []
        places = {measurement["id"]: place for place, measurement in enumerate(raw["measurements"])}
        for measurement in raw["measurements"]:
            measurement["values"] = self._gaps(measurement["values"], places[measurement["id"]])
        of_metric: dict[str, int] = {}
        for judged in (*raw["verdicts"], *raw["record"]):
            if (metric := judged["metric"]) is not None:  # the same metric, the same factor
                place = of_metric.setdefault(metric["name"], places[judged["measurement"]])
                judged["metric"] = self._gaps(metric, place)
        pieces = re.split(r'"@(\d+)@"', json.dumps(raw, ensure_ascii=False, separators=(",", ":")))
        self._form = "%.9g".join(piece.replace("%", "%%") for piece in pieces[::2])
        ordered = [self._numbers[int(piece)] for piece in pieces[1::2]]
        self._base = np.array([number for number, _ in ordered])
        self._place = np.array([place for _, place in ordered])

    def _gaps(self, value: Any, place: int, *, measured: bool = False) -> Any:
        """Return *value*, of the measurement at *place*, with gaps for its measured numbers."""
        if isinstance(value, dict):
            unit, found = value.get("unit", "fraction"), value.get("value")
            small = isinstance(found, float) and 0 < found < SMALL_SHARE
            in_unit = MEASURED if unit != "fraction" or ("unit" in value and small) else ()
            return {
                name: self._gaps(item, place, measured=name in in_unit or bool(MEASURED_ALONE.fullmatch(name)))
                for name, item in value.items()
            }
        if isinstance(value, list):
            return [self._gaps(item, place, measured=measured) for item in value]
        if not measured or not isinstance(value, float):
            return value
        self._numbers.append((value, place))
        return f"@{len(self._numbers) - 1}@"

    def text(self, factors: NDArray[np.float64], texts: Mapping[str, str]) -> str:
        """Return the document with the numbers of each measurement times one of *factors*, and *texts* replaced."""
        text = self._form % tuple((self._base * factors[self._place]).tolist())
        for old, new in texts.items():
            text = text.replace(old, new)
        return text


@dataclass(frozen=True)
class Change:
    """What is different from the night *first* on, until the night *end*.

    ``factors`` multiply the metrics of kinds by pattern, ``texts`` replace others in the document, and ``template``
    is the name of another document.
    """

    first: int
    end: int | None = None
    factors: Mapping[str, float] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    template: str | None = None

    def holds(self, night: int) -> bool:
        """Return whether it is different in *night*."""
        return self.first <= night and (self.end is None or night < self.end)


@dataclass(frozen=True)
class MadeSut:
    """A SUT with its nights, numbered from the first of the lab, and the night accepted as its baseline, if any."""

    testbed: str
    name: str
    nights: Sequence[int]
    accepted: int | None
    changes: tuple[Change, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)

    def run_id(self, first: date, night: int) -> str:
        """Return the identifier of the run of *night* if night 0 is that of *first*."""
        return f"{first + timedelta(days=night):%Y%m%d}T010000Z-{night & 0xFFFF:04x}"


def write(results: Path, suts: Sequence[MadeSut], templates: Mapping[str, Template], first: date) -> None:
    """Write the runs of *suts* into *results*; night 0 is that of *first*, the first template that of most nights."""
    for number, sut in enumerate(suts):
        _write_sut(results, templates, first, number, sut)


def accept(results: Path, suts: Sequence[MadeSut], first: date, *, by: str, reason: str) -> None:
    """Accept the baselines of *suts*, whatever they would notice."""
    for night in sorted({sut.accepted for sut in suts if sut.accepted is not None}):
        of_night = [sut for sut in suts if sut.accepted == night]
        runs = [results / sut.testbed / sut.name / sut.run_id(first, night) for sut in of_night]
        now = datetime.combine(first + timedelta(days=night), time(12), UTC)
        for item in propose(runs, scope="sut", by=by, reason=reason, metrics=(), now=now):
            if item.acceptance is not None:
                add_acceptance(results, item.place, item.acceptance)


def _write_sut(results: Path, templates: Mapping[str, Template], first: date, number: int, sut: MadeSut) -> None:
    usual = next(iter(templates))
    kinds, chance = templates[usual].kinds, np.random.default_rng(number)
    deviations = [next(size for pattern, size in DEVIATIONS.items() if re.fullmatch(pattern, kind)) for kind in kinds]
    level = chance.normal(scale=BETWEEN_SUTS, size=len(kinds))
    first_of_kind = [kinds.index(kind) for kind in kinds]  # a kind varies as a whole: its worst CPU remains the worst
    for night in sut.nights:
        logarithms = (level + chance.normal(scale=deviations))[first_of_kind]
        template, run_id = usual, sut.run_id(first, night)
        texts = {"@id@": run_id, "@testbed@": sut.testbed, "@sut@": sut.name, **sut.texts}
        texts["@day@"] = f"{first + timedelta(days=night)}"
        for change in sut.changes:
            if change.holds(night):
                for of, factor in change.factors.items():
                    logarithms += [log(factor) if re.fullmatch(of, kind) else 0.0 for kind in kinds]
                texts |= change.texts
                template = change.template or template
        directory = results / sut.testbed / sut.name / run_id
        directory.mkdir(parents=True)
        (directory / RUN).write_text(templates[template].text(np.exp(logarithms), texts), encoding="utf-8")
