# SPDX-License-Identifier: Apache-2.0
"""The run document ``run.json``: one per SUT and run, versioned and closed.

The committed JSON Schema ``run.schema.json`` is generated from this model; a test keeps the two equal.
"""

import json
from collections.abc import Iterable
from datetime import date
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field

from calibration.acceptance import AcceptanceFile
from calibration.base.model import Model, UtcTime
from calibration.base.trust import Judged, Trust, worst
from calibration.base.tuning import SettingChange, Unrestored
from calibration.base.validity import Flag, Validity
from calibration.context.model import Context
from calibration.formats.meltdown_checker import VulnerabilityFinding
from calibration.formats.opendcdiag import DcdiagOutput
from calibration.formats.readings import Format, Inconsistency, Reading
from calibration.measurements import declaration, registry
from calibration.measurements.base import Metric, Values
from calibration.measurements.evidence import Missing, PagesProof
from calibration.measurements.metric_rows import Quantity
from calibration.measurements.mlc_program import CommandName, PrefetcherPlace, Prefetchers
from calibration.measurements.plan import Plan
from calibration.preflight.checks import Check
from calibration.results.consistency import ConsistencyCheck
from calibration.results.health import Health
from calibration.sutprobe.document import Clock, Warned

if TYPE_CHECKING:
    AnyValues = Values
else:
    AnyValues = Annotated[reduce(or_, (kind.values for kind in registry().values())), Field(discriminator="kind")]

RunStatus = Literal["complete", "incomplete", "interrupted", "not_begun", "imported"]
"""``complete``: every planned step has its measurement. ``incomplete``: at least one has not. ``interrupted``: the run
was ended from outside; earlier measurements are kept. ``not_begun``: nothing was measured, because the SUT was
unreachable or unfit. ``imported``: the metrics were read from a text."""


class ProbeBuild(Model):
    """The sutprobe that measured: the hash is of the file as verified on the SUT before the first step."""

    sha256: str
    target: str
    version: str
    compiler: str
    flags: str
    source_sha256: str


class Run(Model):
    """Identity and provenance of one run."""

    id: str
    testbed: str
    sut: str
    profile: str
    started_at: UtcTime
    finished_at: UtcTime
    harness_version: str
    probe: ProbeBuild | None
    status: RunStatus


class Attempt(Model):
    """One start of the run on the SUT: the first, or one that resumed it.

    ``capture`` is a path relative to the run's directory, ``None`` if the SUT was not captured. ``ended`` says why the
    attempt ended before its last step; ``finished_at`` is ``None`` if the controller was lost. ``unrestored`` are
    settings that are not known to be restored, also those of an earlier run that refused this attempt. ``health`` is
    what the SUT counted meanwhile, ``None`` if the attempt did not measure or its runner was killed.
    """

    started_at: UtcTime
    finished_at: UtcTime | None
    boot_id: str | None
    capture: str | None
    capture_sha256: str | None
    checks: tuple[Check, ...]
    changes: tuple[SettingChange, ...]
    unrestored: tuple[Unrestored, ...] = ()
    ended: str | None
    health: Health | None = None


class CapturedContext(Model):
    """The parsed context, and the raw capture (a path relative to the run's directory)."""

    parsed: Context
    capture: str
    capture_sha256: str


class OtherRun(Model):
    """How a program of the operator ran on the SUT.

    ``output`` is its verbatim output (a path relative to the run's directory); ``user_id`` is the user who ran it.
    Fields that were not reached are ``None``. ``reason`` says why there is no readable output; ``None`` on success.
    """

    started_at: UtcTime
    duration_s: float
    argv: tuple[str, ...] | None
    user_id: int | None
    rc: int | None
    output: str | None
    output_sha256: str | None
    reason: str | None


class CheckerRun(OtherRun):
    """How the operator's spectre-meltdown-checker ran on the SUT, before any measurement.

    ``stderr`` is the end of its standard error.
    """

    script_sha256: str | None
    stderr: str


class MeltdownChecker(CheckerRun):
    """The same, with the checker's results; ``version`` is its own, ``None`` if its output has none."""

    version: str | None
    findings: tuple[VulnerabilityFinding, ...]


class DcdiagRun(OtherRun):
    """How the operator's opendcdiag ran on the SUT for ``seconds``, after a burn-in."""

    seconds: float
    program_sha256: str | None


class Dcdiag(DcdiagRun):
    """The same, with what it says, ``None`` if that could not be read."""

    result: DcdiagOutput | None


class MlcRun(OtherRun):
    """How one command of the operator's Intel MLC ran on the SUT, after all measurements.

    ``prefetchers`` is their state before and after, ``None`` if unknown. ``readings`` are the identifiers of the
    readings of its output.
    """

    command: CommandName
    outcome: Literal["ok", "failed", "timed_out", "killed"]
    program_sha256: str
    prefetchers: Prefetchers | None
    readings: tuple[str, ...] = ()


class MlcProgram(Model):
    """The operator's Intel MLC, and the operator's consent.

    ``archive`` is the name of the file, ``member`` the program's path in it (``None`` if the file itself is the
    program), ``form`` whether it is a script. ``prefetchers_ok`` is the consent to switch prefetchers, ``publish`` to
    show metrics on pages. ``reason`` says why none of it was run; ``None`` if the program was on the SUT.
    """

    started_at: UtcTime
    archive: str
    archive_sha256: str | None
    member: str | None
    program_sha256: str | None
    form: Literal["elf", "script"] | None
    prefetchers_ok: bool
    publish: bool
    reason: str | None


class Mlc(MlcProgram):
    """The same, with the commands that ran."""

    commands: tuple[MlcRun, ...]

    @property
    def changed_prefetchers(self) -> tuple[tuple[CommandName, PrefetcherPlace], ...]:
        """The prefetcher settings that changed, each with the command that ran in between."""
        return tuple(
            (run.command, place)
            for run in self.commands
            if run.prefetchers is not None
            for place in run.prefetchers.places
            if place.state == "changed"
        )


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    json.dumps(values, allow_nan=False)
    return values


class Measurement(Model):
    """One measurement: what ran, when, with what result, and whether the result is valid.

    ``instrument`` names the program (``sutprobe`` and its version); ``parameters`` are those it reports in one round,
    ``rounds`` those that were measured, empty if it was measured once. ``duration_s`` is that of all of them. ``pages``
    proves the memory placement, ``None`` without buffers; measurements of one step share it.
    """

    id: str
    kind: str
    step: str
    title: str
    instrument: str
    argv: tuple[str, ...]
    parameters: Annotated[dict[str, Any], AfterValidator(_finite)]
    rounds: tuple[int, ...] = ()
    started_at: UtcTime
    duration_s: float
    clock: Clock | None
    warnings: tuple[Warned, ...]
    values: AnyValues
    missing: tuple[Missing, ...]
    pages: PagesProof | None = None
    validity: Validity

    def metrics(self) -> tuple[Metric, ...]:
        """Return its metrics."""
        return tuple(declaration(self.kind).metrics(self.values))

    def trust_in(self, metric: Metric) -> Judged:
        """Return the trust in *metric*, one of its own; ``invalid`` if the measurement is."""
        if self.validity.valid:
            return Judged(metric.trust, metric.doubt)
        return Judged("invalid", worst(self.validity.flags))


class NotMeasured(Model):
    """A missing measurement, and why.

    ``failed``: requested and failed, so the run is incomplete. ``not_planned``: excluded by this SUT, profile or
    version of the harness, according to the plan. ``interrupted``: the run ended before it. ``not_given``: an imported
    text has no value for it. A run that did not begin has one of these, of the kind ``run``. ``flag`` names the fault
    if it is in the closed list. The kind ``mlc`` is Intel MLC, which is optional: it never makes a run incomplete.
    """

    kind: str
    what: str
    reason: str
    cause: Literal["failed", "not_planned", "interrupted", "not_given"]
    flag: Flag | None = None


MLC = "mlc"
"""The kind of missing parts of Intel MLC."""

DCDIAG = "opendcdiag"
"""The kind of a missing answer of opendcdiag: who gives the program to a burn-in wants its answer."""


def of_the_run(not_measured: Iterable[NotMeasured]) -> list[NotMeasured]:
    """Return the entries of *not_measured* that count against the run: all but the guest's."""
    return [item for item in not_measured if item.kind != MLC]


class Verdict(Model):
    """The verdict on one metric by its limits or reference; without either it is not a pass.

    ``measurement`` is the identifier of the metric's measurement. Both are None if a limit names a metric that was not
    measured, which is a failure. ``lower`` and ``upper`` are the bounds beyond which it fails, of all limits together.
    """

    name: str
    measurement: str | None
    metric: Metric | None
    lower: float | None
    upper: float | None
    outcome: Literal["pass", "warn", "fail", "no_reference", "invalid"]
    reason: str


class Imported(Model):
    """The origin of an imported document's metrics.

    ``format`` is the recognised format; ``source`` the name of the file, ``sha256`` its hash and ``text`` its verbatim
    copy in the run's directory; ``title`` its first title. ``measured_on`` is the date of the measurements given by the
    person who imported it, ``None`` if unknown. ``cmdline``, ``uname`` and ``isolcpus`` are from the text. ``publish``
    says whether pages may show the metrics: those of a published page always, raw output of Intel MLC only with
    the consent of the person who imported it.
    """

    format: Format
    source: str
    sha256: str
    text: str
    title: str | None
    measured_on: date | None
    publish: bool
    cmdline: str | None
    uname: str | None
    isolcpus: str | None
    inconsistencies: tuple[Inconsistency, ...]


class RecordMetric(Model):
    """The metric of record of *quantity*, with its trust and the worst reason against it.

    ``quantity`` is stable, for example ``idle_latency.0.1``: from the CPUs of node 0 to the memory of node 1.
    """

    quantity: str
    family: Quantity
    title: str
    metric: Metric
    measurement: str
    trust: Trust
    reason: Flag | None


class RunDocument(Model):
    """The result of one run on one SUT.

    ``context`` and ``plan`` are those of the run's start: ``None`` for a SUT that was never captured, and without a
    plan. ``facts`` are those that affect metrics, by name (``calibration.context.facts``), empty without a context.
    ``flags`` apply to the whole machine. ``meltdown_checker``, ``mlc`` and ``opendcdiag`` are ``None`` if the operator
    gave no such program. ``readings`` are results read from the output of other programs; ``imported`` is the origin of
    a document whose metrics were all read from a third-party text. ``record`` names the metric of record of each
    quantity; ``consistency`` has the cross-checks of the run's metrics. ``acceptance`` are the acceptance files that it
    is judged by, besides the limits of the inventory.
    """

    schema_version: Literal["run/1"]
    run: Run
    attempts: tuple[Attempt, ...]
    context: CapturedContext | None
    facts: dict[str, str]
    flags: tuple[Flag, ...]
    meltdown_checker: MeltdownChecker | None
    mlc: Mlc | None
    opendcdiag: Dcdiag | None = None
    plan: Plan | None
    measurements: tuple[Measurement, ...]
    not_measured: tuple[NotMeasured, ...]
    verdicts: tuple[Verdict, ...]
    record: tuple[RecordMetric, ...]
    consistency: tuple[ConsistencyCheck, ...]
    readings: tuple[Reading, ...]
    imported: Imported | None
    acceptance: tuple[AcceptanceFile, ...] = ()

    def __str__(self) -> str:
        """Return a short identification: logs show it for each gate, and the whole takes megabytes."""
        return f"run {self.run.id} of {self.run.testbed} / {self.run.sut}"


class JudgedMeasurement(Model):
    """What is judged of a measurement: not its values, which are judged as metrics."""

    model_config = ConfigDict(extra="ignore")

    id: str
    step: str
    title: str
    rounds: tuple[int, ...] = ()
    started_at: UtcTime
    validity: Validity


class JudgedDocument(Model):
    """What is judged of a run document over many nights: reading this takes a fifth of reading the whole."""

    model_config = ConfigDict(extra="ignore")

    schema_version: Literal["run/1"]
    run: Run
    attempts: tuple[Attempt, ...]
    facts: dict[str, str]
    flags: tuple[Flag, ...]
    plan: Plan | None
    measurements: tuple[JudgedMeasurement, ...]
    not_measured: tuple[NotMeasured, ...]
    verdicts: tuple[Verdict, ...]
    record: tuple[RecordMetric, ...]
    consistency: tuple[ConsistencyCheck, ...]


class MetricsMeasurement(Model):
    """What qualifies the metrics of a measurement, which are in the verdicts."""

    model_config = ConfigDict(extra="ignore")

    id: str
    instrument: str
    validity: Validity


class MetricsDocument(Model):
    """The metrics of a run document, and whether they are public: reading this takes a sixth of reading the whole."""

    model_config = ConfigDict(extra="ignore")

    schema_version: Literal["run/1"]
    run: Run
    mlc: Mlc | None
    measurements: tuple[MetricsMeasurement, ...]
    verdicts: tuple[Verdict, ...]
    record: tuple[RecordMetric, ...]
    readings: tuple[Reading, ...]
    imported: Imported | None


def public_readings(document: RunDocument | MetricsDocument) -> tuple[Reading, ...]:
    """Return the readings of *document* that pages may show: licences of other programs may restrict publishing."""
    mlc, imported = document.mlc, document.imported
    public = mlc is not None and mlc.publish if imported is None else imported.publish
    return document.readings if public else ()
