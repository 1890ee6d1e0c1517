/* SPDX-License-Identifier: Apache-2.0 */
/* Counters of the hardware and of the kernel by perf_event_open: what --event asks for, opened, read around the work and
 * written beside its values. What cannot be had is refused one by one, with the kernel's answer and what it means.
 *
 * An event counts on CPUs, whatever runs there, or in each measuring thread. Counters of one name and target are one
 * value: a memory controller is many boxes. A NULL struct pmu is that nothing was asked, and everything accepts it. */
#pragma once

#include "affinity.h"
#include "error.h"
#include "options.h"

#define PMU_NOTATION "NAME=PMU/TERM[,TERM...]/[@CPULIST]"
/* Of the options that every subcommand with counters has. */
#define PMU_EVENT_HELP                                                                                                 \
	"count this event beside the work, on these CPUs or, without any, in each measuring thread; terms: config=, "      \
	"config1=, config2=, config3= with 0x and digits, group=0 to 63, user"
/* What the names of events begin with that the probes' threads of loaded count, and not the load's. */
#define PMU_OF_PROBES "probe."

#define PMU_NAME_MAX 40u
#define PMU_SOURCE_MAX 63u
#define PMU_REASON_BYTES 400u

/* One --event. */
struct pmu_spec {
	char name[PMU_NAME_MAX + 1];
	char source[PMU_SOURCE_MAX + 1]; /* the PMU's name in sysfs */
	uint64_t config[4];
	int group; /* events of one target with the same number count at the same time; -1: by itself */
	bool user; /* nothing of the kernel's own work */
	bool on_cpus;
	struct cpu_list cpus;
	/* The number by which the kernel knows the PMU; read when it is opened. */
	bool known;
	uint32_t type;
};

struct perf_event_attr;
struct pmu;

/* In place of a thread: every thread and all CPUs; the CPUs alone. */
#define PMU_ALL SIZE_MAX
#define PMU_CPUS (SIZE_MAX - 1)

/* A usage error where an event is not in the notation. `probes`: whether names may begin with PMU_OF_PROBES. */
bool pmu_parse(const struct word_list *events, bool probes, struct pmu **pmu, struct error *error);
/* Opens what counts on CPUs; what is refused is no error. */
void pmu_open(struct pmu *pmu);
/* Makes room for the counters of so many threads, before they start; those of earlier threads are closed. */
void pmu_threads(struct pmu *pmu, size_t count);
/* In the thread, before its work: opens its counters. `which`: "" or PMU_OF_PROBES. Other threads may do the same. */
void pmu_open_thread(struct pmu *pmu, size_t thread, const char *which);
/* Counts the events of CPUs for so long; to be called while nothing of ours runs. */
void pmu_background(struct pmu *pmu, double seconds);

/* Reads counters before and after the work: PMU_ALL, PMU_CPUS, or those of one thread, which may do that itself. The work
 * of other threads goes on: each of their counters costs the CPU it counts on an interruption of a few microseconds. */
void pmu_begin(struct pmu *pmu, size_t which);
void pmu_end(struct pmu *pmu, size_t which);

/* How much a thread, or PMU_ALL of them, had done at some time between the readings; negative: not of that kind. */
struct pmu_work {
	double steps, hops;
};
typedef struct pmu_work (*pmu_progress)(void *context, size_t thread, uint64_t ticks);

/* What was counted between the last two readings: on CPUs, and in one thread or PMU_ALL. To be written when the clock is
 * known best; NULL where nothing was asked. `progress` may be NULL. */
struct pmu_counts;
struct pmu_counts *pmu_take(const struct pmu *pmu, size_t thread, pmu_progress progress, void *context);
/* How many events were counted. */
size_t pmu_counted(const struct pmu_counts *counts);
/* Why the first of those refused was; NULL where none was. */
const char *pmu_first_refusal(const struct pmu_counts *counts);
/* Writes null for NULL. */
void pmu_counts_write(struct json *json, const char *key, const struct pmu_counts *counts);

/* One reading of one counter, in the kernel's words: its value, and for how long it should and did count. */
struct pmu_reading {
	uint64_t value, enabled_ns, running_ns;
};
/* What would have been counted between two readings had it counted all the time, and the share of the time that it did.
 * False where that is none. */
bool pmu_scale(const struct pmu_reading *before, const struct pmu_reading *after, double *scaled, double *fraction);

/* For those who open events of their own: looks for the PMU's number. False where the kernel has no such PMU. */
bool pmu_find(struct pmu_spec *spec);
/* Opens an event of the calling thread (NULL) or of a CPU. Negative with errno: refused, or too few descriptors stay free. */
int pmu_descriptor(struct perf_event_attr *attributes, const unsigned *cpu, int leader);
const char *pmu_errno_name(int code);
/* A sentence that says why; `code` is 0 where the kernel was not asked because it has no such PMU. */
void pmu_reason(const struct pmu_spec *spec, const unsigned *cpu, int code, char reason[PMU_REASON_BYTES]);
/* Of the kernel; false where it has none. */
bool pmu_paranoid(long long *value);
/* The source of the events that the kernel itself has names for. */
#define PMU_GENERIC_SOURCE "hardware"
/* Descriptors that stay free for the files that are read around the work. */
#define PMU_DESCRIPTORS_LEFT 64
#define PMU_CAP_PERFMON 38u
#define PMU_CAP_SYS_ADMIN 21u
#define PMU_SOURCES "/sys/bus/event_source/devices"
