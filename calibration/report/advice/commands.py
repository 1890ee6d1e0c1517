# SPDX-License-Identifier: Apache-2.0
"""The commands of advice: lines for a root shell, exact for the machine they are given for."""

import shlex
from collections.abc import Collection, Iterable
from typing import Final

from calibration.base.cpulists import format_cpulist
from calibration.base.text import visible
from calibration.report.advice.model import Commands

PREFIX: Final = "calibration"
"""Begins the names of all files that advice creates, so that they are found again."""

MASK_BITS: Final = 32
"""Bits of one word of the kernel's CPU masks; words are separated by commas."""


def boot(rule: str, arguments: str, *, instead_of: str | None = None) -> Commands:
    """Return how to boot with the kernel *arguments*, and no longer with *instead_of*."""
    file = f"/etc/default/grub.d/{PREFIX}-{rule}.cfg"
    line = shlex.quote(f'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {arguments}"')
    other = shlex.quote(visible(instead_of or ""))
    removed = f" --remove-args={other}" if instead_of else ""
    again = f" --args={other}" if instead_of else ""
    first = (
        (f"# remove {visible(instead_of)} from /etc/default/grub: a second argument may be refused",)
        if instead_of
        else ()
    )
    return Commands(
        (
            *first,
            f"echo {line} > {file} && update-grub  # Debian, Ubuntu",
            f'grubby --update-kernel=ALL{removed} --args="{arguments}"  # RHEL, Fedora',
            "# then reboot",
        ),
        (
            f"rm -f {file} && update-grub  # Debian, Ubuntu",
            f'grubby --update-kernel=ALL --remove-args="{arguments}"{again}  # RHEL, Fedora',
            "# then reboot",
        ),
    )


def sysctl(rule: str, name: str, value: int, before: int) -> Commands:
    """Return how to set a kernel parameter from *before* to *value*."""
    file = f"/etc/sysctl.d/99-{PREFIX}-{rule}.conf"
    return Commands(
        (f"sysctl -w {name}={value}",),
        (f"sysctl -w {name}={before}", f"rm -f {file}"),
        (f"echo '{name} = {value}' > {file}",),
    )


def write(rule: str, path: str, value: str, before: str) -> Commands:
    """Return how to write *value* instead of *before* to the file of sysfs at *path*."""
    lasting = at_boot(rule, path, value)
    return Commands(
        (f"echo {shlex.quote(value)} > {path}",),
        (f"echo {shlex.quote(before)} > {path}", *lasting.undo),
        lasting.change,
    )


def at_boot(rule: str, pattern: str, value: str) -> Commands:
    """Return how to let each boot write *value* to the files of sysfs that match *pattern*."""
    file = f"/etc/tmpfiles.d/{PREFIX}-{rule}.conf"
    return Commands((f"echo 'w {pattern} - - - - {value}' > {file}",), (f"rm -f {file}",))


def by_hand(change: str, undo: str) -> Commands:
    """Return what no command does: *change* and *undo* are sentences."""
    return Commands((f"# {change}",), (f"# {undo}",))


def numbers(found: Iterable[int]) -> str:
    """Return numbers as the words of a shell's ``for``: ``3 $(seq 5 9)``."""
    ranges = (part.split("-") for part in format_cpulist(found).split(",") if part)
    return " ".join(ends[0] if len(ends) == 1 else f"$(seq {ends[0]} {ends[1]})" for ends in ranges)


def mask(cpus: Collection[int]) -> str:
    """Return CPUs as a mask as the kernel reads it: ``3,ffffffff`` has 34 CPUs."""
    words = max(cpus, default=0) // MASK_BITS + 1
    bits = sum(1 << cpu for cpu in cpus)
    found = [bits >> MASK_BITS * word & (1 << MASK_BITS) - 1 for word in reversed(range(words))]
    return ",".join([f"{found[0]:x}", *(f"{word:0{MASK_BITS // 4}x}" for word in found[1:])])


def bind(what: str, cpus: Collection[int], every: Collection[int]) -> Commands:
    """Return how to keep a program on *cpus*, and let it use *every* CPU again; *what* says which program."""
    return Commands(
        (f'taskset -apc {format_cpulist(cpus)} "$PID"  # PID: {what}',),
        (f'taskset -apc {format_cpulist(every)} "$PID"',),
        (f"# in the unit of its service: CPUAffinity={format_cpulist(cpus)}",),
    )


def watch(event: str) -> tuple[str, ...]:
    """Return a line that shows who caused the kernel's *event* in ten seconds, without any package."""
    enable = f"/sys/kernel/tracing/events/{event}/enable"
    return (f"echo 1 > {enable}; sleep 10; echo 0 > {enable}; cat /sys/kernel/tracing/trace",)


CLEAR: Final = "echo > /sys/kernel/tracing/trace"
"""Empties what :func:`watch` recorded."""
