// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)

#include <cpuid.h>
#include <string.h>

#include "../arch.h"

bool arch_counter_invariant(const char **reason)
{
	unsigned eax, ebx, ecx, edx;
	/* 0x80000001 EDX[27]: RDTSCP. 0x80000007 EDX[8]: the TSC runs at one rate in all P-, T- and C-states. */
	if (!__get_cpuid(0x80000001, &eax, &ebx, &ecx, &edx) || !(edx >> 27 & 1)) {
		*reason = "the processor has no RDTSCP";
		return false;
	}
	if (!__get_cpuid(0x80000007, &eax, &ebx, &ecx, &edx) || !(edx >> 8 & 1)) {
		*reason = "the processor does not say that its TSC is invariant";
		return false;
	}
	return true;
}

bool arch_counter_clocksource(const char *current)
{
	/* The two paravirtual clocks are computed from the TSC; with an invariant one the raw counter is as good. */
	return !strcmp(current, "tsc") || !strcmp(current, "kvm-clock") || !strcmp(current, "hyperv_clocksource_tsc_page");
}

#endif
