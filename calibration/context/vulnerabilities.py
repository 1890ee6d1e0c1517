# SPDX-License-Identifier: Apache-2.0
"""The kernel's report on each CPU vulnerability.

The files of ``/sys/devices/system/cpu/vulnerabilities`` are those of ``drivers/base/cpu.c`` in the mainline kernel;
``Documentation/admin-guide/hw-vuln`` has their CVEs. The names are spectre-meltdown-checker's, as on the published
pages.
"""

import re
from typing import Literal, NamedTuple

from calibration.base.model import Model
from calibration.context.model import Context
from calibration.context.topology import CPU

DIRECTORY = f"{CPU}/vulnerabilities"

State = Literal["not_affected", "mitigated", "vulnerable", "unknown"]


class Known(NamedTuple):
    """A vulnerability; ``cve`` is ``None`` if it has none, ``file`` if the kernel does not report it."""

    file: str | None
    cve: str | None
    name: str


KNOWN = (
    Known("spectre_v1", "CVE-2017-5753", "Spectre Variant 1, bounds check bypass"),
    Known("spectre_v2", "CVE-2017-5715", "Spectre Variant 2, branch target injection"),
    Known("meltdown", "CVE-2017-5754", "Variant 3, Meltdown, rogue data cache load"),
    Known(None, "CVE-2018-3640", "Variant 3a, rogue system register read"),
    Known("spec_store_bypass", "CVE-2018-3639", "Variant 4, speculative store bypass"),
    # The kernel's L1TF file does not cover SGX, which microcode alone protects.
    Known(None, "CVE-2018-3615", "Foreshadow (SGX), L1 terminal fault"),
    Known("l1tf", "CVE-2018-3620", "Foreshadow-NG (OS), L1 terminal fault"),
    Known("l1tf", "CVE-2018-3646", "Foreshadow-NG (VMM), L1 terminal fault"),
    Known("mds", "CVE-2018-12126", "Fallout, microarchitectural store buffer data sampling (MSBDS)"),
    Known("mds", "CVE-2018-12130", "ZombieLoad, microarchitectural fill buffer data sampling (MFBDS)"),
    Known("mds", "CVE-2018-12127", "RIDL, microarchitectural load port data sampling (MLPDS)"),
    Known("mds", "CVE-2019-11091", "RIDL, microarchitectural data sampling uncacheable memory (MDSUM)"),
    Known("tsx_async_abort", "CVE-2019-11135", "ZombieLoad V2, TSX Asynchronous Abort (TAA)"),
    Known(
        "itlb_multihit",
        "CVE-2018-12207",
        "No eXcuses, iTLB Multihit, machine check exception on page size changes (MCEPSC)",
    ),
    Known("srbds", "CVE-2020-0543", "Special Register Buffer Data Sampling (SRBDS)"),
    Known("mmio_stale_data", "CVE-2022-21123", "Shared Buffers Data Read (SBDR), processor MMIO stale data"),
    Known("mmio_stale_data", "CVE-2022-21125", "Shared Buffers Data Sampling (SBDS), processor MMIO stale data"),
    Known("mmio_stale_data", "CVE-2022-21166", "Device Register Partial Write (DRPW), processor MMIO stale data"),
    Known("retbleed", "CVE-2022-29900", "Retbleed, speculation at return instructions (AMD)"),
    Known("retbleed", "CVE-2022-29901", "Retbleed, speculation at return instructions (Intel)"),
    Known("gather_data_sampling", "CVE-2022-40982", "Downfall, gather data sampling (GDS)"),
    Known("spec_rstack_overflow", "CVE-2023-20569", "Inception, speculative return stack overflow (SRSO)"),
    Known("reg_file_data_sampling", "CVE-2023-28746", "Register File Data Sampling (RFDS)"),
    Known("indirect_target_selection", "CVE-2024-28956", "Indirect Target Selection (ITS)"),
    Known("tsa", "CVE-2024-36350", "Transient Scheduler Attack, store queue (TSA-SQ)"),
    Known("tsa", "CVE-2024-36357", "Transient Scheduler Attack, L1 data cache (TSA-L1)"),
    Known("ghostwrite", "CVE-2024-44067", "GhostWrite, stores past address translation"),
    Known("vmscape", "CVE-2025-40300", "VMScape, branch predictions of a guest used by its host's programs"),
    Known("old_microcode", None, "microcode older than the kernel asks for"),
)
"""In the order of the published pages (by disclosure); newer ones follow by number."""

NO_FILE = "the kernel has no file about it"

_STATES: tuple[tuple[State, re.Pattern[str]], ...] = (
    ("not_affected", re.compile(r"Not affected$")),
    ("mitigated", re.compile(r"(KVM: )?Mitigation\b")),
    ("vulnerable", re.compile(r"((KVM: )?V|Processor v)ulnerable\b")),
)
"""Prefixes of the kernel's text. Any other, such as ``Unknown: Dependent on hypervisor status``, is unknown."""

VULNERABLE = re.compile(r"\bvulnerable\b|^but not BHB$", re.IGNORECASE)


class Vulnerability(Model):
    """The state of one vulnerability on a machine.

    ``text`` is the kernel's, verbatim, and ``state`` what it means; both are ``None``, with a ``reason``, if the kernel
    does not report it. ``name`` is the file's own if the table lacks it.
    """

    file: str | None
    cve: str | None
    name: str
    state: State | None
    text: str | None
    reason: str | None


def state_of(text: str) -> State:
    """Return the state that the kernel's *text* means."""
    return next((state for state, pattern in _STATES if pattern.match(text)), "unknown")


def left_open(text: str) -> tuple[str, ...]:
    """Return the parts of the kernel's *text* that name what a mitigation leaves vulnerable, such as other threads."""
    parts = (part.strip() for part in re.split(r"[;,]", text))
    return tuple(part for part in parts if part and VULNERABLE.search(part))


def vulnerabilities(context: Context) -> tuple[Vulnerability, ...]:
    """Return the state of all vulnerabilities of the table, then of those that only the kernel of *context* lists."""
    files = {known.file for known in KNOWN}
    unreadable = {file.path: file.reason for file in context.unreadable}
    others = sorted(name for name in context.mitigations if name not in files)
    lost = sorted(
        name
        for name in (path.removeprefix(f"{DIRECTORY}/") for path in unreadable if path.startswith(f"{DIRECTORY}/"))
        if name not in files and name not in others
    )
    rows = [*KNOWN, *(Known(name, None, name) for name in (*others, *lost))]
    return tuple(_vulnerability(row, context.mitigations, unreadable) for row in rows)


def _vulnerability(row: Known, texts: dict[str, str], unreadable: dict[str, str]) -> Vulnerability:
    text = None if row.file is None else texts.get(row.file)
    reason = None
    if row.file is None:
        reason = NO_FILE
    elif text is None:
        fault = unreadable.get(f"{DIRECTORY}/{row.file}")
        reason = "the kernel does not say" if fault is None else f"its file cannot be read: {fault}"
    return Vulnerability(
        file=row.file,
        cve=row.cve,
        name=row.name,
        state=None if text is None else state_of(text),
        text=text,
        reason=reason,
    )
