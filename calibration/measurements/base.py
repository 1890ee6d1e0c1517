# SPDX-License-Identifier: Apache-2.0
"""The contract that every measurement declaration fulfils.

A measurement kind is one module of this package with one ``Declaration``: which steps answer its question on a given
SUT, how sutprobe's document becomes values, which of them are headline metrics, which charts show them, and what it
costs. The registry in ``calibration.measurements`` finds the modules; nothing else lists them.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

from pydantic import Field

from calibration.charts.base import Chart, Measured
from calibration.context.model import Context
from calibration.measurements.evidence import refusal
from calibration.measurements.platform import ShapeReference
from calibration.model import Model
from calibration.statistics import Estimate, Estimator
from calibration.sutprobe.document import ProbeDocument, ProbeError
from calibration.trust import Trust, trust_of
from calibration.validity import Flag

PROBE = "sutprobe"
"""First word of every step's argv; the SUT's side replaces it by the path of the verified kernel."""

DEADLINE_FACTOR = 4
"""A step may take this many times its expected duration: a loaded or slow SUT finishes, a hung one is found."""

DEADLINE_FLOOR_S = 30
"""No deadline is shorter, so that start-up on an emulated or busy SUT never decides."""


HalfWidth = Annotated[float, Field(gt=0, le=1)]
"""Relative half-width of an interval that is asked for; the kernels take no wider one."""


class Step(Model):
    """One run of a kernel on the SUT: everything that is needed to run it, review it or refuse it.

    ``expected_duration_s`` is how long it takes when every point meets its target with the fewest placements,
    ``longest_duration_s`` when none does and all time budgets are spent. ``prefetchers`` is ``off`` if the hardware
    prefetchers are switched off while it runs, and ``None`` if they are left as they are.
    """

    id: str
    kind: str
    title: str
    argv: tuple[str, ...]
    cpus: tuple[int, ...]
    nodes: tuple[int, ...]
    expected_duration_s: float
    longest_duration_s: float
    deadline_s: float
    prefetchers: Literal["off"] | None = None


class NotPlanned(Model):
    """A measurement, or a part of one, that this SUT or profile does not allow, and why."""

    kind: str
    what: str
    reason: str


class Missing(Model):
    """A part of a measurement that has no value although it was asked for, and why.

    ``flag`` names the fault if it is one of the closed list: the kernel found it and gave no figure.
    """

    what: str
    reason: str
    flag: Flag | None = None


def refused(what: str, error: ProbeError) -> Missing:
    """Return the part *what* that the kernel gave *error* for in place of a figure."""
    return Missing(what=what, reason=f"{error.code}: {error.message}", flag=refusal(error))


class Values(Model):
    """Base of the values of one kind; ``kind`` tells the kinds apart in a document."""

    kind: str


Better = Literal["lower", "higher"]
"""Which way a figure is the better one."""


class Figures(NamedTuple):
    """The headline figures that go by names of one form: a regular expression of these, and what holds for all."""

    names: str
    unit: str
    better: Better
    meaning: str

    def matches(self, name: str) -> bool:
        """Return whether a figure called *name* is one of these."""
        return re.fullmatch(self.names, name, re.ASCII) is not None


class Metric(Model):
    """One headline figure: what limits, drift and comparisons speak about.

    ``name`` is stable and unique within a run document, for example ``idle_latency.latency_ns``. A figure that was
    observed once, such as the longest gap, has neither interval nor estimator. ``trust`` and ``doubt``, the worst
    reason against it, are the figure's own; a measurement that is invalid makes its metrics invalid.
    """

    name: str
    title: str
    value: float
    unit: str
    interval: tuple[float, float] | None
    coverage: float | None
    estimator: Estimator | None
    placements: int | None
    better: Better
    trust: Trust = "observed"
    doubt: Flag | None = None


class MeasuredRun(NamedTuple):
    """The measurements of a run by kind, and the context of its SUT, ``None`` if that is not known."""

    measured: Mapping[str, Sequence[Measured[Any]]]
    context: Context | None

    def of(self, kind: str) -> Sequence[Measured[Any]]:
        """Return the measurements of *kind*, empty if there are none."""
        return self.measured.get(kind, ())

    def values(self, kind: str) -> list[Any]:
        """Return the values of the measurements of *kind*."""
        return [measurement.values for measurement in self.of(kind)]


class Parsed(Model):
    """What one kernel document says about one measurement."""

    id: str
    values: Values
    flags: tuple[Flag, ...]
    missing: tuple[Missing, ...] = ()


class Settings(Model):
    """Base of a kind's settings in a profile; the defaults are a nightly run's."""


S = TypeVar("S", bound=Settings)
V = TypeVar("V", bound=Values)


class Declaration(ABC, Generic[S, V]):
    """One measurement kind."""

    kind: ClassVar[str]
    title: ClassVar[str]
    question: ClassVar[str]
    settings: type[S]
    values: type[V]
    figures: ClassVar[tuple[Figures, ...]]
    """What this kind's metrics can be: a limit that no run could ever be judged by is found before anything is
    measured."""
    main_chart_rank: ClassVar[int | None] = None
    """The place of the main chart among those of a page's first screen; ``None``: the kind has no main chart."""

    def steps(self, context: Context, settings: S) -> Iterator[Step | NotPlanned]:
        """Yield the steps that answer the question on this SUT, and what cannot be answered.

        A kind declares these, or ``planned`` if they depend on what a plan knows.
        """
        return self.planned(context, settings, None)

    def planned(self, context: Context, settings: S, kept: ShapeReference | None) -> Iterator[Step | NotPlanned]:
        """Yield the steps of a plan that knows *kept*, the traffic shape found best on this SUT's platform before.

        For a kind whose traffic takes that shape, or that searches it; the others need nothing but the SUT.
        """
        del kept
        return self.steps(context, settings)

    @abstractmethod
    def parse(self, document: ProbeDocument, step: Step, context: Context) -> Iterator[Parsed]:
        """Yield what *document*, printed by *step* on the SUT of *context*, says.

        Raises ``InputError`` if the document has another form or no value at all.
        """

    def completed(self, values: V, run: Mapping[str, Values]) -> V:
        """Return *values* after a look at all values of the *run*, by measurement identifier.

        For a kind whose question is about the whole run; most kinds answer theirs alone.
        """
        del run
        return values

    @abstractmethod
    def metrics(self, values: V) -> Iterator[Metric]:
        """Yield the headline figures of *values*."""

    def summary(self, measured: Sequence[V]) -> Iterator[str]:
        """Yield what the section of a page says first of the valid values *measured* in one run."""
        del measured
        yield from ()

    def main_chart(self, run: MeasuredRun, width: int) -> Chart | None:
        """Return the chart that the first screen of a page may show, *width* px wide; the kind was measured in *run*.

        ``None`` if a sentence says as much. See ``main_chart_rank``.
        """
        del run, width
        return None

    def charts(self, run: MeasuredRun) -> Iterator[Chart | None]:
        """Yield the other charts of the kind's section; the kind was measured in *run*."""
        del run
        yield from ()


def step(
    *,
    id: str,  # noqa: A002 - the field's name in the document
    kind: str,
    title: str,
    subcommand: str,
    options: dict[str, Any],
    cpus: tuple[int, ...],
    nodes: tuple[int, ...],
    expected_duration_s: float,
    budget_s: float = 0.0,
    flags: tuple[str, ...] = (),
    prefetchers: Literal["off"] | None = None,
) -> Step:
    """Return the step that runs *subcommand* with *options*; a list repeats its option, *flags* take no value.

    *budget_s* is the time that points which have not converged may take beyond the expected duration, all points
    together; the longest duration and the deadline contain it. The title of a step with *prefetchers* off says so.
    """
    deadline_s = float(max(DEADLINE_FLOOR_S, round(expected_duration_s * DEADLINE_FACTOR + budget_s)))
    argv = [PROBE, subcommand]
    for name, value in options.items():
        for item in value if isinstance(value, list) else (value,):
            argv += [f"--{name}", str(item)]
    argv += [f"--{name}" for name in flags]
    argv += ["--deadline-s", f"{deadline_s:g}"]
    return Step(
        id=id,
        kind=kind,
        title=title if prefetchers is None else f"{title}, prefetchers {prefetchers}",
        argv=tuple(argv),
        cpus=cpus,
        nodes=nodes,
        expected_duration_s=round(expected_duration_s, 1),
        longest_duration_s=round(expected_duration_s + budget_s, 1),
        deadline_s=deadline_s,
        prefetchers=prefetchers,
    )


def excess_s(cost_s: float, placements: int, budget_s: float) -> float:
    """Return the time in s that one point may take beyond *cost_s*, the duration of its *placements*.

    The kernel looks at the time since the point began after each placement: it ends at the first placement that is
    over when *budget_s* has passed, so a budget shorter than the placements themselves adds nothing.
    """
    return max(0.0, budget_s - cost_s * (placements - 1) / placements) if budget_s > 0 else 0.0


def metric_of(name: str, title: str, figure: Estimate, better: Better) -> Metric:
    """Return the metric that *figure* is the value of."""
    trust, doubt = trust_of(figure)
    return Metric(
        name=name,
        title=title,
        value=figure.value,
        unit=figure.unit,
        interval=figure.interval,
        coverage=figure.coverage,
        estimator=figure.estimator,
        placements=figure.placements,
        better=better,
        trust=trust,
        doubt=doubt,
    )
