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

#include "clock.h"
#include "corefreq.h"
#include "files.h"
#include "gapview.h"
#include "interference.h"
#include "memory.h"
#include "pma.h"
#include "realtime.h"
#include "statistics.h"
#include "stopping.h"
#include "subcommand.h"
#include "warning.h"
#include "worker.h"

/* Counters are read often enough to separate causes that come and go, and no more often than keeps the reading CPU
 * 97 % idle; more slices than this add memory and no knowledge. */
#define SLICE_MIN_S 0.1
#define SLICE_COST 40.0
#define SLICES_MAX 600u
/* What the readings of all slices take at most: 128 of 1000 rows and 255 CPUs. */
#define READINGS_BYTES (256u << 20)
/* Around the view of gaps, and around each traced part. */
#define SNAPSHOTS_OF_GAPS 6u
/* In the document: of an interval, and of a CPU's gaps, most of it histogram. */
#define NUMBERS_OF_INTERVAL 40u
#define NUMBERS_OF_GAPS 2000u
/* Rows of /proc/interrupts and /proc/softirqs that count something, of large servers; of more there are fewer readings. */
#define READINGS_ROWS 1024u
/* Of the time without tracing, for each part with it. */
#define TRACED_SHARE 0.25
/* The interrupts that enabling an event sends to all CPUs are over by then. */
#define TRACE_SETTLE_NS 50000000u
/* Less than a view can be begun and ended in. */
#define GAP_MIN_S 0.001
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

struct station {
	struct worker worker;
	unsigned cpu;
	int thread;
	bool verified;
	struct pma pma;
	struct gap_view view;
};

static struct {
	struct cpu_list cpus;
	struct station *stations;
	bool pma, gaps;      /* the views asked for */
	double threshold_ns; /* 0: automatic */
	uint64_t began;      /* ticks, when measuring began */
	uint64_t reported;   /* intervals that all CPUs completed */
	const char *pma_stopped;
	struct snapshot *snapshots; /* one more than intervals reported */
	/* Alone in its lines: whoever writes beside it would make the gap loop wait for it. */
	_Alignas(256) _Atomic bool stop_gaps;
	_Alignas(256) uint64_t gap_ticks; /* at most */
	uint64_t traced_ticks;            /* of each part */
	struct gap_watch watch;
	_Atomic size_t arrived[2 + TRACED_PARTS];
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
	if (options.gap_s < GAP_MIN_S)
		return error_set(error, ERROR_USAGE, "--gap-s: expected at least %g, found %g", GAP_MIN_S, options.gap_s);
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

/* Whether the affinity mask has a CPU that is not measured: from there counters are read meanwhile, and the measuring is ended. */
static bool cpu_to_spare(void)
{
	const struct cpu_list *allowed = affinity_allowed();
	for (size_t i = 0; i < allowed->count; i++)
		if (!cpu_list_has(&run_state.cpus, allowed->cpus[i]))
			return true;
	return false;
}

/* Real-time threads that never sleep would keep the supervising thread from its CPU, and nothing could end them. */
static bool refuse_starving(struct error *error)
{
	return cpu_to_spare() ||
	       error_set(
			   error, ERROR_UNSUPPORTED,
			   "--fifo: all %zu allowed CPUs would run real-time threads and none the thread that ends them; leave "
			   "one out of --cpus, widen the affinity mask (taskset, cpuset), or leave --fifo out",
			   affinity_allowed()->count);
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

/* What follows the measuring is no real-time work. */
static void become_ordinary(void)
{
	struct sched_param none = {0};
	if (options.fifo)
		(void)pthread_setschedparam(pthread_self(), SCHED_OTHER, &none); /* always allowed */
}

/* All CPUs begin a view together, to within a cache line's transfer. */
static void meet(unsigned which)
{
	atomic_fetch_add(&run_state.arrived[which], 1);
	while (atomic_load_explicit(&run_state.arrived[which], memory_order_acquire) < run_state.cpus.count)
		arch_relax();
}

static void run_traced(struct station *station, unsigned part)
{
	struct gap_view *view = &station->view;
	if (!run_state.watch.traced)
		return;
	if (part == 0)
		gaps_warm_up(&view->traced, GAPS_WARM_UP_S);
	meet(2 + part);
	gaps_warm_up(&view->traced, GAPS_LEAD_IN_S);
	gaps_run(&view->traced, run_state.traced_ticks);
	view->traced_ticks += view->traced.end - view->traced.begin;
	worker_pause(&station->worker);
}

static void run_gaps(struct station *station)
{
	struct gap_view *view = &station->view;
	struct thread_counts before = {0}, after = {0};
	gaps_warm_up(&view->gaps, GAPS_WARM_UP_S);
	meet(1);
	thread_counts_read(&before);
	gaps_warm_up(&view->gaps, GAPS_LEAD_IN_S);
	gaps_run(&view->gaps, run_state.gap_ticks);
	thread_counts_read(&after);
	view->counts = thread_counts_since(&after, &before);
	view->core_after = corefreq_per_tick();
	worker_pause(&station->worker);
}

static void body(struct worker *worker)
{
	struct station *station = worker->context;
	struct gap_view *view = &station->view;
	if (!become_fifo(&worker->error))
		return;
	if (run_state.gaps && !gap_view_open(view, run_state.cpus.count, options.longest, run_state.watch.traced,
	                                     run_state.threshold_ns, &worker->error))
		return;
	station->thread = (int)syscall(SYS_gettid);
	view->gaps.stop = view->traced.stop = &run_state.stop_gaps;
	/* Before the first view, and after the last, so that a change of the clock over the whole step is seen. */
	view->core_before = corefreq_settle();
	worker_pause(worker);
	if (run_state.pma) {
		pma_prime(&station->pma);
		meet(0);
		pma_run(&station->pma);
		worker_pause(worker);
	}
	if (run_state.gaps) {
		run_traced(station, 0);
		run_gaps(station);
		run_traced(station, 1);
	}
	station->verified = affinity_verify(station->cpu);
	if (!station->verified)
		affinity_left(station->cpu, &worker->error);
	/* All have measured: what is done now, by each on its own CPU, disturbs nobody. */
	become_ordinary();
	if (station->verified && gap_view_seen(view))
		(void)gap_view_digest(view, &run_state.watch, (size_t)(station - run_state.stations), station->cpu,
		                      station->thread, &worker->error);
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
			struct pma *pma = &run_state.stations[i].pma;
			while (!over && atomic_load_explicit(&pma->finished, memory_order_acquire) <= number) {
				uint64_t passed = clock_raw_ns() - last_ns;
				/* Over, unless the interval was finished between the two looks. */
				over = atomic_load_explicit(&pma->over, memory_order_acquire) &&
				       atomic_load_explicit(&pma->finished, memory_order_acquire) <= number;
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
		struct gaps *gaps = &run_state.stations[i].view.gaps;
		uint64_t count = atomic_load_explicit(&gaps->watched_count, memory_order_acquire);
		uint64_t at = atomic_load_explicit(&gaps->watched_at, memory_order_relaxed);
		/* Before the view begins these are of the warm-up. */
		whole = whole && rates->at[i] && at > rates->at[i] && count >= rates->count[i];
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

/* Seconds to look for gaps, as far as the budget allows, which the traced parts share. */
static double seconds_to_watch(void)
{
	double left = options.gap_s;
	run_state.watch.stopped = "time";
	if (options.budget_s > 0) {
		double rest = options.budget_s - seconds_since(run_state.began);
		rest /= run_state.watch.traced ? 1 + TRACED_PARTS * TRACED_SHARE : 1;
		/* Something is watched however small the budget is: a slice. */
		rest = rest > SLICE_MIN_S ? rest : SLICE_MIN_S;
		if (rest < left) {
			left = rest;
			run_state.watch.stopped = "budget";
		}
	}
	return left;
}

/* Watches gaps while the kernel is traced. Where tracing cannot be turned on, or the work is to end, the threads go through
 * their part at once. */
static void watch_traced(unsigned part)
{
	struct snapshot *before = &run_state.watch.traced_before[part], *after = &run_state.watch.traced_after[part];
	bool on = !stop_requested() && tracing_start(&run_state.watch.tracing);
	run_state.watch.parts += on;
	(void)stop_sleep_ns(TRACE_SETTLE_NS);
	atomic_store(&run_state.stop_gaps, !on || stop_requested());
	snapshot_take(before, &run_state.cpus);
	continue_all();
	if (on && stop_sleep_ns((uint64_t)clock_ns((double)run_state.traced_ticks)))
		atomic_store(&run_state.stop_gaps, true);
	wait_all();
	snapshot_take_again(after, before);
	if (on)
		tracing_stop(&run_state.watch.tracing);
	(void)stop_sleep_ns(TRACE_SETTLE_NS);
	atomic_store(&run_state.stop_gaps, false);
}

static size_t readings_bytes(void)
{
	size_t bytes = run_state.cpus.count * SLICES_MAX * READINGS_ROWS * sizeof(uint64_t);
	return bytes < READINGS_BYTES ? bytes : READINGS_BYTES;
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
	            readings_open(&run_state.watch.readings, &run_state.cpus, threads, SLICES_MAX + 2);
	run_state.gap_ticks = (uint64_t)(left * clock_now_used.hz);
	snapshot_take(&run_state.watch.before, &run_state.cpus);
	/* The first readings tell what one costs. */
	double cost = 0;
	for (unsigned i = 0; good && i < 2; i++) {
		uint64_t before = clock_start();
		readings_take(&run_state.watch.readings);
		cost = seconds_since(before);
		if (i == 0)
			readings_forget(&run_state.watch.readings);
	}
	continue_all();
	bool spare = cpu_to_spare();
	if (good && spare && !stop_sleep_ns((uint64_t)(GAPS_WARM_UP_S * 1e9))) {
		/* The first slice begins with the observation. */
		readings_forget(&run_state.watch.readings);
		readings_take(&run_state.watch.readings);
	}
	double most = (double)readings_room(&run_state.watch.readings, readings_bytes(), SLICES_MAX);
	double slice = SLICE_COST * cost;
	slice = slice > SLICE_MIN_S ? slice : SLICE_MIN_S;
	slice = slice > left / most ? slice : left / most;
	/* Where all CPUs are measured a look interrupts one of them, so it is taken only to honour a target. */
	slice = spare ? slice : options.target > 0 ? 1 : left;
	for (uint64_t began = clock_stop(); good;) {
		double passed = seconds_since(began);
		if (passed >= left || stop_sleep_ns((uint64_t)((passed + slice < left ? slice : left - passed) * 1e9)))
			break;
		if (seconds_since(began) >= left)
			break;
		if (spare)
			readings_take(&run_state.watch.readings);
		rates_add(&rates);
		if (options.target <= 0)
			continue;
		run_state.watch.half_width = rates_half_width(&rates);
		if (run_state.watch.half_width >= 0 && run_state.watch.half_width <= options.target) {
			run_state.watch.stopped = "converged";
			break;
		}
	}
	if (stop_requested())
		run_state.watch.stopped = "interrupted";
	if (!good || stop_requested() || !strcmp(run_state.watch.stopped, "converged"))
		atomic_store(&run_state.stop_gaps, true);
	wait_all();
	if (good) {
		readings_take(&run_state.watch.readings);
		run_state.watch.half_width = rates_half_width(&rates);
	}
	snapshot_take_again(&run_state.watch.after, &run_state.watch.before);
	free(rates.each);
	free(rates.count);
	free(rates.at);
	run_state.watch.readings.threads = NULL;
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

/* Why a view is not there; NULL where it is. */
static const char *missing(bool asked, bool begun, bool timed)
{
	return !asked   ? "it was not asked for (--view)"
	       : !begun ? "the work was told to end before anything of it was complete"
	       : !timed ? "it took less time than the clock can tell"
	                : NULL;
}

static void station_write(struct json *json, const struct station *station)
{
	struct cpu_list self = {0};
	cpu_list_add(&self, station->cpu);
	const char *no_pma = missing(run_state.pma, run_state.reported > 0, pma_timed(&station->pma, run_state.reported));
	const char *no_gaps = missing(run_state.gaps, gap_view_seen(&station->view), true);
	json_object_begin(json, NULL);
	json_u64(json, "cpu", station->cpu);
	json_bool(json, "cpu_verified", station->verified);
	if (no_pma)
		json_null(json, "pma");
	else
		pma_write(json, "pma", &station->pma, run_state.reported, run_state.pma_stopped, run_state.snapshots, &self);
	json_text(json, "pma_missing", no_pma);
	if (no_gaps)
		json_null(json, "gaps");
	else
		gap_view_write(json, "gaps", &station->view, &run_state.watch, &self);
	json_text(json, "gaps_missing", no_gaps);
	json_object_end(json);
	cpu_list_free(&self);
}

/* Bytes that one CPU takes, with what is made of its gaps afterwards. */
static uint64_t station_bytes(void)
{
	uint64_t bytes = sizeof(struct station) + options.intervals * sizeof(struct pma_interval);
	return bytes + (run_state.gaps ? gap_view_bytes(run_state.cpus.count, options.longest, run_state.watch.traced) : 0);
}

static bool setup(struct error *error)
{
	if (!cpus_asked(&run_state.cpus, error))
		return false;
	if (options.fifo && !(refuse_starving(error) && refuse_throttling(error)))
		return false;
	struct gap_watch *watch = &run_state.watch;
	watch->half_width = -1;
	watch->asked = options.attribute;
	watch->traced = options.attribute && tracing_open(&watch->tracing, &run_state.cpus);
	/* Asked for the sum of all CPUs before any takes its part: what the kernel has not got it kills for. */
	struct demand demand = {0};
	demand_threads(&demand, run_state.cpus.count);
	demand_other(&demand, station_bytes(), run_state.cpus.count);
	demand_other(&demand, run_state.gaps ? readings_bytes() : 0, 1);
	snapshots_demand(&run_state.cpus, (run_state.pma ? options.intervals + 1 : 0) + SNAPSHOTS_OF_GAPS, &demand);
	demand_document(&demand, run_state.cpus.count * ((run_state.pma ? options.intervals : 0) * NUMBERS_OF_INTERVAL +
	                                                 2 * options.longest + NUMBERS_OF_GAPS));
	if (!demand_admit(&demand, error))
		return false;
	run_state.stations = calloc(run_state.cpus.count, sizeof(*run_state.stations));
	run_state.snapshots = calloc(options.intervals + 1, sizeof(*run_state.snapshots));
	bool good = run_state.stations && run_state.snapshots;
	for (size_t i = 0; good && i < run_state.cpus.count; i++) {
		struct pma_interval *intervals = malloc(options.intervals * sizeof(*intervals));
		good = intervals != NULL;
		if (good)
			memset(intervals, 0, options.intervals * sizeof(*intervals));
		run_state.stations[i].pma = (struct pma){.loops = (uint32_t)options.loops,
		                                         .executions = options.executions,
		                                         .wanted = options.intervals,
		                                         .intervals = intervals};
	}
	return good || error_set(error, ERROR_NO_MEMORY, "%llu intervals of %zu CPUs do not fit into memory; ask for fewer",
	                         (unsigned long long)options.intervals, run_state.cpus.count);
}

static void teardown(void)
{
	for (size_t i = 0; i < run_state.cpus.count; i++) {
		free(run_state.stations[i].pma.intervals);
		gap_view_free(&run_state.stations[i].view);
	}
	for (uint64_t i = 0; i <= options.intervals; i++)
		snapshot_free(&run_state.snapshots[i]);
	gap_watch_free(&run_state.watch);
	free(run_state.snapshots);
	free(run_state.stations);
	cpu_list_free(&run_state.cpus);
}

/* Both views, as far as no stop is requested; then the threads are at their last pause. */
static void observe(struct error *error)
{
	const uint64_t share = (uint64_t)(options.budget_s / (run_state.gaps ? 2 : 1) * clock_now_used.hz);
	run_state.began = clock_start();
	if (run_state.pma) {
		for (size_t i = 0; i < run_state.cpus.count; i++)
			run_state.stations[i].pma.until = options.budget_s > 0 ? run_state.began + share : UINT64_MAX;
		continue_all();
		watch_intervals();
		wait_all();
	}
	/* Told to stop already, the second view is not begun: its threads go through what is left together, at once. */
	unsigned parts = !run_state.gaps ? 0 : run_state.watch.traced ? 1 + TRACED_PARTS : 1;
	double left = seconds_to_watch();
	run_state.traced_ticks = (uint64_t)(TRACED_SHARE * left * clock_now_used.hz);
	if (run_state.watch.traced && !stop_requested()) {
		watch_traced(0);
		parts--;
	}
	if (run_state.gaps && !stop_requested()) {
		watch_gaps(left, error);
		if (run_state.watch.traced)
			watch_traced(1);
		parts = 0;
	}
	atomic_store(&run_state.stop_gaps, true);
	for (; parts > 0; parts--) {
		continue_all();
		wait_all();
	}
}

/* Lets all threads make of their gaps what follows from them, each on its own CPU. */
static void digest_all(struct error *error)
{
	/* What ties the counts to time is as good as it gets from here on. */
	clock_finish();
	continue_all();
	for (size_t i = 0; i < run_state.cpus.count; i++) {
		worker_join(&run_state.stations[i].worker);
		if (run_state.stations[i].worker.error.code != ERROR_NONE && error->code == ERROR_NONE)
			*error = run_state.stations[i].worker.error;
	}
}

static bool run(struct json *result, struct error *error)
{
	supervise_avoid(&run_state.cpus);
	if (!start_all(error))
		return false;
	observe(error);
	digest_all(error);
	bool any = run_state.reported > 0;
	for (size_t i = 0; i < run_state.cpus.count; i++)
		any = any || gap_view_seen(&run_state.stations[i].view);
	if (error->code == ERROR_NONE && !any)
		stop_error(error);
	if (error->code == ERROR_NONE && any) {
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

static bool measure(struct json *result, struct error *error)
{
	bool good = setup(error) && run(result, error);
	if (run_state.watch.traced)
		tracing_close(&run_state.watch.tracing);
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
