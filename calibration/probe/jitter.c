// SPDX-License-Identifier: Apache-2.0
/* Jitter: how much the operating system and the machine disturb a CPU that only computes. Two views: the fixed work of
 * PMA jitter with its columns, and gaps in a loop that only reads the clock. */
#include "jitter.h"

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "allocate.h"
#include "corefreq.h"
#include "option_rows.h"
#include "realtime.h"
#include "stopping.h"
#include "subcommand.h"

/* Around the view of gaps, and around each traced part. */
#define SNAPSHOTS_OF_GAPS 6u
/* In the document: of an interval, and of a CPU's gaps, most of it histogram. */
#define NUMBERS_OF_INTERVAL 40u
#define NUMBERS_OF_GAPS 2000u
/* Of a slice: what some forty events of a few digits take. */
#define NUMBERS_OF_SLICE 8u
/* Less than a view can be begun and ended in. */
#define GAP_MIN_S 0.001

struct jitter_options jitter_options;
struct jitter jitter;

static const struct option table[] = {
	OPTION_ROW_TEXT("--cpus", &jitter_options.cpus, "LIST|isolated", NULL,
	                "CPUs to observe, all at once; isolated: those the kernel isolates"),
	OPTION_ROW_WORD("--view", &jitter_options.view, "pma|gaps|both", "both", "what to measure"),
	/* 80,000 turns and 20,000 executions are those of the published pages; other numbers cannot be compared. */
	OPTION_ROW_U64("--loops", &jitter_options.loops, "N", "80000", 1, UINT32_MAX, "turns of the fixed work"),
	OPTION_ROW_U64("--executions", &jitter_options.executions, "N", "20000", 1, 1u << 30,
	               "executions of the work in an interval"),
	/* The published pages show 20 to 30 intervals of about a second. */
	OPTION_ROW_U64("--intervals", &jitter_options.intervals, "N", "20", 1, 1000000, "intervals to report"),
	/* Ten seconds see what comes once a second ten times; rarer events need a longer look. */
	OPTION_ROW_F64("--gap-s", &jitter_options.gap_s, "S", "10", 0, 86400, "seconds to look for gaps"),
	OPTION_ROW_TEXT("--threshold-ns", &jitter_options.threshold_ns, "N|auto", "auto",
	                "steps of at least this length are gaps; auto: 200, or four turns of the loop"),
	OPTION_ROW_U64("--longest", &jitter_options.longest, "N", "20", 0, 1000000, "longest gaps to list with their time"),
	/* 0, an ordinary thread, is how the published results were made. */
	OPTION_ROW_U64("--fifo", &jitter_options.fifo, "PRIO", "0", 0, 99,
	               "run under SCHED_FIFO with this priority; 0: as an ordinary thread"),
	OPTION_ROW_OPTIONAL_TEXT("--housekeeping-cpus", &jitter_options.housekeeping, "LIST",
	                         "CPUs that start processes, fault pages and set timers meanwhile"),
	/* Not by default: it needs root, and takes half as long again. */
	OPTION_ROW_FLAG(
		"--attribute", &jitter_options.attribute,
		"trace the kernel before and after the look for gaps, half as long in all, and report their causes"),
};

static bool prepare(struct error *error)
{
	struct cpu_list cpus = {0};
	uint64_t threshold = 0;
	bool good = cpu_list_asked(&cpus, jitter_options.cpus, error) &&
	            (!jitter_options.housekeeping ||
	             housekeeping_parse(&jitter.housekeeping, jitter_options.housekeeping, &cpus, error));
	cpu_list_free(&cpus);
	if (!good)
		return false;
	if (strcmp(jitter_options.threshold_ns, "auto") != 0 &&
	    (!options_u64(jitter_options.threshold_ns, &threshold) || threshold == 0 || threshold > 1000000000))
		return error_set(error, ERROR_USAGE, "--threshold-ns: auto or 1 to 1000000000, not '%s'",
		                 jitter_options.threshold_ns);
	if (jitter_options.attribute && !strcmp(jitter_options.view, "pma"))
		return error_set(error, ERROR_USAGE, "--attribute needs --view gaps or both");
	if (jitter_options.gap_s < GAP_MIN_S)
		return error_set(error, ERROR_USAGE, "--gap-s: at least %g, not %g", GAP_MIN_S, jitter_options.gap_s);
	jitter.threshold_ns = (double)threshold;
	jitter.pma = strcmp(jitter_options.view, "gaps") != 0;
	jitter.gaps = strcmp(jitter_options.view, "pma") != 0;
	return true;
}

/* All CPUs begin a view together, to within a cache line's transfer. */
static void start_together(unsigned which)
{
	atomic_fetch_add(&jitter.arrived[which], 1);
	while (atomic_load_explicit(&jitter.arrived[which], memory_order_acquire) < jitter.active)
		arch_relax();
}

static void run_traced(struct station *station, unsigned part)
{
	struct gap_view *view = &station->view;
	if (!jitter.watch.traced)
		return;
	if (part == 0)
		gaps_warm_up(&view->traced, GAPS_WARM_UP_S);
	start_together(2 + part);
	gaps_warm_up(&view->traced, GAPS_LEAD_IN_S);
	gaps_run(&view->traced, jitter.traced_ticks);
	view->traced_begin[part] = view->traced.begin - view->traced_ticks;
	view->traced_ticks += view->traced.end - view->traced.begin;
	worker_pause(&station->worker);
}

static void run_gaps(struct station *station)
{
	struct gap_view *view = &station->view;
	gaps_warm_up(&view->gaps, GAPS_WARM_UP_S);
	start_together(1);
	struct thread_counts before = thread_counts_now();
	gaps_warm_up(&view->gaps, GAPS_LEAD_IN_S);
	gaps_run(&view->gaps, jitter.gap_ticks);
	struct thread_counts after = thread_counts_now();
	view->stretch.counts = thread_counts_since(&after, &before);
	view->stretch.core_after = corefreq_per_tick();
	worker_pause(&station->worker);
}

static void body(struct worker *worker)
{
	struct station *station = worker->context;
	struct gap_view *view = &station->view;
	if (jitter_options.fifo && !realtime_begin((unsigned)jitter_options.fifo, &worker->error))
		return;
	if (jitter.gaps && !gap_view_open(view, jitter.cpus.count, jitter_options.longest, jitter.watch.traced,
	                                  jitter.threshold_ns, &worker->error))
		return;
	station->thread = (int)syscall(SYS_gettid);
	station->pma.stop = view->gaps.stop = view->traced.stop = &station->stop;
	/* Before the first view, and after the last, so that a change of the clock over the whole step is seen. */
	view->stretch.core_before = corefreq_settle();
	worker_pause(worker);
	if (jitter.pma) {
		start_together(0);
		pma_run(&station->pma);
		worker_pause(worker);
	}
	if (jitter.gaps) {
		run_traced(station, 0);
		run_gaps(station);
		run_traced(station, 1);
	}
	view->stretch.verified = worker->error.code == ERROR_NONE && affinity_stayed(station->cpu, &worker->error);
	/* All have measured: what is done now, by each on its own CPU, disturbs nobody. */
	if (jitter_options.fifo)
		realtime_end();
	if (gap_view_seen(view))
		gap_view_digest(view, &jitter.watch, (size_t)(station - jitter.stations), station->cpu, station->thread);
}

/* The first reason why a CPU has no views of its own. */
static const struct error *first_error(void)
{
	static const struct error none;
	for (size_t i = 0; i < jitter.cpus.count; i++)
		if (jitter.stations[i].worker.error.code != ERROR_NONE)
			return &jitter.stations[i].worker.error;
	return &none;
}

/* A CPU that cannot be measured costs no other its views. */
static bool start_all(struct error *error)
{
	for (size_t i = 0; i < jitter.cpus.count; i++) {
		struct station *station = &jitter.stations[i];
		struct error *lost = &station->worker.error;
		station->cpu = jitter.cpus.cpus[i];
		station->lost =
			!affinity_usable(station->cpu, lost) || !worker_start(&station->worker, station->cpu, body, station, lost);
	}
	for (size_t i = 0; i < jitter.cpus.count; i++) {
		struct station *station = &jitter.stations[i];
		station->lost = station->lost || !worker_wait(&station->worker);
		jitter.active += !station->lost;
	}
	return jitter.active > 0 || error_take(error, first_error());
}

/* Why a view is not there; NULL where it is. */
static const char *missing(bool asked, bool begun, bool timed)
{
	return !asked   ? "not requested (--view)"
	       : !begun ? "interrupted before anything was complete"
	       : !timed ? "it was shorter than the clock resolves"
	                : NULL;
}

static void station_write(struct json *json, const struct station *station)
{
	struct cpu_list self = {0};
	cpu_list_add(&self, station->cpu);
	const struct error *error = &station->worker.error;
	const char *no_pma = missing(jitter.pma, jitter.reported > 0, pma_timed(&station->pma, jitter.reported));
	const char *no_gaps = missing(jitter.gaps, gap_view_seen(&station->view), true);
	if (error->code != ERROR_NONE)
		no_pma = no_gaps = error->message;
	json_object_begin(json, NULL);
	json_u64(json, "cpu", station->cpu);
	json_bool(json, "cpu_verified", station->view.stretch.verified);
	error_write(json, error);
	if (json_known(json, "pma", !no_pma))
		pma_write(json, "pma", &station->pma, jitter.reported, jitter.pma_stopped, jitter.snapshots, &self);
	json_text(json, "pma_missing", no_pma);
	if (json_known(json, "gaps", !no_gaps))
		gap_view_write(json, "gaps", &station->view, &jitter.watch, &self);
	json_text(json, "gaps_missing", no_gaps);
	json_object_end(json);
	cpu_list_free(&self);
}

/* Bytes that one CPU takes, with what is made of its gaps afterwards. */
static uint64_t station_bytes(void)
{
	uint64_t bytes = sizeof(struct station) + jitter_options.intervals * sizeof(struct pma_interval);
	return bytes + (jitter.gaps ? gap_view_bytes(jitter.cpus.count, jitter_options.longest, jitter.watch.traced) : 0);
}

static bool setup(struct error *error)
{
	if (!cpu_list_asked(&jitter.cpus, jitter_options.cpus, error))
		return false;
	if (jitter_options.fifo &&
	    !(realtime_refuse_starving(&jitter.cpus, error) && realtime_refuse_throttling(&jitter.cpus, error)))
		return false;
	struct gap_watch *watch = &jitter.watch;
	watch->asked = jitter_options.attribute;
	watch->traced = jitter_options.attribute && tracing_open(&watch->tracing, &jitter.cpus, NULL);
	/* Asked for the sum of all CPUs before any takes its part: what the kernel has not got it kills for. */
	struct demand demand = {0};
	demand_threads(&demand, jitter.cpus.count);
	housekeeping_demand(&jitter.housekeeping, &demand);
	demand_other(&demand, station_bytes(), jitter.cpus.count);
	demand_other(&demand, jitter.gaps ? jitter_readings_bytes() : 0, 1);
	snapshots_demand(&jitter.cpus, (jitter.pma ? jitter_options.intervals + 1 : 0) + SNAPSHOTS_OF_GAPS, &demand);
	demand_document(&demand, jitter.cpus.count *
	                             ((jitter.pma ? jitter_options.intervals : 0) * NUMBERS_OF_INTERVAL +
	                              2 * jitter_options.longest + NUMBERS_OF_GAPS + jitter_slices() * NUMBERS_OF_SLICE));
	if (!demand_admit(&demand, error) || !housekeeping_open(&jitter.housekeeping, error))
		return false;
	jitter.stations = allocate(jitter.cpus.count, sizeof(*jitter.stations));
	jitter.snapshots = allocate(jitter_options.intervals + 1, sizeof(*jitter.snapshots));
	for (size_t i = 0; i < jitter.cpus.count; i++)
		jitter.stations[i].pma =
			(struct pma){.loops = (uint32_t)jitter_options.loops,
			             .executions = jitter_options.executions,
			             .wanted = jitter_options.intervals,
			             .intervals = allocate_touched(jitter_options.intervals, sizeof(struct pma_interval))};
	return true;
}

/* Lets all threads make of their gaps what follows from them, each on its own CPU. */
static void digest_all(void)
{
	/* What ties the counts to time is as good as it gets from here on. */
	clock_finish();
	jitter_continue_all();
	for (size_t i = 0; i < jitter.cpus.count; i++)
		worker_join(&jitter.stations[i].worker);
}

/* Whether a CPU has a view of its own; else the error says why none has. */
static bool any_measured(struct error *error)
{
	bool verified = false;
	for (size_t i = 0; i < jitter.cpus.count; i++) {
		const struct gap_view *view = &jitter.stations[i].view;
		verified = verified || view->stretch.verified;
		if (view->stretch.verified && (jitter.reported > 0 || gap_view_seen(view)))
			return true;
	}
	if (!verified)
		return error_take(error, first_error());
	return !stop_error(error);
}

/* A load that did not last costs the whole answer: its gaps would be of two conditions. */
static bool watch(double *forks_per_s, struct error *error)
{
	if (housekeeping_begin(&jitter.housekeeping, error))
		jitter_watch();
	*forks_per_s = housekeeping_end(&jitter.housekeeping, error);
	if (error->code != ERROR_NONE)
		return false;
	digest_all();
	return any_measured(error);
}

static bool run(struct json *result, struct error *error)
{
	double forks_per_s = 0;
	supervise_avoid(&jitter.cpus);
	if (!start_all(error) || !watch(&forks_per_s, error))
		return false;
	json_object_begin(result, NULL);
	json_f64_known(result, "forks_per_s", jitter_options.housekeeping != NULL, forks_per_s);
	json_array_begin(result, "cpus");
	for (size_t i = 0; i < jitter.cpus.count; i++)
		station_write(result, &jitter.stations[i]);
	json_array_end(result);
	json_object_end(result);
	return true;
}

static bool measure(struct json *result, struct error *error)
{
	bool good = setup(error) && run(result, error);
	housekeeping_close(&jitter.housekeeping);
	if (jitter.watch.traced)
		tracing_close(&jitter.watch.tracing);
	return good;
}

SUBCOMMAND(jitter) = {
	"jitter", "how much a CPU that only computes is disturbed", SUBCOMMAND_OPTIONS(table), prepare, measure,
};
