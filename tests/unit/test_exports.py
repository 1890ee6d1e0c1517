# SPDX-License-Identifier: Apache-2.0
"""Exports: what other programs read from them is what the documents say."""

import json
import math
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, get_args

import duckdb
import jsonschema
import pytest
import yaml
from click.testing import CliRunner, Result
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_prometheus
from pyarrow import parquet

from calibration.acceptance.limits import Limit
from calibration.base.errors import EnvironmentLacksError
from calibration.base.places import SHARE
from calibration.cli import calibration
from calibration.commands import export
from calibration.exports import influx
from calibration.exports import openmetrics as text_of
from calibration.exports.families import BASE_UNITS, family_of
from calibration.exports.history import COLUMNS, SCHEMA_VERSION, write_parquet
from calibration.judge.answer import State
from calibration.judge.night import EXPECTED_NIGHTS
from calibration.judge.run import judge_run, verdicts_of
from calibration.measurements import registry
from calibration.measurements.jitter import JitterValues
from calibration.results import index
from calibration.results.layout import RUN
from calibration.results.store import read_run
from tests.report.report_documents import flagged, index_of, run_document, store
from tests.tools import require
from tests.unit.histories import stored as stored_nights

GUIDE = SHARE / "docs" / "guide" / "exports.rst"
RULES = SHARE / "docs" / "guide" / "units" / "prometheus-rules.yml"
DASHBOARD = SHARE / "docs" / "guide" / "units" / "grafana-dashboard.json"
FIRST = datetime(2026, 1, 30, 1, 2, 3, tzinfo=UTC)
TIME = "calibration_measurement_timestamp_seconds"
ANSWER_S = 60.0
ODD = "s,=\\\n1"

LIMITS = {
    ("s1", 2): [Limit(metric="idle_latency.latency_ns", lower=1.0, upper=1e6, unit="ns", reason="as bought")],
    ("s3", 0): [Limit(metric="page_sizes.hugetlb_1g.latency_ns", lower=None, upper=9.0, unit="ns", reason="as bought")],
}
"""Limits of runs by SUT and night; the second's metric was not measured."""

Sample = tuple[str, tuple[tuple[str, str], ...]]


def run_id(night: int) -> str:
    return f"{FIRST + timedelta(days=night):%Y%m%dT%H%M%SZ}-0a1b"


@pytest.fixture(scope="module", autouse=True)
def _own_index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "CACHE", tmp_path_factory.mktemp("cache"))
        yield


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three nights with every kind of measurement.

    The last idle latency of s2 is invalid, and s3 has no run in the last night.
    """
    path = tmp_path_factory.mktemp("it's [1] results")
    document = run_document()
    for sut, night in ((sut, night) for sut in ("s1", "s2", "s3") for night in range(3)):
        if (sut, night) == ("s3", 2):
            continue
        made, when = document, FIRST + timedelta(days=night)
        if (sut, night) == ("s2", 2):
            made = flagged(made, index_of(made, "idle_latency"), "PLACEMENT_WRONG", "the pages lie in node 1")
        measurements = tuple(
            measurement.model_copy(update={"started_at": when + timedelta(seconds=10 + number)})
            for number, measurement in enumerate(made.measurements)
        )
        names = {"id": run_id(night), "testbed": "t1", "sut": sut, "started_at": when, "finished_at": when}
        made = made.model_copy(update={"run": made.run.model_copy(update=names), "measurements": measurements})
        store(judge_run(made, LIMITS.get((sut, night), [])), path)
    return path


def called(*words: object) -> Result:
    return CliRunner().invoke(calibration, [*map(str, words)])


def documents(results: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(results.rglob(RUN)):
        yield json.loads(path.read_bytes())


def stored(document: dict[str, Any]) -> Iterator[tuple[str, float, str, datetime]]:
    """Yield the valid metrics of a raw document: name, value, unit, and the start of the measurement."""
    started = {item["id"]: datetime.fromisoformat(item["started_at"]) for item in document["measurements"]}
    for verdict in document["verdicts"]:
        metric = verdict["metric"]
        if metric is not None and verdict["outcome"] != "invalid":
            yield metric["name"], metric["value"], metric["unit"], started[verdict["measurement"]]


def samples(families: Iterator[Metric]) -> dict[Sample, float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


@pytest.fixture(scope="module")
def text(results: Path) -> str:
    return text_of.openmetrics(results, lambda _: None)


# Names


def test_every_unit_of_a_metric_has_a_base_unit() -> None:
    units = {row.unit for declaration in registry().values() for row in declaration.metric_rows if not row.imported}
    assert units <= set(BASE_UNITS), "add the new unit to calibration/exports/families.py"


@pytest.mark.parametrize(("metric", "name", "labels", "factor"), [
    ("idle_latency.latency_ns", "calibration_idle_latency_seconds", {}, 1e-9),
    ("bandwidth_matrix.0.13.bandwidth_mb_s", "calibration_bandwidth_matrix_bytes_per_second",
     {"cpu_node": "0", "memory_node": "13"}, 1e6),
    ("jitter.cpu317.gaps.lost_fraction", "calibration_jitter_gaps_lost_ratio", {"cpu": "317"}, 1.0),
    ("firmware.rate_per_hour", "calibration_firmware_rate_per_second", {}, 1 / 3600),
    ("counted_volume.triad_s", "calibration_counted_volume_triad_seconds", {}, 1.0),
    ("core_frequency.avx2.all.median_hz", "calibration_core_frequency_hertz",
     {"work": "avx2", "cores": "all", "core": "median"}, 1.0),
    ("c2c_latency.0.1.remote_hitm_reader_homed_ns", "calibration_c2c_latency_remote_hitm_homed_seconds",
     {"writer_node": "0", "reader_node": "1", "home": "reader"}, 1e-9),
    ("peak_injection_bandwidth.plain.3:1.bandwidth_mb_s", "calibration_peak_injection_bandwidth_bytes_per_second",
     {"shape": "plain", "mix": "3:1"}, 1e6),
    ("memory_parallelism.0.in_flight", "calibration_memory_parallelism_in_flight", {"memory_node": "0"}, 1.0),
])  # fmt: skip
def test_names_follow_prometheus(metric: str, name: str, labels: dict[str, str], factor: float) -> None:
    family = family_of(metric)
    assert family is not None
    assert (family.name, dict(family.labels), family.factor) == (name, labels, factor)


def test_the_names_in_the_guide_are_those_of_exports() -> None:
    rows = re.findall(r"^``([a-z0-9_]+\..*)`` +``(calibration_.*?)(?:{(.*)})?``$", GUIDE.read_text(), re.MULTILINE)
    assert len(rows) > 5
    for metric, name, labels in rows:
        family = family_of(metric)
        assert family is not None
        assert (family.name, dict(family.labels)) == (name, dict(re.findall(r'(\w+)="(.*?)"', labels)))


def test_metrics_of_another_version_have_no_name() -> None:
    assert family_of("idle_latency.latency_furlongs") is None
    assert family_of("unheard_of.latency_ns") is None


def test_each_metric_has_a_series_of_its_own(results: Path) -> None:
    names = [name for name, *_ in stored(next(documents(results)))]
    found = [family for name in names if (family := family_of(name))]
    assert len(found) == len(names) == len({(family.name, family.labels) for family in found})
    assert {family.kind for family in found} == {name.partition(".")[0] for name in names}
    for family in found:
        assert re.fullmatch(r"calibration(_[a-z0-9]+)+", family.name)
        assert family.name.endswith(family.unit)
        assert not {"testbed", "sut", "kind", "state", "check"} & (dict(family.labels).keys() - {"state"})


# OpenMetrics


def test_both_parsers_read_the_values_of_the_newest_run(results: Path, text: str) -> None:
    found = samples(read_openmetrics(text))
    assert found == samples(read_prometheus(text)), "node_exporter reads the older format"
    newest = {(document["run"]["testbed"], document["run"]["sut"]): document for document in documents(results)}
    assert len(newest) == 3
    expected: dict[Sample, float] = {}
    for (testbed, sut), document in newest.items():
        for name, value, unit, started in stored(document):
            family = family_of(name)
            assert family is not None
            own = {"testbed": testbed, "sut": sut}
            labels = {label: item for label, item in family.labels if label != "cpu"}
            expected[family.name, tuple(sorted((own | labels).items()))] = value * BASE_UNITS[unit].factor
            when = (TIME, tuple(sorted({**own, "kind": family.kind}.items())))
            expected[when] = max(expected.get(when, 0.0), started.timestamp())
    others = ("calibration_sut_state", "calibration_failed_verdicts")
    measured = {sample: value for sample, value in found.items() if sample[0] not in others}
    assert measured == expected
    assert len(measured) > 300


def test_families_have_unit_type_and_help(text: str) -> None:
    for family in read_openmetrics(text):
        assert family.type == "gauge"
        assert family.documentation
        unit = next((unit.name for unit in BASE_UNITS.values() if unit.name and family.name.endswith(unit.name)), "")
        assert family.unit == unit
        assert all(sample.timestamp is None for sample in family.samples), "node_exporter refuses timestamps"
        assert all(math.isfinite(sample.value) for sample in family.samples)
    assert text.endswith("\n# EOF\n")


def test_states_are_of_the_newest_night(text: str) -> None:
    found = samples(read_openmetrics(text))

    def value(name: str, **labels: str) -> float:
        return found[name, tuple(sorted({"testbed": "t1", **labels}.items()))]

    for sut, state in (("s1", "as_accepted"), ("s2", "faulty"), ("s3", "not_measured")):
        assert {item: value("calibration_sut_state", sut=sut, state=item) for item in get_args(State)} == {
            item: float(item == state) for item in get_args(State)
        }
    assert value("calibration_failed_verdicts", sut="s2", check="missing") == 1
    assert value("calibration_failed_verdicts", sut="s1", check="missing") == 0
    when = (FIRST + timedelta(days=1)).timestamp()
    assert when < value(TIME, sut="s3", kind="idle_latency") < when + 3600, "an old run keeps its time"


def test_an_invalid_metric_is_left_out_with_its_reason(results: Path, text: str) -> None:
    assert 'calibration_idle_latency_seconds{sut="s1",testbed="t1"}' in text
    assert 'calibration_idle_latency_seconds{testbed="t1",sut="s2"}' not in text
    ended = called("export", "openmetrics", "--results", results)
    assert ended.exit_code == 0
    assert ended.stderr == f"t1/s2/{run_id(2)}: idle_latency.latency_ns left out: the pages lie in node 1\n"
    assert ended.stdout == text


@pytest.fixture(scope="module")
def textfiles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the exports of four stores, each with its own SUT and every fourth metric."""
    path = tmp_path_factory.mktemp("textfiles")
    document = read_run(SHARE / "results" / "example")
    for number in range(4):
        names = {"testbed": "t1", "sut": f"s{number}", "started_at": FIRST, "finished_at": FIRST}
        verdicts = islice(verdicts_of(document.measurements, ()), number, None, 4)
        made = document.model_copy(update={"run": document.run.model_copy(update=names), "verdicts": tuple(verdicts)})
        store(made, path / f"store{number}")
        (path / f"{number}.prom").write_text(text_of.openmetrics(path / f"store{number}", lambda _: None))
    return path


def described(text: str) -> dict[str, tuple[str, str, str]]:
    """Return the help, type and unit of each family."""
    return {family.name: (family.documentation, family.type, family.unit) for family in read_openmetrics(text)}


def test_a_family_is_described_the_same_whatever_was_measured(textfiles: Path) -> None:
    """Each store has other metrics of a family with two meanings."""
    found = [described(path.read_text()) for path in sorted(textfiles.glob("*.prom"))]
    merged = {name: description for families in found for name, description in families.items()}
    for families in found:
        assert families.items() <= merged.items()
    name = "calibration_loaded_latency_seconds"
    assert len([families for families in found if name in families]) > 1
    assert merged[name][0] == (
        "one load of the probe beside a load with that injection delay; one load of the first probe, or that on the "
        "CPU, beside a load of that share of its full bandwidth, on the worst CPU"
    )


def test_node_exporter_reads_the_exports_of_several_stores(textfiles: Path, tmp_path: Path) -> None:
    base = f"http://127.0.0.1:{free_port()}"
    server = [
        require("prometheus-node-exporter", "prometheus-node-exporter", "node_exporter"),
        "--collector.disable-defaults",
        "--collector.textfile",
        f"--collector.textfile.directory={textfiles}",
        f"--web.listen-address={base.removeprefix('http://')}",
    ]
    with serving(server, f"{base}/", tmp_path / "log"):
        found = samples(read_prometheus(asked(f"{base}/metrics").decode()))
    assert found["node_textfile_scrape_error", ()] == 0
    expected: dict[Sample, float] = {}
    for path in textfiles.glob("*.prom"):
        expected |= samples(read_openmetrics(path.read_text()))
    given = {  # node_exporter gives all samples of a family the same labels: an empty one is none
        (name, tuple(label for label in labels if label[1])): value
        for (name, labels), value in found.items()
        if name.startswith("calibration_")
    }
    assert given == expected
    assert len({dict(labels)["sut"] for _, labels in expected}) == 4
    assert "error" not in (tmp_path / "log").read_text()


STATE = 'calibration_sut_state{{testbed="t1",sut="{}",state="{}"}}'
ALERTING = [("CalibrationFails", "bad"), ("CalibrationFails", "lost"), ("CalibrationFails", "odd")]


def alerts(hour: int, *expected: tuple[str, str]) -> dict[str, Any]:
    """Return what promtool expects after *hour* hours: the alerts that fire, with their SUTs."""
    found = [{"labels": f'{{alertname="{name}",sut="{sut}"}}', "value": 1} for name, sut in expected]
    return {"expr": "count by (alertname, sut) (ALERTS)", "eval_time": f"{hour}h", "exp_samples": found}


RULES_TEST = {
    "rule_files": [str(RULES)],
    "evaluation_interval": "1h",
    "tests": [{"interval": "1h",
               "input_series": [{"series": STATE.format("bad", "fails"), "values": "1x72"},
                                {"series": STATE.format("lost", "not_measured"), "values": "1x72"},
                                {"series": STATE.format("odd", "faulty"), "values": "1x72"},
                                {"series": STATE.format("good", "as_accepted"), "values": "1x72"},
                                {"series": TIME + '{testbed="t1",sut="old"}', "values": "0x72"},
                                {"series": TIME + '{testbed="t1",sut="new"}', "values": "0+3600x72"}],
               "promql_expr_test": [alerts(47, *ALERTING), alerts(49, *ALERTING, ("CalibrationIsOld", "old"))]}],
}  # fmt: skip
"""SUTs in every state, and two that were measured once and every hour."""


def test_promtool_has_no_complaint(text: str, tmp_path: Path) -> None:
    checked = subprocess.run(
        [require("prometheus", "promtool"), "check", "metrics"], input=text, text=True, capture_output=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    (tmp_path / "alerts.json").write_text(json.dumps(RULES_TEST), encoding="utf-8")  # which is YAML too
    command = [require("prometheus", "promtool"), "test", "rules", str(tmp_path / "alerts.json")]
    tested = subprocess.run(command, text=True, capture_output=True, check=False)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def of_cpus(count: int) -> dict[Sample, float]:
    """Return the samples of a SUT with *count* measured CPUs, the longest gap on the last but one."""
    gauges = text_of._Gauges(dict)
    gaps = {cpu: 1000.0 + cpu for cpu in range(count)}
    gaps[count - 2] = 5e6
    for cpu, gap in gaps.items():
        for name in (f"jitter.cpu{cpu}.gaps.max_ns", f"loaded_latency.90pct.cpu{cpu}.latency_ns"):
            family = family_of(name)
            assert family is not None
            text_of._add_value(gauges, ("t1", "s1"), family, gap * family.factor, FIRST.timestamp())
    return samples(read_openmetrics(generate_latest(gauges).decode()))


def test_cpus_make_no_samples() -> None:
    few, many = map(of_cpus, (2, 504))
    assert few.keys() == many.keys()
    own = (("sut", "s1"), ("testbed", "t1"))
    assert many["calibration_jitter_gaps_max_seconds", own] == 5e6 * 1e-9


def test_the_worst_of_what_should_be_high_is_the_lowest() -> None:
    gauges = text_of._Gauges(dict)
    family = family_of("memory_parallelism.0.in_flight")
    assert family is not None
    family = family._replace(labels=(("cpu", "1"),))
    for value in (20.0, 7.0, 12.0):
        text_of._add_value(gauges, ("t1", "s1"), family, value, FIRST.timestamp())
    assert list(gauges[family.name, family.unit, family.meaning].values()) == [7.0]


def test_a_sut_that_is_gone_has_no_metrics(tmp_path: Path) -> None:
    for sut, nights in (("s1", EXPECTED_NIGHTS + 3), ("s2", 1)):
        stored_nights(tmp_path, [100.0] * nights, testbed="t1", sut=sut)
    found = samples(read_openmetrics(text_of.openmetrics(tmp_path, lambda _: None)))
    assert found["calibration_sut_state", (("state", "gone"), ("sut", "s2"), ("testbed", "t1"))] == 1.0
    assert {dict(labels)["sut"] for name, labels in found if name.endswith("_seconds")} == {"s1"}


def test_labels_and_help_are_escaped() -> None:
    odd = 'a"b\\c\nd\\n'
    lines = generate_latest(text_of._Gauges(dict, {("m", "", odd): {(("sut", odd),): 1.0}})).decode()
    (family,) = read_openmetrics(lines)
    assert family.documentation == odd
    assert family.samples[0].labels == {"sut": odd}
    (family,) = read_prometheus(lines)
    assert family.samples[0].labels == {"sut": odd}


def test_results_without_a_run_are_an_empty_export(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    assert called("export", "openmetrics", "--results", tmp_path / "results").stdout == "# EOF\n"
    assert called("export", "influx", "--results", tmp_path / "results").stdout == ""
    assert write_parquet(tmp_path / "results", tmp_path / "history") == (0, 0, 0)
    assert list((tmp_path / "history").iterdir()) == []


# Files


@pytest.mark.parametrize("form", ["openmetrics", "influx"])
def test_a_file_is_replaced_when_the_export_is_complete(
    results: Path, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "calibration.prom"
    path.write_text("before")
    seen: list[str] = []
    original = Path.replace

    def replace(self: Path, target: Path) -> Path:
        seen.append(self.name)
        assert target.read_text() == "before"
        return original(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    assert called("export", form, "--results", results, "-o", path).exit_code == 0
    assert path.stat().st_size > 1000
    assert [item.name for item in tmp_path.iterdir()] == [path.name]
    assert seen
    assert not seen[0].endswith(".prom"), "node_exporter must not read an incomplete file"


@pytest.mark.parametrize("form", ["openmetrics", "influx"])
def test_a_file_that_cannot_be_written_stays(
    results: Path, tmp_path: Path, form: str, file_size_limit: Callable[[int], None]
) -> None:
    path = tmp_path / "calibration.prom"
    path.write_text("before")
    called("export", form, "--results", results, "-o", tmp_path / "fills.index")
    (tmp_path / "fills.index").unlink()
    file_size_limit(4096)
    ended = called("export", form, "--results", results, "-o", path)
    assert isinstance(ended.exception, EnvironmentLacksError)
    assert str(ended.exception).startswith(f"cannot write {path}: ")
    assert path.read_text() == "before"
    assert [item.name for item in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("form", ["openmetrics", "influx", "parquet"])
def test_a_file_in_a_missing_directory_is_one_line(results: Path, tmp_path: Path, form: str) -> None:
    path = tmp_path / "missing" / "x"
    ended = called("export", form, "--results", results, "-o", path)
    assert str(ended.exception) == f"cannot write {path}: No such file or directory"


def test_a_fifo_is_not_replaced(results: Path, tmp_path: Path) -> None:
    path, run = tmp_path / "fifo", str(next(results.glob("*/*/*/run.json")).parent)
    os.mkfifo(path)
    for words in (["export", "influx", "--results", results, "-o"], ["compare", run, run, "--json", "-o"], ["runner"]):
        ended = called(*words, path)
        assert f"{path} is a device, FIFO or socket, not a file" in ended.stderr
    assert path.is_fifo()


@pytest.mark.parametrize(("path", "words"), [("", "the path is empty"), ("n" * 300, "File name too long")])
def test_a_path_that_cannot_be_is_bad_usage(results: Path, path: str, words: str) -> None:
    ended = called("export", "influx", "--results", results, "-o", path)
    assert (ended.exit_code, words in ended.stderr) == (2, True)


def test_a_dash_is_standard_output(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = str(next(results.glob("*/*/*/run.json")).parent)
    for words in (["export", "influx", "--results", results], ["compare", run, run, "--json"]):
        dashed, plain = (sorted(called(*words, *dash).stdout.splitlines()) for dash in (("-o", "-"), ()))
        assert dashed == plain
    assert "parquet needs -o DIR" in called("export", "parquet", "--results", results, "-o", "-").stderr
    assert not (tmp_path / "-").exists()


def test_wrong_options_are_refused(results: Path) -> None:
    assert "parquet needs -o DIR" in called("export", "parquet", "--results", results).stderr
    refused = called("export", "openmetrics", "--results", results, "--since", "2026-01-30")
    assert "--since goes with influx, not with openmetrics" in refused.stderr


def test_many_metrics_left_out_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    with export._LeftOut() as left_out:
        for number in range(export.MAX_LEFT_OUT + 7):
            left_out(f"metric {number}\x1b[1m")
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == "7 more left out"
    assert len(lines) == export.MAX_LEFT_OUT + 1
    assert "\x1b" not in "".join(lines)


# InfluxDB and Prometheus themselves


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@contextmanager
def serving(command: list[str], url: str, log: Path) -> Iterator[None]:
    """Run a server until the end of the block; *url* answers when it is ready."""
    with log.open("wb") as file, subprocess.Popen(command, stdout=file, stderr=file) as process:
        try:
            until = time.monotonic() + ANSWER_S
            while not answers(url):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < until, log.read_text()
                time.sleep(0.05)
            yield
        finally:
            process.terminate()


def asked(url: str, body: bytes | None = None) -> bytes:
    """Return the answer of a local server, without a proxy."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, body, ANSWER_S) as answer:
        content: bytes = answer.read()
        return content


def answers(url: str) -> bool:
    try:
        asked(url)
    except OSError:
        return False
    return True


def test_influxdb_returns_every_value_with_its_time(results: Path, tmp_path: Path) -> None:
    server = require("influxdb", "influxd")
    port, other = free_port(), free_port()
    (tmp_path / "influxd.conf").write_text(
        f'reporting-disabled = true\nbind-address = "127.0.0.1:{other}"\n[meta]\ndir = "{tmp_path}/meta"\n'
        f'[data]\ndir = "{tmp_path}/data"\nwal-dir = "{tmp_path}/wal"\n[http]\nbind-address = "127.0.0.1:{port}"\n'
    )
    lines = called("export", "influx", "--results", results).stdout
    expected = {}
    for document in documents(results):
        for name, value, unit, started in stored(document):
            family = family_of(name)
            assert family is not None
            labels = {**dict(family.labels), "testbed": document["run"]["testbed"], "sut": document["run"]["sut"]}
            tags = tuple(sorted(labels.items()))
            expected[family.name, tags, int(started.timestamp()) * 10**9] = value * BASE_UNITS[unit].factor
    assert len(lines.splitlines()) == len(expected)
    family = family_of("idle_latency.latency_ns")
    assert family is not None
    lines += f"{influx._head('t 1', ODD, family)} value=1.5 {int(FIRST.timestamp())}000000000"
    expected[family.name, (("sut", "s,=__1"), ("testbed", "t 1")), int(FIRST.timestamp()) * 10**9] = 1.5
    base = f"http://127.0.0.1:{port}"
    with serving([server, "-config", f"{tmp_path}/influxd.conf"], f"{base}/ping", tmp_path / "log"):
        asked(f"{base}/query", b"q=CREATE DATABASE lab")
        for _ in range(2):  # the second time changes nothing
            asked(f"{base}/write?db=lab&precision=ns", lines.encode())
        query = urllib.parse.urlencode({"db": "lab", "epoch": "ns", "q": "SELECT value FROM /.*/ GROUP BY *"})
        (result,) = json.loads(asked(f"{base}/query?{query}"))["results"]
    found = {
        (series["name"], tuple(sorted((tag, text) for tag, text in series["tags"].items() if text)), when): value
        for series in result["series"]
        for when, value in series["values"]
    }
    assert found == expected


def test_a_line_of_influx_has_value_interval_and_trust(results: Path) -> None:
    expected = []
    for document in documents(results):
        for verdict in document["verdicts"]:
            metric, family = verdict["metric"], family_of(verdict["name"])
            if metric is not None and verdict["outcome"] != "invalid":
                assert family is not None
                own = {"testbed": document["run"]["testbed"], "sut": document["run"]["sut"]}
                tags = "".join(f",{name}={text}" for name, text in sorted((*own.items(), *family.labels)))
                known = zip(("value", "low", "high"), (metric["value"], *(metric["interval"] or ())), strict=False)
                fields = "".join(f"{name}={number * family.factor!r}," for name, number in known)
                expected.append(f'{family.name}{tags} {fields}trust="{metric["trust"]}"')
    found = [line.rpartition(" ")[0] for line in called("export", "influx", "--results", results).stdout.splitlines()]
    assert sorted(found) == sorted(expected)
    assert any("low=" in line for line in found)
    assert not all("low=" in line for line in found)


def test_tags_of_influx_are_escaped() -> None:
    family = family_of("idle_latency.latency_ns")
    assert family is not None
    assert influx._head("t 1", ODD, family) == r"calibration_idle_latency_seconds,sut=s\,\=__1,testbed=t\ 1"


@pytest.mark.parametrize(
    "number", [0.1, 1e-5, 1e-4, 1e15, 1e16, 1e17, 5e-324, 1.7976931348623157e308, 1 / 3, -0.0, 7.0]
)
def test_duckdb_prints_numbers_as_python_does(number: float) -> None:
    with duckdb.connect() as db:
        assert db.execute("SELECT '' || ?::DOUBLE", [number]).fetchone() == (repr(number),)


def test_influx_since_a_night_has_only_later_ones(results: Path) -> None:
    count = dict.fromkeys(range(3), 0)
    for document in documents(results):
        count[(datetime.fromisoformat(document["run"]["started_at"]) - FIRST).days] += len(list(stored(document)))
    later = called("export", "influx", "--results", results, "--since", f"{FIRST + timedelta(days=1):%Y-%m-%d}")
    assert len(later.stdout.splitlines()) == count[1] + count[2]
    assert f"t1/s2/{run_id(2)}: idle_latency.latency_ns left out: the pages lie in node 1" in later.stderr


def test_what_cannot_be_named_or_dated_is_left_out_with_the_reason(results: Path, tmp_path: Path) -> None:
    document = next(documents(results))
    names = [verdict["name"] for verdict in document["verdicts"]]
    odd, undated = document["verdicts"][0], document["verdicts"][-1]
    odd["name"] = odd["metric"]["name"] = "of.another.version_ns"
    undated["measurement"] = "of_no_measurement"
    directory = tmp_path / "results" / "t1" / "s1" / document["run"]["id"]
    directory.mkdir(parents=True)
    (directory / RUN).write_text(json.dumps(document))
    for form in ("openmetrics", "influx"):
        ended = called("export", form, "--results", tmp_path / "results")
        place = f"t1/s1/{document['run']['id']}"
        assert sorted(ended.stderr.splitlines()) == sorted(
            [
                f"{place}: of.another.version_ns left out: this version has no such metric",
                f"{place}: {undated['name']} left out: when it was measured cannot be read",
            ]
        )
    assert len(ended.stdout.splitlines()) == len(names) - 2


@pytest.mark.parametrize("form", ["openmetrics", "influx", "bencher", "otava"])
def test_a_run_that_cannot_be_read_is_named(results: Path, tmp_path: Path, form: str) -> None:
    copied = tmp_path / "results"
    shutil.copytree(results, copied)
    document = max(copied.glob(f"t1/s1/*/{RUN}"))
    os.truncate(document, document.stat().st_size // 2)
    ended = called("export", form, "--results", copied, "-o", tmp_path / "out")
    assert ended.exit_code == 0
    assert f"t1/s1/{document.parent.name} left out: not a run document: the top: Invalid JSON" in ended.stderr


def test_a_run_that_cannot_be_read_is_of_its_night(results: Path, tmp_path: Path) -> None:
    copied = tmp_path / "results"
    shutil.copytree(results, copied)
    document = min(copied.glob(f"t1/s1/*/{RUN}"))
    document.write_text("{")
    ended = called("export", "influx", "--results", copied, "--since", "2099-01-01")
    assert (ended.exit_code, ended.stderr) == (0, "")


# Parquet


def test_parquet_has_every_value_of_every_run(results: Path, tmp_path: Path) -> None:
    done = write_parquet(results, tmp_path)
    tables = [parquet.read_table(path, partitioning=None) for path in files(tmp_path).values()]
    assert done == (sum(table.num_rows for table in tables), 2, 2)
    assert {table.schema.metadata[b"schema_version"].decode() for table in tables} == {SCHEMA_VERSION}
    expected: dict[tuple[str, ...], tuple[Any, ...]] = {}
    for document in documents(results):
        run = document["run"]
        started = {item["id"]: datetime.fromisoformat(item["started_at"]) for item in document["measurements"]}
        for verdict in document["verdicts"]:
            metric = verdict["metric"] or {"unit": None, "value": None, "interval": None, "trust": None}
            invalid = verdict["outcome"] == "invalid"
            low, high = (None, None) if invalid or metric["interval"] is None else metric["interval"]
            expected[run["sut"], run["id"], verdict["name"]] = (
                metric["unit"],
                started.get(verdict["measurement"], datetime.fromisoformat(run["started_at"])),
                None if invalid else metric["value"],
                low,
                high,
                "invalid" if invalid else metric["trust"],
                *(verdict[name] for name in ("lower", "upper", "outcome", "reason")),
            )
    names = ["unit", "measured_at", "value", "low", "high", "trust", "limit_low", "limit_high", "outcome", "reason"]
    rows = [row for table in tables for row in table.to_pylist()]
    found = {(row["sut"], row["run_id"], row["metric"]): tuple(row[name] for name in names) for row in rows}
    assert found == expected
    assert {row[-2] for row in expected.values()} == {"pass", "fail", "no_reference", "invalid"}
    assert len(expected) == len(rows)


def files(history: Path) -> dict[str, Path]:
    """Return the Parquet files of *history* by month; there is nothing else."""
    found = {path.parent.name: path for path in sorted(history.glob("month=*/history.parquet"))}
    assert sorted(path for path in history.rglob("*") if path.is_file()) == list(found.values())
    return found


def test_a_month_and_a_sut_are_read_alone(results: Path, tmp_path: Path) -> None:
    write_parquet(results, tmp_path)
    for month, path in files(tmp_path).items():
        rows = parquet.read_table(path, columns=["testbed", "sut", "metric", "night"], partitioning=None).to_pylist()
        assert {f"month={row['night']:%Y-%m}" for row in rows} == {month}
        order = [tuple(row.values()) for row in rows]
        assert order == sorted(order), "row groups of one SUT are found by their statistics"


def run_documented(db: duckdb.DuckDBPyConnection) -> Iterator[tuple[list[tuple[Any, ...]], str]]:
    """Run the queries of the guide in the working directory; yield the rows and the plan of each."""
    (block,) = re.findall(r"With DuckDB::\n\n((?:   .*\n|\n)+)", GUIDE.read_text())
    for query in block.replace("testbed1", "t1").replace("t1-sut2", "s2").replace("2026-11", "2026-02").split(";")[:-1]:
        rows = db.execute(query).fetchall()
        yield rows, db.execute(f"EXPLAIN ANALYZE {query}").fetchall()[0][1]


def test_the_queries_of_the_guide(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_parquet(results, tmp_path / "history")
    monkeypatch.chdir(tmp_path)
    with duckdb.connect() as db:
        (nights, all_files), (metrics, one_file) = run_documented(db)
    assert [night for night, _ in nights] == [(FIRST + timedelta(days=number)).date() for number in range(3)]
    assert all(value > 0 for _, value in nights)
    assert "Total Files Read: 2" in all_files
    assert {night for night, *_ in metrics} == {datetime(2026, 2, 1, tzinfo=UTC).date()}
    names = {name for document in documents(results) for name, *_ in stored(document)}
    assert names <= {name for _, name, _ in metrics}
    assert "Total Files Read: 1" in one_file


@pytest.fixture
def changing(results: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A copy of the results, and their history."""
    shutil.copytree(results, tmp_path / "results")
    history = tmp_path / "history"
    assert write_parquet(tmp_path / "results", history).written == 2
    return tmp_path / "results", history


def identities(history: Path) -> dict[str, int]:
    return {month: path.stat().st_ino for month, path in files(history).items()}


def test_only_months_that_changed_are_written(changing: tuple[Path, Path]) -> None:
    copied, history = changing
    before = identities(history)
    assert list(before) == ["month=2026-01", "month=2026-02"]
    assert write_parquet(copied, history) == (0, 0, 2)
    assert identities(history) == before
    shutil.rmtree(copied / "t1" / "s1" / run_id(2))
    done = write_parquet(copied, history)
    assert (done.written, done.months) == (1, 2)
    after = identities(history)
    assert after["month=2026-01"] == before["month=2026-01"]
    table = parquet.read_table(files(history)["month=2026-02"], columns=["sut"], partitioning=None)
    assert set(table["sut"].to_pylist()) == {"s2"}
    document = copied / "t1" / "s1" / run_id(0) / RUN
    document.write_bytes(document.read_bytes())  # same name and size, later
    assert write_parquet(copied, history).written == 1
    assert identities(history)["month=2026-02"] == after["month=2026-02"]


def test_a_month_without_runs_is_removed(changing: tuple[Path, Path]) -> None:
    copied, history = changing
    (history / "month=2026-02" / "notes").write_text("the operator's")
    (history / "month=2025-12").mkdir()
    (history / "month=2025-12" / "history.parquet").write_text("of old runs")
    for path in copied.glob(f"*/*/{run_id(2)}"):
        shutil.rmtree(path)
    assert write_parquet(copied, history) == (0, 0, 1)
    assert sorted(str(path.relative_to(history)) for path in history.rglob("*")) == [
        "month=2026-01", "month=2026-01/history.parquet", "month=2026-02", "month=2026-02/notes",
    ]  # fmt: skip


def test_a_damaged_month_is_written_again(changing: tuple[Path, Path]) -> None:
    copied, history = changing
    path = files(history)["month=2026-01"]
    whole = parquet.read_table(path, partitioning=None)
    for damage in (b"", b"PAR1 no Parquet PAR1", path.read_bytes()[:-100]):
        path.write_bytes(damage)
        assert write_parquet(copied, history).written == 1
        assert parquet.read_table(path, partitioning=None) == whole


def test_a_month_that_cannot_be_written_stays(
    changing: tuple[Path, Path], file_size_limit: Callable[[int], None]
) -> None:
    copied, history = changing
    shutil.rmtree(copied / "t1" / "s1" / run_id(2))
    (path, *_) = copied.glob(f"t1/s2/{run_id(0)}")
    path.joinpath(RUN).touch()
    write_parquet(copied, history.with_name("fills_the_index"))
    before = {month: file.read_bytes() for month, file in files(history).items()}
    file_size_limit(4096)
    with pytest.raises(EnvironmentLacksError, match=f"^cannot write {re.escape(str(history))}: "):
        write_parquet(copied, history)
    assert {month: file.read_bytes() for month, file in files(history).items()} == before


def test_parquet_needs_a_directory(results: Path, tmp_path: Path) -> None:
    (tmp_path / "history.parquet").write_text("of an older version")
    ended = called("export", "parquet", "--results", results, "-o", tmp_path / "history.parquet")
    assert str(ended.exception) == f"cannot write {tmp_path}/history.parquet: File exists"
    assert called("export", "parquet", "--results", results, "-o", tmp_path / "history").exit_code == 0
    ended = called("export", "influx", "--results", results, "-o", tmp_path / "history")
    assert str(ended.exception) == f"cannot write {tmp_path}/history: Is a directory"


def test_duckdb_and_pyarrow_read_the_documented_columns(results: Path, tmp_path: Path) -> None:
    write_parquet(results, tmp_path)
    path = next(iter(files(tmp_path).values()))
    with duckdb.connect() as db:
        described = db.execute("DESCRIBE FROM read_parquet(?, hive_partitioning = false)", [str(path)]).fetchall()
        (night, kind, chosen) = (
            db.execute(
                "SELECT min(night), min(kind) FILTER (metric LIKE 'idle_latency.%'), bool_and(for_night) "
                "FROM read_parquet(?, hive_partitioning = false)",
                [str(path)],
            ).fetchone()
            or ()
        )
    assert [tuple(row[:2]) for row in described] == [(column.name, column.type) for column in COLUMNS]
    arrow = {"VARCHAR": "string", "DATE": "date32[day]", "BOOLEAN": "bool", "DOUBLE": "double"}
    assert {field.name: str(field.type) for field in parquet.read_schema(path)} == {
        column.name: arrow.get(column.type, "timestamp[us, tz=UTC]") for column in COLUMNS
    }
    assert (night, kind, chosen) == (FIRST.date(), "idle_latency", True)


def test_the_newest_complete_run_represents_its_night(results: Path, tmp_path: Path) -> None:
    document = next(documents(results))
    for name, status in (
        ("20260130T030000Z-0001", "incomplete"),
        ("20260130T020000Z-0002", "complete"),
        ("20260130T010000Z-0003", "complete"),
        ("20260131T010000Z-0004", "incomplete"),
        ("20260131T020000Z-0005", "incomplete"),
    ):
        started = f"2026-01-{name[6:8]}T{name[9:11]}:00:00Z"
        if name.endswith("5"):
            document |= {"measurements": [], "verdicts": []}
        document["run"] |= {"id": name, "status": status, "started_at": started}
        for measurement in document["measurements"]:
            measurement["started_at"] = started
        directory = tmp_path / "results" / "t1" / "s1" / name
        directory.mkdir(parents=True)
        (directory / RUN).write_text(json.dumps(document))
    write_parquet(tmp_path / "results", tmp_path / "history")
    table = parquet.read_table(tmp_path / "history", columns=["run_id", "run_status", "for_night"]).to_pylist()
    assert {(row["run_id"][-4:], row["run_status"], row["for_night"]) for row in table} == {
        ("0001", "incomplete", False),
        ("0002", "complete", True),
        ("0003", "complete", False),
        ("0004", "incomplete", False),
    }
    found = samples(read_openmetrics(called("export", "openmetrics", "--results", tmp_path / "results").stdout))
    assert len([name for name, _ in found if name == "calibration_idle_latency_seconds"]) == 1
    newest = datetime(2026, 1, 30, 2, tzinfo=UTC).timestamp()  # the last night's run has none
    assert {value for (name, _), value in found.items() if name == TIME} == {newest}


# Bencher and Otava

BENCHER: dict[str, Any] = {
    "type": "object",
    "minProperties": 1,
    "propertyNames": {"minLength": 1, "maxLength": 1024},
    "additionalProperties": {
        "type": "object",
        "minProperties": 1,
        "propertyNames": {"minLength": 1, "maxLength": 64},
        "additionalProperties": {
            "type": "object",
            "required": ["value"],
            "properties": {name: {"type": "number"} for name in ("value", "lower_value", "upper_value")},
            "additionalProperties": False,
        },
    },
}
"""What https://bencher.dev/docs/reference/bencher-metric-format says: schema, and lengths of names."""


def without_cpus(metrics: Iterator[tuple[str, float, str, datetime]]) -> dict[str, float]:
    """Return the worst of the CPUs' values by the name with ``*``; those of jitter are worse if higher."""
    found: dict[str, float] = {}
    for name, value, *_ in metrics:
        plain = re.sub(r"\bcpu\d+", "cpu*", name)
        found[plain] = max(value, found.get(plain, value))
    return found


def two_cpus(results: Path, directory: Path) -> Path:
    """Store the newest run of s1 with a second measured CPU, whose gaps are shorter, in *directory*."""
    document = read_run(results / "t1" / "s1" / run_id(2))
    index = index_of(document, "jitter")
    values = document.measurements[index].values
    assert isinstance(values, JitterValues)
    gaps = values.gaps.model_copy(update={"max_ns": values.gaps.max_ns / 2})
    other = document.measurements[index].model_copy(
        update={"id": "jitter-other", "values": values.model_copy(update={"cpu": values.cpu + 1, "gaps": gaps})}
    )
    measurements = (*document.measurements, other)
    verdicts = tuple(verdicts_of(measurements, ()))
    store(document.model_copy(update={"measurements": measurements, "verdicts": verdicts}), directory)
    return directory


def test_bencher_gets_the_newest_run_of_each_sut_in_its_format(results: Path, tmp_path: Path) -> None:
    ended = called("export", "bencher", "--results", results, "-o", tmp_path / "made" / "here")
    assert ended.exit_code == 0, ended.output
    newest = {document["run"]["sut"]: document for document in documents(results)}
    assert {path.name for path in (tmp_path / "made" / "here" / "t1").iterdir()} == {f"{sut}.json" for sut in newest}
    for sut, document in newest.items():
        written = json.loads((tmp_path / "made" / "here" / "t1" / f"{sut}.json").read_bytes())
        jsonschema.validate(written, BENCHER)
        found = {
            f"{benchmark}.{measure}": values for benchmark, of in written.items() for measure, values in of.items()
        }
        assert {name: values["value"] for name, values in found.items()} == without_cpus(stored(document))
        if sut == "s1":
            (latency,) = (item["metric"] for item in document["verdicts"] if item["name"] == "idle_latency.latency_ns")
            assert [found["idle_latency.latency_ns"][end] for end in ("lower_value", "upper_value")] == latency[
                "interval"
            ]
    assert "s2" in ended.stderr
    assert "idle_latency.latency_ns left out: the pages lie in node 1" in ended.stderr


def test_every_metric_has_a_measure_that_bencher_takes() -> None:
    rows = [row for declaration in registry().values() for row in declaration.metric_rows if not row.imported]
    measures = {row.example.rpartition(".")[2] for row in rows}
    assert all(0 < len(measure) <= 64 for measure in measures)
    assert all(row.example.count(".") for row in rows)


def test_the_worst_cpu_counts_where_cpus_have_no_name(results: Path, tmp_path: Path) -> None:
    two = two_cpus(results, tmp_path / "results")
    assert called("export", "bencher", "--results", two, "-o", tmp_path / "made").exit_code == 0
    written = json.loads((tmp_path / "made" / "t1" / "s1.json").read_bytes())
    gaps = [
        value for name, value, *_ in stored(next(documents(two))) if re.fullmatch(r"jitter\.cpu\d+\.gaps\.max_ns", name)
    ]
    assert len(set(gaps)) == 2
    assert written["jitter.cpu*.gaps"]["max_ns"]["value"] == max(gaps)


def test_otava_gets_the_whole_history_a_file_for_each_metric(results: Path, tmp_path: Path) -> None:
    ended = called("export", "otava", "--results", results, "-o", tmp_path / "made")
    assert ended.exit_code == 0, ended.output
    config = yaml.safe_load((tmp_path / "made" / "otava.yaml").read_bytes())
    expected: dict[str, list[list[str]]] = {}
    for document in documents(results):
        run = document["run"]
        for name, value in without_cpus(stored(document)).items():
            test = f"{run['testbed']}/{run['sut']}/{name}"
            expected.setdefault(test, []).append([run["started_at"], run["id"], str(value)])
    assert config["tests"].keys() == expected.keys()
    assert config["test_groups"] == {
        sut: [test for test in config["tests"] if test.startswith(f"{sut}/")] for sut in ("t1/s1", "t1/s2", "t1/s3")
    }
    better = {row.name: row.better for declaration in registry().values() for row in declaration.metric_rows}
    for test, told in config["tests"].items():
        ((metric, column),) = told["metrics"].items()
        assert metric == test, "Otava's own check refuses two of one name"
        name = test.split("/", 2)[2]
        head, *rows = [line.split(",") for line in (tmp_path / "made" / told["file"]).read_text().splitlines()]
        assert head == ["time", *told["attributes"], column["column"]] == ["time", "run", name]
        assert [[time, run, float(value)] for time, run, value in rows] == [
            [time, run, float(value)] for time, run, value in sorted(expected[test])
        ]
        assert re.fullmatch(r"[\w./]+", told["file"]), "a CI system's artefacts have no other names"
        if name in better:
            assert column["direction"] == (1 if better[name] == "higher" else -1)


# Dashboard


def test_grafana_knows_every_field_of_the_dashboard() -> None:
    """Grafana's own models read the file, and nothing of it is lost when they write it."""
    raw = json.loads(DASHBOARD.read_bytes())
    plugins.register_default_plugins()
    written = json.loads(JSONEncoder().encode(Dashboard.from_json(raw)))
    assert lost(raw, written) == []


def lost(one: Any, other: Any, place: str = "") -> list[str]:
    """Return the places of *one* that *other* has not, or otherwise."""
    if isinstance(one, dict) and isinstance(other, dict):
        return [
            found
            for name in one
            for found in ([f"{place}.{name}"] if name not in other else lost(one[name], other[name], f"{place}.{name}"))
        ]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [
            found
            for number, pair in enumerate(zip(one, other, strict=True))
            for found in lost(*pair, f"{place}[{number}]")
        ]
    return [] if one == other else [place]


def test_the_dashboard_can_be_imported_anywhere() -> None:
    raw = json.loads(DASHBOARD.read_bytes())
    assert "id" not in raw, "an id is that of one Grafana"
    variables = {variable["name"]: variable for variable in raw["templating"]["list"]}
    assert (variables["datasource"]["type"], variables["datasource"]["query"]) == ("datasource", "prometheus")
    sources = {json.dumps(source) for source in named(raw, "datasource")}
    assert sources == {json.dumps({"type": "prometheus", "uid": "${datasource}"})}
    panels = raw["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(taken) == len(set(taken)), "panels overlap"
    assert max(x for x, _ in taken) < 24


def named(content: Any, name: str) -> Iterator[Any]:
    """Yield all objects in *content* with this *name*."""
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in items:
        if key == name and isinstance(value, dict):
            yield value
        else:
            yield from named(value, name)


def test_every_query_of_the_dashboard_finds_data(tmp_path: Path) -> None:
    """Prometheus itself answers them from the export of the example."""
    example = SHARE / "results" / "example" / RUN
    run = json.loads(example.read_bytes())["run"]
    directory = tmp_path / "results" / run["testbed"] / run["sut"] / run["id"]
    directory.mkdir(parents=True)
    shutil.copy(example, directory / RUN)
    text = text_of.openmetrics(tmp_path / "results", lambda _: None)
    when = datetime.now(UTC).replace(microsecond=0)
    dated = re.sub(r"^([^#].*)$", rf"\1 {when.timestamp():.0f}", text, flags=re.MULTILINE)
    (tmp_path / "dated").write_text(dated)
    (tmp_path / "data").mkdir()
    made = [require("prometheus", "promtool"), "tsdb", "create-blocks-from", "openmetrics", "dated", "data"]
    subprocess.run(made, cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "prometheus.yml").write_text("{}\n")
    base = f"http://127.0.0.1:{free_port()}"
    server = [
        require("prometheus", "prometheus"),
        f"--config.file={tmp_path}/prometheus.yml",
        f"--storage.tsdb.path={tmp_path}/data",
        f"--web.listen-address={base.removeprefix('http://')}",
    ]
    raw = json.loads(DASHBOARD.read_bytes())
    alerts = yaml.safe_load(RULES.read_bytes())["groups"][0]["rules"]
    queries = [(target["expr"], target["legendFormat"]) for panel in raw["panels"] for target in panel["targets"]]
    queries += [(alert["expr"], alert["annotations"]["summary"].replace("$labels.", "")) for alert in alerts]
    empty = []

    def get(path: str, **query: str) -> Any:
        return json.loads(asked(f"{base}/api/v1/{path}?{urllib.parse.urlencode(query)}"))["data"]

    with serving(server, f"{base}/-/ready", tmp_path / "log"):
        for query, legend in queries:
            of_all = re.sub(" (==|>) .*", "", query)  # the example is neither bad nor old
            of_all = of_all.replace("$testbed", run["testbed"]).replace("$sut", ".*")
            answer = get("query", query=of_all, time=f"{when.timestamp():.0f}")["result"]
            empty += [] if answer else [query]
            for label in re.findall(r"{{ ?(\w+) ?}}", legend):
                assert all(label in series["metric"] for series in answer), (query, label)
        for variable in raw["templating"]["list"][1:]:
            found = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
            assert found
            series = found[1].replace("$testbed", run["testbed"])
            values = get(f"label/{found[2]}/values", **{"match[]": series})
            assert values == [run[variable["name"]]]
    assert empty == []
