/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of a run beside its values: where it ran, how fast the cores were, what disturbed it, what was counted. */
#pragma once

#include "interference.h"
#include "memory.h"
#include "pmu.h"
#include "samples.h"

/* What a thread knows of its measured work; of several threads, the slowest core and the sum of counts. */
struct stretch {
	bool verified;                  /* the thread was on its CPU at the end */
	double core_before, core_after; /* core clocks per tick */
	struct thread_counts counts;
};

struct evidence {
	uint64_t seed;
	struct pages pages;
	struct stretch threads;
	struct snapshot before, after;
	struct samples samples;
	struct pmu_counts *counters; /* NULL: none were asked for */
};

/* Numbers that it takes in the document. */
#define EVIDENCE_NUMBERS 100u

/* In the thread, around its work. */
void stretch_begin(struct stretch *stretch);
void stretch_end(struct stretch *stretch, unsigned cpu);
/* Adds another thread of the same run. */
void stretch_add(struct stretch *threads, const struct stretch *more);

/* Members of the object that is open: the core's clock, and what disturbed these CPUs. */
void stretch_write(struct json *json, const struct stretch *stretch, const struct snapshot *before,
                   const struct snapshot *after, const struct cpu_list *cpus);
void evidence_write(struct json *json, const struct evidence *evidence, const struct cpu_list *cpus);
/* Begins an object with the seed, the pages and whether the threads stayed on their CPUs. */
void evidence_begin_write(struct json *json, const char *key, const struct evidence *evidence);
/* Writes the samples, null where none were asked for, and the counters. */
void evidence_counted_write(struct json *json, const struct evidence *evidence, const struct sample_request *sampled);
