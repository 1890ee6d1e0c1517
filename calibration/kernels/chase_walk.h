/* SPDX-License-Identifier: Apache-2.0 */
/* What the threads of chases do with their chains: walk them alone or together, timed, counted and sampled. */
#pragma once

#include "chase.h"
#include "worker.h"

/* One thread. */
struct chase_walker {
	struct chase_group *group;
	struct worker worker; /* its context is this walker */
	unsigned cpu, node;
	size_t number;         /* for its counters */
	bool busy;             /* with the job in hand */
	size_t building_bytes; /* at most, of any chain it is to build */
	double overhead_ticks;
	struct chase *chase; /* to walk */
};

/* The memory of a round, and the chain that lies in it. */
struct chase_home {
	const struct cpu_list *nodes;
	size_t memory, bytes, building_bytes;
	struct chase_walker *builder;
	struct region region;
	struct pages pages;
	uint64_t *shares;
	struct chain chain;
	struct chain_cursors *cursors; /* of the chain, where a task wants several */
	const struct chase *first;     /* of those to walk the chain */
	struct error error;            /* it cannot be used */
	struct error build_error;      /* of the chain in hand */
};

/* Ticks per hop from L1, the loop around it included: of one chain, or of so many at the same time. */
double chase_overhead(unsigned chains);
/* Room for the log of a chase that is to walk together with others, and the bytes that takes for so many windows. */
void chase_log_reserve(struct chase *chase);
uint64_t chase_log_bytes(uint64_t windows);
/* A job: walks the walker's chase. */
void chase_run(struct worker *worker);
/* After all chases have walked together: cuts their windows. */
bool chase_cut(struct chase_group *group, struct error *error);
/* Hops that the counters have seen; `context` is the group. */
struct pmu_work chase_progress(void *context, size_t thread, uint64_t ticks);
