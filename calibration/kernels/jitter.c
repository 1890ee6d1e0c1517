// SPDX-License-Identifier: Apache-2.0
/* Jitter: how much the operating system and the machine disturb a CPU that only computes. Two views: the fixed work of
 * PMA jitter with its columns, and gaps in a loop that only reads the clock. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "attribution.h"
#include "causes.h"
#include "clock.h"
#include "corefreq.h"
#include "files.h"
#include "gaps.h"
#include "interference.h"
#include "memory.h"
#include "periods.h"
#include "realtime.h"
#include "statistics.h"
#include "stopping.h"
#include "subcommand.h"
#include "tracing.h"
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
/* Counters are read so often that causes which come and go are told apart, and no more often than keeps the reading CPU
 * 95 % idle; more slices than this add memory and no knowledge. */
#define SLICE_MIN_S 0.1
#define SLICE_COST 20.0
#define SLICES_MAX 600u
/* With tracing gaps are watched in two parts, one before and one after the view whose figures count, each a quarter as long:
 * what changes steadily meanwhile is in both and does not look like the cost of tracing. */
#define TRACED_PARTS 2u
#define TRACED_SHARE 0.25
/* The interrupts that enabling an event sends to all CPUs are over by then. */
#define TRACE_SETTLE_NS 50000000u
#define ISOLATED "/sys/devices/system/cpu/isolated"

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
	double budget_s;
	double target;
	bool attribute;
} options;

static const struct option table[] = {
	{"--cpus", OPTION_TEXT, &options.cpus, "LIST|isolated",
	 "CPUs to observe, all at once; isolated: those the kernel isolates", NULL, NULL, 0, 0, false},
	{"--view", OPTION_WORD, &options.view, NULL, "what to measure", "both", "pma|gaps|both", 0, 0, false},
	/* 80,000 turns and 20,000 executions are those of the published pages; other numbers cannot be compared. */
	{"--loops", OPTION_U64, &options.loops, "N", "turns of the fixed work", "80000", NULL, 1, UINT32_MAX, false},
	{"--executions", OPTION_U64, &options.executions, "N", "executions of the work in an interval", "20000", NULL, 1,
	 1u << 30, false},
	/* The published pages show 20 to 30 intervals of about a second. */
	{"--intervals", OPTION_U64, &options.intervals, "N", "intervals to report", "20", NULL, 1, 1000000, false},
	/* Ten seconds see what comes once a second ten times; rarer events need a longer look. */
	{"--gap-s", OPTION_F64, &options.gap_s, "S", "seconds to look for gaps, at most", "10", NULL, 0, 86400, false},
	{"--threshold-ns", OPTION_TEXT, &options.threshold_ns, "N|auto",
	 "steps at least so long are gaps; auto: 200, or four turns of the loop", "auto", NULL, 0, 0, false},
	{"--longest", OPTION_U64, &options.longest, "N", "longest gaps to list with their time", "20", NULL, 0, 1000000,
	 false},
	/* 0, an ordinary thread, is how the published figures were made. */
	{"--fifo", OPTION_U64, &options.fifo, "PRIO", "run under SCHED_FIFO with this priority; 0: as an ordinary thread",
	 "0", NULL, 0, 99, false},
	/* No budget: the time asked for is the time taken, so that two runs can be compared. */
	{"--budget-s", OPTION_F64, &options.budget_s, "S",
	 "seconds for both views, the first taking half at most; 0: as long as they take", "0", NULL, 0, 86400, false},
	/* 0: a rate that is known well says nothing of what is rare, so the look is not cut short unless asked. */
	{"--target-half-width", OPTION_F64, &options.target, "R",
	 "stop looking when the rate of gaps is known to this share; 0: look for all of --gap-s", "0", NULL, 0, 1, false},
	/* Not by default: it needs root, and takes half as long again. */
	{"--attribute", OPTION_FLAG, &options.attribute, NULL,
	 "trace the kernel before and after the look for gaps, half as long in all, and tell what made them", NULL, NULL, 0,
	 0, false},
};

struct interval {
	uint64_t least, most, last, absolute_least, absolute_most;
	uint32_t tmp;
	uint64_t ticks;
	struct thread_counts counts;
	uint64_t worked; /* ticks inside the timed work */
};

struct station {
	struct worker worker;
	unsigned cpu;
	int thread;
	bool verified;
	/* PMA view */
	struct interval *intervals;
	_Atomic uint64_t finished; /* intervals, the discarded one counted */
	_Atomic bool pma_over;
	/* gap view */
	struct gaps gaps;
	struct gap_turns turns;
	struct thread_counts gap_counts;
	double core_before, core_after;
	/* with tracing */
	struct gaps traced;
	uint64_t traced_ticks; /* of all parts */
};

static struct {
	struct cpu_list cpus;
	struct station *stations;
	bool pma, gaps;
	bool watched;        /* the second view was begun */
	double threshold_ns; /* 0: automatic */
	uint64_t began;      /* ticks, when measuring began */
	uint64_t reported;   /* intervals that all CPUs completed */
	const char *pma_stopped, *gaps_stopped;
	_Atomic bool stop_gaps;
	uint64_t gap_ticks; /* at most */
	struct readings readings;
	double half_width; /* of the rate of gaps, the widest of all CPUs; negative: not known */
	bool attributed;   /* the kernel is traced */
	struct tracing tracing;
	uint64_t traced_ticks; /* of each part */
	size_t traced_parts;   /* that were begun */
	_Atomic size_t arrived[2 + TRACED_PARTS];
	struct snapshot *snapshots; /* one more than intervals reported */
	struct snapshot gap_before, gap_after;
	struct snapshot traced_before[TRACED_PARTS], traced_after[TRACED_PARTS];
} run_state;

static bool cpus_asked(struct cpu_list *cpus, struct error *error)
{
	char line[4096] = "";
	if (strcmp(options.cpus, "isolated") != 0)
		return cpu_list_parse(cpus, options.cpus, error);
	if (!file_line(ISOLATED, line, sizeof(line)))
		return error_set(error, ERROR_UNSUPPORTED,
		                 "--cpus isolated: expected the isolated CPUs in " ISOLATED
		                 ", found it unreadable (%s); name the "
		                 "CPUs",
		                 strerror(errno));
	if (!line[0])
		return error_set(error, ERROR_UNSUPPORTED,
		                 "--cpus isolated: expected isolated CPUs, found none in " ISOLATED
		                 "; boot with isolcpus=, or name "
		                 "the CPUs");
	return cpu_list_parse(cpus, line, error);
}

static bool prepare(struct error *error)
{
	struct cpu_list cpus;
	uint64_t threshold = 0;
	if (!cpus_asked(&cpus, error))
		return false;
	cpu_list_free(&cpus);
	if (strcmp(options.threshold_ns, "auto") != 0 &&
	    (!options_u64(options.threshold_ns, &threshold) || threshold == 0 || threshold > 1000000000))
		return error_set(error, ERROR_USAGE, "--threshold-ns: expected auto or 1 to 1000000000, found '%s'",
		                 options.threshold_ns);
	if (options.attribute && !strcmp(options.view, "pma"))
		return error_set(error, ERROR_USAGE, "--attribute: expected --view gaps or both, found pma, which has no gaps");
	if (options.gap_s <= 0)
		return error_set(error, ERROR_USAGE, "--gap-s: expected more than 0, found %g", options.gap_s);
	run_state.threshold_ns = (double)threshold;
	run_state.pma = strcmp(options.view, "gaps") != 0;
	run_state.gaps = strcmp(options.view, "pma") != 0;
	return true;
}

/* Whether the kernel would take the CPU from a real-time thread that never sleeps, and so show gaps of its own making. */
static bool refuse_throttling(struct error *error)
{
	const struct realtime_limit limit = realtime_limit();
	const long long runtime = limit.runtime_us, period = limit.period_us;
	long long fair = 0;
	char path[96];
	if (realtime_throttled(&limit)) {
		warning_add("RT_THROTTLE_POSSIBLE",
		            "the kernel takes the CPU from a real-time thread for %lld us in %lld (sched_rt_runtime_us)",
		            period - runtime, period);
		return error_set(
			error, ERROR_UNSUPPORTED,
			"--fifo: expected real-time threads unthrottled, found sched_rt_runtime_us %lld of %lld: the kernel would "
			"stop the measuring thread for %lld us each period, and that would be measured; write -1 to "
			"/proc/sys/kernel/sched_rt_runtime_us, or leave --fifo out",
			runtime, period, period - runtime);
	}
	bool seen = limit.known;
	for (size_t i = 0; i < run_state.cpus.count; i++) {
		snprintf(path, sizeof(path), "/sys/kernel/debug/sched/fair_server/cpu%u/runtime", run_state.cpus.cpus[i]);
		if (!file_number(path, &fair)) {
			seen = seen && errno == ENOENT && access("/sys/kernel/debug/sched", F_OK) == 0;
			continue;
		}
		if (fair > 0) {
			warning_add("RT_THROTTLE_POSSIBLE",
			            "a deadline server takes the CPU from a real-time thread for %lld ns of each period (%s)", fair,
			            path);
			return error_set(
				error, ERROR_UNSUPPORTED,
				"--fifo: expected no deadline server for ordinary threads on CPU %u, found %lld ns of each "
				"period in %s: it would take the CPU from the measuring thread when an ordinary one waits; "
				"write 0 to it, or leave --fifo out",
				run_state.cpus.cpus[i], fair, path);
		}
	}
	if (!seen)
		warning_add(
			"RT_THROTTLE_POSSIBLE",
			"whether the kernel may stop a real-time thread could not be seen everywhere (sched_rt_runtime_us %s, "
			"/sys/kernel/debug/sched/fair_server not readable): gaps of some 50 ms may be of its own making",
			limit.known ? "allows it to run" : "not readable");
	return true;
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
	const uint64_t half = (uint64_t)(options.budget_s / (run_state.gaps ? 2 : 1) * clock_now_used.hz);
	for (uint64_t number = 0; number <= options.intervals; number++) {
		/* One interval is made however small the budget is. */
		if (options.budget_s > 0 && number > 1 && last_end - run_state.began > half)
			break;
		uint64_t least = UINT64_MAX, most = 0, last = 0, worked = 0, end = last_end;
		uint64_t executions = options.executions + (number == 0 ? PMA_DISCARDED_EXTRA : 0), i = 0;
		/* Told to stop, an interval is left where it is, and is not reported. */
		for (; i < executions && !stop_requested(); i++) {
			uint64_t begin = clock_start();
			tmp += arch_pma_work(loops, seed);
			end = clock_stop();
			last = end - begin;
			worked += last;
			least = last < least ? last : least;
			most = last > most ? last : most;
		}
		if (i < executions)
			break;
		thread_counts_read(&after);
		if (number > 0) {
			absolute_least = least < absolute_least ? least : absolute_least;
			absolute_most = most > absolute_most ? most : absolute_most;
			station->intervals[number - 1] = (struct interval){least,
			                                                   most,
			                                                   last,
			                                                   absolute_least,
			                                                   absolute_most,
			                                                   tmp,
			                                                   end - last_end,
			                                                   thread_counts_since(&after, &before),
			                                                   0};
			station->intervals[number - 1].worked = worked;
		}
		before = after;
		last_end = end;
		atomic_store_explicit(&station->finished, number + 1, memory_order_release);
	}
	atomic_store_explicit(&station->pma_over, true, memory_order_release);
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
	station->traced.threshold_ticks = station->gaps.threshold_ticks;
	return !run_state.attributed || gaps_open(&station->traced, 0, error);
}

static void run_traced(struct worker *worker, unsigned part)
{
	struct station *station = worker->context;
	if (!run_state.attributed)
		return;
	meet(2 + part);
	gaps_run(&station->traced, run_state.traced_ticks);
	station->traced_ticks += station->traced.end - station->traced.begin;
	worker_pause(worker);
}

static void body(struct worker *worker)
{
	struct station *station = worker->context;
	struct thread_counts before = {0}, after = {0};
	if (!become_fifo(&worker->error) || (run_state.gaps && !setup_gaps(station, &worker->error)))
		return;
	station->thread = (int)syscall(SYS_gettid);
	station->gaps.stop = station->traced.stop = &run_state.stop_gaps;
	/* Before the first view, and after the last, so that a change of the clock over the whole step is seen. */
	station->core_before = corefreq_settle();
	worker_pause(worker);
	if (run_state.pma) {
		run_pma(station);
		worker_pause(worker);
	}
	if (run_state.gaps) {
		run_traced(worker, 0);
		meet(1);
		thread_counts_read(&before);
		gaps_run(&station->gaps, run_state.gap_ticks);
		thread_counts_read(&after);
		station->gap_counts = thread_counts_since(&after, &before);
		station->core_after = corefreq_per_tick();
		worker_pause(worker);
		run_traced(worker, 1);
	}
	station->verified = affinity_verify(station->cpu);
	if (!station->verified)
		affinity_left(station->cpu, &worker->error);
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

static void sleep_ns(uint64_t ns)
{
	struct timespec pause = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
	nanosleep(&pause, NULL);
}

/* Takes a snapshot when the slowest CPU has finished each interval. Sleeps until the end is due rather than asking
 * again and again, because on a small machine asking would be the interference. */
static void watch_intervals(void)
{
	uint64_t last_ns = clock_raw_ns(), length_ns = 0, number = 0;
	for (bool over = false; !over && number <= options.intervals; number += !over) {
		for (size_t i = 0; !over && i < run_state.cpus.count; i++) {
			struct station *station = &run_state.stations[i];
			while (!over && atomic_load_explicit(&station->finished, memory_order_acquire) <= number) {
				uint64_t passed = clock_raw_ns() - last_ns;
				/* Over, unless the interval was finished between the two looks. */
				over = atomic_load_explicit(&station->pma_over, memory_order_acquire) &&
				       atomic_load_explicit(&station->finished, memory_order_acquire) <= number;
				uint64_t wait_ns = passed < length_ns ? length_ns - passed + 1000000 : 2000000 + length_ns / 200;
				if (!over && stop_sleep_ns(wait_ns))
					sleep_ns(1000000);
			}
		}
		if (over)
			break;
		snapshot_take_quietly(&run_state.snapshots[number], &run_state.cpus);
		uint64_t now = clock_raw_ns();
		length_ns = now - last_ns;
		last_ns = now;
	}
	run_state.reported = number > 0 ? number - 1 : 0;
	run_state.pma_stopped = number > options.intervals ? "intervals" : stop_requested() ? "interrupted" : "budget";
}

static double seconds_since(uint64_t ticks)
{
	return (double)(clock_stop() - ticks) / clock_now_used.hz;
}

/* The rates of gaps on each CPU in every slice so far: what the stopping rule looks at. */
struct rates {
	double *each; /* by CPU, then slice */
	uint64_t *count, *at;
	size_t slices;
};

static void rates_add(struct rates *rates)
{
	bool whole = true;
	for (size_t i = 0; i < run_state.cpus.count; i++) {
		struct gaps *gaps = &run_state.stations[i].gaps;
		uint64_t count = atomic_load_explicit(&gaps->watched_count, memory_order_acquire);
		uint64_t at = atomic_load_explicit(&gaps->watched_at, memory_order_relaxed);
		whole = whole && rates->at[i] && at > rates->at[i];
		if (whole)
			rates->each[i * SLICES_MAX + rates->slices] =
				(double)(count - rates->count[i]) / ((double)(at - rates->at[i]) / clock_now_used.hz);
		rates->count[i] = count;
		rates->at[i] = at;
	}
	rates->slices += whole && rates->slices < SLICES_MAX;
}

/* The widest relative half-width of the rate over slices of any CPU; negative where one is not known. */
static double rates_half_width(const struct rates *rates)
{
	double widest = -1, width;
	for (size_t i = 0; i < run_state.cpus.count; i++) {
		if (!statistics_half_width(rates->each + i * SLICES_MAX, rates->slices, &width))
			return -1;
		widest = width > widest ? width : widest;
	}
	return widest;
}

/* Whether the affinity mask has a CPU that is not measured, from which counters can be read meanwhile. */
static bool cpu_to_spare(void)
{
	const struct cpu_list *allowed = affinity_allowed();
	for (size_t i = 0; i < allowed->count; i++)
		if (!cpu_list_has(&run_state.cpus, allowed->cpus[i]))
			return true;
	return false;
}

/* Seconds to look for gaps, as far as the budget allows, which the traced parts share. */
static double seconds_to_watch(void)
{
	double left = options.gap_s;
	run_state.gaps_stopped = "time";
	if (options.budget_s > 0) {
		double rest = options.budget_s - seconds_since(run_state.began);
		rest /= run_state.attributed ? 1 + TRACED_PARTS * TRACED_SHARE : 1;
		/* Something is watched however small the budget is: a slice. */
		rest = rest > SLICE_MIN_S ? rest : SLICE_MIN_S;
		if (rest < left) {
			left = rest;
			run_state.gaps_stopped = "budget";
		}
	}
	return left;
}

/* Watches gaps while the kernel is traced. Where tracing cannot be turned on, or the work is to end, the threads go through
 * their part at once. */
static void watch_traced(unsigned part)
{
	struct snapshot *before = &run_state.traced_before[part], *after = &run_state.traced_after[part];
	bool on = !stop_requested() && tracing_start(&run_state.tracing);
	run_state.traced_parts += on;
	(void)stop_sleep_ns(TRACE_SETTLE_NS);
	atomic_store(&run_state.stop_gaps, !on || stop_requested());
	snapshot_take(before, &run_state.cpus);
	continue_all();
	if (on && stop_sleep_ns((uint64_t)clock_ns((double)run_state.traced_ticks)))
		atomic_store(&run_state.stop_gaps, true);
	wait_all();
	snapshot_take(after, &run_state.cpus);
	if (on)
		tracing_stop(&run_state.tracing);
	(void)stop_sleep_ns(TRACE_SETTLE_NS);
	atomic_store(&run_state.stop_gaps, false);
}

/* Reads counters in slices while the gaps are watched, and ends the watching early where that is asked for. */
static bool watch_gaps(double left, struct error *error)
{
	size_t cpus = run_state.cpus.count;
	struct rates rates = {calloc(cpus * SLICES_MAX, sizeof(double)), calloc(cpus, sizeof(uint64_t)),
	                      calloc(cpus, sizeof(uint64_t)), 0};
	int *threads = calloc(cpus, sizeof(*threads));
	for (size_t i = 0; threads && i < cpus; i++)
		threads[i] = run_state.stations[i].thread;
	bool good = rates.each && rates.count && rates.at && threads &&
	            readings_open(&run_state.readings, &run_state.cpus, threads, SLICES_MAX + 2);
	run_state.gap_ticks = (uint64_t)(left * clock_now_used.hz);
	snapshot_take(&run_state.gap_before, &run_state.cpus);
	/* The first readings tell what one costs. */
	double cost = 0;
	for (unsigned i = 0; good && i < 2; i++) {
		uint64_t before = clock_start();
		readings_take(&run_state.readings);
		cost = seconds_since(before);
		if (i == 0)
			readings_forget(&run_state.readings);
	}
	continue_all();
	bool spare = cpu_to_spare();
	double slice = SLICE_COST * cost;
	slice = slice > SLICE_MIN_S ? slice : SLICE_MIN_S;
	slice = slice > left / SLICES_MAX ? slice : left / SLICES_MAX;
	/* Where all CPUs are measured a look interrupts one of them, so it is taken only to honour a target. */
	slice = spare ? slice : options.target > 0 ? 1 : left;
	for (uint64_t began = clock_stop(); good;) {
		double passed = seconds_since(began);
		if (passed >= left || stop_sleep_ns((uint64_t)((passed + slice < left ? slice : left - passed) * 1e9)))
			break;
		if (seconds_since(began) >= left)
			break;
		if (spare)
			readings_take(&run_state.readings);
		rates_add(&rates);
		run_state.half_width = rates_half_width(&rates);
		if (options.target > 0 && run_state.half_width >= 0 && run_state.half_width <= options.target) {
			run_state.gaps_stopped = "converged";
			break;
		}
	}
	if (stop_requested())
		run_state.gaps_stopped = "interrupted";
	if (!good || stop_requested() || !strcmp(run_state.gaps_stopped, "converged"))
		atomic_store(&run_state.stop_gaps, true);
	wait_all();
	if (good)
		readings_take(&run_state.readings);
	snapshot_take(&run_state.gap_after, &run_state.cpus);
	free(rates.each);
	free(rates.count);
	free(rates.at);
	run_state.readings.threads = NULL;
	free(threads);
	return good || error_set(error, ERROR_NO_MEMORY, "no memory for the counters of %zu CPUs", cpus);
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

static void pma_write(struct json *json, const struct station *station, const struct cpu_list *self)
{
	uint64_t total = 0, worked = 0;
	for (uint64_t i = 0; i < run_state.reported; i++) {
		total += station->intervals[i].ticks;
		worked += station->intervals[i].worked;
	}
	json_object_begin(json, "pma");
	json_u64(json, "loops", options.loops);
	json_u64(json, "executions", options.executions);
	json_f64(json, "tick_hz", clock_now_used.hz);
	json_f64(json, "blind_fraction", 1 - (double)worked / (double)total);
	json_text(json, "stopped", run_state.pma_stopped);
	json_array_begin(json, "intervals");
	for (uint64_t i = 0; i < run_state.reported; i++) {
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

static void periods_write(struct json *json, const struct gaps *gaps, const struct period *periods, size_t count)
{
	json_array_begin(json, "periods");
	for (size_t i = 0; i < count; i++) {
		json_object_begin(json, NULL);
		json_f64(json, "period_ns", clock_ns(periods[i].ticks));
		json_f64(json, "hz", clock_now_used.hz / periods[i].ticks);
		json_f64(json, "share_of_gaps", (double)periods[i].gaps / (double)gaps->kept);
		json_u64(json, "gaps", periods[i].gaps);
		json_u64(json, "cycles", periods[i].cycles);
		json_f64(json, "median_ns", clock_ns(periods[i].median_ticks));
		json_f64(json, "lost_ns", clock_ns((double)periods[i].lost_ticks));
		json_f64(json, "window_ns", clock_ns(periods[i].window_ticks));
		json_object_end(json);
	}
	json_array_end(json);
}

/* How often and how long the CPU was interrupted, with tracing or without. */
static void rate_write(struct json *json, const char *key, const struct gaps *gaps, uint64_t ticks)
{
	json_object_begin(json, key);
	json_f64(json, "wall_s", clock_ns((double)ticks) / 1e9);
	json_u64(json, "gaps", gaps->count);
	json_f64(json, "rate_per_s", (double)gaps->count * clock_now_used.hz / (double)ticks);
	json_f64(json, "lost_fraction", (double)gaps->lost_ticks / (double)ticks);
	if (gaps->count)
		json_f64(json, "mean_ns", clock_ns((double)gaps->lost_ticks / (double)gaps->count));
	else
		json_null(json, "mean_ns");
	json_object_end(json);
}

static void steal_and_smi_write(struct json *json, const struct cpu_list *self)
{
	double steal = 0;
	int64_t interrupts = 0;
	for (size_t i = 0; i < TRACED_PARTS; i++) {
		double more_steal;
		int64_t more;
		interference_sums(&run_state.traced_before[i], &run_state.traced_after[i], self, &more_steal, &more);
		steal = steal < 0 || more_steal < 0 ? -1 : steal + more_steal;
		interrupts = interrupts < 0 || more < 0 ? -1 : interrupts + more;
	}
	if (steal >= 0)
		json_f64(json, "steal_ms", steal);
	else
		json_null(json, "steal_ms");
	if (interrupts >= 0)
		json_i64(json, "smi", interrupts);
	else
		json_null(json, "smi");
}

/* What the kernel itself accounts for, or why that is not told. */
static void osnoise_write(struct json *json, struct causes *causes)
{
	const struct osnoise *osnoise = &run_state.tracing.osnoise;
	json_text(json, "osnoise_refused", osnoise->refused[0] ? osnoise->refused : NULL);
	if (causes && !osnoise->refused[0])
		noise_write(json, "osnoise", causes);
	else
		json_null(json, "osnoise");
}

static void causes_of_station_write(struct json *json, const struct station *station, const struct cpu_list *self)
{
	const struct tracing *tracing = &run_state.tracing;
	struct trace_clock clock = tracing_clock(tracing);
	struct causes *causes = calloc(1, sizeof(*causes));
	FILE *text = causes ? tracing_text(tracing, station->cpu) : NULL;
	int64_t lost = tracing_lost(tracing, station->cpu);
	bool good = text && causes_read(causes, text, station->traced.ring, station->traced.kept, station->thread, &clock,
	                                lost > 0);
	if (good) {
		if (lost > 0)
			warning_add("TRACE_LOST", "%lld events of CPU %u did not fit into the tracing's buffer of %u MiB",
			            (long long)lost, station->cpu, TRACING_BYTES >> 20);
		json_null(json, "refused");
		json_text(json, "tracers", tracing->tracers);
		osnoise_write(json, causes);
		json_object_begin(json, "view");
		json_text(json, "clock", clock.counter ? "x86-tsc" : "mono_raw");
		json_u64(json, "kinds_of_events", tracing->events);
		json_u64(json, "lines", causes->lines);
		json_u64(json, "unreadable", causes->unreadable);
		if (lost >= 0)
			json_i64(json, "lost_events", lost);
		else
			json_null(json, "lost_events");
		rate_write(json, "with_tracing", &station->traced, station->traced_ticks);
		rate_write(json, "without_tracing", &station->gaps, station->gaps.end - station->gaps.begin);
		json_u64(json, "told_gaps", causes->gaps);
		json_f64(json, "told_ns", clock_ns(causes->ticks));
		causes_write(json, causes);
		steal_and_smi_write(json, self);
		json_object_end(json);
	} else {
		char reason[160];
		snprintf(reason, sizeof(reason), "reading what was traced of CPU %u: %s", station->cpu, strerror(errno));
		json_text(json, "refused", reason);
		json_text(json, "tracers", tracing->tracers);
		osnoise_write(json, NULL);
		json_null(json, "view");
	}
	if (text)
		(void)fclose(text);
	free(causes);
}

static void traced_write(struct json *json, const struct station *station, const struct cpu_list *self)
{
	const struct tracing *tracing = &run_state.tracing;
	if (!options.attribute) {
		json_null(json, "traced");
		return;
	}
	json_object_begin(json, "traced");
	if (run_state.traced_parts == TRACED_PARTS) {
		causes_of_station_write(json, station, self);
	} else {
		json_text(json, "refused",
		          tracing->refused[0] ? tracing->refused : "the work was told to end before it was done");
		json_text(json, "tracers", tracing->tracers);
		osnoise_write(json, NULL);
		json_null(json, "view");
	}
	json_object_end(json);
}

static void gap_view_write(struct json *json, struct station *station, size_t number, const struct cpu_list *self)
{
	struct gaps *gaps = &station->gaps;
	struct period periods[PERIODS_MAX];
	struct attribution attribution;
	uint8_t *owner = malloc(gaps->kept + 1);
	size_t count = owner ? periods_find(gaps->ring, gaps->kept, clock_now_used.hz / 1e6, periods, owner) : 0;
	double steal_ms;
	int64_t smi;
	interference_sums(&run_state.gap_before, &run_state.gap_after, self, &steal_ms, &smi);
	json_object_begin(json, "gaps");
	json_text(json, "stopped", run_state.gaps_stopped);
	if (run_state.half_width >= 0)
		json_f64(json, "rate_half_width", run_state.half_width);
	else
		json_null(json, "rate_half_width");
	gaps_write(json, gaps, &station->turns);
	periods_write(json, gaps, periods, count);
	if (owner && attribution_make(&attribution, &run_state.readings, number, gaps, periods, count, owner))
		attribution_write(json, "attribution", &attribution, steal_ms, smi);
	else
		json_null(json, "attribution");
	attribution_free(&attribution);
	traced_write(json, station, self);
	json_f64(json, "core_hz_before", corefreq_hz(station->core_before));
	json_f64(json, "core_hz_after", corefreq_hz(station->core_after));
	interference_write(json, "interference", &station->gap_counts, &run_state.gap_before, &run_state.gap_after, self);
	json_object_end(json);
	free(owner);
}

static void station_write(struct json *json, size_t number)
{
	struct station *station = &run_state.stations[number];
	struct cpu_list self = {0};
	cpu_list_add(&self, station->cpu);
	json_object_begin(json, NULL);
	json_u64(json, "cpu", station->cpu);
	json_bool(json, "cpu_verified", station->verified);
	/* A view that a request to stop left without anything complete is not there. */
	if (run_state.pma && run_state.reported > 0)
		pma_write(json, station, &self);
	else
		json_null(json, "pma");
	if (run_state.gaps && run_state.watched)
		gap_view_write(json, station, number, &self);
	else
		json_null(json, "gaps");
	json_object_end(json);
	cpu_list_free(&self);
}

static bool setup(struct error *error)
{
	if (!cpus_asked(&run_state.cpus, error))
		return false;
	if (options.fifo && !refuse_throttling(error))
		return false;
	run_state.half_width = -1;
	run_state.attributed = options.attribute && tracing_open(&run_state.tracing, &run_state.cpus);
	/* Asked for the sum of all CPUs before any takes its part: what the kernel has not got it kills for. */
	struct demand demand = {0};
	demand_threads(&demand, run_state.cpus.count);
	demand_other(&demand, options.intervals * sizeof(struct interval), run_state.cpus.count);
	demand_other(&demand, run_state.gaps ? gaps_bytes(options.longest) : 0, run_state.cpus.count);
	demand_other(&demand, run_state.attributed ? gaps_bytes(0) + TRACING_BYTES : 0, run_state.cpus.count);
	if (!demand_admit(&demand, error))
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
		gaps_free(&run_state.stations[i].traced);
	}
	for (uint64_t i = 0; i <= options.intervals; i++)
		snapshot_free(&run_state.snapshots[i]);
	readings_free(&run_state.readings);
	snapshot_free(&run_state.gap_before);
	snapshot_free(&run_state.gap_after);
	for (size_t i = 0; i < TRACED_PARTS; i++) {
		snapshot_free(&run_state.traced_before[i]);
		snapshot_free(&run_state.traced_after[i]);
	}
	free(run_state.snapshots);
	free(run_state.stations);
	cpu_list_free(&run_state.cpus);
}

static bool observe(struct json *result, struct error *error)
{
	supervise_avoid(&run_state.cpus);
	if (!start_all(error))
		return false;
	run_state.began = clock_start();
	if (run_state.pma) {
		continue_all();
		watch_intervals();
		wait_all();
	}
	/* Told to stop already, the second view is not begun: its threads go through what is left together, at once. */
	unsigned parts = !run_state.gaps ? 0 : run_state.attributed ? 1 + TRACED_PARTS : 1;
	double left = seconds_to_watch();
	run_state.traced_ticks = (uint64_t)(TRACED_SHARE * left * clock_now_used.hz);
	if (run_state.attributed && !stop_requested()) {
		watch_traced(0);
		parts--;
	}
	run_state.watched = run_state.gaps && !stop_requested();
	if (run_state.watched) {
		watch_gaps(left, error);
		if (run_state.attributed)
			watch_traced(1);
		parts = 0;
	}
	atomic_store(&run_state.stop_gaps, true);
	for (; parts > 0; parts--) {
		continue_all();
		wait_all();
	}
	for (size_t i = 0; i < run_state.cpus.count; i++) {
		worker_join(&run_state.stations[i].worker);
		if (run_state.stations[i].worker.error.code != ERROR_NONE && error->code == ERROR_NONE)
			*error = run_state.stations[i].worker.error;
	}
	clock_finish();
	bool any = run_state.reported > 0 || run_state.watched;
	if (error->code == ERROR_NONE && !any)
		stop_error(error);
	if (error->code == ERROR_NONE && any) {
		json_object_begin(result, NULL);
		json_array_begin(result, "cpus");
		for (size_t i = 0; i < run_state.cpus.count; i++)
			station_write(result, i);
		json_array_end(result);
		json_object_end(result);
	}
	teardown();
	return error->code == ERROR_NONE;
}

static bool measure(struct json *result, struct error *error)
{
	bool good = setup(error) && observe(result, error);
	if (run_state.attributed)
		tracing_close(&run_state.tracing);
	return good;
}

const struct subcommand jitter_subcommand = {
	.name = "jitter",
	.summary = "how much a CPU that only computes is disturbed",
	.options = table,
	.option_count = sizeof(table) / sizeof(table[0]),
	.prepare = prepare,
	.run = measure,
};
