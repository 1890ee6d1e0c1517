/* SPDX-License-Identifier: Apache-2.0 */
/* What the gaps were, as far as counters tell: counts of interrupts, softirqs and context switches are read from another
 * CPU in slices of the observation, and the gaps of each slice are regressed on them. What no count explains stays
 * unattributed; what comes too evenly to be told from a steady rest is not told, unless it is a timer whose gaps are
 * known by their period. */
#pragma once

#include "affinity.h"
#include "gaps.h"
#include "periods.h"

/* Fewer slices than this cannot carry a regression on several sources. */
#define ATTRIBUTION_SLICES 12u

enum source_class { SOURCE_INTERRUPT, SOURCE_SOFTIRQ, SOURCE_SWITCHES, SOURCE_STEAL, SOURCE_SMI };

/* What of the gaps, or of the time lost in them, a source explains. */
struct explained {
	bool known;
	double amount;
};

struct source {
	char label[24];
	enum source_class class;
	bool timer;
	double *slices; /* events in each slice; NULL where only the sum is known */
	double count;
	struct explained gaps, lost; /* lost in ticks */
	const char *reason;
};

/* The observation of one CPU. The first `slices` + 1 readings bound the slices. */
struct attribution {
	size_t slices;
	const uint64_t *bounds; /* ticks */
	struct source *sources;
	size_t source_count;
	/* results, of the gaps within the bounds */
	uint64_t gaps;
	uint64_t lost_ticks;
	double unattributed_gaps, unattributed_lost;
};

/* Readings of one observation, for all CPUs of a list. */
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
/* How many readings such as those taken fit into so many bytes, between ATTRIBUTION_SLICES and `most`. */
size_t readings_room(const struct readings *readings, size_t bytes, size_t most);
/* Drops the readings taken so far; the next is the first again. */
void readings_forget(struct readings *readings);

/* Explains the gaps of one CPU by the readings and the periods found; owner as periods_find leaves it. */
void attribution_make(struct attribution *attribution, const struct readings *readings, size_t cpu,
                      const struct gaps *gaps, const struct period *periods, size_t period_count, const uint8_t *owner);
/* The arithmetic alone: sources with their slices, gap counts and lost ticks of each slice. */
void attribution_solve(struct attribution *attribution, const double *counts, const double *lost);
/* `steal_ms` and `smi` are sums over the observation, negative where unknown. */
void attribution_write(struct json *json, const char *key, const struct attribution *attribution, double steal_ms,
                       int64_t smi);
