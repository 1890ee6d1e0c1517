# SPDX-License-Identifier: Apache-2.0
"""A check of a SUT: declaration, outcome, and severity."""

from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from typing import Any, Literal

from calibration.audit.findings import Finding, Outcome
from calibration.base.model import Model
from calibration.base.parsers import read_yaml
from calibration.base.text import visible
from calibration.base.validity import Flag, flag

Severity = Literal["blocking", "flag"]
Declared = Literal["blocking", "flag", "off"]

MAX_TEXT = 2000
"""Most characters kept of an expected or found text: a kernel's command line has at most 4096."""


class Check(Model):
    """One expectation of a SUT, and what was found.

    ``unknown`` if undecided, ``impossible`` if this SUT cannot have what is expected. A setting of an expected state is
    named after its kind, ``sysctl.vm.swappiness``.
    """

    name: str
    title: str
    expected: str
    found: str
    outcome: Outcome
    severity: Severity

    @property
    def failed(self) -> bool:
        """Whether the check did not pass; undecided counts as failed, but not what a SUT cannot have."""
        return self.outcome not in ("met", "impossible")

    @property
    def configured(self) -> bool:
        """Whether it is a setting of an expected state."""
        return kind_of(self.name) in EXPECTED_STATE


class CheckKind(Model):
    """The declaration of a check: title, default severity, and advice.

    ``expects`` says for the guide what must be found. ``momentary`` if it is about what else is on the SUT at the
    moment.
    """

    title: str
    advice: str
    expects: str = ""
    severity: Declared = "blocking"
    momentary: bool = False


class _Table(Model):
    required: dict[str, CheckKind]
    declarable: dict[str, CheckKind]
    expected_state: dict[str, CheckKind]


_TABLE = _Table.model_validate(read_yaml(files(__package__).joinpath("checks.yml").read_bytes()))

REQUIRED: Mapping[str, CheckKind] = _TABLE.required
"""Checks that are always made and always block, by name."""

EXPECTED_STATE: Mapping[str, CheckKind] = _TABLE.expected_state
"""Checks of the settings of an expected state, by kind."""

CHECKS: Mapping[str, CheckKind] = {**EXPECTED_STATE, **_TABLE.declarable}
"""Checks whose severity an inventory may set, by name."""

MOMENTARY = frozenset(name for name, kind in {**REQUIRED, **CHECKS}.items() if kind.momentary)
"""Checks that fail while something else is on the SUT."""

AGREED = ("cpu_model", "microcode", "bios")
"""Checks that compare SUTs of one testbed."""


def kind_of(name: str) -> str:
    """Return the name under which a check is declared: that of a setting is followed by which one it is."""
    return name.partition(".")[0]


def checks_of(findings: Iterable[Finding], severities: Mapping[str, Declared]) -> Iterator[Check]:
    """Yield the checks of *findings* that are not off; *severities* are the inventory's."""
    for finding in findings:
        name, _, key = finding.name.partition(".")
        kind = REQUIRED.get(name) or CHECKS[name]
        severity = severities.get(name, kind.severity)
        if severity != "off":
            yield Check(
                name=finding.name,
                title=f"{kind.title} {key}" if key else kind.title,
                expected=_cut(finding.expected),
                found=_cut(finding.found),
                outcome=finding.outcome,
                severity=severity,
            )


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 4]} ..."


def taken_over_check(given: Mapping[str, Any]) -> Check:
    """Return the note on a stale reservation that was cleaned up (``holder``, ``why``, ``changes``)."""
    run = (given.get("holder") or {}).get("run_id") or "an unknown run"
    changes = given.get("changes") or []
    back = f"; {len(changes)} settings restored" if changes else ""
    return Check(
        name="reservation",
        title="Reservation",
        expected="none, or a stale one",
        found=visible(f"that of {run}: {given.get('why')}{back}")[:MAX_TEXT],
        outcome="met",
        severity="flag",
    )


def refusal(checks: Iterable[Check]) -> str | None:
    """Return why the SUT must not be measured: every failed blocking check; None if there is none."""
    reasons = [
        f"{check.title}: expected {check.expected}, found {check.found}.{_advice(check.name)}"
        for check in checks
        if check.failed and check.severity == "blocking"
    ]
    return " ".join(reasons) or None


def flags(checks: Iterable[Check]) -> Iterator[Flag]:
    """Yield a validity flag for each failed check with the severity ``flag``."""
    for check in checks:
        if check.failed and check.severity == "flag":
            yield flag("NOT_AS_EXPECTED", f"{check.title}: expected {check.expected}, found {check.found}")


def _advice(name: str) -> str:
    """Return the advice of a check; empty if it is not declared."""
    kind = CHECKS.get(kind_of(name)) or REQUIRED.get(name)
    return f" {kind.advice}." if kind else ""
