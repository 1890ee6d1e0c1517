# SPDX-License-Identifier: Apache-2.0
"""What every stored or exchanged model of the project has in common."""

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, PlainSerializer, ValidationError

MAX_FAULT = 500
"""Longest description of a fault: a place may be a key of any length."""


class Model(BaseModel):
    """A frozen, closed, strict record.

    An unknown field, a wrong type, NaN or an infinity is an error on load; what is absent is ``None`` beside a
    reason, never 0.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, ser_json_inf_nan="null", validate_default=True
    )


def fault_of(error: Exception) -> str:
    """Return what is wrong by *error*, briefly: of a model's faults the first with its place, and how many more."""
    if not isinstance(error, ValidationError):
        return str(error)[:MAX_FAULT]
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    more = f" ({error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{'.'.join(map(str, first['loc'])) or 'the top'}: {first['msg']}"[:MAX_FAULT] + more


def format_time(when: datetime) -> str:
    """Return a point in time as ISO 8601 UTC with second precision, as run identifiers and pages show it."""
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


def _whole_second(when: datetime) -> datetime:
    return when.astimezone(UTC).replace(microsecond=0)


UtcTime = Annotated[
    AwareDatetime, AfterValidator(_whole_second), PlainSerializer(format_time, return_type=str, when_used="json")
]
"""A point in time in UTC with second precision, in memory as on disk."""
