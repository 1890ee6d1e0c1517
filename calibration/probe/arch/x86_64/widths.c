// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)

#include "../../load.h"
#include "../arch.h"

extern const load_kernel load_kernels_sse2[MIXES][4][2][2];
extern const load_kernel load_kernels_avx2[MIXES][4][2][2];
extern const load_kernel load_kernels_avx512[MIXES][4][2][2];
extern const struct load_doubles load_doubles_sse2;
extern const load_kernel load_visits_sse2[MIXES][HINTS + 1][3];
extern const struct load_doubles load_doubles_avx2;
extern const load_kernel load_visits_avx2[MIXES][HINTS + 1][3];
extern const struct load_doubles load_doubles_avx512;
extern const load_kernel load_visits_avx512[MIXES][HINTS + 1][3];

static bool has_sse2(void)
{
	return true; /* part of x86-64-v1 */
}

static bool has_avx2(void)
{
	return arch_has("avx2");
}

static bool has_avx512(void)
{
	return arch_has("avx512f");
}

const struct load_width load_widths[] = {
	{"avx512", has_avx512, load_kernels_avx512, &load_doubles_avx512, load_visits_avx512},
	{"avx2", has_avx2, load_kernels_avx2, &load_doubles_avx2, load_visits_avx2},
	{"sse2", has_sse2, load_kernels_sse2, &load_doubles_sse2, load_visits_sse2},
	{0},
};

#endif
