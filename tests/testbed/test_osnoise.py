# SPDX-License-Identifier: Apache-2.0
"""A kernel with the tracer osnoise accounts for gaps beside our events; its settings are as they were afterwards."""

import subprocess
from collections.abc import Callable

import pytest

from calibration.build import build
from tests.testbed.guest import Sut
from tests.testbed.support import Testbed
from tests.testbed.test_attribution import PROBE, traced_in

Scenario = Callable[[str, str, str, str], None]

TRACING = "/sys/kernel/tracing"
SETTINGS = f"cd {TRACING} && cat osnoise/options osnoise/cpus current_tracer && ls instances"
BUSY = f"{PROBE} jitter --cpus 1 --view gaps --gap-s 60 --attribute"


@pytest.fixture
def sut(testbed: Testbed) -> Sut:
    found = testbed.sut("realtime")
    with build("x86_64").path.open("rb") as binary:
        subprocess.run(found.ssh_command(f"cat >{PROBE} && chmod 755 {PROBE}"), stdin=binary, check=True)
    return found


def test_osnoise_accounts_for_the_gaps_that_events_tell(sut: Sut, scenario: Scenario) -> None:
    before = sut.read(SETTINGS)
    traced = traced_in(sut)
    assert "OSNOISE_WORKLOAD" in before.split()
    assert sut.read(SETTINGS) == before
    assert "osnoise" in traced.tracers.split()
    assert traced.osnoise_refused is None
    assert traced.osnoise is not None
    assert traced.view is not None
    assert traced.view.unreadable == 0
    classes = {item.kind: item for item in traced.osnoise}
    assert list(classes) == ["irq", "nmi", "softirq", "thread"]
    (timer,) = [name for name in classes["irq"].names if name.name == "local_timer"]
    (told,) = [cause for cause in traced.view.causes if cause.name == "local timer"]
    # Both count the same interrupts; one that ends within a microsecond of a gap's edge may be in one book alone.
    assert timer.count == pytest.approx(told.events, rel=0.05)
    assert classes["softirq"].count == 0  # with PREEMPT_RT these are threads
    assert {"ksoftirqd/1", "sutprobe"} & {name.name for name in classes["thread"].names} == {"ksoftirqd/1"}
    whole = sum(item.share or 0.0 for item in traced.osnoise)
    assert 0.0 < whole <= 1.0
    scenario(
        "a kernel with the tracer osnoise",
        "none",
        f"settings of osnoise; {timer.count} timer interrupts accounted, {told.events} traced",
        f"{whole:.0%} of the lost time accounted for; {traced.view.unexplained.share or 0:.0%} unexplained by events",
    )


@pytest.mark.parametrize("both", [False, True])
def test_settings_come_back_whoever_is_killed(sut: Sut, both: bool) -> None:
    before = sut.read(SETTINGS)
    killed = "$pid $(pgrep -P $pid)" if both else "$pid"
    after = f"{PROBE} jitter --cpus 1 --view gaps --gap-s 0.2 --attribute >/dev/null 2>&1;" if both else ""
    seen = sut.read(
        f"cd {TRACING}; {BUSY} >/dev/null 2>&1 & pid=$!; "
        "own=instances/sutprobe-$pid; "
        "for i in $(seq 300); do grep -q osnoise $own-osnoise/current_tracer && break; sleep 0.1; done; "
        f"cat osnoise/options; kill -KILL {killed}; wait $pid; {after}"
        "for i in $(seq 300); do [ -d $own ] || break; sleep 0.1; done"
    )
    assert "NO_OSNOISE_WORKLOAD" in seen
    assert sut.read(SETTINGS) == before


@pytest.mark.parametrize(
    ("used", "free", "said"),
    [
        (
            "mkdir instances/other && echo timerlat >instances/other/current_tracer",
            "echo nop >instances/other/current_tracer && rmdir instances/other",
            "instances/other",
        ),
        # Not osnoise, whose workload leaves an emulated guest without time.
        ("echo timerlat >current_tracer", "echo nop >current_tracer", "is in use"),
        ("echo NO_OSNOISE_WORKLOAD >osnoise/options", "echo DEFAULTS >osnoise/options", "is configured otherwise"),
        ("echo 0 >osnoise/cpus", "echo 0-1 >osnoise/cpus", "osnoise/cpus has '0'"),
    ],
)
def test_somebody_elses_osnoise_is_not_touched(sut: Sut, used: str, free: str, said: str) -> None:
    before = sut.read(SETTINGS)
    sut.read(f"cd {TRACING} && {used}")
    try:
        theirs = sut.read(SETTINGS)
        traced = traced_in(sut)
        assert sut.read(SETTINGS) == theirs
    finally:
        sut.read(f"cd {TRACING} && {free}")
    assert traced.osnoise is None
    assert traced.osnoise_refused is not None
    assert said in traced.osnoise_refused
    assert traced.view is not None
    assert sut.read(SETTINGS) == before
