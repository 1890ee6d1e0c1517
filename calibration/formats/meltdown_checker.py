# SPDX-License-Identifier: Apache-2.0
"""What speed47's spectre-meltdown-checker prints with ``--batch``.

Three shapes, told apart by how the output begins. Up to version 0.46, and from then on with ``--batch json-terse``,
``--batch json`` prints a list of ``{"NAME", "CVE", "VULNERABLE", "INFOS"}``; later versions print an object whose
``meta.format_version`` is 1 and whose ``vulnerabilities`` say the same in small letters, with more around it that may
grow; ``--batch text`` prints lines such as ``CVE-2017-5754: OK (PTI mitigates the vulnerability)``.
Source: the script itself, and its own description of the newer shape (``doc/batch_json.md``).
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from calibration.errors import InputError
from calibration.model import Model
from calibration.text import visible

MAX_BYTES = 1 << 20
"""The longest output known has a thirtieth of this."""

MAX_FINDINGS = 500
MAX_CHARACTERS = 4_000
"""Of one text in it; the longest known has 200."""

FORMAT_VERSION = 1
"""Of the newer JSON; another number announces another meaning."""

ENDED_WELL = (0, 2, 3)
"""Its exit codes where it has an answer: nothing vulnerable, something vulnerable, something unknown."""

CVE = re.compile(r"CVE-[0-9]{4}-[0-9]{4,7}")
LINE = re.compile(rf"({CVE.pattern}): (OK|VULN|UNK) \((.*)\)")
STATUS = {"OK": False, "VULN": True, "UNK": None}


class Finding(Model):
    """What the checker says of one CVE; ``vulnerable`` is ``None`` where it cannot tell. ``name`` is the checker's."""

    cve: str
    name: str | None
    vulnerable: bool | None
    info: str


class CheckerOutput(Model):
    """What the checker printed; ``version`` is ``None`` where its format does not carry one."""

    version: str | None
    findings: tuple[Finding, ...]


def read_output(output: bytes) -> CheckerOutput:
    """Return what *output* says. Raises ``InputError`` where it is not whole, or not what the checker prints."""
    if len(output) > MAX_BYTES:
        raise InputError(f"expected at most {MAX_BYTES} bytes from the checker, found {len(output)}")
    try:
        text = output.decode().strip()
    except UnicodeDecodeError as error:
        raise InputError(f"expected UTF-8 from the checker, found {error}") from error
    if not text:
        raise InputError("expected the checker to print its findings, found nothing")
    if text[0] not in "[{":
        return _checked(None, [_finding(*each) for each in _lines(text)])
    try:
        content = json.loads(text, object_pairs_hook=_object, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise InputError(f"expected one JSON document from the checker, found {visible(str(error))[:200]}") from error
    if isinstance(content, list):
        return _checked(None, [_terse(each) for each in content])
    return _full(content)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name that is given twice in one object")
    return found


def _refused(name: str) -> float:
    raise ValueError(f"{name}, which is no JSON")


def _lines(text: str) -> Iterator[tuple[str, None, bool | None, str]]:
    for line in text.splitlines():
        found = LINE.fullmatch(line.rstrip())
        if found is None:
            raise InputError(f"expected a line such as 'CVE-2017-5754: OK (PTI)', found {visible(line)[:200]!r}")
        yield found.group(1), None, STATUS[found.group(2)], found.group(3)


def _terse(item: Any) -> Finding:
    names = {"NAME", "CVE", "VULNERABLE", "INFOS"}
    if not isinstance(item, dict) or set(item) != names:
        raise InputError(f"expected an object with {', '.join(sorted(names))} from the checker, found {_shown(item)}")
    return _finding(item["CVE"], item["NAME"], item["VULNERABLE"], item["INFOS"])


def _full(content: dict[str, Any]) -> CheckerOutput:
    meta, items = content.get("meta"), content.get("vulnerabilities")
    version = meta.get("format_version") if isinstance(meta, dict) else None
    if type(version) is not int or version != FORMAT_VERSION:
        raise InputError(f"expected format_version {FORMAT_VERSION} from the checker, found {_shown(version)}")
    if not isinstance(meta, dict) or not isinstance(items, list):
        raise InputError("expected a list of vulnerabilities from the checker, found none")
    if meta.get("mocked"):
        raise InputError("expected the checker to look at this SUT, found it told to pretend another processor")
    script = meta.get("script_version")
    return _checked(None if script is None else _text(script, "its version"), [_item(each) for each in items])


def _item(item: Any) -> Finding:
    names = {"cve", "name", "vulnerable", "info", "status"}
    if not isinstance(item, dict) or not names <= set(item):
        raise InputError(f"expected an object with {', '.join(sorted(names))} from the checker, found {_shown(item)}")
    status, vulnerable = item["status"], item["vulnerable"]
    if not isinstance(status, str) or status not in STATUS or STATUS[status] is not vulnerable:
        raise InputError(f"expected status and vulnerable to agree, found {_shown(status)} and {_shown(vulnerable)}")
    return _finding(item["cve"], item["name"], vulnerable, item["info"])


def _finding(cve: Any, name: Any, vulnerable: Any, info: Any) -> Finding:
    if not isinstance(cve, str) or not CVE.fullmatch(cve):
        raise InputError(f"expected a CVE from the checker, found {_shown(cve)}")
    if vulnerable is not None and not isinstance(vulnerable, bool):
        raise InputError(f"expected true, false or null for {cve}, found {_shown(vulnerable)}")
    return Finding(
        cve=cve,
        name=None if name is None else _text(name, f"the name of {cve}"),
        vulnerable=vulnerable,
        info=_text(info, f"what is said of {cve}"),
    )


def _text(value: Any, what: str) -> str:
    """Return *value*, a text that can be written as it is: half a character cannot."""
    if not isinstance(value, str) or len(value) > MAX_CHARACTERS or not _encodable(value):
        raise InputError(f"expected a text of at most {MAX_CHARACTERS} characters as {what}, found {_shown(value)}")
    return value


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _checked(version: str | None, findings: Iterable[Finding]) -> CheckerOutput:
    found = tuple(findings)
    if not 0 < len(found) <= MAX_FINDINGS:
        raise InputError(f"expected 1 to {MAX_FINDINGS} findings from the checker, found {len(found)}")
    cves = [each.cve for each in found]
    twice = sorted({cve for cve in cves if cves.count(cve) > 1})
    if twice:
        raise InputError(f"expected one finding for each CVE from the checker, found several for {', '.join(twice)}")
    return CheckerOutput(version=version, findings=found)


def _shown(value: Any) -> str:
    return visible(ascii(value))[:200]
