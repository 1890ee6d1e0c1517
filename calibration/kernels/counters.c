// SPDX-License-Identifier: Apache-2.0
/* Counters: what of the events asked for this machine counts, and why the others are refused. Nothing is measured. */
#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "affinity.h"
#include "arch/arch.h"
#include "clock.h"
#include "demand.h"
#include "files.h"
#include "pmu.h"
#include "stopping.h"
#include "subcommand.h"
#include "worker.h"

/* Additions between two looks at whether to end: some microseconds. */
#define SPIN_ADDITIONS 10000u

static struct {
	struct word_list events;
	double duration_s;
	const char *work;
} options;

static const struct option table[] = {
	{"--event", OPTION_REPEATED, &options.events, PMU_NOTATION, PMU_EVENT_HELP, NULL, NULL, 0, 0, true},
	{"--duration-s", OPTION_F64, &options.duration_s, "S", "time to count", "1", NULL, 0, 600, false},
	{"--work", OPTION_TEXT, &options.work, "CPU",
	 "let the thread whose events are counted run on this CPU all the time; without it that thread sleeps", NULL, NULL,
	 0, 0, true},
};

struct source {
	char *name;
	long long type;
};

static struct {
	struct pmu *pmu;
	struct worker worker;
	uint64_t work_cpu;
	_Atomic bool working, stop;
	uint64_t carry; /* of the additions, so that they are made */
} state;

static bool prepare(struct error *error)
{
	if (options.work && (!options_u64(options.work, &state.work_cpu) || state.work_cpu > INT32_MAX))
		return error_set(error, ERROR_USAGE, "--work: expected the number of a CPU, found '%s'", options.work);
	if (options.duration_s <= 0)
		return error_set(error, ERROR_USAGE, "--duration-s: expected more than 0, found %g", options.duration_s);
	return pmu_parse(&options.events, false, error);
}

static void body(struct worker *worker)
{
	pmu_open_thread(state.pmu, 0, "");
	worker_pause(worker);
	atomic_store(&state.working, true);
	if (options.work)
		while (!atomic_load_explicit(&state.stop, memory_order_relaxed))
			state.carry = arch_delay(state.carry, SPIN_ADDITIONS);
	else
		worker_pause(worker);
}

/* Counts for the time asked. The thread ends with it, whatever ends it. */
static bool count(struct pmu_counts **counts, struct error *error)
{
	unsigned cpu = options.work ? (unsigned)state.work_cpu : affinity_allowed()->cpus[0];
	if (!pmu_threads(state.pmu, 1, error) || !worker_start(&state.worker, cpu, body, NULL, error))
		return false;
	bool stopped = false;
	if (worker_wait(&state.worker)) {
		worker_continue(&state.worker);
		while (!atomic_load(&state.working))
			nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
		pmu_begin(state.pmu);
		stopped = stop_sleep_ns((uint64_t)(options.duration_s * 1e9));
		pmu_end(state.pmu);
	}
	atomic_store(&state.stop, true);
	worker_join(&state.worker);
	if (state.worker.error.code != ERROR_NONE) {
		*error = state.worker.error;
		return false;
	}
	return !(stopped && stop_error(error)) && pmu_take(state.pmu, PMU_ALL, NULL, NULL, counts, error);
}

static int by_name(const void *one, const void *other)
{
	return strcmp(((const struct source *)one)->name, ((const struct source *)other)->name);
}

/* The PMUs that the kernel shows; those that give no number are none. False where memory ran out. */
static bool sources_write(struct json *json)
{
	struct source *sources = NULL;
	size_t found = 0;
	bool good = true;
	DIR *directory = opendir(PMU_SOURCES);
	for (const struct dirent *entry; good && directory && (entry = readdir(directory)) != NULL;) {
		char path[512];
		long long type;
		snprintf(path, sizeof(path), PMU_SOURCES "/%s/type", entry->d_name);
		if (entry->d_name[0] == '.' || !file_number(path, &type))
			continue;
		struct source *grown = realloc(sources, (found + 1) * sizeof(*grown));
		char *name = strdup(entry->d_name);
		if (grown)
			sources = grown;
		good = grown && name;
		if (good)
			sources[found++] = (struct source){name, type};
		else
			free(name);
	}
	if (directory)
		closedir(directory);
	if (found)
		qsort(sources, found, sizeof(*sources), by_name);
	json_array_begin(json, "pmus");
	for (size_t i = 0; i < found; i++) {
		json_object_begin(json, NULL);
		json_text(json, "name", sources[i].name);
		json_i64(json, "type", sources[i].type);
		json_object_end(json);
		free(sources[i].name);
	}
	json_array_end(json);
	free(sources);
	return good;
}

static bool measure(struct json *result, struct error *error)
{
	struct pmu_counts *counts = NULL;
	long long paranoid = 0;
	struct cpu_list measured = {0};
	if (options.work)
		cpu_list_add(&measured, (unsigned)state.work_cpu);
	supervise_avoid(&measured);
	struct demand demand = {0};
	demand_threads(&demand, 1);
	bool good = demand_admit(&demand, error) && pmu_open(&state.pmu, &options.events, error);
	if (good && state.pmu)
		good = count(&counts, error);
	if (good) {
		clock_finish();
		json_object_begin(result, NULL);
		bool known = pmu_paranoid(&paranoid);
		json_i64_known(result, "paranoid", known, paranoid);
		json_bool(result, "cap_perfmon", capability_has(PMU_CAP_PERFMON));
		json_bool(result, "cap_sys_admin", capability_has(PMU_CAP_SYS_ADMIN));
		good = sources_write(result) || error_set(error, ERROR_INTERNAL, "no memory for the PMUs");
		pmu_counts_write(result, "counters", counts);
		json_object_end(result);
	}
	if (good && options.events.count && !pmu_counted(counts))
		good =
			error_set(error, ERROR_UNSUPPORTED, "no event could be counted; the first: %s", pmu_first_refusal(counts));
	pmu_counts_free(counts);
	pmu_close(state.pmu);
	cpu_list_free(&measured);
	return good;
}

const struct subcommand counters_subcommand = {
	.name = "counters",
	.summary = "counts events for a while, and says which this machine has and may be counted",
	.options = table,
	.option_count = sizeof(table) / sizeof(table[0]),
	.prepare = prepare,
	.run = measure,
};
