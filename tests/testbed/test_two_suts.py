# SPDX-License-Identifier: Apache-2.0
"""Two SUTs with two nodes each, calibrated at once over SSH with sudo: what localhost cannot show."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from calibration.base.errors import VERDICT_FAILED
from calibration.context.loader import load
from calibration.results.layout import CAPTURE
from calibration.results.store import read_run
from calibration.run.records import StepRecord, records
from tests.ansible.support import Ended
from tests.testbed.guest import Sut
from tests.testbed.support import Lab, Testbed

PROFILE = Path(__file__).parent / "profiles" / "matrices.yml"


@dataclass(frozen=True)
class Calibrated:
    """One calibration of both SUTs, which all tests here look at."""

    lab: Lab
    ended: Ended
    suts: tuple[Sut, ...]

    def run(self, sut: Sut) -> Path:
        """Return the directory of a SUT's run."""
        [found] = [path for path in self.lab.runs() if path.parent.name == sut.name]
        return found


@pytest.fixture(scope="module")
def calibrated(testbed: Testbed, tmp_path_factory: pytest.TempPathFactory) -> Calibrated:
    suts = testbed.suts(("two-nodes", "two-nodes-a"), ("two-nodes", "two-nodes-b"))
    lab = Lab(tmp_path_factory.mktemp("two")).make()
    inventory = testbed.inventory({"testbed1": suts}, {"calibration_testbed": "testbed1", "ansible_become": True})
    return Calibrated(lab, lab.calibrate(inventory, profile=PROFILE), tuple(suts))


def pages(value: Any) -> Iterator[dict[str, Any]]:
    """Yield what a sutprobe document says of the pages of each buffer, wherever it says so."""
    if isinstance(value, dict):
        if {"checked", "on_node", "elsewhere"} <= value.keys():
            yield value
        for item in value.values():
            yield from pages(item)
    elif isinstance(value, list):
        for item in value:
            yield from pages(item)


def test_both_are_measured_completely_and_at_once(calibrated: Calibrated, scenario: Callable[..., None]) -> None:
    documents = [read_run(calibrated.run(sut)) for sut in calibrated.suts]
    for document in documents:
        assert document.run.status == "complete", calibrated.ended.text
        assert {omitted.kind for omitted in document.not_measured} == {"counters"}  # a guest's hypervisor shows it none
        assert {measurement.kind for measurement in document.measurements} == {"latency_matrix", "bandwidth_matrix"}
    starts, ends = (
        [document.run.started_at for document in documents],
        [document.run.finished_at for document in documents],
    )
    assert max(starts) < min(end for end in ends if end is not None)
    scenario(
        "two SUTs at once", "none", "both documents, complete", "every figure EMULATED, so that no verdict is good"
    )


def test_every_page_was_on_the_node_that_the_plan_asked_for(calibrated: Calibrated) -> None:
    for sut in calibrated.suts:
        for step in (record for record in records(calibrated.run(sut)) if isinstance(record, StepRecord)):
            found = list(pages(step.document))
            assert found, step.step.id
            for item in found:
                assert item["checked"] > 0
                assert (item["on_node"], item["elsewhere"]) == (item["checked"], 0), (sut.name, step.step.id, item)


def test_the_matrices_have_each_node_as_row_and_as_column(calibrated: Calibrated) -> None:
    for sut in calibrated.suts:
        for measurement in read_run(calibrated.run(sut)).measurements:
            table: Any = measurement.values.table
            assert (table.labels("cpu_node"), table.labels("memory_node")) == ((0, 1), (0, 1))


def test_no_figure_of_an_emulated_processor_is_valid(calibrated: Calibrated) -> None:
    for sut in calibrated.suts:
        document = read_run(calibrated.run(sut))
        for measurement in document.measurements:
            assert not measurement.validity.valid
            assert "EMULATED" in {flag.code for flag in measurement.validity.flags}
        assert all(verdict.outcome == "invalid" for verdict in document.verdicts)
    assert calibrated.ended.rc == VERDICT_FAILED


def test_sudo_was_used_and_nothing_is_left(calibrated: Calibrated) -> None:
    for sut in calibrated.suts:
        context = load(calibrated.run(sut) / CAPTURE)
        assert context.capture.uid == 0
        assert sut.read("find /tmp /var/tmp -name '*calibration*'") == ""
        assert sut.ssh("pgrep -f sutprobe").returncode == 1
