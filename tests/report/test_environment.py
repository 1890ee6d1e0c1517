# SPDX-License-Identifier: Apache-2.0
"""The templates: strict about names, and one macro file per measurement kind."""

from pathlib import Path

import pytest
from jinja2 import UndefinedError

from calibration.measurements import registry
from calibration.report.environment import KINDS, TEMPLATES, environment, kind_modules
from calibration.report.sections import SECTIONS


def test_an_undefined_name_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        environment().from_string("{{ missing }}").render()


def test_an_undefined_attribute_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        environment().from_string("{{ thing.missing }}").render(thing=object())


@pytest.mark.parametrize("kind", sorted(registry()))
def test_each_kind_has_a_macro_file_with_section_and_position(kind: str) -> None:
    module = kind_modules()[kind]
    assert module.section in SECTIONS
    assert isinstance(module.position, int)
    assert any(callable(getattr(module, name, None)) for name in ("one", "all"))


def test_each_macro_file_belongs_to_a_kind() -> None:
    found = {path.name.removesuffix(".j2") for path in (TEMPLATES / KINDS).iterdir()}
    assert found == set(registry())


@pytest.mark.parametrize("path", sorted(TEMPLATES.rglob("*.j2")), ids=lambda path: path.name)
def test_each_template_compiles(path: Path) -> None:
    name = str(path.relative_to(TEMPLATES))
    assert environment().get_template(name).name == name
