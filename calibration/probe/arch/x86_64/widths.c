// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)

#include "../../load.h"
#include "../arch.h"

extern const struct load_kernels load_sse2, load_avx2, load_avx512;

ARCH_HAS(sse2)
ARCH_HAS(avx2)
ARCH_HAS(avx512f)

const struct load_width load_widths[] = {
	{"avx512", has_avx512f, &load_avx512},
	{"avx2", has_avx2, &load_avx2},
	{"sse2", has_sse2, &load_sse2},
	{0},
};

#endif
