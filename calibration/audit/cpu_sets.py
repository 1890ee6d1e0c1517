# SPDX-License-Identifier: Apache-2.0
"""Sets of CPUs: isolated, without ticks, without RCU callbacks."""

from collections.abc import Iterable

from calibration.audit.findings import UNKNOWN, Finding, outcome_of
from calibration.audit.kernel_arguments import last_cpu
from calibration.context.model import Context
from calibration.context.topology import CPU
from calibration.cpulists import format_cpulist, parse_cpulist

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
    source, found = {
        "isolated_cpus": (isolation.isolated_source, set(isolation.cpus)),
        "nohz_full": (isolation.nohz_full_source, set(isolation.nohz_full)),
        "rcu_nocbs": (None if context.cmdline is None else "kernel", set(isolation.rcu_nocbs)),
    }[name]
    if source is None:
        return Finding(name, listed(expected), UNKNOWN, "unknown")
    if name == "nohz_full" and source != "kernel" and context.capture.captured_at is not None:
        reason = next((file.reason for file in context.unreadable if file.path == f"{CPU}/nohz_full"), None)
        if reason is not None:
            return Finding(name, listed(expected), reason, "unknown")
        return Finding(name, listed(expected), "this kernel has no nohz_full", "impossible")
    parts = [listed(found)]
    if source != "kernel":
        parts.append("from the command line only")
    if expected - found:
        parts.append(f"{listed(expected - found)} not {WORDS[name]}")
    if found - expected:
        parts.append(f"{listed(found - expected)} {WORDS[name]} unexpectedly")
    hidden = set(isolation.cpuset_unknown) if name == "isolated_cpus" else set()
    if found != expected and found ^ expected <= hidden:
        parts.append(f"{listed(hidden)} {UNKNOWN}: their control groups cannot be seen")
        return Finding(name, listed(expected), ", ".join(parts), "unknown")
    return Finding(name, listed(expected), ", ".join(parts), outcome_of(found == expected))
