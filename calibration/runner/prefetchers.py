# SPDX-License-Identifier: Apache-2.0
"""Table of the documented registers that switch hardware prefetchers.

Runs on a SUT's own Python (3.8 and later, standard library only).
"""

from __future__ import annotations

import collections

PrefetchTable = collections.namedtuple("PrefetchTable", "cores vendor family models registers source")
"""Processors whose prefetchers are switched in the same way.

``models`` is a set of model numbers, None: all of the family. ``registers`` maps each model-specific register to the
bits that switch one prefetcher each, off if set; other bits are never changed.
"""

SDM = "Intel 64 and IA-32 Architectures Software Developer's Manual, volume 4"
DISCLOSURE = "Intel, Disclosure of Hardware Prefetcher Control on Some Intel Processors"
PEPC = "Intel's pepc, pepclibs/msr/MiscFeatureControl.py"
PERFSPECT = "Intel's PerfSpect, internal/common/prefetcher.go"
ATOM = "Intel, Hardware Prefetch Controls for Intel Atom Cores (357930)"
PPR = "AMD, Processor Programming Reference, MSRC000_0108; AMD64 Architecture Programmer's Manual, volume 3"


def intel(cores, models, registers, source):
    """Return the table of Intel processors of family 6 with the hexadecimal *models*."""
    numbers = frozenset(int(model, 16) for model in models.split())
    return PrefetchTable(cores, "GenuineIntel", 6, numbers, registers, source)


PREFETCH_TABLES = (
    # 0x1a4: bit 0 L2 streamer, 1 L2 adjacent line, 2 L1 next line, 3 L1 by instruction pointer.
    intel(
        "Nehalem, Westmere, Sandy Bridge, Ivy Bridge, Haswell, Broadwell",
        "1a 1e 1f 2e 25 2c 2f 2a 2d 3a 3e 3c 3f 45 46 3d 47 4f 56",
        {0x1A4: 0xF},
        DISCLOSURE,
    ),
    intel(
        "Skylake, Cascade, Cooper, Kaby, Coffee, Comet, Ice, Tiger and Rocket Lake",
        "4e 5e 55 8e 9e a5 a6 6a 6c 7d 7e 8c 8d a7",
        {0x1A4: 0xF},
        SDM + "; " + PEPC,
    ),
    # 0x1a4: bit 5 L2 adaptive multipath (another tool takes bit 6 for it). 0x6d: bit 14 homeless, 42 last-level cache.
    intel(
        "Sapphire Rapids, Emerald Rapids",
        "8f cf",
        {0x1A4: 0x2F, 0x6D: 1 << 14 | 1 << 42},
        SDM + "; " + PERFSPECT,
    ),
    # 0x1a4 besides: bit 6 last-level cache page, 7 array of pointers.
    intel("Granite Rapids", "ad ae", {0x1A4: 0xEF, 0x6D: 1 << 14 | 1 << 42}, PERFSPECT),
    # 0x1a4: bit 0 L2 streamer, 2 L1 next line; bit 1 is reserved.
    intel("Avoton, Goldmont, Tremont", "4d 5c 5f 7a 86 96 9c", {0x1A4: 0x5}, SDM + "; " + PEPC),
    # 0x1a4: bit 0 L2 streamer, 2 L1 next line, 3 L1 by instruction pointer, 4 L1 next page, 5 L2 adaptive multipath.
    # 0x1320: bit 43 last-level cache streamer.
    intel(
        "Sierra Forest, Clearwater Forest",
        "af dd",
        {0x1A4: 0x3D, 0x1320: 1 << 43},
        ATOM + "; " + PERFSPECT,
    ),
    # 0x1a4: bit 0 L1, 1 L2.
    intel("Knights Landing, Knights Mill", "57 85", {0x1A4: 0x3}, SDM + "; " + PEPC),
    # 0xc0000108: bit 0 L1 stream, 1 L1 stride, 2 L1 region, 3 L2 stream, 5 L2 up or down. Only where CPUID has it.
    PrefetchTable("Zen 3, Zen 4", "AuthenticAMD", 0x19, None, {0xC0000108: 0x2F}, PPR),
    PrefetchTable("Zen 5", "AuthenticAMD", 0x1A, None, {0xC0000108: 0x2F}, PPR),
)
"""Hybrid processors (Alder Lake and later) are excluded: their model does not tell the type of a core."""

LEAF, LEAF_BIT = 0x80000021, 13
"""CPUID leaf and EAX bit by which AMD processors report the register (PrefetchCtlMsr)."""

DSCR_BITS, DSCR_OFF = 0x1F, 0x1
"""Of POWER's data stream control register: depth (bits 0 to 2: 1 is none, 0 what the machine has by default), stores
(3), strides of more than a line (4). Sources: Power ISA; ppc64_cpu --dscr, which writes the same files; Linux,
Documentation/arch/powerpc/dscr.rst."""
