# SPDX-License-Identifier: Apache-2.0
"""Sets of CPUs: isolated, without ticks, without RCU callbacks; and what is left of a machine beside them."""

import re
from typing import Any, Final, NamedTuple

from calibration.audit.expected import cpu_list
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


SOME: Final = "some"
"""At least one CPU."""

RELATION: Final = re.compile(rf"(all but )?({'|'.join(SETS)})")
"""The CPUs of a set, or all others: for files that serve machines of any size."""


def is_relation(text: str) -> bool:
    """Return whether *text* names CPUs by a set."""
    return RELATION.fullmatch(text) is not None


def cpu_words(given: Any) -> tuple[str, ...]:
    """Return a list of CPUs, ``none``, ``some`` or a relation. Raises ``ValueError``."""
    return (given,) if isinstance(given, str) and (given == SOME or is_relation(given)) else cpu_list(given)


def members(context: Context, name: str) -> frozenset[int] | None:
    """Return the CPUs of the set *name*; None if they are unknown."""
    isolation = context.isolation
    source, found = {
        "isolated_cpus": (isolation.isolated_source, isolation.cpus),
        "nohz_full": (isolation.nohz_full_source, isolation.nohz_full),
        "rcu_nocbs": (isolation.rcu_nocbs_source, isolation.rcu_nocbs),
    }[name]
    return None if source is None else frozenset(found)


def related_cpus(context: Context, text: str) -> frozenset[int] | None:
    """Return the online CPUs that a relation names; None if they are unknown, or *text* is no relation."""
    matched = RELATION.fullmatch(text)
    if matched is None or (found := members(context, matched.group(2))) is None:
        return None
    online = frozenset(context.online_cpus)
    return online - found if matched.group(1) else found & online


def shown(context: Context, text: str) -> str:
    """Return an expected value, with the CPUs of a relation: ``all but nohz_full (0-1)``."""
    return f"{text} ({cpus(related_cpus(context, text))})" if is_relation(text) else text


def _cpus_of(context: Context, wanted: str) -> frozenset[int] | None:
    if is_relation(wanted):
        return related_cpus(context, wanted)
    return frozenset() if wanted == "none" else frozenset(parse_cpulist(wanted, last_cpu(context)))


def check_cpus(context: Context, name: str, wanted: str) -> Finding:
    """Return whether the CPUs of the set *name* are those *wanted*, in the words of :func:`cpu_words`."""
    isolation = context.isolation
    words, path, parameters = SETS[name]
    known = members(context, name)
    found = known or frozenset()
    if is_relation(wanted):
        found &= frozenset(context.online_cpus)
    try:
        expected = found if wanted == SOME else _cpus_of(context, wanted)
    except ValueError as error:
        return Finding(name, wanted, f"not a valid CPU list: {error}", "unknown")
    asked = shown(context, wanted) if wanted == SOME or is_relation(wanted) else cpus(expected)
    notes = isolation.notes_of(*parameters)
    if known is None or expected is None:
        return Finding(name, asked, "; ".join((UNKNOWN, *notes)), "unknown")
    parts = [cpus(found)]
    if name == "nohz_full" and isolation.nohz_full_supported is False:
        if expected or wanted == SOME:
            return Finding(name, asked, "this kernel has no nohz_full", "impossible")
        parts.append("this kernel has no nohz_full")
    source = isolation.isolated_source if name == "isolated_cpus" else isolation.nohz_full_source
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
    met = found == expected and (bool(found) or wanted != SOME)
    if not met:
        parts.extend(notes)
    return Finding(name, asked, ", ".join(parts), outcome_of(met) if certain else "unknown")
