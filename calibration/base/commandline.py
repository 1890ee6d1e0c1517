# SPDX-License-Identifier: Apache-2.0
"""Commands that messages tell the operator to run.

They work where they are pasted: in the working directory of this process, with its program, inventory and results.
"""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from calibration.base.parsers import parse_json
from calibration.base.places import RESULTS, SHARE
from calibration.runner import blanking

CONFIGURATION: Final = "ANSIBLE_CONFIG"

SECRET: Final = re.compile(f"{blanking.SECRET.pattern}|pass|vault|key|url", re.IGNORECASE)
"""In names of extra variables that no message repeats: the address of a chat is a secret too."""

LOGIN: Final = re.compile(r"://[^/\s]*@|\bsshpass\b")
"""Passwords in the address of a proxy, and on the command line of a program."""

OWN: Final = frozenset({"calibration_run_id", "calibration_results_dir", "calibration_resume", "calibration_profile"})
"""Extra variables that a command composed here names by itself, or does not need."""


def calibration_command(*words: str | Path, results: Path | None = None) -> str:
    """Return ``calibration`` with *words*, and the *results* as an option if they are not the default's."""
    named = () if results is None or _is_default(results) else ("--results", near(results))
    return shlex.join([*_program("calibration", "calibration.cli"), *map(str, words), *named])


def accept_command(run: str, results: Path | None = None) -> str:
    """Return the command that accepts *run*, by its path or by a name in *results*."""
    return calibration_command("accept", run, "--by", "NAME", "--reason", "TEXT", results=results)


def run_command(*options: str, results: Path | None = None) -> str:
    """Return ``calibration run`` with *options*, on the inventory of this process's playbook, if it runs one."""
    words = [*_program("calibration", "calibration.cli"), "run", *ansible_options(_given(), typed=True), *options]
    return shlex.join([*words, *_results_variable(results)])


def cleanup_command(run_id: str, hosts: Iterable[str], results: Path | None = None) -> str:
    """Return the command that ends the run *run_id* on *hosts* of the inventory, restores and collects them."""
    words = [
        *_program("ansible-playbook", "ansible", "playbook"),
        *ansible_options(_given(), typed=True),
        near(SHARE / "playbooks" / "cleanup.yml"),
        *("-e", f"calibration_run_id={run_id}"),
        *_results_variable(results),
        *("--limit", ",".join(hosts)),
    ]
    configured = "" if Path("ansible.cfg").absolute() == SHARE / "ansible.cfg" else _configuration()
    return configured + shlex.join(words)


def near(path: str | Path) -> str:
    """Return *path* as it is written in the working directory: relative below it, absolute elsewhere."""
    absolute = Path(path).absolute()
    return str(absolute.relative_to(Path.cwd())) if absolute.is_relative_to(Path.cwd()) else str(absolute)


def ansible_options(given: Mapping[str, Any], *, typed: bool) -> list[str]:
    """Return the options of an ``ansible-playbook`` command, *given*, that decide which hosts it reaches, and how.

    With *typed*, for an operator: paths as they are written, passwords asked for again, and extra variables only if
    they do not look like secrets.
    """
    inventories, variables = given.get("inventory") or (), given.get("extra_vars") or ()
    if typed:
        # A list of hosts is no path.
        inventories = [near(item) if Path(item).exists() else item for item in inventories]
        inventories = [] if _is_default_inventory(given) else inventories
        variables = [shown for variable in variables if (shown := _shown(variable)) is not None]
    command = []
    for option, values in (
        ("-i", inventories),
        ("-e", variables),
        ("--vault-id", given.get("vault_ids") or ()),
        ("--vault-password-file", given.get("vault_password_files") or ()),
    ):
        for value in values:
            command += [option, value]
    connection = [option for option in _connection(given) if not typed or not LOGIN.search(option)]
    return [*command, *connection, *(_asking(given) if typed else ())]


def _shown(variable: str) -> str | None:
    """Return an extra variable as it is shown; None if it is or may be secret, or is one that commands here set."""
    if variable.startswith("@"):
        return f"@{near(variable[1:])}"
    try:
        names = set(_names(parse_json(variable)))
    except ValueError:
        names = set(re.findall(r"(\w+)=", variable))
    secret = any(SECRET.search(name) for name in names) or blanking.blank(variable) != variable
    return None if secret or names <= OWN else variable


def _names(value: Any) -> Iterator[str]:
    """Yield the names in *value* at any depth."""
    if isinstance(value, dict):
        yield from value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _names(item)


def _connection(given: Mapping[str, Any]) -> Iterator[str]:
    constants = sys.modules.get("ansible.constants")
    for option, name, usual in (
        ("--private-key", "private_key_file", None),
        ("--user", "remote_user", None),
        ("--timeout", "timeout", None),
        ("--ssh-common-args", "ssh_common_args", None),
        ("--ssh-extra-args", "ssh_extra_args", None),
        ("--sftp-extra-args", "sftp_extra_args", None),
        ("--scp-extra-args", "scp_extra_args", None),
        ("--become-user", "become_user", None),
        ("--connection", "connection", "DEFAULT_TRANSPORT"),
        ("--become-method", "become_method", "DEFAULT_BECOME_METHOD"),
    ):
        value = given.get(name)
        if value not in (None, "") and (usual is None or value != getattr(constants, usual, None)):
            yield f"{option}={value}"
    if given.get("become"):
        yield "--become"


def _asking(given: Mapping[str, Any]) -> Iterator[str]:
    for option, name in (
        ("--ask-pass", "ask_pass"),
        ("--ask-become-pass", "become_ask_pass"),
        ("--ask-vault-pass", "ask_vault_pass"),
    ):
        if given.get(name):
            yield option


def _given() -> Mapping[str, Any]:
    """Return the options of the Ansible command that this process is; empty if it is none."""
    return getattr(sys.modules.get("ansible.context"), "CLIARGS", None) or {}


def _is_default_inventory(given: Mapping[str, Any]) -> bool:
    usual = getattr(sys.modules.get("ansible.constants"), "DEFAULT_HOST_LIST", ())
    return list(given.get("inventory") or ()) == list(usual)


def _is_default(results: Path) -> bool:
    return results.absolute() == RESULTS


def _results_variable(results: Path | None) -> tuple[str, ...]:
    """Return the option that names *results*, which an inventory may name too: it does no harm then."""
    return () if results is None or _is_default(results) else ("-e", f"calibration_results_dir={results.absolute()}")


def _configuration() -> str:
    return f"{CONFIGURATION}={shlex.quote(os.environ.get(CONFIGURATION) or str(SHARE / 'ansible.cfg'))} "


def _program(name: str, *module: str) -> Sequence[str]:
    """Return how to start the program *name* of this environment: by its name, if PATH leads to it, or its path."""
    beside = Path(sys.executable).with_name(name)
    if not beside.is_file():
        return [near(sys.executable), "-m", *module]
    found = shutil.which(name)
    if Path.cwd() == beside.parent:
        return [f"./{name}"]
    return [name if found is not None and Path(found).samefile(beside) else near(beside)]
