#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Runs the operator's spectre-meltdown-checker on the SUT, in a way that leaves the SUT as it was."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sut_meltdown_checker
short_description: Runs spectre-meltdown-checker on a SUT without letting it change anything there
description:
  - Writes the script into the run's private directory, proves its bytes, runs it with C(--batch json) and removes it.
  - By itself the script loads the kernel modules C(cpuid) and C(msr), mounts debugfs and, in old versions, writes
    registers of the processor; none of its options keeps all its versions from it. It runs therefore without the
    capabilities that this takes, which the kernel then refuses, also to root. What it reads as root it still reads.
  - What it prints is handed over as it came. Its process group is ended before the module returns.
options:
  path:
    description: The run's private directory. Its name must begin with C(calibration-).
    type: path
    required: true
  content:
    description: The script's bytes in base64.
    type: str
    required: true
  timeout_s:
    description: Seconds after which the script is ended.
    type: float
    required: true
attributes:
  check_mode:
    support: none
  diff_mode:
    support: none
author: The calibration harness contributors
"""

EXAMPLES = r"""
- name: Run the checker
  sut_meltdown_checker:
    path: /var/tmp/calibration-20261121T032712Z-3f2a-Xq81mzs0
    content: "{{ lookup('ansible.builtin.file', 'spectre-meltdown-checker.sh') | b64encode }}"
    timeout_s: 120
"""

RETURN = r"""
argv:
  description: The command that ran in the private directory.
  returned: always
  type: list
  elements: str
sha256:
  description: SHA-256 of the script as it was read back on the SUT.
  returned: always
  type: str
user_id:
  description: Id of the user that the script ran as.
  returned: always
  type: int
rc:
  description: Exit code of the script; negative for the signal that ended it. None where it was ended for its time.
  returned: always
  type: int
output:
  description: What the script printed, in base64; the beginning of it where it printed too much.
  returned: always
  type: str
stderr:
  description: The end of what it wrote for people.
  returned: always
  type: str
fault:
  description: Why the script was ended before its own end. None where it was not.
  returned: always
  type: str
"""

import base64
import ctypes
import hashlib
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

from ansible.module_utils import sut_guardian as guardian
from ansible.module_utils.basic import AnsibleModule

SCRIPT = "spectre-meltdown-checker.sh"
ARGV = ["/bin/sh", SCRIPT, "--batch", "json"]

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where the script finds its tools: the same on every SUT, whatever a login has."""

MAX_OUTPUT_BYTES = 256 * 1024
"""The longest output known has a tenth of this. It fits, in base64, into what the controller takes for an answer."""

POLL_S = 0.5
"""How often is looked whether the script is over; its end shows at once, by its streams."""

STDERR_BYTES = 8 * 1024
"""Bytes kept of what it wrote for people: the end."""

PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
CAPABILITY_VERSION = 0x20080522
CAP_DAC_READ_SEARCH, CAP_SYSLOG = 2, 34
KEPT = 1 << CAP_DAC_READ_SEARCH | 1 << CAP_SYSLOG
"""What the script may still do: read files of others, and the kernel's log. From linux/prctl.h and linux/capability.h.

Loading modules takes CAP_SYS_MODULE, mounting CAP_SYS_ADMIN, and the processor's registers CAP_SYS_RAWIO.
"""


def checked(result, what):
    """Raise OSError where a call of the C library returned an error."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, "%s: %s" % (what, os.strerror(number)))


def restrict(library, parent):
    """Take from this process, and all that it starts, what could change the SUT; end it when *parent* ends."""
    checked(library.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "PR_SET_PDEATHSIG")
    if os.getppid() != parent:
        os._exit(1)
    # With this, a program that is started gains nothing: not by its owner, and not by being started as root.
    checked(library.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "PR_SET_NO_NEW_PRIVS")
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; of the lower 32 capabilities, then the upper
    checked(library.capget(header, sets), "capget")
    for word in (0, 1):
        permitted = sets[3 * word + 1] & (KEPT >> 32 * word) & 0xFFFFFFFF
        sets[3 * word], sets[3 * word + 1], sets[3 * word + 2] = permitted, permitted, 0
    checked(library.capset(header, sets), "capset")


def is_over(process):
    """Return whether the script has ended. It is left to be waited for: until then nobody else gets its number."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def end_group(process):
    """End the script, if it still runs, and what it started and left in its process group."""
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def gather(process, timeout_s):
    """Return what *process* printed, what it wrote for people, and why it was ended, None where it ended itself."""
    taken = {process.stdout: b"", process.stderr: b""}
    for stream in taken:
        os.set_blocking(stream.fileno(), False)
    reading = list(taken)
    until = time.monotonic() + timeout_s
    fault = None
    while fault is None and not is_over(process):  # its own end counts: what it left behind may keep a stream open
        for stream in select.select(reading, [], [], POLL_S)[0]:
            if not read_more(stream, taken):
                reading.remove(stream)
        taken[process.stderr] = taken[process.stderr][-STDERR_BYTES:]
        if len(taken[process.stdout]) > MAX_OUTPUT_BYTES:
            fault = "it printed more than %d bytes" % MAX_OUTPUT_BYTES
        elif time.monotonic() > until:
            fault = "it was not over after %g s" % timeout_s
    end_group(process)
    for stream in (process.stdout, process.stderr):
        while len(taken[stream]) <= MAX_OUTPUT_BYTES and read_more(stream, taken):
            pass
    return taken[process.stdout], taken[process.stderr], fault


def read_more(stream, taken):
    """Add to *taken* what *stream* has; return whether there may be more at once."""
    try:
        data = os.read(stream.fileno(), 65536)
    except BlockingIOError:
        return False
    taken[stream] += data
    return bool(data)


def run(directory, timeout_s):
    """Run the script in *directory*; return the fields of the result."""
    library = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()
    environment = {"PATH": PATH, "LC_ALL": "C", "HOME": directory, "TMPDIR": directory}
    process = subprocess.Popen(
        ARGV,
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: restrict(library, parent),  # noqa: PLW1509 - a module has one thread
    )
    try:
        output, stderr, fault = gather(process, timeout_s)
    finally:
        end_group(process)
        process.stdout.close()
        process.stderr.close()
    return {
        "rc": None if fault else process.returncode,
        "output": base64.b64encode(output[:MAX_OUTPUT_BYTES]).decode("ascii"),
        "stderr": stderr[-STDERR_BYTES:].decode("utf-8", "replace"),
        "fault": fault,
    }


def main():
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "content": {"type": "str", "required": True, "no_log": True},
            "timeout_s": {"type": "float", "required": True},
        },
    )
    directory = os.path.normpath(module.params["path"])
    content = base64.b64decode(module.params["content"])
    try:
        guardian.check_private(directory, os.geteuid())
        inside = tempfile.mkdtemp(prefix="checker-", dir=directory)
        try:
            path = os.path.join(inside, SCRIPT)
            with open(path, "wb") as stream:
                stream.write(content)
            with open(path, "rb") as stream:
                found = hashlib.sha256(stream.read()).hexdigest()
            result = run(inside, module.params["timeout_s"])
        finally:
            shutil.rmtree(inside)
    except (guardian.Refused, OSError, subprocess.SubprocessError) as error:
        module.fail_json(msg="the checker could not be run in %s on the SUT: %s" % (directory, error))
    module.exit_json(changed=False, argv=ARGV, sha256=found, user_id=os.geteuid(), **result)


if __name__ == "__main__":
    main()
