/* SPDX-License-Identifier: Apache-2.0 */
/* Instruction-level code for x86_64. The baseline is x86-64-v1; nothing here needs more than SSE2 and RDTSCP. */
#pragma once

#include <stdint.h>

#define ARCH_COUNTER "tsc"
#define ARCH_ADD "add %2, %0"
#define ARCH_FOLLOW "mov (%0), %0"
#define ARCH_FOLLOW_OFFSET "mov (%2,%0), %0"
#define ARCH_AGAIN "dec %1\n\tjnz 1b"
#include "../loops.h"

/* Start of a timed stretch: earlier instructions are done, later ones have not begun. */
static inline uint64_t arch_counter_start(void)
{
	uint32_t low, high;
	__asm__ volatile("lfence\n\trdtsc\n\tlfence" : "=a"(low), "=d"(high)::"memory");
	return (uint64_t)high << 32 | low;
}

/* End of a timed stretch: RDTSCP waits for what came before, LFENCE holds back what follows. */
static inline uint64_t arch_counter_stop(void)
{
	uint32_t low, high;
	__asm__ volatile("rdtscp\n\tlfence" : "=a"(low), "=d"(high)::"rcx", "memory");
	return (uint64_t)high << 32 | low;
}

/* One read of a loop that reads nothing else. No fence: an interruption is taken between two instructions that retire, and
 * what had not retired is executed again after it, so that it lies between two reads whatever ran ahead. A fence would
 * double the time of a turn (22 against 11 ns here). Should a processor let two reads pass each other, the difference is
 * negative by a few ticks; the caller must look for that. */
static inline uint64_t arch_counter_read(void)
{
	uint32_t low, high;
	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high)::"memory");
	return (uint64_t)high << 32 | low;
}

static inline void arch_relax(void)
{
	__asm__ volatile("pause" ::: "memory");
}

/* Asks for a line to be written. Processors of this architecture without the instruction take it as a no-op. */
static inline void arch_prefetch_to_write(const void *line)
{
	__asm__ volatile("prefetchw %0" ::"m"(*(const char *)line));
}

/* Non-temporal stores are done when this returns. */
static inline void arch_store_fence(void)
{
	__asm__ volatile("sfence" ::: "memory");
}

/* Takes a line out of all caches, written back if it must be. */
static inline void arch_flush_line(const void *line)
{
	__asm__ volatile("clflush (%0)" ::"r"(line) : "memory");
}

/* Everything before is visible to other cores before anything after. */
static inline void arch_full_fence(void)
{
	__asm__ volatile("mfence" ::: "memory");
}

/* `units` dependent additions, units >= 1; `carry` ties one delay to the next, so that a core that looks ahead
 * cannot run two delays at once. Blocks of 32 and, for the rest, of each power of two below: in a loop of single additions a
 * thread waits for its turn to branch, and takes twice the time while the core's other thread branches too. */
static inline __attribute__((always_inline)) uint64_t arch_delay(uint64_t carry, uint64_t units)
{
	__asm__ volatile("jmp 2f\n"
	                 ".p2align 4\n"
	                 "1:\n\t"
	                 ".rept 32\n\tadd $1, %0\n\t.endr\n"
	                 "2:\n\t"
	                 "sub $32, %1\n\t"
	                 "jnc 1b\n\t"
	                 ".irp block, 16, 8, 4, 2, 1\n\t"
	                 "testb $\\block, %b1\n\t"
	                 "jz 3f\n\t"
	                 ".rept \\block\n\tadd $1, %0\n\t.endr\n"
	                 "3:\n\t"
	                 ".endr"
	                 : "+&r"(carry), "+&r"(units)
	                 :
	                 : "cc");
	return carry;
}

/* `units` no-op instructions, exactly: a jump into a sled, so far before its end. A no-op does nothing but pass through the
 * core's front end and take a place among the instructions not yet retired, which is what keeps later loads away. The jump
 * has the same target every time, and is predicted. Beyond the sled's length all of it is run again, which adds one
 * subtraction and one jump for each such turn: 2 instructions in 1026. Longer sleds would not fit the nearest caches. */
#define ARCH_NOPS_SLED 1024u
static inline __attribute__((always_inline)) void arch_nops(uint64_t units)
{
	uint64_t turns = units / ARCH_NOPS_SLED, entry;
	__asm__ volatile("lea 2f(%%rip), %1\n\t"
	                 "sub %2, %1\n\t"
	                 "jmp *%1\n"
	                 "1:\n\t"
	                 ".rept 1024\n\tnop\n\t.endr\n"
	                 "2:\n\t"
	                 "sub $1, %0\n\t"
	                 "jnc 1b"
	                 : "+&r"(turns), "=&r"(entry)
	                 : "r"(units % ARCH_NOPS_SLED)
	                 : "cc");
}

/* The fixed work of PMA jitter, turn i of k: a = (a + 3*i + k) & 0x7f0f0000. Addition and AND depend on each other,
 * so a turn takes two core clocks on every core; the index arithmetic runs beside them. */
static inline uint32_t arch_pma_work(uint32_t loops, uint32_t start)
{
	uint32_t sum = start, term = loops, turns = loops;
	__asm__ volatile(".p2align 4\n"
	                 "1:\n\t"
	                 "addl %1, %0\n\t"
	                 "andl $0x7f0f0000, %0\n\t"
	                 "addl $3, %1\n\t"
	                 "decl %2\n\t"
	                 "jnz 1b"
	                 : "+&r"(sum), "+&r"(term), "+&r"(turns)
	                 :
	                 : "cc");
	return sum;
}
