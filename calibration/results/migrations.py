# SPDX-License-Identifier: Apache-2.0
"""Run documents of older schemas, brought up to date as they are read; the files are never changed.

Every version has its frozen JSON Schema beside this file, and every version but the newest has a migration to the one
after it. A document is checked by its own schema, migrated, and modelled. ``run/1`` grew before its schema was frozen:
what its first documents do not have yet is filled in before they are checked.
"""

import json
from collections.abc import Callable, Mapping
from typing import Final

from pydantic import TypeAdapter, ValidationError

from calibration.context.model import Context
from calibration.measurements import registry
from calibration.measurements.base import Values
from calibration.results.documents import Raw
from calibration.results.facts import facts
from calibration.results.layout import SCHEMA_VERSION
from calibration.results.model import Kernels, RunDocument


def completed(document: Raw) -> Raw:
    """Return *document*, of any form, with what its version did not have from the beginning: as not known."""
    try:
        if document["schema_version"] != "run/1":
            return document
        run, context = document["run"], document["context"]
        attempt = {
            **{name: run[name] for name in ("started_at", "finished_at")},
            "boot_id": None,
            **{name: None if context is None else context[name] for name in ("capture", "capture_sha256")},
            "checks": [],
            "changes": [],
            "ended": None,
        }
        return {
            **document,
            "attempts": document.get("attempts", [attempt]),
            "context": context and {**context, "parsed": {"load": None, **context["parsed"]}},
            "verdicts": [
                {"name": each["metric"]["name"], **each} if each["metric"] else each for each in document["verdicts"]
            ],
        }
    except (LookupError, TypeError):
        return document  # it is no run document at all: the schema says where


def _to_2(document: Raw) -> Raw:
    """``run/1`` had neither the facts of the machine nor, in its verdicts, the measurement that a metric is of."""
    document = completed(document)
    context, kernels = document["context"], document["run"]["kernels"]
    found: dict[str, str] = {}
    if context is not None:
        parsed = Context.model_validate_json(json.dumps(context["parsed"]))
        found = facts(parsed, None if kernels is None else Kernels.model_validate(kernels))
    measured = {name: each["id"] for each in reversed(document["measurements"]) for name in _metrics(each)}
    return {
        **document,
        "schema_version": "run/2",
        "facts": found,
        "verdicts": [{**each, "measurement": measured.get(each["name"])} for each in document["verdicts"]],
    }


def _metrics(measurement: Raw) -> list[str]:
    declaration = registry()[measurement["kind"]]
    values: Values = TypeAdapter(declaration.values).validate_json(json.dumps(measurement["values"]))
    return [each.name for each in declaration.metrics(values)]


def _to_3(document: Raw) -> Raw:
    """``run/2`` knew no step that switches prefetchers and nothing that was counted: what is new may all be absent."""
    return {**document, "schema_version": "run/3"}


MIGRATIONS: Final[Mapping[str, Callable[[Raw], Raw]]] = {"run/1": _to_2, "run/2": _to_3}
"""By version, what makes of a document that is valid by its schema one of the next version."""

VERSIONS: Final = (*MIGRATIONS, SCHEMA_VERSION)
"""All versions that can be read, oldest first."""


def migrated(document: Raw) -> Raw:
    """Return *document*, which is valid by the schema of its version, as one of the newest version."""
    while (version := document["schema_version"]) != SCHEMA_VERSION:
        document = MIGRATIONS[version](document)
    return document


def model_of(content: bytes) -> RunDocument:
    """Return the run document that *content* is, which is valid by the schema of its version.

    Raises ``ValueError`` where the model refuses it none the less.
    """
    try:
        return RunDocument.model_validate_json(content)
    except ValidationError:
        raw = json.loads(content)
        if raw["schema_version"] == SCHEMA_VERSION:
            raise
    return RunDocument.model_validate_json(json.dumps(migrated(raw)))
