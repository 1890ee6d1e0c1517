# SPDX-License-Identifier: Apache-2.0
"""How two values of a fact are compared: a property of the fact, never of how the values look.

A *kind* returns what a text stands for, in a form that is equal for equal values. ``FILES`` has that of each file of
``/proc`` and ``/sys``, ``ARGUMENTS`` that of each kernel argument; other facts carry theirs beside their declaration.

Sources: ``lib/bitmap-str.c``, ``lib/cmdline.c``, ``lib/kstrtox.c``, ``proc_get_long`` and ``proc_do_large_bitmap`` in
``kernel/sysctl.c``, ``kernel/params.c``, ``mm/hugetlb.c``, ``Documentation/ABI`` and ``Documentation/admin-guide`` of
the Linux kernel.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from calibration.base.cpulists import BOOT_CPU, parse_cpulist, parse_cpumask, split_isolcpus
from calibration.runner.blanking import WORD

BIASES: Final[Mapping[str, int]] = {
    "performance": 0,
    "balance-performance": 4,
    "normal": 6,
    "balance-power": 8,
    "power": 15,
    "powersave": 15,  # as x86_energy_perf_policy(8) and tuned called it
}
"""Names of ``energy_perf_bias``, from ``arch/x86/kernel/cpu/intel_epb.c``."""

Kind = Callable[[str, int | None], Hashable]
"""What a text stands for; the number is the last CPU, for kinds that may name it. Raises ``ValueError``."""

MAX_PORT: Final = 65535

_DECIMAL = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]{1,16}|0[0-7]{0,22}|[1-9][0-9]{0,19})", re.ASCII)
_SIZE = re.compile(r"(0[xX][0-9a-fA-F]{1,16}|[0-9]{1,20})([kKmMgGtTpPeE]?)[bB]?", re.ASCII)
_SIZE_WITHIN = re.compile(rf"(?<!\w){_SIZE.pattern}(?!\w)", re.ASCII)
_RANGE = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", re.ASCII)
_DIGITS = re.compile(r"[0-9a-fA-F]{9,4096}", re.ASCII)

SUFFIXES: Final = ("", "k", "m", "g", "t", "p", "e")
"""Of ``memparse``: each is 1024 times the one before."""

BOOLEANS: Final[Mapping[str, int]] = {"y": 1, "yes": 1, "on": 1, "true": 1, "n": 0, "no": 0, "off": 0, "false": 0}
"""Words of ``kstrtobool``, which ignores case and takes 1 and 0 too."""


def words(text: str, _last: int | None = None) -> Hashable:
    """Return the words of a text, in order."""
    return tuple(text.split())


def chosen(text: str) -> str:
    """Return the word in brackets of a list of choices, ``always [madvise] never``; any other text as it is."""
    match = re.search(r"(?<!\S)\[([^\[\]]+)\](?!\S)", text)
    return match.group(1) if match else text


def choice(text: str, _last: int | None = None) -> Hashable:
    """Return the words of a text, of a list of choices the chosen one."""
    return words(chosen(text))


def number(text: str, _last: int | None = None) -> Hashable:
    """Return a whole number as the kernel reads one: ``0x10`` is hexadecimal, ``010`` octal. Raises ``ValueError``."""
    bare = text.strip()
    if _NUMBER.fullmatch(bare) is None:
        raise ValueError(f"not a whole number: {text[:40]!r}")
    sign, digits = (-1, bare[1:]) if bare[0] == "-" else (1, bare.lstrip("+"))
    octal = digits[0] == "0" and digits[1:2].isdigit()
    return sign * int(digits, 8 if octal else 0)


def generations(text: str, _last: int | None = None) -> Hashable:
    """Return the parts of the multi-generational LRU that are on, of their mask; ``y`` is all. Raises ``ValueError``.

    Source: ``Documentation/admin-guide/mm/multigen_lru.rst``.
    """
    return number({"y": "7", "n": "0"}.get(text.strip().lower(), text))


def numbers(text: str, _last: int | None = None) -> Hashable:
    """Return an ordered list of numbers in white space; any other word stands for itself."""
    return tuple(_or_text(number, word) for word in text.split())


def decimal(text: str, _last: int | None = None) -> Hashable:
    """Return a whole number in decimal digits. Raises ``ValueError``."""
    if _DECIMAL.fullmatch(text.strip()) is None:
        raise ValueError(f"not a decimal number: {text[:40]!r}")
    return int(text)


def decimal_fraction(text: str, _last: int | None = None) -> Hashable:
    """Return a number with or without decimal places. Raises ``ValueError``."""
    if re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,12})?", text.strip(), re.ASCII) is None:
        raise ValueError(f"not a decimal number: {text[:40]!r}")
    return float(text)


def energy_bias(text: str, _last: int | None = None) -> Hashable:
    """Return a preference of power or performance, 0 to 15, of a number or its name. Raises ``ValueError``."""
    return number(str(BIASES.get(text.strip(), text)))


def hexadecimal(text: str, _last: int | None = None) -> Hashable:
    """Return a number in hexadecimal digits, with or without ``0x``. Raises ``ValueError``."""
    bare = text.strip().lower().removeprefix("0x")
    if re.fullmatch(r"[0-9a-f]{1,16}", bare, re.ASCII) is None:
        raise ValueError(f"not a hexadecimal number: {text[:40]!r}")
    return int(bare, 16)


def size(text: str, _last: int | None = None) -> int:
    """Return bytes, of a number with one of the suffixes of ``memparse``, which ignores a B. Raises ``ValueError``."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not a size such as 2M: {text[:40]!r}")
    return int(match.group(1), 16 if "x" in match.group(1).lower() else 10) << 10 * SUFFIXES.index(
        match.group(2).lower()
    )


def sizes(text: str, _last: int | None = None) -> Hashable:
    """Return a text with its sizes in bytes, ``1G-4G:192M@16M``."""
    return _SIZE_WITHIN.sub(lambda match: str(size(match.group())), text)


def boolean(text: str, _last: int | None = None) -> Hashable:
    """Return 1 or 0 of a switch. Raises ``ValueError``."""
    return number(str(BOOLEANS.get(text.strip().lower(), text)))


def parameter(text: str, _last: int | None = None) -> Hashable:
    """Return the elements of a module's parameter, an ordered list if it has commas: numbers, switches, texts.

    Of a list of choices, ``default [performance] powersave``, the chosen one.
    """
    return tuple(_or_text(boolean, element) for element in chosen(text).strip().split(","))


def cpu_set(text: str, last: int | None = None) -> Hashable:
    """Return a list of CPUs, or of nodes, as a set; ``(null)`` is none. Raises ``ValueError``."""
    return frozenset() if text.strip() == "(null)" else frozenset(parse_cpulist(text, last))


def irq_cpus(text: str, last: int | None = None) -> Hashable:
    """Return the CPUs of ``irqaffinity=``, to which the kernel adds the one that it boots on. Raises ``ValueError``."""
    return frozenset((BOOT_CPU, *parse_cpulist(text, last)))


def mask(text: str, _last: int | None = None) -> Hashable:
    """Return a hexadecimal mask as the set of its bits. Raises ``ValueError``.

    Words are 32 bits wide, the most significant first; leading zeros and words of zeros mean nothing.
    """
    bare = text.strip().removeprefix("0x").removeprefix("0X")
    if _DIGITS.fullmatch(bare):  # one word, as some write it
        bare = bare.zfill(-(-len(bare) // 8) * 8)
        bare = ",".join(bare[at : at + 8] for at in range(0, len(bare), 8))
    return frozenset(parse_cpumask(bare))


def port_set(text: str, _last: int | None = None) -> Hashable:
    """Return a list of ports and ranges as a set of joined ranges. Raises ``ValueError``."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(_port_range(part.strip()) for part in text.split(",") if part.strip()):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)


def _port_range(text: str) -> tuple[int, int]:
    match = _RANGE.fullmatch(text)
    if match is None:
        raise ValueError(f"not a port or a range of ports: {text[:40]!r}")
    first, last = int(match.group(1)), int(match.group(2) or match.group(1))
    if not first <= last <= MAX_PORT:
        raise ValueError(f"not a range of ports: {text[:40]!r}")
    return first, last


def set_of(separator: str | None = None) -> Kind:
    """Return the kind of a list whose order means nothing; white space separates its words unless *separator* does."""

    def unordered(text: str, _last: int | None = None) -> Hashable:
        return frozenset(" ".join(part.split()) for part in text.split(separator)) - {""}

    return unordered


def schemata(text: str, _last: int | None = None) -> Hashable:
    """Return the resources of a group of resctrl with what each domain has, caches in masks. Raises ``ValueError``."""
    found = []
    for line in re.sub(r"=\s+", "=", text).split():  # before Linux 6.15 the kernel aligns numbers
        resource, colon, domains = line.partition(":")
        if not colon:
            raise ValueError(f"not a resource with its domains: {line[:40]!r}")
        for entry in domains.split(";"):
            domain, _, value = entry.partition("=")
            found.append((resource, number(domain), _or_text(hexadecimal if resource[:1] == "L" else number, value)))
    return frozenset(found)


def isolcpus(text: str, last: int | None = None) -> Hashable:
    """Return the flags and the CPUs of ``isolcpus=``; no flag means ``domain``. Raises ``ValueError``."""
    flags, unknown, cpus = split_isolcpus(text)
    return frozenset((*flags, *unknown) or ("domain",)), cpu_set(cpus, last)


def node_numbers(text: str, _last: int | None = None) -> Hashable:
    """Return a number of pages, or of each node: ``0:128,1:64``. Raises ``ValueError``."""
    return _by_node(decimal, text)


def node_sizes(text: str, _last: int | None = None) -> Hashable:
    """Return a size, or that of each node: ``0:1G,1:512M``. Raises ``ValueError``."""
    return _by_node(size, text)


def _by_node(kind: Kind, text: str) -> Hashable:
    if ":" not in text:
        return kind(text, None)
    pairs = [part.partition(":") for part in text.split(",") if part]
    found = {decimal(node): kind(value, None) for node, _, value in pairs}
    return frozenset((node, value) for node, value in found.items() if value) or 0


def _or_text(kind: Kind, text: str, last: int | None = None) -> Hashable:
    try:
        return kind(text, last)
    except ValueError:
        return " ".join(text.split())


def same(kind: Kind, one: str, other: str, last: int | None = None) -> bool:
    """Return whether two texts are the same value of a *kind*; if either is none, whether their words are equal."""
    return one_of(kind, (one,), other, last)


def one_of(kind: Kind, wanted: Iterable[str], found: str, last: int | None = None) -> bool:
    """Return whether *found* is the same as one of several texts."""
    plain, value = words(found), _or_none(kind, found, last)
    for text in wanted:
        if text == found:
            return True
        other = None if value is None else _or_none(kind, text, last)
        if words(text) == plain if value is None or other is None else other == value:
            return True
    return False


def _or_none(kind: Kind, text: str, last: int | None) -> Hashable:
    try:
        return kind(text, last)
    except ValueError:
        return None


# Files

FILES: Final[tuple[tuple[Kind, tuple[str, ...]], ...]] = (
    (
        cpu_set,
        (
            r"/proc/sys/kernel/watchdog_cpumask",  # a list in spite of its name, as those of PMUs
            r"/sys/(bus/event_source/)?devices/[^/]+/(cpumask|cpus|\w+_cpus)",
            r"/sys/devices/system/(cpu|node)/(possible|present|online|offline|enabled|isolated|nohz_full|housekeeping)",
            r"/sys/devices/system/node/has_\w+",
            r".*/(\w*cpulist\w*|(\w+_)?(cpus?|siblings|affinity)_list)",
            r".*/(affected|related|freqdomain)_cpus",
            r".*/cpuset\.(effective_)?(cpus|mems)(\.(effective|exclusive|isolated))*",
        ),
    ),
    (port_set, (r"/proc/sys/net/ipv4/ip_local_reserved_ports",)),
    (
        mask,
        (
            r".*/\w*cpumask\w*",
            r".*/((default_)?smp_affinity|effective_affinity|affinity_hint|cpuaffinity|local_cpus)",
            r".*/([rx]ps_cpus|xps_rxqs|flow_limit_cpu_bitmap|rps_default_mask)",
            r".*/(cpumap|shared_cpu_map|(core|thread|cluster|die|package|book|drawer)_(siblings|cpus))",
            r"/sys/fs/resctrl/(.+/)?(cpus|cbm_mask|shareable_bits)",
        ),
    ),
    (schemata, (r"/sys/fs/resctrl/(.+/)?schemata",)),
    (
        set_of(),
        (
            r"/proc/sys/net/ipv4/tcp_(allowed_congestion_control|available_\w+)",
            r"/proc/sys/kernel/(seccomp/actions_\w+|sched_domain/.+/flags)",
            r"/sys/.+/(\w+_)?available_\w+",
            r"/sys/fs/cgroup/(.+/)?cgroup\.(controllers|subtree_control)",
            r"/sys/power/state",
        ),
    ),
    (
        boolean,
        (r"/sys/kernel/mm/(numa/demotion_enabled|swap/vma_ra_enabled|mempolicy/weighted_interleave/auto)",),
    ),
    (generations, (r"/sys/kernel/mm/lru_gen/enabled",)),
    (parameter, (r"/sys/module/[^/]+/parameters/[^/]+",)),
    (energy_bias, (r"/sys/devices/system/cpu/cpu[^/]+/power/energy_perf_bias",)),
    (hexadecimal, (r"/sys/devices/system/memory/block_size_bytes",)),
    (
        size,
        (
            r"/sys/devices/system/cpu/cpu[^/]*/cache/[^/]+/size",
            r"/sys/kernel/mm/hugepages/[^/]+/demote_size",
            r"/sys/fs/cgroup/(.+/)?(memory|hugetlb)\.(.+\.)?(max|high|low|min|(soft_)?limit_in_bytes)",
        ),
    ),
    (
        number,
        (
            r"/sys/devices/system/cpu/cpu[^/]+/microcode/(version|processor_flags)",
            r"/sys/class/net/[^/]+/flags",
            r"/sys/.+/((subsystem_)?(vendor|device)|class|revision)",
        ),
    ),
    (choice, (r"/sys/.*",)),
    (numbers, (r"/proc/sys/.*",)),
)
"""Files by the kernel's rules of naming; the first row with a pattern of the whole path counts."""

_FILES = tuple((re.compile("|".join(f"(?:{pattern})" for pattern in patterns)), kind) for kind, patterns in FILES)


@lru_cache(maxsize=4096)
def kind_of_file(path: str) -> Kind:
    """Return how values of a file of ``/proc`` or ``/sys`` are compared."""
    return next((kind for pattern, kind in _FILES if pattern.fullmatch(path)), words)


# Kernel arguments


class Rule(NamedTuple):
    """How values of a kernel argument are compared, and whether the kernel keeps all that are given.

    Of an argument that is not ``collected`` a later one replaces an earlier one; if it has ``modes``, only of these:
    each other value is a switch of its own.
    """

    kind: Kind = words
    collected: bool = False
    modes: frozenset[str] = frozenset()


_CPUS: Final = Rule(cpu_set)
_SWITCH: Final = Rule(boolean)
_EACH: Final = Rule(collected=True)
_FLAGS: Final = Rule(set_of(","), collected=True)

ARGUMENTS: Final[Mapping[str, Rule]] = {
    "isolcpus": Rule(isolcpus),
    **dict.fromkeys(
        ("nohz_full", "rcu_nocbs", "kthread_cpus", "workqueue.unbound_cpus", "systemd.cpu_affinity"), _CPUS
    ),
    "irqaffinity": Rule(irq_cpus),
    "tuned.non_isolcpus": Rule(mask),
    "intel_pstate": Rule(modes=frozenset(("active", "passive", "disable"))),
    **dict.fromkeys(("console", "earlycon", "initcall_blacklist", "acpi_osi", "mce", "numa", "tsc"), _EACH),
    **dict.fromkeys(("memmap", "crashkernel", "thp_anon", "thp_shmem"), Rule(sizes, collected=True)),
    **dict.fromkeys(
        (
            *("pci", "iommu", "intel_iommu", "amd_iommu", "efi", "cgroup_disable", "cgroup_no_v1", "cgroup.memory"),
            *("clearcpuid", "modprobe.blacklist", "rd.driver.blacklist", "rdt"),
        ),
        _FLAGS,
    ),
    # Of systemd and dracut: kernel-command-line(7), dracut.cmdline(7).
    **dict.fromkeys(("systemd.mask", "systemd.wants", "systemd.setenv", "systemd.set_credential"), _EACH),
    **dict.fromkeys(("ip", "ifname", "nameserver", "vlan", "bond", "bridge", "rd.route", "rd.znet"), _EACH),
    **dict.fromkeys(("rd.lvm.lv", "rd.lvm.vg", "rd.md.uuid", "rd.dm.uuid", "rd.driver.pre", "rd.driver.post"), _EACH),
    **dict.fromkeys(("rd.luks.uuid", "rd.luks.name", "rd.luks.options", "rd.dasd", "rd.zfcp"), _EACH),
    **dict.fromkeys(("module_blacklist", "vfio_pci.ids"), Rule(set_of(","))),
    **dict.fromkeys(
        (
            *("audit", "psi", "init_on_alloc", "init_on_free", "page_owner", "debug_pagealloc", "hardened_usercopy"),
            *("randomize_kstack_offset", "hugetlb_free_vmemmap", "swapaccount", "nohz", "highres", "kpti"),
            *("cgroup_favordynmods", "rodata", "rseq_debug"),
        ),
        _SWITCH,
    ),
    **dict.fromkeys(
        (
            *("maxcpus", "nr_cpus", "possible_cpus", "skew_tick", "panic", "loglevel", "watchdog_thresh", "selinux"),
            *("net.ifnames", "biosdevname", "swiotlb"),
        ),
        Rule(number),
    ),
    "hugetlb_cma": Rule(node_sizes),
    **dict.fromkeys(
        ("cma", "mem", "log_buf_len", "kernelcore", "movablecore", "vmalloc", "trace_buf_size"), Rule(size)
    ),
}
"""Arguments by name, in which dashes are underscores. ``huge_pages`` has those that belong together."""

MODULE_PARAMETER: Final = re.compile(
    r"(?!rd\.|systemd\.|udev\.|luks\.|fsck\.|inst\.|plymouth\.|printk\.devkmsg)[a-z0-9_]+\.[a-z0-9_.]+", re.ASCII
)
"""``module.parameter`` of the kernel, and not of a program of the initial RAM disk."""


def rule_of(name: str) -> Rule:
    """Return how values of the kernel argument *name* are compared."""
    plain = name.replace("-", "_")
    known = ARGUMENTS.get(plain)
    if known is not None:
        return known
    if plain.startswith("sysctl."):
        return Rule(kind_of_file("/proc/sys/" + name[len("sysctl.") :].replace(".", "/")))
    return Rule(parameter) if MODULE_PARAMETER.fullmatch(plain) else Rule()


def argument_value(name: str, value: str | None, last: int | None = None) -> Hashable:
    """Return what the value of a kernel argument stands for; None without a value, which switches a module's on."""
    kind = rule_of(name).kind
    if value is None:
        return parameter("1") if kind is parameter else None
    return _or_text(kind, value, last)


BOOTED_FROM: Final = frozenset(
    (
        *("BOOT_IMAGE", "BOOTIF", "boot", "initrd", "ostree", "resume", "resume_offset", "root"),
        *("rd.lvm.lv", "rd.lvm.vg", "rd.luks.uuid", "rd.luks.name", "rd.md.uuid", "rd.dm.uuid"),
    )
)
"""Arguments that name the devices booted from: they differ on every machine and do not affect metrics."""

PAGES: Final = ("hugepagesz", "default_hugepagesz", "hugepages")
"""Arguments that reserve huge pages: what each means depends on the others."""


class PageCount(NamedTuple):
    """A number of huge pages that the kernel reserves, with which argument, and of which size; None if of none."""

    pages: Hashable
    argument: str
    size_bytes: int | None

    @property
    def text(self) -> str:
        """The argument and the size."""
        return f"{self.argument} for " + (
            "the default size" if self.size_bytes is None else f"pages of {self.size_bytes} bytes"
        )


class ReservedPages(NamedTuple):
    """What a command line reserves: the default size and the argument with it, the sizes it names, and pages by size.

    A size is None where it is the default of the architecture, and that is not known.
    """

    default: int | None
    default_text: str | None
    sizes: Mapping[int, str]
    counts: Mapping[int | None, PageCount]


def huge_pages(arguments: Iterable[tuple[str, str | None]], architecture_default: int | None = None) -> ReservedPages:
    """Return the huge pages that *arguments*, in order, reserve, as the kernel reads them.

    ``hugepages=`` before any size is of the default size, wherever that is given, and prevails over a later number for
    it; a size or a number that is repeated is ignored, and so is a number after a size that is. Source:
    ``hugetlbpage.rst``, ``mm/hugetlb.c``.
    """
    default: int | None = None
    default_text: str | None = None
    current: int | None = None
    sizes: dict[int, str] = {}
    counts: dict[int | None, PageCount] = {}
    applies = True
    for name, value in arguments:
        if name == "hugepages":
            if applies and current not in counts and (pages := _pages(value)) is not None:
                counts[current] = PageCount(pages, f"{name}={value}", current)
            applies = True
            continue
        named, is_default = _bytes(value), name == "default_hugepagesz"
        new = named not in sizes
        applies = default is None if is_default else new or (named == default and named not in counts)
        applies = applies and named is not None
        if named is None or not applies:
            continue
        if is_default:
            default, default_text = named, f"{name}={value}"
            if None in counts:
                counts[named] = counts.pop(None)._replace(size_bytes=named)
        if new or not is_default:
            current = named
            sizes[named] = value or ""
    if default is None:
        default = architecture_default
    if None in counts and default is not None:
        counts[default] = counts.pop(None)
    return ReservedPages(default, default_text, sizes, counts)


def _bytes(text: str | None) -> int | None:
    try:
        return size(text or "")
    except ValueError:
        return None


def _pages(text: str | None) -> Hashable:
    try:
        return node_numbers(text or "")
    except ValueError:
        return None


def command_line(text: str, last: int | None = None) -> Hashable:
    """Return the arguments of a command line, of those of one name in order, what it reserves, and what init gets.

    Without those of ``BOOTED_FROM``.
    """
    found = WORD.findall(text)
    end = found.index("--") if "--" in found else len(found)
    values: dict[str, list[Hashable]] = {}
    pages = []
    for word in found[:end]:
        name, equals, value = word.partition("=")
        plain = name.replace("-", "_")
        given = value.strip('"') if equals else None
        if plain in PAGES:
            pages.append((plain, given))
        elif name not in BOOTED_FROM:
            values.setdefault(plain, []).append(argument_value(name, given, last))
    reserved = huge_pages(pages)
    return (
        frozenset((name, tuple(given)) for name, given in values.items()),
        (reserved.default, frozenset((size_bytes, count.pages) for size_bytes, count in reserved.counts.items())),
        tuple(found[end:]),
    )
