/* SPDX-License-Identifier: Apache-2.0 */
/* The view of PMA jitter: a fixed amount of work is timed again and again, with the shortest and the longest in each interval. */
#pragma once

#include "affinity.h"
#include "interference.h"

struct pma_interval {
	uint64_t least, most, last, absolute_least, absolute_most;
	uint32_t tmp;
	uint64_t ticks;
	uint64_t worked; /* ticks inside the timed work */
	struct thread_counts counts;
};

struct pma {
	/* to be set before pma_run */
	uint32_t loops;
	uint64_t executions;
	uint64_t wanted;                /* intervals */
	struct pma_interval *intervals; /* so many, every page touched */
	uint64_t until;                 /* no interval but the first is begun after it, in ticks */
	const _Atomic bool *stop;       /* looked at before each execution */
	/* for another thread to watch */
	_Atomic uint64_t finished; /* intervals, the warm-up counted as one */
	_Atomic bool over;
	double expected_ticks; /* of an interval, once the warm-up is finished */
};

/* Warms up and times intervals until all are made, the time is over or it is told to stop; what is left half is not kept. */
void pma_run(struct pma *pma);
/* Writes the first `count` intervals, of which snapshots were taken before and after each. */
void pma_write(struct json *json, const char *key, const struct pma *pma, uint64_t count, const char *stopped,
               const struct snapshot *snapshots, const struct cpu_list *self);
/* Whether the first `count` intervals are longer than the clock can tell. */
bool pma_timed(const struct pma *pma, uint64_t count);
