/* SPDX-License-Identifier: Apache-2.0 */
/* What other architectures do in assembly, in C11. An empty assembly statement that may change a value keeps the compiler
 * from computing ahead: what follows is still to be executed, one operation after the other. An architecture that has a
 * counter, or instructions for its cache lines, includes this after its own: ARCH_COUNTER, how the counter is read
 * (ARCH_COUNTER_READ, into operand 0) and how with fences around (ARCH_COUNTER_FENCED), and arch_relax. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

/* No non-temporal stores: where the compiler has them at all, it makes regular ones of them. */
#define ARCH_STREAMS false

#ifndef ARCH_COUNTER
#include <time.h>

/* Of no processor: the kernel's clock stands in where code counts ticks before it looks whether there is a counter. */
#define ARCH_COUNTER "monotonic_raw"
static inline uint64_t arch_counter_read(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC_RAW, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline uint64_t arch_counter_start(void)
{
	return arch_counter_read();
}

static inline void arch_relax(void)
{
	__asm__ volatile("" ::: "memory");
}
#else
static inline uint64_t arch_counter_read(void)
{
	uint64_t ticks;
	__asm__ volatile(ARCH_COUNTER_READ : "=r"(ticks)::"memory");
	return ticks;
}

static inline uint64_t arch_counter_start(void)
{
	uint64_t ticks;
	__asm__ volatile(ARCH_COUNTER_FENCED : "=r"(ticks)::"memory");
	return ticks;
}
#endif

static inline uint64_t arch_counter_stop(void)
{
	return arch_counter_start();
}

#ifndef ARCH_FLUSHES
#define ARCH_FLUSHES false
/* Never called: who needs it asks ARCH_FLUSHES first, and refuses. */
static inline void arch_flush_line(const void *line)
{
	(void)line;
}
#endif

static inline void arch_prefetch_to_write(const void *line)
{
	__builtin_prefetch(line, 1, 3);
}

static inline void arch_full_fence(void)
{
	atomic_thread_fence(memory_order_seq_cst);
}

static inline void arch_store_fence(void)
{
	arch_full_fence();
}

/* Additions of a register each, of the machine's own word: longer ones would take several instructions. */
static inline uint64_t arch_dependent_adds(uint64_t blocks)
{
	unsigned long sum = 1, one = 1;
	__asm__ volatile("" : "+r"(one));
	for (; blocks; blocks--)
#pragma GCC unroll 64
		for (unsigned i = 0; i < 64; i++) {
			sum += one;
			__asm__ volatile("" : "+r"(sum));
		}
	return sum;
}

#define ARCH_ADD(carry)                                                                                                \
	do {                                                                                                               \
		(carry)++;                                                                                                     \
		__asm__ volatile("" : "+r"(carry));                                                                            \
	} while (0)

/* As on x86_64: blocks of 32 and, for the rest, of each power of two below. */
static inline __attribute__((always_inline)) uint64_t arch_delay(uint64_t carry, uint64_t units)
{
	unsigned long sum = (unsigned long)carry, left = (unsigned long)units;
	for (; left >= 32; left -= 32)
#pragma GCC unroll 32
		for (unsigned i = 0; i < 32; i++)
			ARCH_ADD(sum);
#pragma GCC unroll 5
	for (unsigned block = 16; block; block /= 2)
		if (left & block)
#pragma GCC unroll 16
			for (unsigned i = 0; i < block; i++)
				ARCH_ADD(sum);
	return sum;
}

/* `units` no-ops, and a branch for every 32 of them and for each power of two below: C has no jump into a sled. */
#define ARCH_NOP __asm__ volatile("nop")
static inline __attribute__((always_inline)) void arch_nops(uint64_t units)
{
	unsigned long left = (unsigned long)units;
	for (; left >= 32; left -= 32)
#pragma GCC unroll 32
		for (unsigned i = 0; i < 32; i++)
			ARCH_NOP;
#pragma GCC unroll 5
	for (unsigned block = 16; block; block /= 2)
		if (left & block)
#pragma GCC unroll 16
			for (unsigned i = 0; i < block; i++)
				ARCH_NOP;
}

/* A link is 64 bits wide in memory, whatever a pointer is. */
static inline void *arch_chase_pointers(void *at, uint64_t blocks)
{
	for (; blocks; blocks--)
#pragma GCC unroll 64
		for (unsigned i = 0; i < 64; i++) {
			at = (void *)(uintptr_t)*(const uint64_t *)at;
			__asm__ volatile("" : "+r"(at)::"memory");
		}
	return at;
}

static inline uint64_t arch_chase_offsets(const void *base, uint64_t at, uint64_t blocks)
{
	uintptr_t offset = (uintptr_t)at;
	for (; blocks; blocks--)
#pragma GCC unroll 64
		for (unsigned i = 0; i < 64; i++) {
			offset = (uintptr_t)*(const uint64_t *)(const void *)((const unsigned char *)base + offset);
			__asm__ volatile("" : "+r"(offset)::"memory");
		}
	return offset;
}

/* The fixed work of PMA jitter, as on x86_64: two dependent operations a turn. */
static inline uint32_t arch_pma_work(uint32_t loops, uint32_t start)
{
	uint32_t sum = start, term = loops;
	for (uint32_t turns = loops; turns; turns--) {
		sum += term;
		__asm__ volatile("" : "+r"(sum));
		sum &= 0x7f0f0000u;
		term += 3;
		__asm__ volatile("" : "+r"(sum), "+r"(term));
	}
	return sum;
}
