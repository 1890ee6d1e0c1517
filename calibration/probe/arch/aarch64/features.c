// SPDX-License-Identifier: Apache-2.0
/* Instruction sets by the kernel's own word in the auxiliary vector: what it does not save it does not name. */
#if defined(__aarch64__)

#include <sys/auxv.h>
#include <sys/prctl.h>

#include "../arch.h"

#ifndef PR_SVE_GET_VL
#define PR_SVE_GET_VL 51
#endif
#define VECTOR_LENGTH_MASK 0xffff /* the rest of the answer is flags */

static const struct {
	const char *name;
	unsigned long vector;
	unsigned bit;
} features[] = {
	{"neon", AT_HWCAP, 1}, {"crc32", AT_HWCAP, 7}, {"lse", AT_HWCAP, 8}, {"sve", AT_HWCAP, 22}, {"sve2", AT_HWCAP2, 1},
};

const char *arch_feature(size_t number, bool *found)
{
	if (number >= sizeof(features) / sizeof(features[0]))
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
	return ARCH_SMI_NONE; /* firmware at EL3 counts nothing for others */
}

size_t arch_sve_bytes(void)
{
	int answer = prctl(PR_SVE_GET_VL);
	return answer < 0 ? 0 : (size_t)(answer & VECTOR_LENGTH_MASK);
}

#endif
