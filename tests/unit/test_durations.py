# SPDX-License-Identifier: Apache-2.0
"""What plans cost on big machines, and what they ask of their memory."""

import pytest

from calibration.context.model import Context
from calibration.measurements.sut import ASSUMED_LLC_BYTES, LLC_MULTIPLE, Sut
from calibration.measurements.traffic import all_cpus, buffer_bytes, fill_s
from tests.unit.machines import MACHINES, MIB

each_machine = pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)


@each_machine
def test_threads_hold_a_multiple_of_every_cache_and_fill_it_in_a_fraction_of_a_second(machine: Context) -> None:
    sut = Sut(machine)
    parts = all_cpus(sut)
    size = buffer_bytes(sut, parts, ("stream_triad",))
    sharers = sut.fewest_per_llc(sut.cpus)
    assert size * sharers >= LLC_MULTIPLE * (sut.llc_bytes or 0)
    assert size >= LLC_MULTIPLE * sut.l2_bytes
    if sut.llc_is_private:
        assert size * min(len(part.cpus) for part in parts) >= LLC_MULTIPLE * ASSUMED_LLC_BYTES
    assert fill_s(size, "stream_triad", parts) < 0.5


def test_a_thread_alone_has_a_last_level_cache_to_itself() -> None:
    sut = Sut(MACHINES["2x64-smt-8-nodes"])
    assert buffer_bytes(sut, [all_cpus(sut)[0]], ("reads",)) == 4 * 32 * MIB // 16
    alone = all_cpus(sut)[0]._replace(cpus=(0,))
    assert buffer_bytes(sut, [alone], ("reads",)) == 4 * 32 * MIB
