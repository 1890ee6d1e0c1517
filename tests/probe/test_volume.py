# SPDX-License-Identifier: Apache-2.0
"""What ``volume`` moves is known, by its code and by the declared rule, and its work is proved."""

import platform

import pytest

from calibration.sutprobe.document import read_document, read_result
from calibration.sutprobe.volume import VolumeResult
from tests.probe.conftest import Finished, Probe

MIB = 1 << 20


def result_of(done: Finished) -> VolumeResult:
    return read_result(read_document(done.document), VolumeResult)


def check_known(result: VolumeResult, *, allocates: bool) -> None:
    """By hand: three arrays are written once; each pass reads two and writes one; what is written was read before."""
    array = result.array_bytes * result.threads
    known = result.known
    assert known.init.program_read_bytes == 0
    assert known.init.program_written_bytes == 3 * array
    assert known.init.allocate_read_bytes == 3 * array * allocates
    assert known.triad.program_read_bytes == 2 * array * result.passes
    assert known.triad.program_written_bytes == array * result.passes
    assert known.triad.allocate_read_bytes == array * result.passes * allocates
    assert known.read_bytes == (3 * allocates + (2 + allocates) * result.passes) * array
    assert known.written_bytes == (3 + result.passes) * array


@pytest.mark.parametrize("passes", [1, 50])
def test_the_volume_is_known_and_proved(probe: Probe, cpus: list[int], passes: int) -> None:
    group = ",".join(map(str, sorted({cpus[0], cpus[-1]})))
    done = probe(
        "volume", "--group", f"{group}@0", "--array-bytes", str(MIB), "--passes", str(passes), "--repeats", "3"
    )
    assert done.code == 0, done.stderr
    result = result_of(done)
    assert result.threads == len(result.cpus) == len(set(group.split(",")))
    assert result.nodes == (0,) * result.threads or result.nodes == (0,)
    assert (result.array_bytes, result.passes) == (MIB, passes)
    assert result.pages.on_node == result.pages.checked > 0
    check_known(result, allocates=platform.machine() == "x86_64")
    assert len(result.repeats) == 3
    for repeat in result.repeats:
        assert repeat.checked
        assert repeat.cpus_verified
        assert repeat.counters is None, "no event was asked for"
        assert 0 < repeat.init_seconds < repeat.seconds
        assert 0 < repeat.triad_seconds < repeat.seconds


def test_every_width_of_this_processor_is_proved(probe: Probe, cpus: list[int]) -> None:
    for width in probe("info").document["result"]["widths"]:
        done = probe("volume", "--group", f"{cpus[0]}@0", "--array-bytes", "4096", "--width", width, "--repeats", "2")
        assert done.code == 0, done.stderr
        assert result_of(done).width == width


def test_no_line_is_read_before_it_is_written_on_aarch64(emulated_aarch64: Probe) -> None:
    done = emulated_aarch64("volume", "--group", "0@0", "--array-bytes", "65536", "--repeats", "2")
    assert done.code == 0, done.stderr
    check_known(result_of(done), allocates=False)


def test_a_deadline_keeps_complete_repeats(probe: Probe, cpus: list[int]) -> None:
    # A thousand repeats of some milliseconds at least never fit; one does.
    done = probe("volume", "--group", f"{cpus[0]}@0", "--array-bytes", str(4 * MIB), "--repeats", "1000",
                 "--passes", "50", "--deadline-s", "1.5")  # fmt: skip
    assert done.code == 3
    assert done.document["error"]["code"] == "deadline"
    result = result_of(done)
    assert 1 <= len(result.repeats) < 1000
    assert all(repeat.checked for repeat in result.repeats)


def test_a_deadline_in_the_first_repeat_leaves_no_result(probe: Probe, cpus: list[int]) -> None:
    done = probe("volume", "--group", f"{cpus[0]}@0", "--array-bytes", str(256 * MIB), "--passes", "50", "--deadline-s",
                 "0.5")  # fmt: skip
    assert done.code == 3
    assert done.document["error"]["code"] == "deadline"
    assert done.document["result"] is None


def test_too_much_memory_is_refused_before_it_is_taken(probe: Probe, cpus: list[int]) -> None:
    done = probe("volume", "--group", f"{cpus[0]}@0", "--array-bytes", str(1 << 40))
    assert done.code == 3
    assert done.document["error"]["code"] == "no_memory"
