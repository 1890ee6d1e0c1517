/* SPDX-License-Identifier: Apache-2.0 */
/* What each architecture provides, so that no kernel asks which one it runs on. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#if defined(__x86_64__)
#include "x86_64/instructions.h"
#elif defined(__aarch64__)
#include "aarch64/instructions.h"
#else
/* Everything else in C; two architectures with a counter of their own. */
#define ARCH_GENERIC
#if defined(__powerpc64__)
#include "ppc64le/instructions.h"
#elif defined(__riscv) && __riscv_xlen == 64
#include "riscv64/instructions.h"
#else
#include "generic/instructions.h"
#endif
#endif

/* Whether there are stores that go past the caches. */
#ifndef ARCH_STREAMS
#define ARCH_STREAMS true
#endif
/* What memory gives to a core at once. */
#ifndef ARCH_LINE_BYTES
#define ARCH_LINE_BYTES 64u
#endif
/* Whether an instruction takes a line out of all caches. */
#ifndef ARCH_FLUSHES
#define ARCH_FLUSHES true
#endif
/* Core clocks from one addition of two registers to the next that waits for it. */
#ifndef ARCH_ADDITION_CLOCKS
#define ARCH_ADDITION_CLOCKS 1u
#endif

/* What the kernel calls a clock source that reads the counter, where all processors of the architecture have a good one. */
#ifndef ARCH_CLOCKSOURCE
#define ARCH_CLOCKSOURCE NULL
#endif

/* Whether the counter runs at a constant rate on all CPUs, by the processor's own word; else why not. */
bool arch_counter_invariant(const char **reason);
/* Whether the kernel's current clock source says that it trusts the counter too. */
bool arch_counter_clocksource(const char *current);
/* The name of the instruction set with this number, and whether processor and kernel have it; NULL beyond the last. */
const char *arch_feature(size_t number, bool *found);
/* Whether processor and kernel have the instruction set of this name. */
static inline bool arch_has(const char *name)
{
	const char *known;
	bool found;
	for (size_t i = 0; (known = arch_feature(i, &found)) != NULL; i++)
		if (!strcmp(known, name))
			return found;
	return false;
}
/* Defines has_NAME, which says so of one. */
#define ARCH_HAS(name)                                                                                                 \
	static bool has_##name(void)                                                                                       \
	{                                                                                                                  \
		return arch_has(#name);                                                                                        \
	}
/* The name by which a hypervisor makes itself known to its guests' processors, 12 characters at most; false where the
 * architecture has no such name, or none is given. */
#define ARCH_HYPERVISOR_BYTES 13
bool arch_hypervisor(char name[ARCH_HYPERVISOR_BYTES]);
/* By what the processor counts the system management interrupts of its firmware. */
enum arch_smi { ARCH_SMI_NONE, ARCH_SMI_INTEL, ARCH_SMI_AMD };
enum arch_smi arch_smi(void);
/* Bytes of a scalable vector as the kernel sets it for this thread; 0 where there is none. */
size_t arch_sve_bytes(void);
