# SPDX-License-Identifier: Apache-2.0
"""Frequencies and throttling in a capture."""

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
