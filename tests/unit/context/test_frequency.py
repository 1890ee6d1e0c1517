# SPDX-License-Identifier: Apache-2.0
"""Frequencies and throttling in a capture."""

import pytest

from calibration.context.facts import facts, shown
from tests.captures import changed, machine_of

CPU = "/sys/devices/system/cpu"


def test_throttling_is_counted_once_for_a_core_and_once_for_a_package() -> None:
    """All threads of a core, and all cores of a package, show the same counter."""
    files = {}
    for cpu in range(8):  # two packages of two cores of two threads
        files[f"{CPU}/cpu{cpu}/thermal_throttle/core_throttle_count"] = f"{10 ** (cpu // 2)}\n"
        files[f"{CPU}/cpu{cpu}/thermal_throttle/package_throttle_count"] = f"{7 if cpu < 4 else 500}\n"
    throttling = machine_of(changed("x86_64-two-nodes-smt", files)).context.throttling
    assert (throttling.core_events, throttling.package_events) == (1111, 507)
    throttling = machine_of(changed("x86_64-two-nodes-smt", {})).context.throttling
    assert (throttling.core_events, throttling.package_events) == (None, None)


@pytest.mark.parametrize(("general", "own", "turbo", "text"), [
    ("1\n", ["0\n"] * 4, False, "off"),
    ("1\n", ["1\n"] * 4, True, "on"),
    ("1\n", ["1\n", "0\n", "0\n", "1\n"], None, "mixed: on for CPUs 0,3, off for CPUs 1-2"),
    ("1\n", ["0\n", None, None, None], False, "off"),
    (None, ["0\n"] * 4, False, "off"),
    ("0\n", [None] * 4, False, "off"),
    ("1\n", [None] * 4, True, "on"),
    (None, [None] * 4, None, None),
])  # fmt: skip
def test_turbo_is_what_the_policies_say(
    general: str | None, own: list[str | None], turbo: bool | None, text: str | None
) -> None:
    files: dict[str, str | None] = {f"{CPU}/intel_pstate": None, f"{CPU}/cpufreq/boost": general}
    for number, value in enumerate(own):
        files[f"{CPU}/cpufreq/policy{number}/affected_cpus"] = f"{number}\n"
        files[f"{CPU}/cpufreq/policy{number}/boost"] = value
    context = machine_of(changed("x86_64-two-nodes-smt", files)).context
    frequency = context.frequency
    assert (frequency.turbo, frequency.turbo_text) == (turbo, text)
    assert facts(context, None)["turbo"] == (text or "not known")


def test_the_switch_of_intel_pstate_decides() -> None:
    files = {f"{CPU}/intel_pstate/no_turbo": "1\n", f"{CPU}/cpufreq/boost": "1\n"}
    assert machine_of(changed("x86_64-two-nodes-smt", files)).context.frequency.turbo is False


def test_the_switch_of_intel_pstate_says_nothing_while_it_is_off() -> None:
    own = {f"{CPU}/intel_pstate/no_turbo": "1\n", f"{CPU}/intel_pstate/status": "off\n"}
    files = {**own, f"{CPU}/cpufreq/boost": "1\n"}
    assert machine_of(changed("x86_64-two-nodes-smt", files)).context.frequency.turbo is True


UNCORE = f"{CPU}/intel_uncore_frequency"


def uncore(name: str, khz: tuple[int, int], **more: str | int) -> dict[str, str]:
    """Return the files of an uncore that may go from 0.8 to 2.5 GHz, limited to *khz*."""
    limits = {"initial_min_freq_khz": 800_000, "initial_max_freq_khz": 2_500_000}
    set_to = {"min_freq_khz": khz[0], "max_freq_khz": khz[1]}
    return {f"{UNCORE}/{name}/{file}": f"{text}\n" for file, text in (limits | set_to | more).items()}


DIES = uncore("package_00_die_00", (800_000, 2_500_000)) | uncore("package_01_die_00", (800_000, 2_500_000))
CLUSTERS = {
    name: text
    for number, (package, domain, agents) in enumerate([(1, 0, "core cache"), (0, 0, "core cache"), (0, 3, "io")])
    for name, text in uncore(
        f"uncore{number:02}", (800_000, 2_500_000), package_id=package, domain_id=domain, fabric_cluster_id=0,
        agent_types=agents, elc_floor_freq_khz=1_200_000, elc_low_threshold_percent=10, elc_high_threshold_percent=95,
        elc_high_threshold_enable=int(agents == "io"),
    ).items()
}  # fmt: skip
FLOOR = "0.8 to 2.5 GHz, from 1.2 GHz below 10 % load"


@pytest.mark.parametrize(("files", "says"), [
    ({}, "none"),
    (DIES, "0.8 to 2.5 GHz"),
    (DIES | uncore("package_01_die_00", (2_500_000, 2_500_000)),
     "0.8 to 2.5 GHz in package 0 die 0; 2.5 to 2.5 GHz, 0.8 to 2.5 GHz at boot in package 1 die 0"),
    (DIES | CLUSTERS,
     "; ".join((f"{FLOOR} in package 0 domain 0 cluster 0 (core, cache), package 1 domain 0 cluster 0 (core, cache)",
                f"{FLOOR}, in steps above 95 % load in package 0 domain 3 cluster 0 (io)"))),
    ({f"{UNCORE}/package_00_die_00/min_freq_khz": "much\n"}, "not known"),
])  # fmt: skip
def test_limits_of_the_uncore(files: dict[str, str], says: str) -> None:
    context = machine_of(changed("x86_64-two-nodes-smt", files)).context
    assert facts(context, None)["uncore frequency limits"] == says
    assert dict(shown(context)).get("Uncore frequency limits") == (None if says == "none" else says)


@pytest.mark.parametrize(("mhz", "says"), [
    ([None] * 4, "not known"),
    ([2100] * 4, "2.1 GHz"),
    ([2700, 2100, 2100, 2700], "2.1 GHz on CPUs 1-2; 2.7 GHz on CPUs 0,3"),
])  # fmt: skip
def test_base_frequencies_that_differ_name_their_cpus(mhz: list[int | None], says: str) -> None:
    policies = {f"{CPU}/cpufreq/policy{number}": value for number, value in enumerate(mhz)}
    files = {f"{policy}/affected_cpus": f"{policy[-1]}\n" for policy in policies}
    files |= {f"{policy}/base_frequency": f"{value}000\n" for policy, value in policies.items() if value}
    assert facts(machine_of(changed("x86_64-two-nodes-smt", files)).context, None)["base frequency"] == says
