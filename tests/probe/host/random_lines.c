// SPDX-License-Identifier: Apache-2.0
/* The order of random_reads: each line once in a pass, and none that hardware could follow. */
#include <stdlib.h>

#include "allocate.h"
#include "chain.h"
#include "host.h"
#include "random_lines.h"

#define CHANNELS 16u
#define IN_FLIGHT 32u

static bool case_once(struct error *error)
{
	for (unsigned bits = 6; bits <= 20; bits++) {
		const size_t lines = (size_t)1 << bits;
		unsigned char *visits = allocate(lines, 1);
		bool once = true;
		for (size_t i = 0; i < lines; i++) {
			size_t at = random_line(i, lines);
			once = once && at % ARCH_LINE_BYTES == 0 && at / ARCH_LINE_BYTES < lines &&
			       !visits[at / ARCH_LINE_BYTES]++ && random_line(i + lines, lines) == at;
		}
		free(visits);
		EXPECT(once);
	}
	return true;
}

/* How many of 16 channels each 32 lines in a row fall to, on average: 13.97 by chance, 16 where lines are dealt in turn. The
 * channel is chosen by the lowest bits of the line's number, or by higher ones. */
static double channels(uint64_t lines, unsigned shift)
{
	uint64_t used = 0;
	for (uint64_t i = 0; i < lines; i += IN_FLIGHT) {
		unsigned seen = 0;
		for (uint64_t k = 0; k < IN_FLIGHT; k++)
			seen |= 1u << (random_line(i + k, lines) / ARCH_LINE_BYTES >> shift) % CHANNELS;
		used += (unsigned)__builtin_popcount(seen);
	}
	return (double)used / ((double)lines / IN_FLIGHT);
}

static bool case_order(struct error *error)
{
	for (unsigned bits = 16; bits <= 20; bits += 2) {
		struct chain chain = {.stride_bytes = 64, .line_bytes = 64, .nodes = (size_t)1 << bits};
		struct order_check check;
		uint32_t *order = allocate(chain.nodes, sizeof(*order));
		for (size_t i = 0; i < chain.nodes; i++)
			order[i] = (uint32_t)(random_line(i, chain.nodes) / ARCH_LINE_BYTES);
		(void)chain_check_order(&chain, order, &check);
		free(order);
		/* Like chance but for the lengths of jumps, which an order of so few operations does not spread evenly. */
		EXPECT(check.adjacent_share <= check.adjacent_limit && check.repeated_share < 0.02);
		EXPECT(check.recent_page_share < 2 * check.recent_page_limit);
		for (unsigned shift = 0; shift <= 6; shift += 2)
			EXPECT(channels(chain.nodes, shift) > 13.5 && channels(chain.nodes, shift) < 14.5);
	}
	return true;
}

HOST_CASES(CASE(once), CASE(order))
