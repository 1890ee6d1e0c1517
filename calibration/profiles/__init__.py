# SPDX-License-Identifier: Apache-2.0
"""Profiles: which measurements run, in which order, with which settings."""

from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, ValidationError

from calibration.errors import InputError
from calibration.measurements import declaration
from calibration.measurements.base import ROUNDS_MAX, Settings
from calibration.mlc import MlcCommand, read_commands
from calibration.model import Model, fault_of
from calibration.names import pick

LOADER: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Reads profiles ten times as fast if PyYAML was built with libyaml, as nearly everywhere."""


def read_yaml(content: str | bytes, *, aliases: bool = True) -> Any:
    """Return the YAML in *content*; without *aliases*, with which a short text can say very much, these are refused.

    Raises ``yaml.YAMLError``, also for a key given twice, of which YAML would keep the last.
    """
    loader = LOADER(content)
    root = loader.get_single_node()
    seen: set[int] = set()
    pending = [] if root is None else [root]
    while pending:
        node = pending.pop()
        if id(node) in seen:
            if not aliases:
                raise yaml.constructor.ConstructorError(None, None, "an alias is not allowed", node.start_mark)
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            keys: set[str] = set()
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode) and key.value in keys:
                    raise yaml.constructor.ConstructorError(None, None, f"duplicate key {key.value!r}", key.start_mark)
                if isinstance(key, yaml.ScalarNode):
                    keys.add(key.value)
                pending += [key, value]
        elif isinstance(node, yaml.SequenceNode):
            pending += node.value
    return None if root is None else loader.construct_document(root)


ROUNDS = 6
"""The fewest rounds whose medians give an interval of 95 %: their extremes."""


class Profile(Model):
    """A named list of measurements with their settings, in order, measured in ``rounds`` rounds.

    ``mlc`` are the commands of Intel MLC that run after them if available.
    """

    name: str
    title: str
    rounds: int = ROUNDS
    measurements: dict[str, Settings]
    not_measured: dict[str, str]
    mlc: tuple[MlcCommand, ...] = ()


def profile_names() -> list[str]:
    """Return the names of the built-in profiles: the shortest first, then those for one question."""
    return ["quick", "nightly", "full", "counters", "sentinel"]


def profile_named(name_or_path: str) -> str:
    """Return the name of the profile with this unique prefix; a path (with a slash or ``.yml``) is returned unchanged.

    Raises ``InputError`` with the nearest names if there is none.
    """
    if "/" in name_or_path or name_or_path.endswith(".yml"):
        return name_or_path
    return pick(name_or_path, profile_names(), "profile")


def load_profile(name_or_path: str) -> Profile:
    """Return the profile found by :func:`profile_named`, or the one in the YAML file at that path.

    Raises ``InputError`` if it does not exist, is not YAML, or has an unknown kind or setting.
    """
    name = profile_named(name_or_path)
    own = name in profile_names()
    path = Path(__file__).with_name(f"{name}.yml") if own else Path(name)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the profile {path}: {error}") from error
    return parse_profile(text, path.stem, f"profile {name}" if own else str(path))


class ProfileFile(Model):
    """A profile as written: settings by kind, reasons by kind."""

    title: str
    rounds: Annotated[int, Field(ge=1, le=ROUNDS_MAX)] = ROUNDS
    measurements: dict[str, dict[str, Any] | None] = Field(min_length=1)
    not_measured: dict[str, str] = Field(default_factory=dict)
    mlc: Any = Field(default_factory=list)


def parse_profile(text: str, name: str, source: str) -> Profile:
    """Return the profile in *text*; *source* names it in error messages. Raises ``InputError``."""
    try:
        file = ProfileFile.model_validate(yaml.load(text, Loader=LOADER))  # noqa: S506 - either is a safe loader
    except yaml.YAMLError as error:
        raise InputError(f"{source} is not valid YAML: {error}") from error
    except ValidationError as error:
        raise InputError(f"{source} is not a profile: {fault_of(error)}") from error
    for kind in file.not_measured:
        declaration(kind)
    return Profile(
        name=name,
        title=file.title,
        rounds=file.rounds,
        measurements={kind: _settings(kind, settings or {}, source) for kind, settings in file.measurements.items()},
        not_measured=file.not_measured,
        mlc=read_commands(file.mlc, source),
    )


def _settings(kind: str, raw: dict[str, Any], source: str) -> Settings:
    model = declaration(kind).settings
    try:
        settings: Settings = model.model_validate(raw, strict=False)
    except ValidationError as error:
        raise InputError(f"the settings of {kind} in {source} are wrong: {fault_of(error)}") from error
    return settings
