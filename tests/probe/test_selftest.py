# SPDX-License-Identifier: Apache-2.0
"""Known answers, natively, on the other architecture, and under the sanitizers."""

import platform
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from calibration.build import SOURCES_DIRECTORY, TARGETS
from calibration.sutprobe.document import read_document, read_result
from tests.probe.conftest import Finished, Probe
from tests.probe.sanitized import SELFTEST, Sanitizer, link, program
from tests.probe.selftest_build import build_selftest
from tests.probe_results import SelftestCase, SelftestResult
from tests.tools import emulator, require

SHORT = ("--injection-s", "0.5")
"""Of the longest period injected five are enough where what is asked is whether the code runs at all."""

CASES = {
    "clock", "instructions", "chain", "interleave", "large_chain", "gap_books", "gap_injection", "gap_injector",
    "trace_planted", "core_work", "kernels", "affinity", "placement", "generator",
}  # fmt: skip

PATIENCE_S = 400
"""All cases take about a minute in the slowest build on a quiet machine."""


def cases_of(done: Finished) -> tuple[SelftestCase, ...]:
    return read_result(read_document(done.document), SelftestResult).cases


def undone(done: Finished) -> Mapping[str, str]:
    """Return the codes of the errors of cases that have not passed."""
    assert {case.name for case in cases_of(done)} == CASES
    return {case.name: case.error.code for case in cases_of(done) if case.error}


@pytest.fixture(scope="module")
def native_run(selftest: Probe) -> Finished:
    """All cases, natively."""
    return selftest("selftest", timeout=PATIENCE_S)


def test_an_unknown_case_is_refused(selftest: Probe) -> None:
    done = selftest("selftest", "--case", "nothing")
    assert done.code == 2
    assert "no case 'nothing'" in done.document["error"]["message"]


def test_native(native_run: Finished) -> None:
    """Where a machine's clocks cannot be read closely enough, only that is no fault, and a warning says so."""
    (case,) = [case for case in cases_of(native_run) if case.name == "clock"]
    warned = {warning["code"] for warning in native_run.document["warnings"]}
    known = native_run.document["clock"]["hz_uncertainty_ppm"] <= 10
    assert known == ("CLOCK_UNCERTAIN" not in warned)
    assert case.note
    assert undone(native_run) == ({} if known else {"clock": "unsupported"}), native_run.document["result"]
    assert native_run.code == (0 if known else 3)


def test_cases_without_memory_are_reported_and_the_others_pass(selftest: Probe) -> None:
    """With address space for little, cases that need more cannot be asked: exit 3, and the others pass."""
    limiter = require("util-linux", "prlimit")
    done = Probe(limiter, "--as=12000000", *selftest.command)("selftest", *SHORT)
    assert done.code == 3
    assert done.document["error"]["code"] == "no_memory"
    assert done.document["error"]["message"].startswith("case ")
    assert set(undone(done).values()) == {"no_memory"}
    assert "gap_injection" in undone(done)
    assert "chain" not in undone(done)


SABOTAGE = {
    "chain": ("chain.c", "random_below(random, i)", "random_below(random, i + 1)"),
    "clock": ("clock.c", "clock_now_used.hz = ticks * 1e9 /", "clock_now_used.hz = 1.0001 * ticks * 1e9 /"),
    "gap_injection": ("gaps.c", "\tgaps->count++;\n", "\tif (++gaps->count % 7 == 3)\n\t\treturn;\n"),
    "gap_injector": ("gaps.c", "gaps_record(gaps, previous, step);", "gaps_record(gaps, previous, step - step / 3);"),
    "kernels": ("arch/streams.h", "VECTOR_TRIAD(VECTOR_LOAD(b + place), VECTOR_LOAD(a + place)",
                "VECTOR_TRIAD(VECTOR_LOAD(a + place), VECTOR_LOAD(b + place)"),
    "trace_planted": ("causes.c", "\tcause->now_events++;\n\t/*", "\tcause->now_events += reader->depth > 0;\n\t/*"),
}  # fmt: skip
"""By case: a file, what it says, and a fault.

A split cycle, a wrong rate, lost or short gaps, a wrong array, threads lost.
"""


def test_a_fault_is_found_by_its_case(tmp_path: Path) -> None:
    copy = tmp_path / "probe"
    shutil.copytree(SOURCES_DIRECTORY, copy)
    files = {copy / "arch/x86_64/streams_sse2.c", *SELFTEST.glob("*.c")}
    for name, right, wrong in SABOTAGE.values():
        text = (copy / name).read_text(encoding="utf-8")
        assert right in text, f"{name} no longer says {right!r}"
        (copy / name).write_text(text.replace(right, wrong, 1), encoding="utf-8")
        files.add(copy / name)
    faulty = Probe(str(link("address", tmp_path / "sutprobe", sorted(file for file in files if file.suffix == ".c"))))
    for case in SABOTAGE:
        done = faulty("selftest", "--case", case, *SHORT, timeout=PATIENCE_S)
        if case == "trace_planted" and not done.document["result"]["plantings"]:
            continue  # nothing is planted where the kernel cannot be traced
        assert done.document["error"]["code"] == "check_failed", case
    assert faulty("selftest", "--case", "affinity").code == 0


def test_injected_gaps_are_found(native_run: Finished) -> None:
    found = native_run.document["result"]["injections"]
    assert {(item["mechanism"].split(",")[0], item["busy_ns"], item["period_ns"]) for item in found} == {
        (mechanism, busy_ns, period_ns)
        for mechanism in ("signal", "injector")
        for busy_ns, period_ns in ((5_000, 1_000_000), (20_000, 4_000_000), (200_000, 100_000_000))
    }
    for item in found:
        # The machine's own noise makes gaps longer and more of them, never shorter or fewer.
        assert 0 < item["injected"] <= 1.01 * 2e9 / item["period_ns"]
        assert item["in_gaps"] >= 0.99 * item["injected"], item
        assert item["alone"] <= item["injected"]
        if item["found_median_ns"]:
            assert item["found_median_ns"] + item["overhead_ns"] >= 0.99 * item["busy_ns"], item
        assert item["verdict"] != "missed", item
        assert (item["reason"] is None) == (item["verdict"] == "found")
        if item["verdict"] == "found":
            assert item["found_median_ns"] == pytest.approx(item["busy_ns"], rel=0.05)
            assert item["found_period_ns"] == pytest.approx(item["period_ns"], rel=0.01)
            assert item["found_period_gaps"] > 0


@pytest.mark.parametrize("target", [target for target in TARGETS if target != platform.machine()])
def test_other_architectures_under_emulation(target: str, tmp_path: Path) -> None:
    program = build_selftest(tmp_path / "sutprobe", target)
    done = Probe(emulator(target), str(program))("selftest", *SHORT, timeout=PATIENCE_S)
    assert undone(done).keys() <= {"clock"}
    assert set(undone(done).values()) <= {"unsupported"}


def test_sanitized(sanitizer: Sanitizer) -> None:
    done = Probe(str(program(sanitizer, SELFTEST)))("selftest", *SHORT, timeout=PATIENCE_S)
    # The thread sanitizer holds signals back until the thread makes a call, so none arrives in a loop without calls.
    allowed = {"gap_injection", "gap_injector"} if sanitizer == "thread" else set()
    assert {name for name, code in undone(done).items() if (name, code) != ("clock", "unsupported")} <= allowed
    assert not re.search("Sanitizer|runtime error", done.stderr)
