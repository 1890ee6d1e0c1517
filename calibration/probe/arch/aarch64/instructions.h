/* SPDX-License-Identifier: Apache-2.0 */
/* Instruction-level code for aarch64. The baseline is armv8-a. */
#pragma once

#include <stdint.h>

#define ARCH_COUNTER "cntvct"
#define ARCH_CLOCKSOURCE "arch_sys_counter"
#define ARCH_ADD "add %0, %0, %2"
#define ARCH_FOLLOW "ldr %0, [%0]"
#define ARCH_FOLLOW_OFFSET "ldr %0, [%2, %0]"
#define ARCH_AGAIN "subs %1, %1, #1\n\tb.ne 1b"
#include "../loops.h"

/* Start of a timed stretch: earlier instructions are done, later ones have not begun. */
static inline uint64_t arch_counter_start(void)
{
	uint64_t ticks;
	__asm__ volatile("isb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(ticks)::"memory");
	return ticks;
}

static inline uint64_t arch_counter_stop(void)
{
	uint64_t ticks;
	/* ISB alone does not wait for loads; DSB does, so that the last load of a chase is inside the window. */
	__asm__ volatile("dsb ld\n\tisb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(ticks)::"memory");
	return ticks;
}

/* One read of a loop that reads nothing else. The barrier stays: the architecture lets reads of the counter pass each
 * other without it. */
static inline uint64_t arch_counter_read(void)
{
	uint64_t ticks;
	__asm__ volatile("isb\n\tmrs %0, cntvct_el0" : "=r"(ticks)::"memory");
	return ticks;
}

static inline void arch_relax(void)
{
	__asm__ volatile("yield" ::: "memory");
}

/* Asks for a line to be written. */
static inline void arch_prefetch_to_write(const void *line)
{
	__builtin_prefetch(line, 1, 3);
}

static inline void arch_store_fence(void)
{
	__asm__ volatile("dsb st" ::: "memory");
}

static inline void arch_flush_line(const void *line)
{
	__asm__ volatile("dc civac, %0" ::"r"(line) : "memory");
}

static inline void arch_full_fence(void)
{
	__asm__ volatile("dsb sy" ::: "memory");
}

/* As on x86_64. */
static inline __attribute__((always_inline)) uint64_t arch_delay(uint64_t carry, uint64_t units)
{
	__asm__ volatile("b 2f\n"
	                 ".p2align 4\n"
	                 "1:\n\t"
	                 ".rept 32\n\tadd %0, %0, #1\n\t.endr\n"
	                 "2:\n\t"
	                 "subs %1, %1, #32\n\t"
	                 "b.cs 1b\n\t"
	                 ".irp bit, 4, 3, 2, 1, 0\n\t"
	                 "tbz %1, #\\bit, 3f\n\t"
	                 ".rept 1 << \\bit\n\tadd %0, %0, #1\n\t.endr\n"
	                 "3:\n\t"
	                 ".endr"
	                 : "+&r"(carry), "+&r"(units)
	                 :
	                 : "cc");
	return carry;
}

/* As on x86_64; an instruction is four bytes here. */
#define ARCH_NOPS_SLED 1024u
static inline __attribute__((always_inline)) void arch_nops(uint64_t units)
{
	uint64_t turns = units / ARCH_NOPS_SLED, entry;
	__asm__ volatile("adr %1, 2f\n\t"
	                 "sub %1, %1, %2, lsl #2\n\t"
	                 "br %1\n"
	                 "1:\n\t"
	                 ".rept 1024\n\tnop\n\t.endr\n"
	                 "2:\n\t"
	                 "subs %0, %0, #1\n\t"
	                 "b.cs 1b"
	                 : "+&r"(turns), "=&r"(entry)
	                 : "r"(units % ARCH_NOPS_SLED)
	                 : "cc");
}

/* The fixed work of PMA jitter, as on x86_64: two dependent operations a turn. */
static inline uint32_t arch_pma_work(uint32_t loops, uint32_t start)
{
	uint32_t sum = start, term = loops, turns = loops;
	__asm__ volatile(".p2align 4\n"
	                 "1:\n\t"
	                 "add %w0, %w0, %w1\n\t"
	                 "and %w0, %w0, %w3\n\t"
	                 "add %w1, %w1, #3\n\t"
	                 "subs %w2, %w2, #1\n\t"
	                 "b.ne 1b"
	                 : "+&r"(sum), "+&r"(term), "+&r"(turns)
	                 : "r"(0x7f0f0000u)
	                 : "cc");
	return sum;
}
