# SPDX-License-Identifier: Apache-2.0
"""Expected states, read from files: those of a lab, and those that others publish, which come with calibration."""

from pathlib import Path
from typing import Final

from pydantic import ValidationError

from calibration.audit.kinds import Item, read_items
from calibration.base.errors import InputError
from calibration.base.files import read_regular
from calibration.base.model import Model, fault_of
from calibration.base.names import pick
from calibration.base.parsers import WRITTEN, read_yaml
from calibration.base.sources import Line, Source

MAX_STATE_BYTES: Final = 1 << 20
"""Largest file of an expected state."""


class ExpectedState(Model):
    """The settings that a machine must have; a file need not say its title and source."""

    items: tuple[Item, ...]
    title: Line | None = None
    source: Source | None = None


HEADING: Final = ("title", "source")


def state_names() -> list[str]:
    """Return the names of the states that come with calibration."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.yml"))


def state_path(name_or_path: str) -> Path:
    """Return the file of the state with this unique prefix, or the path, if it has a slash or a suffix or exists.

    Raises ``InputError`` with the nearest names if there is none.
    """
    path = Path(name_or_path).expanduser()
    if "/" in name_or_path or path.suffix in (".yml", ".yaml") or path.exists():
        return path
    return Path(__file__).with_name(f"{pick(name_or_path, state_names(), 'expected state')}.yml")


def read_state(name_or_path: str) -> ExpectedState:
    """Return the expected state that :func:`state_path` finds. Raises ``InputError``."""
    path = state_path(name_or_path)
    try:
        given = read_yaml(read_regular(path, MAX_STATE_BYTES), WRITTEN) or {}
    except (FileNotFoundError, InputError) as error:
        raise InputError(f"cannot read the expected state {path}: {' '.join(str(error).split())}"[:500]) from error
    settings = given
    if heading := {key: given[key] for key in HEADING if key in given} if isinstance(given, dict) else {}:
        settings = {key: value for key, value in given.items() if key not in HEADING}
    items = read_items(settings, f"{path}: ")
    try:
        return ExpectedState.model_validate({**heading, "items": items})
    except ValidationError as error:
        raise InputError(f"{path}: {fault_of(error)}") from error
