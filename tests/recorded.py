# SPDX-License-Identifier: Apache-2.0
"""Recorded documents of sutprobe, by the step that printed them."""

import json
from pathlib import Path
from typing import Any

from calibration.measurements.base import SEARCH_SUFFIX, TRACED_SUFFIX
from calibration.sutprobe.document import ProbeDocument, read_document

FOLDER = Path(__file__).parent / "fixtures" / "sutprobe"
SUFFIXES = (SEARCH_SUFFIX, TRACED_SUFFIX)
"""End the names of steps without a measurement of their own."""


def whole_of(name: str) -> str:
    """Return the step of whose measurement the step *name* is a part; itself if it has one of its own."""
    return next((name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix)), name)


PATHS = {path.stem: path for path in sorted(FOLDER.glob("*.json"))}
MEASURED = {name: path for name, path in PATHS.items() if whole_of(name) == name}


def read(name: str) -> dict[str, Any]:
    """Return the recorded document *name*."""
    document: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return document


def parts_of(name: str, argv: list[str]) -> list[ProbeDocument]:
    """Return the recorded documents that are part of the measurement of *name*.

    A search is one if the words that it chose are in *argv*.
    """
    raw = [read(part) for part in (f"{Path(name).name}{suffix}" for suffix in SUFFIXES) if part in PATHS]
    chosen = [",".join(map(str, part["result"].get("chosen", ()))) for part in raw]
    return [read_document(part) for part, words in zip(raw, chosen, strict=True) if not words or words in argv]


def read_whole(name: str, raw: dict[str, Any]) -> ProbeDocument:
    """Return *raw* as the document of *name*, with those that are part of the same measurement."""
    return read_document(raw).with_parts(parts_of(name, raw["argv"]))
