// SPDX-License-Identifier: Apache-2.0
#include "../arch.h"

#if defined(ARCH_GENERIC) && !defined(__powerpc64__) && !(defined(__riscv) && __riscv_xlen == 64)

bool arch_counter_invariant(const char **reason)
{
	*reason = "sutprobe knows no counter of this architecture";
	return false;
}

bool arch_counter_clocksource(const char *current)
{
	(void)current;
	return false;
}

#endif
