/* SPDX-License-Identifier: Apache-2.0 */
/* What RISC-V has of its own. The baseline is rv64gc: Linux distributions are built for it, and nothing in it flushes a
 * cache line or bypasses the caches. */
#pragma once

#include <stdint.h>

/* The real-time counter; its rate is the platform's: from 1 MHz to 1 GHz. */
#define ARCH_COUNTER "time"

static inline uint64_t arch_counter_read(void)
{
	uint64_t ticks;
	__asm__ volatile("rdtime %0" : "=r"(ticks)::"memory");
	return ticks;
}

/* To a fence, reading the counter is device input. */
static inline uint64_t arch_counter_start(void)
{
	uint64_t ticks;
	__asm__ volatile("fence rw, i\n\trdtime %0\n\tfence i, rw" : "=r"(ticks)::"memory");
	return ticks;
}

static inline uint64_t arch_counter_stop(void)
{
	return arch_counter_start();
}

/* PAUSE, a hint that every processor may ignore; spelt out because it is younger than the baseline. */
static inline void arch_relax(void)
{
	__asm__ volatile(".4byte 0x0100000f" ::: "memory");
}

#include "../generic/instructions.h"
