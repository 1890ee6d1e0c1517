/* SPDX-License-Identifier: Apache-2.0 */
/* A chain of dependent loads over a buffer: one node every `stride` bytes, all in one cycle. */
#pragma once

#include "error.h"
#include "json.h"

/* Fewer nodes are no more than 16 KiB of lines, and chance alone may give them any pattern. */
#define ORDER_CHECK_NODES_MIN 256u
/* Chi-square of 16 classes, 15 degrees of freedom: above this but once in 10^9. */
#define ORDER_CHECK_CHI_SQUARE_LIMIT 75.0

enum chain_order { CHAIN_RANDOM, CHAIN_WINDOW, CHAIN_FORWARD, CHAIN_BACKWARD };
#define CHAIN_ORDER_CHOICES "random|window|forward|backward"
/* Walked at the same time by one thread: more than any core has misses of its first-level cache in flight. */
#define CHAIN_CURSORS_MAX 32u
/* Places of a chain whose offsets are kept: any number of cursors up to the most begins in places as good as equally far
 * apart, and exactly so where it divides 96, for each of several parts of the chain. */
#define CHAIN_PARTS_MAX 16u
#define CHAIN_MARKS (CHAIN_PARTS_MAX * 96u)
/* Room for a node's number in the order of visits beside its link. */
#define CHAIN_NUMBERED_STRIDE_MIN 16u

/* What a prefetcher could learn from the order in which lines are visited, as shares of all jumps from a node to the
 * next. Limits are what chance alone stays below but once in some 10^9 chains. */
struct order_check {
	uint64_t jumps;
	double repeated_share;    /* as long as one of the two jumps before it */
	double adjacent_share;    /* to the same line or one beside it */
	double recent_page_share; /* within a 4 KiB page that one of the 32 visits before was in */
	double chi_square;        /* of the jumps' lengths, modulo the buffer, over 16 equal classes */
	double repeated_limit, adjacent_limit, recent_page_limit;
	bool judged; /* random over the whole buffer, and nodes enough for limits to tell anything */
	bool passed; /* where judged */
};

/* Walks of one chain from several places of it, all at the same time in one thread. */
struct chain_cursors {
	uint64_t marks[CHAIN_MARKS]; /* offsets of nodes, evenly along the order of visits; set by chain_build */
	/* set by chain_begin, and moved on by chain_walk_all */
	unsigned count;
	uint64_t at[CHAIN_CURSORS_MAX];   /* offset of a node */
	uint64_t from[CHAIN_CURSORS_MAX]; /* number of the node where it began */
	uint64_t hops;                    /* of each since then */
};

struct chain {
	/* to be set before chain_build */
	unsigned char *base;
	size_t size_bytes;
	size_t stride_bytes;
	size_t line_bytes;
	enum chain_order order;
	size_t window_bytes;
	uint64_t seed;
	struct chain_cursors *cursors; /* NULL: nodes hold no numbers, and one walk is all there is */
	/* set by chain_build */
	size_t nodes;
	bool offsets; /* links are offsets from base, else addresses */
	bool proved;
	struct order_check check;
	uint64_t at; /* where the walk stands: offset of a node */
};

/* Beyond this many bytes touched the links are offsets. In memory they keep prefetchers that follow stored addresses
 * out; in L1 and L2 an indexed load can cost one clock more than a plain one, which would show there. */
#define CHAIN_OFFSETS_ABOVE_BYTES (1u << 20)

size_t chain_touched_bytes(size_t nodes, size_t stride_bytes, size_t line_bytes);
/* Bytes that chain_build takes beside the buffer while it is at work. */
size_t chain_building_bytes(size_t size_bytes, size_t stride_bytes, enum chain_order order, size_t window_bytes);
/* Links the nodes and proves that the links are one cycle over all of them, without walking it: each node links to the next
 * of the order, the last to the first (independent reads), and the first is in the order once. For a walk along links comes
 * to no node twice before it comes to its first again. */
bool chain_build(struct chain *chain, struct error *error);
/* The two steps of that: link the nodes in an order of visits, and prove order and links against each other. */
void chain_link(const struct chain *chain, const uint32_t *order);
bool chain_prove(const struct chain *chain, const uint32_t *order);
/* Looks for anything in an order of visits that could be followed; false where it is judged and does not pass. */
bool chain_check_order(const struct chain *chain, const uint32_t *order, struct order_check *check);
void order_check_write(struct json *json, const char *key, const struct order_check *check);
/* Offset of a node from the base. */
size_t chain_position(const struct chain *chain, size_t node);
/* Walks blocks x 64 links from where the last walk ended. */
void chain_walk(struct chain *chain, uint64_t blocks);
/* Sets so many cursors to places equally far apart in a part of the order of visits, the `part`th of so many. */
void chain_begin(struct chain *chain, unsigned count, size_t part, size_t parts);
/* Walks so many links with each cursor, in turns of one link each. */
void chain_walk_all(struct chain *chain, uint64_t turns);
/* Whether each cursor is at the node that so many hops lead to, by the number that the node holds. */
bool chain_arrived(const struct chain *chain);
/* The loop of so many cursors, each `turns` links from its place; links are offsets from the origin. */
void chain_walk_cursors(uint64_t origin, uint64_t *at, unsigned cursors, uint64_t turns);
/* Walks `hops` links, and reads `words` 8-byte words after each link beside the dependent chain. */
void chain_walk_payload(struct chain *chain, uint64_t hops, size_t words);
