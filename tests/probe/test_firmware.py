# SPDX-License-Identifier: Apache-2.0
"""``sutprobe firmware`` on this machine: what it cannot see is unknown, with the reason, and never 0."""

import os

import pytest

from calibration.sutprobe.document import read_document, read_result
from calibration.sutprobe.firmware import FirmwareResult
from tests.probe.conftest import Finished, Probe
from tests.tools import require


def result_of(done: Finished) -> FirmwareResult:
    assert done.code == 0, done.stderr
    return read_result(read_document(done.document), FirmwareResult)


@pytest.mark.parametrize("root", [True, False])
def test_unknown_is_not_zero(probe: Probe, cpus: list[int], root: bool) -> None:
    asked: Probe = probe
    if not root:
        nobody = ("--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all")
        if os.geteuid() == 0:
            asked = Probe(require("util-linux", "setpriv"), *nobody, *probe.command)
    done = asked("firmware", "--cpus", str(cpus[-1]), "--seconds", "0.3")
    result = result_of(done)
    (cpu,) = result.cpus
    assert cpu.cpu == cpus[-1]
    assert (result.instrument is None) == (result.refused is not None) == (cpu.gaps is None)
    assert (result.threshold_ns is None) == (cpu.gaps is None)
    assert (result.smi_source is None) == (result.smi_refused is not None) == (cpu.smi is None)
    if done.document["host"]["hypervisor"]:
        assert cpu.smi is None
        assert done.document["host"]["hypervisor"] in (result.smi_refused or "")
    if not root and os.geteuid() == 0:
        assert result.refused is not None
    assert result.wall_s >= 0.3
