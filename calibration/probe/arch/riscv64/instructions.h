/* SPDX-License-Identifier: Apache-2.0 */
/* What RISC-V has of its own. The baseline is rv64gc: Linux distributions are built for it, and nothing in it flushes a
 * cache line or bypasses the caches. */
#pragma once

#include <stdint.h>

/* The real-time counter; its rate is the platform's: from 1 MHz to 1 GHz. */
#define ARCH_COUNTER "time"
#define ARCH_CLOCKSOURCE "riscv_clocksource"
#define ARCH_COUNTER_READ "rdtime %0"
/* To a fence, reading the counter is device input. */
#define ARCH_COUNTER_FENCED "fence rw, i\n\t" ARCH_COUNTER_READ "\n\tfence i, rw"

/* PAUSE, a hint that every processor may ignore; spelt out because it is younger than the baseline. */
static inline void arch_relax(void)
{
	__asm__ volatile(".4byte 0x0100000f" ::: "memory");
}

#include "../generic/instructions.h"
