#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Preconditions of a calibration on a SUT, read without changing anything."""

from __future__ import annotations

import time

BEGAN_S = time.time()
"""Read before other imports: the closer to the question, the tighter the bound on the clock's offset."""

DOCUMENTATION = r"""
module: sut_preflight_info
short_description: Check the preconditions of a calibration on a SUT
description:
  - Reads the system, the architecture, the Python version, the user, the state of C(remote_base), and other
    calibrations that are running.
  - Reads the time, whether the kernel considers it synchronised, the available memory, and the facts compared between
    SUTs of a testbed - processor, microcode, BIOS.
  - Writes nothing, starts nothing.
attributes:
  check_mode:
    support: full
author: The calibration harness contributors
"""

RETURN = r"""
system:
  description: Name of the kernel, from uname.
  type: str
machine:
  description: Architecture, from uname.
  type: str
python_version:
  description: Version of the Python that ran this module.
  type: str
uid:
  description: Effective user id of the measurements.
  type: int
remote_base:
  description: >-
    The directory's state. C(free_bytes) and C(noexec) are null if the directory is missing. C(unsafe) lists the
    directories of its path, itself included, in which another user could replace it.
  type: dict
running:
  description: sutprobe processes below C(remote_base) that run without a reservation.
  type: list
  elements: dict
time:
  description: >-
    The SUT's clock in s since the epoch at the start and the end of the module, whether its kernel considers the clock
    synchronised (null with a C(reason) if unknown), and the kernel's bound of its error.
  type: dict
identity:
  description: >-
    Facts compared between SUTs of one testbed. C(microcode) has every version in use. Unknown texts are null.
  type: dict
"""

import json
import os
import platform
import re

from ansible.module_utils import sut_files as files
from ansible.module_utils.basic import AnsibleModule

TIME_ERROR = 5
STA_UNSYNC = 0x40
"""From linux/timex.h."""

ARM_IDENTITY = ("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision")
X86_IDENTITY = ("vendor_id", "cpu family", "model", "stepping", "model name")
"""Rows of /proc/cpuinfo that identify a processor model."""

DMI = "/sys/class/dmi/id"

FIRST_BYTES = 1 << 20
"""Bytes read of a file: /proc/cpuinfo has 1 to 2 KiB per CPU, and repeats itself."""


def timex(ctypes):
    """Return struct timex of linux/timex.h on 64-bit machines, using *ctypes*."""
    fields = [("modes", ctypes.c_uint)]
    fields += [(name, ctypes.c_long) for name in ("offset", "freq", "maxerror", "esterror")]
    fields += [("status", ctypes.c_int)]
    fields += [(name, ctypes.c_long) for name in ("constant", "precision", "tolerance", "seconds", "microseconds")]
    fields += [(name, ctypes.c_long) for name in ("tick", "ppsfreq", "jitter")]
    fields += [("shift", ctypes.c_int)]
    fields += [(name, ctypes.c_long) for name in ("stabil", "jitcnt", "calcnt", "errcnt", "stbcnt")]
    fields += [("tai", ctypes.c_int), ("reserved", ctypes.c_int * 11)]
    return type("Timex", (ctypes.Structure,), {"_fields_": fields})


def synchronisation(adjtimex=None):
    """Return whether the kernel considers the clock synchronised, with its error bound, or why this is unknown.

    Nothing is adjusted: ``modes`` is 0, which any user may use.
    """
    try:
        import ctypes  # noqa: PLC0415 - some builds of Python have none

        asked = timex(ctypes)()
        state = (adjtimex or ctypes.CDLL(None, use_errno=True).adjtimex)(ctypes.byref(asked))
        errno = ctypes.get_errno()
    except (ImportError, AttributeError, OSError) as error:
        return {"synchronised": None, "maximum_error_s": None, "reason": "adjtimex cannot be called: %s" % error}
    if state < 0:
        return {"synchronised": None, "maximum_error_s": None, "reason": "adjtimex: %s" % os.strerror(errno)}
    synchronised = state != TIME_ERROR and not asked.status & STA_UNSYNC
    return {"synchronised": synchronised, "maximum_error_s": asked.maxerror / 1e6, "reason": None}


def first_text(path):
    """Return the beginning of a file as text; empty if it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return stream.read(FIRST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def first_value(text, name):
    """Return the first value of a row ``name : value``; empty if missing."""
    match = re.search(r"(?m)^%s\s*:[ \t]*(.*)$" % re.escape(name), text)
    return match.group(1).strip() if match else ""


def identity(root=""):
    """Return the facts compared between SUTs of one testbed."""
    text = first_text(root + "/proc/cpuinfo")
    vendor, family, model, stepping, name = (first_value(text, row) for row in X86_IDENTITY)
    if vendor and family:
        processor = "%s %s/%s/%s %s" % (vendor, family, model, stepping, name)
    else:
        parts = [first_value(text, row) for row in ARM_IDENTITY]
        processor = "/".join(parts) if any(parts) else ""
    dmi = {
        name: first_text("%s%s/%s" % (root, DMI, name)).strip()
        for name in ("sys_vendor", "product_name", "bios_vendor", "bios_version", "bios_date")
    }
    product = " ".join(item for item in (dmi["sys_vendor"], dmi["product_name"]) if item)
    bios = " ".join(item for item in (dmi["bios_vendor"], dmi["bios_version"], dmi["bios_date"]) if item)
    return {
        "cpu_model": processor.strip() or None,
        "microcode": sorted(set(re.findall(r"(?m)^microcode\s*:\s*(\S+)", text))),
        "product": product or None,
        "bios": bios or None,
    }


def directory_state(path):
    """Return whether *path* can hold a directory with an executable program."""
    exists = os.path.exists(path)
    state = {
        "path": path,
        "exists": exists,
        "directory": os.path.isdir(path),
        "writable": os.access(path, os.W_OK | os.X_OK),
        "noexec": None,
        "free_bytes": None,
        "unsafe": files.unsafe_places(path, os.geteuid()),
    }
    if exists:
        system = os.statvfs(path)
        state["noexec"] = bool(system.f_flag & os.ST_NOEXEC)
        state["free_bytes"] = system.f_bavail * system.f_frsize
    return state


def reserved_directory(place):
    """Return the directory name of the run that has reserved the SUT at *place*, or None if unknown."""
    try:
        here = files.open_directory(place)
        try:
            holder = json.loads(files.read_text("holder.json", files.RESERVATION_BYTES, here))
        finally:
            os.close(here)
        return os.path.basename(holder["directory"])
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        return None


def running_kernels(base, reserved=None, proc="/proc"):
    """Return the sutprobe processes of runs below *base* that are visible to this user.

    Those in the directory named *reserved* are excluded.
    """
    base = os.path.realpath(base)
    runs = os.path.join(base, files.PREFIX)
    reserved = os.path.join(base, reserved or "")
    found = []
    for name in os.listdir(proc):
        if not name.isdigit():
            continue
        try:
            path = os.readlink(os.path.join(proc, name, "exe"))
        except OSError:
            continue  # another user's process, a kernel thread, or already ended
        if path.startswith(runs) and os.path.dirname(path) != reserved:
            found.append({"pid": int(name), "path": path})
    return sorted(found, key=lambda process: process["pid"])


def main():
    """Run as an Ansible module."""
    module = AnsibleModule(
        argument_spec={
            "remote_base": {"type": "path", "required": True},
            "reserve_path": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    module.exit_json(
        changed=False,
        system=platform.system(),
        machine=platform.machine(),
        python_version=platform.python_version(),
        uid=os.geteuid(),
        remote_base=directory_state(module.params["remote_base"]),
        running=running_kernels(module.params["remote_base"], reserved_directory(module.params["reserve_path"])),
        identity=identity(),
        time=dict(synchronisation(), began_s=BEGAN_S, ended_s=time.time()),
    )


if __name__ == "__main__":
    main()
