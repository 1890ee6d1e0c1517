# SPDX-License-Identifier: Apache-2.0
"""Read stored JSON within bounds; run documents are also checked against the JSON Schema.

Does not import the models: histories read every new document of a lab.
"""

import json
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

import jsonschema_rs
from pydantic import ValidationError

from calibration import parsers
from calibration.errors import InputError
from calibration.files import read_regular
from calibration.model import Model, fault_of
from calibration.results.layout import MAX_REFERENCE_BYTES, SCHEMA_VERSION

SCHEMA: Final = Path(__file__).with_name("run.schema.json")
"""The committed JSON Schema of the run document."""

MAX_DOCUMENT_BYTES: Final = 128 * 1024 * 1024
"""The nightly document of a SUT with 504 CPUs and 16 nodes has less than a quarter of this. As Python objects JSON
takes up to twenty times its size: with a larger bound one file could use up the controller's memory."""

MAX_FAULTS: Final = 100
"""Most faults of a document that are compared to name the most relevant one."""

Raw = dict[str, Any]
"""A run document as decoded JSON."""

M = TypeVar("M", bound=Model)


def parse_json(path: Path, content: bytes) -> Any:
    """Return *content*, read from *path*, as JSON.

    Raises ``InputError`` if it is not JSON in UTF-8, contains NaN or an infinity, or is nested deeper than 201 levels,
    the limit of the parser.
    """
    try:
        return parsers.parse_json(content)
    except (ValueError, MemoryError) as error:
        raise InputError(f"{path}: not valid JSON: {error or 'not enough memory'}") from error


def read_document(path: Path, *, below: Path | None = None) -> tuple[bytes, Raw]:
    """Return the run document at *path*, as bytes and as JSON that matches the schema.

    No link is followed below *below*, see ``read_regular``. Raises ``FileNotFoundError`` if missing, ``InputError``
    with the first fault.
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


def read_reference(results: Path, path: Path, model: type[M], remedy: str) -> M | None:
    """Return the *model* in the file at *path* below the references of *results*; ``None`` if there is no file.

    Raises ``InputError`` with the fault and the *remedy* if the file is invalid.
    """
    try:
        return model.model_validate_json(read_regular(path, MAX_REFERENCE_BYTES, below=results))
    except FileNotFoundError:
        return None
    except InputError as error:
        raise InputError(f"{error}; {remedy}") from error
    except ValidationError as error:
        raise InputError(f"{path}: damaged at {fault_of(error)}; {remedy}") from error


@cache
def schema_validator() -> "jsonschema_rs.Validator":
    """Return the validator of the JSON Schema; cached, as reading it takes longer than validating."""
    return jsonschema_rs.validator_for(parsers.parse_json(SCHEMA.read_bytes()))


def _first_fault(raw: Raw) -> tuple[str, str]:
    """Return the place and description of the most relevant fault in *raw*, which is not valid."""
    import jsonschema  # noqa: PLC0415 - slow to import, and only needed for a fault

    schema = jsonschema.Draft202012Validator(parsers.parse_json(SCHEMA.read_bytes()))
    faults = list(islice(schema.iter_errors(raw), MAX_FAULTS))
    if faults:
        worst = max(faults, key=jsonschema.exceptions.relevance)
        faults = _of_kind(worst) or faults
    fault = jsonschema.exceptions.best_match(faults)
    if fault is None:
        fault = next(iter(schema_validator().iter_errors(raw)))
        return "/".join(map(str, fault.instance_path)) or "the top", fault.message
    return "/".join(map(str, fault.absolute_path)) or "the top", fault.message


def _of_kind(fault: Any) -> list[Any]:
    """Return the faults under *fault* that are of the kind its values name; none if it is not about kinds."""
    kinds = fault.schema.get("discriminator") if isinstance(fault.schema, dict) else None
    if not kinds or not isinstance(fault.instance, dict):
        return []
    named = kinds["mapping"].get(fault.instance.get(kinds["propertyName"]))
    branches = [branch.get("$ref") for branch in fault.schema["oneOf"]]
    return [part for part in fault.context if branches[part.schema_path[0]] == named]
