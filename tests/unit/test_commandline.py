# SPDX-License-Identifier: Apache-2.0
"""Commands in messages can be pasted: program, inventory and results are those of the process that prints them.

Printed commands are executed in tests/ansible/test_interrupt.py.
"""

import ast
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.common.collections import ImmutableDict

from ansible import context
from calibration.base import commandline
from calibration.base.commandline import calibration_command, cleanup_command, near, run_command
from calibration.base.places import PACKAGE, RESULTS, SHARE
from calibration.cli import COMMANDS

RUN = "20261121T032712Z-3f2a"


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment in the working directory's ``.venv``, which PATH does not lead to."""
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("python", "calibration", "ansible-playbook"):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(programs / "python"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(context, "CLIARGS", ImmutableDict())
    monkeypatch.delenv("ANSIBLE_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    return programs


def given(monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
    """Make this process an Ansible command with *options*."""
    monkeypatch.setattr(context, "CLIARGS", ImmutableDict(options))


def test_the_program_is_that_of_this_environment(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert calibration_command("show") == ".venv/bin/calibration show"
    monkeypatch.chdir("/usr")
    assert calibration_command("show") == f"{environment}/calibration show"
    monkeypatch.chdir(environment)
    assert calibration_command("show") == "./calibration show"
    monkeypatch.chdir("/")
    monkeypatch.setenv("PATH", str(environment))
    assert calibration_command("show") == "calibration show"
    (environment / "calibration").unlink()
    assert calibration_command("show") == f"{near(environment / 'python')} -m calibration.cli show"


@pytest.mark.usefixtures("environment")
def test_results_are_named_if_they_are_not_the_default(tmp_path: Path) -> None:
    assert calibration_command("accept", "t1/sut 1", results=RESULTS) == ".venv/bin/calibration accept 't1/sut 1'"
    assert calibration_command("show", results=tmp_path / "lab") == ".venv/bin/calibration show --results lab"
    assert run_command("--resume", RUN, results=RESULTS) == f".venv/bin/calibration run --resume {RUN}"
    named = f"-e calibration_results_dir={tmp_path}/lab"
    assert run_command("--resume", RUN, results=Path("lab")) == f".venv/bin/calibration run --resume {RUN} {named}"
    assert named in cleanup_command(RUN, ["sut1"], Path("lab"))


@pytest.mark.usefixtures("environment")
def test_inventory_and_connection_are_those_of_the_playbook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my lab").mkdir()
    given(
        monkeypatch,
        inventory=(str(tmp_path / "my lab"), "sut9,"),
        extra_vars=(
            *(f"@{tmp_path}/vars.yml", "ansible_port=2222", "ansible_become_password=secret", '{"my_token": "secret"}'),
            *(
                '{"lab": [{"door": {"psk": "secret"}}]}',
                "mirror=https://me:secret@host/",
                '{"url": "http://h/?t=secret"}',
            ),
            *(f'{{"calibration_run_id": "{RUN}", "calibration_resume": true}}', "calibration_profile=full"),
        ),
        vault_ids=("lab@prompt",),
        private_key_file="/keys/lab",
        become=True,
        become_ask_pass=True,
    )
    options = ["-i", "my lab", "-i", "sut9,", "-e", "@vars.yml", "-e", "ansible_port=2222", "--vault-id", "lab@prompt"]
    options += ["--private-key=/keys/lab", "--become", "--ask-become-pass"]
    assert shlex.split(run_command("--resume", RUN)) == [".venv/bin/calibration", "run", *options, "--resume", RUN]
    words = shlex.split(cleanup_command(RUN, ["sut1", "sut2"]))
    assert words[:2] == [f"ANSIBLE_CONFIG={SHARE}/ansible.cfg", ".venv/bin/ansible-playbook"]
    assert words[2:-4] == [*options, str(SHARE / "playbooks" / "cleanup.yml")]
    assert words[-4:] == ["-e", f"calibration_run_id={RUN}", "--limit", "sut1,sut2"]


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("option", [
    {"extra_vars": ('{"sut": {"ansible_become_pass": "hidden"}}',)},
    {"extra_vars": ('{"all": [{"ssh": {"API_TOKEN": "hidden"}}]}',)},
    {"extra_vars": ("{ansible_password: hidden}",)},
    {"extra_vars": ("ansible_port=22 ansible_ssh_pass='hidden'",)},
    {"extra_vars": ("notify_url=https://chat.example/hidden",)},
    {"extra_vars": ('{"mirror": "https://user:hidden@example.org/x"}',)},
    {"extra_vars": ("hidden",)},
    {"ssh_common_args": "-o ProxyCommand='sshpass -p hidden ssh jump'"},
], ids=str)  # fmt: skip
def test_no_secret_is_repeated(monkeypatch: pytest.MonkeyPatch, option: dict[str, Any]) -> None:
    given(monkeypatch, **option)
    for command in (run_command("--resume"), cleanup_command(RUN, ["sut1"])):
        assert "hidden" not in command


@pytest.mark.usefixtures("environment")
def test_the_default_inventory_and_configuration_are_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from ansible import constants

    given(monkeypatch, inventory=tuple(constants.DEFAULT_HOST_LIST))
    monkeypatch.chdir(SHARE)
    assert " -i " not in run_command("--resume")
    command = cleanup_command(RUN, ["localhost"])
    assert " -i " not in command
    assert not command.startswith(commandline.CONFIGURATION)
    assert " playbooks/cleanup.yml " in command


NAMED = re.compile(rf"\bcalibration ({'|'.join(COMMANDS)})\b|ansible-playbook |playbooks/\w+\.yml| --resume\b")
"""A command of this project in a text."""

NOT_PASTED = {
    "calibration/report/screens/judgement.py": "a hint in a line of numbers",
    "calibration/gates/night.py": "says what a file should have been made by",
    "calibration/base/flags.py": "in the guide",
    "calibration/judge/night_limits.py": "in a stored verdict, read in other places",
    "calibration/report/story.py": "on a page, read in other places",
    "calibration/runner/alone.py": "told by a SUT: what the controller did wrong",
    "calibration/runner/lock.py": "told by a SUT, which knows neither inventory nor results",
    "calibration/runner/tg.py": "told by a traffic generator, which knows neither inventory nor results",
}
"""Texts that name a command and are not to be pasted, by module, and why."""


def messages(path: Path) -> Iterator[str]:
    """Yield the texts in a module's code, without documentation and help."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    documented = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    plugin = [node for node in nodes if isinstance(node, ast.Assign) and "DOCUMENTATION" in ast.dump(node.targets[0])]
    helped = [node for node in nodes if isinstance(node, ast.keyword) and node.arg in {"help", "epilog"}]
    documented |= {id(part) for node in (*plugin, *helped) for part in ast.walk(node.value)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
            yield node.value


def test_every_command_of_a_message_is_composed_here() -> None:
    """A command to paste comes from this module; what names one otherwise is listed with its reason."""
    paths = [*PACKAGE.rglob("*.py"), *(SHARE / "ansible" / "plugins").rglob("*.py")]
    found = {
        str(path.relative_to(SHARE)): text
        for path in paths
        if path.name not in {"commandline.py", "bootstrap.py"}
        for text in messages(path)
        if NAMED.search(text)
    }
    assert {name: text for name, text in found.items() if name not in NOT_PASTED} == {}
