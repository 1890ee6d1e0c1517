// SPDX-License-Identifier: Apache-2.0
/* Counters: what of the events asked for this machine counts, and why the others are refused. Nothing is measured. */
#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "affinity.h"
#include "arch/arch.h"
#include "clock.h"
#include "demand.h"
#include "files.h"
#include "option_rows.h"
#include "pmu.h"
#include "stopping.h"
#include "subcommand.h"
#include "worker.h"

/* Additions between two looks at whether to end: some microseconds. */
#define SPIN_ADDITIONS 10000u

static struct {
	double duration_s;
	const char *work;
} options;

static const struct option table[] = {
	OPTIONS_EVENT,
	OPTION_ROW_F64("--duration-s", &options.duration_s, "S", "1", 0, 600, "time to count"),
	OPTION_ROW_OPTIONAL_TEXT(
		"--work", &options.work, "CPU",
		"let the thread whose events are counted run on this CPU all the time; without it that thread sleeps"),
};

static struct {
	struct pmu *pmu;
	struct pmu_counts *counts;
	struct worker worker;
	uint64_t work_cpu;
	_Atomic bool working, stop;
	uint64_t carry; /* of the additions, so that they are made */
} state;

static bool prepare(struct error *error)
{
	if (options.work && (!options_u64(options.work, &state.work_cpu) || state.work_cpu > INT32_MAX))
		return error_set(error, ERROR_USAGE, "--work: must be the number of a CPU, not '%s'", options.work);
	return option_positive("--duration-s", options.duration_s, error) &&
	       pmu_parse(&common.events, false, &state.pmu, error);
}

static void open_counters(struct worker *worker)
{
	(void)worker;
	pmu_open_thread(state.pmu, 0, "");
}

static void spin(struct worker *worker)
{
	(void)worker;
	atomic_store(&state.working, true);
	while (!atomic_load_explicit(&state.stop, memory_order_relaxed))
		state.carry = arch_delay(state.carry, SPIN_ADDITIONS);
}

/* Counts for the time asked, while the thread works or sleeps. */
static bool count(struct error *error)
{
	struct worker *worker = &state.worker;
	unsigned cpu = options.work ? (unsigned)state.work_cpu : affinity_allowed()->cpus[0];
	bool stopped = false;
	pmu_threads(state.pmu, 1);
	if (!worker_start(worker, cpu, NULL, NULL, error))
		return false;
	if (worker_wait(worker) && worker_do(worker, open_counters)) {
		if (options.work)
			worker_begin(worker, spin);
		/* Without work too: a thread that has done its job still runs for some microseconds before it sleeps. */
		do
			nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
		while (options.work && !atomic_load(&state.working));
		pmu_begin(state.pmu, PMU_ALL);
		stopped = stop_sleep_ns((uint64_t)(options.duration_s * 1e9));
		pmu_end(state.pmu, PMU_ALL);
		atomic_store(&state.stop, true);
		if (options.work)
			worker_wait(worker);
	}
	worker_join(worker);
	if (!error_take(error, &worker->error) || (stopped && stop_error(error)))
		return false;
	state.counts = pmu_take(state.pmu, PMU_ALL, NULL, NULL);
	return true;
}

/* The PMUs that the kernel shows; those that give no number are none. */
static void sources_write(struct json *json)
{
	struct dirent **entries;
	int count = scandir(PMU_SOURCES, &entries, NULL, alphasort);
	json_array_begin(json, "pmus");
	for (int i = 0; i < count; i++) {
		char path[512];
		long long type;
		snprintf(path, sizeof(path), PMU_SOURCES "/%s/type", entries[i]->d_name);
		if (entries[i]->d_name[0] != '.' && file_number(path, &type)) {
			json_object_begin(json, NULL);
			json_text(json, "name", entries[i]->d_name);
			json_i64(json, "type", type);
			json_object_end(json);
		}
		free(entries[i]);
	}
	json_array_end(json);
	if (count >= 0)
		free(entries);
}

static bool measure(struct json *result, struct error *error)
{
	struct cpu_list measured = {0};
	struct demand demand = {0};
	long long paranoid = 0;
	if (options.work)
		cpu_list_add(&measured, (unsigned)state.work_cpu);
	supervise_avoid(&measured);
	cpu_list_free(&measured);
	demand_threads(&demand, 1);
	if (!demand_admit(&demand, error))
		return false;
	pmu_open(state.pmu);
	if (state.pmu && !count(error))
		return false;
	clock_finish();
	json_object_begin(result, NULL);
	bool known = pmu_paranoid(&paranoid);
	json_i64_known(result, "paranoid", known, paranoid);
	json_bool(result, "cap_perfmon", capability_has(PMU_CAP_PERFMON));
	json_bool(result, "cap_sys_admin", capability_has(PMU_CAP_SYS_ADMIN));
	sources_write(result);
	pmu_counts_write(result, "counters", state.counts);
	json_object_end(result);
	return !common.events.count || pmu_counted(state.counts) ||
	       error_set(error, ERROR_UNSUPPORTED, "no event could be counted; the first: %s",
	                 pmu_first_refusal(state.counts));
}

SUBCOMMAND(counters) = {
	"counters",
	"counts events for a while, and says which this machine has and may be counted",
	SUBCOMMAND_OPTIONS(table),
	prepare,
	measure,
};
