# SPDX-License-Identifier: Apache-2.0
"""What sutprobe prints of hardware counters and of sampled loads is read strictly, wherever it may stand."""

import copy
import json
from pathlib import Path
from typing import Any, Final

import pytest
from pydantic import ValidationError

from calibration.base.model import Model
from calibration.sutprobe.bandwidth import BandwidthResult
from calibration.sutprobe.counters import Counters, Samples
from calibration.sutprobe.document import read_document, read_result
from calibration.sutprobe.latency import LatencyResult

FIXTURES: Final = Path(__file__).resolve().parents[1] / "fixtures" / "sutprobe"

EVENT: Final[dict[str, Any]] = {
    "name": "dram.reads", "pmus": ["uncore_imc_0", "uncore_imc_1"], "cpu": 0, "threads": None, "count": 123456,
    "scaled": 123456.0, "running_fraction": 1.0, "wall_s": 0.912, "wall_uncertainty_s": 1e-5, "steps": 1.5e7,
    "hops": None, "background_count": 1234.0, "background_wall_s": 1.0,
}  # fmt: skip
REFUSED: Final[dict[str, Any]] = {
    "name": "core.cycles",
    "pmu": "hardware",
    "cpu": None,
    "errno": "ENOENT",
    "reason": "this machine has no counters of the core",
}
COUNTERS: Final[dict[str, Any]] = {"background_s": 1.0, "events": [EVENT], "refused": [REFUSED]}
SAMPLES: Final[dict[str, Any]] = {
    "method": "pebs",
    "period": 1009,
    "taken": 100,
    "lost": 0,
    "kept": 97,
    "reasons": {"TLB miss": 3},
    "latency_cycles": {"mean": 301.5, "median": 299, "p10": 280, "p90": 330, "min": 270, "max": 900},
    "histogram": [{"from_cycles": 256, "count": 97}],
    "refused": None,
}


def load(model: type[Model], raw: dict[str, Any]) -> Model:
    """Read a part of a document as it is read from one."""
    return model.model_validate_json(json.dumps(raw))


@pytest.mark.parametrize(("model", "raw"), [(Counters, COUNTERS), (Samples, SAMPLES)])
def test_reads_exactly_the_printed_fields(model: type[Model], raw: dict[str, Any]) -> None:
    assert json.loads(load(model, raw).model_dump_json()) == raw
    for key in raw:
        with pytest.raises(ValidationError, match=key):
            load(model, {name: value for name, value in raw.items() if name != key})
    with pytest.raises(ValidationError, match="more"):
        load(model, {**raw, "more": 1})


def test_unknown_count_stays_none() -> None:
    counters = load(Counters, {**COUNTERS, "background_s": None, "events": [{**EVENT, "scaled": None}]})
    assert isinstance(counters, Counters)
    assert counters.events[0].scaled is None
    assert counters.background_s is None


@pytest.mark.parametrize(
    ("fixture", "model"), [("idle_latency", LatencyResult), ("bandwidth_scaling", BandwidthResult)]
)
def test_placements_may_carry_counters_and_samples(
    fixture: str, model: type[LatencyResult] | type[BandwidthResult]
) -> None:
    raw = json.loads((FIXTURES / f"{fixture}.json").read_text(encoding="utf-8"))
    before = read_result(read_document(raw), model)
    assert all(placement.counters is None for point in before.points for placement in point.placements or ())
    with_both = copy.deepcopy(raw)
    for point in with_both["result"]["points"]:
        for placement in point["placements"]:
            placement.update(counters=COUNTERS, samples=SAMPLES)
    after = read_result(read_document(with_both), model)
    placement = (after.points[0].placements or ())[0]
    assert placement.counters is not None
    assert placement.counters.events[0].pmus == ("uncore_imc_0", "uncore_imc_1")
    assert placement.samples is not None
    assert placement.samples.kept == 97
