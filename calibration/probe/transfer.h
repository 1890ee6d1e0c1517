/* SPDX-License-Identifier: Apache-2.0 */
/* Pairs of CPUs: which are measured, and how one is. */
#pragma once

#include <stdatomic.h>

#include "affinity.h"
#include "chain.h"
#include "error.h"
#include "evidence.h"
#include "worker.h"

/* -- which pairs of CPUs are measured: how they are named, and for a matrix in which order, so that any beginning of it is
 * a balanced sample (pairs.c). -- */

#define PAIRS_HOME_MAX 1023u

enum home { HOME_NODE, HOME_WRITER, HOME_READER };

/* Of pairs that name no home and state. */
struct pair_defaults {
	const char *home;
	bool dirty;
	bool stateless; /* no pair may name a state */
};

/* One --pair or --all-pairs, as it was asked for. */
struct block {
	struct cpu_list writers, readers;
	enum home home;
	unsigned node;
	bool dirty;
};

/* What one pair is asked to do. */
struct transfer {
	unsigned writer, reader;
	enum home home;
	unsigned node;
	bool dirty;
};

struct request {
	unsigned writer, reader;
	uint32_t block;
	bool taken;
};

/* Hands out the pairs of a matrix, each once, in an order of which every beginning is a balanced sample: seeded, a pair
 * followed by its reverse, and no CPU ahead of another by more than a few pairs. */
struct sampler {
	struct request *requests; /* by writer, then reader */
	size_t count;
	uint32_t *rest; /* those not handed out, shuffled */
	size_t left, at, kept;
	uint32_t level;         /* how often a CPU may write, and how often read, by now */
	uint32_t *wrote, *read; /* by CPU */
	size_t pending;         /* the reverse of the last one; `count`: none */
};

/* A node up to PAIRS_HOME_MAX, "writer" or "reader". */
bool home_parse(const char *text, enum home *home, unsigned *node);
/* CPUS[@READERS][:HOME[:STATE]]; without readers the CPUs are both. What is parsed is kept. */
bool block_parse(const char *option, const char *text, const struct pair_defaults *defaults, struct block *block,
                 struct error *error);
/* WRITER@READER[:HOME[:STATE]]: one CPU on each side. */
bool transfer_parse(const char *text, const struct pair_defaults *defaults, struct transfer *transfer,
                    struct error *error);
/* The order of two pairs, as qsort has it: by writer, then reader. */
int pairs_compare(unsigned writer, unsigned reader, unsigned other_writer, unsigned other_reader);
/* Lists all pairs of all blocks, each once, and shuffles them. */
bool sampler_begin(struct sampler *sampler, const struct block *blocks, size_t block_count, uint64_t seed,
                   struct error *error);
/* The next pair; NULL after the last. */
struct request *sampler_next(struct sampler *sampler);

/* -- one pair of CPUs: a thread on each, the lines between them in the wanted state, and the windows timed over them. The
 * two threads do one act at a time, as the supervising thread tells them, and sleep between (transfer.c). -- */

#define TRANSFER_LINES_MIN 64u
#define TRANSFER_LINES_MAX (1u << 20)

enum method { METHOD_TRANSFER, METHOD_PINGPONG };

/* What is asked of all pairs alike; 0 as a number of lines, hops or windows: the default. */
struct transfer_settings {
	enum method method;
	uint64_t lines;
	uint64_t hops;
	uint64_t windows;
	enum page_kind pages;
	uint64_t seed;
	uint64_t placements;
};

struct placement {
	struct evidence evidence;
	double *window_ticks; /* per load, or per half round trip */
};

/* How much is done with each pair. */
struct extent {
	bool brief; /* of a matrix: counters of the machine are read for all pairs together, the core clock once a pair */
	uint64_t windows;
	uint64_t hops;
	uint64_t warm_rounds;
};

struct pair {
	const struct transfer_settings *settings;
	struct transfer transfer;
	struct extent extent;
	uint64_t lines;
	struct cpu_list cpus;
	struct error error;
	struct placement *placements;
	size_t count;
	struct worker workers[2];
	/* of the placement in hand */
	struct page_choice chosen; /* in the first placement, for all */
	struct region region;
	struct chain chain;
	uint64_t rounds; /* in all: warm-up and windows */
	uint64_t rounds_per_window;
	struct stretch sides[2]; /* without the core's clock */
	double core_now;         /* core clocks per tick, as last measured by the thread that was told to */
	/* Whose turn it is, on a line of its own: 2*round: the writer's, 2*round+1: the reader's, or TURN_NONE. */
	_Alignas(256) _Atomic uint64_t turn;
};

/* Lines handed over at a time by this writer. */
uint64_t pair_lines(const struct transfer_settings *settings, unsigned writer, bool brief);
/* Timed windows of a placement. */
uint64_t pair_windows(const struct transfer_settings *settings, bool brief);
/* What a placement takes while it is measured; what a pair keeps of all of them. */
void pair_demand(const struct transfer_settings *settings, uint64_t lines, bool brief, unsigned node,
                 struct demand *demand);
void pair_demand_results(const struct transfer_settings *settings, bool brief, const struct cpu_list *cpus,
                         struct demand *demand);
/* `brief`: of a matrix. The settings must outlive the pair. */
struct pair *pair_new(const struct transfer_settings *settings, const struct transfer *transfer, bool brief);
/* Measures all placements; `number` tells the seeds of one pair from those of another. An error is left in the pair. */
void pair_measure(struct pair *pair, uint64_t number);
void pair_free(struct pair *pair);
