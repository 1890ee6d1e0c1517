/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of a run beside its values: where it ran, how fast the cores were, what disturbed it, what was counted. */
#pragma once

#include "interference.h"
#include "memory.h"
#include "pmu.h"
#include "samples.h"

struct evidence {
	uint64_t seed;
	struct pages pages;
	bool verified;                  /* every thread was on its CPU at the end */
	double core_before, core_after; /* core clocks per tick, of the slowest thread */
	struct thread_counts counts;
	struct snapshot before, after;
	struct samples samples;
	struct pmu_counts *counters; /* NULL: none were asked for */
};

/* Members of the object that is open: the core's clock, and what disturbed these CPUs. */
void evidence_write(struct json *json, const struct evidence *evidence, const struct cpu_list *cpus);
