// SPDX-License-Identifier: Apache-2.0
#include "interference.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "allocate.h"
#include "clock.h"
#include "files.h"
#include "smi.h"
#include "text.h"
#include "warning.h"

#define INTERRUPTS "/proc/interrupts"
/* Rows that are no interrupt lines: a score of the architecture's, and ten softirqs. */
#define ROWS_BESIDE 48u
/* What one count and one row's label take in the kernel's text. */
#define COUNT_CHARACTERS 11u
#define LABEL_CHARACTERS 80u
/* Rows of which something is written: most lines are quiet while one CPU is measured. */
#define ROWS_WRITTEN 64u

struct thread_counts thread_counts_now(void)
{
	struct rusage usage = {0};
	(void)getrusage(RUSAGE_THREAD, &usage); /* knows no reason to fail */
	return (struct thread_counts){(uint64_t)usage.ru_nivcsw, (uint64_t)usage.ru_nvcsw, (uint64_t)usage.ru_minflt,
	                              (uint64_t)usage.ru_majflt};
}

struct thread_counts thread_counts_since(const struct thread_counts *now, const struct thread_counts *before)
{
	return (struct thread_counts){now->involuntary - before->involuntary, now->voluntary - before->voluntary,
	                              now->minor_faults - before->minor_faults, now->major_faults - before->major_faults};
}

void thread_counts_add(struct thread_counts *sum, const struct thread_counts *more)
{
	sum->involuntary += more->involuntary;
	sum->voluntary += more->voluntary;
	sum->minor_faults += more->minor_faults;
	sum->major_faults += more->major_faults;
}

/* Which of a table's columns belong to CPUs of the list. */
struct columns {
	size_t count;    /* of the table */
	size_t *watched; /* ascending */
	size_t *places;  /* of their CPUs in the list */
	size_t watched_count;
};

/* Reads the first line, "CPU0 CPU1 ...", which leaves out CPUs that are offline. */
static const char *columns_read(struct columns *columns, const char *at, const struct cpu_list *cpus)
{
	for (uint64_t cpu; *(at = text_skip_blanks(at)) && *at != '\n'; columns->count++) {
		const char *number = text_after(at, "CPU");
		size_t place = number && text_decimal(&number, &cpu) ? cpu_list_place(cpus, (unsigned)cpu) : SIZE_MAX;
		if (place != SIZE_MAX && columns->watched_count < cpus->count) {
			columns->watched[columns->watched_count] = columns->count;
			columns->places[columns->watched_count++] = place;
		}
		while (*at && *at != '\n' && *at != ' ')
			at++;
	}
	return *at ? at + 1 : at;
}

/* The counts of one row, from after its label on. Columns that are not watched are walked over and no number is made of
 * them: a row of 500 CPUs is 5 KiB, and there are 2000. Returns where it stopped; *any: one of the counts is not zero. */
static const char *counts_read(const struct columns *columns, const char *at, uint64_t *counts, bool *any)
{
	size_t column = 0;
	*any = false;
	for (size_t i = 0; i < columns->watched_count; i++, column++) {
		for (;; column++) {
			at = text_skip_blanks(at);
			if (*at < '0' || *at > '9')
				return at;
			if (column == columns->watched[i])
				break;
			while (*at >= '0' && *at <= '9')
				at++;
		}
		uint64_t *count = &counts[columns->places[i]];
		(void)text_decimal(&at, count);
		*any = *any || *count;
	}
	/* ERR and MIS have one number for the whole machine, which is no CPU's. */
	*any = *any && (*at != '\n' || column == columns->count);
	return at;
}

/* The end of a row's line; whether its words call it a timer's. */
static const char *words_read(const char *at, bool *timer)
{
	for (*timer = false; *at && *at != '\n'; at++)
		*timer = *timer || (*at == 't' && text_after(at, "timer"));
	return *at ? at + 1 : at;
}

void counter_table_parse(struct counter_table *table, const char *text, const struct cpu_list *cpus)
{
	struct columns columns = {.watched = allocate(2 * cpus->count, sizeof(*columns.watched))};
	uint64_t *counts = allocate(cpus->count, sizeof(*counts));
	size_t capacity = 0;
	columns.places = columns.watched + cpus->count;
	*table = (struct counter_table){.known = true};
	for (const char *at = columns_read(&columns, text, cpus); *at;) {
		const char *label = text_skip_blanks(at);
		for (at = label; *at && *at != '\n' && *at != ':'; at++)
			continue;
		if (*at != ':') {
			at += *at == '\n';
			continue;
		}
		if (table->count == capacity) {
			capacity = capacity ? 2 * capacity : 256;
			table->rows = reallocate(table->rows, capacity, sizeof(*table->rows));
		}
		struct counter_row *row = &table->rows[table->count++];
		*row = (struct counter_row){0};
		size_t length = (size_t)(at - label) < sizeof(row->label) - 1 ? (size_t)(at - label) : sizeof(row->label) - 1;
		memcpy(row->label, label, length);
		bool any;
		at = words_read(counts_read(&columns, at + 1, counts, &any), &row->timer);
		if (any) {
			row->values = allocate(cpus->count, sizeof(*counts));
			memcpy(row->values, counts, cpus->count * sizeof(*counts));
		}
	}
	free(counts);
	free(columns.watched);
}

static void table_free(struct counter_table *table)
{
	for (size_t i = 0; i < table->count; i++)
		free(table->rows[i].values);
	free(table->rows);
	*table = (struct counter_table){0};
}

static void steal_read(struct snapshot *snapshot)
{
	char *text = file_read("/proc/stat");
	if (!text)
		warning_add("INTERFERENCE_UNREADABLE", "/proc/stat: %s", strerror(errno));
	/* The CPUs come first; what follows has a number for every interrupt there is. */
	for (const char *line = text; line; line = text_next_line(line)) {
		const char *at = text_after(line, "cpu");
		if (!at)
			break;
		uint64_t cpu, value;
		size_t place = text_decimal(&at, &cpu) ? cpu_list_place(snapshot->cpus, (unsigned)cpu) : SIZE_MAX;
		/* user nice system idle iowait irq softirq steal */
		for (unsigned field = 0; place != SIZE_MAX && field < 8; field++) {
			at = text_skip_blanks(at);
			if (!text_decimal(&at, &value))
				break; /* kernels before 2.6.11 end earlier */
			if (field == 7)
				snapshot->counts[COUNT_STEAL][place] = (int64_t)value;
		}
	}
	free(text);
}

static void smi_counts_read(struct snapshot *snapshot)
{
	char text[SMI_TEXT_BYTES];
	for (size_t i = 0; i < snapshot->cpus->count; i++) {
		unsigned cpu = snapshot->cpus->cpus[i];
		if (!smi_count(cpu, &snapshot->counts[COUNT_SMI][i], text)) {
			snapshot->counts[COUNT_SMI][i] = -1;
			warning_add("INTERFERENCE_UNREADABLE", "SMI count: %s", text);
			break; /* what one CPU refuses, all refuse */
		}
	}
}

int64_t throttle_count(unsigned cpu, const char *which)
{
	char path[128];
	long long value;
	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%u/thermal_throttle/%s_throttle_count", cpu, which);
	return file_number(path, &value) ? (int64_t)value : -1;
}

static void migrated_read(struct snapshot *snapshot)
{
	char *text = file_read("/proc/vmstat");
	uint64_t value;
	if (text_number_of(text, "numa_pages_migrated ", &value))
		snapshot->pages_migrated = (int64_t)value;
	else
		warning_add("INTERFERENCE_UNREADABLE", "/proc/vmstat has no numa_pages_migrated");
	free(text);
}

static void throttles_read(struct snapshot *snapshot)
{
	for (size_t i = 0; i < snapshot->cpus->count; i++) {
		unsigned cpu = snapshot->cpus->cpus[i];
		snapshot->counts[COUNT_CORE_THROTTLE][i] = throttle_count(cpu, "core");
		snapshot->counts[COUNT_PACKAGE_THROTTLE][i] = throttle_count(cpu, "package");
		if (snapshot->counts[COUNT_CORE_THROTTLE][i] < 0) {
			warning_add("INTERFERENCE_UNREADABLE", "the kernel has no thermal_throttle counts for CPU %u", cpu);
			break; /* what one CPU has not, no CPU has */
		}
	}
}

/* For when interrupts cannot be read around every measurement: all of them when they were first read, of all CPUs, because
 * the list of those to be measured still grows. */
static struct {
	struct cpu_list measured;
	struct counter_table first;
} whole_command;

void interference_of(const struct cpu_list *measured)
{
	for (size_t i = 0; i < measured->count; i++)
		cpu_list_add(&whole_command.measured, measured->cpus[i]);
}

/* False where it is not read within so many seconds of CPU time. What cannot be read is unknown, and that is all. */
static bool table_read(struct counter_table *table, const char *path, const struct cpu_list *cpus,
                       struct counter_table *first, double within_s)
{
	char *text = file_read_within(path, within_s);
	if (!text && errno == ETIME)
		return false;
	if (!text) {
		warning_add("INTERFERENCE_UNREADABLE", "%s: %s", path, strerror(errno));
		return true;
	}
	counter_table_parse(table, text, cpus);
	if (first && !first->known)
		counter_table_parse(first, text, affinity_online());
	free(text);
	return true;
}

static void softirqs_read(struct snapshot *snapshot)
{
	(void)table_read(&snapshot->softirqs, "/proc/softirqs", snapshot->cpus, NULL, INFINITY);
}

/* All but that of interrupts, which may be given up. */
static void (*const readers[COUNTER_INTERRUPTS])(struct snapshot *snapshot) = {
	[COUNTER_STAT] = steal_read,         [COUNTER_SOFTIRQS] = softirqs_read, [COUNTER_VMSTAT] = migrated_read,
	[COUNTER_THROTTLE] = throttles_read, [COUNTER_SMI] = smi_counts_read,
};

static void look(struct snapshot *snapshot, enum counter_source what, double within_s)
{
	uint64_t start_ns = clock_cpu_ns();
	bool whole = true;
	if (what == COUNTER_INTERRUPTS)
		whole = table_read(&snapshot->interrupts, INTERRUPTS, snapshot->cpus, &whole_command.first, within_s);
	else
		readers[what](snapshot);
	counter_budget_end(what, start_ns, whole);
	snapshot->looked[what] = whole;
	if (!whole)
		counter_budget_leave_out(what);
}

void snapshot_take_tables(struct snapshot *snapshot, const struct cpu_list *cpus)
{
	*snapshot = (struct snapshot){.cpus = cpus, .pages_migrated = -1};
	look(snapshot, COUNTER_SOFTIRQS, INFINITY);
	look(snapshot, COUNTER_INTERRUPTS, INFINITY);
}

static void snapshot_begin(struct snapshot *snapshot, const struct cpu_list *cpus)
{
	size_t count = cpus->count;
	int64_t *values = allocate(CPU_COUNTS * count, sizeof(*values));
	memset(values, -1, CPU_COUNTS * count * sizeof(*values));
	*snapshot = (struct snapshot){.cpus = cpus, .pages_migrated = -1};
	for (size_t i = 0; i < CPU_COUNTS; i++)
		snapshot->counts[i] = values + i * count;
}

static void take(struct snapshot *snapshot, const struct cpu_list *cpus, bool quietly, unsigned readings)
{
	snapshot_begin(snapshot, cpus);
	counter_budget_count();
	for (enum counter_source what = 0; what <= COUNTER_INTERRUPTS; what++) {
		if (what == COUNTER_SMI && quietly)
			continue;
		double limit_s = counter_budget_limit(what, readings);
		if (limit_s > 0)
			look(snapshot, what, limit_s);
		else
			counter_budget_leave_out(what);
	}
}

void snapshot_take_quietly(struct snapshot *snapshot, const struct cpu_list *cpus)
{
	take(snapshot, cpus, true, 1);
}

void snapshot_take(struct snapshot *snapshot, const struct cpu_list *cpus)
{
	take(snapshot, cpus, false, 2);
}

void snapshot_take_again(struct snapshot *after, const struct snapshot *before)
{
	snapshot_begin(after, before->cpus);
	for (enum counter_source what = 0; what <= COUNTER_INTERRUPTS; what++)
		if (before->looked[what])
			look(after, what, INFINITY);
}

void snapshots_demand(const struct cpu_list *cpus, uint64_t count, struct demand *demand)
{
	long online = sysconf(_SC_NPROCESSORS_ONLN);
	uint64_t rows = ROWS_BESIDE, columns = online > 0 ? (uint64_t)online : 1;
	DIR *lines = opendir("/proc/irq");
	while (lines && readdir(lines))
		rows++;
	if (lines)
		closedir(lines);
	demand_other(demand, rows * (sizeof(struct counter_row) + cpus->count * sizeof(uint64_t)), count);
	demand_other(demand, rows * (columns * COUNT_CHARACTERS + LABEL_CHARACTERS), 1);
	demand_document(demand, (count + 1) / 2 * (rows < ROWS_WRITTEN ? rows : ROWS_WRITTEN));
}

void snapshot_free(struct snapshot *snapshot)
{
	table_free(&snapshot->interrupts);
	table_free(&snapshot->softirqs);
	free(snapshot->counts[0]);
	*snapshot = (struct snapshot){0};
}

/* The places in `cpus` of those of `some` that are there. To be freed. */
static size_t *places_of(const struct cpu_list *cpus, const struct cpu_list *some, size_t *count)
{
	size_t *places = allocate(some->count + 1, sizeof(*places));
	*count = 0;
	for (size_t i = 0; i < some->count; i++) {
		places[*count] = cpu_list_place(cpus, some->cpus[i]);
		*count += places[*count] != SIZE_MAX;
	}
	return places;
}

static void table_write(struct json *json, const char *key, const struct counter_table *before,
                        const struct counter_table *after, const size_t *places, size_t count)
{
	if (!json_object_known(json, key, before->known && after->known))
		return;
	/* Rows keep their order unless a device came or went: the one after the last found is nearly always right. */
	size_t guess = 0;
	for (size_t i = 0; i < after->count; i++) {
		const struct counter_row *row = &after->rows[i], *old = NULL;
		for (size_t k = 0; k < before->count && !old; k++, guess++) {
			guess = guess < before->count ? guess : 0;
			if (!strcmp(before->rows[guess].label, row->label))
				old = &before->rows[guess];
		}
		uint64_t difference = 0;
		for (size_t k = 0; row->values && k < count; k++)
			difference += row->values[places[k]] - (old && old->values ? old->values[places[k]] : 0);
		if (difference)
			json_u64(json, row->label, difference);
	}
	json_object_end(json);
}

/* Sum of differences over CPUs, or false when one of them is unknown. */
static bool sum_known(const struct snapshot *before, const struct snapshot *after, enum cpu_count which,
                      const size_t *places, size_t count, int64_t *sum)
{
	const int64_t *from = before->counts[which], *to = after->counts[which];
	*sum = 0;
	for (size_t i = 0; i < count; i++) {
		if (!from || !to || from[places[i]] < 0 || to[places[i]] < 0)
			return false;
		*sum += to[places[i]] - from[places[i]];
	}
	return true;
}

void interference_sums(const struct snapshot *before, const struct snapshot *after, const struct cpu_list *some,
                       double *steal_ms, int64_t *smi)
{
	int64_t sum;
	size_t count, *places = places_of(after->cpus, some, &count);
	bool known = sum_known(before, after, COUNT_STEAL, places, count, &sum);
	*steal_ms = known ? (double)sum * 1000 / (double)sysconf(_SC_CLK_TCK) : -1;
	*smi = sum_known(before, after, COUNT_SMI, places, count, &sum) ? sum : -1;
	free(places);
}

void interference_write(struct json *json, const char *key, const struct thread_counts *thread,
                        const struct snapshot *before, const struct snapshot *after, const struct cpu_list *some)
{
	size_t count, *places = places_of(after->cpus, some, &count);
	static const char *const keys[CPU_COUNTS] = {"steal_ms", "smi", "core_throttle", "package_throttle"};
	int64_t sum;
	json_object_begin(json, key);
	json_u64(json, "involuntary_switches", thread->involuntary);
	json_u64(json, "voluntary_switches", thread->voluntary);
	json_u64(json, "minor_faults", thread->minor_faults);
	json_u64(json, "major_faults", thread->major_faults);
	bool known = sum_known(before, after, COUNT_STEAL, places, count, &sum);
	json_f64_known(json, keys[COUNT_STEAL], known, (double)sum * 1000 / (double)sysconf(_SC_CLK_TCK));
	table_write(json, "interrupts", &before->interrupts, &after->interrupts, places, count);
	table_write(json, "softirqs", &before->softirqs, &after->softirqs, places, count);
	for (enum cpu_count i = COUNT_SMI; i < CPU_COUNTS; i++) {
		known = sum_known(before, after, i, places, count, &sum);
		json_i64_known(json, keys[i], known, sum);
	}
	known = before->pages_migrated >= 0 && after->pages_migrated >= 0;
	json_i64_known(json, "pages_migrated", known, after->pages_migrated - before->pages_migrated);
	json_object_end(json);
	free(places);
}

void interference_whole_write(struct json *json, const char *key)
{
	struct counter_table last = {0};
	size_t count = 0, *places = NULL;
	if (counter_budget_left_out(COUNTER_INTERRUPTS) && whole_command.first.known &&
	    counter_budget_limit(COUNTER_INTERRUPTS, 1) > 0) {
		(void)table_read(&last, INTERRUPTS, affinity_online(), NULL, INFINITY);
		places = places_of(affinity_online(), &whole_command.measured, &count);
	}
	table_write(json, key, &whole_command.first, &last, places, count);
	table_free(&last);
	table_free(&whole_command.first);
	free(places);
}
