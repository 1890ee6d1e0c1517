// SPDX-License-Identifier: Apache-2.0
#include "chain.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "allocate.h"
#include "arch/arch.h"
#include "random.h"

/* Nodes ahead to prefetch: at 2 to 3 ns for a node, further than a load from memory takes. With 24, a proof of 128 MiB took
 * more than twice as long. All of them fit into a quarter of a first-level cache of 32 KiB. */
#define AHEAD 128

/* Classes that a large shuffle is dealt into first, and from this many nodes on. 256 streams of writes are what caches and
 * TLB keep open; each class of up to 2^26 nodes is then shuffled within 1 MiB, in a second-level cache. */
#define DEALT 256u
#define DEALT_NODES_MIN (1u << 16)
/* No hardware prefetcher runs beyond the 4 KiB page it was trained in, because the next one may be any. */
#define PREFETCH_PAGE_BYTES 4096u
/* Visits back to look for the same page: prefetchers follow up to 32 streams at once, each in a page of its own. */
#define RECENT_VISITS 32u
/* Pages kept for that, a slot each: two of the last 32 in one slot are rare, and hide a visit rather than invent one. */
#define RECENT_PAGES 256u
#define JUMP_CLASSES 16u

size_t chain_touched_bytes(size_t nodes, size_t stride_bytes, size_t line_bytes)
{
	return nodes * (stride_bytes < line_bytes ? stride_bytes : line_bytes);
}

/* 32-bit indices: half the memory, half the cache misses of shuffling pointers. */
static size_t order_bytes(size_t nodes)
{
	return nodes * sizeof(uint32_t);
}

static size_t windows_of(size_t nodes, size_t stride_bytes, size_t window_bytes)
{
	size_t window = window_bytes / stride_bytes;
	return (nodes + window - 1) / window;
}

size_t chain_building_bytes(size_t size_bytes, size_t stride_bytes, enum chain_order order, size_t window_bytes)
{
	size_t nodes = size_bytes / stride_bytes;
	return order_bytes(nodes) +
	       (order == CHAIN_WINDOW ? windows_of(nodes, stride_bytes, window_bytes) * sizeof(uint32_t) : 0);
}

/* Where nodes lie: worked out once, because a division for each node would take as long as all else that is done with it. */
struct layout {
	size_t stride_bytes, line_bytes;
	size_t lines; /* in which a node may lie; 1: always at the start of its spacing */
	uint32_t seed;
};

static struct layout layout_of(const struct chain *chain)
{
	bool varies = chain->order == CHAIN_RANDOM || chain->order == CHAIN_WINDOW;
	size_t lines = chain->stride_bytes / chain->line_bytes;
	return (struct layout){chain->stride_bytes, chain->line_bytes, varies && lines > 1 ? lines : 1,
	                       (uint32_t)chain->seed};
}

static inline size_t position_of(struct layout layout, size_t node)
{
	size_t position = node * layout.stride_bytes, lines = layout.lines;
	if (lines > 1) {
		/* The line used varies inside the spacing: else the adjacent-line prefetcher would be right half the time,
		 * and only a part of the cache sets would be used. */
		uint32_t hash = ((uint32_t)node ^ layout.seed) * 0x9e3779b1u;
		hash = (hash ^ hash >> 15) * 0x85ebca6bu;
		position += (size_t)(((uint64_t)hash * lines) >> 32) * layout.line_bytes;
	}
	return position;
}

size_t chain_position(const struct chain *chain, size_t node)
{
	return position_of(layout_of(chain), node);
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

/* A uniform permutation of 0 .. count-1. Exchanging over the whole of a large array misses the cache with every step, so
 * the nodes are dealt at random into classes, and each class is shuffled: as uniform, in a third of the time (Rao 1961,
 * Sandelius 1962). The same random stream is drawn twice, first to count. */
static void shuffle_all(uint32_t *order, size_t count, struct random *random)
{
	size_t begin[DEALT + 1] = {0}, at[DEALT];
	if (count < DEALT_NODES_MIN) {
		for (size_t i = 0; i < count; i++)
			order[i] = (uint32_t)i;
		shuffle(order, count, random);
		return;
	}
	struct random again = *random;
	uint64_t drawn = 0;
	for (size_t i = 0; i < count; i++, drawn >>= 8) {
		if (i % 8 == 0)
			drawn = random_next(random);
		begin[(drawn & 0xff) + 1]++;
	}
	for (size_t k = 0; k < DEALT; k++) {
		at[k] = begin[k];
		begin[k + 1] += begin[k];
	}
	for (size_t i = 0; i < count; i++, drawn >>= 8) {
		if (i % 8 == 0)
			drawn = random_next(&again);
		order[at[drawn & 0xff]++] = (uint32_t)i;
	}
	for (size_t k = 0; k < DEALT; k++)
		shuffle(order + begin[k], begin[k + 1] - begin[k], random);
}

/* Random inside each window, windows in random order: TLB-friendly, and no order for a prefetcher to follow. */
static void fill_windows(const struct chain *chain, uint32_t *order, struct random *random)
{
	size_t window = chain->window_bytes / chain->stride_bytes;
	size_t windows = windows_of(chain->nodes, chain->stride_bytes, chain->window_bytes), filled = 0;
	uint32_t *sequence = allocate(windows, sizeof(*sequence));
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
}

static void fill_order(const struct chain *chain, uint32_t *order)
{
	struct random random;
	random_seed(&random, chain->seed);
	if (chain->order == CHAIN_WINDOW)
		fill_windows(chain, order, &random);
	else if (chain->order == CHAIN_RANDOM)
		/* A uniform permutation taken as the order of visits is a uniform single cycle: the distribution of Sattolo's
		 * algorithm, in the form that can be proved without a dependent walk. */
		shuffle_all(order, chain->nodes, &random);
	else
		for (size_t i = 0; i < chain->nodes; i++)
			order[i] = (uint32_t)(chain->order == CHAIN_BACKWARD ? chain->nodes - 1 - i : i);
}

/* What a link to offset 0 holds; the others hold so much more. */
static uint64_t link_origin(const struct chain *chain)
{
	return chain->offsets ? 0 : (uint64_t)(uintptr_t)chain->base;
}

void chain_link(const struct chain *chain, const uint32_t *order)
{
	const struct layout layout = layout_of(chain);
	unsigned char *const base = chain->base;
	const uint64_t origin = link_origin(chain);
	const size_t nodes = chain->nodes;
	const bool numbers = chain->cursors != NULL;
	size_t position = position_of(layout, order[0]);
	for (size_t i = 0; i < nodes; i++) {
		if (i + AHEAD < nodes)
			__builtin_prefetch(base + position_of(layout, order[i + AHEAD]), 1);
		size_t next = position_of(layout, order[i + 1 < nodes ? i + 1 : 0]);
		uint64_t *node = (uint64_t *)(void *)(base + position);
		node[0] = origin + next;
		if (numbers)
			node[1] = i;
		position = next;
	}
}

bool chain_prove(const struct chain *chain, const uint32_t *order)
{
	const struct layout layout = layout_of(chain);
	const unsigned char *const base = chain->base;
	const uint64_t origin = link_origin(chain);
	const size_t nodes = chain->nodes;
	const bool numbers = chain->cursors != NULL;
	size_t wrong = order[0] >= nodes;
	for (size_t i = 1; i < nodes; i++)
		wrong += (order[i] >= nodes) | (order[i] == order[0]);
	if (wrong)
		return false;
	size_t position = position_of(layout, order[0]);
	for (size_t i = 0; i < nodes; i++) {
		if (i + AHEAD < nodes)
			__builtin_prefetch(base + position_of(layout, order[i + AHEAD]));
		size_t next = position_of(layout, order[i + 1 < nodes ? i + 1 : 0]);
		const uint64_t *node = (const uint64_t *)(const void *)(base + position);
		wrong += node[0] != origin + next || (numbers && node[1] != i);
		position = next;
	}
	return wrong == 0;
}

/* Chance gives a count of mean `mean` a Poisson distribution: eight of its deviations, and a floor for means near 0. */
static double limit(double mean, double jumps)
{
	double most = mean + 8 * sqrt(mean) + 16;
	return most < jumps ? most / jumps : 1;
}

bool chain_check_order(const struct chain *chain, const uint32_t *order, struct order_check *check)
{
	const struct layout layout = layout_of(chain);
	const size_t nodes = chain->nodes;
	/* Classes of lengths per length, in 1/2^32. */
	const uint64_t scale = ((uint64_t)JUMP_CLASSES << 32) / nodes;
	const unsigned line_shift = (unsigned)__builtin_ctzll(chain->line_bytes);
	uint64_t repeated = 0, adjacent = 0, recent_page = 0, classes[JUMP_CLASSES] = {0};
	size_t last = 0, last_but_one = 0, position = position_of(layout, order[0]);
	/* Pages and visits count from 1 here, so that 0 is neither. */
	struct {
		size_t page, visit;
	} recent[RECENT_PAGES] = {{0, 0}};
	size_t left = position / PREFETCH_PAGE_BYTES + 1;
	double chi_square = 0;
	for (size_t i = 0; i + 1 < nodes; i++) {
		/* Without a branch, which would be mispredicted half the time. */
		size_t jump = (size_t)order[i + 1] - order[i] + (-(size_t)(order[i + 1] < order[i]) & nodes);
		size_t next = position_of(layout, order[i + 1]), page = next / PREFETCH_PAGE_BYTES + 1;
		repeated += (jump == last) | (jump == last_but_one);
		adjacent += (next >> line_shift) - (position >> line_shift) + 1 <= 2;
		recent[left % RECENT_PAGES].page = left;
		recent[left % RECENT_PAGES].visit = i + 1;
		bool known = recent[page % RECENT_PAGES].page == page;
		recent_page += known & (i + 2 - recent[page % RECENT_PAGES].visit <= RECENT_VISITS);
		classes[jump * scale >> 32]++;
		last_but_one = last;
		last = jump;
		position = next;
		left = page;
	}
	double jumps = (double)(nodes - 1), others = jumps > 0 ? jumps : 1;
	for (size_t k = 0, from = 0; k < JUMP_CLASSES && nodes >= ORDER_CHECK_NODES_MIN; k++) {
		/* Lengths from 1 to nodes-1 are equally likely; the first class lacks 0. */
		size_t to = k + 1 < JUMP_CLASSES ? (size_t)((((uint64_t)(k + 1) << 32) + scale - 1) / scale) : nodes;
		double expected = (double)(to - (k ? from : 1));
		chi_square += ((double)classes[k] - expected) * ((double)classes[k] - expected) / expected;
		from = to;
	}
	double in_line =
		chain->stride_bytes < chain->line_bytes ? (double)chain->line_bytes / (double)chain->stride_bytes : 1;
	double in_page = PREFETCH_PAGE_BYTES > chain->stride_bytes ? PREFETCH_PAGE_BYTES / (double)chain->stride_bytes : 1;
	*check = (struct order_check){
		.jumps = nodes - 1,
		.repeated_share = (double)repeated / others,
		.adjacent_share = (double)adjacent / others,
		.recent_page_share = (double)recent_page / others,
		.chi_square = chi_square,
		.repeated_limit = limit(2, others),
		.adjacent_limit = limit(3 * in_line - 1, others),
		.recent_page_limit = limit(RECENT_VISITS * (in_page - 1), others),
		.judged = chain->order == CHAIN_RANDOM && nodes >= ORDER_CHECK_NODES_MIN,
	};
	check->passed = check->repeated_share <= check->repeated_limit && check->adjacent_share <= check->adjacent_limit &&
	                check->recent_page_share <= check->recent_page_limit && chi_square <= ORDER_CHECK_CHI_SQUARE_LIMIT;
	return check->passed || !check->judged;
}

static void shares_write(struct json *json, double repeated, double adjacent, double recent_page, double chi_square,
                         bool classed)
{
	json_f64(json, "repeated_stride_share", repeated);
	json_f64(json, "adjacent_line_share", adjacent);
	json_f64(json, "recent_page_share", recent_page);
	json_f64_known(json, "chi_square", classed, chi_square);
}

void order_check_write(struct json *json, const char *key, const struct order_check *check)
{
	json_object_begin(json, key);
	json_u64(json, "jumps", check->jumps);
	shares_write(json, check->repeated_share, check->adjacent_share, check->recent_page_share, check->chi_square,
	             check->jumps + 1 >= ORDER_CHECK_NODES_MIN);
	if (check->judged) {
		json_object_begin(json, "limits");
		shares_write(json, check->repeated_limit, check->adjacent_limit, check->recent_page_limit,
		             ORDER_CHECK_CHI_SQUARE_LIMIT, true);
		json_object_end(json);
		json_bool(json, "passed", check->passed);
	} else {
		JSON_NULLS(json, "limits", "passed");
	}
	json_object_end(json);
}

/* Number in the order of visits of the node of a mark. */
static size_t mark_number(const struct chain *chain, size_t mark)
{
	return (size_t)((uint64_t)chain->nodes * mark / CHAIN_MARKS);
}

void chain_begin(struct chain *chain, unsigned count, size_t part, size_t parts)
{
	struct chain_cursors *cursors = chain->cursors;
	cursors->count = count;
	cursors->hops = 0;
	for (unsigned k = 0; k < count; k++) {
		size_t mark = (part * count + k) * CHAIN_MARKS / (parts * count);
		cursors->at[k] = cursors->marks[mark];
		cursors->from[k] = mark_number(chain, mark);
	}
}

bool chain_build(struct chain *chain, struct error *error)
{
	chain->nodes = chain->size_bytes / chain->stride_bytes;
	chain->offsets =
		chain_touched_bytes(chain->nodes, chain->stride_bytes, chain->line_bytes) > CHAIN_OFFSETS_ABOVE_BYTES;
	chain->at = 0;
	chain->proved = false;
	size_t bytes = order_bytes(chain->nodes);
	uint32_t *order = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (order == MAP_FAILED)
		return error_set(error, ERROR_NO_MEMORY, "%zu bytes to build a chain: %s; use a smaller size", bytes,
		                 strerror(errno));
	(void)madvise(order, bytes, MADV_HUGEPAGE); /* only speeds the shuffle up */
	fill_order(chain, order);
	bool unordered = chain_check_order(chain, order, &chain->check);
	chain_link(chain, order);
	chain->proved = chain_prove(chain, order);
	chain->at = chain_position(chain, order[0]);
	for (size_t i = 0; chain->cursors && i < CHAIN_MARKS; i++)
		chain->cursors->marks[i] = chain_position(chain, order[mark_number(chain, i)]);
	munmap(order, bytes);
	if (!chain->proved)
		return error_set(error, ERROR_CHECK_FAILED, "the links are not one cycle over %zu nodes", chain->nodes);
	return unordered ||
	       error_set(
			   error, ERROR_CHECK_FAILED,
			   "a prefetcher could follow this order: %.3g of the jumps are as long as one just before, %.3g to a "
			   "line beside, %.3g within a page of just before, chi-square of their lengths %.3g",
			   chain->check.repeated_share, chain->check.adjacent_share, chain->check.recent_page_share,
			   chain->check.chi_square);
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

void chain_walk_all(struct chain *chain, uint64_t turns)
{
	struct chain_cursors *cursors = chain->cursors;
	uint64_t base = (uint64_t)(uintptr_t)chain->base, links[CHAIN_CURSORS_MAX];
	/* Links that are addresses are offsets from 0. */
	uint64_t origin = chain->offsets ? base : 0;
	for (unsigned k = 0; k < cursors->count; k++)
		links[k] = base + cursors->at[k] - origin;
	chain_walk_cursors(origin, links, cursors->count, turns);
	for (unsigned k = 0; k < cursors->count; k++)
		cursors->at[k] = links[k] + origin - base;
	cursors->hops += turns;
}

bool chain_arrived(const struct chain *chain)
{
	const struct chain_cursors *cursors = chain->cursors;
	for (unsigned k = 0; k < cursors->count; k++) {
		const uint64_t *node = (const uint64_t *)(const void *)(chain->base + cursors->at[k]);
		if (node[1] != (cursors->from[k] + cursors->hops) % chain->nodes)
			return false;
	}
	return true;
}
