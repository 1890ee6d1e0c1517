# SPDX-License-Identifier: Apache-2.0
"""Synthetic results of tracing."""

from typing import Any

from calibration.sutprobe.tracing import GapTotals, TracedCause, TracedRest, TracedView, Unexplained


def cause(kind: str, name: str, function: str | None = None, **changed: Any) -> TracedCause:
    fields: dict[str, Any] = {
        "kind": kind, "name": name, "function": function, "irq": None, "pid": None, "events": 100, "gaps": 100,
        "owned": 50, "total_ns": 1e6, "longest_ns": 2e4, "share": 0.2,
    }  # fmt: skip
    return TracedCause.model_validate(fields | changed)


def view(*causes: TracedCause, unexplained: float = 0.0, smi: int | None = None) -> TracedView:
    totals = GapTotals(wall_s=1.0, gaps=100, rate_per_s=100.0, lost_fraction=0.005, mean_ns=5e4)
    return TracedView(
        clock="x86-tsc",
        kinds_of_events=30,
        lines=1000,
        unreadable=0,
        lost_events=0,
        with_tracing=totals,
        without_tracing=totals,
        explained_gaps=100,
        explained_ns=5e6,
        causes=causes,
        edges=TracedRest(gaps=100, total_ns=1e5, longest_ns=2e3, share=0.02),
        unexplained=Unexplained(
            gaps=5, total_ns=5e6 * unexplained, longest_ns=1e5, share=unexplained, without_events=5
        ),
        steal_ms=None,
        smi=smi,
    )
