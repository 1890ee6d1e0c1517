# SPDX-License-Identifier: Apache-2.0
"""Read stored JSON within bounds."""

from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from calibration.base import parsers
from calibration.base.errors import InputError
from calibration.base.files import read_regular
from calibration.base.model import Model, fault_of
from calibration.results.layout import MAX_REFERENCE_BYTES

MAX_DOCUMENT_BYTES: Final = 128 * 1024 * 1024
"""The nightly document of a SUT with 504 CPUs and 16 nodes has less than a quarter of this. As Python objects JSON
takes up to twenty times its size: with a larger bound one file could use up the controller's memory."""

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
