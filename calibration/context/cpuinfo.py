# SPDX-License-Identifier: Apache-2.0
"""Parse ``/proc/cpuinfo`` of all architectures.

Source: ``show_cpuinfo`` of the architectures in the Linux kernel; the Arm names from the vendors' MIDR_EL1
values as listed in ``arch/arm64/include/asm/cputype.h`` and Arm's technical reference manuals.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property

from calibration.base.cpulists import MAX_ID

ARM_IMPLEMENTERS = {
    0x41: "ARM",
    0x42: "Broadcom",
    0x43: "Cavium",
    0x44: "DEC",
    0x46: "Fujitsu",
    0x48: "HiSilicon",
    0x49: "Infineon",
    0x4D: "Motorola/Freescale",
    0x4E: "NVIDIA",
    0x50: "APM",
    0x51: "Qualcomm",
    0x53: "Samsung",
    0x56: "Marvell",
    0x61: "Apple",
    0x66: "Faraday",
    0x69: "Intel",
    0x6D: "Microsoft",
    0x70: "Phytium",
    0xC0: "Ampere",
}

ARM_PARTS = {
    (0x41, 0xB02): "ARM11 MPCore",
    (0x41, 0xB36): "ARM1136",
    (0x41, 0xB56): "ARM1156",
    (0x41, 0xB76): "ARM1176",
    (0x41, 0xC05): "Cortex-A5",
    (0x41, 0xC07): "Cortex-A7",
    (0x41, 0xC08): "Cortex-A8",
    (0x41, 0xC09): "Cortex-A9",
    (0x41, 0xC0D): "Cortex-A17",
    (0x41, 0xC0E): "Cortex-A17",
    (0x41, 0xC0F): "Cortex-A15",
    (0x41, 0xD01): "Cortex-A32",
    (0x41, 0xD02): "Cortex-A34",
    (0x41, 0xD03): "Cortex-A53",
    (0x41, 0xD04): "Cortex-A35",
    (0x41, 0xD05): "Cortex-A55",
    (0x41, 0xD06): "Cortex-A65",
    (0x41, 0xD07): "Cortex-A57",
    (0x41, 0xD08): "Cortex-A72",
    (0x41, 0xD09): "Cortex-A73",
    (0x41, 0xD0A): "Cortex-A75",
    (0x41, 0xD0B): "Cortex-A76",
    (0x41, 0xD0C): "Neoverse-N1",
    (0x41, 0xD0D): "Cortex-A77",
    (0x41, 0xD0E): "Cortex-A76AE",
    (0x41, 0xD40): "Neoverse-V1",
    (0x41, 0xD41): "Cortex-A78",
    (0x41, 0xD42): "Cortex-A78AE",
    (0x41, 0xD43): "Cortex-A65AE",
    (0x41, 0xD44): "Cortex-X1",
    (0x41, 0xD46): "Cortex-A510",
    (0x41, 0xD47): "Cortex-A710",
    (0x41, 0xD48): "Cortex-X2",
    (0x41, 0xD49): "Neoverse-N2",
    (0x41, 0xD4A): "Neoverse-E1",
    (0x41, 0xD4B): "Cortex-A78C",
    (0x41, 0xD4C): "Cortex-X1C",
    (0x41, 0xD4D): "Cortex-A715",
    (0x41, 0xD4E): "Cortex-X3",
    (0x41, 0xD4F): "Neoverse-V2",
    (0x41, 0xD80): "Cortex-A520",
    (0x41, 0xD81): "Cortex-A720",
    (0x41, 0xD82): "Cortex-X4",
    (0x41, 0xD83): "Neoverse-V3AE",
    (0x41, 0xD84): "Neoverse-V3",
    (0x41, 0xD85): "Cortex-X925",
    (0x41, 0xD87): "Cortex-A725",
    (0x41, 0xD8E): "Neoverse-N3",
    (0x42, 0x516): "ThunderX2",
    (0x43, 0x0A0): "ThunderX",
    (0x43, 0x0A1): "ThunderX 88XX",
    (0x43, 0x0A2): "ThunderX 81XX",
    (0x43, 0x0A3): "ThunderX 83XX",
    (0x43, 0x0AF): "ThunderX2 99xx",
    (0x43, 0x0B1): "OcteonTX2 98XX",
    (0x43, 0x0B2): "OcteonTX2 96XX",
    (0x46, 0x001): "A64FX",
    (0x46, 0x003): "MONAKA",
    (0x48, 0xD01): "TaiShan v110",
    (0x48, 0xD02): "TaiShan v120",
    (0x4E, 0x003): "Denver 2",
    (0x4E, 0x004): "Carmel",
    (0x4E, 0x010): "Olympus",
    (0x50, 0x000): "X-Gene",
    (0x51, 0x001): "Oryon",
    (0x51, 0x800): "Kryo 2XX Gold",
    (0x51, 0x801): "Kryo 2XX Silver",
    (0x51, 0xC00): "Falkor",
    (0x51, 0xC01): "Saphira",
    (0x6D, 0xD49): "Azure Cobalt 100",
    (0x70, 0x660): "FTC660",
    (0x70, 0x661): "FTC661",
    (0x70, 0x662): "FTC662",
    (0x70, 0x663): "FTC663",
    (0x70, 0x664): "FTC664",
    (0xC0, 0xAC3): "Ampere-1",
    (0xC0, 0xAC4): "Ampere-1a",
    (0xC0, 0xAC5): "Ampere-1b",
}

MAX_LINE = 16 * 1024
"""Longest line read; the longest known, a processor's flags, has 2000 characters."""

MAX_CACHE_ROWS = 32

_S390_PROCESSOR = re.compile(r"processor ([0-9]{1,5})", re.ASCII)
_SPARC_STATE = re.compile(r"CPU([0-9]{1,5})", re.ASCII)


@dataclass(frozen=True)
class CpuInfo:
    """The file: values per CPU, values given once, and repeated rows (s390x caches).

    ``shared`` holds the rows outside any CPU's paragraph (the machine on POWER, everything but the numbers on
    s390x).
    """

    cpus: dict[int, dict[str, str]]
    shared: dict[str, str]
    cache_rows: tuple[str, ...] = field(default=())

    @cached_property
    def architecture(self) -> str | None:
        """The architecture family, recognised by the keys; None if unknown."""
        return _architecture(self)

    def first(self, *keys: str, cpu: int | None = None) -> str | None:
        """Return the value of the first of ``keys`` that has one: of that CPU, else of the machine."""
        for rows in ([self.cpus[cpu]] if cpu in self.cpus else []) + [self.shared]:
            for key in keys:
                if rows.get(key):
                    return rows[key]
        return None


def parse_cpuinfo(text: str) -> CpuInfo:
    """Parse the file. Raises ``ValueError`` if it has no row ``key : value``."""
    cpus: dict[int, dict[str, str]] = {}
    shared: dict[str, str] = {}
    cache_rows: list[str] = []
    current: dict[str, str] | None = None
    rows = 0
    for line in text.splitlines():
        if not line.strip():
            current = None
            continue
        key, colon, value = line.partition(":")
        key, value = key.strip(), value.strip()
        if not colon or len(line) > MAX_LINE or not key.isprintable() or not value.isprintable():
            continue
        rows += 1
        s390_machine = shared.get("vendor_id") == "IBM/S390"
        s390 = _S390_PROCESSOR.fullmatch(key)
        sparc = _SPARC_STATE.fullmatch(key)
        if key == "processor" and _is_cpu(value):
            current = cpus.setdefault(int(value), {})
        elif key == "cpu number" and s390_machine and _is_cpu(value):
            # one paragraph per CPU after the list of processors
            current = cpus.setdefault(int(value), {})
        elif s390 and _is_cpu(s390.group(1)):
            entry = cpus.setdefault(int(s390.group(1)), {})
            for part in value.split(","):
                name, _, content = part.partition("=")
                entry[name.strip()] = content.strip()
        elif sparc and _is_cpu(sparc.group(1)) and value in ("online", "offline"):
            if value == "online":
                cpus.setdefault(int(sparc.group(1)), {})
        elif re.fullmatch(r"cache[0-9]+", key):
            cache_rows.append(value)
        elif current is not None:
            current.setdefault(key, value)
        else:
            shared.setdefault(key, value)
    if not rows:
        raise ValueError("no rows such as 'processor : 0'")
    return CpuInfo(cpus, shared, tuple(cache_rows[:MAX_CACHE_ROWS]))


def _is_cpu(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= MAX_ID


def _architecture(info: CpuInfo) -> str | None:
    keys = set(info.shared).union(*info.cpus.values())
    if info.shared.get("vendor_id") == "IBM/S390":
        return "s390x"
    if "CPU implementer" in keys:
        arch = info.first("CPU architecture", cpu=min(info.cpus, default=None))
        return "aarch64" if arch in ("8", "AArch64") else "arm"
    if "flags" in keys and ("vendor_id" in keys or "cpu family" in keys):
        flags = (info.first("flags", cpu=min(info.cpus, default=None)) or "").split()
        return "x86_64" if "lm" in flags else "x86"
    if {"arch", "archrev"} <= keys:
        return "ia64"
    if "cpu" in keys and ("timebase" in keys or "revision" in keys or "clock" in keys):
        return "ppc64"
    if "isa" in keys and ("hart" in keys or "uarch" in keys or "mmu" in keys):
        return "riscv64"
    if "system type" in keys and "cpu model" in keys:
        return "mips"
    if "CPU Family" in keys and "Model Name" in keys:
        return "loongarch64"
    if any("PA-RISC" in rows.get("cpu family", "") for rows in info.cpus.values()):
        return "parisc"
    if "ncpus active" in keys:
        return "sparc64"
    return None


@dataclass(frozen=True)
class Identity:
    """One CPU's identity as printed by the kernel; known Arm numbers are replaced by names."""

    vendor: str | None
    name: str | None
    family: str | None
    model: str | None
    stepping: str | None
    microcode: str | None


def _hexadecimal(text: str | None) -> int | None:
    return int(text, 16) if text is not None and re.fullmatch(r"0[xX][0-9a-fA-F]{1,8}", text) else None


def identity(info: CpuInfo, cpu: int) -> Identity:
    """Vendor, model and revision of one CPU.

    An unknown Arm part keeps its number; its name is None.
    """
    kind = info.architecture
    implementer = _hexadecimal(info.first("CPU implementer", cpu=cpu))
    if implementer is not None:
        part = _hexadecimal(info.first("CPU part", cpu=cpu))
        variant = _hexadecimal(info.first("CPU variant", cpu=cpu))
        revision = info.first("CPU revision", cpu=cpu)
        stepping = f"r{variant}p{revision}" if variant is not None and revision is not None else None
        return Identity(
            vendor=ARM_IMPLEMENTERS.get(implementer, f"implementer 0x{implementer:02x}"),
            name=(ARM_PARTS.get((implementer, part)) if part is not None else None)
            or info.first("model name", "Processor", cpu=cpu),
            family=info.first("CPU architecture", cpu=cpu),
            model=info.first("CPU part", cpu=cpu),
            stepping=stepping,
            microcode=None,
        )
    if kind == "s390x":
        machine = info.first("machine", cpu=cpu)
        return Identity("IBM/S390", None, None, machine, info.first("version", cpu=cpu), None)
    if kind == "ppc64":
        revision = info.first("revision", cpu=cpu)
        return Identity(
            vendor="IBM" if "IBM" in (info.first("model", "machine") or "") else info.first("vendor"),
            name=info.first("cpu", cpu=cpu),
            family=info.first("platform"),
            model=info.first("model", "machine"),
            stepping=revision,
            microcode=info.first("firmware"),
        )
    return Identity(
        vendor=info.first("vendor_id", "vendor", "mvendorid", cpu=cpu),
        name=info.first("model name", "Model Name", "uarch", "cpu model", "cpu", cpu=cpu),
        family=info.first("cpu family", "CPU Family", "family", "arch", cpu=cpu),
        model=info.first("model", "CPU Revision", "marchid", cpu=cpu),
        stepping=info.first("stepping", "revision", "mimpid", cpu=cpu),
        microcode=known_microcode(info.first("microcode", cpu=cpu)),
    )


def known_microcode(revision: str | None) -> str | None:
    """Return a microcode revision; None if a hypervisor answers with all ones instead of one."""
    return None if revision is None or _hexadecimal(revision) == 0xFFFF_FFFF else revision


def flags(info: CpuInfo, cpu: int | None) -> tuple[str, ...]:
    """Feature words of one CPU, in the kernel's order."""
    text = info.first("flags", "Features", "features", "isa", "ASEs implemented", cpu=cpu)
    if text is None:
        return ()
    return tuple(text.replace(",", " ").split())


def cache_rows(info: CpuInfo) -> list[dict[str, str]]:
    """s390x's ``cacheN`` rows as dictionaries (level, type, scope, size, line_size, associativity)."""
    return [dict(part.split("=", 1) for part in row.split() if "=" in part) for row in info.cache_rows]
