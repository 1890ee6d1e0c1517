# SPDX-License-Identifier: Apache-2.0
"""A lab's own results: CSV and the result files of CSIT."""

import gzip
import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from calibration.base.errors import InputError
from calibration.formats.throughput import MAX_JSON_BYTES, Throughput, read_throughput

HEAD = "sut,test,time,value,unit\n"

TEST = "tests.vpp.perf.ip4.2n1l-100ge2p1e810cq-ethip4-ip4base-mrr.64b-2t1c-ethip4-ip4base-mrr"
CSIT: dict[str, Any] = {
    "version": "1.5.1",
    "duration": 60.0,
    "dut_type": "vpp",
    "dut_version": "25.06-release",
    "start_time": "2026-01-31T23:30:00.000000Z",
    "end_time": "2026-01-31T23:31:00.000000Z",
    "hosts": ["192.0.2.83", "192.0.2.81"],
    "telemetry": [],
    "message": "",
    "passed": True,
    "tags": ["MRR", "64B"],
    "test_documentation": "",
    "test_id": TEST,
    "test_name_long": "100ge2p1e810cq-64b-2t1c-ethip4-ip4base",
    "test_name_short": "ethip4-ip4base",
    "test_type": "mrr",
    "tg_type": "trex",
    "tg_version": "3.03",
    "result": {
        "type": "mrr",
        "receive_rate": {"rate": {"unit": "pps", "values": [12e6, 13e6], "avg": 12.5e6, "stdev": 5e5}},
    },
}
"""A result valid by CSIT's test_case.schema.yaml 1.5.1."""


def read(path: Path, text: str) -> Throughput:
    path.write_text(text, encoding="utf-8")
    return read_throughput([path])


@pytest.fixture(name="file")
def _file(tmp_path: Path) -> Path:
    return tmp_path / "throughput.csv"


def fault(path: Path, text: str) -> str:
    with pytest.raises(InputError) as caught:
        read(path, text)
    return str(caught.value).removeprefix(str(path))


def days_of(found: Throughput) -> list[date]:
    (series,) = found.series.values()
    return [date.fromordinal(day) for day in series.days]


def test_values_are_read_by_sut_and_test(file: Path) -> None:
    found = read(
        file, HEAD + "t1/a,ip4,2026-01-01,1.5,Mpps\nt1/b,ip4,2026-01-02,2,Mpps\nt1/a,ip4,2026-01-03,1e0,Mpps\n"
    )
    assert {key: (row.values, row.unit) for key, row in found.series.items()} == {
        (("t1/a",), "ip4"): ([1.5, 1.0], "Mpps"),
        (("t1/b",), "ip4"): ([2.0], "Mpps"),
    }


def test_columns_may_be_in_any_order_with_others_a_byte_order_mark_and_no_unit(file: Path) -> None:
    found = read(file, '\ufeffTime, Value ,build,SUT,test\n2026-01-01,3,77,a,"ip4, 64b"\n\n')
    ((key, row),) = found.series.items()
    assert (key, row.values, row.unit) == ((("a",), "ip4, 64b"), [3.0], None)


@pytest.mark.parametrize(("time", "day"), [
    ("2026-01-31", date(2026, 1, 31)),
    ("2026-01-31T23:30:00", date(2026, 1, 31)),
    ("2026-01-31 23:30:00Z", date(2026, 1, 31)),
    ("2026-02-01T00:30:00+01:00", date(2026, 1, 31)),
    ("2026-01-31T23:30:00-05:00", date(2026, 2, 1)),
])  # fmt: skip
def test_times_are_nights_in_utc_wherever_the_controller_is(
    file: Path, time: str, day: date, time_zone: Callable[[str], None]
) -> None:
    time_zone("JST-9")
    assert days_of(read(file, f"{HEAD}a,ip4,{time},1,Mpps\n")) == [day]


@pytest.mark.parametrize(("text", "message"), [
    ("", ":1: no column sut, test, time, value; expected a header"),
    ("sut,test,value\n", ":1: no column time;"),
    ("sut,test,time,value,value\n", ":1: column value twice"),
    (f"{HEAD}a,ip4,2026-01-01,1,Mpps\n\na,ip4,2026-13-01,1,Mpps\n", ":4: time '2026-13-01', expected one such as"),
    (f"{HEAD}a,ip4,0001-01-01T00:00:00+14:00,1,x\n", ":2: time '0001-01-01T00:00:00+14:00', expected"),
    (f"{HEAD}a,ip4,2026-01-01,fast,Mpps\n", ":2: value 'fast', expected a number"),
    (f"{HEAD}a,ip4,2026-01-01,nan,Mpps\n", ":2: value 'nan', expected a number"),
    (f"{HEAD}a,ip4,2026-01-01,1_0,Mpps\n", ":2: value '1_0', expected a number"),
    (f"{HEAD}a,ip4,2026-01-01,1\n", ":2: 4 columns, expected 5"),
    (f"{HEAD},ip4,2026-01-01,1,Mpps\n", ":2: no sut"),
    (f"{HEAD}a,,2026-01-01,1,Mpps\n", ":2: no test"),
    (f'{HEAD}a,"ip4,2026-01-01,1,Mpps\n', ":2: not valid CSV: unexpected end of data"),
    (f"{HEAD}a,ip4,2026-01-01,1,Mpps\na,ip4,2026-01-02,1,kpps\n", ":3: ip4 in kpps, but in Mpps at"),
    (f"{HEAD}a,ip4,2026-01-01,1,Mpps\nb,ip4,2026-01-02,1,\n", ":3: ip4 in no unit, but in Mpps at"),
    (f"{HEAD}a,ip4,2026-01-01,,Mpps\n", "no value in "),
])  # fmt: skip
def test_faults_are_named_with_their_line(file: Path, text: str, message: str) -> None:
    assert fault(file, text).startswith(message)


def test_empty_values_are_counted_not_zero(file: Path) -> None:
    found = read(file, f"{HEAD}a,ip4,2026-01-01,,Mpps\na,ip4,2026-01-02,5,Mpps\n")
    assert [row.values for row in found.series.values()] == [[5.0]]
    assert found.skipped == {"rows without a value": 1}


def test_bytes_that_are_no_text_are_refused(file: Path) -> None:
    file.write_bytes(HEAD.encode() + b"\xff,ip4,2026-01-01,1,Mpps\n")
    with pytest.raises(InputError, match=r"not UTF-8: .* at byte 25"):
        read_throughput([file])


# CSIT


def csit(folder: Path, result: dict[str, Any] | None = None, **fields: Any) -> Throughput:
    document = {**CSIT, **fields, **({} if result is None else {"result": result})}
    (folder / "a.info.json").write_text(json.dumps(document))
    return read_throughput([folder / "a.info.json"])


def rate(value: float) -> dict[str, Any]:
    return {"lower": {"rate": {"value": value, "unit": "pps"}}}


@pytest.mark.parametrize(("result", "values"), [
    (CSIT["result"], {TEST: (12.5e6, "pps")}),
    ({"type": "ndrpdr", "ndr": rate(9e6), "pdr": rate(10e6)},
     {f"{TEST} ndr": (9e6, "pps"), f"{TEST} pdr": (10e6, "pps")}),
    ({"type": "soak", "critical_rate": rate(8e6)}, {TEST: (8e6, "pps")}),
    ({"type": "reconf", "loss": {"time": {"value": 0.25, "unit": "s"}}}, {TEST: (0.25, "s")}),
    ({"type": "hoststack", "bandwidth": {"value": 3e10, "unit": "bps"}}, {TEST: (3e10, "bps")}),
], ids=lambda value: value.get("type", "") if isinstance(value, dict) else None)  # fmt: skip
def test_each_type_of_result_of_csit_has_its_value_and_unit(
    tmp_path: Path, result: dict[str, Any], values: dict[str, tuple[float, str]]
) -> None:
    found = csit(tmp_path, result)
    assert {key: (*row.values, row.unit) for (_, key), row in found.series.items()} == values
    assert {hosts for hosts, _ in found.series} == {("192.0.2.81", "192.0.2.83")}
    assert {day for row in found.series.values() for day in row.days} == {date(2026, 1, 31).toordinal()}


def test_directories_are_searched_for_files_of_csit_compressed_too(tmp_path: Path) -> None:
    for number in range(3):
        path = tmp_path / f"suite{number}" / "test.info.json.gz"
        path.parent.mkdir()
        start = f"2026-02-0{number + 1}T00:00:00Z"
        path.write_bytes(gzip.compress(json.dumps({**CSIT, "start_time": start}).encode()))
    (tmp_path / "suite0" / "setup.info.json").write_text(json.dumps({"version": "1.5.1", "suite_id": "s"}))
    (tmp_path / "log.html").write_text("neither")
    found = read_throughput([tmp_path])
    assert days_of(found) == [date(2026, 2, day) for day in (1, 2, 3)]
    assert found.skipped == {"setups and teardowns of suites": 1}


def test_failed_tests_and_results_without_a_value_are_counted(tmp_path: Path) -> None:
    good = tmp_path / "good.csv"
    good.write_text(f"{HEAD}a,ip4,2026-01-01,1,Mpps\n")
    for name, fields in (
        ("failed", {"passed": False, "message": "no packets"}),
        ("device", {"result": {"type": "unknown"}}),
    ):
        (tmp_path / f"{name}.json").write_text(json.dumps({**CSIT, **fields}))
    assert read_throughput([tmp_path]).skipped == {"failed tests": 1, "results of type unknown": 1}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"version": "2.0.0"}, "not a result of CSIT: no version 1.x"),
        ({"hosts": []}, "no hosts"),
        ({"hosts": None}, "hosts is missing"),
        ({"start_time": "yesterday"}, "start_time 'yesterday' is not a time"),
        ({"passed": 1}, "passed is not of the expected type"),
        ({"result": {"type": "mrr"}}, "result.receive_rate.rate.avg is missing"),
        (
            {"result": {"type": "soak", "critical_rate": rate("8")}},
            "critical_rate.lower.rate.value is not of the expected",
        ),  # type: ignore[arg-type]
        ({"result": {"type": "soak", "critical_rate": rate(10**400)}}, "value is not a plausible number"),
    ],
)
def test_damaged_results_of_csit_are_refused(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=r"a\.info\.json: ") as caught:
        csit(tmp_path, **fields)
    assert message in str(caught.value)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    for name, content, message in (
        ("a.json", b"{", "not valid JSON"),
        ("b.json.gz", b"no gzip", "not valid gzip"),
        ("c.json.gz", gzip.compress(b"{}")[:-4], "not valid gzip"),
        ("d.json.gz", gzip.compress(bytes(MAX_JSON_BYTES + 1), 1), "larger than"),
        ("e.json", b'{"version": NaN}', "not valid JSON"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=message):
            read_throughput([tmp_path / name])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"no .csv, .json or .json.gz file in it"):
        read_throughput([tmp_path / "empty"])
    with pytest.raises(InputError, match="cannot read"):
        read_throughput([tmp_path / "absent.csv"])
