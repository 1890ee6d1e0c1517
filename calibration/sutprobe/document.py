# SPDX-License-Identifier: Apache-2.0
"""The envelope of every document, and how it is read."""

import json
from collections.abc import Sequence
from typing import Any, Literal, Self, TypeVar

from pydantic import BaseModel
from pydantic_core import to_json

from calibration.base.errors import InputError
from calibration.base.model import Model, fault_of

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

    ``hypervisor`` is the name reported by CPUID; ``None`` if there is none, and on architectures without CPUID.
    """

    nodename: str
    release: str
    machine: str
    hypervisor: str | None


class Clock(Model):
    """The time source of the document; ``reason`` says why if it is the fall-back."""

    source: Literal["tsc", "cntvct", "timebase", "time", "monotonic_raw"]
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


class CounterBudget(Model):
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


class Surroundings(Model):
    """The SUT around one command: the highest temperature read before it, what ran, and what the hypervisor took.

    ``running`` are the other tasks that ran or wanted to just before it. ``None`` if the SUT does not report it.
    """

    temperature_c: float | None
    running: float | None
    steal_s: float | None


class Part(Model):
    """The result of one round, as in ``ProbeDocument``, and what was around it."""

    round: int
    result: bytes | None
    around: Surroundings | None


class ProbeDocument(Model):
    """The envelope of every document; ``result`` is JSON, read by the model of its subcommand.

    As objects of Python, the results of hundreds of CPUs in several rounds take gigabytes.
    Documents of several rounds are read as one, which has a part for each. ``beside`` are those of the steps that are
    part of the same measurement.
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
    counter_budget: CounterBudget | None
    warnings: tuple[Warned, ...]
    parameters: dict[str, Any]
    result: bytes | None
    parts: tuple[Part, ...] = ()
    beside: tuple["ProbeDocument", ...] = ()

    @property
    def results(self) -> list[bytes]:
        """The results of all rounds, in JSON."""
        found = [part.result for part in self.parts] if self.parts else [self.result]
        return [result for result in found if result is not None]

    @classmethod
    def merged(cls, rounds: Sequence[tuple[int, Self, Surroundings | None]]) -> Self:
        """Return the documents of *rounds*, at least one, as one.

        It is the first without an error, with the time, warnings and results of all, and the least certain clock.
        """
        documents = [document for _, document, _ in rounds]
        first = next((document for document in documents if document.error is None), documents[0])
        warnings = {warning.code: warning for document in documents for warning in document.warnings}
        clocks = [document.clock for document in documents if document.clock is not None]
        return first.model_copy(
            update={
                "started_at_unix_ns": min(document.started_at_unix_ns for document in documents),
                "duration_s": sum(document.duration_s for document in documents),
                "clock": max(clocks, key=lambda clock: clock.hz_uncertainty_ppm, default=None),
                "warnings": tuple(warnings.values()),
                "parts": tuple(
                    Part.model_construct(round=number, result=document.result, around=around)
                    for number, document, around in rounds
                ),
            }
        )

    def with_parts(self, beside: Sequence[Self]) -> Self:
        """Return this document with those *beside* it, whose time and warnings are of the same measurement."""
        documents = (*beside, self)
        return self.model_copy(
            update={
                "duration_s": sum(document.duration_s for document in documents),
                "warnings": tuple(dict.fromkeys(warning for document in documents for warning in document.warnings)),
                "beside": tuple(beside),
            }
        )


class Result(Model):
    """Base of the results of the subcommands."""

    @classmethod
    def of_rounds(cls, parts: Sequence[Part]) -> Self:
        """Return the results of *parts*, which have one each, as one. Raises like ``merged``."""
        return cls.merged([(part, validated(part.result or b"", cls)) for part in parts])

    @classmethod
    def merged(cls, rounds: Sequence[tuple[Part, Self]]) -> Self:
        """Return the results of *rounds* as one. Raises ``InputError`` for kinds that are measured once."""
        if len(rounds) > 1:
            raise InputError("it was measured in several rounds, and is to be measured once")
        return rounds[0][1]


Read = TypeVar("Read", bound=Result)


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
    result = fields.pop("result", None)  # most of the document; validated later
    if not isinstance(result, dict | bytes | None):
        raise InputError(f"sutprobe document whose result is a {type(result).__name__}, not an object")
    try:
        document = ProbeDocument.model_validate_json(
            _bounded(json.dumps({**fields, "result": None}, allow_nan=False).encode())
        )
        return document.model_copy(update={"result": packed_result(result)})
    except (ValueError, RecursionError) as error:
        reason = fault_of(error)
        raise InputError(f"sutprobe document not of schema {SCHEMA!r}: {reason}") from error


def packed_result(result: dict[str, Any] | bytes | None) -> bytes | None:
    """Return *result* in JSON."""
    return to_json(result) if isinstance(result, dict) else result


def read_result(document: ProbeDocument, model: type[Read]) -> Read:
    """Return the result of *document*, of all its rounds, as *model*.

    Raises ``InputError`` if missing or of another form.
    """
    if not document.results:
        reason = document.error.message if document.error else "no error was given"
        raise InputError(f"no result from sutprobe {document.subcommand}: {reason}")
    try:
        if not document.parts:
            return validated(document.results[0], model)
        return model.of_rounds([part for part in document.parts if part.result])
    except (ValueError, RecursionError) as error:
        reason = fault_of(error)
        raise InputError(f"result of sutprobe {document.subcommand} not in its schema: {reason}") from error


Validated = TypeVar("Validated", bound=BaseModel)


def validated(result: bytes, model: type[Validated]) -> Validated:
    """Return a *result*, or a part of one, as *model*. Raises ``ValueError``."""
    return model.model_validate_json(_bounded(result))  # non-finite numbers fail here
