# SPDX-License-Identifier: Apache-2.0
"""Every subcommand, with small parameters, on the other architectures and under each sanitizer."""

from collections.abc import Iterator
from itertools import pairwise

import pytest

from calibration.build import subcommands
from calibration.measurements.instructions import WITHOUT_FLUSH, WITHOUT_STREAMS
from calibration.sutprobe.document import read_document
from tests.probe.conftest import Probe, architecture_of
from tests.tools import require_two

SMALL_PLACEMENTS = ("--placements", "2", "--windows", "2")
EVENTS = (
    "--event", "clock=software/config=0x0,group=1/@{one}", "--event", "switches=software/config=0x3,group=1/@{one}",
    "--event", "clock=software/config=0x0/@{one}", "--event", "task=software/config=0x1,user/",
    "--event", "dram.reads=uncore_none_0/config=0x1/@{one}", "--background-s", "0.01",
)  # fmt: skip
"""Events of which some are counted where that is permitted, and some are refused."""
COMMANDS: dict[str, list[tuple[str, ...]]] = {
    "latency": [
        ("--at", "{one}@0", "--size-bytes", "4096,2097152", "--hops", "640", "--payload-bytes", "8", *SMALL_PLACEMENTS),
        ("--at", "{one}@0", "--size-bytes", "65536", "--order", "window", "--hops", "640",
         "--sample", "ibs=software/config=0x1,period=16000/", *SMALL_PLACEMENTS),
        ("--at", "{one}@0", "--size-bytes", "4096", "--hops", "640", *EVENTS, *SMALL_PLACEMENTS),
        ("--at", "{one}@0", "--size-bytes", "131072,2097152", "--hops", "640", "--chains", "1,3,32",
         *SMALL_PLACEMENTS),
    ],
    "bandwidth": [
        ("--group", "{both}@0", "--mix", "reads,3:1,copy_nt,triad", "--buffer-bytes", "262144", "--streams", "1,4",
         "--prefetch-bytes", "0,512", "--delay", "0,4", "--window-s", "0.002", *SMALL_PLACEMENTS),
        ("--group", "{both}@0", "--mix", "reads,copy_nt", "--buffer-bytes", "262144", "--streams", "1,4",
         "--prefetch-bytes", "0,512", "--delay", "0,4", "--keep-best", "1"),
        ("--group", "{both}@0", "--mix", "reads,1:1,write_nt", "--buffer-bytes", "65536", "--streams", "1,2",
         "--prefetch-bytes", "0,512", "--hint", "t0,w,nta", "--visit-lines", "0,4", "--window-s", "0.002",
         "--instruction", "vector,clzero,dc_zva,rep_stosb,ldnp", *SMALL_PLACEMENTS),
        ("--group", "{both}@0", "--mix", "reads", "--buffer-bytes", "65536", "--window-s", "0.002", *EVENTS,
         *SMALL_PLACEMENTS),
        ("--group", "{both}@0", "--mix", "random_reads", "--streams", "1", "--buffer-bytes", "65536",
         "--window-s", "0.002", *SMALL_PLACEMENTS),
        ("--group", "{both}@0", "--mix", "line_reads", "--streams", "1", "--delay", "0,100", "--buffer-bytes", "65536",
         "--window-s", "0.002", "--sample", "pebs=software/config=0x1,period=10000/", *SMALL_PLACEMENTS),
    ],
    "loaded": [
        ("--probe", "{one}@0", "--load", "{other}@0", "--delay", "0,100", "--mix", "2:1",
         "--probe-size-bytes", "262144", "--buffer-bytes", "262144", "--window-s", "0.005", *EVENTS,
         "--event", "probe.task=software/config=0x1,user/", *SMALL_PLACEMENTS),
        ("--probe", "{one}@0", "--load", "{other}@0", "--mix-delay", "0,100,0,50", "--mix", "reads,3:1", "--shape",
         "3:1=2/512/t0/0/vector", "--share-buffer", "--probe-size-bytes", "262144", "--buffer-bytes", "262144",
         "--window-s", "0.005", *SMALL_PLACEMENTS),
        ("--probe", "{one}@0", "--load", "{other}@0", "--delay", "0,100", "--share-percent", "50,90", "--choose",
         "--mix", "line_reads", "--streams", "1",
         "--probe-size-bytes", "262144", "--buffer-bytes", "262144", "--window-s", "0.005",
         "--sample", "pebs=software/config=0x1,period=10000/", *SMALL_PLACEMENTS),
    ],
    "volume": [
        ("--group", "{both}@0", "--array-bytes", "262144", "--passes", "3", "--repeats", "2", *EVENTS),
    ],
    "jitter": [
        ("--cpus", "{both}", "--view", "both", "--loops", "1000", "--executions", "20", "--intervals", "2",
         "--gap-s", "0.05"),
        ("--cpus", "{both}", "--view", "gaps", "--gap-s", "0.2", "--attribute"),
    ],
    "wakeup": [
        ("--cpus", "{both}", "--seconds", "0.1", "--attribute"),
        ("--cpus", "{other}", "--seconds", "0.1", "--loads", "none,memory,housekeeping", "--load-group", "{one}@0",
         "--housekeeping-cpus", "{one}", "--threshold-us", "1000000"),
    ],
    "firmware": [
        ("--cpus", "{both}", "--seconds", "0.1"),
    ],
    "c2c": [
        ("--pair", "{one}@{other}:0:hitm", "--pair", "{one}@{other}:0:hit", "--lines", "64", "--placements", "2",
         "--windows", "1"),
        ("--all-pairs", "{one}@{other}", "--all-pairs", "{other}@{one}:0", "--hops", "256", "--placements", "2"),
        ("--all-pairs", "{both}", "--method", "pingpong", "--hops", "20", "--placements", "1", "--matrix-budget-s",
         "0.000001"),
        ("--all-pairs", "{both}", "--hops", "64", "--placements", "1", "--matrix-pairs", "1,2"),
    ],
    "frequency": [
        ("--cpus", "{both}", "--work", "scalar,avx2,neon,sve", "--settle-s", "0.001", "--windows", "2",
         "--window-s", "0.02"),
    ],
    "burn": [
        ("--group", "{both}@0:4194304", "--group", "{one}@0:2097152", "--seconds", "0.2", "--windows", "2"),
    ],
    "counters": [()],
    "info": [()],
}  # fmt: skip
"""For each subcommand what runs most of its code in a second or two."""


def possible(probe: Probe, subcommand: str) -> Iterator[tuple[str, ...]]:
    """Yield the commands of *subcommand*, without what the architecture of *probe* has no instruction for."""
    target = architecture_of(probe)
    for arguments in COMMANDS[subcommand]:
        words = list(arguments)
        if target in WITHOUT_STREAMS:
            words = [word.replace(",copy_nt", "").replace(",write_nt", "") for word in words]
        if target in WITHOUT_FLUSH:
            words = [word.replace(",memory", "") for word in words]
            for option, value in pairwise(tuple(words)):
                if (option, value) in {("--pair", "{one}@{other}:0:hit"), ("--load-group", "{one}@0")}:
                    del words[words.index(value) - 1 : words.index(value) + 1]
        yield tuple(words)


def assert_good(probe: Probe, subcommand: str, cpus: list[int]) -> None:
    """Run *subcommand*: it ends well, its document has the form that is read, and nothing went wrong on the way."""
    if subcommand in {"loaded", "c2c", "wakeup"}:
        require_two(cpus)
    names = {"one": cpus[0], "other": cpus[-1], "both": ",".join(map(str, sorted({cpus[0], cpus[-1]})))}
    for arguments in possible(probe, subcommand):
        done = probe(subcommand, *(word.format(**names) for word in arguments))
        assert done.code == 0, done.stderr
        assert "Sanitizer" not in done.stderr
        assert "runtime error" not in done.stderr
        assert read_document(done.document).result
        assert done.document["warnings"] is not None


def test_every_subcommand_is_among_them() -> None:
    assert set(subcommands()) == set(COMMANDS)


@pytest.mark.parametrize("subcommand", COMMANDS)
def test_other_architectures_under_emulation(emulated: Probe, cpus: list[int], subcommand: str) -> None:
    assert_good(emulated, subcommand, cpus)


@pytest.mark.parametrize("subcommand", COMMANDS)
def test_sanitized(sanitized: Probe, cpus: list[int], subcommand: str) -> None:
    assert_good(sanitized, subcommand, cpus)
