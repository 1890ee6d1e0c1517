# SPDX-License-Identifier: Apache-2.0
"""Frequency scaling, idle states, and thermal throttling."""

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
)
from calibration.context.topology import CPU
from calibration.context.tree import Tree, count, kernel_of
from calibration.runner.settings import policy_boost_counts

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
