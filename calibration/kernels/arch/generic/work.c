// SPDX-License-Identifier: Apache-2.0
#include "../arch.h"

#ifdef ARCH_GENERIC

#include "../../work.h"

static uint64_t run_scalar(uint64_t blocks, struct work_lanes *lanes)
{
	(void)lanes;
	return arch_dependent_adds(blocks);
}

static bool always(void)
{
	return true;
}

const struct work works[] = {
	{"scalar", always, run_scalar, NULL},
	{0},
};

#endif
