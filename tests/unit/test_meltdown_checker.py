# SPDX-License-Identifier: Apache-2.0
"""What spectre-meltdown-checker prints is read whole, or refused with a reason."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.base.errors import InputError
from calibration.formats.meltdown_checker import MAX_BYTES, CheckerOutput, read_output

RECORDED = Path(__file__).parent.parent / "fixtures" / "meltdown_checker"

COUNTS = {"0.33.json": 3, "0.40.json": 8, "0.46.json": 16, "0.46.txt": 16, "0.46-later.json": 19, "format-1.json": 19}
"""How many findings each has."""

ITEM: dict[str, Any] = {"NAME": "MELTDOWN", "CVE": "CVE-2017-5754", "VULNERABLE": False, "INFOS": "PTI"}
NEWER: dict[str, Any] = {
    "cve": "CVE-2017-5754", "name": "MELTDOWN", "status": "OK", "vulnerable": False, "info": "PTI",
    "what_comes_later": 1,
}  # fmt: skip


def recorded(name: str) -> CheckerOutput:
    return read_output((RECORDED / name).read_bytes())


def newer(item: Any = NEWER, **meta: Any) -> bytes:
    found = {"script_version": "26.1", "format_version": 1, "later": None, **meta}
    return json.dumps({"meta": found, "later": {}, "vulnerabilities": [item]}).encode()


def test_every_recorded_output_is_read() -> None:
    assert {path.name for path in RECORDED.iterdir()} == {*COUNTS, "README.rst"}
    assert {name: len(recorded(name).findings) for name in COUNTS} == COUNTS


def test_all_formats_give_the_same_findings() -> None:
    terse, text = recorded("0.46.json"), recorded("0.46.txt")
    assert [(finding.cve, finding.vulnerable, finding.info) for finding in terse.findings] == [
        (finding.cve, finding.vulnerable, finding.info) for finding in text.findings
    ]
    assert {finding.name for finding in text.findings} == {None}
    assert terse.version is None
    first, second = recorded("0.46-later.json").findings, recorded("format-1.json").findings
    assert second[:-1] == first[:-1]
    assert second[-1].vulnerable is None
    assert recorded("format-1.json").version == "26.21.0522789"


def test_finding_matches_the_output() -> None:
    (found,) = [finding for finding in recorded("0.46.json").findings if finding.cve == "CVE-2017-5715"]
    assert found.name == "SPECTRE VARIANT 2"
    assert found.vulnerable is True
    assert found.info == "IBRS+IBPB or retpoline+IBPB is needed to mitigate the vulnerability"


def test_ignores_additions_to_the_newer_format() -> None:
    (found,) = read_output(newer()).findings
    assert (found.cve, found.vulnerable, found.info) == ("CVE-2017-5754", False, "PTI")


REFUSED = {
    "nothing": (b" \n", "at least 1 item"),
    "prose": (b"modprobe: not found\n", "not a line such as"),
    "not text": (b"\xff\xfe", "can't decode byte"),
    "cut off": (json.dumps([ITEM]).encode()[:-9], "Expecting"),
    "two documents": (b"[][]", "Extra data"),
    "no finding": (b"[]", "at least 1 item"),
    "no vulnerability": (b"{}", "format_version None: only 1"),
    "deep": (b"[" * 100_000, "nested deeper than 64 levels"),
    "endless": (b"x" * (MAX_BYTES + 1), "at most 1048576 bytes"),
    "twice": (json.dumps([ITEM, ITEM]).encode(), "a CVE is listed twice"),
    "a name twice": (b'[{"CVE": "CVE-2017-5754", "CVE": "CVE-2017-5753"}]', "an object names a field twice"),
    "NaN": (b"[NaN]", "NaN is not allowed"),
    "not an object": (b"[1]", "not objects with NAME, CVE, VULNERABLE, INFOS"),
    "a field more": (json.dumps([{**ITEM, "MORE": 1}]).encode(), "not objects with NAME, CVE"),
    "no CVE": (json.dumps([{**ITEM, "CVE": "MELTDOWN"}]).encode(), "cve: String should match pattern"),
    "a CVE and more": (json.dumps([{**ITEM, "CVE": "CVE-2017-5754\n"}]).encode(), "cve: String should match pattern"),
    "a number": (json.dumps([{**ITEM, "VULNERABLE": 1}]).encode(), "vulnerable: Input should be a valid boolean"),
    "a word": (json.dumps([{**ITEM, "VULNERABLE": "false"}]).encode(), "vulnerable: Input should be a valid boolean"),
    "long": (json.dumps([{**ITEM, "INFOS": "x" * 5000}]).encode(), "info: String should have at most 4000 characters"),
    "half a character": (
        b'[{"NAME":"x","CVE":"CVE-2017-5754","VULNERABLE":null,"INFOS":"\\ud800"}]',
        "Input should be a valid string",
    ),
    "another format": (newer(format_version=2), "format_version 2: only 1"),
    "true for 1": (newer(format_version=True), "format_version True: only 1"),
    "pretended": (newer(mocked=True), "results for another processor"),
    "not agreeing": (newer({**NEWER, "status": "VULN"}), "status and vulnerable disagree"),
    "no status": (newer({**NEWER, "status": []}), "status and vulnerable disagree"),
    "a list for an item": (newer([]), "vulnerabilities must be objects"),
    "no list": (b'{"meta": {"format_version": 1}, "vulnerabilities": {}}', "vulnerabilities must be a list"),
    "another line": (b"CVE-2017-5754: OK (PTI)\nCVE-2017-5753: FINE (x)\n", "(PTI)': 'CVE-2017-5753: FINE"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_rejects_anything_else_with_a_reason(case: str) -> None:
    output, reason = REFUSED[case]
    with pytest.raises(InputError) as error:
        read_output(output)
    assert reason in str(error.value)
    assert len(str(error.value)) < 500


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("CVE-2017-5754"),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*ITEM, *NEWER, "meta"]) | st.text(), inner),
    max_leaves=20,
)


def refused_or_can_be_written(output: bytes) -> bool:
    """Return whether *output* is refused, or what is made of it survives being written; anything else is raised."""
    try:
        found = read_output(output)
    except InputError as error:
        return str(error).startswith("not the output of spectre-meltdown-checker: ")
    return bool(found.findings) and CheckerOutput.model_validate_json(found.model_dump_json()) == found


@given(st.binary() | st.text().map(str.encode))
def test_any_bytes_are_rejected_or_serializable(output: bytes) -> None:
    assert refused_or_can_be_written(output)


@given(JSON, st.integers(0, 3))
def test_any_json_is_rejected_or_serializable(content: Any, version: int) -> None:
    around = {"meta": {"format_version": version}, "vulnerabilities": [content]}
    for item in (content, [content], around):
        assert refused_or_can_be_written(json.dumps(item).encode())


@given(st.sampled_from(sorted(COUNTS)), st.data())
def test_damaged_recording_is_rejected_or_serializable(name: str, data: st.DataObject) -> None:
    raw = bytearray((RECORDED / name).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    assert refused_or_can_be_written(bytes(raw[: data.draw(st.integers(0, len(raw)))]))
