// SPDX-License-Identifier: Apache-2.0
#if defined(__aarch64__)

#include <string.h>

#include "../arch.h"

bool arch_counter_invariant(const char **reason)
{
	/* The architecture promises a constant rate and one count for all processing elements. */
	(void)reason;
	return true;
}

bool arch_counter_clocksource(const char *current)
{
	return !strcmp(current, "arch_sys_counter");
}

#endif
