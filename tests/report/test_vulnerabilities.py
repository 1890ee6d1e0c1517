# SPDX-License-Identifier: Apache-2.0
"""Vulnerabilities on a page: the kernel's report beside the checker's."""

import pytest
from docutils import nodes

from calibration.context.vulnerabilities import vulnerabilities
from calibration.formats.meltdown_checker import VulnerabilityFinding
from calibration.report.environment import Fact
from calibration.report.machine import machine
from calibration.report.vulnerabilities import counts
from calibration.results.model import RunDocument
from tests.report.report_documents import FIXTURES, checked_document, not_begun_document, page_of, parsed, run_document

EVIL = "x\n\nTitle\n=====\n\n> STATUS: NOT VULNERABLE\n\n.. raw:: html\n\n   <script>alert()</script>\u2028\x1b[31m`|_*"


def section(document: RunDocument) -> nodes.admonition:
    parts = parsed(page_of(document)).findall(nodes.admonition)
    return next(part for part in parts if part.children[0].astext().startswith("Vulnerabilities"))


def block(document: RunDocument) -> str:
    return list(section(document).findall(nodes.literal_block))[-1].astext()


def warnings(document: RunDocument) -> list[str]:
    return [element.astext() for element in section(document).findall(nodes.warning)]


def finding(cve: str, *, vulnerable: bool | None, info: str = "so it is") -> VulnerabilityFinding:
    return VulnerabilityFinding(cve=cve, name="A NAME", vulnerable=vulnerable, info=info)


@pytest.mark.parametrize("machine", sorted(path.name[:-7] for path in (FIXTURES / "context").glob("*.tar.gz")))
def test_every_captured_machine_is_listed_by_cve(machine: str) -> None:
    document = run_document(machine, names=())
    assert document.context is not None
    text = block(document)
    for vulnerability in vulnerabilities(document.context.parsed):
        said = vulnerability.reason if vulnerability.text is None else vulnerability.text
        status = {"vulnerable": "VULNERABLE", "mitigated": "NOT VULNERABLE", "not_affected": "NOT VULNERABLE"}
        (part,) = [
            part for part in text.split("\n\n") if part.startswith(f"{vulnerability.cve or vulnerability.name} ")
        ]
        assert vulnerability.name in part
        assert f"> STATUS: {status.get(vulnerability.state or '', 'UNKNOWN')} ({said})" in part.splitlines()
        assert (
            f"* Kernel's file: /sys/devices/system/cpu/vulnerabilities/{vulnerability.file}" in part
            or vulnerability.file is None
        )
    assert "CHECKER" not in text
    assert "gave no spectre-meltdown-checker" in section(document).astext()


@pytest.mark.parametrize(("cve", "vulnerable", "contradicted"), [
    ("CVE-2017-5754", True, True),  # the kernel: Mitigation: PTI
    ("CVE-2017-5754", False, False),
    ("CVE-2017-5754", None, False),
    ("CVE-2018-3639", False, True),  # Vulnerable
    ("CVE-2018-3639", True, False),
    ("CVE-2019-11135", True, True),  # Not affected
    ("CVE-2020-0543", True, False),  # Unknown: Dependent on hypervisor status
    ("CVE-2018-3640", True, False),  # the kernel has no file about it
])  # fmt: skip
def test_contradictions_are_reported(cve: str, vulnerable: bool | None, *, contradicted: bool) -> None:
    document = checked_document(findings=(finding(cve, vulnerable=vulnerable),))
    said = "contradict each other"
    assert ([said in warning and cve in warning for warning in warnings(document)] == [True]) == contradicted
    (part,) = [part for part in block(document).split("\n\n") if part.startswith(cve)]
    assert (said in part) == contradicted


def test_entries_of_the_checker_alone_are_shown() -> None:
    text = block(checked_document(findings=(finding("CVE-2023-20593", vulnerable=True),)))
    assert (
        "CVE-2023-20593 aka A NAME\n"
        "* Kernel's file: none\n"
        "> STATUS: UNKNOWN (the kernel has no file about it)\n"
        "> CHECKER: VULNERABLE (so it is)\n"
    ) in text


def test_a_checker_without_an_answer_says_why() -> None:
    document = checked_document(findings=(), reason="the checker timed out after 120 s", rc=None, output=None)
    assert warnings(document) == ["The checker has no answer: the checker timed out after 120 s"]
    assert "CHECKER" not in block(document)
    document = checked_document(
        findings=(), reason="no such script", argv=None, user_id=None, rc=None, output=None, script_sha256=None
    )
    assert warnings(document) == ["The checker has no answer: no such script"]
    assert "kept as" not in section(document).astext()


def test_user_and_version_are_shown() -> None:
    text = section(checked_document("format-1.json", user_id=1000)).astext()
    assert "spectre-meltdown-checker 26.21.0522789 ran on" in text
    assert "as user id 1000" in text


def test_a_run_without_a_capture_says_so() -> None:
    assert section(not_begun_document()).astext().endswith("The SUT was not captured.")


def test_a_partial_mitigation_has_a_line() -> None:
    document = run_document(names=())
    assert document.context is not None
    parsed = document.context.parsed
    words = {**parsed.mitigations, "mds": "Mitigation: Clear CPU buffers; SMT vulnerable"}
    context = document.context.model_copy(update={"parsed": parsed.model_copy(update={"mitigations": words})})
    assert "* Left open by the mitigation: SMT vulnerable\n" in block(document.model_copy(update={"context": context}))


def test_text_of_a_checker_does_not_become_markup() -> None:
    clean = section(checked_document())
    document = checked_document(
        version=EVIL,
        findings=(finding("CVE-2017-5715", vulnerable=True, info=EVIL), finding("CVE-2099-1234", vulnerable=None)),
        argv=("/bin/sh", EVIL),
        output=EVIL,
        script_sha256=EVIL,
    )
    poisoned = section(document)
    for kind in (nodes.section, nodes.literal_block, nodes.warning, nodes.raw, nodes.reference, nodes.system_message):
        assert len(list(poisoned.findall(kind))) == len(list(clean.findall(kind))), kind
    assert "<script>" in poisoned.astext(), "what was said must still be seen"
    assert not {"\x1b", "\u2028"} & set(poisoned.astext())
    assert "> STATUS: NOT VULNERABLE" not in block(document).splitlines()


def test_the_machines_table_counts_them() -> None:
    document = run_document(names=())
    assert document.context is not None
    context = document.context.parsed
    text = (
        "5 vulnerable (CVE-2018-3639, CVE-2018-12126, CVE-2018-12130, CVE-2018-12127, CVE-2019-11091), 7 mitigated, "
        "4 unknown to the kernel, 9 not affected, 4 of which the kernel does not say"
    )
    assert counts(context) == text
    assert sum((5, 7, 4, 9, 4)) == len(vulnerabilities(context))
    assert Fact("Vulnerabilities", text) in machine(context, None)
    silent = context.model_copy(update={"mitigations": {}})
    assert counts(silent) == f"{len(vulnerabilities(silent))} of which the kernel does not say"
