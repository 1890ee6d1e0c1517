/* SPDX-License-Identifier: Apache-2.0 */
/* The two halves of jitter: threads that are watched, one on each measured CPU, and the thread that watches them. */
#pragma once

#include <stdatomic.h>

#include "affinity.h"
#include "error.h"
#include "gapview.h"
#include "interference.h"
#include "pma.h"
#include "worker.h"

struct jitter_options {
	const char *cpus;
	const char *view;
	uint64_t loops;
	uint64_t executions;
	uint64_t intervals;
	double gap_s;
	const char *threshold_ns;
	uint64_t longest;
	uint64_t fifo;
	double budget_s;
	double target;
	bool attribute;
};

struct station {
	struct worker worker;
	unsigned cpu;
	bool lost;         /* its thread ended before anything was measured; it is waited for no more */
	_Atomic bool stop; /* of the view that it is in */
	int thread;
	struct pma pma;
	struct gap_view view;
};

/* What the threads and their supervisor share. */
struct jitter {
	struct cpu_list cpus;
	struct station *stations;
	size_t active;       /* threads that are not lost: those meet at the barriers */
	bool pma, gaps;      /* the views asked for */
	double threshold_ns; /* 0: automatic */
	uint64_t began;      /* ticks, when measuring began */
	uint64_t reported;   /* intervals that all CPUs completed */
	const char *pma_stopped;
	struct snapshot *snapshots; /* one more than intervals reported */
	uint64_t gap_ticks;         /* at most */
	uint64_t traced_ticks;      /* of each part */
	struct gap_watch watch;
	_Atomic size_t arrived[2 + TRACED_PARTS];
};

extern struct jitter_options jitter_options;
extern struct jitter jitter;

/* Bytes that the readings of counters take at most. */
size_t jitter_readings_bytes(void);
/* Lets every thread go on to its next pause. */
void jitter_continue_all(void);
/* Watches both views while the threads go through them, unless it is told to stop; then the threads are at their last pause. */
void jitter_watch(void);
