# SPDX-License-Identifier: Apache-2.0
"""Known answers, natively, on the other architecture, and under the sanitizers."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from calibration.build import SOURCES_DIRECTORY, BuiltKernel, compile_to
from calibration.sutprobe.document import read_document, read_result
from tests.kernels.conftest import SANITIZED_OPTIMISATION, SANITIZERS, Finished, Probe, Sanitizer
from tests.probe_results import SelftestCase, SelftestResult
from tests.tools import emulator, require

CASES = {
    "clock",
    "instructions",
    "chain",
    "interleave",
    "large_chain",
    "order",
    "gap_books",
    "gap_injection",
    "gap_rival",
    "trace_planted",
    "core_work",
    "kernels",
    "affinity",
    "placement",
    "generator",
}

PATIENCE_S = 400
"""All cases take about a minute in the slowest build on a quiet machine."""


def cases_of(done: Finished) -> tuple[SelftestCase, ...]:
    return read_result(read_document(done.document), SelftestResult).cases


def assert_passed(probe: Probe) -> None:
    done = probe("selftest", timeout=PATIENCE_S)
    cases = cases_of(done)
    undone = {case.name: case.error for case in cases if not case.passed}
    # Where a machine's clocks cannot be read closely enough, only that is no fault: the clock's own test judges it.
    coarse = "clock" in undone and undone["clock"] is not None and undone["clock"].code == "unsupported"
    assert undone.keys() <= ({"clock"} if coarse else set()), undone
    assert {case.name for case in cases} == CASES
    assert done.code == (3 if coarse else 0)


def test_native(probe: Probe) -> None:
    assert_passed(probe)


def test_the_clock_is_known_within_a_part_in_a_million(probe: Probe) -> None:
    """Where it cannot be, the document says so in a warning and the case is one that this machine cannot do."""
    done = probe("selftest", timeout=PATIENCE_S)
    (case,) = [case for case in cases_of(done) if case.name == "clock"]
    warned = {each["code"] for each in done.document["warnings"]}
    known = done.document["clock"]["hz_uncertainty_ppm"] <= 1
    assert known == ("CLOCK_UNCERTAIN" not in warned)
    assert case.passed == known
    assert case.note


def test_what_the_machine_cannot_do_is_no_failure(native: Path) -> None:
    """With address space for little, cases that need more cannot be asked: exit 3, and the others pass."""
    limiter = require("util-linux", "prlimit")
    done = Probe(limiter, "--as=12000000", str(native))("selftest")
    assert done.code == 3
    assert done.document["error"]["code"] == "no_memory"
    assert done.document["error"]["message"].startswith("case ")
    undone = {case.name: case.error.code for case in cases_of(done) if case.error}
    assert set(undone.values()) == {"no_memory"}
    assert "gap_injection" in undone
    assert "chain" not in undone


SABOTAGE = {
    "chain": ("chain.c", "random_below(random, i)", "random_below(random, i + 1)"),
    "clock": ("clock.c", "clock_now_used.hz = ticks * 1e9 /", "clock_now_used.hz = 1.0001 * ticks * 1e9 /"),
    "gap_injection": ("gaps.c", "\tgaps->count++;\n", "\tif (++gaps->count % 7 == 3)\n\t\treturn;\n"),
    "gap_rival": ("gaps.c", "gaps_record(gaps, previous, step);", "gaps_record(gaps, previous, step - step / 3);"),
    "kernels": (
        "arch/streams.h",
        "VECTOR_TRIAD(VECTOR_LOAD(b + place), VECTOR_LOAD(a + place)",
        "VECTOR_TRIAD(VECTOR_LOAD(a + place), VECTOR_LOAD(b + place)",
    ),
    "trace_planted": ("causes.c", "\tcause->now_events++;\n\t/*", "\tcause->now_events += reader->depth > 0;\n\t/*"),
}
"""By case: a file, what it says, and a fault.

A split cycle, a wrong rate, lost or short gaps, a wrong array, threads lost.
"""


def test_a_fault_is_found_by_its_case(tmp_path: Path) -> None:
    copy = tmp_path / "kernels"
    shutil.copytree(SOURCES_DIRECTORY, copy)
    for name, right, wrong in SABOTAGE.values():
        text = (copy / name).read_text(encoding="utf-8")
        assert right in text, f"{name} no longer says {right!r}"
        (copy / name).write_text(text.replace(right, wrong, 1), encoding="utf-8")
    binary = tmp_path / "sutprobe"
    compile_to(binary, "x86_64", (SANITIZED_OPTIMISATION,), copy)
    done = Probe(str(binary))("selftest", timeout=PATIENCE_S)
    assert done.code == 1
    assert done.document["error"]["code"] == "check_failed"
    failed = {case.name for case in cases_of(done) if case.error and case.error.code == "check_failed"}
    # Where the kernel cannot be traced nothing is planted.
    untraced = set() if done.document["result"]["plantings"] else {"trace_planted"}
    assert SABOTAGE.keys() - untraced <= failed
    assert "affinity" not in failed


def test_injected_gaps_are_found(probe: Probe) -> None:
    # Long enough that one in a hundred of the rarest would be seen to be missing.
    done = probe("selftest", "--injection-s", "12", timeout=200)
    found = done.document["result"]["injections"]
    assert {(each["mechanism"].split(",")[0], each["busy_ns"], each["period_ns"]) for each in found} == {
        (mechanism, busy_ns, period_ns)
        for mechanism in ("signal", "rival")
        for busy_ns, period_ns in ((5_000, 1_000_000), (20_000, 4_000_000), (200_000, 100_000_000))
    }
    for each in found:
        # The machine's own noise makes gaps longer and more of them, never shorter or fewer.
        assert 0 < each["injected"] <= 1.01 * 12e9 / each["period_ns"]
        assert each["in_gaps"] >= 0.99 * each["injected"], each
        assert each["alone"] <= each["injected"]
        if each["found_median_ns"]:
            assert each["found_median_ns"] + each["overhead_ns"] >= 0.99 * each["busy_ns"], each
        assert each["verdict"] != "missed", each
        assert (each["reason"] is None) == (each["verdict"] == "found")
        if each["verdict"] == "found":
            assert each["found_median_ns"] == pytest.approx(each["busy_ns"], rel=0.05)
            assert each["found_period_ns"] == pytest.approx(each["period_ns"], rel=0.01)
            assert each["found_period_gaps"] > 0


def test_aarch64_under_emulation(emulated_aarch64: Probe) -> None:
    assert_passed(emulated_aarch64)


@pytest.mark.parametrize("model", ["Nehalem", "Haswell", "max"])
def test_widths_of_other_processors(model: str, built_x86_64: BuiltKernel) -> None:
    done = Probe(emulator("x86_64"), "-cpu", model, str(built_x86_64.path))("info")
    widths = done.document["result"]["widths"]
    assert "sse2" in widths
    if model == "Nehalem":
        assert widths == ["sse2"], "a processor without AVX must not be given AVX2"


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_sanitized(sanitizer: Sanitizer, sanitized: Callable[[Sanitizer], Probe]) -> None:
    probe = sanitized(sanitizer)
    if sanitizer != "thread":
        assert_passed(probe)
        return
    done = probe("selftest", timeout=PATIENCE_S)
    failed = {case["name"] for case in done.document["result"]["cases"] if not case["passed"]}
    # This sanitizer holds signals back until the thread makes a call, so none arrives in a loop that makes no call.
    assert failed <= {"gap_injection", "gap_rival"}
    assert "ThreadSanitizer" not in done.stderr
