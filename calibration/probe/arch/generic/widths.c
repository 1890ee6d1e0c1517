// SPDX-License-Identifier: Apache-2.0
#include "../arch.h"

#ifdef ARCH_GENERIC

#include "../../load.h"

extern const struct load_kernels load_generic;

static bool always(void)
{
	return true;
}

const struct load_width load_widths[] = {
	{"generic", always, &load_generic},
	{0},
};

/* No instructions for whole lines: POWER's dcbz clears lines of a size of its own. */
const struct load_lines load_lines[INSTRUCTIONS] = {{0}};

#endif
