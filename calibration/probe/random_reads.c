// SPDX-License-Identifier: Apache-2.0
/* One word of each line of a buffer, in an order that no prefetcher follows. Where each load goes is computed in registers,
 * a few instructions that no load waits for: how many lines are under way at the same time is up to the core. */
#include "arch/arch.h"
#include "load.h"
#include "random_lines.h"

static inline __attribute__((always_inline)) uint64_t word_at(const unsigned char *lines, uint64_t number,
                                                              uint64_t count)
{
	return *(const volatile uint64_t *)(const volatile void *)(lines + random_line(number, count));
}

static inline __attribute__((always_inline)) uint64_t run_random(struct load_call *call, bool delay)
{
	const unsigned char *lines = call->arrays[0];
	const uint64_t count = call->stream_bytes / ARCH_LINE_BYTES, units = call->delay;
	const uint64_t begin = call->offset / LOAD_LINE_BYTES, end = begin + call->steps;
	uint64_t sum0 = 0, sum1 = 0, sum2 = 0, sum3 = 0;
	for (uint64_t pass = 0; pass < call->passes; pass++)
		for (uint64_t number = begin; number < end; number += LOAD_STEPS_PER_DELAY) {
			sum0 += word_at(lines, number, count);
			sum1 += word_at(lines, number + 1, count);
			sum2 += word_at(lines, number + 2, count);
			sum3 += word_at(lines, number + 3, count);
			if (delay)
				arch_nops(units);
		}
	return sum0 + sum1 + sum2 + sum3;
}

uint64_t random_reads(struct load_call *call)
{
	return run_random(call, false);
}

uint64_t random_reads_delayed(struct load_call *call)
{
	return run_random(call, true);
}
