# SPDX-License-Identifier: Apache-2.0
"""Stored JSON, read within bounds; run documents are checked against the JSON Schema as well.

Nothing here imports the models: histories read every new document of a lab.
"""

import json
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Final

import jsonschema_rs
from pydantic_core import from_json

from calibration.errors import InputError
from calibration.files import read_regular
from calibration.results.layout import SCHEMA_VERSION

SCHEMA: Final = Path(__file__).with_name("run.schema.json")
"""The committed JSON Schema of the run document."""

MAX_DOCUMENT_BYTES: Final = 128 * 1024 * 1024
"""The nightly document of a SUT with 504 CPUs and 16 nodes has less than a quarter of this. As objects of Python, JSON
takes up to twenty times its size: with a larger bound one file could take all memory of the controller."""

MAX_FAULTS: Final = 100
"""Most faults of a document that are compared to name the most telling one."""

Raw = dict[str, Any]
"""A run document as JSON has it."""


def parse_json(path: Path, content: bytes) -> Any:
    """Return what *content*, read from *path*, is as JSON.

    Raises ``InputError`` if it is not JSON in UTF-8, has NaN or an infinity in it, or is nested deeper than 200
    levels, which is the bound of the parser.
    """
    try:
        return from_json(content, allow_inf_nan=False)
    except (ValueError, MemoryError) as error:
        raise InputError(f"{path}: not valid JSON: {error or 'not enough memory'}") from error


def read_document(path: Path, *, below: Path | None = None) -> tuple[bytes, Raw]:
    """Return the run document at *path*, as bytes and as JSON that is valid by the schema.

    No link is followed below *below*, see ``read_regular``. Raises ``FileNotFoundError`` if there is none,
    ``InputError`` with the first fault.
    """
    content = read_regular(path, MAX_DOCUMENT_BYTES, below=below)
    raw = parse_json(path, content)
    version = raw.get("schema_version") if isinstance(raw, dict) else None
    if version != SCHEMA_VERSION:
        raise InputError(f"{path}: unknown schema_version {json.dumps(version)[:80]}, expected {SCHEMA_VERSION}")
    if not schema_validator().is_valid(raw):
        where, fault = _first_fault(raw)
        raise InputError(f"{path}: not valid by {SCHEMA.name}: at {where}: {fault[:500]}")
    return content, raw


@cache
def schema_validator() -> jsonschema_rs.Validator:
    """Return what judges by the JSON Schema; made once, as reading it takes longer than judging."""
    return jsonschema_rs.validator_for(json.loads(SCHEMA.read_bytes()))


def _first_fault(raw: Raw) -> tuple[str, str]:
    """Return where *raw*, which is not valid, is most telling at fault, and what the fault is."""
    import jsonschema  # noqa: PLC0415 - slow to import, and only needed for a fault

    schema = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_bytes()))
    fault = jsonschema.exceptions.best_match(islice(schema.iter_errors(raw), MAX_FAULTS))
    if fault is None:
        fault = next(iter(schema_validator().iter_errors(raw)))
        return "/".join(map(str, fault.instance_path)) or "the top", fault.message
    return "/".join(map(str, fault.absolute_path)) or "the top", fault.message
