# SPDX-License-Identifier: Apache-2.0
"""Profiles: which measurements run, in which order, with which settings."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from calibration.base.errors import InputError
from calibration.base.files import read_given
from calibration.base.model import Model, fault_of
from calibration.base.names import pick
from calibration.base.parsers import YAML_BYTES, YamlError, read_yaml
from calibration.measurements import declaration
from calibration.measurements.base import ROUNDS_MAX, Settings
from calibration.measurements.mlc_program import MlcCommand, read_commands

ROUNDS = 6
"""The fewest rounds whose medians give an interval of 95 %: their extremes."""


class Profile(Model):
    """A named list of measurements with their settings, in order, measured in ``rounds`` rounds.

    ``mlc`` are the commands of Intel MLC that run after them if available, and opendcdiag runs for ``opendcdiag_s``.
    """

    name: str
    title: str
    rounds: int = ROUNDS
    measurements: dict[str, Settings]
    not_measured: dict[str, str]
    mlc: tuple[MlcCommand, ...] = ()
    opendcdiag_s: float | None = None


def profile_names() -> list[str]:
    """Return the names of the built-in profiles: the shortest first, then those for one question."""
    return ["quick", "nightly", "full", "counters", "sentinel", "rt_smoke", "rt_12h", "rt_24h", "burn_in"]


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
    path = Path(__file__).with_name(f"{name}.yml") if name in profile_names() else Path(name)
    return parse_profile(read_given(path, YAML_BYTES), path.stem, str(path))


class ProfileFile(Model):
    """A profile as written: settings by kind, reasons by kind."""

    title: str
    rounds: Annotated[int, Field(ge=1, le=ROUNDS_MAX)] = ROUNDS
    measurements: dict[str, dict[str, Any] | None] = Field(min_length=1)
    not_measured: dict[str, str] = Field(default_factory=dict)
    mlc: Any = Field(default_factory=list)
    opendcdiag_s: Annotated[float, Field(gt=0, le=3600)] | None = None


def parse_profile(text: str | bytes, name: str, source: str) -> Profile:
    """Return the profile in *text*; *source* names it in error messages. Raises ``InputError``."""
    try:
        file = ProfileFile.model_validate(read_yaml(text))
    except YamlError as error:
        raise InputError(f"{source}: {error}") from error
    except ValidationError as error:
        raise InputError(f"{source} is not a profile: {fault_of(error)}") from error
    if file.opendcdiag_s is not None and "burn_in" not in file.measurements:
        raise InputError(f"{source}: opendcdiag_s needs the measurement burn_in, which fails with it")
    for kind in file.not_measured:
        declaration(kind)
    return Profile(
        name=name,
        title=file.title,
        rounds=file.rounds,
        measurements={kind: _settings(kind, settings or {}, source) for kind, settings in file.measurements.items()},
        not_measured=file.not_measured,
        mlc=read_commands(file.mlc, source),
        opendcdiag_s=file.opendcdiag_s,
    )


def _settings(kind: str, raw: dict[str, Any], source: str) -> Settings:
    model = declaration(kind).settings
    try:
        settings: Settings = model.model_validate(raw, strict=False)
    except ValidationError as error:
        raise InputError(f"the settings of {kind} in {source} are wrong: {fault_of(error)}") from error
    return settings
