# SPDX-License-Identifier: Apache-2.0
"""The library: published figures in ``calibration/references/published``, and a lab's own in its results.

The published files are read once, when a page or a command needs them.
"""

import hashlib
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from calibration.base.errors import InputError
from calibration.base.files import read_regular
from calibration.base.model import fault_of
from calibration.base.parsers import YAML_BYTES, YamlError, read_yaml
from calibration.base.text import visible
from calibration.references.model import ReferenceFile, ReferenceMachine, Source
from calibration.results.layout import REFERENCES, RUN

PUBLISHED: Final = Path(__file__).with_name("published")

FOLDER: Final = f"{REFERENCES}/figures"
"""Directory of a lab's own files and of those it got from others, relative to the results."""


class Library(NamedTuple):
    """Sources with their machines, and files of the results that cannot be read, each with the reason.

    ``digest`` changes with the files of the results.
    """

    entries: tuple[tuple[Source, ReferenceMachine], ...]
    faults: tuple[str, ...] = ()
    digest: str = ""


def read_file(path: Path, *, below: Path) -> ReferenceFile:
    """Return the references in the file at *path*; no link is followed below *below*.

    Raises ``InputError`` with the first fault, ``FileNotFoundError`` if it is missing.
    """
    return _parsed(path, read_regular(path, YAML_BYTES, below=below))


def _parsed(path: Path, content: bytes) -> ReferenceFile:
    try:
        return ReferenceFile.model_validate(_tuples(read_yaml(content)))
    except YamlError as error:
        raise InputError(f"{path}: {error}") from error
    except ValidationError as error:
        raise InputError(f"{path}: not a file of references: {visible(fault_of(error))}") from error


def _tuples(value: Any) -> Any:
    """Return *value* with its lists as tuples, which the models have."""
    if isinstance(value, dict):
        return {key: _tuples(inner) for key, inner in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


@cache
def published() -> Library:
    """Return the published figures, which come with the package."""
    files = [read_file(path, below=PUBLISHED) for path in sorted(PUBLISHED.glob("*.yml"))]
    return Library(tuple((file.source, machine) for file in files for machine in file.machines))


def results_of(run: Path) -> Path:
    """Return the results directory of the *run*, a directory or its document."""
    directories = (run.parent if run.name == RUN else run).resolve().parents
    return directories[min(2, len(directories) - 1)]


def library(results: Path) -> Library:
    """Return the published figures and those below the references of *results*.

    An unreadable file of the results is a fault of the library: one bad file must not cost the lab its pages.
    """
    entries, faults, hashed = list(published().entries), [], hashlib.sha256()
    for path in sorted((results / FOLDER).glob("*.yml")):
        try:
            content = read_regular(path, YAML_BYTES, below=results)
            hashed.update(content)
            file = _parsed(path, content)
            entries += [(file.source, machine) for machine in file.machines]
        except InputError as error:
            faults.append(str(error).replace(f"{results}/", ""))
            hashed.update(str(error).encode())
    return Library(tuple(entries), tuple(faults), hashed.hexdigest())
