// SPDX-License-Identifier: Apache-2.0
#if defined(__aarch64__)

#include <sys/auxv.h>

#include "../../load.h"

#define HWCAP_ASIMD_BIT 1u

extern const load_kernel load_kernels_neon[MIXES][4][2][2];

static bool has_neon(void)
{
	return getauxval(AT_HWCAP) >> HWCAP_ASIMD_BIT & 1;
}

const struct load_width load_widths[] = {
	{"neon", has_neon, load_kernels_neon},
	{0},
};

#endif
