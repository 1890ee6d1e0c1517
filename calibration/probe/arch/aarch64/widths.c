// SPDX-License-Identifier: Apache-2.0
#if defined(__aarch64__)

#include "../../load.h"
#include "../arch.h"

extern const struct load_kernels load_neon, load_sve128, load_sve256, load_sve512;

ARCH_HAS(neon)

static bool has_sve512(void)
{
	return arch_sve_bytes() >= 64;
}

static bool has_sve256(void)
{
	return arch_sve_bytes() >= 32 && !has_sve512();
}

static bool has_sve128(void)
{
	return arch_sve_bytes() >= 16 && arch_sve_bytes() < 32;
}

/* One row of SVE fits a processor; of a register longer than a line, as much as a line is used. NEON comes before SVE of
 * its own width, so that values of the two kinds of processor compare. */
const struct load_width load_widths[] = {
	{"sve", has_sve512, &load_sve512},
	{"sve", has_sve256, &load_sve256},
	{"neon", has_neon, &load_neon},
	{"sve", has_sve128, &load_sve128},
	{0},
};

#endif
