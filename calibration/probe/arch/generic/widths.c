// SPDX-License-Identifier: Apache-2.0
#include "../arch.h"

#ifdef ARCH_GENERIC

#include "../../load.h"

extern const load_kernel load_kernels_generic[MIXES][4][2][2];
extern const load_kernel load_visits_generic[MIXES][HINTS + 1][3];
extern const struct load_doubles load_doubles_generic;

static bool always(void)
{
	return true;
}

const struct load_width load_widths[] = {
	{"generic", always, load_kernels_generic, &load_doubles_generic, load_visits_generic},
	{0},
};

/* No instructions for whole lines: POWER's dcbz clears lines of a size of its own. */
const struct load_lines load_lines[INSTRUCTIONS] = {{0}};

#endif
