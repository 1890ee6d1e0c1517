# SPDX-License-Identifier: Apache-2.0
"""A CPU that goes offline while several are measured costs its own views and no other."""

import json
import subprocess
from collections.abc import Callable

import pytest

from calibration.build import build
from tests.testbed.support import Testbed
from tests.testbed.test_attribution import PROBE

Scenario = Callable[[str, str, str, str], None]

LASTING = {
    "wakeup": "--seconds 20 --loads none,none",
    "jitter": "--gap-s 40 --loops 1000 --executions 100 --intervals 2",
}


@pytest.mark.parametrize("subcommand", LASTING)
def test_a_cpu_that_goes_offline_costs_its_own_views(testbed: Testbed, scenario: Scenario, subcommand: str) -> None:
    sut = testbed.sut("two-nodes")
    with build("x86_64").path.open("rb") as binary:
        subprocess.run(sut.ssh_command(f"cat >{PROBE} && chmod 755 {PROBE}"), stdin=binary, check=True)
    command = sut.ssh_command(f"{PROBE} {subcommand} --cpus 1,2 {LASTING[subcommand]}")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        # Its threads are pinned when they measure.
        sut.read(
            "pinned() { for task in /proc/$(pgrep -x sutprobe)/task/*/status; do "
            'grep -q "Cpus_allowed_list:.2$" $task && return; done; false; }; '
            "until pinned 2>/dev/null; do sleep 0.1; done"
        )
        try:
            sut.read("echo 0 > /sys/devices/system/cpu/cpu2/online")
            printed, said = process.communicate(timeout=300)
        finally:
            sut.read("echo 1 > /sys/devices/system/cpu/cpu2/online")
    assert process.returncode == 0, said
    result = json.loads(printed)["result"]
    for cpus in [result["cpus"]] if subcommand == "jitter" else [part["cpus"] for part in result["conditions"]]:
        stayed, gone = cpus
        assert (stayed["cpu"], stayed["cpu_verified"], stayed["error"]) == (1, True, None)
        assert stayed["wakes"] if subcommand == "wakeup" else stayed["gaps"]["count"]
        assert (gone["cpu"], gone["cpu_verified"], gone["error"]["code"]) == (2, False, "cpu_left")
        assert "CPU 2 went offline" in gone["error"]["message"]
    scenario(
        f"one of two CPUs goes offline ({subcommand})", "CPU 2 offline while it is measured", "the other's views",
        "CPU 1 measured; CPU 2 not verified, with the reason",
    )  # fmt: skip
