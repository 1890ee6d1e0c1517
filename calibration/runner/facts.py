# SPDX-License-Identifier: Apache-2.0
"""Preconditions of a calibration on a SUT, read without changing anything."""

from __future__ import annotations

import os
import platform
import re
import time

from calibration.runner import files, lock
from calibration.runner.directory import SESSION

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


def running_kernels(base, proc="/proc"):
    """Return the sutprobe processes of runs below *base* that are visible to this user."""
    base = os.path.realpath(base)
    found = []
    for process in os.listdir(proc):
        if not process.isdigit():
            continue
        try:
            path = os.readlink(os.path.join(proc, process, "exe"))
        except OSError:
            continue  # another user's process, a kernel thread, or already ended
        directory, name = os.path.split(os.path.dirname(path))
        if directory == base and SESSION.fullmatch(name):
            found.append({"pid": int(process), "path": path})
    return sorted(found, key=lambda process: process["pid"])


def facts(base, name, began_s):
    """Return the facts about this machine for a run below *base* with the lock *name*, asked at *began_s*."""
    held = lock.holder(name)
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "python_version": platform.python_version(),
        "uid": os.geteuid(),
        "remote_base": directory_state(base),
        "holder": lock.description(held) if held else None,
        "holder_run_id": held["run_id"] if held else None,
        "running": [] if held else running_kernels(base),  # those of the holder, whom the start names
        "identity": identity(),
        "boot_id": first_text("/proc/sys/kernel/random/boot_id").strip() or None,
        "time": dict(synchronisation(), began_s=began_s, ended_s=time.time()),
    }
