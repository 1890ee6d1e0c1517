# SPDX-License-Identifier: Apache-2.0
"""Known answers, natively, on the other architecture, and under the sanitizers."""

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from calibration.build import SOURCES_DIRECTORY, BuiltKernel, compile_to, sources
from tests.kernels.conftest import Probe

CASES = {
    "random",
    "statistics",
    "json",
    "instructions",
    "chain",
    "gap_buckets",
    "gap_period",
    "gap_longest",
    "gap_injection",
    "core_clock",
    "core_work",
    "kernels",
    "accounting",
    "affinity",
    "placement",
    "memory",
    "control_groups",
    "generator",
}


SANITIZED_OPTIMISATION = "-O0"
"""The sanitizers see as much of unoptimised code, and the hundreds of kernels compile in a tenth of the time."""


def assert_passed(probe: Probe) -> None:
    done = probe("selftest")
    failed = [case for case in done.document["result"]["cases"] if not case["passed"]]
    assert not failed
    assert {case["name"] for case in done.document["result"]["cases"]} == CASES
    assert done.code == 0


def test_native(probe: Probe) -> None:
    assert_passed(probe)


def test_aarch64_under_emulation(built_aarch64: BuiltKernel) -> None:
    emulator = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    if platform.machine() == "aarch64":
        pytest.skip("aarch64 is native here and tested as such")
    if not emulator:
        pytest.skip("no qemu-aarch64-static or qemu-aarch64 to run the aarch64 binary with")
    assert_passed(Probe(emulator, str(built_aarch64.path)))


@pytest.mark.parametrize("model", ["Nehalem", "Haswell", "max"])
def test_widths_of_other_processors(model: str, built_x86_64: BuiltKernel) -> None:
    emulator = shutil.which("qemu-x86_64-static") or shutil.which("qemu-x86_64")
    if not emulator:
        pytest.skip("no qemu-x86_64-static or qemu-x86_64 to show the binary other processors with")
    done = Probe(emulator, "-cpu", model, str(built_x86_64.path))("info")
    widths = done.document["result"]["widths"]
    assert "sse2" in widths
    if model == "Nehalem":
        assert widths == ["sse2"], "a processor without AVX must not be given AVX2"


def test_undefined_behaviour(tmp_path: Path) -> None:
    binary = tmp_path / "sutprobe"
    compile_to(binary, "x86_64", (SANITIZED_OPTIMISATION, "-fsanitize=undefined", "-fno-sanitize-recover=undefined"))
    assert_passed(Probe(str(binary)))


@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_sanitized_by_the_system_compiler(sanitizer: str, tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if not compiler:
        pytest.skip("no system compiler; the pinned wheel has no address or thread sanitizer for static binaries")
    binary = tmp_path / "sutprobe"
    described = ("VERSION", "TARGET", "COMPILER", "FLAGS", "SOURCE_SHA256")
    built = subprocess.run(
        [
            compiler,
            "-std=gnu11",
            SANITIZED_OPTIMISATION,
            "-pthread",
            "-D_GNU_SOURCE",
            "-fno-strict-aliasing",
            f"-fsanitize={sanitizer}",
            *(f'-DSUTPROBE_{name}="sanitized"' for name in described),
            "-o",
            str(binary),
            *(str(path) for path in sources()),
            "-lm",
        ],
        cwd=SOURCES_DIRECTORY,
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode != 0 and f"lib{sanitizer[0]}san" in built.stderr:
        pytest.skip(f"the system compiler has no {sanitizer} sanitizer: {built.stderr.splitlines()[-1]}")
    assert built.returncode == 0, built.stderr
    if sanitizer == "address":
        assert_passed(Probe(str(binary)))
        return
    done = Probe(str(binary))("selftest")
    failed = {case["name"] for case in done.document["result"]["cases"] if not case["passed"]}
    # This sanitizer holds signals back until the thread makes a call, so none arrives in a loop that makes no call.
    assert failed <= {"gap_injection"}
    assert "ThreadSanitizer" not in done.stderr
