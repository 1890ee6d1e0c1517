# SPDX-License-Identifier: Apache-2.0
"""The variables of all roles are checked at once against the roles' specifications."""

import pytest
import yaml
from support import ROOT, load_plugin

SETTINGS = load_plugin("plugin_utils", "calibration_variables")


def test_covers_every_role_with_variables() -> None:
    found = SETTINGS.options_of_roles()
    assert sorted(found) == sorted(path.parts[-3] for path in ROOT.glob("roles/*/meta/argument_specs.yml"))
    assert "measure_grace_s" in found["measure"]
    assert "report_site" in found["report"], "of another entry point than the first"


def test_missing_variables_have_defaults() -> None:
    assert SETTINGS.faults({"wanted": {"type": "int", "required": True}}, {}) == []


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ({"type": "float"}, "soon"),
        ({"type": "str", "choices": ["a"]}, "b"),
        ({"type": "dict"}, "no"),
        ({"type": "int"}, []),
    ],
)
def test_reports_a_variable_that_violates_its_specification(option: dict[str, object], value: object) -> None:
    faults = SETTINGS.faults({"some_name": option}, {"some_name": value})
    assert len(faults) == 1
    assert "some_name" in faults[0]


def test_the_playbook_disables_the_checks_of_single_roles() -> None:
    text = (ROOT / "playbooks" / "calibrate.yml").read_text(encoding="utf-8")

    def imports(tasks: list[dict[str, object]]) -> list[dict[str, object]]:
        found = []
        for task in tasks:
            for name, value in task.items():
                if name in {"block", "rescue", "always"} and isinstance(value, list):
                    found += imports(value)
                if name == "ansible.builtin.import_role" and isinstance(value, dict):
                    found.append(value)
        return found

    roles = [item for play in yaml.safe_load(text) for item in imports(play.get("tasks", []))]
    assert len(roles) > 5
    assert [role["name"] for role in roles if role.get("rolespec_validate") is not False] == []
