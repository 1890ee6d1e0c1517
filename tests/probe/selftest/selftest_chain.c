// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "chain.h"
#include "selftest.h"

/* Walks the chain link by link and counts the nodes until it is back. */
static size_t lap(struct chain *chain, size_t limit)
{
	uint64_t first = chain->at;
	size_t count = 0;
	do {
		chain_walk_payload(chain, 1, 0);
		count++;
	} while (chain->at != first && count < limit);
	return count;
}

static bool check_chain(struct region *region, enum chain_order order, size_t size, size_t stride, struct error *error)
{
	struct chain chain = {.base = region->start,
	                      .size_bytes = size,
	                      .stride_bytes = stride,
	                      .line_bytes = 64,
	                      .order = order,
	                      .window_bytes = 4096 > stride ? 4096 : stride,
	                      .seed = size + stride};
	memset(region->start, 0xff, size);
	if (!chain_build(&chain, error))
		return false;
	EXPECT(chain.proved && chain.nodes == size / stride);
	uint64_t first = chain.at;
	EXPECT(lap(&chain, 2 * chain.nodes) == chain.nodes);
	/* The unrolled walk, which is what is timed, ends where the plain one does. */
	size_t hops = (chain.nodes % 64 ? 64 : 1) * chain.nodes;
	chain_walk(&chain, hops / 64 ? hops / 64 : 1);
	chain_walk_payload(&chain, hops / 64 ? 0 : (64 / chain.nodes * chain.nodes + chain.nodes - 64) % chain.nodes, 0);
	EXPECT(chain.at == first);
	return true;
}

bool case_chain(struct error *error)
{
	struct region region;
	uint32_t order[64];
	if (!selftest_map(&region, 4u << 20, 0, PAGES_BASE, error))
		return false;
	bool good = true;
	const size_t sizes[] = {64, 4096, 40960, 1u << 20, 3u << 20, 4u << 20}, strides[] = {64, 128, 4096};
	for (size_t s = 0; good && s < sizeof(sizes) / sizeof(sizes[0]); s++)
		for (size_t k = 0; good && k < sizeof(strides) / sizeof(strides[0]); k++)
			for (int o = CHAIN_RANDOM; good && o <= CHAIN_BACKWARD && sizes[s] >= strides[k]; o++)
				good = check_chain(&region, (enum chain_order)o, sizes[s], strides[k], error);
	good = good && check_chain(&region, CHAIN_FORWARD, 4096, 8, error);
	/* One seed makes one chain; another seed another. */
	struct chain one = {.base = region.start, .size_bytes = 65536, .stride_bytes = 64, .line_bytes = 64, .seed = 5};
	uint64_t ends[3] = {0};
	for (unsigned i = 0; good && i < 3; i++) {
		one.seed = i < 2 ? 5 : 6;
		good = chain_build(&one, error);
		if (good)
			chain_walk(&one, 3);
		ends[i] = one.at;
	}
	bool seeds = ends[0] == ends[1] && ends[1] != ends[2];
	/* Four ways to be no single cycle, and the proof finds each. */
	struct chain small = {.base = region.start, .size_bytes = 4096, .stride_bytes = 64, .line_bytes = 64, .nodes = 64};
	for (uint32_t i = 0; i < 64; i++)
		order[i] = i;
	chain_link(&small, order);
	bool proved = chain_prove(&small, order);
	uint64_t *link = (uint64_t *)(void *)(region.start + 640);
	uint64_t sound = *link;
	*link = (uint64_t)(uintptr_t)region.start; /* node 10 closes a short cycle */
	bool short_cycle = chain_prove(&small, order);
	*link = sound;
	order[3] = 4; /* node 3 is never visited, node 4 twice */
	chain_link(&small, order);
	bool twice = chain_prove(&small, order);
	order[3] = 64; /* outside the buffer */
	bool outside = chain_prove(&small, order);
	for (uint32_t i = 0; i < 64; i++)
		order[i] = i % 32; /* a cycle of half the nodes, twice, whose links are all right */
	chain_link(&small, order);
	bool half = chain_prove(&small, order);
	region_unmap(&region);
	if (!good)
		return false;
	EXPECT(seeds);
	EXPECT(proved && !short_cycle && !twice && !outside && !half);
	return true;
}

/* Large shuffles, dealt into classes first, are permutations too, and their chains pass the check. */
bool case_large_chain(struct error *error)
{
	struct region region;
	if (!selftest_map(&region, 16u << 20, 0, PAGES_AUTO, error))
		return false;
	bool good = true;
	for (size_t nodes = (1u << 16) - 1; good && nodes <= 1u << 18; nodes += (1u << 17) - 37) {
		struct chain chain = {
			.base = region.start, .size_bytes = nodes * 64, .stride_bytes = 64, .line_bytes = 64, .seed = nodes};
		good =
			chain_build(&chain, error) && chain.check.judged && chain.check.passed && lap(&chain, 2 * nodes) == nodes;
	}
	region_unmap(&region);
	if (error->code != ERROR_NONE)
		return false;
	EXPECT(good);
	return true;
}
