# SPDX-License-Identifier: Apache-2.0
"""Errors, throttling and energy of a run: from the runner's record to flags, page and gate."""

from typing import Any

import pytest

from calibration.base.flags import FINDINGS
from calibration.report.devices import health_facts
from calibration.results.health import Health, health_flags, read_health
from calibration.results.model import RunDocument
from calibration.results.run_checks import check_errors
from calibration.runner.health import KINDS


def told(**changed: dict[str, list[int]]) -> dict[str, Any]:
    """Return a runner's record of a machine that counts everything, with the counters that *changed*."""
    return {
        "record": "health",
        "elapsed_s": 10.0,
        "counters": {kind: {"read": 8, "lost": [], "changed": changed.get(kind, {})} for kind in KINDS},
        "temperatures_c": {"coretemp 0 Package id 0": [41.0, 77.5], "jc42 1": [None, 50.0]},
        "energy": {
            "package-0": {"joules": 500.0, "reason": None},
            "package-0 dram": {"joules": None, "reason": "Permission denied"},
        },
        "unreadable": {},
    }


def health(**changed: dict[str, list[int]]) -> Health:
    found = read_health(told(**changed))
    assert found is not None
    return found


def flags(*healths: Health) -> list[tuple[str, str]]:
    return [(flag.code, flag.reason) for flag in health_flags(healths)]


def document(*healths: Health) -> RunDocument:
    """Return what the gate reads of a run."""
    attempts = [type("Attempt", (), {"health": item}) for item in (*healths, None)]
    return type("Document", (), {"attempts": attempts, "flags": tuple(health_flags(healths))})  # type: ignore[return-value]


def test_a_quiet_run_has_no_flags_and_passes() -> None:
    assert flags(health()) == []
    assert [result.outcome for result in check_errors(document(health()))] == ["passed"]


@pytest.mark.parametrize(("changed", "code", "reason"), [
    ({"memory_corrected": {"mc0": [3, 5], "mc0 dimm1 (A2)": [0, 2]}}, "ERRORS_CORRECTED",
     "2 corrected memory errors during the run: 2 at mc0 dimm1 (A2)"),
    ({"memory_corrected": {"mc1": [0, 1]}}, "ERRORS_CORRECTED", "1 corrected memory error during the run: 1 at mc1"),
    ({"memory_uncorrected": {"mc1": [0, 1]}}, "ERRORS_UNCORRECTED",
     "1 uncorrected memory error during the run: 1 at mc1"),
    ({"link_corrected": {"0000:81:00.0": [7, 8], "0000:80:00.0": [0, 1]}}, "ERRORS_CORRECTED",
     "2 corrected PCIe errors during the run: 1 at 0000:81:00.0, 1 at 0000:80:00.0"),
    ({"link_fatal": {"0000:81:00.0": [0, 1]}}, "ERRORS_UNCORRECTED",
     "1 fatal PCIe error during the run: 1 at 0000:81:00.0"),
    ({"core_throttled": {"1": [5, 7], "2": [0, 1], "9": [0, 0]}}, "THROTTLED",
     "the core of CPUs 1-2 throttled during the run, up to 2 times"),
    ({"package_throttled": {"1": [5, 6]}}, "THROTTLED", "the package of CPUs 1 throttled during the run, up to 1 time"),
    ({"memory_corrected": {"mc0": [3, 5], "mc0 dimm1": [0, 2], "mc1 dimm0": [0, 4], "mc2": [0, 1]}}, "ERRORS_CORRECTED",
     "7 corrected memory errors during the run: 2 at mc0 dimm1, 4 at mc1 dimm0, 1 at mc2"),
    ({"link_nonfatal": {"0000:81:00.0": [0, 1]}}, "ERRORS_UNCORRECTED",
     "1 uncorrected PCIe error during the run: 1 at 0000:81:00.0"),
])  # fmt: skip
def test_what_was_counted_flags_the_run(changed: dict[str, Any], code: str, reason: str) -> None:
    assert flags(health(**changed)) == [(code, reason)]
    assert code in FINDINGS
    outcomes = [result.outcome for result in check_errors(document(health(**changed)))]
    assert outcomes == (["passed"] if code == "THROTTLED" else ["failed"])


def test_an_error_of_any_attempt_counts() -> None:
    assert [code for code, _ in flags(health(), health(memory_corrected={"mc0": [0, 1]}))] == ["ERRORS_CORRECTED"]


def test_a_counter_that_was_reset_is_unknown_not_negative() -> None:
    found = health(memory_corrected={"mc0": [5, 0]})
    assert flags(found) == []
    (change,) = found.counters[0].changed
    assert change.count is None
    assert found.counters[0].unknown
    assert [result.outcome for result in check_errors(document(found))] == ["undecided"]
    (text,) = [fact.value for fact in health_facts([found]) if fact.name.startswith("Errors")]
    assert text is not None
    assert text.startswith("memory errors: unknown, a counter was reset or disappeared; no PCIe errors")


def test_the_only_counter_that_disappeared_is_not_one_that_never_was() -> None:
    record = told()
    record["counters"]["memory_corrected"] = {"read": 0, "lost": ["mc0"], "changed": {}}
    record["counters"]["memory_uncorrected"]["read"] = 0
    found = read_health(record)
    assert found is not None
    assert [result.outcome for result in check_errors(document(found))] == ["undecided"]
    (text,) = [fact.value for fact in health_facts([found]) if fact.name.startswith("Errors")]
    assert text == "memory errors: unknown, a counter was reset or disappeared; no PCIe errors; no throttling"


def test_events_of_a_bmc_are_counted_or_unknown_with_the_reason() -> None:
    def found(unreadable: dict[str, str], **events: list[int]) -> Health:
        changed = {name.replace("_", " "): counts for name, counts in events.items()}
        record = told() | {"unreadable": unreadable}
        record["counters"]["bmc_events"] = {
            "read": 0 if unreadable else 1 + len(events),
            "lost": [],
            "changed": changed,
        }
        read = read_health(record)
        assert read is not None
        return read

    others = "no memory errors; no PCIe errors; no throttling"
    for health_of_run, text in (
        (health(), others),
        (found({}), f"{others}; no BMC events"),
        (found({}, Memory=[0, 2], Fan_low=[0, 1]), f"{others}; 3 BMC events"),
        (found({"ipmitool": "no ipmitool in /bin"}), f"{others}; BMC events unknown: no ipmitool in /bin"),
    ):
        assert next(health_facts([health_of_run])).value == text
        assert [code for code, _ in flags(health_of_run)] == ["BMC_EVENTS"] * ("3" in text)


def test_many_modules_are_counted_not_listed() -> None:
    modules = {f"mc0 dimm{number}": [0, 1] for number in range(20)}
    ((_, reason),) = flags(health(memory_corrected={"mc0": [0, 20], **modules}))
    assert reason.startswith("20 corrected memory errors")
    assert reason.endswith(", and 14 more")


def test_a_machine_that_counts_nothing_is_undecided_and_says_so() -> None:
    record = told()
    record["counters"] = {kind: {"read": 0, "lost": [], "changed": {}} for kind in KINDS}
    found = read_health(record)
    assert found is not None
    assert [result.outcome for result in check_errors(document(found))] == ["undecided"]
    assert [result.outcome for result in check_errors(document())] == ["undecided"]
    record["counters"]["core_throttled"]["read"] = 8  # which says nothing of errors
    throttling = read_health(record)
    assert throttling is not None
    assert [result.outcome for result in check_errors(document(throttling))] == ["undecided"]
    assert [fact.value for fact in health_facts([])] == [None]
    (text,) = [fact.value for fact in health_facts([found]) if fact.name.startswith("Errors")]
    assert text == (
        "memory errors are not counted by this machine; PCIe errors are not counted by this machine; "
        "throttling is not counted"
    )


def test_the_page_says_what_was_counted_in_short() -> None:
    facts = {fact.name: fact.value for fact in health_facts([health(link_corrected={"0000:81:00.0": [0, 3]})])}
    assert facts == {
        "Errors and throttling during the run": "no memory errors; 3 corrected PCIe errors; no throttling",
        "Warmest sensor before and after the run": "41 to 78 °C (coretemp 0 Package id 0)",
        "Energy during the run (RAPL)": "package-0 500 J (50 W), package-0 dram unknown: Permission denied",
    }


@pytest.mark.parametrize(("changed", "text"), [
    # flagged and shown alike, where a controller has no count of its own
    ({"memory_corrected": {"mc0 dimm1 (A2)": [0, 2]}}, "2 corrected memory errors; no PCIe errors; no throttling"),
    ({"core_throttled": {"1": [0, 2]}, "package_throttled": {"1": [0, 2], "3": [0, 1]}},
     "no memory errors; no PCIe errors; throttling of 2 CPUs"),
    ({"core_throttled": {"1": [0, 2]}}, "no memory errors; no PCIe errors; throttling of 1 CPU"),
])  # fmt: skip
def test_the_page_and_the_flags_agree(changed: dict[str, Any], text: str) -> None:
    assert flags(health(**changed))
    assert next(health_facts([health(**changed)])).value == text


@pytest.mark.parametrize("fault", [
    {"elapsed_s": -1.0},
    {"elapsed_s": "long"},
    {"counters": {"other": {"read": 1, "lost": [], "changed": {}}}},
    {"counters": {"link_fatal": {"read": 1, "lost": [], "changed": {"a": [1]}}}},
    {"counters": {"core_throttled": {"read": 1, "lost": [], "changed": {"\N{SUPERSCRIPT TWO}": [0, 1]}}}},
    {"counters": {"core_throttled": {"read": 1, "lost": [], "changed": {"mc0": [0, 1]}}}},
    {"counters": {"link_fatal": {"read": 1, "lost": [], "changed": {"a": [0, 10**4000]}}}},
    {"counters": {"link_fatal": {"read": -1, "lost": [], "changed": {}}}},
    {"counters": {"link_fatal": {"read": 1, "lost": ["a"] * 9000, "changed": {}}}},
    {"temperatures_c": {"a": [1.0]}},
    {"energy": {"a": {"joules": "much", "reason": None}}},
])  # fmt: skip
def test_what_no_runner_says_is_no_health(fault: dict[str, Any]) -> None:
    assert read_health({**told(), **fault}) is None
