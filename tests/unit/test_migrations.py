# SPDX-License-Identifier: Apache-2.0
"""Documents of older schemas: really written then, read today as if they had been written today."""

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from calibration.errors import InputError
from calibration.report.page import render
from calibration.results.documents import schema_file, schema_validator
from calibration.results.facts import facts
from calibration.results.layout import RUN, SCHEMA_VERSION
from calibration.results.migrations import MIGRATIONS, VERSIONS, migrated, model_of
from calibration.results.model import RunDocument
from calibration.results.plain import figured
from calibration.results.store import read_run

RUNS = Path(__file__).parents[1] / "fixtures" / "runs"
OLD = sorted(RUNS.glob("run-*.json.gz"))
UNSETTLED = RUNS / "run-1-unsettled.json.gz"


def content(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes())


def stored(folder: Path, raw: bytes | dict[str, Any]) -> Path:
    path = folder / RUN
    path.write_bytes(raw if isinstance(raw, bytes) else json.dumps(raw).encode())
    return path


def test_every_version_has_a_schema_and_every_old_one_a_migration_to_the_next_and_a_document() -> None:
    assert VERSIONS[-1] == SCHEMA_VERSION
    assert list(VERSIONS) == [f"run/{number}" for number in range(1, len(VERSIONS) + 1)]
    assert {json.loads(content(each))["schema_version"] for each in OLD} == set(MIGRATIONS)
    for version in VERSIONS:
        assert json.loads(schema_file(version).read_bytes())["properties"]["schema_version"]["const"] == version


@pytest.mark.parametrize("path", [each for each in OLD if each != UNSETTLED], ids=lambda path: path.name)
def test_an_old_document_is_read_as_if_it_were_new(path: Path, tmp_path: Path) -> None:
    raw = content(path)
    document = read_run(stored(tmp_path, raw))
    assert (tmp_path / RUN).read_bytes() == raw
    assert document == model_of(raw)
    assert document.schema_version == SCHEMA_VERSION
    assert schema_validator().is_valid(json.loads(document.model_dump_json()))
    assert document.context is not None
    assert document.facts == facts(document.context.parsed, document.run.kernels)
    assert document.facts["kernel bytes"] == "0123456789ab"
    own = {each.metric.name: each.measurement for each in figured(document)}
    assert own
    assert {each.name: each.measurement for each in document.verdicts if each.metric is not None} == own
    assert [each.capture for each in document.attempts] == [document.context.capture]
    assert "Cross-checks" in render(raw).text


def without_unknown(now: Any, old: Any) -> Any:
    """Return *now* without the fields that *old* does not have and that say that nothing is known, or was not done.

    Old documents have no condition of a latency: there were no companions, and all were asleep; nor trust in a figure.
    """
    if isinstance(now, dict) and isinstance(old, dict):
        kept = {
            name: each for name, each in now.items() if name in old or each not in (None, [], {}, "asleep", "observed")
        }
        return {name: without_unknown(each, old.get(name)) for name, each in kept.items()}
    if isinstance(now, list) and isinstance(old, list) and len(now) == len(old):
        return [without_unknown(*pair) for pair in zip(now, old, strict=True)]
    return now


def test_what_old_documents_say_is_kept() -> None:
    old = json.loads(content(RUNS / "run-1-last.json.gz"))
    document = RunDocument.model_validate_json(json.dumps(migrated(old)))
    now = json.loads(document.model_dump_json())
    for verdict in now["verdicts"]:
        del verdict["measurement"]
    assert without_unknown({**now, "schema_version": "run/1"}, old) == {**old, "facts": document.facts}
    (gone,) = (each for each in document.verdicts if each.metric is None)
    assert (gone.name, gone.measurement, gone.outcome) == ("c2c_latency.local_hitm_ns", None, "fail")


def test_a_migration_leaves_what_it_is_given_alone() -> None:
    old = json.loads(content(RUNS / "run-1-without-attempts.json.gz"))
    before = json.dumps(old)
    assert migrated(old)["attempts"][0]["boot_id"] is None
    assert json.dumps(old) == before


def test_a_run_that_never_began_is_migrated(tmp_path: Path) -> None:
    old = json.loads(content(RUNS / "run-1-last.json.gz"))
    old["run"] |= {"status": "not_begun", "kernels": None}
    document = read_run(stored(tmp_path, {**old, "context": None, "plan": None, "measurements": [], "verdicts": []}))
    assert (document.facts, document.verdicts) == ({}, ())
    assert document.run.started_at == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_a_document_from_before_the_form_was_settled_says_so(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"run-1.schema.json: at measurements/1/values: .* before this form was settled"
    ):
        read_run(stored(tmp_path, content(UNSETTLED)))


@pytest.mark.parametrize("version", ["run/0", f"run/{len(VERSIONS) + 1}", None, ["run/1"], 2])
def test_an_unknown_version_is_refused_with_those_that_are_known(version: Any, tmp_path: Path) -> None:
    old = json.loads(content(RUNS / "run-1-last.json.gz"))
    with pytest.raises(InputError, match=r"unknown schema_version .*, expected run/1 or run/2 or run/3; a newer"):
        read_run(stored(tmp_path, {**old, "schema_version": version}))


def test_an_old_document_is_checked_by_its_own_schema(tmp_path: Path) -> None:
    old = json.loads(content(RUNS / "run-1-last.json.gz"))
    with pytest.raises(InputError, match=r"run-1.schema.json: at the top: .*facts"):
        read_run(stored(tmp_path, {**old, "facts": {}}))
    with pytest.raises(InputError, match=r"run-1.schema.json: at "):
        read_run(stored(tmp_path, {**old, "verdicts": None}))
