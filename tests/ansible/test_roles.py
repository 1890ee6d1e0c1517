# SPDX-License-Identifier: Apache-2.0
"""All roles, playbooks and inventories, without running anything."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import ROOT, Lab, load_plugin

SETTINGS = load_plugin("plugin_utils", "calibration_variables")
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir())
PLAYBOOKS = sorted((ROOT / "playbooks").glob("*.yml"))


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def tasks_of(role: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted((ROOT / "roles" / role / "tasks").glob("*.yml")):
        for task in read(path):
            yield path.name, task


def options_of(role: str) -> dict[str, dict[str, Any]]:
    specs = read(ROOT / "roles" / role / "meta" / "argument_specs.yml")["argument_specs"]
    options: dict[str, dict[str, Any]] = {}
    for entry in specs.values():
        options |= entry["options"]
    return options


def defaults_of(role: str) -> dict[str, Any]:
    defaults: dict[str, Any] = read(ROOT / "roles" / role / "defaults" / "main.yml")
    return defaults


@pytest.mark.parametrize("role", ROLES)
def test_every_option_has_a_default_a_type_and_a_description(role: str) -> None:
    assert set(options_of(role)) - {"calibration_run_id"} == set(defaults_of(role))
    for name, option in options_of(role).items():
        assert option.get("type"), name
        assert option.get("description"), name
        default = defaults_of(role).get(name)
        if default is not None and "{{" not in str(default):
            assert SETTINGS.faults({name: option}, {name: default}) == []


@pytest.mark.parametrize("role", ROLES)
def test_every_entry_point_is_specified(role: str) -> None:
    specs = read(ROOT / "roles" / role / "meta" / "argument_specs.yml")["argument_specs"]
    imported = {
        task["ansible.builtin.import_tasks"].removesuffix(".yml")
        for _, task in tasks_of(role)
        if "ansible.builtin.import_tasks" in task
    }
    files = {path.stem for path in (ROOT / "roles" / role / "tasks").glob("*.yml")}
    assert files - imported <= set(specs)
    assert all(spec["short_description"] for spec in specs.values())


def test_playbooks_have_valid_syntax(lab: Lab) -> None:
    ended = lab.ansible("playbook", "--syntax-check", *map(str, PLAYBOOKS))
    assert ended.rc == 0, ended.text
    for playbook in PLAYBOOKS:
        assert f"playbook: {playbook}" in ended.text


def listed(lab: Lab, *options: str) -> dict[str, Any]:
    """Return what ``ansible-inventory`` lists."""
    ended = lab.ansible("inventory", "--list", *options)
    assert ended.rc == 0, ended.text
    parsed: dict[str, Any] = json.loads(ended.text)
    return parsed


def test_the_default_inventory_is_this_machine(lab: Lab) -> None:
    assert list(listed(lab)["_meta"]["hostvars"]) == ["localhost"]


def test_the_example_inventory_shows_every_setting_and_only_documentation_addresses(lab: Lab) -> None:
    found = listed(lab, "-i", str(ROOT / "ansible" / "inventories" / "example-lab"))
    text = json.dumps(found)
    for name in defaults_of("settings"):
        assert f'"{name}"' in text, name
    hosts = found["_meta"]["hostvars"]
    assert len(hosts) > 1
    for name, variables in hosts.items():
        assert variables["ansible_host"].startswith("192.0.2."), name
    # What a group sets outranks what all have.
    first, second = hosts["testbed1-sut1"], hosts["testbed2-sut1"]
    assert (first["calibration_profile"], second["calibration_profile"]) == ("full", "nightly")
    assert first["calibration_limits"]
    assert not second["calibration_limits"]
    assert hosts["testbed1-tg1"]["preflight_effects"]["bios"] == "off"


def test_a_playbook_is_a_list_of_roles() -> None:
    allowed = {"ansible.builtin.import_role", "block", "rescue", "always", "name", "vars", "when"}
    allowed |= {"ansible.builtin.meta", "ansible.builtin.assert"}  # which SUT goes on, and which leaves

    def check(tasks: list[dict[str, Any]]) -> None:
        for task in tasks:
            assert set(task) <= allowed, task
            for part in ("block", "rescue", "always"):
                check(task.get(part, []))

    for playbook in PLAYBOOKS:
        for play in read(playbook):
            assert "ansible.builtin.import_playbook" in play or play["gather_facts"] is False
            check(play.get("tasks", []))
