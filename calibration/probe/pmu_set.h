/* SPDX-License-Identifier: Apache-2.0 */
/* Counters that are opened and read together, between those that read them and those that say what was counted. */
#pragma once

#include "pmu.h"

/* Before the values of a group's members: how many there are, and the times enabled and running. */
#define PMU_HEAD_WORDS 3u

enum pmu_moment { PMU_QUIET_BEGIN, PMU_QUIET_END, PMU_BEGIN, PMU_END, PMU_MOMENTS };

struct pmu_counter {
	const struct pmu_spec *spec;
	unsigned cpu; /* where it counts on one */
	int descriptor;
	size_t leader;  /* whose group it is in, by its number; its own where it is one */
	size_t member;  /* the place of its value among the group's */
	size_t members; /* of a leader: values of its group */
	size_t block;   /* of a leader: where its readings are */
	int failed;     /* of a leader: why it could not be read */
	uint64_t ticks[PMU_MOMENTS];
	uint64_t width[PMU_MOMENTS]; /* of a leader: how long its reading took */
};

struct pmu_refusal {
	const struct pmu_spec *spec;
	unsigned cpu;
	int code; /* 0: the kernel was not asked */
	char reason[PMU_REASON_BYTES];
};

/* Counters that are opened and read together: all of CPUs, or those of one thread. */
struct pmu_set {
	struct pmu_counter *counters;
	size_t count;
	struct pmu_refusal *refusals;
	size_t refused;
	uint64_t *words[PMU_MOMENTS];
	uint64_t *fresh; /* the reading at hand, of any group */
};

struct pmu {
	struct pmu_spec *specs;
	size_t count;
	struct pmu_set cpus;
	struct pmu_set *threads;
	size_t thread_count;
	bool watched; /* before anything was measured */
	double background_s;
};

void pmu_refuse(struct pmu_refusal **refusals, size_t *count, const struct pmu_refusal *refusal);
