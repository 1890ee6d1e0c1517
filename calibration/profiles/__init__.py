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


def load_profile(name_or_path: str) -> Profile:
    """Return a profile by its name, or from a YAML file where the argument has a slash or ends in ``.yml``.

    Raises ``InputError`` where it does not exist, is no YAML, or names a kind or a setting that does not exist.
    """
    if "/" in name_or_path or name_or_path.endswith(".yml"):
        path = Path(name_or_path)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"expected a readable profile file at {path}: {error}") from error
        return parse_profile(text, path.stem, str(path))
    if name_or_path not in profile_names():
        raise InputError(
            f"expected one of the profiles {', '.join(profile_names())} or the path of a .yml file, "
            f"found {name_or_path!r}"
        )
    text = files(__package__).joinpath(f"{name_or_path}.yml").read_text(encoding="utf-8")
    return parse_profile(text, name_or_path, f"profile {name_or_path}")


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
