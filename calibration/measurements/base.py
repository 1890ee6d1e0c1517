# SPDX-License-Identifier: Apache-2.0
"""The contract of every measurement declaration.

A measurement kind is one module of this package with one ``Declaration``: its steps on a given SUT, how sutprobe's
document becomes values, its headline metrics, its charts, and its cost. The registry in ``calibration.measurements``
imports the modules.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Generic, Literal, NamedTuple, Self, TypeVar, get_args

from pydantic import Field

from calibration.base.grouping import grouped
from calibration.base.model import Model
from calibration.base.percentiles import Histogram, merged
from calibration.base.statistics import Estimate, Estimator
from calibration.base.trust import Trust, trust_of
from calibration.base.validity import Flag
from calibration.charts.base import Chart, Measured
from calibration.charts.curves import Published
from calibration.context.model import Context
from calibration.measurements.evidence import Missing
from calibration.measurements.metric_rows import UNDECLARED, Better, MetricRow
from calibration.measurements.sut import Sut
from calibration.measurements.table import Gridded, Table
from calibration.sutprobe.document import ProbeDocument

PROBE = "sutprobe"
"""First word of every step's argv; the SUT's side replaces it by the path of the verified sutprobe."""

SEEDED = frozenset({"latency", "bandwidth", "loaded", "c2c"})
"""Subcommands of sutprobe with the option ``--seed``."""

FIGURES: Final[Mapping[str, tuple[str, ...]]] = {
    "latency": ("points", "*", "placements", "*", "windows_ns"),
    "bandwidth": ("points", "*", "placements", "*", "windows_mb_s"),
    "loaded": ("points", "*", "placements", "*", "probes", "0", "windows_ns"),
    "c2c": ("pairs", "*", "placements", "*", "windows_ns"),
    "frequency": ("points", "*", "windows_hz"),
}
"""Where the result of a subcommand has the windows of its figures with a target; of probes, those of the first."""

SEARCH_SUFFIX: Final = "-search"
TRACED_SUFFIX: Final = "-traced"
"""End the identifiers of a search, and of a step that traces the kernel."""

CHOSEN: Final = ("result", "chosen")
"""Where the answer of a search has the numbers that it chose."""

DEADLINE_FACTOR = 4
"""A step may take this many times its expected duration: slow SUTs finish, hung ones are caught."""

DEADLINE_FLOOR_S = 60
"""Shortest deadline, so that start-up on an emulated or busy SUT never decides."""

START_UP_S = 0.03
"""Start and end of sutprobe, and the clock's calibration, for the expected duration only."""

ROUNDS_MAX = 31
"""More rounds never narrow an interval enough to be worth the time."""

HalfWidth = Annotated[float, Field(gt=0, le=1)]
"""Requested relative half-width of an interval; the limit is sutprobe's."""


class Choice(Model):
    """What a search chose, in a later command: its *option* gets the numbers in the *field* of the answer of *step*."""

    step: str
    field: tuple[str, ...]
    option: str


class Step(Model):
    """A command of sutprobe on the SUT, with everything needed to run, review or refuse it.

    It is run once in each of ``rounds`` rounds, and in up to ``more_rounds`` further ones while the interval of one of
    its figures is wider than ``target_half_width``. ``figures`` is where its answer has their windows: ``*`` is each
    element of a list, and the first list has an element for each figure. If ``seeded``, each round has a ``--seed`` of
    its own, to shuffle differently.

    ``memory_bytes`` is what it takes of each node, and ``tasks`` how many threads and processes it starts.
    ``expected_duration_s`` is that of all rounds, ``setup_s`` the part of it before anything is measured,
    ``longest_duration_s`` that with all further rounds, ``deadline_s`` the limit of one command. ``prefetchers`` is
    ``off`` if the hardware prefetchers are switched off while it runs, and ``None`` if they are unchanged.

    A step that is ``part_of`` another is measured once, and its answer completes that one's measurement: what a search
    saw, or what the kernel did while it was traced. A search is measured before the rounds; a step with a ``choice``
    measures what it chose, and nothing if it failed.
    """

    id: str
    kind: str
    title: str
    argv: tuple[str, ...]
    seeded: bool = False
    rounds: int = 1
    more_rounds: int = 0
    target_half_width: float | None = None
    figures: tuple[str, ...] | None = None
    cpus: tuple[int, ...]
    memory_bytes: dict[int, int]
    tasks: int
    expected_duration_s: float
    setup_s: float
    longest_duration_s: float
    deadline_s: float
    prefetchers: Literal["off"] | None = None
    part_of: str | None = None
    choice: Choice | None = None

    def after(self, search: Self, option: str) -> Iterator[Self]:
        """Yield *search*, and this step, whose *option* gets what that chooses."""
        yield search.model_copy(update={"part_of": self.id})
        yield self.model_copy(update={"choice": Choice(step=search.id, field=CHOSEN, option=option)})

    def in_rounds(self, rounds: int) -> Self:
        """Return this step, planned for one round, in *rounds*."""
        each_s = self.expected_duration_s
        return self.model_copy(
            update={
                "rounds": rounds,
                "expected_duration_s": round(each_s * rounds, 2),
                "setup_s": round(self.setup_s * rounds, 2),
                "longest_duration_s": round(each_s * (rounds + self.more_rounds), 2),
            }
        )


class NotPlanned(Model):
    """A measurement, or a part of one, excluded by this SUT or profile, and why."""

    kind: str
    what: str
    reason: str


Planned = Step | NotPlanned


class Values(Model):
    """Base of the values of one kind; ``kind`` is the discriminator."""

    kind: str


class GridValues(Gridded, Values):
    """Base of the values of a kind with a grid."""


class Metric(Model):
    """One value used by limits, drift and comparisons.

    ``name`` is stable and unique within a run document, for example ``idle_latency.latency_ns``. A value observed once,
    such as the longest gap, has neither interval nor estimator. ``prediction`` is where the value of the next run of
    the same plan lies, ``None`` if it was not measured in ``rounds``. ``goal`` is the relative half-width aimed at.
    ``trust`` and ``doubt``, the worst reason against it, are the metric's own; an invalid measurement makes its metrics
    invalid.
    """

    name: str
    title: str
    value: float
    unit: str
    interval: tuple[float, float] | None
    coverage: float | None
    estimator: Estimator | None
    prediction: tuple[float, float] | None = None
    rounds: int | None = None
    placements: int | None
    better: Better
    goal: float | None = None
    trust: Trust = "observed"
    doubt: Flag | None = None


class Observation(NamedTuple):
    """In what the worst of something was looked for: how long on each CPU, and the worst of each, in ns.

    ``samples`` are those of all CPUs; ``None`` if the time was observed without a break.
    """

    observed_s: float
    by_cpu: Mapping[int, float]
    samples: Histogram | None = None

    @classmethod
    def merged(cls, parts: Sequence[Self]) -> Self:
        """Return *parts*, at least one, as one: their times and samples together, and the worst of each CPU."""
        worst: dict[int, float] = {}
        for part in parts:
            for cpu, value in part.by_cpu.items():
                worst[cpu] = max(value, worst.get(cpu, value))
        samples = [part.samples for part in parts if part.samples is not None]
        return cls(sum(part.observed_s for part in parts), worst, merged(samples) if samples else None)


class MeasuredRun(NamedTuple):
    """The measurements of a run by kind, the context of its SUT, ``None`` if unknown, and curves published of it."""

    measured: Mapping[str, Sequence[Measured[Any]]]
    context: Context | None
    published: Published = Published()

    @property
    def nodes(self) -> Mapping[int, Sequence[int]]:
        """The CPUs of each node, those of a core together; empty if unknown."""
        if self.context is None:
            return {}
        node_of = {cpu: node for node, cpus in self.context.cpus_by_node.items() for cpu in cpus}
        cpus = [cpu for core in self.context.topology.cores for cpu in core.cpus if cpu in node_of]
        return dict(sorted(grouped((node_of[cpu], cpu) for cpu in cpus).items()))

    def of(self, kind: str) -> Sequence[Measured[Any]]:
        """Return the measurements of *kind*, empty if missing."""
        return self.measured.get(kind, ())

    def values(self, kind: str) -> list[Any]:
        """Return the values of the measurements of *kind*."""
        return [measurement.values for measurement in self.of(kind)]


class Parsed(Model):
    """What one document of sutprobe says about one measurement; ``suffix`` distinguishes those of one step."""

    suffix: str = ""
    values: Values
    flags: tuple[Flag, ...]
    missing: tuple[Missing, ...] = ()


class Settings(Model):
    """Base of a kind's settings in a profile; the defaults are those of a nightly run."""


class RepeatedSettings(Settings):
    """Settings of a kind whose figures have a target for their relative half-width.

    As long as an interval is wider than *target_half_width*, the step gets up to *more_rounds* further rounds.
    """

    target_half_width: HalfWidth
    more_rounds: Annotated[int, Field(ge=0, le=ROUNDS_MAX)] = 0


S = TypeVar("S", bound=Settings)
V = TypeVar("V", bound=Values)


class Declaration(ABC, Generic[S, V]):
    """One measurement kind. A subclass with settings and values is one, and the registry has it."""

    declared: ClassVar[list[type["Declaration[Any, Any]"]]] = []
    """All kinds whose modules are imported."""

    kind: ClassVar[str]
    """Its name in documents: that of its values."""
    title: ClassVar[str]
    """Its title on pages."""
    question: ClassVar[str]
    """The question that it answers, which is the first sentence of its method page."""
    settings: type[S]
    """A closed model of its settings in a profile; the reference of settings has its docstring."""
    values: type[V]
    """A closed model of its values in the run document; a value is an ``Estimate``."""
    metric_rows: ClassVar[tuple[MetricRow, ...]]
    """A row for each form of this kind's metrics; the first that fits a name is its row."""
    titles: ClassVar[Mapping[str, str]] = {}
    """Titles of the metrics in a table, by the form of their names; both have labels of its axes, a name ends with the
    column."""
    once: ClassVar[bool] = False
    """Measured once, after the rounds: a search, or a load over time that rounds would cut."""
    longest: ClassVar[tuple[str, tuple[str, ...]] | None] = None
    """What is said of it while a run is watched: a name, and where the result has the longest time of each CPU."""
    fills_memory: ClassVar[bool] = False
    """Takes a share of whatever memory is available, however much that is."""
    fails_with: ClassVar[frozenset[str]] = frozenset()
    """Flags of the whole machine with which a run of this kind fails, without any limit."""
    main_chart_rank: ClassVar[int | None] = None
    """Position of the main chart on a page's first screen; ``None``: no main chart."""

    def __init_subclass__(cls) -> None:
        """Set what follows from the parameters of the class: settings, values and kind."""
        super().__init_subclass__()
        settings, values = get_args(vars(cls)["__orig_bases__"][0])
        if not isinstance(values, TypeVar):  # else a base of several kinds
            cls.settings, cls.values, cls.kind = settings, values, values.model_fields["kind"].default
            cls.declared.append(cls)

    @abstractmethod
    def steps(self, sut: Sut, settings: S) -> Iterator[Planned]:
        """Yield the steps for *sut*, which has CPUs, and what is excluded."""

    @abstractmethod
    def parse(self, document: ProbeDocument, step: Step, sut: Sut) -> Iterator[Parsed]:
        """Yield what *document*, printed by *step* on *sut*, says.

        Raises ``InputError`` if the document has another form or no value.
        """

    def completed(self, values: V, run: Mapping[str, Values]) -> V:
        """Return *values* updated from all values of the *run*, by measurement identifier.

        For kinds whose result depends on the whole run.
        """
        del run
        return values

    def metrics(self, values: V) -> Iterator[Metric]:
        """Yield the metrics of *values*: those of its table, unless a kind has others."""
        if isinstance(values, GridValues):
            yield from self.table_metrics(values.table)

    def table_metrics(self, table: Table) -> Iterator[Metric]:
        """Yield a metric for each cell of *table* that ``titles`` names and that has a value."""
        for form, title in self.titles.items():
            for labels, cell in table.cells(form.rpartition(".")[2]).items():
                named = dict(zip(table.axes, labels, strict=True))
                yield self.metric(form.format(**named), title.format(**named), cell)

    def absence(self, values: V) -> str | None:
        """Return why *values* have no metric; ``None`` if they have, or it is not known."""
        del values
        return None

    def observation(self, values: V, metric: str) -> Observation | None:
        """Return in what *metric* of *values*, the worst that was seen, was looked for; ``None`` for other metrics."""
        del values, metric
        return None

    def summary(self, measured: Sequence[V]) -> Iterator[str]:
        """Yield the introductory sentences of a page's section, from the valid values *measured* in one run."""
        del measured
        yield from ()

    def main_chart(self, run: MeasuredRun, width: int) -> Chart | None:
        """Return the chart for the first screen of a page, at most *width* px wide; the kind was measured in *run*.

        ``None`` if a sentence is enough. See ``main_chart_rank``.
        """
        del run, width
        return None

    def charts(self, run: MeasuredRun) -> Iterator[Chart | None]:
        """Yield the other charts of the kind's section; the kind was measured in *run*."""
        del run
        yield from ()

    def not_planned(self, reason: str, what: str = "") -> NotPlanned:
        """Return *what*, by default the whole kind, as excluded for *reason*."""
        return NotPlanned(kind=self.kind, what=what or self.title, reason=reason)

    def step(
        self,
        title: str,
        subcommand: str,
        options: Mapping[str, Any],
        *,
        cpus: Iterable[int],
        memory_bytes: Mapping[int, int],
        tasks: int | None = None,
        cost_s: float,
        setup_s: float = 0.0,
        repeated: RepeatedSettings | None = None,
        figures: tuple[str, ...] | None = None,
        suffix: str = "",
        prefetchers: Literal["off"] | None = None,
        part_of: str | None = None,
    ) -> Step:
        """Return the step that runs *subcommand* with *options*, for one round.

        A list repeats its option, one that is true takes no value.

        It takes *memory_bytes* of each node, with what building chains takes beside them, and starts as many *tasks* as
        it uses *cpus* unless given. *cost_s* is the expected time besides start-up and measuring the background of
        counters, *setup_s* the part of it before anything is measured. *repeated* has the target and the number of
        further rounds, *figures* where the result has the windows, by default where the subcommand usually has them.
        *suffix* distinguishes the step from others of the kind. The title of a step with *prefetchers* off says so.
        """
        cpus = tuple(cpus)
        start_up_s = START_UP_S + options.get("background-s", 0.0)
        expected_s = start_up_s + cost_s
        deadline_s = float(max(DEADLINE_FLOOR_S, round(expected_s * DEADLINE_FACTOR)))
        argv = [PROBE, subcommand]
        for name, value in options.items():
            for item in value if isinstance(value, list) else (value,):
                argv += [f"--{name}"] if item is True else [f"--{name}", str(item)]
        argv += ["--deadline-s", f"{deadline_s:g}"]
        return Step(
            id=f"{self.kind}{suffix}",
            kind=self.kind,
            title=f"{self.title}, {title}" + ("" if prefetchers is None else f", prefetchers {prefetchers}"),
            argv=tuple(argv),
            seeded=subcommand in SEEDED,
            more_rounds=0 if repeated is None else repeated.more_rounds,
            target_half_width=None if repeated is None else repeated.target_half_width,
            figures=("result", *(figures or FIGURES[subcommand])) if repeated and repeated.more_rounds else None,
            cpus=cpus,
            memory_bytes={node: memory_bytes[node] for node in sorted(memory_bytes)},
            tasks=len(cpus) if tasks is None else tasks,
            expected_duration_s=expected_s,
            setup_s=start_up_s + setup_s,
            longest_duration_s=expected_s,
            deadline_s=deadline_s,
            prefetchers=prefetchers,
            part_of=part_of,
        )

    def metric(self, name: str, title: str, value: Estimate | float, **details: Any) -> Metric:
        """Return the metric of *value*, whose *name* follows the kind's; unit and direction are those of its row.

        An estimate brings its interval and its trust; *details* are other fields of the metric. Raises ``LookupError``
        for a metric without a row.
        """
        name = f"{self.kind}.{name}"
        row = self.row_of(name)
        if row is UNDECLARED:
            raise LookupError(f"no row of {self.kind} declares {name}")
        known: dict[str, Any] = dict.fromkeys(("interval", "coverage", "estimator", "prediction", "placements"))
        if isinstance(value, Estimate):
            trust, doubt = trust_of(value)
            known = {field: getattr(value, field) for field in known} | {"trust": trust, "doubt": doubt}
            known["goal"] = value.target_half_width
            known["rounds"] = len(set(value.rounds)) or None
            value = value.value
        given = {**known, **details}
        return Metric(name=name, title=title, value=value, unit=row.unit, better=row.better, **given)

    def row_of(self, metric: str) -> MetricRow:
        """Return the row of *metric*, a whole name; ``UNDECLARED`` if the kind has no such metric."""
        return next((row for row in self.metric_rows if row.labels(metric) is not None), UNDECLARED)
