// SPDX-License-Identifier: Apache-2.0
#include "../arch.h"

#ifdef ARCH_GENERIC

#include "../../work.h"

const struct work works[] = {
	WORK_SCALAR,
	{0},
};

#endif
