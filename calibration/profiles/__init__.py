# SPDX-License-Identifier: Apache-2.0
"""Profiles: which measurements run, in which order, with which settings."""

from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from calibration.errors import InputError
from calibration.measurements import declaration
from calibration.measurements.base import Settings
from calibration.mlc import MlcCommand, read_commands
from calibration.model import Model
from calibration.names import pick

LOADER: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Reads a profile ten times as fast where PyYAML was built with its library, which is nearly everywhere."""


class Profile(Model):
    """A named list of measurements with their settings, in the order in which they run.

    ``mlc`` are the commands of Intel MLC that run after them where the operator has that.
    """

    name: str
    title: str
    measurements: dict[str, Settings]
    not_measured: dict[str, str]
    mlc: tuple[MlcCommand, ...] = ()


def profile_names() -> list[str]:
    """Return the names of the profiles that come with the package: the shortest first, then those of one question."""
    return ["quick", "nightly", "full", "counters"]


def profile_named(name_or_path: str) -> str:
    """Return the name of the profile whose unique prefix is given; a path (with a slash or ``.yml``) stays as it is.

    Raises ``InputError`` with the nearest names where there is none.
    """
    if "/" in name_or_path or name_or_path.endswith(".yml"):
        return name_or_path
    return pick(name_or_path, profile_names(), "profile")


def load_profile(name_or_path: str) -> Profile:
    """Return the profile that :func:`profile_named` finds, or the one in the YAML file at that path.

    Raises ``InputError`` where it does not exist, is no YAML, or names a kind or a setting that does not exist.
    """
    name = profile_named(name_or_path)
    if name not in profile_names():
        path = Path(name)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"expected a readable profile file at {path}: {error}") from error
        return parse_profile(text, path.stem, str(path))
    text = files(__package__).joinpath(f"{name}.yml").read_text(encoding="utf-8")
    return parse_profile(text, name, f"profile {name}")


def parse_profile(text: str, name: str, source: str) -> Profile:
    """Return the profile that *text* describes; *source* names it in error messages. Raises ``InputError``."""
    try:
        raw = yaml.load(text, Loader=LOADER)  # noqa: S506 - either is a safe loader
    except yaml.YAMLError as error:
        raise InputError(f"expected YAML in {source}: {error}") from error
    if not isinstance(raw, dict) or not {"title", "measurements"} <= raw.keys() <= {
        "title",
        "measurements",
        "not_measured",
        "mlc",
    }:
        raise InputError(f"expected the keys title, measurements and at most not_measured and mlc in {source}")
    wanted, skipped = raw["measurements"], raw.get("not_measured") or {}
    if not isinstance(wanted, dict) or not wanted or not isinstance(skipped, dict):
        raise InputError(f"expected measurements in {source} to map kinds to their settings, found {wanted!r}")
    for kind in skipped:
        declaration(kind)
    try:
        return Profile(
            name=name,
            title=raw["title"],
            measurements={kind: _settings(kind, settings, source) for kind, settings in wanted.items()},
            not_measured={kind: str(reason) for kind, reason in skipped.items()},
            mlc=read_commands(raw.get("mlc") or [], source),
        )
    except ValidationError as error:
        raise InputError(f"{source} is not a profile: {error}") from error


def _settings(kind: str, raw: Any, source: str) -> Settings:
    model = declaration(kind).settings
    try:
        settings: Settings = model.model_validate(raw or {}, strict=False)
    except ValidationError as error:
        raise InputError(f"the settings of {kind} in {source} are wrong: {error}") from error
    return settings
