/* SPDX-License-Identifier: Apache-2.0 */
/* Chases: pinned threads that walk chains, one after another or all at the same time. A chain is built once and walked from
 * every CPU that is to measure its memory, and one mapping serves many chains, so that a matrix pays for each chain, and a
 * ladder of sizes for fresh memory, once in each round. */
#pragma once

#include <stdatomic.h>

#include "affinity.h"
#include "chain.h"
#include "error.h"
#include "evidence.h"
#include "paced_reader.h"
#include "progress.h"
#include "single.h"
#include "worker.h"

/* What is measured with one chain. */
struct chase_task {
	size_t size_bytes, stride_bytes, line_bytes, window_bytes;
	enum chain_order order;
	uint64_t windows, hops; /* timed windows, and loads in each at least; hops are whole blocks of 64 */
	size_t payload_words;
	uint64_t single_loads; /* after the windows, of chases that walk alone */
	/* 0: one chain, walked on from where the last walk ended. Else so many walked at the same time by one thread, in the
	 * `part`th of so many parts of the cycle; tasks of one seed share the cycle and walk a part each. */
	unsigned chains;
	size_t part, parts;
};

/* Hops of a task come in multiples of this. */
uint64_t chase_hops_unit(const struct chase_task *task);

/* What one chase gave in one placement. Snapshots and readers are those of the pass, shared by its samples. */
struct chase_sample {
	struct evidence evidence; /* pages: of the mapping that the chain lies in; samples and counters: of this thread */
	uint64_t *shares;         /* of those pages, on each node where there are several; else NULL */
	struct order_check order;
	double overhead_ticks;
	double *window_ticks; /* per hop */
	bool *dirty;
	struct single_loads *single; /* NULL: none wanted */
	double *reader_rates;        /* bytes per tick, while these walked */
};

enum chase_condition { CHASE_PACKAGE_IDLE, CHASE_PACKAGE_ACTIVE };
#define CHASE_CONDITIONS 2

struct chase_walker;
struct chase_home;

/* The progress of one that walks together with others. */
struct chase_log {
	struct progress progress;
	bool *dirty;             /* whether the stretch that ends with the entry was interrupted */
	uint64_t every, skipped; /* of so many chunks one is logged */
};

/* One CPU walking one memory. */
struct chase {
	/* to be set before chase_open */
	unsigned cpu;
	const struct cpu_list *nodes; /* must outlive the group */
	size_t memory;                /* those with the same number, of the same nodes, walk one chain */
	size_t bytes;                 /* of the longest chain to come; 0: takes no part in this round */
	size_t building_bytes;        /* that building any of the chains to come takes beside it */
	uint64_t windows;             /* of any task to come */
	double longest_s;             /* of any task to come (chase_seconds) */
	/* to be set before chase_measure */
	const struct chase_task *task;                  /* NULL: takes no part */
	struct chase_sample *samples[CHASE_CONDITIONS]; /* of CHASE_PACKAGE_ACTIVE only where there are readers */
	/* state */
	struct error error; /* after chase_open it cannot take part; after the others what happened to its task */
	struct chase_walker *walker;
	struct chase_home *home;
	struct chase_sample *sample; /* of the pass in hand */
	bool walking;                /* in it */
	struct chase_log log;
	struct sampling sampling;
	uint64_t begin, hops; /* ticks at which its first window or stretch began, and loads since */
};

struct chase_group {
	/* to be set before chase_open */
	struct chase *chases;
	size_t count;
	bool together; /* all chases at the same time, each in memory of its own; else one after another */
	enum page_kind pages;
	size_t hugetlb_bytes;                 /* of pages wanted as hugetlb; 0: whichever can be had */
	struct page_choice chosen;            /* by the first chase_open, for all to come */
	const struct cpu_list *cpus;          /* of all chases; must outlive the samples, which refer to it */
	const struct sample_request *sampled; /* loads of all chases; NULL: none */
	uint64_t kept_bytes;                  /* of what the caller keeps, asked for by the first chase_open too */
	struct pmu *pmu;                      /* events to count, with room for all CPUs, or NULL */
	/* With readers, which sleep until then, each chain is walked with the package idle and active: a second time, while they run. */
	struct paced_reader *readers;
	size_t reader_count;
	/* to be set before chase_measure */
	bool active_first;
	/* state */
	struct chase_walker *walkers; /* one for each CPU */
	struct chase_home *homes;
	size_t walker_count, home_count;
	bool admitted;
	void (*home_job)(struct chase_group *group, struct chase_home *home); /* in hand */
	_Atomic size_t arrived, finished;
};

/* Starts a thread for each CPU, pinned, and maps each memory from the nearest of these CPUs, all at the same time; proves
 * what was mapped in place. A chase that can take no part has its error, and the bytes that were to be mapped for it. */
void chase_open(struct chase_group *group);
/* Builds the chains of all chases that have a task, all at the same time, and times them; each chase's sample has its
 * seed set, the same for those that share a chain. A chase that was not measured has its error, and no sample:
 * where its chain could not be built, where the work was told to end, and where one of those together failed. */
void chase_measure(struct chase_group *group);
/* Proves where the pages lie once more, and ends the threads. A chase whose pages moved has its error. */
void chase_close(struct chase_group *group);
/* How long a task may take on any memory. */
double chase_seconds(uint64_t windows, uint64_t hops);

/* -- what the threads do with their chains: walk them alone or together, timed, counted and sampled (chase_walk.c) -- */

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
