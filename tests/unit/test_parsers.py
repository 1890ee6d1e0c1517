# SPDX-License-Identifier: Apache-2.0
import gzip
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from calibration.audit.states import read_state
from calibration.base.errors import InputError
from calibration.base.files import read_given
from calibration.base.parsers import (
    LEVELS,
    LINE_CHARACTERS,
    TEXTS,
    VALUES,
    WRITTEN,
    YAML_BYTES,
    YamlError,
    parse_json,
    parse_json_sparingly,
    read_yaml,
)
from calibration.formats.csit_topology import read_topology
from calibration.formats.throughput import read_throughput
from calibration.gates.night import read_night
from calibration.judge.tolerances import read_tolerances
from calibration.judge.waivers import read_waivers
from calibration.profiles import load_profile
from calibration.references.library import library
from calibration.results.store import read_run

JSON_LEVELS = 201


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


@pytest.mark.parametrize("kind", [VALUES, TEXTS, WRITTEN])
@pytest.mark.parametrize("form", [nested, lambda levels: "- " * (levels - 1) + "[]", lambda n: "{a: " * n + "}" * n])
def test_yaml_is_read_to_64_levels_and_no_deeper(form: Callable[[int], str], kind: type[Any]) -> None:
    assert read_yaml(form(LEVELS), kind)
    with pytest.raises(YamlError, match="nested deeper than 64 levels, line 1, column"):
        read_yaml(form(LEVELS + 1), kind)


def test_nothing_is_composed_of_yaml_that_is_too_deep(monkeypatch: pytest.MonkeyPatch) -> None:
    from calibration.base import parsers

    def composed(_loader: object) -> None:
        raise AssertionError("composed")

    monkeypatch.setattr(parsers.VALUES, "get_single_node", composed)
    with pytest.raises(YamlError):
        read_yaml(nested(LEVELS + 1))


@pytest.mark.parametrize(("text", "fault"), [
    ("a: 1\nb: 2\na: 3", "duplicate key 'a', line 3, column 1"),
    ("a: 1\nb:\n  - c: 2026-02-30\n    d: 1", "day is out of range for month, line 3, column 8"),
    ("a: {b: 1, c: {d: 1}, d: 1, 2026-13-01: 2}", "month must be in 1..12, line 1, column 28"),
    ("a: &a [1]\nb: *a", "an alias of a list or mapping is not allowed, line 2"),
    ("a: &a 1\na2: &a [1]\nb: *a", "an alias of a list or mapping"),
    ("a: &a {b: 1}\nc: {<<: *a}", "an alias of a list or mapping"),
    ("a: *b", "line 1"),
    ("a: 2026-13-01", "line 1"),
    ("a: [", "line"),
    ("a: \x00", "not valid YAML: control characters are not allowed: #x0000, character 4"),
    (b"\xff\xfe\x00", "not valid YAML"),
    ("--- a\n--- b", "but found another document"),
    ("!!python/name:os.system ''", "could not determine a constructor"),
    ("#" * (YAML_BYTES + 1), "at most 4194304 bytes"),
])  # fmt: skip
def test_yaml_that_is_not_read_is_named(text: str | bytes, fault: str) -> None:
    with pytest.raises(YamlError, match=re.escape(fault)):
        read_yaml(text)


def test_a_scalar_may_be_repeated_but_not_without_end() -> None:
    assert read_yaml("a: &a 1\nb: [*a, *a]") == {"a": 1, "b": [1, 1]}
    with pytest.raises(YamlError, match="an alias"):
        read_yaml(f"a: &a {'x' * 10_000}\nb: [{'*a, ' * 500}]")


@pytest.mark.parametrize(("parse", "levels"), [(parse_json, JSON_LEVELS), (parse_json_sparingly, LEVELS)])
def test_json_has_no_nan_and_bounded_levels(parse: Callable[[str], Any], levels: int) -> None:
    assert parse('{"a": [1.5, null]}') == {"a": [1.5, None]}
    for text in ("[NaN]", "[-Infinity]", "{", ""):
        with pytest.raises(ValueError, match=r"."):
            parse(text)
    with pytest.raises(ValueError, match=r"recursion limit|nested deeper than 64 levels"):
        parse(nested(levels + 1))
    assert parse(nested(levels))


def fault_of_library(results: Path) -> str:
    found = library(results)
    assert len(found.entries) == len(library(results.parent / "none").entries)
    return "".join(found.faults)


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


DEEP_YAML, DEEP_JSON = nested(LEVELS + 1), nested(JSON_LEVELS + 1)
GIVEN: dict[str, tuple[str, str | bytes, Callable[[Path], object]]] = {
    "profile": ("own.yml", DEEP_YAML, lambda path: load_profile(str(path))),
    "large profile": ("own.yml", "#" * (YAML_BYTES + 1), lambda path: load_profile(str(path))),
    "profile in Latin-1": ("own.yml", b"title: \xe9", lambda path: load_profile(str(path))),
    "expected state": ("expected.yml", DEEP_YAML, lambda path: read_state(str(path))),
    "topology": ("t1.yaml", DEEP_YAML, lambda path: read_topology(path.read_text(), "t1")),
    "verdicts": ("verdicts.json", DEEP_JSON, lambda path: read_night(path.parent, verdicts=path)),
    "run document": ("run.json", DEEP_JSON, read_run),
    "result of CSIT": ("x.json", DEEP_JSON, lambda path: read_throughput([path])),
    "compressed": ("x.json.gz", gzip.compress(DEEP_JSON.encode()), lambda path: read_throughput([path])),
    "line of CSV": ("x.csv", "sut,test,time,value\n" + "x" * LINE_CHARACTERS, lambda path: read_throughput([path])),
    "head of CSV": ("x.csv", "x" * (2 * LINE_CHARACTERS), lambda path: read_throughput([path])),
}


@pytest.mark.parametrize("kind", GIVEN)
def test_a_file_beyond_its_bounds_is_refused_by_name_and_reason(kind: str, tmp_path: Path) -> None:
    name, content, read = GIVEN[kind]
    path = write(tmp_path / name, content)
    with pytest.raises(InputError) as refused:
        read(path)
    assert refused.value.exit_code == 2
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 1000
    if kind != "topology":  # named by the plug-in
        assert str(path) in str(refused.value)


@pytest.mark.parametrize(("name", "fault_of"), [
    ("figures/deep.yml", fault_of_library),
    ("tolerances.yml", lambda results: read_tolerances(results).fault),
    ("waivers.yml", lambda results: read_waivers(results).fault),
])  # fmt: skip
def test_one_deep_file_below_the_references_is_a_fault_and_costs_nothing_else(
    name: str, fault_of: Callable[[Path], str | None], tmp_path: Path
) -> None:
    write(tmp_path / "references" / name, DEEP_YAML)
    assert "nested deeper than 64 levels" in (fault_of(tmp_path) or "")


def test_a_given_file_may_be_a_link_and_is_never_read_without_end(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(write(tmp_path / "file", "x"))
    assert read_given(link, 1) == b"x"
    for path in (Path("/dev/zero"), write(tmp_path / "large", "xx")):
        with pytest.raises(InputError, match="larger than 1 bytes"):
            read_given(path, 1)
    with pytest.raises(InputError, match=r"cannot read .*: No such file"):
        read_given(tmp_path / "missing", 1)
