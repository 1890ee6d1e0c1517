// SPDX-License-Identifier: Apache-2.0
#include "interference.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "files.h"
#include "json.h"
#include "warning.h"

#define MSR_SMI_COUNT 0x34

bool thread_counts_read(struct thread_counts *counts)
{
	struct rusage usage;
	if (getrusage(RUSAGE_THREAD, &usage) != 0)
		return false;
	*counts = (struct thread_counts){(uint64_t)usage.ru_nivcsw, (uint64_t)usage.ru_nvcsw, (uint64_t)usage.ru_minflt,
	                                 (uint64_t)usage.ru_majflt};
	return true;
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

/* /proc/interrupts and /proc/softirqs: a line of CPU names, then rows "label: one number per CPU  text". */
static void table_read(struct counter_table *table, const char *path, const struct cpu_list *cpus)
{
	char *text = file_read(path);
	*table = (struct counter_table){.known = text != NULL};
	if (!text) {
		warning_add("INTERFERENCE_UNREADABLE", "%s: %s", path, strerror(errno));
		return;
	}
	size_t columns = 0, *slot = NULL;
	char *line = text, *next = strchr(text, '\n');
	if (next)
		*next++ = '\0';
	char *rest;
	for (char *word = strtok_r(line, " \t", &rest); word; word = strtok_r(NULL, " \t", &rest)) {
		size_t *grown = realloc(slot, (columns + 1) * sizeof(*slot));
		if (!grown)
			goto out;
		slot = grown;
		slot[columns] = SIZE_MAX;
		if (!strncmp(word, "CPU", 3)) {
			unsigned cpu = (unsigned)strtoul(word + 3, NULL, 10);
			for (size_t i = 0; i < cpus->count; i++)
				if (cpus->cpus[i] == cpu)
					slot[columns] = i;
		}
		columns++;
	}
	for (line = next; line && *line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		line += strspn(line, " ");
		char *colon = strchr(line, ':');
		if (!colon)
			continue;
		*colon = '\0';
		struct counter_row row = {.values = calloc(cpus->count ? cpus->count : 1, sizeof(uint64_t))};
		struct counter_row *grown = realloc(table->rows, (table->count + 1) * sizeof(row));
		if (grown)
			table->rows = grown;
		if (!grown || !row.values) {
			free(row.values);
			goto out;
		}
		snprintf(row.label, sizeof(row.label), "%s", line);
		char *at = colon + 1;
		for (size_t column = 0; column < columns; column++) {
			char *end;
			uint64_t value = strtoull(at, &end, 10);
			if (end == at)
				break; /* ERR and MIS have one number for the whole machine */
			if (slot[column] != SIZE_MAX)
				row.values[slot[column]] = value;
			at = end;
		}
		row.timer = strstr(at, "timer") != NULL;
		table->rows[table->count++] = row;
	}
	free(slot);
	free(text);
	return;
out:
	table->known = false;
	free(slot);
	free(text);
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
	for (size_t i = 0; text && i < snapshot->cpus->count; i++) {
		char key[32];
		snprintf(key, sizeof(key), "\ncpu%u ", snapshot->cpus->cpus[i]);
		char *at = strstr(text, key);
		if (!at)
			continue;
		at += strlen(key);
		/* user nice system idle iowait irq softirq steal */
		for (unsigned field = 0; field < 8; field++) {
			char *end;
			uint64_t value = strtoull(at, &end, 10);
			if (end == at)
				break; /* kernels before 2.6.11 end earlier */
			if (field == 7)
				snapshot->steal[i] = (int64_t)value;
			at = end;
		}
	}
	free(text);
}

static void smi_read(struct snapshot *snapshot)
{
	for (size_t i = 0; i < snapshot->cpus->count; i++) {
		char path[64];
		uint64_t value;
		snprintf(path, sizeof(path), "/dev/cpu/%u/msr", snapshot->cpus->cpus[i]);
		int descriptor = open(path, O_RDONLY | O_CLOEXEC);
		if (descriptor >= 0 && pread(descriptor, &value, sizeof(value), MSR_SMI_COUNT) == (ssize_t)sizeof(value)) {
			snapshot->smi[i] = (int64_t)(value & 0xffffffffu);
		} else {
			warning_add("INTERFERENCE_UNREADABLE", "SMI count (%s, register 0x34): %s", descriptor < 0 ? path : "msr",
			            strerror(errno));
			i = snapshot->cpus->count; /* what one CPU refuses, all refuse */
		}
		if (descriptor >= 0)
			close(descriptor);
	}
}

static int64_t throttle_read(unsigned cpu, const char *which)
{
	char path[128];
	long long value;
	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%u/thermal_throttle/%s_throttle_count", cpu, which);
	return file_number(path, &value) ? (int64_t)value : -1;
}

void snapshot_take_tables(struct snapshot *snapshot, const struct cpu_list *cpus)
{
	*snapshot = (struct snapshot){.cpus = cpus, .pages_migrated = -1};
	table_read(&snapshot->interrupts, "/proc/interrupts", cpus);
	table_read(&snapshot->softirqs, "/proc/softirqs", cpus);
}

void snapshot_take_quietly(struct snapshot *snapshot, const struct cpu_list *cpus)
{
	size_t count = cpus->count;
	snapshot_take_tables(snapshot, cpus);
	int64_t *values = malloc(4 * (count ? count : 1) * sizeof(*values));
	if (!values) {
		warning_add("INTERFERENCE_UNREADABLE", "no memory for the counters of %zu CPUs", count);
		return;
	}
	for (size_t i = 0; i < 4 * count; i++)
		values[i] = -1;
	snapshot->steal = values;
	snapshot->smi = values + count;
	snapshot->core_throttle = values + 2 * count;
	snapshot->package_throttle = values + 3 * count;
	steal_read(snapshot);
	for (size_t i = 0; i < count; i++) {
		snapshot->core_throttle[i] = throttle_read(cpus->cpus[i], "core");
		snapshot->package_throttle[i] = throttle_read(cpus->cpus[i], "package");
	}
	if (count && snapshot->core_throttle[0] < 0)
		warning_add("INTERFERENCE_UNREADABLE", "the kernel has no thermal_throttle counts for CPU %u", cpus->cpus[0]);
	char *text = file_read("/proc/vmstat");
	const char *at = text ? strstr(text, "numa_pages_migrated ") : NULL;
	if (at)
		snapshot->pages_migrated = (int64_t)strtoull(at + strlen("numa_pages_migrated "), NULL, 10);
	else
		warning_add("INTERFERENCE_UNREADABLE", "/proc/vmstat has no numa_pages_migrated");
	free(text);
}

void snapshot_take(struct snapshot *snapshot, const struct cpu_list *cpus)
{
	snapshot_take_quietly(snapshot, cpus);
	if (snapshot->smi)
		smi_read(snapshot);
}

void snapshot_free(struct snapshot *snapshot)
{
	table_free(&snapshot->interrupts);
	table_free(&snapshot->softirqs);
	free(snapshot->steal);
	*snapshot = (struct snapshot){0};
}

void interference_free(struct interference *interference)
{
	snapshot_free(&interference->before);
	snapshot_free(&interference->after);
}

static uint64_t row_difference(const struct counter_row *before, const struct counter_row *after,
                               const struct cpu_list *cpus, const struct cpu_list *some)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < cpus->count; i++)
		if (cpu_list_has(some, cpus->cpus[i]))
			sum += after->values[i] - (before ? before->values[i] : 0);
	return sum;
}

static void table_write(struct json *json, const char *key, const struct counter_table *before,
                        const struct counter_table *after, const struct cpu_list *cpus, const struct cpu_list *some)
{
	if (!before->known || !after->known) {
		json_null(json, key);
		return;
	}
	json_object_begin(json, key);
	for (size_t i = 0; i < after->count; i++) {
		const struct counter_row *old = NULL;
		for (size_t k = 0; k < before->count && !old; k++) {
			/* Rows keep their order unless a device came or went, so the first guess is nearly always right. */
			size_t guess = (i + k) % before->count;
			if (!strcmp(before->rows[guess].label, after->rows[i].label))
				old = &before->rows[guess];
		}
		uint64_t difference = row_difference(old, &after->rows[i], cpus, some);
		if (difference)
			json_u64(json, after->rows[i].label, difference);
	}
	json_object_end(json);
}

/* Sum of differences over CPUs, or false when one of them is unknown. */
static bool sum_known(const int64_t *before, const int64_t *after, const struct cpu_list *cpus,
                      const struct cpu_list *some, int64_t *sum)
{
	*sum = 0;
	for (size_t i = 0; i < cpus->count; i++) {
		if (!cpu_list_has(some, cpus->cpus[i]))
			continue;
		if (!before || !after || before[i] < 0 || after[i] < 0)
			return false;
		*sum += after[i] - before[i];
	}
	return true;
}

static void optional_write(struct json *json, const char *key, bool known, int64_t value)
{
	if (known)
		json_i64(json, key, value);
	else
		json_null(json, key);
}

void interference_sums(const struct snapshot *before, const struct snapshot *after, const struct cpu_list *some,
                       double *steal_ms, int64_t *smi)
{
	int64_t sum;
	bool known = sum_known(before->steal, after->steal, after->cpus, some, &sum);
	*steal_ms = known ? (double)sum * 1000 / (double)sysconf(_SC_CLK_TCK) : -1;
	*smi = sum_known(before->smi, after->smi, after->cpus, some, &sum) ? sum : -1;
}

void interference_write(struct json *json, const char *key, const struct thread_counts *thread,
                        const struct snapshot *before, const struct snapshot *after, const struct cpu_list *some)
{
	const struct cpu_list *cpus = after->cpus;
	int64_t sum;
	json_object_begin(json, key);
	json_u64(json, "involuntary_switches", thread->involuntary);
	json_u64(json, "voluntary_switches", thread->voluntary);
	json_u64(json, "minor_faults", thread->minor_faults);
	json_u64(json, "major_faults", thread->major_faults);
	if (sum_known(before->steal, after->steal, cpus, some, &sum))
		json_f64(json, "steal_ms", (double)sum * 1000 / (double)sysconf(_SC_CLK_TCK));
	else
		json_null(json, "steal_ms");
	table_write(json, "interrupts", &before->interrupts, &after->interrupts, cpus, some);
	table_write(json, "softirqs", &before->softirqs, &after->softirqs, cpus, some);
	bool known = sum_known(before->smi, after->smi, cpus, some, &sum);
	optional_write(json, "smi", known, sum);
	known = sum_known(before->core_throttle, after->core_throttle, cpus, some, &sum);
	optional_write(json, "core_throttle", known, sum);
	known = sum_known(before->package_throttle, after->package_throttle, cpus, some, &sum);
	optional_write(json, "package_throttle", known, sum);
	known = before->pages_migrated >= 0 && after->pages_migrated >= 0;
	optional_write(json, "pages_migrated", known, after->pages_migrated - before->pages_migrated);
	json_object_end(json);
}
