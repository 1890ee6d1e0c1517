/* SPDX-License-Identifier: Apache-2.0 */
/* Loops of 64 instructions of which each waits for the one before, in the instructions of x86_64 or aarch64: %0 is what they
 * work on, %1 how often ARCH_AGAIN goes on, %2 what is added, or the base of offsets. */
#pragma once

#include <stdint.h>

#define ARCH_BLOCKS_OF(instruction) ".p2align 4\n1:\n\t.rept 64\n\t" instruction "\n\t.endr\n\t" ARCH_AGAIN

/* `blocks` x 64 additions: 64 core clocks a block. Register operands, because recent cores fold additions of small constants
 * away in the renamer. */
static inline uint64_t arch_dependent_adds(uint64_t blocks)
{
	/* Early clobbers (&) everywhere: an input of equal value must not share a register that the loop changes. */
	uint64_t sum = 1, one = 1;
	__asm__ volatile(ARCH_BLOCKS_OF(ARCH_ADD) : "+&r"(sum), "+&r"(blocks) : "r"(one) : "cc");
	return sum;
}

/* Follows blocks x 64 pointers. */
static inline void *arch_chase_pointers(void *at, uint64_t blocks)
{
	__asm__ volatile(ARCH_BLOCKS_OF(ARCH_FOLLOW) : "+&r"(at), "+&r"(blocks)::"cc", "memory");
	return at;
}

/* The same over offsets from `base`: what lies in memory is no address, so nothing can run ahead by content. */
static inline uint64_t arch_chase_offsets(const void *base, uint64_t at, uint64_t blocks)
{
	__asm__ volatile(ARCH_BLOCKS_OF(ARCH_FOLLOW_OFFSET) : "+&r"(at), "+&r"(blocks) : "r"(base) : "cc", "memory");
	return at;
}
