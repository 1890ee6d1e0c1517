# SPDX-License-Identifier: Apache-2.0
"""Run documents on disk, written atomically and validated as stored."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from calibration.base.errors import EnvironmentLacksError, InputError
from calibration.base.files import pending, read_regular
from calibration.base.model import fault_of
from calibration.results.documents import MAX_DOCUMENT_BYTES, parse_json
from calibration.results.layout import RUN
from calibration.results.model import JudgedDocument, RunDocument

M = TypeVar("M", bound=BaseModel)

WIDE_BYTES: Final = 8 * 1024 * 1024
"""A larger document is searched for objects with too many fields before it is validated."""

MAX_FIELDS: Final = 100_000
"""Most fields of an object: a fault is kept for each unknown one, which takes a hundred times its size of memory."""


@dataclass(frozen=True)
class StoredRun:
    """The bytes of the run document at ``path``."""

    path: Path
    content: bytes

    @cached_property
    def document(self) -> RunDocument:
        """The document, parsed and validated once. Raises ``InputError`` with the first fault."""
        return self.read_as(RunDocument)

    @property
    def judged(self) -> JudgedDocument:
        """What is judged of the document; only this is validated. Raises like ``document``."""
        return self.read_as(JudgedDocument)

    def read_as(self, model: type[M]) -> M:
        """Return what *model* has of the document. Raises like ``document``."""
        if len(self.content) > WIDE_BYTES and _has_wide_object(parse_json(self.path, self.content)):
            raise InputError(f"{self.path}: an object with more than {MAX_FIELDS} fields")
        try:
            return model.model_validate_json(self.content)
        except ValidationError as error:
            raise InputError(f"{self.path}: not a run document: {fault_of(error)}") from error


def _has_wide_object(value: Any) -> bool:
    pending: list[Iterable[Any]] = [[value]]
    while pending:
        for item in pending.pop():
            if isinstance(item, dict):
                if len(item) > MAX_FIELDS:
                    return True
                pending.append(item.values())
            elif isinstance(item, list):
                pending.append(item)
    return False


def open_run(path: Path, *, below: Path | None = None) -> StoredRun:
    """Return the run document at *path*; no link is followed below *below*, see ``read_regular``.

    Raises ``FileNotFoundError`` if missing, ``InputError`` if it cannot be read.
    """
    return StoredRun(path, read_regular(path, MAX_DOCUMENT_BYTES, below=below))


def stored_run(path: Path) -> StoredRun:
    """Return the run document at *path* (a file, or the directory of a run).

    Raises ``InputError`` if it is missing or cannot be read.
    """
    path = path / RUN if path.is_dir() else path
    try:
        return open_run(path)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error


def read_run(path: Path) -> RunDocument:
    """Return the document at *path*, like ``stored_run``. Raises ``InputError`` also with the first fault."""
    return stored_run(path).document


def write_document(directory: Path, document: RunDocument) -> Path:
    """Write ``run.json`` atomically, after reading it back and validating it; return its path.

    Raises ``EnvironmentLacksError`` if it cannot be written, ``InputError`` if it is invalid: then ``run.json`` is not
    replaced.
    """
    target = directory / RUN
    try:
        with pending(target, document.to_json().encode() + b"\n") as written:
            read_run(written)
            written.replace(target)
    except OSError as error:
        raise unwritable(directory, error) from error
    return target


def unwritable(directory: Path, error: OSError) -> EnvironmentLacksError:
    """Return the error for an unwritable *directory*."""
    return EnvironmentLacksError(
        f"cannot write to {directory}: {error.strerror or error}. Earlier results are kept; free some space, or "
        "choose another directory of results (calibration_results_dir)"
    )
