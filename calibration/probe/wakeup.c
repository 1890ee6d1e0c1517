// SPDX-License-Identifier: Apache-2.0
/* Wake-up latency: how late a thread runs after its timer expired. One thread on each measured CPU sleeps until absolute
 * deadlines at equal distances and reads the clock when it wakes: late = now - deadline, by the clock of the timer. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "allocate.h"
#include "command.h"
#include "histogram.h"
#include "housekeeping.h"
#include "interference.h"
#include "option_rows.h"
#include "paced_reader.h"
#include "place.h"
#include "realtime.h"
#include "stopping.h"
#include "subcommand.h"
#include "tracing.h"
#include "warning.h"

/* Wake-ups that do not count, before the first that does: caches and the clock of the core are as they will be. */
#define PREHEAT_NS 20000000u
#define PREHEAT_PERIOD_NS 500000u
/* A thread of the usual policy is woken up to 50 us late to save interrupts; what is asked for here is no delay at all. */
#define TIMER_SLACK_NS 1u
/* Of the CPU time that the kernel allows real-time threads; used to this share, others may take the rest. */
#define THROTTLE_SHARE 0.5
/* In the document: of a CPU in a pass, most of it the three columns of a histogram, 64 buckets to an octave. */
#define NUMBERS_OF_VIEW 2500u
#define LOAD_CHOICES "none|memory|housekeeping"
#define DMA_LATENCY "/dev/cpu_dma_latency"
/* Of what ran before a wake-up: each kind of work has eight. Of what a command printed, a character may take six bytes. */
#define NUMBERS_OF_LATE (8u * CAUSES_MAX + COMMAND_TEXT_BYTES / 4)
/* Between two looks for wake-ups beyond the threshold: their events stay much longer in the trace. */
#define LOOK_NS 50000000u
/* Readings of two clocks together, of which most have to wait for nothing. */
#define OFFSET_TRIES 10u

static const uint64_t thresholds_ns[] = {10000, 20000, 50000, 100000, 200000, 500000, 1000000, 10000000};
#define THRESHOLDS (sizeof(thresholds_ns) / sizeof(thresholds_ns[0]))

static struct {
	const char *cpus;
	uint64_t period_us;
	double seconds;
	uint64_t fifo;
	struct word_list loads;
	struct word_list groups;
	double load_mb_s;
	const char *housekeeping;
	uint64_t threshold_us;
	uint64_t keep_late;
	const char *command;
	uint64_t worst;
	const char *idle_latency_us;
	bool attribute;
} options;

static const struct option table[] = {
	OPTION_ROW_TEXT("--cpus", &options.cpus, "LIST|isolated", NULL,
	                "CPUs to measure, all at once; isolated: those the kernel isolates"),
	/* What cyclictest and timerlat do; a shorter period finds rare events sooner, and keeps the core from sleeping deeply. */
	OPTION_ROW_U64("--period-us", &options.period_us, "N", "1000", 10, 1000000, "time between two deadlines of a CPU"),
	/* Ten thousand wake-ups: enough for the 99.9th percentile. */
	OPTION_ROW_F64("--seconds", &options.seconds, "S", "10", 0, 86400, "time to measure under each load"),
	/* 0: what an ordinary program sees; real-time threads are a decision of whoever runs the machine. */
	OPTION_ROW_U64("--fifo", &options.fifo, "PRIO", "0", 0, 99,
	               "run under SCHED_FIFO with this priority; 0: as an ordinary thread"),
	OPTION_ROW_WORDS("--loads", &options.loads, LOAD_CHOICES, "none",
	                 "what other CPUs do meanwhile, one after another"),
	OPTION_ROW_OPTIONAL_REPEATED("--load-group", &options.groups, "CPULIST@NODE",
	                             "CPUs that read memory of this node under --loads memory"),
	/* Half of what one core can ask for with a few loads in flight, so that the rate is kept. */
	OPTION_ROW_F64("--load-mb-s", &options.load_mb_s, "R", "500", 0, 100000, "MB/s that each of these CPUs reads"),
	OPTION_ROW_OPTIONAL_TEXT("--housekeeping-cpus", &options.housekeeping, "LIST",
	                         "CPUs that start processes, fault pages and set timers under --loads housekeeping"),
	OPTION_ROW_U64("--threshold-us", &options.threshold_us, "N", "0", 0, 10000000,
	               "trace the kernel, and stop at the first wake-up at least this late; 0: do neither"),
	/* Each is looked up in the trace meanwhile, which keeps another CPU busy for up to a second. */
	OPTION_ROW_U64("--keep-late", &options.keep_late, "N", "0", 0, 1000,
	               "do not stop, but report what ran before the first N wake-ups that late under each load"),
	OPTION_ROW_OPTIONAL_TEXT("--command", &options.command, "PROGRAM",
	                         "start this at each wake-up that is kept, unless it still runs: PROGRAM CPU LATE_NS"),
	OPTION_ROW_U64("--worst", &options.worst, "N", "10", 1, 1000,
	               "latest wake-ups of each CPU to list with their time"),
	/* none: as the machine is found. */
	OPTION_ROW_TEXT("--idle-latency-us", &options.idle_latency_us, "N|none", "none",
	                "keep CPUs out of idle states that take longer to leave (" DMA_LATENCY "); 0: out of all"),
	/* Not by default: it needs root, and wake-ups are later. */
	OPTION_ROW_FLAG("--attribute", &options.attribute,
	                "trace the kernel, and report what ran before the latest wake-ups"),
};

enum load { LOAD_NONE, LOAD_MEMORY, LOAD_HOUSEKEEPING, LOADS };

static const char *const load_names[LOADS] = {
	[LOAD_NONE] = "none", [LOAD_MEMORY] = "memory", [LOAD_HOUSEKEEPING] = "housekeeping"};

struct wake {
	uint64_t late_ns;
	uint64_t at_ns; /* of the timer's clock, when it ran */
	uint64_t ticks; /* the same in ticks */
};

/* What one CPU saw in one pass. */
struct view {
	struct histogram late_ns;
	uint64_t above[THRESHOLDS];
	uint64_t wakes, missed, early;
	uint64_t min_ns;
	struct wake *worst; /* the latest first */
	size_t kept;
	bool verified;
	struct thread_counts threads;
	double busy; /* share of its CPU's time that the thread ran */
};

struct sleeper {
	struct worker worker;
	unsigned cpu;
	bool
		lost; /* the thread has left its CPU, or never ran there, and is waited for no more: further views stay empty */
	int thread;
	struct view *views; /* one for each pass, and one for what does not count */
};

/* A wake-up beyond the threshold, looked up in the trace before later events take its place. */
struct late {
	const struct sleeper *sleeper;
	struct wake wake;
	_Atomic bool taken; /* the fields above are there */
	bool known;         /* what ran */
	struct causes causes;
	struct command command;
};

struct pass {
	enum load load;
	_Atomic uint64_t first_ns; /* of the timer's clock; 0: not known yet */
	uint64_t end_ns, began_unix_ns;
	double wall_s;
	_Atomic bool reached;  /* the threshold */
	_Atomic size_t beyond; /* wake-ups beyond it, of which the first are kept */
	struct late *late;
	_Atomic bool over; /* the threads are at their pause */
	pthread_t commander;
	bool commanded; /* it was started */
	bool recorded;  /* the kernel's events */
	struct snapshot before, after;
	double load_mb_s;   /* measured, of all threads */
	double forks_per_s; /* turns of all processes */
	struct error error; /* why nothing was measured under this load */
};

static struct {
	struct cpu_list cpus;
	uint64_t period_ns, seconds_ns;
	struct sleeper *sleepers;
	struct pass *passes;
	size_t count, done;
	struct error refused[LOADS]; /* why such a load cannot be made */
	struct paced_reader *readers;
	size_t reader_count;
	struct housekeeping housekeeping;
	struct tracing tracing;
	bool traced, locked;
	int dma_latency; /* a descriptor */
	uint32_t idle_latency_us;
	_Atomic size_t now; /* the pass */
} work = {.dma_latency = -1};

static const struct view *view_of(const struct sleeper *sleeper, size_t pass)
{
	static const struct view nothing;
	return sleeper->views ? &sleeper->views[pass] : &nothing;
}

/* -- counts -- */

static void keep_worst(struct view *view, const struct wake *wake)
{
	size_t place = view->kept < options.worst ? view->kept++ : options.worst - 1;
	for (; place > 0 && view->worst[place - 1].late_ns < wake->late_ns; place--)
		view->worst[place] = view->worst[place - 1];
	view->worst[place] = *wake;
}

/* Counts a wake-up and returns how many further deadlines had passed by then. */
static uint64_t view_take(struct view *view, uint64_t deadline_ns, uint64_t now_ns)
{
	const uint64_t late_ns = now_ns > deadline_ns ? now_ns - deadline_ns : 0, missed = late_ns / work.period_ns;
	view->early += now_ns < deadline_ns;
	histogram_add(&view->late_ns, late_ns);
	for (size_t i = 0; i < THRESHOLDS && late_ns >= thresholds_ns[i]; i++)
		view->above[i]++;
	view->min_ns = view->wakes == 0 || late_ns < view->min_ns ? late_ns : view->min_ns;
	view->wakes++;
	if (view->kept < options.worst || late_ns > view->worst[view->kept - 1].late_ns)
		keep_worst(view, &(struct wake){late_ns, now_ns, clock_stop()});
	return missed;
}

/* -- the measuring threads -- */

static bool sleep_until(uint64_t deadline_ns, struct error *error)
{
	const struct timespec deadline = clock_timespec(deadline_ns);
	int reason;
	while ((reason = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, NULL)) == EINTR)
		continue;
	return reason == 0 || error_set(error, ERROR_INTERNAL, "clock_nanosleep: %s", strerror(reason));
}

/* Returns the first deadline. */
static uint64_t preheat(struct sleeper *sleeper, const struct pass *pass)
{
	/* CPUs take their turns within a period: they would otherwise all ask for the kernel's locks at once. */
	const size_t place = (size_t)(sleeper - work.sleepers);
	const uint64_t offset_ns = work.period_ns * place / work.cpus.count;
	struct view *scratch = &sleeper->views[work.count];
	uint64_t first_ns, deadline_ns = clock_read_ns(CLOCK_MONOTONIC) + PREHEAT_PERIOD_NS;
	while ((!(first_ns = atomic_load(&pass->first_ns)) || deadline_ns + PREHEAT_PERIOD_NS < first_ns + offset_ns) &&
	       sleep_until(deadline_ns, &sleeper->worker.error)) {
		(void)view_take(scratch, deadline_ns, clock_read_ns(CLOCK_MONOTONIC));
		deadline_ns += PREHEAT_PERIOD_NS;
	}
	return first_ns + offset_ns;
}

static void take_late(const struct sleeper *sleeper, struct pass *pass, uint64_t late_ns, uint64_t now_ns)
{
	const size_t place = atomic_fetch_add(&pass->beyond, 1);
	if (options.keep_late == 0)
		atomic_store_explicit(&pass->reached, true, memory_order_relaxed);
	if (place >= options.keep_late)
		return;
	pass->late[place].sleeper = sleeper;
	pass->late[place].wake = (struct wake){late_ns, now_ns, clock_stop()};
	atomic_store(&pass->late[place].taken, true);
}

static void measure_pass(struct sleeper *sleeper, struct pass *pass, struct view *view)
{
	const int64_t threshold_ns = options.threshold_us ? (int64_t)options.threshold_us * 1000 : INT64_MAX;
	uint64_t deadline_ns = preheat(sleeper, pass);
	struct thread_counts before = thread_counts_now();
	uint64_t began_cpu_ns = clock_cpu_ns(), began_ns = clock_read_ns(CLOCK_MONOTONIC);
	while (deadline_ns < pass->end_ns && !stop_requested() &&
	       !atomic_load_explicit(&pass->reached, memory_order_relaxed) &&
	       sleep_until(deadline_ns, &sleeper->worker.error)) {
		const uint64_t now_ns = clock_read_ns(CLOCK_MONOTONIC);
		const uint64_t missed = view_take(view, deadline_ns, now_ns);
		if ((int64_t)(now_ns - deadline_ns) >= threshold_ns)
			take_late(sleeper, pass, now_ns - deadline_ns, now_ns);
		/* Those that would have come after the end are not missed. */
		const uint64_t left = (pass->end_ns - 1 - deadline_ns) / work.period_ns;
		view->missed += missed < left ? missed : left;
		deadline_ns += work.period_ns * (1 + missed);
	}
	const uint64_t wall_ns = clock_read_ns(CLOCK_MONOTONIC) - began_ns;
	view->busy = wall_ns ? (double)(clock_cpu_ns() - began_cpu_ns) / (double)wall_ns : 0;
	struct thread_counts after = thread_counts_now();
	view->threads = thread_counts_since(&after, &before);
	view->verified = affinity_stayed(sleeper->cpu, &sleeper->worker.error) && sleeper->worker.error.code == ERROR_NONE;
}

/* The kernel takes the CPU from real-time threads that use more of it than it allows them; these mostly sleep. */
static void check_throttling(const struct view *view)
{
	struct realtime_limit limit = realtime_limit();
	double allowed = (double)limit.runtime_us / (double)limit.period_us;
	if (realtime_throttled(&limit) && view->busy >= THROTTLE_SHARE * allowed)
		warning_add(
			"RT_THROTTLE_POSSIBLE",
			"a real-time thread used %.0f %% of its CPU, of which the kernel allows %lld us in %lld: throttling may "
			"have made it late",
			view->busy * 100, limit.runtime_us, limit.period_us);
}

static void body(struct worker *worker)
{
	struct sleeper *sleeper = worker->context;
	if (options.fifo && !realtime_begin((unsigned)options.fifo, &worker->error))
		return;
	if (prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS) != 0) {
		error_set(&worker->error, ERROR_INTERNAL, "setting the timer slack: %s", strerror(errno));
		return;
	}
	sleeper->thread = (int)syscall(SYS_gettid);
	sleeper->views = allocate_touched(work.count + 1, sizeof(*sleeper->views));
	for (size_t i = 0; i <= work.count; i++)
		sleeper->views[i].worst = allocate_touched(options.worst, sizeof(struct wake));
	for (;;) {
		worker_pause(worker);
		size_t now = atomic_load(&work.now);
		if (now >= work.count || worker->error.code != ERROR_NONE)
			break;
		measure_pass(sleeper, &work.passes[now], &sleeper->views[now]);
	}
	if (options.fifo)
		realtime_end();
	for (size_t i = 0; options.fifo && i < work.done; i++)
		check_throttling(&sleeper->views[i]);
}

/* -- setup -- */

static bool wants(const char *load)
{
	for (size_t i = 0; i < options.loads.count; i++)
		if (!strcmp(options.loads.words[i], load))
			return true;
	return false;
}

static bool prepare_loads(struct error *error)
{
	struct cpu_list seen = {0};
	for (size_t i = 0; i < options.groups.count; i++) {
		const char *text = options.groups.words[i];
		struct cpu_list cpus = {0};
		unsigned node;
		if (!place_parse_list(text, strlen(text), &cpus, &node, error) ||
		    !cpu_list_apart("--load-group", &cpus, &work.cpus, error))
			return false;
		work.readers = reallocate(work.readers, work.reader_count + cpus.count, sizeof(*work.readers));
		for (size_t k = 0; k < cpus.count; k++) {
			if (cpu_list_has(&seen, cpus.cpus[k]))
				return error_set(error, ERROR_USAGE, "--load-group: CPU %u is given twice", cpus.cpus[k]);
			cpu_list_add(&seen, cpus.cpus[k]);
			work.readers[work.reader_count++] =
				(struct paced_reader){.cpu = cpus.cpus[k], .node = node, .bytes_per_s = options.load_mb_s * 1e6};
		}
		cpu_list_free(&cpus);
	}
	cpu_list_free(&seen);
	if (options.housekeeping && !housekeeping_parse(&work.housekeeping, options.housekeeping, &work.cpus, error))
		return false;
	if (wants("memory") != (options.groups.count > 0))
		return error_set(error, ERROR_USAGE, "--loads memory and --load-group need each other");
	if (wants("housekeeping") != (options.housekeeping != NULL))
		return error_set(error, ERROR_USAGE, "--loads housekeeping and --housekeeping-cpus need each other");
	return option_positive("--load-mb-s", options.load_mb_s, error);
}

static bool prepare(struct error *error)
{
	uint64_t idle_us = 0;
	work.period_ns = options.period_us * 1000;
	work.seconds_ns = (uint64_t)(options.seconds * 1e9);
	if (work.seconds_ns < work.period_ns)
		return error_set(error, ERROR_USAGE, "--seconds: must be at least one period of %llu us, not %g",
		                 (unsigned long long)options.period_us, options.seconds);
	if (strcmp(options.idle_latency_us, "none") != 0 &&
	    (!options_u64(options.idle_latency_us, &idle_us) || idle_us > INT32_MAX))
		return error_set(error, ERROR_USAGE, "--idle-latency-us: must be none or 0 to %d, not '%s'", INT32_MAX,
		                 options.idle_latency_us);
	work.idle_latency_us = (uint32_t)idle_us;
	if (options.keep_late && !options.threshold_us)
		return error_set(error, ERROR_USAGE, "--keep-late: needs --threshold-us");
	if (options.command && !options.keep_late)
		return error_set(error, ERROR_USAGE, "--command: needs --keep-late");
	if (options.command && !command_usable("--command", options.command, error))
		return false;
	/* Named CPUs are compared with those of the loads now; which are isolated only the machine knows. */
	return cpu_list_asked(&work.cpus, options.cpus, error) && prepare_loads(error);
}

static void plan_passes(void)
{
	work.passes = allocate(options.loads.count, sizeof(*work.passes));
	for (; work.count < options.loads.count; work.count++) {
		work.passes[work.count].load = (enum load)option_choice(LOAD_CHOICES, options.loads.words[work.count]);
		work.passes[work.count].late = allocate(options.keep_late, sizeof(struct late));
	}
}

/* Whether the kernel is to be traced. */
static bool is_traced(void)
{
	return options.attribute || options.threshold_us;
}

/* Held open, the file keeps the limit; closed, however the process ends, the kernel drops it. */
static bool hold_idle_latency(struct error *error)
{
	if (!strcmp(options.idle_latency_us, "none"))
		return true;
	work.dma_latency = open(DMA_LATENCY, O_WRONLY | O_CLOEXEC);
	if (work.dma_latency >= 0 && write(work.dma_latency, &work.idle_latency_us, sizeof(work.idle_latency_us)) ==
	                                 (ssize_t)sizeof(work.idle_latency_us))
		return true;
	return error_set(error, errno == EACCES || errno == EPERM ? ERROR_NO_PERMISSION : ERROR_UNSUPPORTED,
	                 "--idle-latency-us: " DMA_LATENCY ": %s; run as root, or leave it out", strerror(errno));
}

/* Returns once each thread is at its next pause, or has ended. */
static void wait_all(void)
{
	for (size_t i = 0; i < work.cpus.count; i++)
		if (!work.sleepers[i].lost)
			work.sleepers[i].lost = !worker_wait(&work.sleepers[i].worker);
}

/* Whether all are lost: then with the first reason. */
static bool all_lost(struct error *error)
{
	for (size_t i = 0; i < work.cpus.count; i++)
		if (!work.sleepers[i].lost)
			return false;
	return !error_take(error, &work.sleepers[0].worker.error);
}

/* A CPU that cannot be measured costs no other its views. */
static bool sleepers_open(struct error *error)
{
	work.sleepers = allocate(work.cpus.count, sizeof(*work.sleepers));
	for (size_t i = 0; i < work.cpus.count; i++) {
		struct sleeper *sleeper = &work.sleepers[i];
		struct error *lost = &sleeper->worker.error;
		sleeper->cpu = work.cpus.cpus[i];
		sleeper->lost =
			!affinity_usable(sleeper->cpu, lost) || !worker_start(&sleeper->worker, sleeper->cpu, body, sleeper, lost);
	}
	wait_all();
	/* Pages that are there now. Where that is not allowed they may be reclaimed, and a wake-up then waits for them. */
	work.locked = mlockall(MCL_CURRENT | MCL_ONFAULT) == 0;
	return !all_lost(error);
}

static bool setup(struct error *error)
{
	struct demand demand = {0};
	if (options.fifo && !realtime_refuse_starving(&work.cpus, error))
		return false;
	demand_threads(&demand, work.cpus.count + (options.command ? 1 : 0));
	demand_processes(&demand, options.command ? 1 : 0);
	const size_t passes = options.loads.count;
	demand_other(&demand, (passes + 1) * (sizeof(struct view) + options.worst * sizeof(struct wake)), work.cpus.count);
	housekeeping_demand(&work.housekeeping, &demand);
	demand_other(&demand, passes * (sizeof(struct pass) + options.keep_late * sizeof(struct late)), 1);
	snapshots_demand(&work.cpus, 2 * passes, &demand);
	demand_document(&demand, passes * (work.cpus.count * (NUMBERS_OF_VIEW + 4 * options.worst) +
	                                   options.keep_late * NUMBERS_OF_LATE));
	if (!demand_admit(&demand, error))
		return false;
	plan_passes();
	/* Processes are forked before there is memory that forking would make the threads fault on. */
	work.traced = is_traced() && tracing_open(&work.tracing, &work.cpus, NULL);
	(void)housekeeping_open(&work.housekeeping, &work.refused[LOAD_HOUSEKEEPING]);
	(void)paced_readers_open(work.readers, work.reader_count, &work.refused[LOAD_MEMORY]);
	return hold_idle_latency(error) && sleepers_open(error);
}

/* -- passes -- */

static void continue_all(void)
{
	for (size_t i = 0; i < work.cpus.count; i++)
		if (!work.sleepers[i].lost)
			worker_continue(&work.sleepers[i].worker);
}

static bool load_begin(struct pass *pass)
{
	if (pass->load == LOAD_MEMORY)
		paced_readers_begin(work.readers, work.reader_count);
	return pass->load != LOAD_HOUSEKEEPING || housekeeping_begin(&work.housekeeping, &pass->error);
}

static void load_end(struct pass *pass)
{
	if (pass->load == LOAD_MEMORY) {
		(void)paced_readers_end(work.readers, work.reader_count, &pass->error);
		for (size_t i = 0; i < work.reader_count; i++)
			pass->load_mb_s += work.readers[i].bytes_per_tick * clock_now_used.hz / 1e6;
	} else if (pass->load == LOAD_HOUSEKEEPING) {
		pass->forks_per_s = housekeeping_end(&work.housekeeping, &pass->error);
	}
}

/* Unix time less the timer's clock, by the narrowest of some readings: this thread may have to wait for its CPU in any. */
static uint64_t unix_offset_ns(void)
{
	uint64_t best = UINT64_MAX, offset_ns = 0;
	for (unsigned i = 0; i < OFFSET_TRIES; i++) {
		const uint64_t before = clock_read_ns(CLOCK_MONOTONIC), unix_ns = clock_read_ns(CLOCK_REALTIME);
		const uint64_t width = clock_read_ns(CLOCK_MONOTONIC) - before;
		if (width < best) {
			best = width;
			offset_ns = unix_ns - before - width / 2;
		}
	}
	return offset_ns;
}

/* Whether the trace tells what the kernel ran between the deadline and the wake-up. */
static bool ran_read(struct causes *causes, const struct sleeper *sleeper, const struct wake *wake)
{
	const struct trace_clock clock = tracing_clock(&work.tracing);
	const uint64_t ticks = (uint64_t)((double)wake->late_ns * clock_now_used.hz / 1e9);
	const struct gap gap = {.at = wake->ticks - ticks, .ticks = ticks};
	FILE *text = tracing_text(&work.tracing, sleeper->cpu);
	const bool read = text && causes_read(causes, text, &gap, 1, sleeper->thread, true, &clock,
	                                      tracing_lost(&work.tracing, sleeper->cpu) > 0);
	if (text)
		(void)fclose(text);
	return read && causes->gaps == 1;
}

static size_t read_late(struct pass *pass, size_t done)
{
	for (; done < options.keep_late && atomic_load(&pass->late[done].taken); done++) {
		struct late *late = &pass->late[done];
		late->known = pass->recorded && ran_read(&late->causes, late->sleeper, &late->wake);
	}
	return done;
}

/* Looks up late wake-ups while the threads measure: at the end their events may have gone. */
static void watch_late(struct pass *pass)
{
	size_t done = 0;
	struct error error = {0};
	while (done < options.keep_late && !stop_requested() && clock_read_ns(CLOCK_MONOTONIC) < pass->end_ns) {
		done = read_late(pass, done);
		(void)sleep_until(clock_read_ns(CLOCK_MONOTONIC) + LOOK_NS, &error);
	}
	wait_all();
	atomic_store(&pass->over, true);
	(void)read_late(pass, done);
}

/* A thread of its own: looking up what ran takes up to seconds, after which a command would come too late. */
static void *command_late(void *argument)
{
	struct pass *pass = argument;
	size_t next = 0;
	while (next < options.keep_late && !stop_requested()) {
		struct late *late = &pass->late[next];
		const bool over = atomic_load(&pass->over); /* before what is taken: later there is no more */
		if (atomic_load(&late->taken)) {
			command_run(&late->command, options.command, late->sleeper->cpu, late->wake.late_ns);
			while (next < options.keep_late && atomic_load(&pass->late[next].taken))
				next++;
		} else if (over || stop_sleep_ns(COMMAND_LOOK_NS)) {
			break;
		}
	}
	return NULL;
}

static bool commander_start(struct pass *pass)
{
	const int reason = options.command ? pthread_create(&pass->commander, NULL, command_late, pass) : 0;
	pass->commanded = options.command && reason == 0;
	return reason == 0 || error_set(&pass->error, ERROR_INTERNAL, "a thread for --command: %s", strerror(reason));
}

static void run_threads(struct pass *pass)
{
	const uint64_t unix_ns = unix_offset_ns();
	snapshot_take(&pass->before, &work.cpus);
	continue_all();
	/* Only now: a deadline that passed while this thread waited for its CPU would count as a late wake-up of others. */
	const uint64_t first_ns = clock_read_ns(CLOCK_MONOTONIC) + PREHEAT_NS;
	pass->began_unix_ns = first_ns + unix_ns;
	pass->end_ns = first_ns + work.seconds_ns;
	atomic_store(&pass->first_ns, first_ns);
	watch_late(pass);
	uint64_t ended_ns = clock_read_ns(CLOCK_MONOTONIC);
	ended_ns = ended_ns < pass->end_ns ? ended_ns : pass->end_ns;
	pass->wall_s = ended_ns > first_ns ? (double)(ended_ns - first_ns) / 1e9 : 0;
	snapshot_take_again(&pass->after, &pass->before);
}

static void run_pass(struct pass *pass)
{
	if (!error_take(&pass->error, &work.refused[pass->load]))
		return;
	pass->recorded = work.traced && tracing_start(&work.tracing);
	if (load_begin(pass) && commander_start(pass))
		run_threads(pass);
	load_end(pass);
	if (pass->recorded)
		tracing_stop(&work.tracing);
	if (pass->commanded)
		(void)pthread_join(pass->commander, NULL);
}

/* Whether a CPU was measured under any load; else the error says why none was. */
static bool any_measured(struct error *error)
{
	for (size_t i = 0; i < work.done; i++)
		for (size_t k = 0; work.passes[i].error.code == ERROR_NONE && k < work.cpus.count; k++)
			if (view_of(&work.sleepers[k], i)->verified)
				return true;
	for (size_t i = 0; i < work.done; i++)
		error_take(error, &work.passes[i].error);
	return error->code == ERROR_NONE && !all_lost(error);
}

static bool run_passes(struct error *error)
{
	for (size_t i = 0; i < work.count && !stop_requested(); i++) {
		atomic_store(&work.now, i);
		run_pass(&work.passes[i]);
		uint64_t wakes = 0;
		for (size_t k = 0; k < work.cpus.count; k++)
			wakes += view_of(&work.sleepers[k], i)->wakes;
		/* Told to stop before each CPU had a deadline: nothing to report of this pass. */
		work.done += !stop_requested() || wakes >= work.cpus.count;
	}
	atomic_store(&work.now, work.count);
	continue_all();
	for (size_t i = 0; i < work.cpus.count; i++)
		worker_join(&work.sleepers[i].worker);
	clock_finish();
	return any_measured(error) && (work.done > 0 || !stop_error(error));
}

/* -- the document -- */

static void known_ran_write(struct json *json, struct causes *causes, bool known)
{
	if (json_object_known(json, "ran", known)) {
		causes_write(json, causes);
		json_object_end(json);
	}
}

/* What the kernel ran between the deadline and the wake-up. */
static void ran_write(struct json *json, const struct pass *pass, const struct sleeper *sleeper,
                      const struct wake *wake)
{
	struct causes *causes = allocate(1, sizeof(*causes));
	known_ran_write(json, causes, pass->recorded && ran_read(causes, sleeper, wake));
	free(causes);
}

/* Of all CPUs only so many wake-ups are looked up in the trace: the latest. */
static uint64_t late_enough(size_t pass)
{
	uint64_t least = UINT64_MAX;
	for (size_t rank = 0; rank < options.worst && least > 0; rank++) {
		uint64_t next = 0;
		for (size_t i = 0; i < work.cpus.count; i++) {
			const struct view *view = view_of(&work.sleepers[i], pass);
			for (size_t k = 0; k < view->kept; k++)
				if (view->verified && view->worst[k].late_ns < least && view->worst[k].late_ns > next)
					next = view->worst[k].late_ns;
		}
		if (next == 0)
			break;
		least = next;
	}
	return least;
}

/* The object is left open. */
static void wake_begin_write(struct json *json, const struct pass *pass, const struct wake *wake)
{
	json_object_begin(json, NULL);
	json_u64(json, "late_ns", wake->late_ns);
	json_u64(json, "at_unix_ns", pass->began_unix_ns + (uint64_t)(int64_t)(wake->at_ns - pass->first_ns));
}

static void late_write(struct json *json, const struct pass *pass)
{
	json_object_begin(json, "late");
	json_u64(json, "threshold_ns", options.threshold_us * 1000);
	json_u64(json, "count", pass->beyond);
	json_array_begin(json, "first");
	for (size_t i = 0; i < options.keep_late && pass->late[i].taken; i++) {
		struct late *late = &pass->late[i];
		wake_begin_write(json, pass, &late->wake);
		json_u64(json, "cpu", late->sleeper->cpu);
		known_ran_write(json, &late->causes, late->known);
		command_write(json, "command", &late->command, late->wake.at_ns);
		json_object_end(json);
	}
	json_array_end(json);
	json_object_end(json);
}

static void worst_write(struct json *json, const struct pass *pass, const struct sleeper *sleeper,
                        const struct view *view, uint64_t least_ns)
{
	json_array_begin(json, "worst");
	for (size_t i = 0; i < view->kept; i++) {
		const struct wake *wake = &view->worst[i];
		wake_begin_write(json, pass, wake);
		if (json_known(json, "ran", pass->recorded && wake->late_ns >= least_ns))
			ran_write(json, pass, sleeper, wake);
		json_object_end(json);
	}
	json_array_end(json);
}

static void view_write(struct json *json, size_t number, const struct sleeper *sleeper, uint64_t least_ns)
{
	const struct view *view = view_of(sleeper, number);
	const struct error none = {0};
	json_object_begin(json, NULL);
	json_u64(json, "cpu", sleeper->cpu);
	json_bool(json, "cpu_verified", view->verified);
	error_write(json, view->verified ? &none : &sleeper->worker.error);
	json_u64(json, "wakes", view->wakes);
	json_u64(json, "missed", view->missed);
	json_u64(json, "early", view->early);
	json_u64_known(json, "min_ns", view->wakes > 0, view->min_ns);
	json_f64(json, "busy", view->busy);
	json_u64s(json, "above", view->above, THRESHOLDS);
	histogram_write(json, "late_ns", &view->late_ns, false);
	worst_write(json, &work.passes[number], sleeper, view, least_ns);
	json_object_end(json);
}

/* The object is left open. */
static void pass_begin_write(struct json *json, const struct pass *pass)
{
	json_object_begin(json, NULL);
	json_text(json, "load", load_names[pass->load]);
	json_bool(json, "traced", is_traced());
}

static void pass_write(struct json *json, size_t number)
{
	struct pass *pass = &work.passes[number];
	struct thread_counts threads = {0};
	for (size_t i = 0; i < work.cpus.count; i++)
		thread_counts_add(&threads, &view_of(&work.sleepers[i], number)->threads);
	pass_begin_write(json, pass);
	json_text(json, "stopped",
	          pass->reached                                 ? "threshold"
	          : stop_requested() && number + 1 == work.done ? "interrupted"
	                                                        : "time");
	json_f64(json, "wall_s", pass->wall_s);
	json_f64_known(json, "load_mb_s", pass->load == LOAD_MEMORY, pass->load_mb_s);
	json_f64_known(json, "forks_per_s", pass->load == LOAD_HOUSEKEEPING, pass->forks_per_s);
	json_array_begin(json, "cpus");
	uint64_t least_ns = pass->recorded ? late_enough(number) : 0;
	for (size_t i = 0; i < work.cpus.count; i++)
		view_write(json, number, &work.sleepers[i], least_ns);
	json_array_end(json);
	if (options.keep_late)
		late_write(json, pass);
	interference_write(json, "interference", &threads, &pass->before, &pass->after, &work.cpus);
	json_object_end(json);
}

/* The tick's length where the kernel has no high-resolution timers: a wake-up is late by up to as much. */
static uint64_t timer_resolution_ns(void)
{
	struct timespec resolution = {0};
	(void)clock_getres(CLOCK_MONOTONIC, &resolution); /* knows no reason to fail */
	return (uint64_t)resolution.tv_sec * 1000000000u + (uint64_t)resolution.tv_nsec;
}

static void result_write(struct json *json)
{
	json_object_begin(json, NULL);
	json_u64(json, "period_ns", work.period_ns);
	json_u64(json, "timer_slack_ns", TIMER_SLACK_NS);
	json_u64(json, "timer_resolution_ns", timer_resolution_ns());
	json_u64(json, "fifo", options.fifo);
	json_bool(json, "memory_locked", work.locked);
	json_u64_known(json, "idle_latency_us", work.dma_latency >= 0, work.idle_latency_us);
	json_f64_known(json, "asked_mb_s", work.reader_count > 0, (double)work.reader_count * options.load_mb_s);
	json_u64(json, "load_threads", work.reader_count);
	json_u64(json, "housekeeping_cpus", work.housekeeping.cpus.count);
	json_text(json, "tracing_refused", is_traced() && work.tracing.refused[0] ? work.tracing.refused : NULL);
	json_u64s(json, "thresholds_ns", thresholds_ns, THRESHOLDS);
	json_array_begin(json, "conditions");
	for (size_t i = 0; i < work.done; i++)
		if (work.passes[i].error.code == ERROR_NONE)
			pass_write(json, i);
	json_array_end(json);
	json_array_begin(json, "failed");
	for (size_t i = 0; i < work.done; i++)
		if (work.passes[i].error.code != ERROR_NONE) {
			pass_begin_write(json, &work.passes[i]);
			error_write(json, &work.passes[i].error);
			json_object_end(json);
		}
	json_array_end(json);
	json_object_end(json);
}

static void teardown(void)
{
	housekeeping_close(&work.housekeeping);
	paced_readers_close(work.readers, work.reader_count);
	if (work.traced)
		tracing_close(&work.tracing);
	if (work.dma_latency >= 0)
		close(work.dma_latency);
}

static bool measure(struct json *result, struct error *error)
{
	supervise_avoid(&work.cpus);
	bool good = setup(error) && run_passes(error);
	if (good)
		result_write(result);
	teardown();
	return good;
}

SUBCOMMAND(wakeup) = {
	"wakeup", "how late a thread wakes after its timer expired", SUBCOMMAND_OPTIONS(table), prepare, measure,
};
