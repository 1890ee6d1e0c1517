// SPDX-License-Identifier: Apache-2.0
/* The memory-read benchmark of Helm and Taura, section 4.3.1: the first word of each line, line after line, and a number of
 * no-ops after every four loads. With the hardware prefetchers off the no-ops regulate how many lines are asked for: a core
 * that waits for a load goes on only as far as it can remember instructions, and no-ops fill what it remembers. */
#include "arch/arch.h"
#include "load.h"

/* The address alone decides what is loaded: none of the four waits for another. */
static inline __attribute__((always_inline)) uint64_t word_of(const unsigned char *line)
{
	return *(const volatile uint64_t *)(const volatile void *)line;
}

static inline __attribute__((always_inline)) uint64_t run_lines(struct load_call *call, bool delay)
{
	const unsigned char *begin = call->arrays[0] + call->offset, *end = begin + call->steps * LOAD_LINE_BYTES;
	const uint64_t units = call->delay;
	uint64_t sum0 = 0, sum1 = 0, sum2 = 0, sum3 = 0;
	for (uint64_t pass = 0; pass < call->passes; pass++)
		for (const unsigned char *at = begin; at < end; at += LOAD_STEPS_PER_DELAY * LOAD_LINE_BYTES) {
			sum0 += word_of(at);
			sum1 += word_of(at + LOAD_LINE_BYTES);
			sum2 += word_of(at + 2 * LOAD_LINE_BYTES);
			sum3 += word_of(at + 3 * LOAD_LINE_BYTES);
			if (delay)
				arch_nops(units);
		}
	return sum0 + sum1 + sum2 + sum3;
}

uint64_t line_reads(struct load_call *call)
{
	return run_lines(call, false);
}

uint64_t line_reads_delayed(struct load_call *call)
{
	return run_lines(call, true);
}
