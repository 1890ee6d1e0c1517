# SPDX-License-Identifier: Apache-2.0
"""The made server: its document is what the harness writes, and says of the machine what was made wrong with it."""

from pathlib import Path

from report_documents import store

from calibration.profiles import load_profile
from calibration.results.model import RunDocument
from calibration.results.store import read_run
from tests.report.made_machines import NOISY_CPU, STARTED, Answers, Server, large_document


def trusts(document: RunDocument) -> set[tuple[str, str | None]]:
    """Return the trust in the figures of record, each with its reason."""
    return {(item.trust, item.reason and item.reason.code) for item in document.record}


def value(document: RunDocument, name: str) -> float:
    (metric,) = (verdict.metric for verdict in document.verdicts if verdict.name == name)
    assert metric is not None
    return metric.value


def test_everything_that_a_night_measures_is_there(tmp_path: Path) -> None:
    document = large_document()
    assert document.run.status == "complete"
    assert {omitted.cause for omitted in document.not_measured} == {"not_planned"}
    assert {measurement.kind for measurement in document.measurements} == set(load_profile("nightly").measurements)
    assert read_run(store(document, tmp_path)) == document


def test_it_is_the_same_each_time() -> None:
    assert Server().archive() == Server().archive()
    plan = large_document().plan
    assert plan is not None
    for step in plan.steps[:5]:
        one, same, other = (Answers(Server(), seed).answer(step, STARTED) for seed in (1, 1, 2))
        assert one == same
        assert one != other


def test_what_is_wrong_with_it_is_in_its_figures() -> None:
    document = large_document()
    assert value(document, "bandwidth_matrix.5.5.bandwidth_mb_s") < 0.55 * value(
        document, "bandwidth_matrix.4.4.bandwidth_mb_s"
    )
    assert 0.0025 < value(document, f"jitter.cpu{NOISY_CPU}.gaps.lost_fraction") < 0.0035
    assert trusts(document) == {
        ("on_target", None),
        ("near", "NOT_CONVERGED"),
        ("poor", "BIMODAL"),
        ("observed", None),
    }
    assert all(verdict.outcome != "fail" for verdict in document.consistency)


def test_nothing_is_wrong_with_it_where_nothing_was_asked_for() -> None:
    sound = large_document(Server(empty_slot=False, interrupt=False, unsteady=False))
    assert trusts(sound) == {("on_target", None), ("observed", None)}
    assert value(sound, f"jitter.cpu{NOISY_CPU}.gaps.lost_fraction") < 1e-4
    assert sound.context is not None
    assert len([dimm for dimm in sound.context.parsed.firmware.dimms if dimm.size_bytes]) == 16


def test_a_contradiction_fails_a_check() -> None:
    checks = large_document(Server(contradiction=True)).consistency
    assert [check.rule for check in checks if check.outcome == "fail"] == ["same_latency"]
