# SPDX-License-Identifier: Apache-2.0
"""Flags from a document and a context: the machine, errors, and page placement."""

import json
from pathlib import Path
from typing import Any

import pytest

from calibration.base.flags import FLAG_OF_ERROR, FLAGS
from calibration.context.model import Context
from calibration.measurements.evidence import (
    PagesProof,
    document_flags,
    missing_part,
    pages_proof,
    refusal,
    step_refusal,
)
from calibration.measurements.sut import emulation_flags, machine_flags
from calibration.sutprobe.document import ProbeDocument, ProbeError, read_document
from tests.captures import captured

FIXTURES = Path(__file__).parent.parent / "fixtures"
TWO_NODES = captured("x86_64-two-nodes-smt")
ISOLATED = captured("x86_64-isolated")
AARCH64 = captured("aarch64-four-nodes")


def raw(**changes: Any) -> dict[str, Any]:
    """Return a recorded document with *changes*."""
    document = json.loads((FIXTURES / "sutprobe" / "idle_latency.json").read_text(encoding="utf-8"))
    return {**document, **changes}


def document(*, hypervisor: str | None = None, **changes: Any) -> ProbeDocument:
    made = raw(**changes)
    return read_document({**made, "host": {**made["host"], "hypervisor": hypervisor}})


def machine(context: Context, said: ProbeDocument) -> dict[str, str]:
    return {flag.code: flag.reason for flag in (*emulation_flags(context, said), *machine_flags(context))}


def test_emulator_by_cpuid() -> None:
    assert "EMULATED" not in machine(TWO_NODES, document())
    found = machine(TWO_NODES, document(hypervisor="TCGTCGTCGTCG"))
    assert "'TCGTCGTCGTCG'" in found["EMULATED"]
    assert "EMULATED" not in machine(TWO_NODES, document(hypervisor="KVMKVMKVM"))


def test_emulator_by_processor_name() -> None:
    models = [model.model_copy(update={"name": "QEMU TCG CPU version 2.5+"}) for model in TWO_NODES.processor.models]
    named = TWO_NODES.model_copy(update={"processor": TWO_NODES.processor.model_copy(update={"models": tuple(models)})})
    assert "TCG CPU" in machine(named, document())["EMULATED"]


def test_aarch64_emulator_by_implementer() -> None:
    models = [model.model_copy(update={"vendor": "implementer 0x00"}) for model in AARCH64.processor.models]
    made = AARCH64.model_copy(update={"processor": AARCH64.processor.model_copy(update={"models": tuple(models)})})
    assert "implementer is 0" in machine(made, document())["EMULATED"]


def clock(hz: float) -> dict[str, Any]:
    return {**raw()["clock"], "source": "cntvct", "hz": hz}


@pytest.mark.parametrize(("hz", "emulated"), [(62.5e6, True), (62.51e6, True), (1.0e9, False), (54.0e6, False)])
def test_aarch64_emulator_by_counter_rate(hz: float, emulated: bool) -> None:
    assert AARCH64.virtualization.vendor == "QEMU"
    assert ("EMULATED" in machine(AARCH64, document(clock=clock(hz)))) is emulated
    bare = AARCH64.virtualization.model_copy(update={"guest": False, "vendor": None})
    assert "EMULATED" not in machine(AARCH64.model_copy(update={"virtualization": bare}), document(clock=clock(hz)))


def seen_by(context: Context, *cpus: int) -> Context:
    """Return *context* as a login sees it that may use *cpus*."""
    return context.model_copy(update={"cpus": context.cpus.model_copy(update={"allowed": cpus})})


def test_flags_cpus_that_the_login_may_not_use() -> None:
    online = TWO_NODES.online_cpus
    assert "CPUS_HIDDEN" not in machine(TWO_NODES, document())
    found = machine(seen_by(TWO_NODES, *online[:2]), document())
    assert f"6 of {len(online)} CPUs" in found["CPUS_HIDDEN"]
    assert "(2-7)" in found["CPUS_HIDDEN"]


def test_isolated_cpus_are_not_hidden_unless_something_else_is() -> None:
    isolated = set(ISOLATED.isolated_cpus)
    others = tuple(cpu for cpu in ISOLATED.online_cpus if cpu not in isolated)
    assert isolated
    assert "CPUS_HIDDEN" not in machine(seen_by(ISOLATED, *others), document())
    assert seen_by(ISOLATED, *others[:1]).usable_cpus == {others[0]}


@pytest.mark.parametrize(("error", "code"), sorted(FLAG_OF_ERROR.items()))
def test_sutprobe_errors_become_flags(error: str, code: str) -> None:
    found = refusal(ProbeError(code=error, message="8 of 8 elsewhere"))
    assert found is not None
    assert (found.code, found.severity, found.reason) == (code, FLAGS[code].severity, "8 of 8 elsewhere")
    part = missing_part("0@1", ProbeError(code=error, message="8 of 8 elsewhere"))
    assert (part.flag, part.reason) == (found, f"{error}: 8 of 8 elsewhere")


@pytest.mark.parametrize("error", ["unsupported", "no_memory", "deadline", "check_failed"])
def test_other_errors_have_no_flag(error: str) -> None:
    assert refusal(ProbeError(code=error, message="")) is None


def failed(code: str, *warned: str) -> ProbeDocument:
    warnings = [{"code": item, "message": f"{item} was seen"} for item in warned]
    return document(status="failed", error={"code": code, "message": "no"}, warnings=warnings, result=None)


def test_failed_step_has_the_flag() -> None:
    throttled = step_refusal(failed("unsupported", "INTERFERENCE_UNREADABLE", "RT_THROTTLE_POSSIBLE"))
    assert throttled is not None
    assert (throttled.code, throttled.reason) == ("RT_THROTTLE_POSSIBLE", "RT_THROTTLE_POSSIBLE was seen")
    moved = step_refusal(failed("placement_wrong", "HUGEPAGE_EXHAUSTED"))
    assert moved is not None
    assert moved.code == "PLACEMENT_WRONG"
    assert step_refusal(failed("deadline")) is None
    assert step_refusal(document()) is None


def test_warnings_become_flags() -> None:
    warnings = [
        {"code": "HUGEPAGE_EXHAUSTED", "message": "node 1 has too few"},
        {"code": "INTERFERENCE_UNREADABLE", "message": "x"},
    ]
    assert [(flag.code, flag.severity) for flag in document_flags(document(warnings=warnings))] == [
        ("HUGEPAGE_EXHAUSTED", "warn")
    ]


def test_pages_of_all_buffers_are_summed() -> None:
    made = raw()
    placements = made["result"]["points"][0]["placements"]
    for number, placement in enumerate(placements):
        placement["pages"] = {**placement["pages"], "total": 512, "checked": 512, "on_node": 512 - (number == 0)}
    count = sum(len(point["placements"]) for point in made["result"]["points"])
    assert count == len(placements)
    proof = pages_proof(read_document(made))
    assert proof == PagesProof(buffers=count, total=512 * count, checked=512 * count, on_node=512 * count - 1)


def test_no_buffers_no_page_proof() -> None:
    jitter = json.loads((FIXTURES / "sutprobe" / "jitter.json").read_text(encoding="utf-8"))
    assert pages_proof(read_document(jitter)) is None
    assert pages_proof(failed("deadline")) is None
