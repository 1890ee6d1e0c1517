# SPDX-License-Identifier: Apache-2.0
"""Make the example run: the document and page of a run, with what names its machine replaced by made names.

    python bench/example.py RUN results/example

Figures, processor and settings stay; host name, command line, kernel build, firmware, processes and identifiers do not.
The raw capture and the records, which have all of that, are left out. It fails if anything of it is left.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # started as a file, Python looks beside it only

from calibration.context.cmdline import parse_cmdline
from calibration.context.model import Context
from calibration.errors import CalibrationError, InputError
from calibration.report import render_run
from calibration.results.facts import facts
from calibration.results.model import RunDocument
from calibration.results.store import read_run, write_document

HOST: Final = "server.example"
KEPT: Final = ("isolcpus", "nohz_full", "rcu_nocbs", "irqaffinity", "mitigations", "default_hugepagesz", "hugepages")
"""Kernel parameters that figures depend on: they stay, all others go."""

NAMING: Final = re.compile(r"(?<!\w)/(?:home|root|tmp|Users)\b[^\s\"']*|\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b")
"""Directories of people, and MAC addresses."""

README: Final = """\
.. SPDX-License-Identifier: Apache-2.0

Example run
===========

Measured on a real machine. Its host name, kernel command line, kernel build, firmware and identifiers are replaced by
made ones, and no process is named; the figures are as measured.

* ``run.json``: the document
* ``report/page.rst``: its page

The raw capture and the records of the run are not here. ``bench/example.py`` made this directory.
"""


def made(document: RunDocument) -> dict[str, str]:
    """Return what of *document* names the machine, each with what stands in its place; the longest first."""
    if document.context is None:
        raise InputError("expected a run of a captured SUT, found none")
    context, boots = document.context.parsed, [attempt.boot_id for attempt in document.attempts if attempt.boot_id]
    capture, text = context.capture, context.cmdline.text if context.cmdline else ""
    release = capture.kernel_release or ""
    kept = [
        f"{parameter.name}={parameter.value}" for parameter in parse_cmdline(text).parameters if parameter.name in KEPT
    ]
    found: dict[str | None, str] = {
        text: " ".join(["BOOT_IMAGE=/boot/vmlinuz root=/dev/sda1 ro quiet", *kept]),
        capture.kernel_version: "#1 SMP PREEMPT_DYNAMIC",
        release: release.partition("-")[0],
        capture.hostname: HOST,
        document.run.id: f"{document.run.id.partition('-')[0]}-0001",
        **{boot: f"00000000-0000-4000-8000-{number:012}" for number, boot in enumerate(boots, 1)},
        **{text: f"made {name}" for name, text in _firmware(context) if name in {"product_name", "board_name"}},
    }
    found |= {name: "made" for name in (document.run.testbed, document.run.sut) if name != "localhost"}
    return {old: new for old, new in sorted(found.items(), key=lambda item: -len(item[0] or "")) if old}


def _firmware(context: Context) -> list[tuple[str, str]]:
    """Return the texts that tell firmware and boards, by field."""
    return [(name, text) for name, text in context.firmware if isinstance(text, str) and name != "smbios_version"]


def _strings(value: Any, names: re.Pattern[str], new: dict[str, str]) -> Any:
    if isinstance(value, str):
        return NAMING.sub("/srv/made", names.sub(lambda match: new[match[0]], value))
    if isinstance(value, dict):
        return {key: _strings(item, names, new) for key, item in value.items()}
    return [_strings(item, names, new) for item in value] if isinstance(value, list) else value


def pattern(names: dict[str, str]) -> re.Pattern[str]:
    """Return a pattern that finds *names* as whole words."""
    return re.compile(rf"(?<![\w/.-])(?:{'|'.join(map(re.escape, names))})(?![\w/-])")


def anonymous(document: RunDocument) -> RunDocument:
    """Return *document* without what names its machine. Raises ``InputError`` if it has no context."""
    names = made(document)
    raw = _strings(json.loads(document.model_dump_json()), pattern(names), names)
    raw["run"] |= {"testbed": "example", "sut": "server"}
    for attempt in raw["attempts"]:
        attempt |= {"capture": None, "capture_sha256": None}
    context = raw["context"]["parsed"]
    if document.context is not None:
        context["firmware"] |= {name: f"made {name}" for name, _ in _firmware(document.context.parsed)}
    if context["cmdline"]:
        context["cmdline"] = parse_cmdline(context["cmdline"]["text"]).model_dump()
    if context["load"]:
        context["load"]["processes"] = []
    if context["isolation"]["threads"]:
        context["isolation"]["threads"] = [thread for thread in context["isolation"]["threads"] if thread["kernel"]]
    changed = RunDocument.model_validate_json(json.dumps(raw))
    if changed.context is None:
        raise TypeError("a document keeps its context")
    return changed.model_copy(update={"facts": facts(changed.context.parsed, changed.run.kernels)})


def leaks(document: RunDocument, folder: Path) -> Iterator[str]:
    """Yield what in *folder* still names the machine of *document*."""
    names = {old: new for old, new in made(document).items() if old not in new}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        text = path.read_text(encoding="utf-8", errors="replace")
        yield from (f"{path}: {match[0]}" for item in (pattern(names), NAMING) for match in item.finditer(text))


def main(run: Path, folder: Path) -> None:
    """Make the example in *folder* of *run*, a run's directory."""
    document = read_run(run)
    folder.mkdir(parents=True, exist_ok=True)
    write_document(folder, anonymous(document))
    render_run(folder)
    (folder / "README.rst").write_text(README, encoding="utf-8")
    if found := list(leaks(document, folder)):
        raise InputError(f"expected nothing that names the machine, found {'; '.join(found[:10])}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
    except CalibrationError as error:
        click.echo(f"example: {error}", err=True)
        sys.exit(error.exit_code)
