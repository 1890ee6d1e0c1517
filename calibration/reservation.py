# SPDX-License-Identifier: Apache-2.0
"""The controller's side of a reservation: a command that runs only while the SUT is reserved for the run.

The SUT's side is the module ``sut_reservation``. A step must not be measured on a SUT that was restarted, or that
somebody else reserved after this run's lease expired; and each step renews the lease. The shell that then starts
sutprobe does all three, without a further process and without affecting the measurement.
"""

import math
import re
import shlex
import signal
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import StringConstraints

from calibration.model import Model

RESTARTED = 93
"""Exit code of a step's command: the SUT was restarted during the run."""

NOT_RESERVED = 94
"""Exit code of a step's command: the SUT is no longer reserved for the run."""

UNGUARDED = 95
"""Exit code of a step's command: the guardian of the reservation was killed."""

REASONS = {
    RESTARTED: "the SUT was restarted during the run: its settings may be different",
    NOT_RESERVED: "the SUT is no longer reserved for this run: its lease expired, or the run was stopped; its "
    "settings were restored",
    UNGUARDED: "the guardian of the SUT's reservation was killed, so nothing more is measured: check dmesg for OOM",
}
"""Messages for these exit codes."""

SAFE_PATH = re.compile(r"/[^\x00-\x1f\x7f]{1,4000}")
"""Form of a path from a SUT."""

_Token = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
_BootId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f-]{36}$")]
_Path = Annotated[str, StringConstraints(pattern=SAFE_PATH.pattern.join(("^", "$")))]


class Reservation(Model):
    """A run's reservation of a SUT: its path, its identity, and the boot in which it was made."""

    path: _Path
    token: _Token
    boot_id: _BootId


def entering(directory: str) -> str:
    """Return a POSIX shell command that changes to *directory*, or fails if it belongs to another user.

    Later changes to the name do not matter then, and nobody else can put a link, a FIFO or a device into the directory:
    it belongs to this user and is not writable by others.
    """
    name = PurePosixPath(directory).name
    return f'cd -P {shlex.quote(directory)} && [ "${{PWD##*/}}" = {shlex.quote(name)} ] && [ -O . ]'


_GUARD = """\
read -r b </proc/sys/kernel/random/boot_id && [ "$b" = {boot_id} ] || exit {restarted}
{{ {enter} && read -r t g <run; }} 2>/dev/null && [ "$t" = {token} ] || exit {not_reserved}
kill -0 "$g" 2>/dev/null || exit {unguarded}
read -r u i </proc/uptime && [ -p lease ] &&
  printf '%012d %d %d\\n' $((${{u%%.*}} + {lease_s})) $$ {idle_s} 1<>lease || exit {not_reserved}
cd /
oom_kills() {{ while read -r k n; do [ "$k" = oom_kill ] && return; done; n=0; }} 2>/dev/null </proc/vmstat
n=0; oom_kills; o=$n
( {{ echo 1000 >/proc/self/oom_score_adj; }} 2>/dev/null; exec {command} )
c=$?
[ $c = {killed} ] && oom_kills && [ "$n" -gt "$o" ] && echo {out_of_memory} >&2
exit $c"""
"""``kill``, ``printf``, ``read`` and ``[`` are shell built-ins. ``<>`` opens the FIFO without waiting for a reader.

The shell waits for the command: if a signal ends it, ssh alone would report a lost connection, while the shell reports
the signal. If memory runs out, the kernel kills the command before the guardian or the login, and counts that in
``/proc/vmstat``.
"""

OUT_OF_MEMORY = (
    "out of memory: the kernel's OOM killer ended a process during this step; free memory on the SUT, or raise the "
    "memory limit of the login's cgroup"
)


def guarded(arguments: list[str], reservation: Reservation, *, lease_s: float, idle_s: float | None = None) -> str:
    """Return a POSIX shell command that runs the program *arguments* if the SUT is still reserved for the run.

    It renews the lease: the guardian acts *lease_s* seconds from now, or *idle_s* seconds after the command's end if
    that is sooner, unless the run renews it before. Without a reservation it exits with a code of ``REASONS`` and
    starts nothing.
    """
    return _GUARD.format(
        boot_id=shlex.quote(reservation.boot_id),
        enter=entering(reservation.path),
        token=shlex.quote(reservation.token),
        lease_s=math.ceil(lease_s) + 1,
        idle_s=math.ceil(lease_s if idle_s is None else idle_s),
        command=shlex.join(arguments),
        restarted=RESTARTED,
        not_reserved=NOT_RESERVED,
        unguarded=UNGUARDED,
        killed=128 + signal.SIGKILL,
        out_of_memory=shlex.quote(OUT_OF_MEMORY),
    )
