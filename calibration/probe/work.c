// SPDX-License-Identifier: Apache-2.0
#include "work.h"

#include <string.h>

#include "arch/arch.h"

uint64_t work_scalar(uint64_t blocks, struct work_lanes *lanes)
{
	(void)lanes;
	return arch_dependent_adds(blocks);
}

#ifdef ARCH_GENERIC
const struct work works[] = {WORK_SCALAR, {0}};
#endif

const struct work *work_find(const char *name)
{
	for (const struct work *work = works; work->name; work++)
		if (!strcmp(work->name, name) && (!work->supported || work->supported()))
			return work;
	return NULL;
}

void work_begin(struct work_lanes *lanes)
{
	static const float factors[4] = WORK_FACTORS;
	for (size_t i = 0; i < sizeof(lanes->lanes) / sizeof(lanes->lanes[0]); i++)
		lanes->lanes[i] = WORK_LANE_BEGIN;
	memcpy(lanes->factors, factors, sizeof(factors));
	lanes->blocks = 0;
}

bool work_sum_right(uint64_t sum, uint64_t blocks)
{
	return sum == 1 + blocks * WORK_ADDS_PER_BLOCK;
}

bool work_lanes_right(const struct work *work, const struct work_lanes *lanes)
{
	size_t count = work->vector_bytes ? WORK_ACCUMULATORS * work->vector_bytes() / sizeof(float) : 0;
	const float expected = WORK_LANE_BEGIN + (float)lanes->blocks * WORK_LANE_PER_BLOCK;
	for (size_t i = 0; i < count; i++)
		if (lanes->lanes[i] != expected)
			return false;
	return true;
}
