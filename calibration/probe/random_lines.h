/* SPDX-License-Identifier: Apache-2.0 */
/* The order in which random_reads visits the lines of a buffer. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "arch/arch.h"
#include "load.h"

/* Odd, so that multiplying by them is a permutation of any power of two; their bits are of no pattern (the golden ratio,
 * and a constant of splitmix64). */
#define RANDOM_LINES_FIRST 0x9e3779b97f4a7c15u
#define RANDOM_LINES_SECOND 0xbf58476d1ce4e5b9u

/* Brings high bits, which change with every number, down to those that choose the cache set and the channel: of 32 lines in
 * a row as many fall to one of 16 channels as by chance, from 4 MiB on. */
#define RANDOM_LINES_SHIFT 7

/* Steps are of LOAD_LINE_BYTES. Where lines are longer, a pass visits each so often: a step in between would read a line a
 * second time, which memory moves twice and which would count half. */
#define RANDOM_LINES_VISITS (ARCH_LINE_BYTES / LOAD_LINE_BYTES)

/* Offset of the line to visit as number `number` of so many, a power of two; after the last the order begins anew. Each step is a permutation of the
 * lines, so each is visited once in a pass; and the number alone decides, so no load waits for another. Few operations,
 * because what a core can hold of them limits how many loads it has under way: with two rounds of this a core that holds
 * 256 read a quarter less. */
static inline __attribute__((always_inline)) size_t random_line(uint64_t number, uint64_t lines)
{
	uint64_t line = number * RANDOM_LINES_FIRST & (lines - 1);
	line ^= line >> RANDOM_LINES_SHIFT;
	return line * (RANDOM_LINES_SECOND * ARCH_LINE_BYTES) & (lines - 1) * ARCH_LINE_BYTES;
}
