// SPDX-License-Identifier: Apache-2.0
#include "chain.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "arch/arch.h"
#include "random.h"

/* Nodes ahead to prefetch while linking: some 20 misses in flight are what a core can have. */
#define AHEAD 24

static const char *const order_names[] = {"random", "window", "forward", "backward"};

bool chain_order_parse(const char *word, enum chain_order *order)
{
	for (unsigned i = 0; i < 4; i++)
		if (!strcmp(word, order_names[i])) {
			*order = (enum chain_order)i;
			return true;
		}
	return false;
}

size_t chain_nodes(size_t size_bytes, size_t stride_bytes)
{
	return size_bytes / stride_bytes;
}

size_t chain_touched_bytes(size_t nodes, size_t stride_bytes, size_t line_bytes)
{
	return nodes * (stride_bytes < line_bytes ? stride_bytes : line_bytes);
}

size_t chain_position(const struct chain *chain, size_t node)
{
	size_t position = node * chain->stride_bytes;
	size_t lines = chain->stride_bytes / chain->line_bytes;
	if (lines > 1 && (chain->order == CHAIN_RANDOM || chain->order == CHAIN_WINDOW)) {
		/* The line used varies inside the spacing: else the adjacent-line prefetcher would be right half the time,
		 * and only a part of the cache sets would be used. */
		uint32_t hash = ((uint32_t)node ^ (uint32_t)chain->seed) * 0x9e3779b1u;
		hash = (hash ^ hash >> 15) * 0x85ebca6bu;
		position += (size_t)(((uint64_t)hash * lines) >> 32) * chain->line_bytes;
	}
	return position;
}

static void shuffle(uint32_t *order, size_t count, struct random *random)
{
	for (size_t i = count; i > 1; i--) {
		uint32_t k = random_below(random, i);
		uint32_t kept = order[i - 1];
		order[i - 1] = order[k];
		order[k] = kept;
	}
}

/* Random inside each window, windows in random order: TLB-friendly, and no order for a prefetcher to follow. */
static bool fill_windows(const struct chain *chain, uint32_t *order, struct random *random)
{
	size_t window = chain->window_bytes / chain->stride_bytes;
	size_t windows = (chain->nodes + window - 1) / window, filled = 0;
	uint32_t *sequence = malloc(windows * sizeof(*sequence));
	if (!sequence)
		return false;
	for (size_t i = 0; i < windows; i++)
		sequence[i] = (uint32_t)i;
	shuffle(sequence, windows, random);
	for (size_t i = 0; i < windows; i++) {
		size_t first = sequence[i] * window;
		size_t count = chain->nodes - first < window ? chain->nodes - first : window;
		for (size_t k = 0; k < count; k++)
			order[filled + k] = (uint32_t)(first + k);
		shuffle(order + filled, count, random);
		filled += count;
	}
	free(sequence);
	return true;
}

static bool fill_order(const struct chain *chain, uint32_t *order)
{
	struct random random;
	random_seed(&random, chain->seed);
	if (chain->order == CHAIN_WINDOW)
		return fill_windows(chain, order, &random);
	for (size_t i = 0; i < chain->nodes; i++)
		order[i] = (uint32_t)(chain->order == CHAIN_BACKWARD ? chain->nodes - 1 - i : i);
	if (chain->order == CHAIN_RANDOM)
		/* A uniform permutation taken as the order of visits is a uniform single cycle: the distribution of Sattolo's
		 * algorithm, in the form that can be proved without a dependent walk. */
		shuffle(order, chain->nodes, &random);
	return true;
}

static uint64_t link_value(const struct chain *chain, size_t position)
{
	return chain->offsets ? position : (uint64_t)(uintptr_t)(chain->base + position);
}

void chain_link(const struct chain *chain, const uint32_t *order)
{
	size_t nodes = chain->nodes;
	size_t position = chain_position(chain, order[0]);
	for (size_t i = 0; i < nodes; i++) {
		if (i + AHEAD < nodes)
			__builtin_prefetch(chain->base + chain_position(chain, order[i + AHEAD]), 1);
		size_t next = chain_position(chain, order[i + 1 < nodes ? i + 1 : 0]);
		*(uint64_t *)(chain->base + position) = link_value(chain, next);
		position = next;
	}
}

bool chain_prove(const struct chain *chain, const uint32_t *order, unsigned char *visited)
{
	size_t nodes = chain->nodes, wrong = 0;
	for (size_t i = 0; i < nodes; i++) {
		if (order[i] >= nodes)
			return false;
		wrong += visited[order[i] >> 3] >> (order[i] & 7) & 1;
		visited[order[i] >> 3] |= (unsigned char)(1u << (order[i] & 7));
	}
	size_t position = chain_position(chain, order[0]);
	for (size_t i = 0; i < nodes; i++) {
		if (i + AHEAD < nodes)
			__builtin_prefetch(chain->base + chain_position(chain, order[i + AHEAD]));
		size_t next = chain_position(chain, order[i + 1 < nodes ? i + 1 : 0]);
		wrong += *(const uint64_t *)(chain->base + position) != link_value(chain, next);
		position = next;
	}
	return wrong == 0;
}

bool chain_build(struct chain *chain, struct error *error)
{
	chain->nodes = chain_nodes(chain->size_bytes, chain->stride_bytes);
	chain->offsets =
		chain_touched_bytes(chain->nodes, chain->stride_bytes, chain->line_bytes) > CHAIN_OFFSETS_ABOVE_BYTES;
	chain->at = 0;
	chain->proved = false;
	/* 32-bit indices: half the memory, half the cache misses of shuffling pointers. */
	size_t bytes = chain->nodes * sizeof(uint32_t) + (chain->nodes + 7) / 8;
	uint32_t *order = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (order == MAP_FAILED)
		return error_set(error, ERROR_NO_MEMORY, "%zu bytes to build a chain: %s; use a smaller size", bytes,
		                 strerror(errno));
	(void)madvise(order, bytes, MADV_HUGEPAGE); /* only speeds the shuffle up */
	bool filled = fill_order(chain, order);
	if (filled) {
		chain_link(chain, order);
		chain->proved = chain_prove(chain, order, (unsigned char *)(order + chain->nodes));
		chain->at = chain_position(chain, order[0]);
	}
	munmap(order, bytes);
	if (!filled)
		return error_set(error, ERROR_NO_MEMORY, "no memory for the order of windows");
	return chain->proved || error_set(error, ERROR_CHECK_FAILED,
	                                  "expected one cycle over %zu nodes, found links that are not", chain->nodes);
}

void chain_walk(struct chain *chain, uint64_t blocks)
{
	if (chain->offsets)
		chain->at = arch_chase_offsets(chain->base, chain->at, blocks);
	else
		chain->at = (uint64_t)((unsigned char *)arch_chase_pointers(chain->base + chain->at, blocks) - chain->base);
}

void chain_walk_payload(struct chain *chain, uint64_t hops, size_t words)
{
	uint64_t at = chain->at;
	uint64_t origin = chain->offsets ? 0 : (uint64_t)(uintptr_t)chain->base;
	for (uint64_t i = 0; i < hops; i++) {
		const volatile uint64_t *node = (const volatile uint64_t *)(chain->base + at);
		at = node[0] - origin;
		for (size_t k = 1; k <= words; k++)
			(void)node[k];
	}
	chain->at = at;
}
