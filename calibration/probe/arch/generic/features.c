// SPDX-License-Identifier: Apache-2.0
/* Instruction sets by the kernel's own word in the auxiliary vector: what it does not save it does not name. */
#include "../arch.h"

#ifndef __x86_64__

#include <sys/auxv.h>
#include <sys/prctl.h>

static const struct {
	const char *name;
	unsigned long vector;
	unsigned bit;
} features[] = {
#if defined(__aarch64__)
	{"neon", AT_HWCAP, 1},
	{"crc32", AT_HWCAP, 7},
	{"lse", AT_HWCAP, 8},
	{"sve", AT_HWCAP, 22},
	{"sve2", AT_HWCAP2, 1},
/* None of the others is used, but the document names them. */
#elif defined(__powerpc64__)
	{"vsx", AT_HWCAP, 7},
	{"arch_2_07", AT_HWCAP2, 31},
	{"arch_3_00", AT_HWCAP2, 23},
	{"arch_3_1", AT_HWCAP2, 18},
#elif defined(__riscv)
	{"v", AT_HWCAP, 'v' - 'a'},
#endif
	{0},
};

const char *arch_feature(size_t number, bool *found)
{
	if (number >= sizeof(features) / sizeof(features[0]) || !features[number].name)
		return NULL;
	*found = getauxval(features[number].vector) >> features[number].bit & 1;
	return features[number].name;
}

bool arch_hypervisor(char name[ARCH_HYPERVISOR_BYTES])
{
	(void)name;
	return false; /* what there is to ask answers the kernel only, not a program */
}

enum arch_smi arch_smi(void)
{
	return ARCH_SMI_NONE; /* there are none, or firmware (at EL3) counts them for itself */
}

size_t arch_sve_bytes(void)
{
#ifdef __aarch64__
	int answer = prctl(PR_SVE_GET_VL);
	return answer < 0 ? 0 : (size_t)(answer & PR_SVE_VL_LEN_MASK);
#else
	return 0;
#endif
}

#endif
