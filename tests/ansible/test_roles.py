# SPDX-License-Identifier: Apache-2.0
"""All roles, playbooks and inventories, without running anything."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import ROOT, Lab, inventory_of, run_of

ROLES = sorted(path.name for path in (ROOT / "roles").iterdir() if path.name != "common")
"""Roles that do something: ``common`` has defaults only."""

PLAYBOOKS = sorted((ROOT / "playbooks").glob("*.yml"))


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


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
    options, own, shared = options_of(role), defaults_of(role), defaults_of("common")
    assert set(own) <= set(options) <= {*own, *shared, "calibration_run_id"}
    for name, option in options.items():
        assert option["type"], name
        assert option["description"], name


def test_shared_options_have_one_type_description_and_default() -> None:
    options: dict[str, dict[str, Any]] = {}
    defaults: dict[str, Any] = defaults_of("common")
    for role in ROLES:
        for name, option in options_of(role).items():
            told = {key: value for key, value in option.items() if key != "required"}
            assert options.setdefault(name, told) == told, (role, name)
        for name, default in defaults_of(role).items():
            assert defaults.setdefault(name, default) == default, (role, name)


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
    example = ROOT / "ansible" / "inventories" / "example-lab"
    text = "".join(path.read_text(encoding="utf-8") for path in example.rglob("*.yml"))
    for name in {*defaults_of("common"), *options_of("measure")} - {"calibration_nightly", "calibration_run_id"}:
        assert f"{name}: " in text or name == "sutprobe_prebuilt", name
    found = listed(lab, "-i", str(example))
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


PLAY = """
- hosts: checked
  roles: [calibration.harness.preflight]
  post_tasks:
    - ansible.builtin.assert: {that: preflight_result.fit}

- hosts: measured
  roles: [calibration.harness.measure]
  post_tasks:
    - ansible.builtin.assert: {that: [measure_result.run.status == "complete", not measure_result.failures]}

- hosts: measured
  vars:
    calibration_run_id: "{{ measure_result.run.directory | basename }}"
  roles: [calibration.harness.judge, calibration.harness.report, calibration.harness.publish]

- hosts: cleaned
  vars: {calibration_run_id: 20261121T000000Z-0000}
  roles: [calibration.harness.cleanup]
  post_tasks:
    - ansible.builtin.assert: {that: not cleanup_result.found}
"""


def test_each_role_works_alone_in_somebody_elses_play(lab: Lab) -> None:
    play = lab.directory / "play.yml"
    play.write_text(PLAY)
    variables = {"judge_dir": str(lab.directory / "night"), "report_site_dir": str(lab.directory / "no-site")}
    inventory = inventory_of(lab, dict.fromkeys(("checked", "measured", "cleaned"), variables))
    ended = lab.ansible("playbook", str(play), "-i", str(inventory))
    assert ended.rc == 0, ended.text
    assert (run_of(lab, "measured") / "report" / "page.rst").is_file()
    assert (lab.directory / "night" / "judgement.json").is_file()
    assert [path.parent.name for path in lab.runs()] == ["measured"]
    assert list(lab.remote.iterdir()) == []


def test_a_playbook_is_a_list_of_roles() -> None:
    allowed = {"ansible.builtin.import_role", "block", "always", "name", "vars", "when", "run_once", "tags"}

    def check(tasks: list[dict[str, Any]]) -> None:
        for task in tasks:
            assert set(task) <= allowed, task
            for part in ("block", "always"):
                check(task.get(part, []))

    for playbook in PLAYBOOKS:
        for play in read(playbook):
            assert "ansible.builtin.import_playbook" in play or play["gather_facts"] is False
            check(play.get("tasks", []))
