# SPDX-License-Identifier: Apache-2.0
"""Every check of the role preflight, and the one of the settings, is shown to fail, each for its own reason."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import ROOT, Ended, Lab, load_plugin

PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.import_role: {name: settings}
    - ansible.builtin.import_role: {name: preflight, tasks_from: controller_checks}
    - ansible.builtin.import_role: {name: preflight, tasks_from: sut_checks}
"""

GOOD: dict[str, Any] = {
    "ansible_connection": "local",
    "__preflight_controller": {
        "profile": {"name": "quick", "error": None},
        "results": {
            "path": "/srv/results",
            "existing": "/srv",
            "directory": True,
            "writable": True,
            "free_bytes": 10**10,
        },
    },
    "__preflight_sut": {
        "python_version": "3.11.2",
        "system": "Linux",
        "machine": "x86_64",
        "uid": 0,
        "remote_base": {
            "path": "/var/tmp",
            "exists": True,
            "directory": True,
            "writable": True,
            "noexec": False,
            "free_bytes": 10**10,
        },
        "running": [],
    },
}

CASES: dict[str, tuple[str, Any, str]] = {
    "ansible": ("preflight_ansible_minimum", "99.0", "Expected ansible-core 99.0 or newer, found 2."),
    "profile": (
        "__preflight_controller.profile.error",
        "expected one of the profiles quick",
        "The profile cannot be used: expected one of the profiles quick",
    ),
    "results": (
        "__preflight_controller.results.writable",
        False,
        "for the results at /srv/results, found /srv without permission to write",
    ),
    "results-space": (
        "__preflight_controller.results.free_bytes",
        1000,
        "Expected at least 67108864 bytes free for the results at /srv/results, found 1000.",
    ),
    "no-python": ("__preflight_sut", {"msg": "no interpreter"}, "found none that answers: no interpreter."),
    "old-python": (
        "__preflight_sut.python_version",
        "3.6.8",
        "Expected Python 3.8 or newer on the SUT, found 3.6.8.",
    ),
    "system": ("__preflight_sut.system", "FreeBSD", "Expected a SUT that runs Linux, found FreeBSD."),
    "machine": (
        "__preflight_sut.machine",
        "s390x",
        "Expected one of the architectures x86_64, aarch64, found s390x.",
    ),
    "remote": (
        "__preflight_sut.remote_base.writable",
        False,
        "that user id 0 can write at /var/tmp on the SUT, found one without permission to write.",
    ),
    "noexec": ("__preflight_sut.remote_base.noexec", True, "at /var/tmp on the SUT, found one mounted with noexec."),
    "remote-space": (
        "__preflight_sut.remote_base.free_bytes",
        1000,
        "Expected at least 16777216 bytes free at /var/tmp on the SUT, found 1000.",
    ),
    "running": (
        "__preflight_sut.running",
        [{"pid": 4711, "path": "/var/tmp/calibration-x/sutprobe"}],
        "found /var/tmp/calibration-x/sutprobe as process 4711.",
    ),
    "testbed": (
        "calibration_testbed",
        "../elsewhere",
        "Expected a name of letters, digits, '.', '_' and '-' for the testbed, found '../elsewhere'.",
    ),
}


def host_variables(where: str, value: Any) -> dict[str, Any]:
    variables: dict[str, Any] = copy.deepcopy(GOOD)
    *path, last = where.split(".")
    place = variables
    for key in path:
        place = place[key]
    place[last] = value
    return variables


@pytest.fixture(scope="module")
def checked(module_lab: Lab) -> Ended:
    hosts = {name: host_variables(where, value) for name, (where, value, _) in CASES.items()}
    inventory = module_lab.directory / "hosts.json"
    inventory.write_text(json.dumps({"all": {"hosts": {**hosts, "good": GOOD}}}))
    play = module_lab.directory / "play.yml"
    play.write_text(PLAY)
    return module_lab.run(play, "-i", str(inventory))


@pytest.mark.parametrize("case", CASES)
def test_a_check_fails_for_its_own_reason(checked: Ended, case: str) -> None:
    lines = [line for line in checked.text.splitlines() if line.startswith(f"{case}:")]
    assert len(lines) == 1, checked.text
    assert CASES[case][2] in lines[0]


def test_a_good_sut_passes(checked: Ended) -> None:
    assert checked.rc == 2
    assert "good:" not in checked.text


def test_every_check_has_a_case() -> None:
    files = [
        ROOT / "roles" / "settings" / "tasks" / "main.yml",
        *(ROOT / "roles" / "preflight" / "tasks").glob("*.yml"),
    ]
    checks = [
        task["name"]
        for path in files
        for task in yaml.safe_load(path.read_text(encoding="utf-8"))
        if "ansible.builtin.assert" in task
    ]
    # The check of Python has two: one that is too old, and none that answers.
    assert len(checks) == len(CASES) - 1


def test_a_directory_state_is_read_without_writing(tmp_path: Path) -> None:
    module = load_plugin("modules", "sut_preflight_info")
    state = module.directory_state(str(tmp_path))
    assert state["exists"]
    assert state["directory"]
    assert state["writable"]
    assert state["free_bytes"] > 0
    missing = module.directory_state(str(tmp_path / "none"))
    assert (missing["exists"], missing["writable"], missing["free_bytes"]) == (False, False, None)
    assert list(tmp_path.iterdir()) == []


def test_only_runs_below_the_same_directory_are_other_calibrations(tmp_path: Path) -> None:
    module = load_plugin("modules", "sut_preflight_info")
    for pid, program in (("10", "/base/calibration-1-a/sutprobe"), ("11", "/elsewhere/sutprobe"), ("12", "/base/x")):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "exe").symlink_to(program)
    (tmp_path / "13").mkdir()
    assert module.running_kernels("/base", str(tmp_path)) == [{"pid": 10, "path": "/base/calibration-1-a/sutprobe"}]
