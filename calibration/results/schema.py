# SPDX-License-Identifier: Apache-2.0
"""The JSON Schema of the run document, generated from the model and committed as ``run.schema.json``."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic.json_schema import GenerateJsonSchema

from calibration.results.model import RunDocument

SCHEMA: Final = Path(__file__).with_name("run.schema.json")
"""The committed JSON Schema of the run document."""


class _WithoutTitles(GenerateJsonSchema):
    """Remove the titles, which repeat the names of fields and models."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        del schema
        return False


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the run document (draft 2020-12), which has all fields."""
    schema = RunDocument.model_json_schema(mode="serialization", schema_generator=_WithoutTitles)
    for made in (schema, *schema["$defs"].values()):
        made.pop("title", None)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def schema_text() -> str:
    """Return the JSON Schema in its committed form: one line per model, and one per field of the document itself."""
    return "\n".join(_lines(json_schema(), nested=("$defs", "properties"))) + "\n"


def _lines(schema: Mapping[str, Any], *, nested: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the lines of *schema*, one per key; those of *nested* keys on lines of their own."""
    yield "{"
    for number, name in enumerate(sorted(schema), 1):
        comma = "," if number < len(schema) else ""
        if name in nested:
            first, *lines = _lines(schema[name])
            yield f'"{name}": {first}'
            yield from lines[:-1]
            yield lines[-1] + comma
        else:
            yield f'"{name}": {json.dumps(schema[name], sort_keys=True, ensure_ascii=False)}{comma}'
    yield "}"
