/* SPDX-License-Identifier: Apache-2.0 */
/* Which pairs of CPUs are measured: how they are named, and for a matrix in which order, so that any beginning of it is
 * a balanced sample. */
#pragma once

#include "affinity.h"
#include "error.h"

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
