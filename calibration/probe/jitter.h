/* SPDX-License-Identifier: Apache-2.0 */
/* Jitter: two views, and the threads that make them. */
#pragma once

#include <stdatomic.h>

#include "affinity.h"
#include "causes.h"
#include "error.h"
#include "evidence.h"
#include "gaps.h"
#include "housekeeping.h"
#include "interference.h"
#include "periods.h"
#include "tracing.h"
#include "worker.h"

/* -- the view of PMA jitter: a fixed amount of work is timed again and again, with the shortest and the longest in each
 * interval (pma.c) -- */

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
	const _Atomic bool *stop;       /* looked at before each execution */
	/* for another thread to watch */
	_Atomic uint64_t finished; /* intervals, the warm-up counted as one */
	_Atomic bool over;
	double expected_ticks; /* of an interval, once the warm-up is finished */
};

/* Warms up and times intervals until all are made or it is told to stop; what is left half is not kept. */
void pma_run(struct pma *pma);
/* Writes the first `count` intervals, of which snapshots were taken before and after each. */
void pma_write(struct json *json, const char *key, const struct pma *pma, uint64_t count, const char *stopped,
               const struct snapshot *snapshots, const struct cpu_list *self);
/* Whether the first `count` intervals are longer than the clock can tell. */
bool pma_timed(const struct pma *pma, uint64_t count);

/* -- what may have made gaps: counts of interrupts, softirqs and context switches, read from another CPU in slices of the
 * observation. Whoever reads the document regresses the gaps of each slice on them (slices.c). -- */

/* Fewer slices than this cannot carry a regression on several sources. */
#define SLICES_MIN 12u

/* Readings of one observation, for all CPUs of a list. Each two after one another bound a slice. */
struct readings {
	const struct cpu_list *cpus;
	const int *threads; /* the measuring thread of each CPU */
	size_t count, capacity;
	uint64_t *at; /* ticks */
	struct reading *list;
	struct label *labels;
	size_t label_count;
};

void readings_open(struct readings *readings, const struct cpu_list *cpus, const int *threads, size_t capacity);
/* Reads all counters once; beyond the capacity, in place of the last. */
void readings_take(struct readings *readings);
/* How many readings such as those taken fit into so many bytes, between SLICES_MIN and `most`. */
size_t readings_room(const struct readings *readings, size_t bytes, size_t most);
/* Drops the readings taken so far; the next is the first again. */
void readings_forget(struct readings *readings);

/* The gaps of a CPU, which has this place in the list, with their periods. */
struct sliced {
	size_t cpu;
	const struct gaps *gaps;
	const struct period *periods;
	size_t period_count;
	const uint8_t *owner; /* as periods_find leaves it */
};
/* Writes, as an array of one observation or none, the gaps and the counts of each slice. `steal_ms` and `smi` are sums over
 * the observation, negative where unknown. */
void slices_write(struct json *json, const char *key, const struct readings *readings, const struct sliced *sliced,
                  double steal_ms, int64_t smi);

/* -- the view of gaps: what the loop saw on each CPU, without tracing and with it, what follows from that, and how it is
 * written. What follows is made by each CPU for itself when all have measured, so that hundreds take as long as one
 * (gapview.c). -- */

/* With tracing gaps are watched in two parts, one before and one after the view whose values count: what changes steadily
 * meanwhile is in both and does not look like the cost of tracing. */
#define TRACED_PARTS 2u

/* What is common to all CPUs. */
struct gap_watch {
	const char *stopped; /* why it ended */
	struct snapshot before, after;
	struct readings readings;
	bool asked;  /* for tracing */
	bool traced; /* the kernel can be traced */
	struct tracing tracing;
	size_t parts; /* that were begun */
	struct snapshot traced_before[TRACED_PARTS], traced_after[TRACED_PARTS];
};

struct gap_view {
	struct gap_turns turns;
	struct gaps gaps;
	struct stretch stretch;
	struct gaps traced;
	uint64_t traced_ticks;               /* of all parts */
	uint64_t traced_begin[TRACED_PARTS]; /* of each, as if they followed one another */
	/* by gap_view_digest */
	struct period periods[PERIODS_MAX];
	size_t period_count;
	uint8_t *owner; /* the period of each gap */
	size_t number;  /* the place in the readings */
	struct trace_clock clock;
	struct causes *causes;
	int64_t lost_events;
	char unread[160]; /* why the trace could not be read */
};

/* Bytes that one of so many CPUs takes, with what its digest needs and the kernel's memory for its events. */
size_t gap_view_bytes(size_t cpus, size_t longest, bool traced);
/* Opens the rings and chooses the threshold; 0: by itself. In the thread that will measure. */
bool gap_view_open(struct gap_view *view, size_t cpus, size_t longest, bool traced, double threshold_ns,
                   struct error *error);
/* Whether anything was observed: an observation that was ended before its first turn has no rate. */
bool gap_view_seen(const struct gap_view *view);
/* Finds periods and what was traced. `number` is the CPU's place in the readings, `thread` the one that measured. */
void gap_view_digest(struct gap_view *view, const struct gap_watch *watch, size_t number, unsigned cpu, int thread);
void gap_view_write(struct json *json, const char *key, const struct gap_view *view, const struct gap_watch *watch,
                    const struct cpu_list *self);

/* -- the two halves: threads that are watched, one on each measured CPU (jitter.c), and the thread that watches them
 * (jitter_watch.c) -- */

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
	const char *housekeeping;
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
	struct housekeeping housekeeping;
	struct station *stations;
	size_t active;       /* threads that are not lost: those meet at the barriers */
	bool pma, gaps;      /* the views asked for */
	double threshold_ns; /* 0: automatic */
	uint64_t reported;   /* intervals that all CPUs completed */
	const char *pma_stopped;
	struct snapshot *snapshots; /* one more than intervals reported */
	uint64_t gap_ticks;
	uint64_t traced_ticks; /* of each part */
	struct gap_watch watch;
	_Atomic size_t arrived[2 + TRACED_PARTS];
};

extern struct jitter_options jitter_options;
extern struct jitter jitter;

/* Bytes that the readings of counters take at most. */
size_t jitter_readings_bytes(void);
/* Slices in which counters are read, at most. */
uint64_t jitter_slices(void);
/* Lets every thread go on to its next pause. */
void jitter_continue_all(void);
/* Watches both views while the threads go through them, unless it is told to stop; then the threads are at their last pause. */
void jitter_watch(void);
