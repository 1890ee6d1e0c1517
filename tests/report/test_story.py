# SPDX-License-Identifier: Apache-2.0
"""The first screen of a page."""

from calibration.base import units
from calibration.measurements.firmware import FirmwareValues
from calibration.measurements.wakeup import WakeupValues
from calibration.report.story import MAX_FINDINGS, Tile, story
from calibration.results.model import RunDocument, Verdict
from tests.report.report_documents import flagged, index_of


def tiles(document: RunDocument) -> dict[str, Tile]:
    return {tile.title: tile for tile in story(document).tiles}


def limited(document: RunDocument, name: str, lower: float | None, upper: float | None, outcome: str) -> RunDocument:
    metric = next(figure.metric for figure in document.record if figure.metric.name == name)
    verdict = Verdict(
        name=name, measurement="latency_matrix", metric=metric, lower=lower, upper=upper, outcome=outcome, reason=""
    )
    return document.model_copy(update={"verdicts": (verdict,)})


def test_the_tiles_are_the_metrics_of_record(document: RunDocument) -> None:
    found = tiles(document)
    assert {"Idle latency", "Read bandwidth", "Under load", "L1/L2", "Longest gap", "Core clock"} <= found.keys()
    idle = document.record[0]
    assert found["Idle latency"].value.split()[0] == f"{idle.metric.value:.0f}"
    assert found["Idle latency"].trust == idle.trust
    assert found["Longest gap"].plus_minus is None


def test_a_tile_says_of_its_own_cpu_whether_it_is_isolated(document: RunDocument) -> None:
    """A login outside of a cpuset partition measures others than the isolated CPUs."""
    assert document.context is not None
    assert document.context.parsed is not None
    parsed = document.context.parsed
    for isolated, said in (((1,), "CPU 1, isolated"), ((0,), "CPU 1, not isolated")):
        isolation = parsed.isolation.model_copy(update={"isolated": (), "cpuset_isolated": isolated})
        context = document.context.model_copy(update={"parsed": parsed.model_copy(update={"isolation": isolation})})
        assert tiles(document.model_copy(update={"context": context}))["Longest gap"].extra == said


def test_a_machine_whose_isolated_cpus_were_not_measured_is_not_said_to_have_none(document: RunDocument) -> None:
    assert document.context is not None
    assert document.context.parsed is not None
    parsed = document.context.parsed
    for isolated, said in (
        ((), "No CPU is isolated: CPU 1 loses"),
        ((0,), "No isolated CPU was measured: CPU 1 loses"),
    ):
        isolation = parsed.isolation.model_copy(update={"isolated": isolated, "cpuset_isolated": ()})
        context = document.context.model_copy(update={"parsed": parsed.model_copy(update={"isolation": isolation})})
        findings = story(document.model_copy(update={"context": context})).findings
        assert any(said in finding for finding in findings), findings


def test_idle_wake_ups_and_the_firmware_have_a_tile(document: RunDocument) -> None:
    found = tiles(document)
    (idle,) = (
        values
        for item in document.measurements
        if isinstance(values := item.values, WakeupValues) and values.condition == "idle"
    )
    assert found["Latest wake-up"].value == units.time_ns(idle.max_ns)
    assert found["Latest wake-up"].extra == "median 33.2 µs, CPU 1, not isolated"
    index = index_of(document, "firmware")
    assert found["Firmware gap"].extra == "614871 per hour, interrupts off"
    seen = document.measurements[index].values
    assert isinstance(seen, FirmwareValues)
    none = [cpu.model_copy(update={"gaps": 0, "max_gap_ns": None}) for cpu in seen.cpus]
    quiet = seen.model_copy(update={"cpus": tuple(none), "max_gap_ns": seen.threshold_ns})
    found = tiles(with_values(document, index, quiet))
    assert (found["Firmware gap"].value, found["Firmware gap"].extra) == (
        "10.0 µs",
        "none longer in 15.7 s, interrupts off",
    )
    refused = {"instrument": None, "observed_s": None, "rate_per_hour": None, "max_gap_ns": None}
    assert "Firmware gap" not in tiles(with_values(document, index, seen.model_copy(update=refused)))


def with_values(document: RunDocument, index: int, values: FirmwareValues) -> RunDocument:
    measurements = list(document.measurements)
    measurements[index] = measurements[index].model_copy(update={"values": values})
    return document.model_copy(update={"measurements": tuple(measurements)})


def test_a_complete_run_says_how_many_are_on_target(document: RunDocument) -> None:
    screen = story(document)
    assert f"of {len(document.measurements)} measurements" in screen.verdict
    assert "No baseline accepted yet." in screen.verdict
    assert len(screen.findings) <= MAX_FINDINGS


def test_a_failed_limit_is_the_first_finding_and_marks_its_tile(document: RunDocument) -> None:
    name = "latency_matrix.0.0.latency_ns"
    screen = story(limited(document, name, None, 90.0, "fail"))
    assert screen.level == "bad"
    assert screen.verdict.startswith("Out of limits: 1 of 1 limits failed.")
    assert "; the limit is at most 90 ns." in screen.findings[0]
    tile = next(tile for tile in screen.tiles if tile.title == "Idle latency")
    assert (tile.band, tile.outside) == ("accepted: at most 90 ns", True)
    inside = next(tile for tile in story(limited(document, name, 90.0, 200.0, "pass")).tiles)
    assert (inside.band, inside.outside) == ("accepted: 90 to 200 ns", False)


def test_a_failed_cross_check_is_in_verdict_and_findings(document: RunDocument) -> None:
    check = next(item for item in document.consistency if item.rule == "same_latency")
    failed = check.model_copy(update={"outcome": "fail", "difference": 0.42})
    screen = story(document.model_copy(update={"consistency": (failed,)}))
    assert screen.verdict.startswith("Contradictory")
    assert "Cross-checks: 0 of 1 pass." in screen.verdict
    assert screen.findings[0].startswith("Cross-check failed, repeated latency: ")
    assert "(+42 %)" in screen.findings[0]


def test_an_invalid_measurement_is_one_finding(document: RunDocument) -> None:
    emulated = document
    for index in range(len(document.measurements)):
        emulated = flagged(emulated, index, "EMULATED", "the hypervisor calls itself 'TCG'")
    screen = story(emulated)
    assert screen.verdict.startswith(f"Not valid: {len(document.measurements)} of {len(document.measurements)}")
    assert screen.findings[0] == "All values are invalid: the hypervisor calls itself 'TCG'."
    assert {tile.trust for tile in screen.tiles} == {"invalid"}
    one = flagged(document, index_of(document, "idle_latency"), "PLACEMENT_WRONG", "3 of 4 pages")
    assert any("PLACEMENT_WRONG: 3 of 4 pages" in finding for finding in story(one).findings)


def test_an_interrupted_run_says_so_first(document: RunDocument) -> None:
    ended = document.model_copy(update={"run": document.run.model_copy(update={"status": "interrupted"})})
    screen = story(ended)
    assert screen.verdict.startswith("Interrupted: ")
    assert screen.next_step == "calibrate again with --resume"
