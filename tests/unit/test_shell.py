# SPDX-License-Identifier: Apache-2.0
"""Commands for a SUT survive every login shell, and what a login prints is kept out of their output."""

import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.base.shell import framed, unframed
from tests.tools import require

MARKER = "0123456789abcdef"

LOGIN_SHELLS = (["sh"], ["bash"], ["dash"], ["fish"], ["tcsh"], ["zsh"], ["busybox", "sh"])
POSIX_SHELLS = (["dash"], ["bash", "--posix"], ["busybox", "sh"], ["zsh", "--emulate", "sh"])

SCRIPT = r"""! false && printf '%s\n' 'a!b' "it's" '\n' '\\' '!!' 'x
1' "$(cat)" #'
exit 7"""


def run(shell: list[str], command: str, text: str = "") -> "subprocess.CompletedProcess[str]":
    require(shell[0], shell[0])
    return subprocess.run([*shell, "-c", command], input=text, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("shell", LOGIN_SHELLS, ids=" ".join)
def test_a_command_reaches_sh_through_a_login_shell(shell: list[str]) -> None:
    # As Ansible sends it, and once more through the login shell of a user that su becomes.
    direct = f"/bin/sh -c {shlex.quote(framed(SCRIPT, MARKER) + ' && sleep 0')}"
    through_su = f"/bin/sh -c {shlex.quote(shlex.join([*shell, '-c', direct]))}"
    for command in (direct, through_su):
        done = run(shell, command, "given\n")
        assert (done.returncode, done.stderr) == (7, "")
        assert unframed(done.stdout, MARKER) == "a!b\nit's\n\\n\n\\\\\n!!\nx\n1\ngiven\n"


@pytest.mark.parametrize("shell", POSIX_SHELLS, ids=" ".join)
def test_every_sh_runs_a_framed_command(shell: list[str]) -> None:
    done = run(shell, framed(SCRIPT, MARKER), "given\n")
    assert (done.returncode, done.stderr) == (7, "")
    assert unframed(done.stdout, MARKER) == "a!b\nit's\n\\n\n\\\\\n!!\nx\n1\ngiven\n"


@pytest.mark.parametrize("shell", [["fish"], ["tcsh"]], ids=" ".join)
def test_arguments_are_passed_unchanged(shell: list[str]) -> None:
    run(shell, "true")

    @given(
        st.lists(st.text(st.characters(max_codepoint=0xFF, exclude_characters="\0\r\x85", exclude_categories=["Cs"])))
    )
    def check(words: list[str]) -> None:
        command = f"/bin/sh -c {shlex.quote(framed(shlex.join(['printf', '%s|', *words]), MARKER))}"
        done = run(shell, command)
        assert unframed(done.stdout, MARKER) == "".join(f"{word}|" for word in words or [""])

    check()


PRINTED = {
    "plain": (f"begin-{MARKER}\n{{}}\nend-{MARKER}\n", "{}\n"),
    "a login that prints": (f"Welcome!\nbegin-{MARKER}\n{{}}end-{MARKER}\nbye\n", "{}"),
    "no line end before": (f"Welcome!begin-{MARKER}\n{{}}end-{MARKER}", "{}"),
    "traced by the shell": (f"+ echo begin-{MARKER}\nbegin-{MARKER}\n{{}}\nend-{MARKER}\n", "{}\n"),
    "a terminal": (f"begin-{MARKER}\r\n{{}}\r\nend-{MARKER}\r\n", "{}\r\n"),
    "ended by a signal": (f"begin-{MARKER}\n{{", "{"),
    "silent": (f"begin-{MARKER}\nend-{MARKER}\n", ""),
    "not started": ("This account is currently not available.\n", None),
    "refused with its text": (f"fatal: unrecognized command 'echo begin-{MARKER}; x'\n", None),
    "another's": ("begin-fedcba9876543210\nx\nend-fedcba9876543210\n", None),
}


@pytest.mark.parametrize("case", PRINTED)
def test_the_output_is_only_what_the_script_printed(case: str) -> None:
    printed, answer = PRINTED[case]
    assert unframed(printed, MARKER) == answer
