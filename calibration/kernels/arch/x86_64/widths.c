// SPDX-License-Identifier: Apache-2.0
/* Which vector widths this processor has and this kernel saves: CPUID says the first, XGETBV the second. */
#if defined(__x86_64__)

#include <cpuid.h>

#include "../../load.h"

extern const load_kernel load_kernels_sse2[MIXES][4][2][2];
extern const load_kernel load_kernels_avx2[MIXES][4][2][2];
extern const load_kernel load_kernels_avx512[MIXES][4][2][2];
extern const struct load_doubles load_doubles_sse2;
extern const struct load_doubles load_doubles_avx2;
extern const struct load_doubles load_doubles_avx512;

#define STATE_AVX 0x06u    /* XMM and YMM */
#define STATE_AVX512 0xe6u /* and opmask, ZMM */

static bool saved(unsigned wanted)
{
	unsigned eax, ebx, ecx, edx;
	if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx >> 27 & 1)) /* OSXSAVE */
		return false;
	unsigned low, high;
	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	return (low & wanted) == wanted;
}

static bool leaf7_ebx(unsigned bit)
{
	unsigned eax, ebx, ecx, edx;
	return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (ebx >> bit & 1);
}

static bool has_sse2(void)
{
	return true; /* part of x86-64-v1 */
}

static bool has_avx2(void)
{
	return saved(STATE_AVX) && leaf7_ebx(5);
}

static bool has_avx512(void)
{
	return saved(STATE_AVX512) && leaf7_ebx(16);
}

const struct load_width load_widths[] = {
	{"avx512", has_avx512, load_kernels_avx512, &load_doubles_avx512},
	{"avx2", has_avx2, load_kernels_avx2, &load_doubles_avx2},
	{"sse2", has_sse2, load_kernels_sse2, &load_doubles_sse2},
	{0},
};

#endif
