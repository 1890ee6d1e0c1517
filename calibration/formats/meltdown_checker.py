# SPDX-License-Identifier: Apache-2.0
"""Output of speed47's spectre-meltdown-checker with ``--batch``.

Three formats. Up to version 0.46, and later with ``--batch json-terse``, ``--batch json`` prints a list of ``{"NAME",
"CVE", "VULNERABLE", "INFOS"}``; later versions print an object with ``meta.format_version`` 1 and the same content in
lower case under ``vulnerabilities``, which may be extended; ``--batch text`` prints lines such as ``CVE-2017-5754: OK
(PTI mitigates the vulnerability)``.
Source: the script, and its description of the newer format (``doc/batch_json.md``).
"""

import re
from typing import Annotated, Any, Final

from pydantic import Field, field_validator

from calibration.base.errors import InputError
from calibration.base.model import Model, fault_of
from calibration.base.parsers import parse_json_sparingly
from calibration.base.text import visible

MAX_BYTES: Final = 1 << 20
"""Thirty times the longest known output."""

FORMAT_VERSION: Final = 1
"""Version of the newer JSON; any other is refused."""

ENDED_WELL: Final = (0, 2, 3)
"""Exit codes with a result: nothing vulnerable, something vulnerable, something unknown."""

CVE: Final = re.compile(r"CVE-[0-9]{4}-[0-9]{4,7}")
LINE: Final = re.compile(r"(\S{1,30}): (OK|VULN|UNK) \((.*)\)")
STATUS: Final = {"OK": False, "VULN": True, "UNK": None}
TERSE: Final = {"NAME": "name", "CVE": "cve", "VULNERABLE": "vulnerable", "INFOS": "info"}
"""The fields of the older JSON."""

Text = Annotated[str, Field(max_length=4_000)]
"""The longest known has 200 characters."""


class VulnerabilityFinding(Model):
    """The checker's result for one CVE; ``vulnerable`` is ``None`` if unknown. ``name`` is the checker's."""

    cve: Annotated[str, Field(pattern=f"^{CVE.pattern}$")]
    name: Text | None
    vulnerable: bool | None
    info: Text


class CheckerOutput(Model):
    """The checker's results; ``version`` is ``None`` if the format has none."""

    version: Text | None = None
    findings: Annotated[tuple[VulnerabilityFinding, ...], Field(min_length=1, max_length=500)]

    @field_validator("findings")
    @classmethod
    def _distinct(cls, findings: tuple[VulnerabilityFinding, ...]) -> tuple[VulnerabilityFinding, ...]:
        if len({finding.cve for finding in findings}) < len(findings):
            raise ValueError("a CVE is listed twice")
        return findings


def read_output(output: bytes) -> CheckerOutput:
    """Return the results in *output*. Raises ``InputError`` if it is truncated or not the checker's."""
    if len(output) > MAX_BYTES:
        raise InputError(f"at most {MAX_BYTES} bytes of the checker's output are read, found {len(output)}")
    try:
        text = output.decode().strip()
        if text[:1] not in ("[", "{"):
            return CheckerOutput(findings=tuple(map(_line, text.splitlines())))
        content = parse_json_sparingly(text, unique=True)
        if isinstance(content, list):
            return CheckerOutput(findings=tuple(map(_terse, content)))
        return _full(content)
    except ValueError as error:
        raise InputError(f"not the output of spectre-meltdown-checker: {visible(fault_of(error))[:300]}") from error


def _line(line: str) -> VulnerabilityFinding:
    found = LINE.fullmatch(line.rstrip())
    if found is None:
        raise ValueError(f"not a line such as 'CVE-2017-5754: OK (PTI)': {line[:200]!r}")
    return VulnerabilityFinding(cve=found[1], name=None, vulnerable=STATUS[found[2]], info=found[3])


def _terse(item: Any) -> VulnerabilityFinding:
    if not isinstance(item, dict) or item.keys() != TERSE.keys():
        raise ValueError(f"not objects with {', '.join(TERSE)}")
    return VulnerabilityFinding(**{name: item[key] for key, name in TERSE.items()})


def _full(content: dict[str, Any]) -> CheckerOutput:
    meta, items = content.get("meta"), content.get("vulnerabilities")
    version = meta.get("format_version") if isinstance(meta, dict) else None
    if not isinstance(meta, dict) or type(version) is not int or version != FORMAT_VERSION:
        raise ValueError(f"format_version {version!a}: only {FORMAT_VERSION} is supported")
    if not isinstance(items, list):
        raise ValueError("vulnerabilities must be a list")  # noqa: TRY004 - bad input, as the rest of it
    if meta.get("mocked"):
        raise ValueError("mocked: these are results for another processor")
    return CheckerOutput(version=meta.get("script_version"), findings=tuple(map(_item, items)))


def _item(item: Any) -> VulnerabilityFinding:
    if not isinstance(item, dict):
        raise ValueError("vulnerabilities must be objects")  # noqa: TRY004 - bad input, as the rest of it
    finding = VulnerabilityFinding.model_validate(
        {name: item[name] for name in VulnerabilityFinding.model_fields if name in item}
    )
    if item.get("status") not in [status for status, vulnerable in STATUS.items() if vulnerable is finding.vulnerable]:
        raise ValueError(f"{finding.cve}: status and vulnerable disagree")
    return finding
