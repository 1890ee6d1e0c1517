# SPDX-License-Identifier: Apache-2.0
"""Sets of CPUs: isolated, without ticks, without RCU callbacks."""

from typing import Final, NamedTuple

from calibration.audit.findings import UNKNOWN, Finding, outcome_of
from calibration.audit.kernel_arguments import last_cpu
from calibration.base.cpulists import parse_cpulist
from calibration.base.units import cpus
from calibration.context.model import UNSEEN_GROUPS, Context
from calibration.context.topology import CPU


class CpuSet(NamedTuple):
    """What a CPU of a set is, the kernel's file of the set, if it has one, and the parameters that decide."""

    words: str
    file: str | None
    parameters: tuple[str, ...]


SETS: Final = {
    "isolated_cpus": CpuSet("isolated", f"{CPU}/isolated", ("isolcpus",)),
    "nohz_full": CpuSet("in nohz_full", f"{CPU}/nohz_full", ("nohz_full", "isolcpus")),
    "rcu_nocbs": CpuSet("in rcu_nocbs", None, ("rcu_nocbs", "nohz_full")),
}


def check_cpus(context: Context, name: str, wanted: str) -> Finding:
    """Return whether the CPUs of the set *name* are those *wanted*, a CPU list or ``none``."""
    isolation = context.isolation
    try:
        expected = set() if wanted == "none" else set(parse_cpulist(wanted, last_cpu(context)))
    except ValueError as error:
        return Finding(name, wanted, f"not a valid CPU list: {error}", "unknown")
    words, path, parameters = SETS[name]
    source, found = {
        "isolated_cpus": (isolation.isolated_source, set(isolation.cpus)),
        "nohz_full": (isolation.nohz_full_source, set(isolation.nohz_full)),
        "rcu_nocbs": (isolation.rcu_nocbs_source, set(isolation.rcu_nocbs)),
    }[name]
    notes = isolation.notes_of(*parameters)
    if source is None:
        return Finding(name, cpus(expected), "; ".join((UNKNOWN, *notes)), "unknown")
    parts = [cpus(found)]
    if name == "nohz_full" and isolation.nohz_full_supported is False:
        if expected:
            return Finding(name, cpus(expected), "this kernel has no nohz_full", "impossible")
        parts.append("this kernel has no nohz_full")
    certain = source == "kernel" or path is None  # what no file has follows from the kernel's rules
    if not certain:
        reason = next((file.reason for file in context.unreadable if file.path == path), None)
        parts.append("from the command line only" if reason is None else f"from the command line only: {reason}")
    if expected - found:
        parts.append(f"{cpus(expected - found)} not {words}")
    if found - expected:
        parts.append(f"{cpus(found - expected)} {words} unexpectedly")
    hidden = set(isolation.cpuset_unknown) if name == "isolated_cpus" else set()
    # In a container they are mostly kept from it, and no sign of a partition; elsewhere only a partition has them.
    doubted = found != expected or context.confinement.container is None
    if hidden and doubted and found ^ expected <= hidden:
        parts.append(f"{cpus(hidden)} {UNKNOWN}: {UNSEEN_GROUPS}")
        certain = False
    if found != expected:
        parts.extend(notes)
    return Finding(name, cpus(expected), ", ".join(parts), outcome_of(found == expected) if certain else "unknown")
