# SPDX-License-Identifier: Apache-2.0
"""The kernel's clock source."""

from collections.abc import Iterator

from calibration.audit.findings import UNKNOWN, Finding, outcome_of
from calibration.context.model import Context

TRUSTED_X86 = ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page")
"""Clock sources of x86_64 that read the TSC; sutprobe trusts the same ones."""

COUNTERS = {"aarch64": "arch_sys_counter", "ppc64le": "timebase", "riscv64": "riscv_clocksource"}
"""The one clock source of each other architecture: a counter of constant rate by the architecture's promise."""

INVARIANT_FLAGS = ("constant_tsc", "nonstop_tsc")
"""The kernel's flags of an invariant TSC."""


def check_clock_source(context: Context) -> Iterator[Finding]:
    """Yield whether the kernel's clock source has a constant rate and never stops."""
    current = context.clocksource.current
    available = ", ".join(context.clocksource.available) or "none"
    found = f"{current or UNKNOWN} (available: {available})"
    counter = COUNTERS.get(context.processor.architecture or "")
    if counter is not None:
        expected = counter
        met = current == counter
    else:
        wanted = (
            TRUSTED_X86[:1] if context.virtualization.guest is False else TRUSTED_X86
        )  # only a guest may have a paravirtual one
        expected = f"{' or '.join(wanted)}, and the processor flags {' and '.join(INVARIANT_FLAGS)}"
        lacking = [name for name in INVARIANT_FLAGS if name not in context.processor.flags]
        found += f", without {' and '.join(lacking)}" if lacking else f", with {' and '.join(INVARIANT_FLAGS)}"
        met = current in wanted and not lacking
    yield Finding("clock_source", expected, found, "unknown" if current is None else outcome_of(met))
