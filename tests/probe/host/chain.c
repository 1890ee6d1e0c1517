// SPDX-License-Identifier: Apache-2.0
/* Orders of visits: which a prefetcher could follow. */
#include <stdint.h>
#include <stdlib.h>

#include "allocate.h"
#include "chain.h"
#include "host.h"
#include "random.h"

/* An order of visits as a fault in the shuffle might give it, and whether the check lets it pass. */
static bool order_passes(const struct chain *chain, uint32_t *order, unsigned fault)
{
	struct order_check check;
	struct random random;
	random_seed(&random, 3);
	for (size_t i = 0; i < chain->nodes; i++) {
		size_t page = i / 64 * 64;
		switch (fault) {
		case 0: /* none: a shuffle, below */
		case 1: /* forward */
			order[i] = (uint32_t)i;
			break;
		case 2: /* a constant jump that visits every node */
			order[i] = (uint32_t)(i * 4099 % chain->nodes);
			break;
		case 3: /* two jumps in turn, backward and forward */
			order[i] = (uint32_t)(i % 2 ? chain->nodes - 1 - i / 2 : i / 2);
			break;
		case 4:  /* pages in a random order, lines inside each forward */
		default: /* pages in order, lines inside each at random */
			order[i] = (uint32_t)(fault == 4 ? page * 67 % chain->nodes + i % 64 : page + (i * 37 + 11) % 64);
			break;
		}
	}
	for (size_t i = chain->nodes; fault == 0 && i > 1; i--) {
		uint32_t k = random_below(&random, i), kept = order[i - 1];
		order[i - 1] = order[k];
		order[k] = kept;
	}
	return chain_check_order(chain, order, &check) && check.judged && check.passed;
}

/* A shuffle with so many jumps to the line beside, far apart: more than chance gives in ten lives, and few of all. */
static bool beside_passes(struct chain *chain, uint32_t *order, size_t jumps)
{
	struct order_check check;
	(void)order_passes(chain, order, 0);
	for (size_t i = 0; i < jumps; i++) {
		size_t at = (2 * i + 1) * chain->nodes / (2 * jumps);
		uint32_t wanted = order[at - 1] ^ 1, found = order[at];
		for (size_t k = 0; k < chain->nodes; k++)
			if (order[k] == wanted) {
				order[k] = found;
				order[at] = wanted;
				break;
			}
	}
	return chain_check_order(chain, order, &check);
}

/* A shuffle in which so many jumps go no further than half of the buffer: nothing else about it is striking. */
static bool skewed_passes(struct chain *chain, uint32_t *order, size_t jumps)
{
	struct order_check check;
	(void)order_passes(chain, order, 0);
	for (size_t i = 0; i < 2 * jumps; i += 2)
		if ((order[i + 1] + chain->nodes - order[i]) % chain->nodes >= chain->nodes / 2) {
			uint32_t kept = order[i];
			order[i] = order[i + 1];
			order[i + 1] = kept;
		}
	return chain_check_order(chain, order, &check);
}

static bool case_order(struct error *error)
{
	struct chain chain = {.stride_bytes = 64, .line_bytes = 64, .nodes = 1u << 14};
	uint32_t *order = allocate(chain.nodes, sizeof(*order));
	unsigned passed = 0, unjudged = 0;
	for (unsigned fault = 0; fault < 6; fault++)
		passed |= (unsigned)order_passes(&chain, order, fault) << fault;
	/* A window is no promise of randomness over the buffer, and few nodes tell nothing: reported, not judged. */
	for (unsigned i = 0; i < 2; i++) {
		struct order_check check;
		chain.order = i ? CHAIN_RANDOM : CHAIN_WINDOW;
		chain.nodes = i ? ORDER_CHECK_NODES_MIN - 1 : 1u << 14;
		for (uint32_t k = 0; k < chain.nodes; k++)
			order[k] = k;
		unjudged += chain_check_order(&chain, order, &check) && !check.judged && check.repeated_share > 0.9 &&
		            check.adjacent_share == 1;
	}
	chain.order = CHAIN_RANDOM;
	chain.nodes = 1u << 14;
	bool few = beside_passes(&chain, order, 10), many = beside_passes(&chain, order, 60);
	bool even = skewed_passes(&chain, order, 300), skewed = skewed_passes(&chain, order, 1800);
	free(order);
	EXPECT(passed == 1 && unjudged == 2 && few && !many);
	EXPECT(even && !skewed);
	return true;
}

/* Nodes of a chain with one line in each page, counted by what chooses a cache's set: chi-square of so many classes. */
static double unevenness(const struct chain *chain, size_t classes)
{
	size_t *counts = allocate(classes, sizeof(*counts));
	double fair = (double)chain->nodes / (double)classes, sum = 0;
	for (size_t i = 0; i < chain->nodes; i++)
		counts[chain_position(chain, i) / chain->line_bytes % classes]++;
	for (size_t k = 0; k < classes; k++)
		sum += ((double)counts[k] - fair) * ((double)counts[k] - fair) / fair;
	free(counts);
	return sum;
}

/* One line in each page, and lines over all sets: of a first-level cache of 64 sets, and of a second-level one of 2048. */
static bool case_spread(struct error *error)
{
	for (uint64_t seed = 0; seed < 20; seed++) {
		struct chain chain = {
			.stride_bytes = 4096, .line_bytes = 64, .nodes = 8192, .order = CHAIN_RANDOM, .seed = seed};
		for (size_t i = 0; i < chain.nodes; i++)
			EXPECT(chain_position(&chain, i) / 4096 == i && chain_position(&chain, i) % 64 == 0);
		/* 63 and 2047 degrees of freedom: means and six deviations. */
		EXPECT(unevenness(&chain, 64) < 63 + 6 * 11.3 && unevenness(&chain, 2048) < 2047 + 6 * 64);
	}
	return true;
}

#define NODES 4096u
#define PARTS 3u

/* Each number of cursors in each part of the cycle: all go as far as they are asked to, through arcs of their own. */
static bool cursors_good(struct chain *chain, unsigned count, size_t part)
{
	const uint64_t arc = NODES / PARTS / count * 3 / 4; /* marks are only about equally far apart */
	struct chain_cursors *cursors = chain->cursors;
	unsigned char *visits = allocate(NODES, 1);
	chain_begin(chain, count, part, PARTS);
	bool good = chain_arrived(chain);
	for (uint64_t turn = 0; turn < arc; turn++) {
		chain_walk_all(chain, 1);
		for (unsigned k = 0; k < count; k++)
			good = good && !visits[cursors->at[k] / 64]++;
	}
	good = good && chain_arrived(chain);
	for (unsigned k = 0; k < count; k++)
		good = good && cursors->from[k] >= NODES * part / PARTS && cursors->from[k] < NODES * (part + 1) / PARTS;
	/* Beyond its end an arc goes on into the next; laps are as good. */
	chain_walk_all(chain, NODES + 7);
	good = good && chain_arrived(chain);
	free(visits);
	return good;
}

static bool case_cursors(struct error *error)
{
	static struct chain_cursors cursors;
	unsigned char *memory = aligned_alloc(64, (size_t)NODES * 64);
	bool good = memory != NULL;
	struct chain chain = {.base = memory,
	                      .size_bytes = (size_t)NODES * 64,
	                      .stride_bytes = 64,
	                      .line_bytes = 64,
	                      .seed = 5,
	                      .cursors = &cursors};
	good = good && chain_build(&chain, error);
	for (unsigned links = 0; good && links < 2; links++) {
		/* Links that are addresses, then offsets: the same nodes in the same order. */
		chain.offsets = links;
		for (size_t i = 0; links && i < NODES; i++)
			*(uint64_t *)(void *)(memory + i * 64) -= (uint64_t)(uintptr_t)memory;
		for (unsigned count = 1; count <= CHAIN_CURSORS_MAX; count++)
			for (size_t part = 0; part < PARTS; part++)
				good = good && cursors_good(&chain, count, part);
	}
	/* A chain walked twice, another not at all, and a turn left out. */
	bool arrived = true, twice = false;
	for (unsigned k = 0; k < 4; k++) {
		chain_begin(&chain, 4, 0, 1);
		chain_walk_all(&chain, 10);
		arrived = arrived && chain_arrived(&chain);
		cursors.at[k] = cursors.at[(k + 1) % 4];
		twice = twice || chain_arrived(&chain);
	}
	chain_begin(&chain, 4, 0, 1);
	cursors.hops++;
	bool short_of = chain_arrived(&chain);
	free(memory);
	EXPECT(good && arrived && !twice && !short_of);
	return true;
}

HOST_CASES(CASE(order), CASE(spread), CASE(cursors))
