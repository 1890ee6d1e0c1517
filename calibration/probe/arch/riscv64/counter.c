// SPDX-License-Identifier: Apache-2.0
#if defined(__riscv) && __riscv_xlen == 64

#include "../arch.h"

bool arch_counter_invariant(const char **reason)
{
	/* The architecture promises a constant rate, and counters of all harts within one tick. */
	(void)reason;
	return true;
}

bool arch_counter_clocksource(const char *current)
{
	return !strcmp(current, "riscv_clocksource");
}

#endif
