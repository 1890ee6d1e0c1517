# SPDX-License-Identifier: Apache-2.0
"""Shared base of the actions that install or run a program on a SUT."""

from __future__ import annotations

import base64
import os
import re
import shlex
import sys

sys.path.append(os.path.abspath(__file__ + "/.."))

from calibration_plugins import SutAction

from calibration.errors import EnvironmentLacksError
from calibration.reservation import REASONS, Reservation, entering, guarded

PERMISSIONS, PRIVATE, SET_GROUP_ID = 0o7777, 0o700, 0o2000

GRACE_S = 60.0
"""Extra time before a SUT is given up after its program must have been killed."""

CHECK = r"""
test ! -L {directory} && cd -P {directory} && stat -c 'directory %f %u' . && echo "user $(id -u)" &&
{{ ! {{ {enter}; }} || test ! -f {program} || sha256sum {program}; }}
"""
"""Prints the directory's mode and owner, the user, and the hash of the program if the directory is the user's."""

INSTALL = r"""
umask 077
{enter} || {{ echo "not a directory of this user" >&2; exit 1; }}
rm -f -- {partial} && cat > {partial} && chmod 700 {partial} && mv -f -- {partial} {program} &&
sha256sum {program} || {{ code=$?; rm -f -- {partial}; exit $code; }}
"""
"""Writes standard input to the program's path, and prints the hash read back."""


def script(template, directory, name):
    """Return *template* as a shell command on the SUT."""
    return template.strip().format(
        directory=shlex.quote(directory),
        enter=entering(directory),
        program=f"./{name}",
        partial=f"./{name}.partial",
    )


def hash_in(text, name):
    """Return the hash printed by ``sha256sum`` for the program, or None."""
    found = re.search(rf"^([0-9a-f]{{64}}) [ *]\./{name}$", text, re.MULTILINE)
    return found.group(1) if found else None


def check_directory(directory, output):
    """Raise EnvironmentLacksError unless the directory is a private one of the user."""
    found = re.search(r"^directory ([0-9a-f]{1,8}) ([0-9]{1,10})$", output, re.MULTILINE)
    user = re.search(r"^user ([0-9]{1,10})$", output, re.MULTILINE)
    if not found or not user:
        raise EnvironmentLacksError(f"the SUT printed no mode and owner of {directory}: {output.strip()[:200]!r}")
    mode, owner = int(found.group(1), 16), int(found.group(2))
    if owner != int(user.group(1)):
        raise EnvironmentLacksError(
            f"{directory} on the SUT belongs to user id {owner}, not {user.group(1)}: remove it as that user"
        )
    if mode & PERMISSIONS & ~SET_GROUP_ID != PRIVATE:
        raise EnvironmentLacksError(f"{directory} on the SUT has mode {mode & PERMISSIONS:04o}, not 0700")


class ProgramAction(SutAction):
    """An action about a program on the SUT."""

    def install(self, directory, name, content, sha256):
        """Install the program in *directory*; return whether it was sent, and the hash read back.

        *content* returns the binary. It is sent only if the hash on the SUT differs from *sha256*, on the standard
        input of one command that syncs the file, reads it back and prints its hash, without starting Python on the SUT.
        If a connection cannot carry standard input, the module ``sutprobe`` is used. Raises EnvironmentLacksError on
        failure.
        """
        if not self._is_pipelining_enabled("new"):
            return self._install_by_module(directory, name, content())
        checked = self.command(f"the check of {name}", script(CHECK, directory, name))
        if checked["rc"] != 0:
            if self._task.check_mode:
                return True, None
            raise EnvironmentLacksError(f"the run's directory {directory} is not usable: {self.output_of(checked)}")
        check_directory(directory, checked["stdout"])
        found = hash_in(checked["stdout"], name)
        if found == sha256 or self._task.check_mode:
            return found != sha256, found
        installed = self.command(f"the copy of {name}", script(INSTALL, directory, name), in_data=content())
        if installed["rc"] != 0:
            raise EnvironmentLacksError(f"{name} cannot be written to {directory}: {self.output_of(installed)}")
        return True, hash_in(installed["stdout"], name)

    def _install_by_module(self, directory, name, content):
        """Do the same with the binary in a module's arguments."""
        encoded = base64.b64encode(content).decode("ascii")
        result = self.ask("sutprobe", {"path": directory, "name": name, "content": encoded})
        if result.get("failed"):
            raise EnvironmentLacksError(result["msg"])
        return result["changed"], result.get("sha256")

    def renew(self, reservation, lease_s):
        """Extend the SUT's reservation to *lease_s*. Raises EnvironmentLacksError if it is gone."""
        answer = self.command(
            "the reservation", guarded(["true"], Reservation.model_validate(reservation), lease_s=lease_s)
        )
        if answer["rc"] != 0:
            raise EnvironmentLacksError(REASONS.get(answer["rc"]) or self.output_of(answer))

    def run_program(self, module, arguments, *, what, timeout_s, reservation, lease_s):
        """Return the answer of *module*, which runs *what*, an operator's program, for at most *timeout_s*.

        The SUT stays reserved until *lease_s* after that. Raises EnvironmentLacksError if the reservation is gone, or
        there is no answer.
        """
        limit_s = timeout_s + GRACE_S
        with self.question(what, limit_s):
            self.renew(reservation, limit_s + lease_s)
            answer = self.ask(module, {**arguments, "timeout_s": timeout_s})
        if answer.get("failed") and "output" not in answer:  # "failed" alone a newer ansible-core says of any rc but 0
            raise EnvironmentLacksError(answer.get("msg") or f"{what} could not be started")
        return answer
