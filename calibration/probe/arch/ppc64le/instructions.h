/* SPDX-License-Identifier: Apache-2.0 */
/* What POWER has of its own. The baseline is POWER8, the first in little-endian order; a big-endian program uses this too. */
#pragma once

#include <stdint.h>

/* The time base: one count for the whole machine, of 512 MHz on every server. */
#define ARCH_COUNTER "timebase"
#define ARCH_CLOCKSOURCE "timebase"
#define ARCH_COUNTER_READ "mfspr %0, 268"
/* ISYNC lets nothing begin before everything earlier has completed; a load completes when it has its data. SYNC would also
 * wait until other cores have seen the stores, which is not part of what is timed. */
#define ARCH_COUNTER_FENCED "isync\n\t" ARCH_COUNTER_READ "\n\tisync"

/* The hint to give shared resources to the core's other threads. */
static inline void arch_relax(void)
{
	__asm__ volatile("or 27, 27, 27" ::: "memory");
}

#define ARCH_LINE_BYTES 128u

#define ARCH_FLUSHES true
static inline void arch_flush_line(const void *line)
{
	__asm__ volatile("dcbf 0, %0" ::"r"(line) : "memory");
}

/* Core clocks from one addition to the next that waits for it: one on POWER8, two since POWER9, by the machine descriptions
 * of both compilers. */
#define ARCH_ADDITION_CLOCKS (arch_has("arch_3_00") ? 2u : 1u)

#include "../generic/instructions.h"
