# SPDX-License-Identifier: Apache-2.0
"""The published check of events against the vendors' lists: of today's tables and machines, and able to fail."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from bench import event_lists
from calibration.counters.tables import Boxes, BoxEvent, CoreEvent, tables

INTEL = {
    "Header": {"Version": "29"},
    "Events": [
        {"EventName": "A", "EventCode": "0xB7, 0xBB", "UMask": "0x01", "Counter": "0,1,2,3"}
        | {"MSRIndex": "0x1a6,0x1a7", "MSRValue": "0x10"},
        {
            "EventName": "L",
            "EventCode": "0xcd",
            "UMask": "0x01",
            "Counter": "3",
            "MSRIndex": "0x3F6",
            "MSRValue": "0x20",
        },
        {"EventName": "F", "EventCode": "0x00", "UMask": "0x02", "Counter": "Fixed counter 1", "MSRIndex": "0"},
    ],
}
METRICS = {
    "Metrics": [{"Formula": "(a * (64 / 9.0) / 1000000) / T", "UnitOfMeasure": "MB/sec", "Events": [{"Name": "A"}]}]
}


def document() -> dict[str, Any]:
    kept: dict[str, Any] = json.loads(event_lists.DOCUMENT.read_text(encoding="utf-8"))
    return kept


def test_the_page_shows_the_check_that_is_kept() -> None:
    text = event_lists.PAGE.read_text(encoding="utf-8")
    assert event_lists.renewed(text, document()) == text, "run python -m bench.event_lists DIR"


def test_the_check_that_is_kept_is_of_the_tables_as_they_are() -> None:
    kept = {(each["microarchitecture"], each["list"]): each for each in document()["lists"]}
    for known in tables().values():
        for key, listing in known.sources.items():
            found = kept.pop((known.microarchitecture, listing.list))
            rows = sum(row.source == key for row, _ in event_lists.rows_of_table(known))
            assert (found["version"], found["date"], found["rows"]) == (listing.version, listing.date, rows)
    assert not kept


@pytest.mark.parametrize("path", event_lists.machines(), ids=lambda path: path.stem)
def test_the_check_that_is_kept_is_of_what_would_be_opened_now(path: Path) -> None:
    kept = next(each for each in document()["machines"] if each["name"] == path.stem)
    about, choice, _ = event_lists.machine_of(path)
    assert {**about, "events": len(choice.events), "differing": []} == kept, "run python -m bench.event_lists DIR"


def test_all_families_are_among_the_machines_and_nothing_differs() -> None:
    kept = document()
    assert kept["schema"] == event_lists.SCHEMA
    families = {known.microarchitecture for known in tables().values()} - {None}
    assert {each["microarchitecture"] for each in kept["machines"]} == families
    assert any(not each["made"] for each in kept["machines"])
    for each in (*kept["lists"], *kept["machines"]):
        assert each["differing"] == [], each
    assert all(each["agreed"] == each["rows"] > 0 for each in kept["lists"])


def test_a_difference_is_on_the_page() -> None:
    changed = copy.deepcopy(document())
    changed["machines"][0]["differing"] = ["cpu: E is config=0x1, by the list config=0x2"]
    assert "* cpu: E is config=0x1, by the list config=0x2" in event_lists.lines_of(changed)
    with pytest.raises(ValueError, match="expected the lines"):
        event_lists.renewed("no marks here", changed)


def core(terms: str, counters: tuple[int, ...] | None = (0, 1, 2, 3)) -> CoreEvent:
    return CoreEvent(role="core.offcore_reads", event="A", source="core", terms=terms, counters=counters)


@pytest.mark.parametrize(
    ("terms", "counters", "expected"),
    [
        ("event=0xbb,umask=0x01,offcore_rsp=0x10", (0, 1, 2, 3), []),
        ("event=0xb8,umask=0x01,offcore_rsp=0x10", (0, 1, 2, 3), ["A: event is 0xb8, listed 0xb7 or 0xbb"]),
        ("event=0xb7,umask=0x02,offcore_rsp=0x10", (0, 1, 2, 3), ["A: umask is 0x2, listed 0x1"]),
        ("event=0xb7,umask=0x01,offcore_rsp=0x11", (0, 1, 2, 3), ["A: offcore_rsp is 0x11, listed 0x10"]),
        ("event=0xb7,umask=0x01", (0, 1, 2, 3), ["A: offcore_rsp is left out, listed 0x10"]),
        ("event=0xb7,umask=0x01,offcore_rsp=0x10,edge=1", (0, 1, 2, 3), ["A: edge is 0x1, listed none"]),
        ("event=0xb7,umask=0x01,offcore_rsp=0x10", None, ["A: counters None, listed (0, 1, 2, 3)"]),
    ],
)
def test_a_row_of_a_core_that_differs_is_told(terms: str, counters: Any, expected: list[str]) -> None:
    published = event_lists._of_intel(INTEL["Events"], "A", json.dumps(METRICS))
    assert event_lists.differences(core(terms, counters), None, published) == expected


def test_an_event_that_is_not_listed_is_told() -> None:
    assert event_lists._of_intel(INTEL["Events"], "B", json.dumps(METRICS)) is None
    assert event_lists.differences(core("event=0x1"), None, None) == ["A is not in the list"]


def test_what_a_count_moves_and_how_many_count_is_compared() -> None:
    published = event_lists._of_intel(INTEL["Events"], "A", json.dumps(METRICS))
    event = BoxEvent(event="A", source="core", terms="event=0xb7,umask=0x01,offcore_rsp=0x10")
    right = Boxes(role="link.bytes", pmus="box", events=(event,), scale_bytes=64 / 9, counters=4)
    assert event_lists.differences(event, right, published) == []
    wrong = right.model_copy(update={"scale_bytes": 8.0, "counters": 8})
    assert event_lists.differences(event, wrong, published) == [
        "A: 8 counters, listed 4",
        "A: 8 bytes a count, listed 7.11111",
    ]


def test_lists_of_perf_and_of_drivers_are_read() -> None:
    perf = event_lists._of_perf
    amd = [{"EventName": "umc.rd", "EventCode": "0x0a", "RdWrMask": "0x1"}, {"EventName": "x", "EventCode": "0x7"}]
    found = perf(amd, "umc.rd", '"(umc.rd * 64) / 1e6"')
    assert found is not None
    assert (dict(found.terms), found.scale_bytes) == ({"event": {10}, "rdwrmask": {1}}, 64)
    assert perf([amd[1] | {"PublicDescription": "Data (32B): link"}], "x", "").scale_bytes == 32
    driver = event_lists._of_driver
    assert driver("DMC620_PMU_EVENT_ATTR(rdwr, 0x12, 1),", "rdwr").terms == {"event": {18}, "clkdiv2": {1}}
    assert driver("ARM_CSPMU_EVENT_ATTR(rd,\t\t0x1a5),", "rd").terms == {"event": {0x1A5}}
    assert driver("\tPERF_COUNT_HW_INSTRUCTIONS\t= 1,", "PERF_COUNT_HW_INSTRUCTIONS").terms == {"config": {1}}
    assert driver("nothing", "rd") is None


def test_a_checkout_that_differs_ends_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.rst"
    page.write_text(event_lists.PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(event_lists, "PAGE", page)
    monkeypatch.setattr(event_lists, "DOCUMENT", tmp_path / "found.json")
    haswell = tables()["haswell_ep"]
    only = haswell.model_copy(update={"boxes": (), "sampling": None, "sources": {"core": haswell.sources["core"]}})
    monkeypatch.setattr(event_lists, "tables", lambda: {"haswell_ep": only})
    monkeypatch.setattr(event_lists, "machines", tuple)
    events, metrics = tmp_path / "perfmon/HSX/events", tmp_path / "perfmon/HSX/metrics"
    events.mkdir(parents=True)
    metrics.mkdir()
    (events / "haswellx_core.json").write_text(json.dumps(INTEL | {"Header": {"Version": "30"}}), encoding="utf-8")
    (metrics / "haswellx_metrics.json").write_text(json.dumps(METRICS), encoding="utf-8")
    assert event_lists.main([str(tmp_path)]) == 1
    told = capsys.readouterr().out
    assert "the table says edition 29, the list 30" in told
    assert "L1D_PEND_MISS.PENDING is not in the list" in told
    assert "L1D_PEND_MISS.PENDING is not in the list" in page.read_text(encoding="utf-8")
    assert event_lists.main([]) == 2
