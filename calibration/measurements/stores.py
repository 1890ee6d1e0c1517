# SPDX-License-Identifier: Apache-2.0
"""Processors that may skip the read of a line before a regular store.

The declared rule counts that read on x86_64 and ppc64le, not on aarch64 and riscv64. It is wrong on processors that
decide dynamically:
Intel's SpecI2M, from Ice Lake-SP on, turns such reads into ownership requests without data near saturation, and Arm's
cores enter write-streaming mode after a run of whole lines.

Sources: Laukemann et al., "CloverLeaf on Intel Multi-Core CPUs: A Case Study in Write-Allocate Evasion", 2023;
Laukemann, Hager, Wellein, "Microarchitectural Comparison and In-Core Modeling of State-of-the-Art CPUs: Grace,
Sapphire Rapids, and Genoa", 2024, which found none on AMD Genoa; Arm, Neoverse technical reference manuals, "Write
streaming mode".
"""

from collections.abc import Collection, Iterator

from calibration.base.validity import Flag, flag
from calibration.context.model import Context

REGULAR_STORES = frozenset({"write", "copy", "triad"})
"""Mixes that store lines without reading them first."""

SPEC_I2M = frozenset({"106", "108", "143", "173", "174", "207"})
"""Models of Intel's family 6 with SpecI2M: Ice Lake-SP and -D, Sapphire, Granite (two) and Emerald Rapids."""


UNREAD = "counted as if no line were read before it is stored"
ASSUMED = {
    "aarch64": f"{UNREAD}; cores in write-streaming mode skip that read, others do not",
    "riscv64": f"{UNREAD}; a RISC-V core may read it or not, as its designer chose",
}
"""What is assumed of regular stores, by architecture."""

SKIPPED = (
    "counted as if every line were read before it is stored; near saturation this processor skips that read (SpecI2M), "
    "so memory may have moved as little as the program bytes"
)


def stores_flags(
    context: Context, mixes: Collection[str], *, counted: bool, instructions: Collection[str] = ()
) -> Iterator[Flag]:
    """Yield the flags for the modelled bytes of stores if the processor may move fewer or more.

    *instructions* are those that moved the lines: whether REP STOSB reads a line first is not documented.

    None if the bytes were *counted*: ``COUNTED_DIFFERS`` then shows the difference.
    """
    if counted:
        return
    if "rep_stosb" in instructions:
        yield flag(
            "STORES_ASSUMED",
            f"write_nt by rep_stosb: {UNREAD}; whether this processor reads it is not documented, so memory may have "
            "moved up to twice as much",
        )
    reason = ASSUMED.get(context.processor.architecture or "")
    if any(
        model.vendor == "GenuineIntel" and model.family == "6" and model.model in SPEC_I2M
        for model in context.processor.models
    ):
        reason = SKIPPED
    if reason is not None and (regular := sorted(REGULAR_STORES & set(mixes))):
        yield flag("STORES_ASSUMED", f"{', '.join(regular)}: {reason}")
