# SPDX-License-Identifier: Apache-2.0
"""Two SUTs with two nodes each, calibrated at once over SSH with sudo."""

from tests.testbed.support import Lab, Testbed


def test_x(testbed: Testbed, lab: Lab) -> None:
    suts = testbed.suts(("two-nodes", "two-nodes-a"), ("two-nodes", "two-nodes-b"))
    inventory = testbed.inventory({"testbed1": suts}, {"calibration_testbed": "testbed1"})
    ended = lab.calibrate(inventory, "--become")
    assert ended.text
    assert ended.rc == 0, ended.text
