# SPDX-License-Identifier: Apache-2.0
"""What the kernel was built with, and which errors it logged since boot: digests of texts that are never copied.

Runs on a SUT's own Python (3.8 and later, standard library only).
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import time
import zlib

CONFIGURATIONS = ("/proc/config.gz", "/boot/config-RELEASE", "/lib/modules/RELEASE/config")
"""Where a kernel's build configuration is, by its release: the first is the running kernel's own."""

MAX_CONFIGURATION_BYTES = 4 * 1024 * 1024
"""Largest configuration; those of distributions have 300 kB."""

OPTION = re.compile("CONFIG_[A-Z0-9_]+=")
"""The rest are comments, and options that are off."""

EXPLAINING = re.compile(
    r"CONFIG_(?:PREEMPT(?:_NONE|_VOLUNTARY|_LAZY|_RT|_DYNAMIC)?|HZ|HZ_PERIODIC|NO_HZ_(?:IDLE|FULL)|HIGH_RES_TIMERS"
    r"|CPU_ISOLATION|RCU_NOCB_CPU(?:_DEFAULT_ALL)?|RCU_(?:BOOST|LAZY)|VIRT_CPU_ACCOUNTING_GEN|IRQ_TIME_ACCOUNTING"
    r"|SCHED_(?:AUTOGROUP|CLUSTER|CORE|MC|SMT)|NUMA_BALANCING(?:_DEFAULT_ENABLED)?|TRANSPARENT_HUGEPAGE_\w+"
    r"|LRU_GEN_ENABLED|CPU_FREQ_DEFAULT_GOV_\w+|IOMMU_DEFAULT_\w+|(?:ARM64|PPC)_[0-9]+K_PAGES|PARAVIRT"
    r"|CPU_MITIGATIONS|(?:MITIGATION_)?(?:PAGE_TABLE_ISOLATION|RETPOLINE)|INIT_ON_(?:ALLOC|FREE)_DEFAULT_ON"
    r"|INIT_STACK_ALL_\w+|HARDENED_USERCOPY(?:_DEFAULT_ON)?|SLAB_FREELIST_HARDENED|RANDOMIZE_KSTACK_OFFSET_DEFAULT"
    r"|ZERO_CALL_USED_REGS|CFI(?:_CLANG)?|KASAN|KCSAN|UBSAN|KFENCE|LOCKDEP|PROVE_LOCKING|LOCK_STAT|SCHEDSTATS"
    r"|DEBUG_PREEMPT|DEBUG_VM|DEBUG_PAGEALLOC(?:_ENABLE_DEFAULT)?|SLUB_DEBUG_ON)=[\w.-]{1,32}"
)
"""Options that decide when the kernel interrupts and how long it takes; the hash alone tells that others differ."""

KMSG = "/dev/kmsg"

MAX_RECORDS, MAX_LOG_S, RECORD_BYTES = 300000, 5, 8192
"""Bounds on reading the log: the largest buffers hold some 100,000 records, each of at most as many bytes."""

MAX_PLACES = 8
"""Places kept of one kind of error."""

PCI_ADDRESS = r"([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"
ERRORS = {
    "machine check": r"\[Hardware Error\]: (?:(CPU [0-9]+): )?Machine [Cc]heck|SError Interrupt on (CPU[0-9]+)",
    "firmware report": r"\[Hardware Error\]: Hardware error from APEI",
    "memory": r"^EDAC (MC[0-9]+): (?:[0-9]+ )?[CU]E |^Memory failure: 0x",
    "PCIe": PCI_ADDRESS + r": AER: .*error (?:message )?received",
    "PCIe link": PCI_ADDRESS + r": (?:.*retraining (?:non-functional|failed)|pciehp: .*Link Down)",
    "throttling": r"(CPU[0-9]+): (?:Core|Package) temperature (?:is )?above|[Cc]ritical temperature reached",
    "lockup or stall": r"BUG: soft lockup - (CPU#[0-9]+)|hard LOCKUP on (cpu [0-9]+)"
    r"|detected (?:expedited )?stalls? on CPU|^INFO: task .* blocked for more than|^BUG: workqueue lockup"
    r"|RT throttling activated",
    "long interrupt": r"^hrtimer: interrupt took|NMI handler .* took too long|^perf: interrupt took too long",
    "unstable clock": r"(?:Marking clocksource|Clocksource) '?(\w{1,16})'? (?:as )?unstable",
    "I/O": r"I/O error,? (?:on )?dev(?:ice)? ([\w-]{2,16})|^nvme (nvme[0-9]+): I/O .*timeout"
    r"|(ata[0-9]+)\.[0-9]+: failed",
    "kernel fault": r"^WARNING: |^BUG: (?!soft lockup|workqueue)|^Oops: |^general protection fault",
}
"""Kinds of errors by the messages that tell of them, of which a group is where: nothing else of a message is kept."""


def build(collector):
    """Return {path, sha256, options} of the kernel's build configuration; None if it cannot be read.

    The hash is that of its options in alphabetical order, without comments.
    """
    collector.copy("/proc/sys/kernel/osrelease")
    release = collector.text("/proc/sys/kernel/osrelease")
    for path in (place.replace("RELEASE", release) for place in CONFIGURATIONS):
        content = collector.read(path) if release and "/" not in release else None
        if content is None:
            continue
        try:
            if path.endswith(".gz"):
                content = zlib.decompressobj(wbits=31).decompress(content, MAX_CONFIGURATION_BYTES + 1)
            if len(content) > MAX_CONFIGURATION_BYTES:
                raise ValueError("larger than %d bytes" % MAX_CONFIGURATION_BYTES)
        except (ValueError, zlib.error) as error:
            collector.unreadable[path] = str(error)
            continue
        lines = sorted(line for line in content.decode("utf-8", "replace").splitlines() if OPTION.match(line))
        options = dict(line[len("CONFIG_") :].split("=", 1) for line in lines if EXPLAINING.fullmatch(line))
        return {"path": path, "sha256": hashlib.sha256("\n".join(lines).encode()).hexdigest(), "options": options}
    return None


def log(collector):
    """Return which errors the kernel logged, as :func:`errors` does; None if the log cannot be read."""
    descriptor = None
    try:
        descriptor = os.open(collector.root + KMSG, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        return errors(records(descriptor))
    except FileNotFoundError:
        return None
    except OSError as error:
        collector.unreadable[KMSG] = error.strerror or str(error)
        return None
    finally:
        if descriptor is not None:
            os.close(descriptor)


def records(descriptor):
    """Yield the records of the log, oldest first. Raises OSError where it is not permitted."""
    until = time.monotonic() + MAX_LOG_S
    for _ in range(MAX_RECORDS):
        try:
            record = os.read(descriptor, RECORD_BYTES)
        except BlockingIOError:  # all have been read
            return
        except OSError as error:
            if error.errno != errno.EPIPE:  # that was overwritten meanwhile; the next one is there
                raise
            continue
        if not record or time.monotonic() > until:
            return
        yield record


def errors(found):
    """Return {records, first, first_s, errors} of the *found* records of /dev/kmsg.

    ``first`` is the number of the oldest one, 0 for that of the start, ``first_s`` its time since then. ``errors`` has
    of each kind its count and up to :data:`MAX_PLACES` places.
    """
    expressions = {kind: re.compile(expression) for kind, expression in ERRORS.items()}
    counts: dict[str, int] = {}
    places: dict[str, list[str]] = {}
    number, first, first_us = 0, None, None
    for record in found:
        head, _, message = record.partition(b"\n")[0].decode("utf-8", "replace").partition(";")
        match = re.match(r"([0-9]+),([0-9]+),([0-9]+),", head)
        if match is None:
            continue
        number += 1
        if first is None:
            first, first_us = int(match.group(2)), int(match.group(3))
        if int(match.group(1)) >> 3:  # a process wrote it
            continue
        for kind, expression in expressions.items():
            match = expression.search(message)
            if match is not None:
                counts[kind] = counts.get(kind, 0) + 1
                named = places.setdefault(kind, [])
                found_at = next(filter(None, match.groups()), None)
                if found_at and found_at not in named and len(named) < MAX_PLACES:
                    named.append(found_at)
                break
    return {
        "records": number,
        "first": first,
        "first_s": None if first_us is None else first_us / 1e6,
        "errors": {kind: {"count": count, "places": places[kind]} for kind, count in counts.items()},
    }
