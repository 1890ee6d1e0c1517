// SPDX-License-Identifier: Apache-2.0
/* Several chains walked by one thread, a loop for each number of them. A load depends on the one before in its own chain and
 * on no other, so as many are under way as the core can have. Cursors stay in registers as far as there are enough; the
 * rest, on x86_64 from some 13 cursors on, lie on the stack, in the first-level cache: a load and a store more for each
 * hop, a few clocks that the load after waits for. What the loop costs is measured on lines in that cache, for the same
 * number of cursors. */
#include "chain.h"

/* Written out by the compiler for a number known to it: no cursor is picked by a variable, so each has its own place. */
static inline __attribute__((always_inline)) void walk(uint64_t origin, uint64_t *at, unsigned cursors, uint64_t turns)
{
	uint64_t here[CHAIN_CURSORS_MAX];
#pragma GCC unroll 32
	for (unsigned k = 0; k < cursors; k++)
		here[k] = at[k];
	for (uint64_t turn = 0; turn < turns; turn++) {
#pragma GCC unroll 32
		for (unsigned k = 0; k < cursors; k++)
			here[k] = *(const volatile uint64_t *)(uintptr_t)(origin + here[k]);
	}
#pragma GCC unroll 32
	for (unsigned k = 0; k < cursors; k++)
		at[k] = here[k];
}

typedef void (*walk_cursors)(uint64_t origin, uint64_t *at, uint64_t turns);

#define WALK(n)                                                                                                        \
	static void walk_##n(uint64_t origin, uint64_t *at, uint64_t turns)                                                \
	{                                                                                                                  \
		walk(origin, at, n, turns);                                                                                    \
	}
#define FOUR(of, a, b, c, d) of(a) of(b) of(c) of(d)
#define ALL(of)                                                                                                        \
	FOUR(of, 1, 2, 3, 4)                                                                                               \
	FOUR(of, 5, 6, 7, 8)                                                                                               \
	FOUR(of, 9, 10, 11, 12)                                                                                            \
	FOUR(of, 13, 14, 15, 16)                                                                                           \
	FOUR(of, 17, 18, 19, 20) FOUR(of, 21, 22, 23, 24) FOUR(of, 25, 26, 27, 28) FOUR(of, 29, 30, 31, 32)
#define ROW(n) [n] = walk_##n,

ALL(WALK)

static const walk_cursors walks[CHAIN_CURSORS_MAX + 1] = {ALL(ROW)};

void chain_walk_cursors(uint64_t origin, uint64_t *at, unsigned cursors, uint64_t turns)
{
	walks[cursors](origin, at, turns);
}
