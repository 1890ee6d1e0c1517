# SPDX-License-Identifier: Apache-2.0
"""``calibration run``: ``ansible-playbook`` with this project's exit codes, on calibrate.yml or nightly.yml.

The playbook runs in this process, so signals reach Ansible directly.
"""

import json
import os
import sys

import click

from calibration.errors import BAD_INPUT, ENVIRONMENT, GOOD, INTERRUPTED, VERDICT_FAILED
from calibration.places import CACHE, HOME, HOME_VARIABLE, SHARE

ANSIBLE_EXIT_CODES = {0: GOOD, 2: VERDICT_FAILED, 5: BAD_INPUT, 99: INTERRUPTED, 130: INTERRUPTED, 250: ENVIRONMENT}
"""Our exit code for each of ``ansible-playbook``'s; others (errors in the inventory or the playbook) are bad input."""

NEWEST = "newest"
"""Stands for the newest incomplete run; no run has this name."""


class _Reasons:
    """Exit codes recorded by failed tasks of this process, or by an interruption."""

    def __init__(self) -> None:
        self.codes: set[int] = set()


_reasons = _Reasons()


def note_failure(exit_code: int) -> None:
    """Record why a task failed, or the run ends; called by the callback plugin in the controller's process."""
    _reasons.codes.add(exit_code)


def exit_code_of(ansible_code: int, noted: set[int]) -> int:
    """Return the command's exit code from ``ansible-playbook``'s and the *noted* ones.

    Ansible ends an interrupted run with one of several codes. Bad input outranks a lacking environment, which outranks
    a failed verdict: the first to fix comes first. Ansible's 2 without a failed task comes from its option parser.
    """
    if INTERRUPTED in noted and ansible_code != GOOD:
        return INTERRUPTED
    if ansible_code == 2 and not noted:
        return BAD_INPUT
    code = ANSIBLE_EXIT_CODES.get(ansible_code, BAD_INPUT if ansible_code != 4 else ENVIRONMENT)
    if code in {GOOD, INTERRUPTED}:
        return code
    for reason in (BAD_INPUT, ENVIRONMENT, VERDICT_FAILED):
        if reason in noted:
            return reason
    return code


@click.command(
    "run",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": ["--help"]},
    epilog="Example: calibration run --profile nightly -i lab.yml --limit t1-sut1",
)
@click.option(
    "--profile",
    help="quick (the default), nightly, full, counters, or the path of a .yml file (docs/guide/profiles.rst). "
    "Overrides the inventory's calibration_profile.",
)
@click.option(
    "--resume",
    is_flag=False,
    flag_value=NEWEST,
    metavar="[RUN_ID]",
    help="Resume this run (default: the newest incomplete one) instead of starting a new one.",
)
@click.option(
    "--nightly",
    is_flag=True,
    help="Run with the profile nightly, lock the results, then judge and publish (docs/guide/nightly.rst).",
)
@click.argument("ansible_options", nargs=-1, type=click.UNPROCESSED)
def run_command(profile: str | None, resume: str | None, nightly: bool, ansible_options: tuple[str, ...]) -> None:
    """Calibrate the SUTs of an inventory (default: this machine).

    ANSIBLE_OPTIONS are those of ansible-playbook. The most useful are -i INVENTORY, --limit SUTS, --become, --check
    (plan only), -e NAME=VALUE and -v.

    --resume runs the steps without a result; complete SUTs are skipped, unreached ones start. It is refused if the SUT
    (kernel, command line, microcode, BIOS, CPUs and nodes, isolation) or sutprobe has changed. For ansible-playbook,
    give -e calibration_resume=true.
    """
    playbook = SHARE / "playbooks" / ("nightly.yml" if nightly else "calibrate.yml")
    os.environ.setdefault("ANSIBLE_CONFIG", str(SHARE / "ansible.cfg"))
    os.environ.setdefault("ANSIBLE_HOME", str(CACHE / "ansible"))
    os.environ.setdefault(HOME_VARIABLE, str(HOME))
    arguments = ["ansible-playbook", str(playbook), *ansible_options]
    if profile is not None:
        from calibration.profiles import profile_named  # noqa: PLC0415 - imports every measurement

        arguments += ["--extra-vars", f"calibration_profile={profile_named(profile)}"]
    if resume is not None:
        named = {} if resume == NEWEST else {"calibration_run_id": resume}
        arguments += ["--extra-vars", json.dumps({"calibration_resume": True, **named})]
    sys.argv = arguments

    from ansible.cli.playbook import PlaybookCLI  # noqa: PLC0415 - reads its configuration when imported

    try:
        PlaybookCLI.cli_executor(arguments)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else GOOD if ended.code is None else ENVIRONMENT
        sys.exit(exit_code_of(code, _reasons.codes))
