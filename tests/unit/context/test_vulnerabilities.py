# SPDX-License-Identifier: Apache-2.0
"""The kernel's words about vulnerabilities mean what they say, and what it does not say is never "not affected"."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from calibration.context.loader import load
from calibration.context.vulnerabilities import (
    DIRECTORY,
    KNOWN,
    NO_FILE,
    Vulnerability,
    left_open,
    state_of,
    vulnerabilities,
)
from calibration.formats.meltdown_checker import CVE
from tests.unit.context.conftest import FIXTURES

MAINLINE = {
    "gather_data_sampling": 1, "ghostwrite": 1, "indirect_target_selection": 1, "itlb_multihit": 1, "l1tf": 2, "mds": 4,
    "meltdown": 1, "mmio_stale_data": 3, "old_microcode": 0, "reg_file_data_sampling": 1, "retbleed": 2,
    "spec_rstack_overflow": 1, "spec_store_bypass": 1, "spectre_v1": 1, "spectre_v2": 1, "srbds": 1, "tsa": 2,
    "tsx_async_abort": 1, "vmscape": 1,
}  # fmt: skip
"""The files of drivers/base/cpu.c, and how many CVEs each is about."""

MakeRoot = Callable[[dict[str, str]], Path]

MACHINES = sorted(FIXTURES.glob("*.tar.gz"))


def found(path: Path) -> dict[str, Vulnerability]:
    rows = vulnerabilities(load(path))
    by_label = {row.cve or row.name: row for row in rows}
    assert len(by_label) == len(rows)
    return by_label


def test_table_has_every_kernel_file_and_cve_once() -> None:
    assert Counter(item.file for item in KNOWN if item.file and item.cve) == {
        name: count for name, count in MAINLINE.items() if count
    }
    assert {item.file for item in KNOWN if item.file} == set(MAINLINE)
    cves = [item.cve for item in KNOWN if item.cve]
    assert len(set(cves)) == len(cves)
    assert all(CVE.fullmatch(cve) for cve in cves)
    assert all(item.name.strip() for item in KNOWN)


@pytest.mark.parametrize("path", MACHINES, ids=lambda path: path.name)
def test_captures_report_all_vulnerabilities(path: Path) -> None:
    context = load(path)
    rows = vulnerabilities(context)
    assert {row.file: row.text for row in rows if row.text is not None} == context.mitigations
    for row in rows:
        assert (row.text is None) == (row.state is None) == (row.reason is not None)
        if row.text is not None:
            begins = {"not_affected": "Not affected", "mitigated": "Mitigation", "vulnerable": "Vulnerable"}
            wanted = begins.get(row.state or "", "Unknown")
            assert row.text.removeprefix("KVM: ").startswith(wanted), row


STATES = {
    "Not affected": "not_affected",
    "Mitigation: PTI": "mitigated",
    "KVM: Mitigation: VMX unsupported": "mitigated",
    "Mitigation: Clear CPU buffers; SMT vulnerable": "mitigated",
    "Vulnerable": "vulnerable",
    "Vulnerable: Clear CPU buffers attempted, no microcode": "vulnerable",
    "Vulnerable; STIBP: disabled": "vulnerable",
    "Vulnerable, L1D private per thread": "vulnerable",
    "KVM: Vulnerable": "vulnerable",
    "Processor vulnerable": "vulnerable",
    "Unknown: Dependent on hypervisor status": "unknown",
    "Unknown (XEN PV detected, hypervisor mitigation required)": "unknown",
    "Not affected, for now": "unknown",
    "Vulnerability of a new kind": "unknown",
    "Mitigations: off": "unknown",
    "something that nobody has seen": "unknown",
}


@pytest.mark.parametrize("text", STATES)
def test_state_from_the_kernels_words(text: str) -> None:
    assert state_of(text) == STATES[text]


def test_finds_incomplete_mitigations() -> None:
    assert left_open("Mitigation: PTE Inversion; VMX: conditional cache flushes, SMT vulnerable") == ("SMT vulnerable",)
    assert left_open("Mitigation: Retpolines; BHI: Vulnerable, KVM: SW loop") == ("BHI: Vulnerable",)
    assert left_open("Mitigation: CSV2, but not BHB") == ("but not BHB",)
    assert left_open("Mitigation: usercopy/swapgs barriers and __user pointer sanitization") == ()


def test_missing_file_is_not_reported_as_safe(make_root: MakeRoot) -> None:
    rows = found(make_root({f"{DIRECTORY}/meltdown": "Mitigation: PTI\n"}))
    assert rows["CVE-2017-5754"].state == "mitigated"
    assert rows["CVE-2017-5754"].text == "Mitigation: PTI"
    others = [row for row in rows.values() if row.cve != "CVE-2017-5754"]
    assert {(other.state, other.text) for other in others} == {(None, None)}
    assert {other.reason for other in others if other.file} == {"the kernel does not say"}
    assert {other.cve for other in others if other.reason == NO_FILE} == {"CVE-2018-3640", "CVE-2018-3615"}


def test_kernel_without_vulnerability_files(make_root: MakeRoot) -> None:
    assert {item.state for item in found(make_root({"/proc/cmdline": "quiet\n"})).values()} == {None}


def test_file_missing_in_the_table_is_shown_verbatim(make_root: MakeRoot) -> None:
    rows = found(make_root({f"{DIRECTORY}/newest_attack": "Mitigation: yet unheard of\n"}))
    assert rows["newest_attack"] == Vulnerability(
        file="newest_attack",
        cve=None,
        name="newest_attack",
        state="mitigated",
        text="Mitigation: yet unheard of",
        reason=None,
    )


def test_unreadable_file_has_a_reason(make_root: MakeRoot) -> None:
    rows = found(make_root({f"{DIRECTORY}/mds": "two\nlines\n", f"{DIRECTORY}/newest_attack": "two\nlines\n"}))
    for name in ("CVE-2018-12126", "CVE-2019-11091", "newest_attack"):
        assert rows[name].state is None
        assert str(rows[name].reason).startswith("its file cannot be read: unparsable:"), rows[name]
