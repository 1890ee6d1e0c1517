# SPDX-License-Identifier: Apache-2.0
"""The acceptance sheet as a page: verdict first, then the limits, what was asked, the machine, and the runs."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from calibration.acceptance.limits import KERNELS, Limit
from calibration.base import units
from calibration.base.cpulists import short_cpulist
from calibration.base.percentiles import COVERAGE
from calibration.base.text import sentence_case
from calibration.base.units import plural
from calibration.judge.answer import Look
from calibration.judge.limits import OUTCOMES, Outcome, is_outside
from calibration.judge.sheet import MET, VERDICTS, Looked, Row, Sheet
from calibration.judge.words import amount, within
from calibration.report.blocks import Blocks, Style
from calibration.report.environment import Fact, blocks_of

STYLES: Final[dict[Outcome, Style | None]] = {"fail": "invalid", "unknown": "warn", "warn": "warn", "pass": None}

LOOKS: Final[dict[Outcome, Look]] = {"fail": "bad", "unknown": "unknown", "warn": "unknown", "pass": "good"}
"""How the box of a verdict looks."""

MAX_REASONS: Final = 6
"""Reasons given for a verdict; the rest is counted."""


class RowText(NamedTuple):
    """A row of the sheet in words."""

    limit: str
    worst: str
    looked: str
    beyond: str
    verdict: str
    reason: str
    style: Style | None


def sheet_page(sheet: Sheet) -> Blocks:
    """Return *sheet* as a page."""
    acceptance, probe = sheet.acceptance, sheet.probe
    source = acceptance.source
    facts = [
        Fact("Acceptance file", f"{acceptance.name}.yml, sha256 {acceptance.sha256}"),
        Fact("Source", f"{source.document}, {source.date}, {source.url}"),
        Fact("Conditions there", acceptance.conditions),
        *([Fact("sutprobe compared with it", acceptance.comparison)] if acceptance.comparison else []),
    ]
    build = "unknown" if probe is None else f"sutprobe {probe.version}, {probe.target}, sha256 {probe.sha256}"
    instrument = Fact("Instrument", f"calibration harness {sheet.harness_version}; {build}")
    return blocks_of(
        "sheet",
        sheet=sheet,
        verdict=sentence_case(VERDICTS[sheet.outcome]),
        look=LOOKS[sheet.outcome],
        why=list(reasons(sheet)),
        rows=[row_text(row) for row in sheet.rows],
        asked=facts,
        machine=[*(Fact(sentence_case(name), text) for name, text in sheet.machine.items()), instrument],
        commands=list(dict.fromkeys(command for run in sheet.runs for command in run.commands)),
        flags=list(dict.fromkeys(f"{flag.code}: {flag.reason}" for row in sheet.rows for flag in row.flags)),
        checks=[f"{check.name}: {check.texts[0]}" for check in sheet.checks if check.outcome == "fail"],
    )


def reasons(sheet: Sheet) -> Iterator[str]:
    """Yield how many limits are met, and why the others are not, failures first."""
    met = sum(row.outcome in MET for row in sheet.rows)
    yield f"{met} of {plural(len(sheet.rows), 'limit')} met"
    open_rows = [row for row in sheet.rows if row.outcome != "pass" or row.waived is not None]
    open_rows.sort(key=lambda row: OUTCOMES.index(row.outcome))
    for row in open_rows[:MAX_REASONS]:
        waived = f"waived until {row.waived.until} by {row.waived.by}: {row.waived.reason}; " if row.waived else ""
        yield f"{row.limit.metric if row.worst is None else row.worst.name}: {waived}{_why(row)}"
    if len(open_rows) > MAX_REASONS:
        yield f"and {len(open_rows) - MAX_REASONS} more below"
    for check in sheet.checks:
        if check.outcome == "fail":
            yield f"the check {check.name} of a run fails: {check.texts[0]}"


def _why(row: Row) -> str:
    """Return why *row* does not pass."""
    if row.outcome == "unknown" or row.worst is None:
        return row.reason.removeprefix("unknown: ")
    limit = row.limit
    hard, soft = (limit.lower, limit.upper), (limit.soft_lower, limit.soft_upper)
    expected = within(*hard, limit.unit)
    if soft != (None, None) and not is_outside(row.worst.value, *hard):
        expected = within(*soft, limit.unit)
        if row.outcome != "warn" and limit.soft_share is not None:
            expected += f" on all but {units.exact_percent(limit.soft_share)} of the CPUs"
    return f"{amount(row.worst.value, row.worst.unit)}, expected {expected} ({limit.reason})"


def row_text(row: Row) -> RowText:
    """Return *row* in words."""
    limit, looked = row.limit, row.looked
    metrics = limit.metric + (f" ({row.metrics})" if row.metrics > 1 else "")
    return RowText(
        limit=f"{metrics}: {'; '.join(asked(limit))}",
        worst=units.ABSENT if row.worst is None else f"{amount(row.worst.value, row.worst.unit)} ({row.worst.title})",
        looked=units.ABSENT if looked is None else "; ".join(_looked(looked)),
        beyond=units.ABSENT if looked is None else "; ".join(_beyond(looked, limit)) or units.ABSENT,
        verdict="waived" if row.waived else row.outcome,
        reason=_why(row) if row.outcome == "unknown" or row.worst is None else "",
        style=STYLES[row.outcome],
    )


def asked(limit: Limit) -> Iterator[str]:
    """Yield what *limit* asks for, without the metric."""
    if limit.lower is not None or limit.upper is not None:
        yield within(limit.lower, limit.upper, limit.unit)
    if limit.soft_lower is not None:
        yield f"warning below {amount(limit.soft_lower, limit.unit)}"
    if limit.soft_upper is not None:
        share = "" if limit.soft_share is None else f" (on at most {units.exact_percent(limit.soft_share)} of the CPUs)"
        yield f"warning above {amount(limit.soft_upper, limit.unit)}{share}"
    if limit.observed_s is not None:
        yield f"in {units.exact_duration(limit.observed_s)}"
    if limit.kernel is not None:
        yield f"for {KERNELS[limit.kernel]}"


def _looked(looked: Looked) -> Iterator[str]:
    yield f"{units.duration(looked.observed_s)} on {plural(len(looked.cpus), 'CPU')} ({short_cpulist(looked.cpus)})"
    if looked.samples is not None:
        yield f"{looked.samples:,} samples"


def _beyond(looked: Looked, limit: Limit) -> Iterator[str]:
    """Yield how often the limit was exceeded, or how rare that is at most, and on which CPUs."""
    sure = f"with {units.percent(COVERAGE)} confidence"
    hard = limit.soft_upper if limit.upper is None else limit.upper
    bound = amount(hard or 0.0, limit.unit)
    if looked.beyond:
        yield f"{looked.beyond:,} of {looked.samples:,} beyond {bound}"
    elif looked.at_most:
        yield f"none beyond {bound}: {sure} fewer than 1 in {_rounded(1 / looked.at_most)} are"
    elif looked.per_hour is not None:
        yield f"none beyond {bound}: {sure} at most {units.rate(looked.per_hour)} on a CPU"
    if looked.over_soft:
        soft = limit.upper if limit.soft_upper is None else limit.soft_upper
        share = f"{len(looked.over_soft)} of {plural(len(looked.cpus), 'CPU')}"
        yield f"{share} beyond {amount(soft or 0.0, limit.unit)} ({short_cpulist(looked.over_soft)})"


def _rounded(value: float) -> str:
    """Return *value*, a large number, with three digits."""
    return f"{int(float(f'{value:.3g}')):,}"
