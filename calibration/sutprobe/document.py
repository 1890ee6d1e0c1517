# SPDX-License-Identifier: Apache-2.0
"""The envelope of every document, and how it is read."""

import json
from typing import Any, Literal, TypeVar

from pydantic_core import to_json

from calibration.errors import InputError
from calibration.model import Model, fault_of

SCHEMA = "sutprobe/1"


class ProbeError(Model):
    """Why the whole command, or one point of it, has no result."""

    code: str
    message: str


class Build(Model):
    """How the program was built, as compiled into it."""

    version: str
    target: str
    compiler: str
    flags: str
    source_sha256: str


class Host(Model):
    """The machine, as described by the document.

    ``hypervisor`` is the name reported by CPUID; ``None`` if there is none, on architectures without CPUID, and in
    documents of older versions.
    """

    nodename: str
    release: str
    machine: str
    hypervisor: str | None = None


class Clock(Model):
    """The time source of the document; ``reason`` says why if it is the fall-back."""

    source: Literal["tsc", "cntvct", "monotonic_raw"]
    hz: float
    hz_uncertainty_ppm: float
    invariant: bool
    read_cost_ns: float
    resolution_ns: float
    reason: str | None


class Warned(Model):
    """Something sutprobe noticed that affects the values."""

    code: str
    message: str


class Looking(Model):
    """The cost of reading counters: ``share`` of the rest of the command's time.

    ``left_out`` names the counters that were not read around so many of the ``measurements``, to save time.
    ``interrupts`` of all measured CPUs are then known from the first reading to the end, unless even one more reading
    would have taken too long.
    """

    spent_s: float
    share: float
    measurements: int
    left_out: dict[str, int]
    interrupts: dict[str, int] | None


class ProbeDocument(Model):
    """The envelope of every document; ``result`` is read by the model of its subcommand.

    ``again`` are words to append to the same ``argv`` (an option and its value) so that the next command measures what
    this one chose: nothing is searched again. ``None`` if nothing was chosen, or the search was interrupted or failed.
    """

    schema_: str
    subcommand: str
    argv: tuple[str, ...]
    build: Build
    status: Literal["ok", "failed"]
    error: ProbeError | None
    host: Host
    started_at_unix_ns: int
    duration_s: float
    clock: Clock | None
    looking: Looking | None = None
    warnings: tuple[Warned, ...]
    parameters: dict[str, Any]
    again: tuple[str, ...] | None = None
    result: dict[str, Any] | None


Result = TypeVar("Result", bound=Model)


MAX_PARTS = 300_000
"""Most objects and lists in a result: one of 16 MiB has 230,000. Validation takes 1.4 KB for each."""


def _bounded(content: bytes) -> bytes:
    parts = content.count(b"{") + content.count(b"[")
    if parts > MAX_PARTS:
        raise InputError(f"sutprobe document of {parts} objects and lists, at most {MAX_PARTS} are read")
    return content


def read_document(raw: dict[str, Any]) -> ProbeDocument:
    """Return the typed envelope of a document as ``sutprobe`` printed it.

    Raises ``InputError`` if it is not a document of the supported schema.
    """
    if raw.get("schema") != SCHEMA:
        raise InputError(f"not a sutprobe document of schema {SCHEMA!r}: {repr(raw.get('schema'))[:200]}")
    fields = {"schema_" if key == "schema" else key: value for key, value in raw.items()}
    result = raw.get("result")
    if isinstance(result, dict):  # most of the document; validated later
        fields["result"] = {}
    try:
        document = ProbeDocument.model_validate_json(_bounded(json.dumps(fields, allow_nan=False).encode()))
        return document.model_copy(update={"result": result})
    except (ValueError, RecursionError) as error:
        reason = fault_of(error)
        raise InputError(f"sutprobe document not of schema {SCHEMA!r}: {reason}") from error


def read_result(document: ProbeDocument, model: type[Result]) -> Result:
    """Return the result of *document* as *model*. Raises ``InputError`` if missing or of another form."""
    if document.result is None:
        reason = document.error.message if document.error else "no error was given"
        raise InputError(f"no result from sutprobe {document.subcommand}: {reason}")
    try:
        return model.model_validate_json(_bounded(to_json(document.result)))  # non-finite numbers fail here
    except (ValueError, RecursionError) as error:
        reason = fault_of(error)
        raise InputError(f"result of sutprobe {document.subcommand} not in its schema: {reason}") from error
