# SPDX-License-Identifier: Apache-2.0
"""Frequencies and throttling in a capture."""

import pytest

from calibration.context.facts import facts
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
