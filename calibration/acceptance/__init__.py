# SPDX-License-Identifier: Apache-2.0
"""Acceptance files: public limits with their source and conditions, which runs are judged by."""

import hashlib
from pathlib import Path
from typing import Any, Final

from pydantic import Field, ValidationError

from calibration.acceptance.limits import Limit, read_limits
from calibration.base.errors import InputError
from calibration.base.files import read_given
from calibration.base.model import Model, fault_of
from calibration.base.names import pick
from calibration.base.parsers import YAML_BYTES, YamlError, read_yaml
from calibration.base.sources import Line, Source

PRESETS: Final = Path(__file__).with_name("presets")
"""The files that come with the harness."""


class AcceptanceFile(Model):
    """An acceptance file: ``name`` is that of the file without its ending, ``sha256`` the hash of its content.

    ``conditions`` is what the source asks for: program, load, duration. ``comparison`` says how ours compares with that
    program. ``profile`` is the one whose runs meet the conditions.
    """

    name: str
    sha256: str
    title: Line
    source: Source
    conditions: Line
    comparison: Line | None = None
    profile: Line
    limits: tuple[Limit, ...]


class _File(Model):
    """A file as written."""

    title: Line
    source: Source
    conditions: Line
    comparison: Line | None = None
    profile: Line
    limits: list[Any] = Field(min_length=1)


def preset_names() -> list[str]:
    """Return the names of the acceptance files that come with the harness."""
    return sorted(path.stem for path in PRESETS.glob("*.yml"))


def load_acceptance(name_or_path: str) -> AcceptanceFile:
    """Return the acceptance file with this name or unique prefix, or the one at that path.

    Raises ``InputError`` if it does not exist or is not an acceptance file.
    """
    if "/" in name_or_path or name_or_path.endswith(".yml"):
        path = Path(name_or_path)
    else:
        path = PRESETS / f"{pick(name_or_path, preset_names(), 'acceptance file')}.yml"
    content = read_given(path, YAML_BYTES)
    try:
        file = _File.model_validate(read_yaml(content), strict=False)
    except YamlError as error:
        raise InputError(f"{path}: {error}") from error
    except ValidationError as error:
        raise InputError(f"{path} is not an acceptance file: {fault_of(error)}") from error
    return AcceptanceFile(
        name=path.stem,
        sha256=hashlib.sha256(content).hexdigest(),
        **dict(file) | {"limits": read_limits(file.limits, str(path))},
    )
