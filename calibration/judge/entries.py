# SPDX-License-Identifier: Apache-2.0
"""YAML lists maintained by hand below ``references/``: each entry is a mapping, and errors name the line."""

from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import yaml
from pydantic import AfterValidator, StringConstraints, ValidationError

from calibration.base.errors import InputError
from calibration.base.files import read_regular
from calibration.base.model import Model, fault_of
from calibration.base.parsers import YamlError, constructed, yaml_tree
from calibration.base.text import visible

MAX_BYTES: Final = 1 << 20
"""Larger files are refused: YAML takes ten seconds per MiB, and lists maintained by hand are far smaller."""

M = TypeVar("M", bound=Model)


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("control characters are not allowed")
    return text


Line = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1), AfterValidator(_printable)]
"""A non-empty line of text."""


def read_entries(results: Path, file: str, form: type[M], name: str) -> list[tuple[int, M]]:
    """Return the entries of *file* in *results* with their first lines; *name* is the word for an entry in messages.

    Raises ``FileNotFoundError`` if the file does not exist, ``InputError`` with the line of the first error.
    """
    # All scalars as text: the model converts them.
    loader, tree = yaml_tree(read_regular(results / file, MAX_BYTES, below=results))
    if tree is None:
        return []
    if not isinstance(tree, yaml.SequenceNode):
        raise InputError(f"not a list of {name}s")
    return [_entry(loader, node, form, f"{name} {number}") for number, node in enumerate(tree.value, 1)]


def _entry(loader: Any, node: yaml.Node, form: type[M], name: str) -> tuple[int, M]:
    where = f"line {node.start_mark.line + 1}, {name}"
    try:
        entry = form.model_validate(constructed(loader, node), strict=False)
    except YamlError as error:
        raise InputError(f"{where}: {error}") from error
    except ValidationError as error:
        raise InputError(f"{where}: {visible(fault_of(error))}") from error
    return node.start_mark.line + 1, entry
