# SPDX-License-Identifier: Apache-2.0
"""Common base of all stored or exchanged models."""

import json
from datetime import UTC, datetime
from json.encoder import encode_basestring
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    PlainSerializer,
    ValidationError,
)
from pydantic_core import CoreSchema

MAX_FAULT = 500
"""Longest description of a fault: its place may contain a key of any length."""

MAX_FAULTS = 1000
"""Most faults examined to report the first."""


LINE_CHARACTERS = 120
"""Longest list or object with others in it, and longest object, that is written on one line."""


_NUMBERS: Final = {float, int}
_NESTED: Final = {dict, list}

_encode: Final = json.JSONEncoder(ensure_ascii=False).encode
"""Compact JSON; ``json.dumps`` would make an encoder for every value."""


def json_text(value: Any, indent: str = "\n") -> str:
    """Return *value* as indented JSON, with lists of plain values and whatever is short on one line."""
    if type(value) in _NUMBERS:
        return repr(value)
    if type(value) is str:
        return encode_basestring(value)
    if type(value) not in _NESTED:
        return _encode(value)
    items = value.values() if isinstance(value, dict) else value
    if _NESTED.isdisjoint(map(type, items)):
        text = _encode(value)
        if isinstance(value, list) or len(text) <= LINE_CHARACTERS:
            return text
    inner = indent + " "
    parts = [json_text(item, inner) for item in items]
    start, end = "[]"
    if isinstance(value, dict):
        parts = [f"{encode_basestring(key)}: {part}" for key, part in zip(value, parts, strict=True)]
        start, end = "{}"
    if sum(map(len, parts)) + 2 * len(parts) <= LINE_CHARACTERS and "\n" not in (text := ", ".join(parts)):
        return f"{start}{text}{end}"
    return f"{start}{inner}{f',{inner}'.join(parts)}{indent}{end}"


def _fail_fast(schema: Any) -> None:
    """Set ``fail_fast`` for all lists and mappings in *schema*; nested models have set their own."""
    for part in schema if isinstance(schema, list) else [schema]:
        if isinstance(part, dict) and part.get("type") != "model":
            if part.get("type") in ("list", "tuple", "dict"):  # a field of that name has a mapping here
                part["fail_fast"] = True
            for inner in part.values():
                if isinstance(inner, dict | list):
                    _fail_fast(inner)


class Model(BaseModel):
    """A frozen, closed, strict record.

    An unknown field, a wrong type, NaN or an infinity is an error on load; a missing value is ``None`` beside a reason,
    never 0.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        ser_json_inf_nan="null",
        validate_default=True,
        defer_build=True,
        json_schema_serialization_defaults_required=True,
    )

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Stop validation at the first fault of a list: a million faults take gigabytes."""
        schema = handler(source)
        own: Any = schema
        while own["type"] != "model":  # it is wrapped by the model's own validators
            own = own["schema"]
        _fail_fast(own["schema"])
        return schema

    def to_json(self) -> str:
        """Return indented JSON, with lists of plain values and whatever is short on one line."""
        return json_text(self.model_dump(mode="json"))


def shared_fields(model: type[Model], source: Model) -> dict[str, Any]:
    """Return the fields of *source* that *model* has too."""
    return {name: getattr(source, name) for name in model.model_fields if name in type(source).model_fields}


def fault_of(error: Exception) -> str:
    """Return a short description of *error*: a model's first fault with its place, and the number of the rest."""
    if not isinstance(error, ValidationError):
        return str(error)[:MAX_FAULT]
    if error.error_count() > MAX_FAULTS:
        return f"{error.error_count()} faults"
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    more = f" ({error.error_count() - 1} more)" if error.error_count() > 1 else ""
    words = "not a mapping" if first["type"] in {"model_type", "dict_type"} else first["msg"]
    if first["type"] == "value_error":  # of our own validators, which say what it is about
        words = words.removeprefix("Value error, ")
        if not first["loc"]:
            return words[:MAX_FAULT] + more
    return f"{'.'.join(map(str, first['loc'])) or 'the top'}: {words}"[:MAX_FAULT] + more


def format_time(when: datetime) -> str:
    """Return a time as ISO 8601 UTC with second precision, as in run identifiers and on pages."""
    return f"{when.replace(tzinfo=None).isoformat(timespec='seconds')}Z"  # strftime takes ten times as long


def _whole_second(when: datetime) -> datetime:
    return when.astimezone(UTC).replace(microsecond=0)


UtcTime = Annotated[
    AwareDatetime, AfterValidator(_whole_second), PlainSerializer(format_time, return_type=str, when_used="json")
]
"""A point in time in UTC with second precision, in memory as on disk."""


def complete_models() -> None:
    """Build the validators of all imported models, so that processes forked from this one need not."""
    waiting: list[type[Model]] = [Model]
    while waiting:
        for model in waiting.pop().__subclasses__():
            waiting.append(model)
            if not model.__pydantic_complete__:
                model.model_rebuild()
