# SPDX-License-Identifier: Apache-2.0
"""Frequency scaling of cores and uncore, idle states, and thermal throttling.

Source for the uncore: ``Documentation/admin-guide/pm/intel_uncore_frequency_scaling.rst`` of the Linux kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from calibration.base.cpulists import parse_cpulist
from calibration.context.model import (
    CpuSets,
    Frequency,
    FrequencyPolicy,
    Idle,
    IdleState,
    Throttling,
    Topology,
    Uncore,
)
from calibration.context.topology import CPU
from calibration.context.tree import Tree, count, kernel_of
from calibration.runner.settings import policy_boost_counts

UNCORE = f"{CPU}/intel_uncore_frequency"

MAX_STATE = 9
"""Highest idle state number; the kernel has at most ten states (CPUIDLE_STATE_MAX)."""


def _khz(text: str) -> int:
    """Return a frequency; 0 if the kernel says that its driver does not know it. Raises ``ValueError``."""
    return 0 if text == "<unknown>" else count(text)


def _hz(tree: Tree, path: str) -> int | None:
    khz = tree.parse(path, _khz)
    return khz * 1000 if khz else None


def _spaced_list(text: str) -> tuple[int, ...]:
    return parse_cpulist(re.sub(r"\s+", ",", text.strip()))


def _read_policy(tree: Tree, directory: str, cpus: tuple[int, ...], release: str) -> FrequencyPolicy:
    driver = tree.word(f"{directory}/scaling_driver")
    counts = policy_boost_counts(release, driver or "")
    boost = tree.parse(f"{directory}/boost", count) if counts else None
    return FrequencyPolicy(
        cpus=cpus,
        driver=driver,
        governor=tree.word(f"{directory}/scaling_governor"),
        energy_performance_preference=tree.word(f"{directory}/energy_performance_preference"),
        hardware_min_hz=_hz(tree, f"{directory}/cpuinfo_min_freq"),
        hardware_max_hz=_hz(tree, f"{directory}/cpuinfo_max_freq"),
        base_hz=_hz(tree, f"{directory}/base_frequency"),
        min_hz=_hz(tree, f"{directory}/scaling_min_freq"),
        max_hz=_hz(tree, f"{directory}/scaling_max_freq"),
        current_hz=_hz(tree, f"{directory}/scaling_cur_freq"),
        turbo=None if boost is None else boost == 1,
    )


def _read_policies(tree: Tree, online: tuple[int, ...]) -> tuple[FrequencyPolicy, ...]:
    """Return the policies of the online CPUs: from ``cpufreq/policyN``, before Linux 4.3 from ``cpuN/cpufreq``."""
    running = set(online)
    release = kernel_of(tree)[0] or ""
    policies = []
    for number in tree.numbered(f"{CPU}/cpufreq", "policy"):
        directory = f"{CPU}/cpufreq/policy{number}"
        members = tree.parse(f"{directory}/affected_cpus", _spaced_list)
        if members is None:
            members = tree.parse(f"{directory}/related_cpus", _spaced_list) or (number,)
        cpus = tuple(n for n in members if n in running)
        if cpus:
            policies.append(_read_policy(tree, directory, cpus, release))
    if policies:
        return tuple(sorted(policies, key=lambda policy: policy.cpus))
    seen: set[int] = set()
    for cpu in online:
        directory = f"{CPU}/cpu{cpu}/cpufreq"
        if cpu in seen or not tree.names(directory):
            continue
        members = tree.parse(f"{directory}/affected_cpus", _spaced_list) or (cpu,)
        cpus = tuple(n for n in members if n in running)
        seen.update(cpus)
        policies.append(_read_policy(tree, directory, cpus or (cpu,), release))
    return tuple(policies)


def _turbo(tree: Tree, policies: Iterable[FrequencyPolicy]) -> tuple[bool | None, str | None]:
    """Return whether turbo is on, and which file says so: those of the policies decide where there are any.

    While intel_pstate is off another driver may have the CPUs; its own switch then says nothing.
    """
    path = f"{CPU}/intel_pstate/no_turbo"
    value = None if tree.word(f"{CPU}/intel_pstate/status") == "off" else tree.parse(path, count)
    if value is not None:
        return value == 0, path
    if own := {policy.turbo for policy in policies if policy.turbo is not None}:
        return own.pop() if len(own) == 1 else None, f"{CPU}/cpufreq/policy*/boost"
    path = f"{CPU}/cpufreq/boost"
    value = tree.parse(path, count)
    if value is not None:
        return value == 1, path
    return None, None


def _distinct(values: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(sorted({value for value in values if value}))


def read_frequency(tree: Tree, cpus: CpuSets) -> Frequency:
    """Return frequency drivers, governors, limits (Hz) and turbo."""
    policies = _read_policies(tree, cpus.online)
    turbo, source = _turbo(tree, policies)
    lows = [p.hardware_min_hz for p in policies if p.hardware_min_hz is not None]
    highs = [p.hardware_max_hz for p in policies if p.hardware_max_hz is not None]
    return Frequency(
        drivers=_distinct(p.driver for p in policies),
        governors=_distinct(p.governor for p in policies),
        turbo=turbo,
        turbo_source=source,
        pstate_status=tree.word(f"{CPU}/intel_pstate/status") or tree.word(f"{CPU}/amd_pstate/status"),
        hardware_min_hz=min(lows, default=None),
        hardware_max_hz=max(highs, default=None),
        policies=policies,
        uncore=_read_uncore(tree),
    )


def _read_uncore(tree: Tree) -> tuple[Uncore, ...]:
    """Return the uncores by package: their clusters, or before these came (Linux 6.5) dies.

    A kernel with clusters has the dies too, which only set the limits of all their clusters.
    """
    places: dict[str, tuple[int | None, int | None]] = {
        f"{UNCORE}/uncore{number:02}": (None, None) for number in tree.numbered(UNCORE, "uncore")
    }
    if not places:
        found = (re.fullmatch(r"package_([0-9]{2,5})_die_([0-9]{2,5})", name) for name in tree.names(UNCORE))
        places = {f"{UNCORE}/{match[0]}": (int(match[1]), int(match[2])) for match in found if match}
    uncores = [_uncore(tree, directory, *ids) for directory, ids in places.items()]
    return tuple(sorted(uncores, key=_order))


def _order(uncore: Uncore) -> tuple[int, ...]:
    place = (uncore.package, uncore.die, uncore.domain, uncore.cluster)
    return tuple(-1 if number is None else number for number in place)


def _uncore(tree: Tree, directory: str, package: int | None, die: int | None) -> Uncore:
    high = tree.parse(f"{directory}/elc_high_threshold_percent", count)
    return Uncore(
        package=tree.parse(f"{directory}/package_id", count) if package is None else package,
        die=die,
        domain=tree.parse(f"{directory}/domain_id", count),
        cluster=tree.parse(f"{directory}/fabric_cluster_id", count),
        agents=tree.word(f"{directory}/agent_types"),
        min_hz=_hz(tree, f"{directory}/min_freq_khz"),
        max_hz=_hz(tree, f"{directory}/max_freq_khz"),
        initial_min_hz=_hz(tree, f"{directory}/initial_min_freq_khz"),
        initial_max_hz=_hz(tree, f"{directory}/initial_max_freq_khz"),
        floor_hz=_hz(tree, f"{directory}/elc_floor_freq_khz"),
        low_load_percent=tree.parse(f"{directory}/elc_low_threshold_percent", count),
        high_load_percent=high if tree.parse(f"{directory}/elc_high_threshold_enable", count) else None,
    )


def read_idle(tree: Tree, cpus: CpuSets) -> Idle:
    """Return the idle states of the lowest-numbered online CPU, and the online CPUs on which each is disabled.

    States are matched by number: all CPUs of a driver have the same list.
    """
    states = []
    if cpus.online:
        first = cpus.online[0]
        for number in tree.numbered(f"{CPU}/cpu{first}/cpuidle", "state", MAX_STATE):
            directory = f"{CPU}/cpu{first}/cpuidle/state{number}"
            name = tree.word(f"{directory}/name")
            if name is None:
                continue
            states.append(
                IdleState(
                    name=name,
                    description=tree.word(f"{directory}/desc"),
                    latency_us=tree.parse(f"{directory}/latency", count),
                    residency_us=tree.parse(f"{directory}/residency", count),
                    disabled_cpus=tuple(
                        cpu
                        for cpu in cpus.online
                        if (tree.parse(f"{CPU}/cpu{cpu}/cpuidle/state{number}/disable", count) or 0) > 0
                    ),
                )
            )
    governor = tree.word(f"{CPU}/cpuidle/current_governor") or tree.word(f"{CPU}/cpuidle/current_governor_ro")
    return Idle(driver=tree.word(f"{CPU}/cpuidle/current_driver"), governor=governor, states=tuple(states))


def read_throttling(tree: Tree, topology: Topology) -> Throttling:
    """Return the throttle events since boot.

    Each CPU counts the interrupts of its core and package that it handled itself: the largest count is the best one.
    """
    cores: dict[tuple[int, ...], int] = {}
    packages: dict[int | None, int] = {}
    for core in topology.cores:
        for cpu in core.cpus:
            directory = f"{CPU}/cpu{cpu}/thermal_throttle"
            value = tree.parse(f"{directory}/core_throttle_count", count)
            if value is not None:
                cores[core.cpus] = max(value, cores.get(core.cpus, 0))
            value = tree.parse(f"{directory}/package_throttle_count", count)
            if value is not None:
                packages[core.package_id] = max(value, packages.get(core.package_id, 0))
    return Throttling(
        core_events=sum(cores.values()) if cores else None,
        package_events=sum(packages.values()) if packages else None,
    )
