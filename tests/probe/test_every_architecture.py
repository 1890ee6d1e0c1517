# SPDX-License-Identifier: Apache-2.0
"""What the C code for any architecture does: which instructions it lacks, what it then refuses, and where it builds."""

import platform
from pathlib import Path

import pytest

from calibration.build import COMMON_FLAGS, TARGETS
from calibration.measurements.instructions import NON_TEMPORAL, WITHOUT_FLUSH, WITHOUT_STREAMS
from calibration.measurements.traffic import BUFFERS
from tests.probe.conftest import Probe, architecture_of
from tests.probe.selftest_build import compile_selftest
from tests.tools import emulator, require_two, sweep

LINE_BYTES = {"ppc64le": 128}
"""Of the emulated processors, by architecture; 64 elsewhere, or what this machine's kernel reports."""

NARROW = "-Wno-atomic-alignment"
"""For machines of 32 bits: 64 bits that change at once take a lock of the compiler's library."""

BUILT = {
    "arm-linux-musleabihf": ("arm", ()),
    "mips-linux-musleabihf": ("mips", (NARROW,)),
    "mipsel-linux-musleabihf": ("mipsel", (NARROW,)),
    "mips64-linux-muslabi64": ("mips64", ("-fPIC",)),
    "mips64el-linux-muslabi64": ("mips64el", ("-fPIC",)),
    "powerpc-linux-musleabihf": ("ppc", (NARROW,)),
    "powerpc64-linux-musl": ("ppc64", ()),
    "riscv32-linux-musl": ("riscv32", (NARROW,)),
    "s390x-linux-musl": ("s390x", ()),
    "x86-linux-musl": ("i386", ()),
}
"""By the compiler's name: QEMU's name, and the flags that the architecture needs beside those of every build.

Not among them: x32, for which the loops of x86_64 do not assemble; big-endian aarch64, whose SVE header the compiler
lacks; m68k, which the compiler cannot generate; loongarch64, which builds, but with vectors that Debian's emulator does
not know. Not tried to the end: hexagon, and Arm's big-endian and Thumb variants.
"""


def run_mix(probe: Probe, mix: str) -> tuple[int, str | None]:
    done = probe(
        "bandwidth", "--group", "0@0", "--mix", mix, "--buffer-bytes", "4096", "--window-s", "0.002", "--windows", "1",
        "--placements", "1", "--streams", "1",
    )  # fmt: skip
    return done.code, None if done.document["error"] is None else done.document["error"]["code"]


def test_exactly_the_mixes_without_instructions_are_refused(emulated: Probe) -> None:
    lacking = NON_TEMPORAL if architecture_of(emulated) in WITHOUT_STREAMS else frozenset()
    answers = {mix: run_mix(emulated, mix) for mix in BUFFERS}
    assert answers == {mix: (3, "unsupported") if mix in lacking else (0, None) for mix in BUFFERS}


def test_random_reads_count_the_lines_that_memory_moves(emulated: Probe) -> None:
    """The words that are read are proved; how much of a line each needs is its length."""
    for mix in ("random_reads", "line_reads"):
        done = emulated("bandwidth", "--group", "0@0", "--mix", mix, "--buffer-bytes", "65536", "--window-s", "0.002",
                        "--windows", "1", "--placements", "1", "--streams", "1")  # fmt: skip
        assert done.code == 0, done.stderr
        (point,) = done.document["result"]["points"]
        moved = LINE_BYTES.get(architecture_of(emulated), 64) if mix == "random_reads" else 64
        accounting = point["accounting"]
        assert (accounting["program_bytes_per_step"], accounting["model_dram_bytes_per_step"]) == (8, moved)
        assert point["checked"]


def test_what_needs_a_flushed_line_is_refused_without_the_instruction(emulated: Probe, cpus: list[int]) -> None:
    require_two(cpus)
    one, other = cpus[0], cpus[-1]
    commands = (
        ("c2c", "--pair", f"{one}@{other}:0:hit", "--lines", "64", "--placements", "1", "--windows", "1"),
        ("latency", "--at", f"{one}@0", "--size-bytes", "65536", "--hops", "640", "--keep-awake", f"{other}@0",
         "--placements", "1", "--windows", "1"),
        ("wakeup", "--cpus", f"{one}", "--seconds", "0.05", "--loads", "memory", "--load-group", f"{other}@0"),
    )  # fmt: skip
    lacks = architecture_of(emulated) in WITHOUT_FLUSH
    for command in commands:
        done = emulated(*command)
        if lacks:
            assert (done.code, done.document["error"]["code"]) == (3, "unsupported")
            assert "takes a line out of the caches" in done.document["error"]["message"]
        else:
            assert done.code == 0, done.stderr


def test_each_other_architecture_has_its_width_and_its_names(emulated: Probe) -> None:
    architecture = architecture_of(emulated)
    result = emulated("info").document["result"]
    generic = architecture in WITHOUT_STREAMS
    assert ("generic" in result["widths"]) == generic
    if not Path("/sys/devices/system/cpu/cpu0/cache/index0").exists():
        assert result["line_bytes"] == LINE_BYTES.get(architecture, 64)


def test_the_tables_name_only_targets() -> None:
    assert WITHOUT_FLUSH <= WITHOUT_STREAMS <= set(TARGETS)


@sweep
@pytest.mark.parametrize("triple", BUILT)
def test_every_architecture_builds_and_passes_its_selftest(triple: str, tmp_path: Path) -> None:
    name, flags = BUILT[triple]
    program = tmp_path / "sutprobe"
    compile_selftest(program, triple, (*COMMON_FLAGS, *flags))
    run = [str(program)] if platform.machine() == name else [emulator(name), str(program)]
    done = Probe(*run)("selftest", "--injection-s", "0.2", timeout=600)
    failed = {case["name"]: case["error"]["message"] for case in done.document["result"]["cases"] if case["error"]}
    assert not failed
    assert done.document["clock"]["source"] == "monotonic_raw"
