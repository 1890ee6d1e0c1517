# SPDX-License-Identifier: Apache-2.0
"""Captured machines with some of their files exchanged, as archives."""

import io
import json
import tarfile
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from calibration.audit.readings import AuditedMachine, open_machine
from calibration.context.loader import load
from calibration.context.model import Context
from calibration.runner import capture

FIXTURES = Path(__file__).parent / "fixtures" / "context"

ARCHIVE = Path("context.tar.gz")
"""What messages name an archive by that is in memory."""

Files = Mapping[str, str | bytes | None]
"""Contents by path; None removes the files of a path or below it."""


@cache
def captured(name: str) -> Context:
    """Return the context of the captured machine *name*."""
    return load(FIXTURES / f"{name}.tar.gz")


@cache
def _files(name: str) -> tuple[dict[str, bytes], dict[str, str]]:
    """Return the contents and the links of the capture *name*, by path."""
    contents, links = {}, {}
    with tarfile.open(FIXTURES / f"{name}.tar.gz") as archive:
        for member in archive:
            if member.issym():
                links[f"/{member.name}"] = member.linkname
            elif (stream := archive.extractfile(member)) is not None:
                contents[f"/{member.name}"] = stream.read()
    return contents, links


def changed(
    name: str,
    files: Files,
    *,
    unreadable: Mapping[str, str] | None = None,
    asked: Iterable[str] | None = None,
    told: Mapping[str, Any] | None = None,
) -> bytes:
    """Return the capture *name* with other *files*, more that was *unreadable*, and patterns that were *asked* for.

    *told* is what else its description says.
    """
    contents, links = map(dict, _files(name))
    described = json.loads(contents.pop("/capture.json"))
    for path, content in files.items():
        if content is None:
            gone = [found for found in contents if found == path or found.startswith(f"{path}/")]
            for found in gone:
                del contents[found]
        else:
            contents[path] = content if isinstance(content, bytes) else content.encode()
    described["unreadable"] += [{"path": path, "reason": reason} for path, reason in (unreadable or {}).items()]
    if asked is not None:
        described["asked"] = list(asked)
    described.update(told or {})
    return capture.pack(contents, described, 0, links)


def machine_of(archive: bytes) -> AuditedMachine:
    """Return the machine of a capture."""
    return open_machine(ARCHIVE, archive)


def unpacked_names(archive: bytes) -> set[str]:
    """Return the paths in a capture."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        return {f"/{member.name}" for member in opened}
