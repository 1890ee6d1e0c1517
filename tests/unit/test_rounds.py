# SPDX-License-Identifier: Apache-2.0
"""Documents of several rounds are read as one: all placements, each with its round, and nothing smoothed over."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from calibration.base.errors import InputError
from calibration.measurements.evidence import beside, estimate_of, evidence_flags
from calibration.sutprobe.bandwidth import BandwidthResult
from calibration.sutprobe.c2c import C2cResult
from calibration.sutprobe.document import ProbeDocument, Surroundings, read_document, read_result
from calibration.sutprobe.frequency import FrequencyResult
from calibration.sutprobe.latency import LatencyResult
from calibration.sutprobe.loaded import LoadedResult
from calibration.sutprobe.volume import VolumeResult
from tests.rounds import in_rounds

FIXTURES = Path(__file__).parents[1] / "fixtures" / "sutprobe"


def recorded(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FIXTURES / f"{name}.json").read_text(encoding="utf-8"))
    return found


def merged(documents: list[dict[str, Any]], around: Surroundings | None = None) -> ProbeDocument:
    rounds = [(number, read_document(document), around) for number, document in enumerate(documents, 1)]
    return ProbeDocument.merged(rounds)


@pytest.mark.parametrize(
    ("name", "model"),
    [("idle_latency", LatencyResult), ("peak_injection_bandwidth", BandwidthResult), ("loaded_latency", LoadedResult)],
)
def test_every_placement_of_every_point_is_kept_with_its_round(name: str, model: Any) -> None:
    raw = recorded(name)
    found = read_result(merged(in_rounds(raw, 6)), model)
    assert len(found.points) == len(raw["result"]["points"])
    for point, printed in zip(found.points, raw["result"]["points"], strict=True):
        assert [placement.round for placement in point.placements] == [1, 2, 3, 4, 5, 6]
        seeds = [placement["seed"] for placement in printed["placements"]]
        assert [placement.seed for placement in point.placements] == [seeds[n % len(seeds)] for n in range(6)]


def test_cells_of_a_matrix_keep_their_rounds_and_evidence() -> None:
    raw = recorded("c2c_matrix")
    found = read_result(merged([raw, raw, raw]), C2cResult)
    for cell, printed in zip(found.cells, raw["result"]["cells"], strict=True):
        count = len(printed["placements"])
        assert cell.rounds == (*[1] * count, *[2] * count, *[3] * count)
        assert len(cell.placements) == 3 * count
        assert len(cell.all_evidence) == 3
    switches = raw["result"]["interference"]["involuntary_switches"]
    assert found.interference.involuntary_switches == 3 * switches


def test_clocks_of_several_rounds_are_one_point_with_the_worst_proof() -> None:
    raw = recorded("core_frequency")
    other = copy.deepcopy(raw)
    other["result"]["points"][0]["cpu_verified"] = False
    other["result"]["points"][1]["error"] = {"code": "interrupted", "message": "told to end"}
    found = read_result(merged([raw, other]), FrequencyResult)
    assert not found.points[0].cpu_verified
    assert [len(point.rounds) for point in found.points] == [2, 1, *[2] * (len(found.points) - 2)]
    assert found.points[1].error is None


def test_a_point_without_a_value_in_one_round_has_that_of_the_others_and_says_so() -> None:
    rounds = in_rounds(recorded("peak_injection_bandwidth"), 6)
    lost = rounds[2]["result"]["points"][0]
    lost |= {"placements": None, "stopped": None, "error": {"code": "no_memory", "message": "12 MiB too few"}}
    document = merged(rounds)
    points = read_result(document, BandwidthResult).points
    assert [placement.round for placement in points[0].placements] == [1, 2, 4, 5, 6]
    assert points[0].error is None
    (flag,) = [flag for flag in evidence_flags(document, points) if flag.code == "PARTIAL"]
    assert flag.reason == f"1 of {len(points)} points lack rounds, first: no_memory: 12 MiB too few"


@pytest.mark.parametrize("code", ["cpu_left", "pin_failed"])
def test_a_clock_of_another_cpu_in_one_round_is_no_clock(code: str) -> None:
    raw = recorded("core_frequency")
    other = copy.deepcopy(raw)
    other["result"]["points"][0] |= {"windows_hz": None, "error": {"code": code, "message": "CPU 3"}}
    first, second, *_ = read_result(merged([raw, other, raw]), FrequencyResult).points
    assert (first.windows_hz, first.error.code) == (None, code)
    assert second.error is None


def test_a_clock_missing_in_one_round_is_flagged() -> None:
    raw = recorded("core_frequency")
    other = copy.deepcopy(raw)
    other["result"]["points"][0] |= {"windows_hz": None, "error": {"code": "internal", "message": "no thread"}}
    (first, *_) = read_result(merged([raw, other]), FrequencyResult).points
    assert [error.message for error in first.lost] == ["no thread"]


@pytest.mark.parametrize("code", ["placement_wrong", "cpu_left", "pin_failed", "bind_failed"])
def test_a_point_measured_elsewhere_in_one_round_has_no_value(code: str) -> None:
    rounds = in_rounds(recorded("idle_latency"), 6)
    rounds[4]["result"]["points"][0] |= {"placements": None, "error": {"code": code, "message": "node 1"}}
    (point,) = read_result(merged(rounds), LatencyResult).points
    assert (point.placements, point.error.code) == (None, code)


def test_what_is_not_proved_in_one_round_is_not_proved() -> None:
    rounds = in_rounds(recorded("idle_latency"), 6)
    rounds[4]["result"]["points"][0]["chain_proved"] = False
    (point,) = read_result(merged(rounds), LatencyResult).points
    assert not point.chain_proved
    failed = point.order_check.model_dump() | {"jumps": 7, "passed": False}
    for number in (0, 5):
        rounds = in_rounds(recorded("idle_latency"), 6)
        rounds[number]["result"]["points"][0]["order_check"] = failed
        (point,) = read_result(merged(rounds), LatencyResult).points
        assert (point.order_check.jumps, point.order_check.passed) == (7, False)
    traffic = in_rounds(recorded("peak_injection_bandwidth"), 6)
    traffic[5]["result"]["points"][0]["checked"] = False
    assert not read_result(merged(traffic), BandwidthResult).points[0].checked


def test_a_point_twice_in_one_round_is_refused() -> None:
    rounds = in_rounds(recorded("idle_latency"), 2)
    rounds[1]["result"]["points"] *= 2
    with pytest.raises(InputError, match="the same point appears twice"):
        read_result(merged(rounds), LatencyResult)


def test_a_nonsense_round_is_refused() -> None:
    rounds = in_rounds(recorded("idle_latency"), 3)
    rounds[1]["result"]["points"][0]["cpu"] = "one"
    with pytest.raises(InputError, match="not in its schema"):
        read_result(merged(rounds), LatencyResult)


def test_what_is_measured_once_is_not_merged() -> None:
    raw = recorded("counted_volume")
    with pytest.raises(InputError, match="is to be measured once"):
        read_result(merged([raw, raw]), VolumeResult)


def test_the_envelope_has_the_time_of_all_rounds_and_all_warnings() -> None:
    rounds = in_rounds(recorded("idle_latency"), 3)
    rounds[1]["warnings"] = [{"code": "CPU_QUOTA", "message": "stopped in 3 periods"}]
    rounds[2]["clock"]["hz_uncertainty_ppm"] = 9.0
    rounds[0]["started_at_unix_ns"] += 10**9
    document = merged(rounds)
    assert document.duration_s == pytest.approx(3 * rounds[0]["duration_s"])
    assert "CPU_QUOTA" in {warning.code for warning in document.warnings}
    assert document.clock is not None
    assert document.clock.hz_uncertainty_ppm == 9.0
    assert document.started_at_unix_ns == rounds[1]["started_at_unix_ns"]


def test_what_went_with_a_figure_over_the_rounds_is_named() -> None:
    rounds = in_rounds(recorded("idle_latency"), 6)
    documents = []
    for number, raw in enumerate(rounds, 1):
        (placement,) = raw["result"]["points"][0]["placements"]
        placement["windows_ns"] = [100.0 + 10 * number] * len(placement["windows_ns"])
        placement |= {"core_hz_before": 3e9, "core_hz_after": 3e9}
        around = Surroundings(temperature_c=40.0 + number, running=3.0, steal_s=None)
        documents.append((number, read_document(raw), around))
    (point,) = read_result(ProbeDocument.merged(documents), LatencyResult).points
    found = estimate_of(point.placements, lambda placement: placement.windows_ns, "ns", 0.01)
    (flag,) = [flag for flag in found.flags if flag.code == "NOT_STATIONARY"]
    assert "110 in the first to 160 in the last; with it changed the temperature in °C from 41 to 46" in flag.reason
    assert "clock" not in flag.reason
    assert beside(point.placements)["rounds"] == [1, 2, 3, 4, 5, 6]
