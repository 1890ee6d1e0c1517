# SPDX-License-Identifier: Apache-2.0
"""Vulnerabilities of a SUT's processors on a page: the kernel's report beside the checker's."""

from dataclasses import dataclass

from calibration.base.text import visible
from calibration.context.model import Context
from calibration.context.vulnerabilities import DIRECTORY, NO_FILE, State, Vulnerability, left_open, vulnerabilities
from calibration.formats.meltdown_checker import VulnerabilityFinding
from calibration.results.model import MeltdownChecker

VERDICTS = {False: ("NOT VULNERABLE", "OK"), True: ("VULNERABLE", "KO"), None: ("UNKNOWN", "??")}
"""Wording and mark of the published pages, by whether a vulnerability is open."""

_OPEN: dict[State | None, bool | None] = {"not_affected": False, "mitigated": False, "vulnerable": True}

_COUNTED: dict[State | None, str] = {
    "vulnerable": "vulnerable",
    "mitigated": "mitigated",
    "unknown": "unknown to the kernel",
    "not_affected": "not affected",
    None: "of which the kernel does not say",
}
"""How many there are of each, worst first."""


@dataclass(frozen=True)
class Entry:
    """One vulnerability: name, lines of text, and marks; ``checker_mark`` is None if there is no finding."""

    label: str
    lines: tuple[str, ...]
    mark: str
    checker_mark: str | None
    contradicted: bool


def entries(context: Context, checker: MeltdownChecker | None) -> list[Entry]:
    """Return an entry per vulnerability known to the table, the kernel or the checker, in this order."""
    findings = {} if checker is None else {finding.cve: finding for finding in checker.findings}
    known = vulnerabilities(context)
    more = [
        Vulnerability(file=None, cve=cve, name=findings[cve].name or cve, state=None, text=None, reason=NO_FILE)
        for cve in findings
        if cve not in {item.cve for item in known}
    ]
    return [_entry(item, findings.get(item.cve or "")) for item in (*known, *more)]


def _entry(known: Vulnerability, finding: VulnerabilityFinding | None) -> Entry:
    is_open = _OPEN.get(known.state)
    verdict, mark = VERDICTS[is_open]
    checked, checker_mark = (None, None) if finding is None else VERDICTS[finding.vulnerable]
    contradicted = finding is not None and {is_open, finding.vulnerable} == {True, False}
    lines = [
        f"{known.cve} aka {known.name}" if known.cve else f"{known.name} (without a CVE)",
        f"* Kernel's file: {f'{DIRECTORY}/{known.file}' if known.file else 'none'}",
    ]
    if known.text is not None and known.state == "mitigated":
        lines += [f"* Left open by the mitigation: {item}" for item in left_open(known.text)]
    lines.append(f"> STATUS: {verdict} ({known.reason if known.text is None else known.text})")
    if finding is not None:
        lines.append(f"> CHECKER: {checked} ({finding.info})")
    if contradicted:
        lines.append("> The kernel and the checker contradict each other.")
    return Entry(
        label=visible(known.cve or known.file or known.name),
        lines=tuple(visible(line) for line in lines),
        mark=mark,
        checker_mark=checker_mark,
        contradicted=contradicted,
    )


def counts(context: Context) -> str:
    """Return the number of vulnerabilities by state, with the names of open ones."""
    known = vulnerabilities(context)
    named = {state: [item.cve or item.name for item in known if item.state == state] for state in _COUNTED}
    return ", ".join(
        f"{len(names)} {_COUNTED[state]}" + (f" ({', '.join(names)})" if state == "vulnerable" else "")
        for state, names in named.items()
        if names
    )


def open_count(context: Context) -> tuple[int, int]:
    """Return the number of open vulnerabilities, and of known ones."""
    known = vulnerabilities(context)
    return sum(_OPEN.get(item.state) is True for item in known), len(known)
