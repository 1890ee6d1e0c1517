# SPDX-License-Identifier: Apache-2.0
"""What holds for every role, playbook and inventory without running anything."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import ROOT, Lab, load_plugin, run

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
def test_an_option_has_a_default_a_type_and_a_description(role: str) -> None:
    assert set(options_of(role)) - {"calibration_run_id"} == set(defaults_of(role))
    for name, option in options_of(role).items():
        assert option.get("type"), name
        assert option.get("description"), name
        default = defaults_of(role).get(name)
        if default is not None and "{{" not in str(default):
            assert SETTINGS.faults({name: option}, {name: default}) == []


@pytest.mark.parametrize("role", ROLES)
def test_every_task_file_that_a_playbook_may_import_is_specified(role: str) -> None:
    specs = read(ROOT / "roles" / role / "meta" / "argument_specs.yml")["argument_specs"]
    imported = {
        task["ansible.builtin.import_tasks"].removesuffix(".yml")
        for _, task in tasks_of(role)
        if "ansible.builtin.import_tasks" in task
    }
    files = {path.stem for path in (ROOT / "roles" / role / "tasks").glob("*.yml")}
    assert files - imported <= set(specs)
    assert all(spec["short_description"] for spec in specs.values())


def test_all_playbooks_are_understood(lab: Lab) -> None:
    command = [sys.executable, "-m", "ansible", "playbook", "--syntax-check", *map(str, PLAYBOOKS)]
    ended = run(command, lab.environment())
    assert ended.rc == 0, ended.text
    for playbook in PLAYBOOKS:
        assert f"playbook: {playbook}" in ended.text


def inventory(lab: Lab, name: str) -> dict[str, Any]:
    command = lab.command("calibrate.yml")[:3]
    path = ROOT / "ansible" / "inventories" / name
    ended = run([*command, "inventory", "-i", str(path), "--list", "--export"], lab.environment())
    assert ended.rc == 0, ended.text
    parsed: dict[str, Any] = json.loads(ended.text)
    return parsed


def test_the_default_inventory_is_this_machine(lab: Lab) -> None:
    ended = run([*lab.command("x")[:3], "inventory", "--list", "--export"], lab.environment())
    assert list(json.loads(ended.text)["_meta"]["hostvars"]) == ["localhost"]


def test_the_example_shows_every_setting_and_documentation_addresses_only(lab: Lab) -> None:
    text = json.dumps(inventory(lab, "example-lab"))
    for name in defaults_of("settings"):
        assert f'"{name}"' in text, name
    hosts = inventory(lab, "example-lab")["_meta"]["hostvars"]
    assert len(hosts) > 1
    for name, variables in hosts.items():
        assert variables["ansible_host"].startswith("192.0.2."), name


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
