// SPDX-License-Identifier: Apache-2.0
/* Jitter: how much the operating system and the machine disturb a CPU that only computes. Two views: the fixed work of
 * PMA jitter with its columns, and gaps in a loop that only reads the clock. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clock.h"
#include "corefreq.h"
#include "files.h"
#include "gaps.h"
#include "interference.h"
#include "memory.h"
#include "subcommand.h"
#include "warning.h"
#include "worker.h"

/* The original primes its code so often before the first interval; `tmp` counts it. */
#define PMA_PRIMING 1000u
/* Its first interval has one execution more than the others and is thrown away. */
#define PMA_DISCARDED_EXTRA 1u
/* Gaps shorter than 200 ns are cache misses and clock reads, not interruptions; four turns keep a slow clock's own
 * steps out. */
#define THRESHOLD_MIN_NS 200.0
#define THRESHOLD_TURNS 4.0
#define COARSE_TICKS_MIN 3.0

static struct {
	const char *cpus;
	const char *view;
	uint64_t loops;
	uint64_t executions;
	uint64_t intervals;
	double gap_s;
	const char *threshold_ns;
	uint64_t longest;
	uint64_t fifo;
} options;

static const struct option table[] = {
	{"--cpus", OPTION_TEXT, &options.cpus, "LIST", "CPUs to observe, all at once", NULL, NULL, 0, 0, false},
	{"--view", OPTION_WORD, &options.view, NULL, "what to measure", "both", "pma|gaps|both", 0, 0, false},
	/* 80,000 turns and 20,000 executions are those of the published pages; other numbers cannot be compared. */
	{"--loops", OPTION_U64, &options.loops, "N", "turns of the fixed work", "80000", NULL, 1, UINT32_MAX, false},
	{"--executions", OPTION_U64, &options.executions, "N", "executions of the work in an interval", "20000", NULL, 1,
	 1u << 30, false},
	/* The published pages show 20 to 30 intervals of about a second. */
	{"--intervals", OPTION_U64, &options.intervals, "N", "intervals to report", "20", NULL, 1, 1000000, false},
	/* Ten seconds see what comes once a second ten times; rarer events need a longer look. */
	{"--gap-s", OPTION_F64, &options.gap_s, "S", "seconds to look for gaps", "10", NULL, 0, 86400, false},
	{"--threshold-ns", OPTION_TEXT, &options.threshold_ns, "N|auto",
	 "steps at least so long are gaps; auto: 200, or four turns of the loop", "auto", NULL, 0, 0, false},
	{"--longest", OPTION_U64, &options.longest, "N", "longest gaps to list with their time", "20", NULL, 0, 1000000,
	 false},
	/* 0, an ordinary thread, is how the published figures were made. */
	{"--fifo", OPTION_U64, &options.fifo, "PRIO", "run under SCHED_FIFO with this priority; 0: as an ordinary thread",
	 "0", NULL, 0, 99, false},
};

struct interval {
	uint64_t least, most, last, absolute_least, absolute_most;
	uint32_t tmp;
	uint64_t ticks;
	struct thread_counts counts;
};

struct station {
	struct worker worker;
	unsigned cpu;
	bool verified;
	/* PMA view */
	struct interval *intervals;
	uint64_t worked_ticks;
	_Atomic uint64_t finished; /* intervals, the discarded one counted */
	/* gap view */
	struct gaps gaps;
	struct gap_turns turns;
	struct thread_counts gap_counts;
	double core_before, core_after;
};

static struct {
	struct cpu_list cpus;
	struct station *stations;
	bool pma, gaps;
	double threshold_ns; /* 0: automatic */
	_Atomic size_t arrived[2];
	struct snapshot *snapshots; /* one more than intervals reported */
	struct snapshot gap_before, gap_after;
} run_state;

static bool prepare(struct error *error)
{
	struct cpu_list cpus;
	uint64_t threshold = 0;
	if (!cpu_list_parse(&cpus, options.cpus, error))
		return false;
	cpu_list_free(&cpus);
	if (strcmp(options.threshold_ns, "auto") != 0 &&
	    (!options_u64(options.threshold_ns, &threshold) || threshold == 0 || threshold > 1000000000))
		return error_set(error, ERROR_USAGE, "--threshold-ns: expected auto or 1 to 1000000000, found '%s'",
		                 options.threshold_ns);
	if (options.gap_s <= 0)
		return error_set(error, ERROR_USAGE, "--gap-s: expected more than 0, found %g", options.gap_s);
	run_state.threshold_ns = (double)threshold;
	run_state.pma = strcmp(options.view, "gaps") != 0;
	run_state.gaps = strcmp(options.view, "pma") != 0;
	return true;
}

static void warn_of_throttling(void)
{
	long long runtime = 0, period = 1000000;
	bool known = file_number("/proc/sys/kernel/sched_rt_runtime_us", &runtime);
	(void)file_number("/proc/sys/kernel/sched_rt_period_us", &period);
	if (!known || (runtime >= 0 && runtime < period))
		warning_add(
			"RT_THROTTLE_POSSIBLE",
			"real-time threads may run %lld of every %lld us (sched_rt_runtime_us): the kernel itself may stop "
			"the measuring thread for %lld us each period when an ordinary one waits; set it to -1 to exclude that",
			runtime, period, period - runtime);
}

static bool become_fifo(struct error *error)
{
	struct sched_param parameter = {.sched_priority = (int)options.fifo};
	if (options.fifo == 0)
		return true;
	/* musl's sched_setscheduler refuses by design; the thread function reaches the kernel. */
	int reason = pthread_setschedparam(pthread_self(), SCHED_FIFO, &parameter);
	if (reason == 0)
		return true;
	return error_set(
		error, reason == EPERM ? ERROR_NO_PERMISSION : ERROR_UNSUPPORTED,
		"expected to become SCHED_FIFO %llu, found: %s; run as root, with CAP_SYS_NICE or a real-time limit, or "
		"leave --fifo out",
		(unsigned long long)options.fifo, strerror(reason));
}

/* All CPUs begin a view together, to within a cache line's transfer. */
static void meet(unsigned which)
{
	atomic_fetch_add(&run_state.arrived[which], 1);
	while (atomic_load_explicit(&run_state.arrived[which], memory_order_acquire) < run_state.cpus.count)
		arch_relax();
}

static void run_pma(struct station *station)
{
	uint32_t loops = (uint32_t)options.loops, tmp = 0;
	uint64_t absolute_least = UINT64_MAX, absolute_most = 0, last_end;
	uint32_t seed = (uint32_t)clock_start();
	struct thread_counts before = {0}, after = {0};
	for (uint32_t i = 0; i < PMA_PRIMING; i++)
		tmp += arch_pma_work(loops, seed);
	meet(0);
	last_end = clock_start();
	for (uint64_t number = 0; number <= options.intervals; number++) {
		uint64_t least = UINT64_MAX, most = 0, last = 0, worked = 0, end = last_end;
		uint64_t executions = options.executions + (number == 0 ? PMA_DISCARDED_EXTRA : 0);
		for (uint64_t i = 0; i < executions; i++) {
			uint64_t begin = clock_start();
			tmp += arch_pma_work(loops, seed);
			end = clock_stop();
			last = end - begin;
			worked += last;
			least = last < least ? last : least;
			most = last > most ? last : most;
		}
		thread_counts_read(&after);
		if (number > 0) {
			absolute_least = least < absolute_least ? least : absolute_least;
			absolute_most = most > absolute_most ? most : absolute_most;
			station->intervals[number - 1] =
				(struct interval){least,         most, last,           absolute_least,
				                  absolute_most, tmp,  end - last_end, thread_counts_since(&after, &before)};
			station->worked_ticks += worked;
		}
		before = after;
		last_end = end;
		atomic_store_explicit(&station->finished, number + 1, memory_order_release);
	}
}

static bool setup_gaps(struct station *station, struct error *error)
{
	if (!gaps_open(&station->gaps, options.longest, error))
		return false;
	station->turns = gaps_turns();
	double automatic = THRESHOLD_TURNS * station->turns.median * 1e9 / clock_now_used.hz;
	double coarse = COARSE_TICKS_MIN * clock_now_used.resolution_ticks * 1e9 / clock_now_used.hz;
	double threshold_ns = run_state.threshold_ns;
	if (threshold_ns == 0) {
		threshold_ns = THRESHOLD_MIN_NS;
		threshold_ns = automatic > threshold_ns ? automatic : threshold_ns;
		threshold_ns = coarse > threshold_ns ? coarse : threshold_ns;
	}
	station->gaps.threshold_ticks = (uint64_t)(threshold_ns * clock_now_used.hz / 1e9 + 0.5);
	return true;
}

static void body(struct worker *worker)
{
	struct station *station = worker->context;
	struct thread_counts before = {0}, after = {0};
	if (!become_fifo(&worker->error) || (run_state.gaps && !setup_gaps(station, &worker->error)))
		return;
	/* Before the first view, and after the last, so that a change of the clock over the whole step is seen. */
	station->core_before = corefreq_settle();
	worker_pause(worker);
	if (run_state.pma) {
		run_pma(station);
		worker_pause(worker);
	}
	if (run_state.gaps) {
		meet(1);
		thread_counts_read(&before);
		gaps_run(&station->gaps, (uint64_t)(options.gap_s * clock_now_used.hz));
		thread_counts_read(&after);
		station->gap_counts = thread_counts_since(&after, &before);
		station->core_after = corefreq_per_tick();
		worker_pause(worker);
	}
	station->verified = affinity_verify(station->cpu);
	if (!station->verified)
		error_set(&worker->error, ERROR_PIN_FAILED, "expected to be on CPU %u after measuring, found to be elsewhere",
		          station->cpu);
}

static void sleep_ns(uint64_t ns)
{
	struct timespec pause = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
	nanosleep(&pause, NULL);
}

/* Takes a snapshot when the slowest CPU has finished each interval. Sleeps until the end is due rather than asking
 * again and again, because on a small machine asking would be the interference. */
static void watch_intervals(void)
{
	uint64_t last_ns = clock_raw_ns(), length_ns = 0;
	for (uint64_t number = 0; number <= options.intervals; number++) {
		for (size_t i = 0; i < run_state.cpus.count; i++)
			while (atomic_load_explicit(&run_state.stations[i].finished, memory_order_acquire) <= number) {
				uint64_t passed = clock_raw_ns() - last_ns;
				sleep_ns(passed < length_ns ? length_ns - passed + 1000000 : 2000000 + length_ns / 200);
			}
		snapshot_take(&run_state.snapshots[number], &run_state.cpus);
		uint64_t now = clock_raw_ns();
		length_ns = now - last_ns;
		last_ns = now;
	}
}

static bool start_all(struct error *error)
{
	size_t started = 0;
	bool good = true;
	for (; good && started < run_state.cpus.count; started++) {
		struct station *station = &run_state.stations[started];
		station->cpu = run_state.cpus.cpus[started];
		good =
			affinity_usable(station->cpu, error) && worker_start(&station->worker, station->cpu, body, station, error);
		if (!good)
			break;
	}
	for (size_t i = 0; i < started; i++)
		if (!worker_wait(&run_state.stations[i].worker) && error->code == ERROR_NONE)
			*error = run_state.stations[i].worker.error;
	/* One CPU that cannot be measured ends it all: the others wait for it at the barrier. The process ends with them. */
	return error->code == ERROR_NONE;
}

static void continue_all(void)
{
	for (size_t i = 0; i < run_state.cpus.count; i++)
		worker_continue(&run_state.stations[i].worker);
}

static void wait_all(void)
{
	for (size_t i = 0; i < run_state.cpus.count; i++)
		worker_wait(&run_state.stations[i].worker);
}

static void pma_write(struct json *json, const struct station *station, const struct cpu_list *self)
{
	uint64_t total = 0;
	for (uint64_t i = 0; i < options.intervals; i++)
		total += station->intervals[i].ticks;
	json_object_begin(json, "pma");
	json_u64(json, "loops", options.loops);
	json_u64(json, "executions", options.executions);
	json_f64(json, "tick_hz", clock_now_used.hz);
	json_f64(json, "blind_fraction", 1 - (double)station->worked_ticks / (double)total);
	json_array_begin(json, "intervals");
	for (uint64_t i = 0; i < options.intervals; i++) {
		const struct interval *interval = &station->intervals[i];
		json_object_begin(json, NULL);
		json_u64(json, "inst_min_cycles", interval->least);
		json_u64(json, "inst_max_cycles", interval->most);
		json_u64(json, "inst_jitter_cycles", interval->most - interval->least);
		json_u64(json, "last_exec_cycles", interval->last);
		json_u64(json, "abs_min_cycles", interval->absolute_least);
		json_u64(json, "abs_max_cycles", interval->absolute_most);
		json_u64(json, "tmp", interval->tmp);
		json_u64(json, "interval_cycles", interval->ticks);
		json_u64(json, "sample", i + 1);
		interference_write(json, "interference", &interval->counts, &run_state.snapshots[i],
		                   &run_state.snapshots[i + 1], self);
		json_object_end(json);
	}
	json_array_end(json);
	json_object_end(json);
}

static void station_write(struct json *json, struct station *station)
{
	struct cpu_list self = {0};
	cpu_list_add(&self, station->cpu);
	json_object_begin(json, NULL);
	json_u64(json, "cpu", station->cpu);
	json_bool(json, "cpu_verified", station->verified);
	if (run_state.pma)
		pma_write(json, station, &self);
	else
		json_null(json, "pma");
	if (run_state.gaps) {
		json_object_begin(json, "gaps");
		gaps_write(json, &station->gaps, &station->turns);
		json_f64(json, "core_hz_before", corefreq_hz(station->core_before));
		json_f64(json, "core_hz_after", corefreq_hz(station->core_after));
		interference_write(json, "interference", &station->gap_counts, &run_state.gap_before, &run_state.gap_after,
		                   &self);
		json_object_end(json);
	} else {
		json_null(json, "gaps");
	}
	json_object_end(json);
	cpu_list_free(&self);
}

static bool setup(struct error *error)
{
	if (!cpu_list_parse(&run_state.cpus, options.cpus, error))
		return false;
	/* Asked for the sum of all CPUs before any takes its part: what the kernel has not got it kills for. */
	uint64_t each = options.intervals * sizeof(struct interval) + (run_state.gaps ? gaps_bytes(options.longest) : 0);
	if (!memory_available_anywhere(run_state.cpus.count * each, error))
		return false;
	run_state.stations = calloc(run_state.cpus.count, sizeof(*run_state.stations));
	run_state.snapshots = calloc(options.intervals + 1, sizeof(*run_state.snapshots));
	bool good = run_state.stations && run_state.snapshots;
	for (size_t i = 0; good && i < run_state.cpus.count; i++) {
		run_state.stations[i].intervals = calloc(options.intervals, sizeof(struct interval));
		good = run_state.stations[i].intervals != NULL;
		if (good)
			memset(run_state.stations[i].intervals, 0, options.intervals * sizeof(struct interval));
	}
	return good || error_set(error, ERROR_NO_MEMORY, "%llu intervals of %zu CPUs do not fit into memory; ask for fewer",
	                         (unsigned long long)options.intervals, run_state.cpus.count);
}

static void teardown(void)
{
	for (size_t i = 0; i < run_state.cpus.count; i++) {
		free(run_state.stations[i].intervals);
		gaps_free(&run_state.stations[i].gaps);
	}
	for (uint64_t i = 0; i <= options.intervals; i++)
		snapshot_free(&run_state.snapshots[i]);
	snapshot_free(&run_state.gap_before);
	snapshot_free(&run_state.gap_after);
	free(run_state.snapshots);
	free(run_state.stations);
	cpu_list_free(&run_state.cpus);
}

static bool measure(struct json *result, struct error *error)
{
	if (!setup(error))
		return false;
	if (options.fifo)
		warn_of_throttling();
	supervise_avoid(&run_state.cpus);
	if (!start_all(error))
		return false;
	if (run_state.pma) {
		continue_all();
		watch_intervals();
		wait_all();
	}
	if (run_state.gaps) {
		snapshot_take(&run_state.gap_before, &run_state.cpus);
		continue_all();
		wait_all();
		snapshot_take(&run_state.gap_after, &run_state.cpus);
	}
	for (size_t i = 0; i < run_state.cpus.count; i++) {
		worker_join(&run_state.stations[i].worker);
		if (run_state.stations[i].worker.error.code != ERROR_NONE && error->code == ERROR_NONE)
			*error = run_state.stations[i].worker.error;
	}
	clock_finish();
	if (error->code == ERROR_NONE) {
		json_object_begin(result, NULL);
		json_array_begin(result, "cpus");
		for (size_t i = 0; i < run_state.cpus.count; i++)
			station_write(result, &run_state.stations[i]);
		json_array_end(result);
		json_object_end(result);
	}
	teardown();
	return error->code == ERROR_NONE;
}

const struct subcommand jitter_subcommand = {
	.name = "jitter",
	.summary = "how much a CPU that only computes is disturbed",
	.options = table,
	.option_count = sizeof(table) / sizeof(table[0]),
	.prepare = prepare,
	.run = measure,
};
