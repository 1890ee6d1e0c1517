# SPDX-License-Identifier: Apache-2.0
"""Sets of CPUs: isolated, without ticks, without RCU callbacks."""

from collections.abc import Iterable

from calibration.audit.findings import UNKNOWN, Finding, outcome_of
from calibration.audit.kernel_arguments import last_cpu
from calibration.context.model import Context
from calibration.context.topology import CPU
from calibration.cpulists import format_cpulist, parse_cpulist

FILES = {"isolated_cpus": "isolated", "nohz_full": "nohz_full"}
WORDS = {"isolated_cpus": "isolated", "nohz_full": "in nohz_full", "rcu_nocbs": "in rcu_nocbs"}


def listed(cpus: Iterable[int]) -> str:
    """Return CPUs in the kernel's form, ``none`` if there are none."""
    return format_cpulist(cpus) or "none"


def check_cpus(context: Context, name: str, wanted: str) -> Finding:
    """Return whether the CPUs of the set *name* are those *wanted*, a CPU list or ``none``."""
    isolation = context.isolation
    try:
        expected = set() if wanted == "none" else set(parse_cpulist(wanted, last_cpu(context)))
    except ValueError as error:
        return Finding(name, wanted, f"not a valid CPU list: {error}", "unknown")
    source, found, parameters = {
        "isolated_cpus": (isolation.isolated_source, set(isolation.cpus), ("isolcpus",)),
        "nohz_full": (isolation.nohz_full_source, set(isolation.nohz_full), ("nohz_full", "isolcpus")),
        "rcu_nocbs": (isolation.rcu_nocbs_source, set(isolation.rcu_nocbs), ("rcu_nocbs", "nohz_full")),
    }[name]
    notes = isolation.notes_of(*parameters)
    if source is None:
        return Finding(name, listed(expected), "; ".join((UNKNOWN, *notes)), "unknown")
    parts = [listed(found)]
    if name == "nohz_full" and isolation.nohz_full_supported is False:
        if expected:
            return Finding(name, listed(expected), "this kernel has no nohz_full", "impossible")
        parts.append("this kernel has no nohz_full")
    # The kernel has no file of the CPUs without RCU callbacks: they follow from its rules.
    certain = source == "kernel" or name == "rcu_nocbs"
    if not certain:
        reason = next((file.reason for file in context.unreadable if file.path == f"{CPU}/{FILES[name]}"), None)
        parts.append("from the command line only" if reason is None else f"from the command line only: {reason}")
    if expected - found:
        parts.append(f"{listed(expected - found)} not {WORDS[name]}")
    if found - expected:
        parts.append(f"{listed(found - expected)} {WORDS[name]} unexpectedly")
    hidden = set(isolation.cpuset_unknown) if name == "isolated_cpus" else set()
    if found != expected and found ^ expected <= hidden:
        parts.append(f"{listed(hidden)} {UNKNOWN}: their control groups cannot be seen")
        certain = False
    if found != expected:
        parts.extend(notes)
    return Finding(name, listed(expected), ", ".join(parts), outcome_of(found == expected) if certain else "unknown")
