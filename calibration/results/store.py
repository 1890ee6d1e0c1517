# SPDX-License-Identifier: Apache-2.0
"""Run documents on disk, written atomically and validated as stored."""

from pathlib import Path

from calibration.errors import EnvironmentLacksError, InputError
from calibration.files import pending
from calibration.results.documents import read_document
from calibration.results.layout import RUN
from calibration.results.model import RunDocument


def read_run(path: Path) -> RunDocument:
    """Return the run document at *path* (a file, or the directory of a run).

    Validated by the committed JSON Schema first, then by the model. Raises ``InputError`` with the first fault.
    """
    path = path / RUN if path.is_dir() else path
    try:
        content, _ = read_document(path)
        return RunDocument.model_validate_json(content)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except ValueError as error:
        raise InputError(f"{path}: not a run document: {error}") from error


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
        f"cannot write to {directory}: {error.strerror or error}. Earlier results are kept; free some space, or set "
        "calibration_results_dir to another directory"
    )
