// SPDX-License-Identifier: Apache-2.0
#if defined(__powerpc64__)

#include "../arch.h"

bool arch_counter_invariant(const char **reason)
{
	/* The architecture promises that the time base is synchronous on all processors, at a rate of its own. */
	(void)reason;
	return true;
}

bool arch_counter_clocksource(const char *current)
{
	return !strcmp(current, "timebase");
}

unsigned arch_addition_clocks(void)
{
	return arch_has("arch_3_00") ? 2 : 1;
}

#endif
