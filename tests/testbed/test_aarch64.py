# SPDX-License-Identifier: Apache-2.0
"""A SUT of the other architecture, calibrated over SSH. Optional: its image alone takes ten minutes to build."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.testbed.support import Lab, Testbed

PROFILE = Path(__file__).parent / "profiles" / "matrices.yml"

pytestmark = pytest.mark.skipif(
    not os.environ.get("CALIBRATION_TESTBED_AARCH64"),
    reason="the tox environment testbed-aarch64 runs this, which takes a quarter of an hour",
)


def test_an_aarch64_sut_is_calibrated_over_ssh(
    testbed: Testbed, lab: Lab, scenario: Callable[[str, str, str, str], None]
) -> None:
    sut = testbed.sut("aarch64")
    inventory = testbed.inventory({"other": [sut]}, {"ansible_become": True})
    ended = lab.calibrate(inventory, profile=PROFILE)
    document = lab.document(sut)
    assert document.run.status == "complete", ended.text
    assert document.run.kernels is not None
    assert document.run.kernels.target.startswith("aarch64")
    for measurement in document.measurements:
        values, proof = measurement.values, measurement.pages
        assert (values.cpu_nodes, values.memory_nodes) == ((0, 1), (0, 1))
        assert proof is not None
        assert proof.total
        assert proof.total == proof.checked == proof.on_node
        assert measurement.clock is not None
        assert measurement.clock.source == "cntvct"
        assert "EMULATED" in {flag.code for flag in measurement.validity.flags}
    scenario("an aarch64 SUT", "none", "both matrices, complete", "every figure EMULATED by its implementer")
