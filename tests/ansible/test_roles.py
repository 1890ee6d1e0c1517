# SPDX-License-Identifier: Apache-2.0
"""All roles, playbooks and inventories, without running anything."""

import json
import re
from collections.abc import Iterator
from os import uname
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from support import ROOT, TINY, Lab, calibrate, inventory_of, load_plugin, run_of

from calibration.base.errors import BAD_INPUT
from calibration.results.store import read_run
from tests.report.snippets import blocks

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


STATED = [
    ("preflight.rst", "``preflight_remote_free_bytes`` (16 MiB)", 16 << 20),
    ("preflight.rst", "``preflight_results_free_bytes`` (64 MiB)", 64 << 20),
    ("trouble.rst", "``measure_keep_s``, one hour", 3600.0),
    ("nightly.rst", "``publish_keep`` versions (7)", 7),
]
"""Pages of the guide, what they say of a default, and the default."""


@pytest.mark.parametrize(("page", "text", "value"), STATED)
def test_defaults_are_what_the_guide_says(page: str, text: str, value: float) -> None:
    assert text in (ROOT / "docs" / "guide" / page).read_text(encoding="utf-8")
    name = text.split("``")[1]
    (found,) = [own[name] for own in map(defaults_of, ROLES) if name in own]
    assert found == value


def tasks_of_roles() -> Iterator[tuple[str, dict[str, Any], ModuleType, dict[str, Any]]]:
    """Yield each role's tasks with an action of ours, the action's module and its arguments."""
    for role in ROLES:
        for path in sorted((ROOT / "roles" / role / "tasks").glob("*.yml")):
            for task in read(path):
                for name in (key for key in task if key.startswith("calibration.harness.")):
                    yield role, task, load_plugin("action", name.rpartition(".")[2]), task[name]


OTHER_NAMES = {
    "output": "judge",
    "night": "judge",
    "judgement": "judge",
    "destination": "publish",
    "sut": "inventory_hostname",
}
"""Arguments that may be given a variable of another name."""


def plain(name: str) -> str:
    return re.sub("_(dir|ok)$", "", name)


def test_actions_get_every_argument_from_the_variable_of_its_name() -> None:
    for _, task, plugin, arguments in tasks_of_roles():
        assert set(arguments) == set(plugin.ActionModule.SPEC["argument_spec"]), task["name"]
        for name, value in arguments.items():
            words = [plain(word) for word in re.findall(r"\w+", str(value))] if "{{" in str(value) else [name]
            fits = any(word.endswith(plain(name)) for word in words) or OTHER_NAMES.get(name) in words
            assert fits, (task["name"], name, value)
        if plugin.ActionModule.ROLE_OPTIONS:
            assert "{{" not in str(arguments), "evaluated for each SUT, beside the variables that the action takes"


CONVERTED = ("dict", "raw")
"""Types of arguments that Ansible passes on as they are; the actions of these convert the items themselves."""


def test_no_role_relies_on_its_specification_to_convert_or_to_set_a_value() -> None:
    """Ansible only checks: ``-e name=no`` stays text, and a default there sets nothing."""
    typed = {name for role in ROLES for name, option in options_of(role).items() if option["type"] != "str"}
    lists = {name for role in ROLES for name, option in options_of(role).items() if option["type"] in {"list", "dict"}}
    for path in (*(ROOT / "roles").rglob("tasks/*.yml"), *(ROOT / "roles").rglob("defaults/*.yml"), *PLAYBOOKS):
        for test in re.findall(r"when: (.*)| if (.*?) else ", path.read_text(encoding="utf-8")):
            for name in typed - lists:
                for rest in re.findall(rf"\b{name}\b(.*)", "".join(test)):
                    assert re.match(r"( \| default\(\w+\))? \| (bool|int|float|length)\b", rest), (path, test)
    assert not [name for role in ROLES for name, option in options_of(role).items() if "default" in option]
    untyped = {
        name
        for _, task, plugin, _ in tasks_of_roles()
        for name, option in plugin.ActionModule.SPEC["argument_spec"].items()
        if option["type"] in CONVERTED and "options" not in option
    }
    assert not untyped


def test_a_dead_sut_fails_though_the_play_ignores_it(lab: Lab) -> None:
    """With ``ignore_unreachable`` Ansible counts a host that it cannot reach as one that is well."""
    roles = "roles: [calibration.harness.preflight, calibration.harness.measure]"
    for required, play in (("true", PLAY_OF_THE_DEAD), ("false", f"{PLAY_OF_THE_DEAD}{VERDICT}")):
        path = lab.directory / "play.yml"
        path.write_text(play.format(roles=roles, required=required))
        dead = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
        ended = lab.ansible("playbook", str(path), "-i", str(inventory_of(lab, {"dead": dead})))
        assert ended.rc == 2, ended.text
        assert "dead: not reachable" in ended.text


STARTED = """
import sys
from multiprocessing import util
from ansible.executor.process import worker
from ansible.plugins.callback import CallbackBase

def loaded(before):
    with open(PATH, "a") as stream:
        action = worker.current_worker._task.action.rpartition(".")[2]
        stream.writelines(f"{action} loaded {name}\\n" for name in set(sys.modules) - before)

class CallbackModule(CallbackBase):
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "started"

    def v2_playbook_on_start(self, playbook):
        util.register_after_fork(self, lambda _: util.Finalize(None, loaded, (set(sys.modules),), exitpriority=0))

    def v2_runner_on_start(self, host, task):
        with open(PATH, "a") as stream:
            stream.write(f"{host.name} {task.action.rpartition('.')[2]} {'scipy' in sys.modules}\\n")
"""


def test_a_sut_takes_a_worker_to_check_and_one_to_measure_and_its_wrong_settings_fail_it_alone(lab: Lab) -> None:
    """The first SUT of a play also has the tasks that are for all. What a document needs is loaded once for several."""
    (lab.directory / "started.py").write_text(STARTED.replace("PATH", repr(str(lab.directory / "started"))))
    settings = {
        "sut0": {},
        "sut1": {},
        "checked": {"preflight_time_offset_max_s": "soon"},
        "measured": {"measure_keep_s": "long"},
        "undefined": {"reserve_tg": "{{ no_such_variable }}"},
        "number": {"reserve_tg": 5},
    }
    ended = calibrate(lab, inventory_of(lab, settings), ANSIBLE_CALLBACK_PLUGINS=str(lab.directory))
    assert ended.rc == BAD_INPUT, ended.text
    for name, fault in (("checked", "preflight_time_offset_max_s"), ("measured", "measure_keep_s")):
        assert f"{name}: Validation of arguments failed:" in ended.text
        assert f"argument '{fault}' is of type str and we were unable to convert to float" in ended.text
    assert re.search("undefined: .*no_such_variable", ended.text), ended.text
    assert sorted(run.parent.name for run in lab.runs()) == ["sut0", "sut1"]
    assert [read_run(run).run.status for run in lab.runs()] == ["complete"] * 2
    started = (lab.directory / "started").read_text(encoding="utf-8").splitlines()
    assert [line.split()[1] for line in started if line.startswith("sut1 ")] == ["preflight", "measure"]
    assert "sut0 measure True" in started
    loaded = {line for line in started if line.startswith(("preflight loaded", "measure loaded"))}
    assert not {line for line in loaded if re.search("loaded (calibration|numpy|pydantic|scipy)", line)}


def test_one_sut_does_not_wait_for_what_its_document_needs(lab: Lab) -> None:
    (lab.directory / "started.py").write_text(STARTED.replace("PATH", repr(str(lab.directory / "started"))))
    ended = calibrate(lab, inventory_of(lab, {"alone": {}}), ANSIBLE_CALLBACK_PLUGINS=str(lab.directory))
    assert ended.rc == 0, ended.text
    assert "alone measure False" in (lab.directory / "started").read_text(encoding="utf-8").splitlines()


PLAY_OF_THE_DEAD = """
- hosts: dead
  ignore_unreachable: true
  vars: {{preflight_required: {required}}}
  {roles}
"""

VERDICT = """
- hosts: dead
  ignore_unreachable: true
  tasks:
    - ansible.builtin.import_role: {{name: calibration.harness.measure, tasks_from: verdict}}
"""

WRITING = {"judge", "notify", "publish", "report"}
"""Actions that are skipped in check mode; others change nothing in it."""


def test_actions_run_once_unless_they_ask_a_sut_and_secrets_are_not_logged() -> None:
    generator = load_plugin("action", "reserve_generator").ActionModule
    for role, task, plugin, _ in tasks_of_roles():
        action = plugin.ActionModule
        assert task.get("run_once", False) is not action._requires_connection, task["name"]
        assert ("not ansible_check_mode" in task.get("when", "")) is (plugin.__name__.rpartition(".")[2] in WRITING)
        secrets = {name for name, option in action.SPEC["argument_spec"].items() if option.get("no_log")}
        assert task.get("no_log", False) is bool(secrets), task["name"]
        logged = {name for name, option in options_of(role).items() if not option.get("no_log")}
        assert not {f"notify_{name}" for name in secrets} & logged
        delegated = task.get("delegate_to") in {
            "{{ reserve_tg }}",
            "{{ reserve_tg | default(inventory_hostname, true) }}",
        }
        assert delegated is (action is generator), task["name"]


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
    assert hosts["testbed1-tg1"]["preflight_severity"]["bios"] == "off"


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


def documented_plays() -> dict[str, list[dict[str, Any]]]:
    """Return the plays of the documentation by page and first name; a list of tasks becomes a play of the SUT."""
    found = {}
    for block in blocks():
        if block.language == "yaml" and "ansible.builtin.import_role" in block.text:
            items = yaml.safe_load(block.text)
            plays = items if "hosts" in items[0] else [{"hosts": "sut", "gather_facts": False, "tasks": items}]
            found[f"{block.page}: {plays[0]['tasks'][0]['name']}"] = plays
    return found


def test_plays_of_the_documentation_have_valid_syntax(lab: Lab) -> None:
    paths = []
    for number, plays in enumerate(documented_plays().values()):
        paths.append(lab.directory / f"play{number}.yml")
        paths[-1].write_text(yaml.safe_dump(plays))
    assert len(paths) >= 6
    ended = lab.ansible("playbook", "--syntax-check", "-i", str(inventory_of(lab, {"sut": {}})), *map(str, paths))
    assert ended.rc == 0, ended.text


def test_plays_of_the_documentation_do_what_they_say(lab: Lab) -> None:
    plays = {name.partition(": ")[2]: plays for name, plays in documented_plays().items()}
    whole, (ended,), (checked,) = (
        plays[name] for name in ("Check the servers, change nothing", "End the run", "Check the servers")
    )
    assert whole[0]["hosts"] == "sut"
    path = lab.directory / "play.yml"
    path.write_text(yaml.safe_dump([*whole, {**ended, "hosts": "cleaned"}, {**checked, "hosts": "unfit"}]))
    inventory = inventory_of(lab, {name: {} for name in ("sut", "cleaned", "unfit")})
    done = lab.ansible("playbook", str(path), "-i", str(inventory), "-e", f"calibration_profile={TINY}")
    (run,) = lab.runs()
    assert read_run(run).run.status == "complete", done.text
    assert (run / "report" / "page.rst").is_file()
    assert done.rc == 2, "the check of a server with another kernel passes"
    lines = done.text.splitlines()
    assert any(f"unfit: Kernel release: expected 6.8.0-*-generic, found {uname().release}" in line for line in lines)
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
