# SPDX-License-Identifier: Apache-2.0
"""Made results: run documents of many SUTs over many nights, with noise as servers show it and events that are known.

Every document is that of a whole run: the answers that ``sutprobe`` gave on a real machine, assembled as a run's are,
with every measured number multiplied. A figure's estimate, interval, samples and verdict stay what belongs together,
and a document is as large as a real one.
"""

import json
import math
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from calibration.context.model import Context, Dimm
from calibration.lifecycle import begin, finish
from calibration.measurements.base import Step
from calibration.results.attempts import record_kernels
from calibration.results.facts import facts
from calibration.results.layout import RUN
from calibration.results.model import Kernels, RunDocument
from calibration.results.records import EndRecord, StepRecord, append_record

FIXTURES: Final = Path(__file__).resolve().parents[1] / "fixtures"
RECORDED: Final = FIXTURES / "sutprobe"
CAPTURE: Final = FIXTURES / "context" / "x86_64-isolated.tar.gz"

KERNELS: Final = Kernels(
    sha256="0123456789abcdef" * 4,
    target="x86_64",
    version="0.1.0",
    compiler="clang version 20.0.0",
    flags="-O2 -static",
    source_sha256="fedcba9876543210" * 4,
)

FIRST_NIGHT: Final = date(2026, 1, 1)
START: Final = "T010000Z-"

PER_TESTBED: Final = 10
"""SUTs of a testbed: they are of one kind, and compared with each other."""

Floats = NDArray[np.float64]

Noise = Literal["normal", "heavy", "lognormal"]
"""``heavy`` is Student's t with three degrees of freedom, scaled to the standard deviation."""


@dataclass(frozen=True)
class Family:
    """Figures whose names match: how they differ from night to night, and by how much (relative, one deviation)."""

    names: str
    noise: Noise
    deviation: float


FAMILIES: Final = (
    Family(r"jitter\..*", "lognormal", 0.2),
    Family(r"core_frequency\..*", "normal", 0.0008),
    Family(r".*\.L[123]\..*", "normal", 0.003),
    Family(r"loaded_latency\..*_ns", "heavy", 0.012),
    Family(r".*_mb_s", "normal", 0.005),
    Family(r".*_ns", "heavy", 0.008),
    Family(r".*", "normal", 0.01),
)
"""The first whose names match is a metric's family."""

BETWEEN_SUTS: Final = 0.001
"""Relative deviation of the SUTs of a testbed from each other: less than any tolerance."""

COMMON: Final = ("core_frequency", "c2c_matrix")
"""Kinds whose metrics are made of many numbers of the measurement: these move together."""

SCALED: Final = {
    "fastest_mb_s": "MB/s",
    "interval_ns": "ns",
    "length_ns": "ns",
    "lost_fraction": "fraction",
    "max_ns": "ns",
    "maximum_ns": "ns",
    "median_ns": "ns",
    "minimum_ns": "ns",
    "per_thread_mb_s": "MB/s",
    "slowest_mb_s": "MB/s",
}
"""Fields of values that are measured and no estimate, with their unit; other numbers are settings or counts."""

MOVED: Final = ("value", "interval", "minimum", "maximum", "samples")
"""Fields of an estimate that are in its unit."""

DIGITS: Final = "%.12g"
"""How a number is written: with as many digits as ``sutprobe`` prints, in a third of the time that all would take."""


@dataclass(frozen=True)
class Event:
    """What was planted on one SUT, from ``night`` on, by number.

    ``level`` multiplies ``metrics`` by 1 + ``size``, ``no_run`` leaves out the run of that night alone, ``microcode``
    is another fact without an effect.
    """

    kind: Literal["level", "no_run", "microcode"]
    testbed: str
    sut: str
    night: int
    metrics: tuple[str, ...] = ()
    size: float = 0.0


class Template:
    """A run document as text with gaps: where what is different every night belongs."""

    GAP = re.compile(r'"@(\d+)@"')

    def __init__(self, document: RunDocument) -> None:
        raw = json.loads(document.model_dump_json())
        self.run: dict[str, str] = raw["run"]
        self.numbers: list[float] = []
        self.group_of_number: list[int] = []
        self.groups: dict[str, int] = {}
        self.metrics: dict[str, list[str]] = {}
        verdicts = {verdict["name"]: verdict for verdict in raw["verdicts"]}
        for measurement in raw["measurements"]:
            own = [verdict["metric"] for verdict in verdicts.values() if verdict["measurement"] == measurement["id"]]
            groups = {item["name"]: self._group(measurement, item) for item in own}
            for name, group in groups.items():
                if group is not None:
                    self.metrics.setdefault(group, []).append(name)
            known = [(metric["unit"], metric["value"], groups[metric["name"]]) for metric in own]
            measurement["values"] = self._values(measurement["values"], known)
            for item in own:
                group = groups[item["name"]]
                if group is not None:
                    item["value"] = self._gap(item["value"], group)
                    item["interval"] = item["interval"] and [self._gap(end, group) for end in item["interval"]]
            for metric in (figure["metric"] for figure in raw["record"] if figure["measurement"] == measurement["id"]):
                group = _nearest(metric["value"], metric["unit"], known)
                if group is not None:
                    metric["value"] = self._gap(metric["value"], group)
                    metric["interval"] = metric["interval"] and [self._gap(end, group) for end in metric["interval"]]
        pieces = self.GAP.split(json.dumps(raw, indent=1, ensure_ascii=False))
        self.form = DIGITS.join(piece.replace("%", "%%") for piece in pieces[::2])
        order = np.array([int(piece) for piece in pieces[1::2]])
        self.base = np.array(self.numbers)[order]
        self.group = np.array(self.group_of_number)[order]

    def _group(self, measurement: Mapping[str, Any], metric: Mapping[str, Any]) -> str | None:
        """Return what *metric* moves with; ``None`` for a ratio of numbers that move together.

        What has the same digits came from the same measuring: the best of a search is its winner's figure.
        """
        if measurement["kind"] in COMMON:
            return None if metric["unit"] == "fraction" else str(measurement["id"])
        return repr(metric["value"])

    def _gap(self, number: float, group: str) -> str:
        self.numbers.append(number)
        self.group_of_number.append(self.groups.setdefault(group, len(self.groups)))
        return f"@{len(self.numbers) - 1}@"

    def _values(self, value: Any, known: Sequence[tuple[str, float, str | None]], unit: str | None = None) -> Any:
        """Return *value* with gaps for all numbers in it that were measured."""
        if isinstance(value, dict):
            if "estimator" in value:
                group = _nearest(value["value"], value["unit"], known)
                return (
                    value if group is None else {**value, **{name: self._moved(value[name], group) for name in MOVED}}
                )
            return {name: self._values(item, known, SCALED.get(name)) for name, item in value.items()}
        if isinstance(value, list):
            return [self._values(item, known, unit) for item in value]
        if unit is not None and isinstance(value, float):
            group = _nearest(value, unit, known)
            return value if group is None else self._gap(value, group)
        return value

    def _moved(self, value: Any, group: str) -> Any:
        if isinstance(value, list):
            return [self._moved(item, group) for item in value]
        return value if value is None else self._gap(value, group)

    def text(self, factors: Floats) -> str:
        """Return the document whose figures are multiplied by *factors*, one per group."""
        return self.form % tuple((self.base * factors[self.group]).tolist())


def _nearest(value: float, unit: str, known: Sequence[tuple[str, float, str | None]]) -> str | None:
    """Return the group of the metric in *unit* whose value is the nearest to *value*."""
    near = [
        (abs(math.log(value / other)), group)
        for kind, other, group in known
        if kind == unit and value > 0 and other > 0 and group is not None
    ]
    return min(near)[1] if near else None


@dataclass(frozen=True)
class State:
    """What a document says of the machine, as far as it can change."""

    microcode: str | None = None

    def seen(self, document: RunDocument) -> RunDocument:
        """Return *document* of a machine that is like this."""
        captured = document.context
        if captured is None:
            raise ValueError("expected a document with a context, found none")
        context = captured.parsed
        dimms = tuple(map(_dimm, SLOTS))
        firmware = context.firmware.model_copy(
            update={
                "bios_vendor": "Example Firmware",
                "bios_version": "1.2",
                "bios_date": "01/31/2026",
                "dimms": dimms if context.virtualization.guest else context.firmware.dimms,
            }
        )
        capture = context.capture.model_copy(update={"kernel_release": "6.1.0-56-amd64"})
        models = tuple(
            model.model_copy(update={"microcode": self.microcode or model.microcode})
            for model in context.processor.models
        )
        processor = context.processor.model_copy(update={"models": models})
        parsed: Context = context.model_copy(update={"firmware": firmware, "capture": capture, "processor": processor})
        return document.model_copy(
            update={
                "context": captured.model_copy(update={"parsed": parsed}),
                "facts": facts(parsed, document.run.kernels),
            }
        )


SLOTS: Final = tuple(f"P0_DIMM_{channel}1" for channel in "ABCDEFGH")


def _dimm(slot: str) -> Dimm:
    return Dimm(
        locator=slot,
        bank=None,
        size_bytes=32 << 30,
        type="DDR5",
        form_factor="DIMM",
        data_width_bits=64,
        total_width_bits=80,
        ranks=2,
        speed_mt_s=4800,
        configured_mt_s=4800,
        manufacturer="Example",
        part="EX-32",
    )


def record_answer(run: Path, step: Step, answer: dict[str, Any], started_at: datetime) -> None:
    """Keep the *answer* of ``sutprobe`` to a *step* in the directory of a *run*."""
    append_record(
        run,
        StepRecord(
            step=step,
            outcome="ok",
            reason=None,
            rc=0,
            started_at=started_at,
            duration_s=answer["duration_s"],
            document=answer,
            stderr="",
        ),
    )


@cache
def base_document() -> RunDocument:
    """Return the document of a whole run, made of recorded answers; steps that nobody recorded are not planned."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    with tempfile.TemporaryDirectory(prefix="calibration-made-") as folder:
        begun = begin(
            Path(folder), testbed="t", sut="s", run_id="r", profile="full", capture=CAPTURE.read_bytes(), now=now
        )
        run = begun.directory
        record_kernels(run, KERNELS)
        steps = [step for step in begun.plan.steps if (RECORDED / f"{step.id}.json").exists()]
        for step in steps:
            answer = json.loads((RECORDED / f"{step.id}.json").read_text(encoding="utf-8"))
            record_answer(run, step, answer, now)
        append_record(run, EndRecord(finished_at=now, interrupted=False))
        document = finish(run, now=now)
    if document.plan is None:
        raise ValueError("expected a plan, found none")
    return document.model_copy(
        update={
            "run": document.run.model_copy(update={"status": "complete"}),
            "plan": document.plan.model_copy(update={"steps": tuple(steps)}),
            "not_measured": tuple(omitted for omitted in document.not_measured if omitted.cause == "not_planned"),
        }
    )


Base = Callable[[], RunDocument]
"""Returns the document that those of a store are variations of."""


@cache
def template(state: State, base: Base = base_document) -> Template:
    """Return the template of a machine that is like *state*."""
    return Template(state.seen(base()))


def family_of(metric: str) -> Family:
    """Return the family of *metric*."""
    return next(family for family in FAMILIES if re.fullmatch(family.names, metric))


def names(suts: int) -> list[tuple[str, str]]:
    """Return the SUTs, by testbed and name."""
    return [(f"t{number // PER_TESTBED + 1}", f"sut{number % PER_TESTBED + 1:02d}") for number in range(suts)]


BANDWIDTHS: Final = r".*(bandwidth|memory\.program)_mb_s"
"""What a memory module that is slower than the others takes from."""


def factors(
    sut: tuple[str, str], nights: int, seed: int, events: Iterable[Event], base: Base = base_document
) -> Floats:
    """Return by how much the figures of *sut* are multiplied: one row per night, one column per group."""
    made = template(State(), base)
    number = int(re.sub(r"\D", "", "".join(sut)))
    columns = []
    for group in made.groups:
        metrics = made.metrics[group]
        family = family_of(metrics[0])
        chance = np.random.default_rng([seed, 1, number, made.groups[group]])
        level = np.full(nights, chance.normal(scale=BETWEEN_SUTS))
        noise = family.deviation * (
            chance.standard_t(3, nights) / math.sqrt(3) if family.noise == "heavy" else chance.normal(size=nights)
        )
        for event in events:
            if not set(metrics) & set(event.metrics):
                continue
            level += np.where(np.arange(nights) >= event.night, math.log1p(event.size), 0)
        columns.append(np.exp(level + noise))
    return np.array(columns).T


def _write_sut(
    results: Path, sut: tuple[str, str], nights: int, seed: int, *, events: Sequence[Event], base: Base
) -> None:
    """Write all documents of one SUT."""
    moved = factors(sut, nights, seed, events, base)
    for night in range(nights):
        write_night(results, sut, night, moved[night], events, base=base)


def write_night(
    results: Path,
    sut: tuple[str, str],
    night: int,
    moved: Floats,
    events: Sequence[Event],
    *,
    base: Base = base_document,
) -> None:
    """Write what *sut* left of one night, if anything."""
    when = FIRST_NIGHT + timedelta(days=night)
    run_id = f"{when:%Y%m%d}{START}{night:04x}"
    since = {event.kind: event.night for event in events}
    if since.get("no_run") == night:
        return
    state = State("0x2b000620" if night >= since.get("microcode", night + 1) else None)
    made = template(state, base)
    text = made.text(moved)
    for name, new in (
        ("id", run_id),
        ("testbed", sut[0]),
        ("sut", sut[1]),
        ("started_at", f"{when}T01:00:00Z"),
        ("finished_at", f"{when}T01:40:00Z"),
    ):
        text = text.replace(f'"{name}": "{made.run[name]}"', f'"{name}": "{new}"', 1)
    directory = results / sut[0] / sut[1] / run_id
    directory.mkdir(parents=True)
    (directory / RUN).write_bytes(text.encode() + b"\n")


def make(
    results: Path, *, suts: int, nights: int, seed: int, events: Sequence[Event], base: Base = base_document
) -> None:
    """Make *results* with the *events* planted. *base* is a function of a module: other processes call it too."""
    results.mkdir(parents=True)
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as workers:
        written = [
            workers.submit(_write_sut, results, sut, nights, seed, events=own_events(sut, events), base=base)
            for sut in names(suts)
        ]
        for item in written:
            item.result()


def own_events(sut: tuple[str, str], events: Iterable[Event]) -> list[Event]:
    """Return those of *events* that were planted on *sut*."""
    return [event for event in events if (event.testbed, event.sut) == sut]
