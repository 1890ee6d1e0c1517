# SPDX-License-Identifier: Apache-2.0
"""The acceptance sheet: what its rows and its verdict are made of, and acceptance files as they are read."""

import hashlib
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from calibration.acceptance import AcceptanceFile, load_acceptance, preset_names
from calibration.acceptance.limits import kernel_kind, read_limits, rows_of
from calibration.base.errors import InputError
from calibration.base.validity import flag, validity
from calibration.judge.limits import judge_metric
from calibration.judge.sheet import Looked, Row, Sheet, accepted, make_sheet
from calibration.judge.waivers import Waiver, Waivers
from calibration.measurements.base import Observation
from calibration.profiles import load_profile, profile_names
from calibration.report.sheet import reasons, row_text, sheet_page
from calibration.results.model import NotMeasured, RunDocument
from calibration.results.store import StoredRun
from tests.report.report_documents import run_document

CHECKOUT = Path(__file__).parents[2]
KINDS = ("wakeup", "firmware", "jitter", "idle_latency")
SOURCE = {"document": "A test plan", "url": "https://example.net/plan", "date": "2026-11-01"}
WORST = "wakeup.idle.max_ns"
LATE = {"metric": "wakeup.*.max_ns", "unit": "ns", "reason": "section 4"}


@pytest.fixture(scope="module")
def document() -> RunDocument:
    return run_document(names=KINDS)


def preemption(document: RunDocument, model: str | None) -> RunDocument:
    """Return *document* of a machine whose kernel has this preemption model."""
    assert document.context is not None
    context = document.context.parsed
    kernel = context.kernel.model_copy(update={"preemption": model})
    parsed = context.model_copy(update={"kernel": kernel})
    return document.model_copy(update={"context": document.context.model_copy(update={"parsed": parsed})})


def asking(*limits: dict[str, Any]) -> AcceptanceFile:
    """Return an acceptance file with *limits*."""
    fields = {"name": "plan", "sha256": "0" * 64, "title": "A plan", "conditions": "a load", "profile": "rt_smoke"}
    return AcceptanceFile(**fields, source=SOURCE, limits=read_limits(list(limits)))  # type: ignore[arg-type]


def stored(document: RunDocument, **run: Any) -> StoredRun:
    """Return *document* as stored, with other fields of its run."""
    document = document.model_copy(update={"run": document.run.model_copy(update=run)})
    return StoredRun(Path("run.json"), document.model_dump_json().encode())


def sheet(document: RunDocument, *limits: dict[str, Any], waivers: Waivers | None = None) -> Sheet:
    return make_sheet([stored(document)], asking(*limits), waivers or Waivers())


def row(document: RunDocument, **limit: Any) -> Row:
    (found,) = sheet(document, {**LATE, **limit}).rows
    return found


def worst_ns(document: RunDocument, kind: str = "wakeup") -> float:
    return max(
        metric.value
        for measurement in document.measurements
        if measurement.kind == kind
        for metric in measurement.metrics()
        if metric.name.endswith(("max_ns", "max_gap_ns"))
    )


def test_a_pattern_takes_every_metric_that_fits_and_shows_the_worst(document: RunDocument) -> None:
    found = row(document, upper=1e9)
    assert found.outcome == "pass"
    assert found.metrics == 3
    assert found.worst is not None
    assert found.worst.value == worst_ns(document)


def test_beyond_the_soft_limit_is_a_warning_and_beyond_the_limit_a_failure(document: RunDocument) -> None:
    worst = worst_ns(document)
    assert row(document, soft_upper=worst - 1, upper=worst).outcome == "warn"
    assert row(document, soft_upper=worst - 1).outcome == "warn"
    assert row(document, soft_upper=worst - 2, upper=worst - 1).outcome == "fail"
    assert row(document, soft_upper=worst, upper=worst).outcome == "pass"


@pytest.mark.parametrize(
    ("model", "kernel", "outcome"),
    [
        ("real-time", "real_time", "pass"),
        ("real-time, lazy", "real_time", "pass"),
        ("full", "real_time", "unknown"),
        (None, "real_time", "unknown"),
        ("real-time", "other", "unknown"),
        ("voluntary", "other", "pass"),
        (None, None, "pass"),
    ],
)
def test_a_limit_for_other_kernels_says_nothing(
    document: RunDocument, model: str | None, kernel: str | None, outcome: str
) -> None:
    found = row(preemption(document, model), upper=1e9, kernel=kernel)
    assert found.outcome == outcome
    if outcome == "unknown":
        words = {"real_time": "the limit is for real-time kernels", "other": "kernels that are not real-time"}
        assert words[kernel or ""] in found.reason
        assert ("whether this is one is not known" in found.reason) == (model is None)


def test_of_two_limits_the_one_for_the_kernel_applies(document: RunDocument) -> None:
    limits = [{**LATE, "upper": 1.0, "kernel": "real_time"}, {**LATE, "upper": 1e9, "kernel": "other"}]
    (found,) = sheet(preemption(document, "full"), *limits).rows
    assert (found.limit.kernel, found.outcome) == ("other", "pass")
    (found,) = sheet(preemption(document, "real-time"), *limits).rows
    assert (found.limit.kernel, found.outcome) == ("real_time", "fail")


def test_what_was_looked_for_too_briefly_is_unknown_and_a_failure_all_the_same(document: RunDocument) -> None:
    found = row(document, upper=1e9, observed_s=43200)
    assert found.outcome == "unknown"
    assert found.reason.endswith("of 12 h")
    assert row(document, upper=1.0, observed_s=43200).outcome == "fail"
    assert found.looked is not None
    for share, outcome in ((1.0, "pass"), (1.0009, "pass"), (1.01, "unknown")):
        assert row(document, upper=1e9, observed_s=share * found.looked.observed_s).outcome == outcome


def test_runs_add_up(document: RunDocument) -> None:
    one = row(document, upper=1e9).looked
    again = stored(document, id="20260103T010000Z-0001")
    two = make_sheet([stored(document), again], asking({**LATE, "upper": 1e9})).rows[0].looked
    assert one is not None
    assert two is not None
    assert two.observed_s == pytest.approx(2 * one.observed_s)
    assert (two.samples, two.cpus) == (2 * (one.samples or 0), one.cpus)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "the same run is given twice"),
        ({"id": "20260103T010000Z-0001", "sut": "other"}, "a sheet is about one SUT"),
    ],
)
def test_runs_that_do_not_add_up_are_refused(document: RunDocument, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        make_sheet([stored(document), stored(document, **changes)], asking({**LATE, "upper": 1e9}))


def test_runs_of_a_machine_that_changed_are_refused(document: RunDocument) -> None:
    other = document.model_copy(update={"facts": document.facts | {"BIOS": "2.0"}})
    with pytest.raises(InputError, match=r"changed between .*: BIOS"):
        make_sheet([stored(document), stored(other, id="20260103T010000Z-0001")], asking({**LATE, "upper": 1e9}))


def test_what_was_never_seen_has_a_bound(document: RunDocument) -> None:
    worst = worst_ns(document)
    looked = row(document, upper=worst).looked
    assert looked is not None
    assert looked.samples is not None
    assert looked.beyond == 0
    assert looked.at_most == pytest.approx(3 / looked.samples, rel=0.01)
    assert looked.per_hour is None
    late = row(document, upper=worst - 1).looked
    assert late is not None
    assert late.beyond is not None
    assert late.beyond >= 1
    assert late.at_most is None


@pytest.mark.parametrize("metric", ["wakeup.*.max_ns", "firmware.max_gap_ns"])
def test_a_lower_limit_alone_has_no_bound(document: RunDocument, metric: str) -> None:
    looked = row(document, metric=metric, lower=1.0).looked
    assert looked is not None
    assert (looked.beyond, looked.at_most, looked.per_hour) == (None, None, None)


def test_a_gap_that_was_never_seen_has_a_rate(document: RunDocument) -> None:
    limit = {"metric": "firmware.max_gap_ns", "upper": 1e9, "unit": "ns", "reason": "firmware"}
    looked = sheet(document, limit).rows[0].looked
    assert looked is not None
    assert looked.samples is None
    assert looked.per_hour == pytest.approx(3 / (looked.cpu_s / 3600), rel=0.01)
    late = sheet(document, {**limit, "upper": 0.5}).rows[0].looked
    assert late is not None
    assert late.per_hour is None


def test_cpus_beyond_the_soft_limit_are_named(document: RunDocument) -> None:
    worst = worst_ns(document)
    found = row(document, soft_upper=worst - 1, upper=1e9)
    assert found.looked is not None
    assert len(found.looked.over_soft) == 1
    assert f"of {len(found.looked.cpus)} CPU" in row_text(found).beyond
    none = row(document, soft_upper=worst, upper=1e9).looked
    assert none is not None
    assert none.over_soft == ()


@pytest.mark.parametrize(
    ("late", "share", "outcome"),
    [(0, 0.0, "pass"), (1, 0.0, "fail"), (1, 0.1, "warn"), (2, 0.1, "fail"), (10, None, "warn")],
)
def test_a_share_of_the_cpus_may_be_beyond_the_soft_limit(
    document: RunDocument, late: int, share: float | None, outcome: str
) -> None:
    metric = next(found for item in document.measurements for found in item.metrics() if found.name == WORST)
    (limit,) = read_limits([{**LATE, "upper": 200, "soft_upper": 50, "soft_share": share}])
    by_cpu = {cpu: 100.0 if cpu < late else 1.0 for cpu in range(10)}
    worst = metric.model_copy(update={"value": max(by_cpu.values())})
    judged = judge_metric(limit, worst, None, Observation(600.0, by_cpu))
    assert judged.outcome == outcome
    assert ("on 2 of 10 CPUs, more than 10 %" in judged.reason) == (late == 2)


@pytest.mark.parametrize("upper", [None, 1e9])
def test_too_many_cpus_beyond_the_soft_limit_are_why(document: RunDocument, upper: float | None) -> None:
    found = sheet(document, {**LATE, "upper": upper, "soft_upper": 1, "soft_share": 0.1})
    assert found.outcome == "fail"
    assert "expected at most 1 ns on all but 10 % of the CPUs (section 4)" in list(reasons(found))[1]


def test_failures_are_the_first_reasons(document: RunDocument) -> None:
    silent = {**LATE, "upper": 1, "kernel": "real_time"}
    found = [{**silent, "metric": f"wakeup.idle.{end}_ns"} for end in ("p50", "p99", "max")]
    failing = {"metric": "idle_latency.latency_ns", "upper": 1, "unit": "ns", "reason": "section 5"}
    made = sheet(preemption(document, "full"), *found, failing)
    assert [row.outcome for row in made.rows] == ["unknown"] * 3 + ["fail"]
    assert list(reasons(made))[1].startswith("idle_latency.latency_ns: ")


NO_TRACER = "this kernel has no tracer hwlat (CONFIG_HWLAT_TRACER)"
NOT_ISOLATED = NotMeasured(kind="wakeup", what="Isolated CPUs", reason="no CPU is isolated", cause="not_planned")
CRASHED = NotMeasured(kind="wakeup", what="Wake-up", reason="sutprobe was killed by SIGSEGV", cause="failed")


def without(document: RunDocument, kind: str, *lost: NotMeasured) -> RunDocument:
    """Return *document* without what *kind* measured, and with *lost* in its place."""
    kept = tuple(measurement for measurement in document.measurements if measurement.kind != kind)
    return document.model_copy(update={"measurements": kept, "not_measured": lost})


@pytest.mark.parametrize(
    ("lost", "reason"),
    [
        ([], "the profile quick does not have it"),
        ([NOT_ISOLATED], "no CPU is isolated"),
        ([NOT_ISOLATED, CRASHED], "sutprobe was killed by SIGSEGV"),
    ],
)
def test_a_limit_of_what_was_not_measured_fails(document: RunDocument, lost: list[NotMeasured], reason: str) -> None:
    found = row(without(document, "wakeup", *lost), upper=1e9)
    assert (found.outcome, found.worst, found.metrics) == ("fail", None, 0)
    assert found.reason == f"not measured: {reason}"


def test_of_a_kind_without_such_a_metric_no_reason_is_known(document: RunDocument) -> None:
    assert row(document, metric="wakeup.shallow_housekeeping.max_ns", upper=1e9).reason == "not measured"


def test_a_tracer_that_a_kernel_lacks_is_why(document: RunDocument) -> None:
    (traced,) = (measurement for measurement in document.measurements if measurement.kind == "firmware")
    refused = {"instrument": None, "refused": NO_TRACER, "max_gap_ns": None, "observed_s": None, "rate_per_hour": None}
    blind = traced.model_copy(update={"values": traced.values.model_copy(update=refused)})
    document = without(document, "firmware")
    document = document.model_copy(update={"measurements": (*document.measurements, blind)})
    found = row(document, metric="firmware.max_gap_ns", upper=1e9)
    assert (found.outcome, found.reason) == ("fail", f"not measured: {NO_TRACER}")


def doubted(document: RunDocument, code: str) -> RunDocument:
    """Return *document* with a flag of its wake-ups."""
    doubt = validity([flag(code, "a made up reason")])
    measurements = (
        item.model_copy(update={"validity": doubt}) if item.kind == "wakeup" else item for item in document.measurements
    )
    return document.model_copy(update={"measurements": tuple(measurements)})


def test_an_invalid_value_is_unknown(document: RunDocument) -> None:
    found = row(doubted(document, "EMULATED"), upper=1e9)
    assert (found.outcome, "a made up reason" in found.reason) == ("unknown", True)


@pytest.mark.parametrize(("upper", "outcome"), [(1e9, "unknown"), (1.0, "fail")])
def test_an_invalid_run_hides_no_failure_of_another(document: RunDocument, upper: float, outcome: str) -> None:
    runs = [stored(document), stored(doubted(document, "EMULATED"), id="20260103T010000Z-0001")]
    (found,) = make_sheet(runs, asking({**LATE, "upper": upper})).rows
    assert found.outcome == outcome


def test_flags_of_every_run_are_on_the_sheet(document: RunDocument) -> None:
    runs = [stored(doubted(document, "THROTTLED")), stored(document, id="20260103T010000Z-0001")]
    (found,) = make_sheet(runs, asking({**LATE, "upper": 1e9})).rows
    assert "THROTTLED" in {item.code for item in found.flags}


def waiver(document: RunDocument, metric: str, days: int) -> Waivers:
    until = document.run.finished_at.date() + timedelta(days=days)
    names = {"testbed": document.run.testbed, "sut": document.run.sut, "metric": metric, "check": "limits"}
    return Waivers([(1, Waiver(**names, reason="a DIMM is ordered", by="Ada", until=until))])  # type: ignore[arg-type]


@pytest.mark.parametrize(("days", "outcome"), [(0, "pass"), (-1, "fail")])
def test_a_waiver_that_covers_the_run_excuses_a_failure(document: RunDocument, days: int, outcome: str) -> None:
    limit = {"metric": "wakeup.idle.max_ns", "upper": 1.0, "unit": "ns", "reason": "a plan"}
    waived = sheet(document, limit, waivers=waiver(document, "wakeup.idle.max_ns", days))
    assert waived.rows[0].outcome == outcome
    assert (waived.rows[0].waived is not None) == (outcome == "pass")
    assert row_text(waived.rows[0]).verdict == ("waived" if outcome == "pass" else "fail")


def test_a_waiver_of_one_metric_does_not_excuse_another(document: RunDocument) -> None:
    found = sheet(document, {**LATE, "upper": 1.0}, waivers=waiver(document, "wakeup.idle.max_ns", 1))
    assert found.outcome == "fail"


def test_a_failed_check_of_a_run_fails_the_sheet(document: RunDocument) -> None:
    assert sheet(document, {**LATE, "upper": 1e9}).outcome == "pass"
    left = document.model_copy(update={"flags": (*document.flags, flag("NOT_RESTORED", "the governor is changed"))})
    found = sheet(left, {**LATE, "upper": 1e9})
    assert found.outcome == "fail"
    assert found.rows[0].outcome == "pass"


def test_the_sheet_names_what_it_is_made_of(document: RunDocument) -> None:
    run = stored(document)
    made = make_sheet([run], asking({**LATE, "upper": 1e9}))
    assert made.runs[0].sha256 == hashlib.sha256(run.content).hexdigest()
    assert any(command.startswith("sutprobe wakeup ") for command in made.runs[0].commands)
    assert not any("sutprobe latency" in command for command in made.runs[0].commands)
    assert "kernel" in made.machine
    assert "serial numbers" not in made.machine  # without consent
    assert Sheet.model_validate_json(made.model_dump_json()) == made


def test_the_page_counts_as_the_sheet_does(document: RunDocument) -> None:
    limits = ({**LATE, "upper": 1e9}, {"metric": "firmware.max_gap_ns", "upper": 0.5, "unit": "ns", "reason": "x"})
    outcome, met, of = accepted(document, asking(*limits))
    made = sheet(document, *limits)
    assert (outcome, met, of) == (made.outcome, 1, 2) == ("fail", 1, 2)
    assert sheet_page(made)


@pytest.mark.parametrize(
    ("pattern", "rows"),
    [
        ("wakeup.*.max_ns", {"wakeup"}),
        ("wakeup.housekeep*.max_ns", {"wakeup"}),
        ("jitter.cpu1?.gaps.max_ns", {"jitter"}),
        ("*.max_gap_ns", {"firmware"}),
        ("wakeup.*.max_mb", set()),
        ("nothing.*", set()),
    ],
)
def test_a_pattern_must_fit_some_metric(pattern: str, rows: set[str]) -> None:
    assert {row.name.partition(".")[0] for row in rows_of(pattern)} == rows


@pytest.mark.parametrize("name", preset_names())
def test_each_file_is_whole(name: str) -> None:
    found = load_acceptance(name)
    assert found.source.url.startswith("https://")
    assert found.profile in profile_names()
    assert found.limits
    assert found.comparison
    # Ratios to other programs are those of the benchmarks.
    ratios = set(RATIO.findall(found.comparison))
    assert ratios <= set(RATIO.findall(BENCHMARKS.read_text(encoding="utf-8")))
    assert ratios or found.comparison.startswith("The same tracer of the kernel")


LOOKS = {"wakeup": ("seconds", 1.0), "jitter": ("gap_s", 1.0), "firmware": ("seconds", 0.9)}
"""The setting of each kind that is how long it looks in a round, and which share of it it sees."""

BENCHMARKS = Path(__file__).parents[2] / "docs" / "development" / "benchmarks.rst"
RATIO = re.compile(r"[\d.]+ \[[\d., ]+\]")


@pytest.mark.parametrize("name", preset_names())
def test_the_profile_of_each_file_looks_for_as_long_as_its_limits_ask(name: str) -> None:
    found = load_acceptance(name)
    profile = load_profile(found.profile)
    for limit in found.limits:
        kind = limit.metric.partition(".")[0]
        assert kind in profile.measurements
        if limit.observed_s is not None:
            setting, share = LOOKS[kind]
            assert profile.rounds * getattr(profile.measurements[kind], setting) * share >= limit.observed_s


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"limits": []}, "limits"),
        ({"limits": None}, "limits: Input should be a valid list"),
        ({"limits": 5}, "limits: Input should be a valid list"),
        ({"limits": [{**LATE, "upper": 1, "unit": "s"}]}, r"plan\.yml: the unit of wakeup"),
        ({"source": {"document": "x"}}, "source.url"),
        ({"more": 1}, "more"),
        ({"title": ""}, "title"),
    ],
)
def test_files_that_are_wrong_are_refused(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    good = {
        "title": "A plan",
        "source": SOURCE,
        "conditions": "x",
        "profile": "quick",
        "limits": [{**LATE, "upper": 1}],
    }
    path = tmp_path / "plan.yml"
    path.write_text(yaml.safe_dump(good))
    assert load_acceptance(str(path)).name == "plan"
    path.write_text(yaml.safe_dump(good | change))
    with pytest.raises(InputError, match=words):
        load_acceptance(str(path))
    path.write_text("- one\n")
    with pytest.raises(InputError, match=r"plan\.yml is not an acceptance file: the top: not a mapping$"):
        load_acceptance(str(path))


def test_the_file_of_the_guide_is_one() -> None:
    assert load_acceptance(str(CHECKOUT / "docs" / "guide" / "units" / "acceptance.yml")).limits


def test_an_unknown_file_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        load_acceptance(str(tmp_path / "none.yml"))
    with pytest.raises(InputError, match="unknown acceptance file"):
        load_acceptance("no_such_file_at_all")


def test_the_kind_of_a_kernel_is_what_it_says_of_itself(document: RunDocument) -> None:
    assert kernel_kind(None) is None
    for model, kind in (("real-time, lazy", "real_time"), ("full", "other"), (None, None)):
        changed = preemption(document, model).context
        assert changed is not None
        assert kernel_kind(changed.parsed) == kind


def test_looked_text_of_a_day() -> None:
    looked = Looked(
        observed_s=86400.0,
        cpu_s=86400.0 * 62,
        cpus=tuple(range(2, 64)),
        over_soft=(),
        samples=26_784_000_000,
        beyond=0,
        at_most=1.118e-10,
        per_hour=None,
    )
    (limit,) = read_limits([{**LATE, "upper": 40000}])
    text = row_text(Row(limit=limit, outcome="pass", reason="", metrics=1, looked=looked))
    assert text.looked == "24 h 0 min on 62 CPUs (2-63); 26,784,000,000 samples"
    assert text.beyond == "none beyond 40 µs: with 95 % confidence fewer than 1 in 8,940,000,000 are"
