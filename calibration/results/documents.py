# SPDX-License-Identifier: Apache-2.0
"""Stored JSON, read within bounds; run documents are checked by the JSON Schema of their version as well.

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

MAX_DOCUMENT_BYTES: Final = 128 * 1024 * 1024
"""The nightly document of a SUT with 504 CPUs and 16 nodes has less than a quarter of this. As objects of Python, JSON
takes up to twenty times its size: with a larger bound one file could take all memory of the controller."""

MAX_FAULTS: Final = 100
"""Most faults of a document that are compared to name the most telling one."""

OLD_REMEDY: Final = (
    "; it was written before this form was settled. Read it with the version of then, out of these results"
)
"""What helps where a document is of an old version, and not of the form that this version had in the end."""

Raw = dict[str, Any]
"""A run document as JSON has it."""


def parse_json(path: Path, content: bytes) -> Any:
    """Return what *content*, read from *path*, is as JSON.

    Raises ``InputError`` where it is not JSON in UTF-8, has NaN or an infinity in it, or is nested deeper than 200
    levels, which is the bound of the parser.
    """
    try:
        return from_json(content, allow_inf_nan=False)
    except (ValueError, MemoryError) as error:
        raise InputError(f"{path}: not valid JSON: {error or 'not enough memory'}") from error


def read_document(path: Path, *, below: Path | None = None) -> tuple[bytes, Raw]:
    """Return the run document at *path*, as bytes and as JSON that is valid by the schema of its version.

    No link is followed below *below*, see ``read_regular``. Raises ``FileNotFoundError`` where there is none,
    ``InputError`` with the first fault.
    """
    content = read_regular(path, MAX_DOCUMENT_BYTES, below=below)
    raw = parse_json(path, content)
    version = raw.get("schema_version") if isinstance(raw, dict) else None
    if version != SCHEMA_VERSION:
        from calibration.results.migrations import (  # noqa: PLC0415 - imports the models, and is seldom needed
            VERSIONS,
            completed,
        )

        if version not in VERSIONS:
            raise InputError(
                f"{path}: unknown schema_version {json.dumps(version)[:80]}, expected {' or '.join(VERSIONS)}; a newer "
                "version of the harness can read what it wrote"
            )
        raw = completed(raw)
    if not schema_validator(version).is_valid(raw):
        where, fault = _first_fault(version, raw)
        raise InputError(
            f"{path}: not valid by {schema_file(version).name}: at {where}: {fault[:500]}"
            f"{'' if version == SCHEMA_VERSION else OLD_REMEDY}"
        )
    return content, raw


def schema_file(version: str) -> Path:
    """Return where the JSON Schema of *version* is."""
    return Path(__file__).with_name(f"{version.replace('/', '-')}.schema.json")


@cache
def schema_validator(version: str = SCHEMA_VERSION) -> jsonschema_rs.Validator:
    """Return what judges by the JSON Schema of *version*; made once, as reading it takes longer than judging."""
    return jsonschema_rs.validator_for(json.loads(schema_file(version).read_bytes()))


def _first_fault(version: str, raw: Raw) -> tuple[str, str]:
    """Return where *raw*, which is not valid, is most telling at fault, and what the fault is."""
    import jsonschema  # noqa: PLC0415 - slow to import, and only needed for a fault

    schema = jsonschema.Draft202012Validator(json.loads(schema_file(version).read_bytes()))
    fault = jsonschema.exceptions.best_match(islice(schema.iter_errors(raw), MAX_FAULTS))
    if fault is None:
        fault = next(iter(schema_validator(version).iter_errors(raw)))
        return "/".join(map(str, fault.instance_path)) or "the top", fault.message
    return "/".join(map(str, fault.absolute_path)) or "the top", fault.message
