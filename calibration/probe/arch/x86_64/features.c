// SPDX-License-Identifier: Apache-2.0
/* Instruction sets by CPUID; those with registers of their own count only where the kernel saves these (XGETBV). */
#if defined(__x86_64__)

#include <cpuid.h>
#include <string.h>

#include "../arch.h"

#define STATE_NONE 0u
#define STATE_AVX 0x06u    /* XMM and YMM */
#define STATE_AVX512 0xe6u /* and opmask, ZMM */

enum output { EAX, EBX, ECX, EDX };

static const struct {
	const char *name;
	unsigned leaf;
	enum output output;
	unsigned bit, state;
} features[] = {
	{"sse2", 1, EDX, 26, STATE_NONE},
	{"sse4_2", 1, ECX, 20, STATE_NONE},
	{"avx", 1, ECX, 28, STATE_AVX},
	{"fma", 1, ECX, 12, STATE_AVX},
	{"avx2", 7, EBX, 5, STATE_AVX},
	{"avx512f", 7, EBX, 16, STATE_AVX512},
	{"avx512bw", 7, EBX, 30, STATE_AVX512},
	{"avx512vl", 7, EBX, 31, STATE_AVX512},
	{"clflushopt", 7, EBX, 23, STATE_NONE},
	{"rdtscp", 0x80000001, EDX, 27, STATE_NONE},
	{"erms", 7, EBX, 9, STATE_NONE},
	{"movdir64b", 7, ECX, 28, STATE_NONE},
	{"clzero", 0x80000008, EBX, 0, STATE_NONE},
};

static bool saved(unsigned wanted)
{
	unsigned registers[4], low, high;
	if (wanted == STATE_NONE)
		return true;
	if (!__get_cpuid(1, &registers[EAX], &registers[EBX], &registers[ECX], &registers[EDX]) ||
	    !(registers[ECX] >> 27 & 1)) /* OSXSAVE */
		return false;
	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	return (low & wanted) == wanted;
}

const char *arch_feature(size_t number, bool *found)
{
	if (number >= sizeof(features) / sizeof(features[0]))
		return NULL;
	unsigned registers[4];
	*found = __get_cpuid_count(features[number].leaf, 0, &registers[EAX], &registers[EBX], &registers[ECX],
	                           &registers[EDX]) != 0 &&
	         (registers[features[number].output] >> features[number].bit & 1) && saved(features[number].state);
	return features[number].name;
}

bool arch_hypervisor(char name[ARCH_HYPERVISOR_BYTES])
{
	unsigned eax, ebx, ecx, edx;
	/* Leaf 1 ECX[31] is 0 on every processor; a hypervisor sets it, and then answers leaf 0x40000000. */
	if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx >> 31 & 1))
		return false;
	__cpuid(0x40000000, eax, ebx, ecx, edx);
	const unsigned words[] = {ebx, ecx, edx};
	memcpy(name, words, sizeof(words));
	name[sizeof(words)] = '\0';
	for (char *at = name; *at; at++)
		if (*at < ' ' || *at > '~')
			*at = '?';
	return name[0] != '\0';
}

enum arch_smi arch_smi(void)
{
	char name[13] = "";
	unsigned eax, words[3];
	__cpuid(0, eax, words[0], words[2], words[1]);
	memcpy(name, words, sizeof(words));
	if (!strcmp(name, "GenuineIntel"))
		return ARCH_SMI_INTEL;
	if (strcmp(name, "AuthenticAMD") != 0)
		return ARCH_SMI_NONE;
	__cpuid(1, eax, words[0], words[2], words[1]);
	/* The base family is 0xf in all of them, and the extended one is added to it. */
	return (eax >> 8 & 0xf) + (eax >> 20 & 0xff) >= 0x17 ? ARCH_SMI_AMD : ARCH_SMI_NONE;
}

size_t arch_sve_bytes(void)
{
	return 0;
}

#endif
