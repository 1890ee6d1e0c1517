/* SPDX-License-Identifier: Apache-2.0 */
/* What may have made gaps: counts of interrupts, softirqs and context switches, read from another CPU in slices of the
 * observation. Whoever reads the document regresses the gaps of each slice on them. */
#pragma once

#include "affinity.h"
#include "gaps.h"
#include "periods.h"

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
