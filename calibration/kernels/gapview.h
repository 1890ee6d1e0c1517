/* SPDX-License-Identifier: Apache-2.0 */
/* The gap view of jitter: what the loop saw on each CPU, without tracing and with it, what follows from that, and how it is
 * written. What follows is made by each CPU for itself when all have measured, so that hundreds take as long as one. */
#pragma once

#include "attribution.h"
#include "causes.h"
#include "evidence.h"
#include "gaps.h"
#include "periods.h"
#include "tracing.h"

/* With tracing gaps are watched in two parts, one before and one after the view whose values count: what changes steadily
 * meanwhile is in both and does not look like the cost of tracing. */
#define TRACED_PARTS 2u

/* What is common to all CPUs. */
struct gap_watch {
	const char *stopped; /* why it ended */
	double half_width;   /* of the rate of gaps, the widest of all CPUs; negative: not known */
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
	uint64_t traced_ticks; /* of all parts */
	/* by gap_view_digest */
	struct period periods[PERIODS_MAX];
	size_t period_count;
	struct attribution attribution;
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
/* Finds periods and causes. `number` is the CPU's place in the readings, `thread` the one that measured. */
void gap_view_digest(struct gap_view *view, const struct gap_watch *watch, size_t number, unsigned cpu, int thread);
void gap_view_write(struct json *json, const char *key, const struct gap_view *view, const struct gap_watch *watch,
                    const struct cpu_list *self);
