/* SPDX-License-Identifier: Apache-2.0 */
/* Chases: pinned threads, each with a chain in memory of its own, measured alone or all at the same time. One mapping
 * serves many chains, so that a ladder of sizes pays for fresh memory once in each round. */
#ifndef SUTPROBE_CHASE_H
#define SUTPROBE_CHASE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "affinity.h"
#include "chain.h"
#include "error.h"
#include "interference.h"
#include "memory.h"
#include "pmu.h"
#include "samples.h"
#include "worker.h"

/* What is measured with one chain: the same for all copies, but for the seed. */
struct chase_task {
	size_t size_bytes, stride_bytes, line_bytes, window_bytes;
	enum chain_order order;
	uint64_t windows, hops; /* timed windows, and loads in each at least; hops are whole blocks of 64 */
	size_t payload_words;
};

/* What one copy's chain gave in one placement. */
struct chase_sample {
	uint64_t seed;
	struct pages pages; /* of the mapping that the chain lies in */
	uint64_t *shares;   /* of those pages, on each node where there are several; else NULL */
	bool cpu_verified;
	struct order_check order;
	double overhead_ticks;
	double *window_ticks; /* per hop */
	bool *dirty;
	double core_before, core_after; /* per tick */
	struct thread_counts counts;
	struct snapshot before, after; /* of all copies' CPUs: in the first copy's sample, empty in the others' */
	struct samples samples;        /* of this copy's loads */
	struct pmu_counts *counters;   /* of this copy's thread, and of CPUs while all copies ran; NULL: none asked for */
};

struct chase_group;
struct chase_log;

struct chase_copy {
	/* to be set before chase_open */
	unsigned cpu;
	const struct cpu_list *nodes;
	/* state */
	struct chase_group *group;
	struct worker worker;
	struct region region;
	struct pages pages;
	uint64_t *shares;
	double overhead_ticks;
	struct chain chain;
	struct chase_sample *sample;
	struct error error; /* of the task in hand */
	struct chase_log *log;
	struct sampling sampling;
	uint64_t begin, hops; /* ticks at which its first window or stretch began, and loads since */
};

struct chase_group {
	/* to be set before chase_open */
	struct chase_copy *copies;
	size_t count;
	enum page_kind pages;
	const struct cpu_list *cpus;          /* of all copies; must outlive the samples, which refer to it */
	const struct sample_request *sampled; /* loads of all copies; NULL: none */
	struct pmu *pmu;                      /* events to count, with room for all copies, or NULL */
	/* state */
	size_t bytes;
	const struct chase_task *task;
	bool abandon, again;
	_Atomic size_t arrived, finished;
};

/* Starts the copies: pinned, `bytes` mapped, proved in place. All are closed again where one fails. */
bool chase_open(struct chase_group *group, size_t bytes, struct error *error);
/* Builds a chain in each copy's memory and times it; one sample for each copy, with its seed set. False with the error
 * where a chain could not be built, or the work was told to end: samples are then freed. */
bool chase_measure(struct chase_group *group, const struct chase_task *task, struct chase_sample *const *samples,
                   struct error *error);
/* Proves where the pages lie once more, and ends the copies. */
bool chase_close(struct chase_group *group, struct error *error);
void chase_sample_free(struct chase_sample *sample);
/* Whether a chain of this size can be spread over the nodes of every copy, in the pages obtained. */
bool chase_spreads(const struct chase_group *group, size_t size_bytes, struct error *error);

#endif
