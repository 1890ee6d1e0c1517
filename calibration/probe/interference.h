/* SPDX-License-Identifier: Apache-2.0 */
/* What else happened on the measured CPUs: counters read before and after, never while the measured threads run.
 * The thread's own counts come from the measured thread; the machine's from the one that supervises it. */
#pragma once

#include "affinity.h"
#include "counter_budget.h"
#include "demand.h"

struct thread_counts {
	uint64_t involuntary;
	uint64_t voluntary;
	uint64_t minor_faults;
	uint64_t major_faults;
};

struct counter_row {
	char label[24];
	bool timer;       /* the row's own words call it a timer's */
	uint64_t *values; /* one per CPU of the list; NULL where all are zero, as most are */
};

struct counter_table {
	struct counter_row *rows;
	size_t count;
	bool known;
};

/* Stolen time is in USER_HZ ticks. */
enum cpu_count { COUNT_STEAL, COUNT_SMI, COUNT_CORE_THROTTLE, COUNT_PACKAGE_THROTTLE, CPU_COUNTS };

/* One reading of all counters for a list of CPUs. */
struct snapshot {
	const struct cpu_list *cpus;
	bool looked[COUNTER_SOURCES]; /* what was read */
	struct counter_table interrupts;
	struct counter_table softirqs;
	int64_t *counts[CPU_COUNTS]; /* by CPU of the list; -1: unknown */
	int64_t pages_migrated;
};

/* How often a CPU's "core" or "package" was throttled for its heat since boot; -1 where the kernel does not tell. */
int64_t throttle_count(unsigned cpu, const char *which);
/* Of the calling thread. */
struct thread_counts thread_counts_now(void);
struct thread_counts thread_counts_since(const struct thread_counts *now, const struct thread_counts *before);
void thread_counts_add(struct thread_counts *sum, const struct thread_counts *more);

/* Reads the text of /proc/interrupts or /proc/softirqs: a line of CPU names, then rows "label: one number per CPU  words". */
void counter_table_parse(struct counter_table *table, const char *text, const struct cpu_list *cpus);
/* Before a measurement: as much as may be read twice. */
void snapshot_take(struct snapshot *snapshot, const struct cpu_list *cpus);
/* After it: what was read before. */
void snapshot_take_again(struct snapshot *after, const struct snapshot *before);
/* One of a row, each taken after one part of a measurement and before the next. Without the SMI count, which is read by
 * an interrupt on its CPU: for use while that CPU is measured. */
void snapshot_take_quietly(struct snapshot *snapshot, const struct cpu_list *cpus);
/* Only the counts of interrupts and softirqs, for use many times in a run. */
void snapshot_take_tables(struct snapshot *snapshot, const struct cpu_list *cpus);
/* What so many snapshots take that are kept, and what is written of each pair of them, besides reading one. */
void snapshots_demand(const struct cpu_list *cpus, uint64_t count, struct demand *demand);
void snapshot_free(struct snapshot *snapshot);

/* Writes the differences, summed over the CPUs of `some`, which are among those of the snapshots. */
void interference_write(struct json *json, const char *key, const struct thread_counts *thread,
                        const struct snapshot *before, const struct snapshot *after, const struct cpu_list *some);
/* Two of these sums, for those who need numbers; negative where unknown. */
void interference_sums(const struct snapshot *before, const struct snapshot *after, const struct cpu_list *some,
                       double *steal_ms, int64_t *smi);
/* CPUs that are going to be measured, more each time. */
void interference_of(const struct cpu_list *measured);
/* The interrupts of all of these from the first reading to now; null where each measurement has its own, or where one more
 * reading would take too long. */
void interference_whole_write(struct json *json, const char *key);
