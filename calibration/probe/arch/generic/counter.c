// SPDX-License-Identifier: Apache-2.0
/* Architectures whose manual promises a counter of a constant rate that is one for all processors, and those without. */
#include "../arch.h"

#ifndef __x86_64__

bool arch_counter_invariant(const char **reason)
{
	if (!ARCH_CLOCKSOURCE)
		*reason = "sutprobe knows no counter of this architecture";
	return ARCH_CLOCKSOURCE;
}

bool arch_counter_clocksource(const char *current)
{
	return ARCH_CLOCKSOURCE && !strcmp(current, ARCH_CLOCKSOURCE);
}

#endif
