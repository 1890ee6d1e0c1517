/* SPDX-License-Identifier: Apache-2.0 */
/* Work of a known length for each kind of instruction: a chain of additions, one core clock each, with independent
 * vector instructions beside it. The chain is the clock; the vector units are what the processor sets its clock for.
 *
 * Why the chain stays the critical path. A block is 64 dependent additions and 48 vector multiply-additions, 0.75 a
 * clock. Every processor with the width executes at least one of them a clock, and with 12 accumulators each waits for
 * a result of 16 clocks ago, longer than any multiply-addition takes. So the vector instructions run as soon as they
 * are issued, while additions pile up in the scheduler behind the chain; where both want one port the addition is the
 * older one and goes first. What rests on reasoning is measured too: whoever times work runs the chain alone between,
 * and the two must take the same time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WORK_ADDS_PER_BLOCK 64u
#define WORK_ACCUMULATORS 12u
/* The longest vector of SVE. */
#define WORK_VECTOR_BYTES_MAX 256u

/* Every lane begins with 1 and grows by 1/2048 in each block: acc += a*b and acc -= c*d twice, where a*b - c*d is
 * 1/4096. All products and sums are exact in single precision as long as lanes stay below 2048, so what a lane holds
 * says how often its instruction was executed. Two pairs of factors, so that the multipliers' inputs change. */
#define WORK_FACTORS {209.0f / 128, 29.0f / 16, 391.0f / 256, 31.0f / 16}
#define WORK_LANE_BEGIN 1.0f
#define WORK_LANE_PER_BLOCK (1.0f / 2048)
/* So many blocks at most from lane to lane check: half of what stays exact. */
#define WORK_BLOCKS_PER_CHECK 2000000u

struct work_lanes {
	_Alignas(64) float lanes[WORK_ACCUMULATORS * WORK_VECTOR_BYTES_MAX / sizeof(float)];
	float factors[4];
	uint64_t blocks; /* done since work_begin */
};

struct work {
	const char *name;
	bool (*supported)(void); /* NULL: by every processor */
	/* Runs blocks of the chain, with vector instructions beside it; returns the chain's sum. NULL: the chain alone. */
	uint64_t (*run)(uint64_t blocks, struct work_lanes *lanes);
	/* Bytes of one vector; NULL: none. */
	size_t (*vector_bytes)(void);
};

/* Ended by a row without a name. */
extern const struct work works[];
/* The row of the chain alone, which every architecture has. */
uint64_t work_scalar(uint64_t blocks, struct work_lanes *lanes);
#define WORK_SCALAR {"scalar", NULL, work_scalar, NULL}
#define WORK_CHOICES "scalar|avx2|avx512|neon|sve"

/* NULL where this processor cannot do it. */
const struct work *work_find(const char *name);
void work_begin(struct work_lanes *lanes);
/* Whether the chain's sum is that of so many blocks. */
bool work_sum_right(uint64_t sum, uint64_t blocks);
/* Whether every lane holds what the blocks since work_begin leave there. */
bool work_lanes_right(const struct work *work, const struct work_lanes *lanes);
/* Runs blocks and returns whether the chain's sum is right. */
static inline bool work_run(const struct work *work, uint64_t blocks, struct work_lanes *lanes)
{
	lanes->blocks += blocks;
	return work_sum_right(work->run(blocks, lanes), blocks);
}
