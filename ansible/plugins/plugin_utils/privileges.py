# SPDX-License-Identifier: Apache-2.0
"""Why a login could not become another user on a SUT, by what Ansible or the program for it (sudo, su) says."""

from __future__ import annotations

import re

NOT_FOUND = 127
"""Exit code of a shell for a command that it does not find."""

REASONS = (
    (
        "^doas: (Authentication failed|a tty is required)",
        "{program} reads passwords from a terminal only: permit {login} with nopass in the SUT's doas.conf",
    ),
    ("must have a tty", "{program} requires a terminal: remove requiretty for {login} from the SUT's sudoers"),
    (
        "not in the sudoers|not allowed to|may not run|Operation not permitted",
        "{program} is not permitted to {login} on the SUT: allow it there",
    ),
    (
        "^Missing .* password|password is required|Authorization required|Authentication required|escalation prompt",
        "{program} asks {login} for a password: set ansible_become_password, use --ask-become-pass, permit it without",
    ),
    (
        "^Incorrect .* password|Authentication failure",
        "{program} refuses the password of {login}: correct ansible_become_password, or the answer to its question",
    ),
)
"""Reasons by a pattern for what is said."""


def reason(become, login, said, code=None):
    """Return why *login* did not become another user with the plugin *become*, and what to do; empty if unknown."""
    if become is None:
        return ""
    program = become.name.rpartition(".")[2]
    known = [text for pattern, text in REASONS if re.search(pattern, said, re.MULTILINE)]
    if code == NOT_FOUND and (become.get_option("become_exe") or program) in said:
        known = ["{program} is not installed on the SUT: install it"]
    if not known:
        return ""
    return f"{known[0].format(program=program, login=login)}, or log in as root and set ansible_become: false"
