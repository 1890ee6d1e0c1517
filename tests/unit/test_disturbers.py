# SPDX-License-Identifier: Apache-2.0
"""What took the time of a CPU: by a trace, else by counters, else unknown."""

import pytest

from calibration.measurements.disturbers import Loss, interruptions, losses
from calibration.sutprobe.attribution import Attribution, GapSource
from calibration.sutprobe.document import read_document, read_result
from calibration.sutprobe.jitter import LongGap
from calibration.sutprobe.jitter_rounds import JitterResult
from calibration.sutprobe.tracing import GapCause, TracedGap
from tests.recorded import read
from tests.report.traced import cause, view


def by_cause(found: tuple[Loss, ...]) -> dict[str, float]:
    return {loss.cause: loss.share for loss in found}


def source(name: str, kind: str, count: float = 100.0, lost_ns: float | None = None) -> GapSource:
    fields = {"source": name, "kind": kind, "count": count, "explained_lost_ns": lost_ns}
    return GapSource.model_validate({**fields, "rate_per_s": 1.0, "explained_gaps": None, "reason": None})


def counted(*sources: GapSource, lost_ns: float = 1e8) -> Attribution:
    rest = lost_ns - sum(item.explained_lost_ns or 0 for item in sources)
    return Attribution(
        slices=100, slice_s=0.1, gaps=1000, lost_ns=lost_ns, sources=sources, unattributed_gaps=0.0,
        unattributed_lost_ns=rest, unattributed_share=0.0, unattributed_lost_share=rest / lost_ns,
    )  # fmt: skip


@pytest.mark.parametrize(("guest", "rest"), [(True, "hypervisor"), (False, "firmware"), (None, "unknown")])
def test_a_trace_leaves_firmware_or_the_hypervisor(guest: bool | None, rest: str) -> None:
    found = view(cause("timer", "hrtimer", "tick_nohz_handler", share=0.4), cause("task", "evil", share=0.3),
                 cause("work", "kworker/1:2", "vmstat_update", share=0.1), unexplained=0.18)  # fmt: skip
    shares = by_cause(losses(0.01, traced=found, counted=counted(), guest=guest))
    assert shares == pytest.approx({"thread": 0.004, "local timer": 0.004, rest: 0.0018, "kernel entry": 0.0002})
    (thread,) = (loss for loss in losses(0.01, traced=found, counted=None, guest=guest) if loss.cause == "thread")
    assert thread.names == ("evil", "vmstat_update")


def test_counters_leave_what_they_do_not_explain() -> None:
    found = counted(source("LOC", "interrupt", lost_ns=4e7), source("36", "interrupt", lost_ns=1e7),
                    source("CAL", "interrupt", lost_ns=1e7), source("steal", "steal", count=10.0),
                    source("involuntary switches", "switch", lost_ns=1e7))  # fmt: skip
    shares = by_cause(losses(0.01, traced=None, counted=found, guest=True))
    wanted = {"local timer": 0.004, "unknown": 0.002}
    assert shares == pytest.approx(
        wanted | dict.fromkeys(("device interrupt", "other interrupt", "hypervisor", "thread"), 0.001)
    )
    assert next(iter(shares)) == "local timer"


def test_stolen_time_is_no_more_than_what_is_left() -> None:
    found = counted(source("LOC", "interrupt", lost_ns=9e7), source("steal", "steal", count=1e6))
    shares = by_cause(losses(0.01, traced=None, counted=found, guest=True))
    assert shares == pytest.approx({"local timer": 0.009, "hypervisor": 0.001})


def test_without_trace_and_counters_all_is_unknown() -> None:
    assert losses(0.01, traced=None, counted=None, guest=False) == (Loss("unknown", 0.01, ()),)
    assert losses(0.0, traced=None, counted=counted(lost_ns=1e-9), guest=False) == ()


def test_interruptions_have_causes_only_where_the_kernel_was_traced() -> None:
    untraced = [LongGap(at_ns=1e9, length_ns=5e6)]
    (found,) = interruptions(3, untraced, None, guest=False)
    assert (found.cpu, found.at_ns, found.length_ns, found.cause) == (3, 1e9, 5e6, "unknown")
    assert [item.cause for item in interruptions(3, untraced, view(), guest=False)] == ["unknown"]
    gaps = (
        TracedGap(at_ns=2e9, length_ns=4e6, cause=GapCause(kind="interrupt", name="eth0", function=None)),
        TracedGap(at_ns=1e9, length_ns=3e6, cause=None),
    )
    traced = view().model_copy(update={"longest": gaps})
    known = [(item.cause, item.name) for item in interruptions(3, untraced, traced, guest=True)]
    assert known == [("device interrupt", "eth0"), ("hypervisor", "")]


def test_a_recorded_trace_names_who_interrupted_longest() -> None:
    (cpu,) = read_result(read_document(read("traced/jitter")), JitterResult).cpus
    assert cpu.gaps is not None
    assert cpu.gaps.traced is not None
    traced = cpu.gaps.traced.view
    assert traced is not None
    found = list(interruptions(cpu.cpu, cpu.gaps.longest, traced, guest=True))
    assert {item.cause for item in found} == {"thread", "local timer", "hypervisor"}
    assert {item.name for item in found} - {""} <= {one.name for one in traced.causes}
    lengths = [item.length_ns for item in found]
    assert lengths == sorted(lengths, reverse=True)
    assert sum(lengths) < traced.explained_ns
    assert max(item.at_ns for item in found) < traced.with_tracing.wall_s * 1e9
