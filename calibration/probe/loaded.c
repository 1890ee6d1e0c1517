// SPDX-License-Identifier: Apache-2.0
/* Loaded latency: probes walk their chains while a group of CPUs loads memory, for each mix of traffic and each delay between
 * the load's bursts. Latency and bandwidth come from the same windows, in which all load threads were running. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "allocate.h"
#include "chain.h"
#include "clock.h"
#include "corefreq.h"
#include "generator.h"
#include "option_rows.h"
#include "place.h"
#include "pmu.h"
#include "probe.h"
#include "random.h"
#include "shares.h"
#include "statistics.h"
#include "stopping.h"
#include "subcommand.h"
#include "worker.h"

/* The probes walk on for as long as the threads of a load need to begin and to end, and this one to wake up. */
#define PROBES_LONGER_S 1
/* The delay that tells how long one addition or no-op is: far longer than a clock read and than what ends a loop, short enough
 * that of so many tries some are not interrupted. */
#define DELAY_KNOWN 5000u
#define DELAY_REPEATS 10
#define DELAY_MAX 1000000u
/* Time without load before its first window: clocks of uncore and fabric follow within 10 ms or so, and no probe has come to lines
 * that a cache still holds by then: the builder's are the last of the cycle. */
#define ZERO_SETTLE_S 0.02
/* A look at a delay in search of a share of the bandwidth: the median of short windows, as of a point's. Shorter ones would be
 * a few chunks of the load long. */
#define LOOK_WINDOWS 20u
#define LOOK_WINDOW_S 0.002
#define LOOK_SETTLE_S 0.01

static struct {
	struct word_list probes;
	const char *load;
	struct u64_list delays;
	struct u64_list delays_ns;
	struct u64_list mix_delays;
	struct u64_list share_percents;
	bool choose;
	struct word_list mixes;
	uint64_t probe_size_bytes;
	uint64_t stride_bytes;
	const char *order;
	uint64_t window_bytes;
	uint64_t buffer_bytes;
	bool share_buffer;
	uint64_t share_passes;
	uint64_t streams;
	uint64_t prefetch_bytes;
	const char *hint;
	uint64_t visit_lines;
	struct word_list shapes;
} options;

static const struct option table[] = {
	OPTION_ROW_REPEATED("--probe", &options.probes, "CPU@NODE", "walk a chain from this CPU in memory of this node"),
	OPTION_ROW_TEXT("--load", &options.load, "CPULIST@NODE[+...]", NULL,
	                "CPUs that load memory, as --group of bandwidth"),
	OPTION_ROW_OPTIONAL_LIST(
		"--delay", &options.delays, "D[,D...]", 0, DELAY_MAX,
		"dependent additions, no-ops for line_reads and random_reads, after every four lines (default, without "
		"--delay-ns or --mix-delay: the nineteen of Intel MLC, 0 to 20000)"),
	OPTION_ROW_OPTIONAL_LIST("--delay-ns", &options.delays_ns, "T[,T...]", 0, DELAY_MAX,
	                         "in place of --delay: the same in ns, turned into additions or no-ops by timing some on "
	                         "the first CPU that loads"),
	OPTION_ROW_OPTIONAL_LIST("--mix-delay", &options.mix_delays, "D[,D...]", 0, DELAY_MAX,
	                         "in place of --delay: delays of each mix, as many for each, in the order of --mix"),
	OPTION_ROW_FLAG(
		"--choose", &options.choose,
		"measure nothing, but choose the delays for --delay of another command, --mix-delay for several mixes: "
		"those of --delay or --delay-ns, then of --share-percent"),
	OPTION_ROW_OPTIONAL_LIST("--share-percent", &options.share_percents, "P[,P...]", 1, 100,
	                         "with --choose: search delays at which the load moves so many percent of what it moves "
	                         "without delay"),
	/* Without confirmation where points are interpolated between: they need not be exactly at a share. */
	OPTION_ROW_U64("--share-passes", &options.share_passes, "N", "3", 1, SHARES_PASSES,
	               "1 finds a delay for each share, 2 confirms it, 3 finds another where that failed"),
	OPTION_ROW_WORDS("--mix", &options.mixes, LOAD_MIX_CHOICES, "reads", "traffic of the load, one after another"),
	OPTION_ROW_U64("--probe-size-bytes", &options.probe_size_bytes, "B", NULL, 64, 1ull << 40,
	               "size of each probe's chain"),
	OPTION_ROW_U64("--stride-bytes", &options.stride_bytes, "B", "64", 64, 1ull << 30, "distance of a chain's nodes"),
	OPTION_ROW_WORD("--order", &options.order, "random|window", "random", "order of a chain's visits"),
	OPTION_ROW_U64("--window-bytes", &options.window_bytes, "B", "262144", 64, 1ull << 40,
	               "extent of each window of order window"),
	OPTION_ROW_U64("--buffer-bytes", &options.buffer_bytes, "B", NULL, 4096, 1ull << 40,
	               "size of each array of each load thread"),
	/* What a thread works on is then as large for every mix, and no larger than a mix of one array needs. */
	OPTION_ROW_FLAG("--share-buffer", &options.share_buffer, "the arrays of a mix share --buffer-bytes between them"),
	OPTION_ROW_U64("--streams", &options.streams, "S", "4", 1, LOAD_STREAMS_MAX,
	               "places of each array worked on in turn: 1, 2, 4 or 8"),
	OPTION_ROW_U64("--prefetch-bytes", &options.prefetch_bytes, "P", "0", 0, LOAD_PREFETCH_BYTES_MAX,
	               "distance of software prefetches; 0: none"),
	OPTION_ROW_WORD("--hint", &options.hint, LOAD_HINT_CHOICES, "t0", LOAD_HINT_HELP),
	OPTION_ROW_U64("--visit-lines", &options.visit_lines, "L", "0", 0, LOAD_VISIT_LINES_MAX, LOAD_VISIT_HELP),
	OPTION_ROW_OPTIONAL_REPEATED("--shape", &options.shapes, "MIX=S/P/HINT/L/INSTRUCTION",
	                             "settings of this mix, in place of those above"),
	OPTIONS_WIDTH,
	OPTIONS_PLACEMENTS,
	OPTION_ROW_U64("--windows", &common.windows, "N", "9", 1, 10000, "timed windows of each delay in each placement"),
	/* 50 ms hold some 300,000 hops of an idle probe: as many as a window of idle latency. */
	OPTION_ROW_F64("--window-s", &common.window_s, "S", "0.05", 0, 3600, "length of a window"),
	/* Longer than bandwidth alone takes: the probe's own lines must have left the caches the load now fills. */
	OPTION_ROW_F64("--settle-s", &common.settle_s, "S", "0.05", 0, 60,
	               "time under load before the first window of each delay"),
	OPTIONS_PAGES,
	OPTIONS_SEED("the permutations and of the order of delays"),
	OPTIONS_SAMPLE,
	OPTIONS_EVENT_WITH("; names that begin with " PMU_OF_PROBES
	                   " are counted in the probes' threads, others in the load's"),
	OPTIONS_BACKGROUND,
};

struct probe_windows {
	double *ticks; /* per hop, one per window */
	double hops_per_tick;
};

struct placement {
	struct evidence evidence; /* its samples are of the load's threads */
	double *window_rates;     /* lines per tick */
	struct probe_windows *probes;
};

/* One kind of traffic: its delays, and what the search of more of them saw. */
struct traffic {
	struct load_shape shape;
	uint64_t *delays;
	struct shares search;
	uint64_t *found; /* delays of the shares */
};

struct point {
	const struct traffic *traffic;
	uint64_t delay;
	double delay_ticks;
	struct error error;
	struct placement *placements;
	size_t count;
};

enum moment { START, MIDDLE, END, MOMENTS };

/* Windows of one probe without load, of all placements one after another. */
struct zero_load {
	double *ticks[MOMENTS];
	size_t count[MOMENTS];
};

static struct {
	struct generator generator;
	struct probe *probes;
	struct traffic *traffic; /* by mix */
	size_t delays;           /* of each */
	struct point *points;    /* by mix, and of each by delay */
	struct zero_load *zero;
	struct cpu_list cpus; /* of load and probes */
} sweep;

/* The list Intel MLC prints by default, so that the curves can be laid over each other. */
static uint64_t default_delays[] = {0,   2,    8,    15,   50,   100,  200,  300,  400,  500,
                                    700, 1000, 1300, 1700, 2500, 3500, 5000, 9000, 20000};

/* In whole pages. */
static size_t array_bytes(enum load_mix mix)
{
	size_t bytes = options.buffer_bytes / load_mixes[mix].arrays;
	return options.share_buffer ? bytes - bytes % 4096 : options.buffer_bytes;
}

static size_t points(void)
{
	return options.mixes.count * sweep.delays;
}

/* How many delays each mix has; without any of the options, those of MLC. */
static bool count_delays(struct error *error)
{
	struct u64_list *of_each = &options.mix_delays;
	if ((options.delays.count > 0) + (options.delays_ns.count > 0) + (of_each->count > 0) > 1)
		return error_set(error, ERROR_USAGE, "give one of --delay, --delay-ns and --mix-delay");
	if (of_each->count % options.mixes.count)
		return error_set(error, ERROR_USAGE, "--mix-delay: %zu delays for %zu mixes; give as many for each",
		                 of_each->count, options.mixes.count);
	if (!options.delays.count && !options.delays_ns.count && !of_each->count)
		options.delays =
			(struct u64_list){.values = default_delays, .count = sizeof(default_delays) / sizeof(default_delays[0])};
	sweep.delays = options.delays.count + options.delays_ns.count + of_each->count / options.mixes.count;
	return true;
}

static bool mixes_differ(struct error *error)
{
	for (size_t i = 0; i < options.mixes.count; i++)
		for (size_t k = 0; k < i; k++)
			if (sweep.traffic[i].shape.mix == sweep.traffic[k].shape.mix)
				return error_set(error, ERROR_USAGE, "--mix: %s is given twice", options.mixes.words[i]);
	return true;
}

/* The shape of each mix: its --shape row, or that of the options. */
static bool prepare_traffic(struct error *error)
{
	size_t used = 0;
	sweep.traffic = allocate(options.mixes.count, sizeof(*sweep.traffic));
	for (size_t k = 0; k < options.mixes.count; k++) {
		struct load_shape *shape = &sweep.traffic[k].shape, own;
		*shape = (struct load_shape){.streams = (unsigned)options.streams,
		                             .prefetch_bytes = options.prefetch_bytes,
		                             .visit_lines = (unsigned)options.visit_lines};
		load_mix_parse(options.mixes.words[k], &shape->mix);
		load_hint_parse(options.hint, &shape->hint);
		for (size_t i = 0; i < options.shapes.count; i++) {
			if (!load_shape_parse(options.shapes.words[i], &own, error))
				return false;
			if (own.mix == shape->mix) {
				*shape = own;
				used++;
			}
		}
		shape->delay = DELAY_KNOWN; /* there has to be a kernel with delays */
		if (!load_numbers_good(shape, array_bytes(shape->mix), error) || !load_shape_known(shape, error))
			return false;
		shape->delay = 0;
	}
	if (used != options.shapes.count)
		return error_set(error, ERROR_USAGE, "--shape: one for each mix of --mix at most");
	return mixes_differ(error);
}

static bool prepare(struct error *error)
{
	if (!count_delays(error) || !prepare_traffic(error))
		return false;
	if (options.share_percents.count && !options.choose)
		return error_set(error, ERROR_USAGE, "--share-percent: only with --choose");
	if (!generator_parse_group(&sweep.generator, options.load, false, error))
		return false;
	const struct group *group = &sweep.generator.groups[0];
	for (size_t i = 0; i < group->cpus.count; i++)
		cpu_list_add(&sweep.cpus, group->cpus.cpus[i]);
	sweep.probes = allocate(options.probes.count, sizeof(*sweep.probes));
	for (size_t i = 0; i < options.probes.count; i++) {
		struct probe *probe = &sweep.probes[i];
		if (!place_parse_one(options.probes.words[i], &probe->cpu, &probe->node, error))
			return false;
		if (cpu_list_has(&sweep.cpus, probe->cpu))
			return error_set(error, ERROR_USAGE, "--probe: CPU %u loads or probes already", probe->cpu);
		cpu_list_add(&sweep.cpus, probe->cpu);
	}
	uint64_t stride = options.stride_bytes, size = options.probe_size_bytes;
	if (!option_multiple("--stride-bytes", stride, memory_line_bytes(), error) ||
	    !option_multiple("--window-bytes", options.window_bytes, stride, error))
		return false;
	if (size < stride || size / stride > UINT32_MAX)
		return error_set(error, ERROR_USAGE, "--probe-size-bytes: must be 1 to 2^32-1 strides of %llu, not %llu",
		                 (unsigned long long)stride, (unsigned long long)size);
	return option_positive("--window-s", common.window_s, error) &&
	       common_parse(true, &sweep.generator.sampled, &sweep.generator.pmu, error);
}

struct timed_delay {
	enum load_mix mix;
	uint64_t delay;
	double ticks;
};

struct timed_delays {
	struct timed_delay *list;
	size_t count;
};

static void time_each(struct worker *worker)
{
	const struct timed_delays *timed = worker->context;
	corefreq_settle();
	for (size_t k = 0; k < timed->count; k++) {
		struct timed_delay *one = &timed->list[k];
		one->ticks = INFINITY;
		for (int i = 0; i < DELAY_REPEATS; i++)
			one->ticks = fmin(one->ticks, generator_delay_ticks(one->mix, one->delay));
	}
}

/* How long delays are on the CPU that loads first, while it does not. */
static bool time_delays(struct timed_delay *list, size_t count, struct error *error)
{
	struct timed_delays timed = {list, count};
	struct worker worker;
	if (!worker_start(&worker, sweep.generator.threads[0].cpu, time_each, &timed, error))
		return false;
	worker_wait(&worker);
	worker_join(&worker);
	return error_take(error, &worker.error);
}

static bool time_points(struct error *error)
{
	struct timed_delay *timed = allocate(points(), sizeof(*timed));
	for (size_t i = 0; i < points(); i++)
		timed[i] = (struct timed_delay){.mix = sweep.points[i].traffic->shape.mix, .delay = sweep.points[i].delay};
	bool good = time_delays(timed, points(), error);
	for (size_t i = 0; good && i < points(); i++)
		sweep.points[i].delay_ticks = timed[i].ticks;
	free(timed);
	return good;
}

/* Turns --delay-ns into additions or no-ops of a mix; the points say how long each then really was. */
static bool delays_from_ns(struct traffic *traffic, struct error *error)
{
	struct timed_delay known = {.mix = traffic->shape.mix, .delay = DELAY_KNOWN};
	if (!time_delays(&known, 1, error))
		return false;
	if (known.ticks <= 0)
		return error_set(error, ERROR_CHECK_FAILED, "%u instructions take no time by this clock; use --delay",
		                 DELAY_KNOWN);
	for (size_t i = 0; i < sweep.delays; i++) {
		uint64_t ns = options.delays_ns.values[i];
		double units = round((double)ns * DELAY_KNOWN / clock_ns(known.ticks));
		if (units > DELAY_MAX)
			return error_set(error, ERROR_USAGE, "--delay-ns: must be at most %.0f on this CPU, not %llu",
			                 DELAY_MAX * clock_ns(known.ticks) / DELAY_KNOWN, (unsigned long long)ns);
		traffic->delays[i] = ns == 0 ? 0 : units < 1 ? 1 : (uint64_t)units;
	}
	return true;
}

/* The delays of the kth mix. */
static bool set_delays(size_t k, struct error *error)
{
	struct traffic *traffic = &sweep.traffic[k];
	traffic->delays = allocate(sweep.delays, sizeof(uint64_t));
	if (options.delays_ns.count)
		return delays_from_ns(traffic, error);
	const uint64_t *values =
		options.delays.count ? options.delays.values : options.mix_delays.values + k * sweep.delays;
	memcpy(traffic->delays, values, sweep.delays * sizeof(uint64_t));
	return true;
}

static bool set_up(struct error *error)
{
	struct generator *generator = &sweep.generator;
	size_t probes = options.probes.count, shares = options.share_percents.count;
	sweep.zero = allocate(probes, sizeof(*sweep.zero));
	sweep.points = allocate(points(), sizeof(*sweep.points));
	for (size_t k = 0; k < options.mixes.count; k++) {
		struct traffic *traffic = &sweep.traffic[k];
		if (!set_delays(k, error))
			return false;
		traffic->found = allocate(shares, sizeof(*traffic->found));
		traffic->search.looks = allocate(shares_looks_max(shares), sizeof(*traffic->search.looks));
		generator_need(generator, &generator->groups[0], load_mixes[traffic->shape.mix].arrays,
		               array_bytes(traffic->shape.mix));
	}
	for (size_t i = 0; i < probes; i++)
		for (int m = 0; m < MOMENTS; m++)
			sweep.zero[i].ticks[m] = allocate(common.windows * common.placements, sizeof(double));
	for (size_t i = 0; i < points(); i++) {
		const struct traffic *traffic = &sweep.traffic[i / sweep.delays];
		sweep.points[i] = (struct point){.traffic = traffic,
		                                 .delay = traffic->delays[i % sweep.delays],
		                                 .placements = allocate(common.placements, sizeof(struct placement))};
	}
	generator->page_kind = page_kind_of(common.pages);
	generator->width = load_width_find(common.width, error);
	generator->watched = &sweep.cpus;
	if (!generator->width)
		return false;
	pmu_open(generator->pmu);
	for (size_t i = 0; i < probes; i++) {
		struct probe *probe = &sweep.probes[i];
		probe->page_kind = generator->page_kind;
		probe->pmu = generator->pmu;
		probe->pmu_thread = generator->count + i;
	}
	pmu_threads(generator->pmu, generator->count + probes);
	return true;
}

static void set_chains(uint64_t seed)
{
	for (size_t i = 0; i < options.probes.count; i++) {
		struct chain *chain = &sweep.probes[i].chain;
		*chain = (struct chain){.size_bytes = options.probe_size_bytes,
		                        .stride_bytes = options.stride_bytes,
		                        .line_bytes = memory_line_bytes(),
		                        .window_bytes = options.window_bytes,
		                        .order = (enum chain_order)option_choice(CHAIN_ORDER_CHOICES, options.order),
		                        .seed = random_derive(seed, i, 0)};
	}
}

/* The points' and the probes' windows, of all placements. */
static void demand_results(struct demand *demand)
{
	uint64_t runs = common.placements * points();
	uint64_t windows = common.windows * (1 + options.probes.count);
	demand_other(demand, sizeof(struct point), points());
	demand_other(demand, common.windows * common.placements * sizeof(double), MOMENTS * options.probes.count);
	demand_other(demand, sizeof(struct placement) + windows * sizeof(double), runs);
	snapshots_demand(&sweep.cpus, 2 * runs, demand);
	demand_document(demand, runs * (windows + EVIDENCE_NUMBERS) + common.placements * MOMENTS * windows);
}

/* Load and probes together: one kind of page for both. */
static bool admit(struct error *error)
{
	struct generator *generator = &sweep.generator;
	struct demand demand = {.pages = generator->chosen, .again = generator->chosen.bytes > 0};
	double run_s = options.choose ? LOOK_SETTLE_S + LOOK_WINDOW_S * LOOK_WINDOWS
	                              : common.settle_s + common.window_s * (double)common.windows;
	if (!demand.again)
		demand_results(&demand);
	generator_demand(generator, run_s, &demand);
	for (size_t i = 0; i < options.probes.count; i++)
		probe_demand(&sweep.probes[i], run_s + PROBES_LONGER_S, &demand);
	if (!generator_admit(generator, &demand, error))
		return false;
	for (size_t i = 0; i < options.probes.count; i++)
		sweep.probes[i].chosen = generator->chosen;
	return true;
}

static bool open_probes(struct error *error)
{
	for (size_t i = 0; i < options.probes.count; i++) {
		struct probe *probe = &sweep.probes[i];
		if (!probe_open(probe, error)) {
			while (i-- > 0)
				probe_close(&sweep.probes[i], error);
			return false;
		}
	}
	return true;
}

static bool no_progress(const struct probe *probe, struct error *error)
{
	return error_set(error, ERROR_CHECK_FAILED,
	                 "the probe on CPU %u made no progress in a window; use a longer --window-s", probe->cpu);
}

static void begin_probes(double seconds)
{
	for (size_t i = 0; i < options.probes.count; i++)
		probe_begin(&sweep.probes[i], seconds + PROBES_LONGER_S);
}

static bool end_probes(struct error *error)
{
	bool good = true;
	for (size_t i = 0; i < options.probes.count; i++)
		good = probe_end(&sweep.probes[i], error) && good;
	return good;
}

static bool measure_zero(enum moment moment, struct error *error)
{
	double seconds = ZERO_SETTLE_S + common.window_s * (double)common.windows + GENERATOR_TAIL_S, ignored;
	begin_probes(seconds);
	bool stopped = stop_sleep_ns((uint64_t)(seconds * 1e9));
	if (!end_probes(error) || (stopped && stop_error(error)))
		return false;
	for (size_t i = 0; i < options.probes.count; i++) {
		struct zero_load *zero = &sweep.zero[i];
		uint64_t begin = sweep.probes[i].started + (uint64_t)(ZERO_SETTLE_S * clock_now_used.hz);
		if (!probe_cut_windows(&sweep.probes[i], begin, common.window_s * clock_now_used.hz, common.windows,
		                       zero->ticks[moment] + zero->count[moment], &ignored))
			return no_progress(&sweep.probes[i], error);
		zero->count[moment] += common.windows;
	}
	return true;
}

static struct pages pages_of_all(void)
{
	struct pages all = generator_pages(&sweep.generator);
	for (size_t i = 0; i < options.probes.count; i++) {
		const struct pages *pages = &sweep.probes[i].pages;
		all.total += pages->total;
		all.checked += pages->checked;
		all.on_node += pages->on_node;
		all.elsewhere += pages->elsewhere;
		all.huge_fraction = fmin(all.huge_fraction, pages->huge_fraction);
		all.hugetlb = all.hugetlb && pages->hugetlb;
		all.some_hugetlb = all.some_hugetlb || pages->some_hugetlb;
	}
	return all;
}

/* The work that counters divide by: steps of the load, and hops of the probes. */
static struct pmu_work progress(void *context, size_t thread, uint64_t ticks)
{
	size_t loads = sweep.generator.count;
	struct pmu_work work = {.steps = -1, .hops = -1};
	if (thread == PMU_ALL || thread < loads)
		work = generator_progress(context, thread, ticks);
	if (thread == PMU_ALL || thread >= loads)
		work.hops = 0;
	for (size_t i = 0; i < options.probes.count; i++)
		if (thread == PMU_ALL || thread == loads + i)
			work.hops += progress_at(&sweep.probes[i].log, ticks);
	return work;
}

static bool keep_probe(const struct probe *probe, struct probe_windows *windows, double window_ticks,
                       struct evidence *evidence, struct error *error)
{
	const struct progress *log = &probe->log;
	uint64_t begin = sweep.generator.begins, end = begin + (uint64_t)(window_ticks * (double)common.windows);
	windows->ticks = allocate(common.windows, sizeof(double));
	if (probe->started > begin || log->entries[log->count - 1].ticks < end ||
	    (double)progress_step(log) > window_ticks ||
	    !probe_cut_windows(probe, begin, window_ticks, common.windows, windows->ticks, &windows->hops_per_tick))
		return no_progress(probe, error);
	stretch_add(&evidence->threads, &probe->stretch);
	return true;
}

static bool keep_run(struct point *point, uint64_t seed, struct error *error)
{
	struct generator *generator = &sweep.generator;
	struct placement *placement = &point->placements[point->count];
	struct evidence *evidence = &placement->evidence;
	double window_ticks = common.window_s * clock_now_used.hz;
	placement->window_rates = allocate(common.windows, sizeof(double));
	placement->probes = allocate(options.probes.count, sizeof(*placement->probes));
	/* Progress is known where it was logged; windows shorter than that would only repeat one value. */
	if ((double)generator_chunk_ticks(generator) > window_ticks)
		return error_set(error, ERROR_CHECK_FAILED,
		                 "the load logged its progress every %g s only, windows are %g s; use a longer --window-s or a "
		                 "shorter --delay",
		                 (double)generator_chunk_ticks(generator) / clock_now_used.hz, common.window_s);
	generator_add_rates(generator, placement->window_rates, NULL, common.windows, window_ticks);
	generator_take_evidence(generator, evidence);
	for (size_t i = 0; i < options.probes.count; i++)
		if (!keep_probe(&sweep.probes[i], &placement->probes[i], window_ticks, evidence, error))
			return false;
	evidence->seed = seed;
	evidence->pages = pages_of_all();
	evidence->counters = pmu_take(generator->pmu, PMU_ALL, progress, generator);
	point->count++;
	return true;
}

/* Whether another point can still be measured with these threads. */
static bool all_alive(void)
{
	for (size_t i = 0; i < options.probes.count; i++)
		if (sweep.probes[i].worker.error.code != ERROR_NONE)
			return false;
	return generator_alive(&sweep.generator);
}

/* One run of load and probes. False where it failed: with `error` set, no other can be made. */
static bool run_load(const struct traffic *traffic, uint64_t delay, double settle_s, double windows_s,
                     struct error *found, struct error *error)
{
	struct generator *generator = &sweep.generator;
	struct load_shape shape = traffic->shape;
	shape.delay = delay;
	if (!generator_select(generator, &generator->groups[0], &shape, array_bytes(shape.mix), error))
		return false;
	begin_probes(settle_s + windows_s);
	bool good = generator_run_windows(generator, settle_s, windows_s, found);
	good = end_probes(found) && good;
	/* The work is proved whatever became of the run: the next one needs the buffers as they were. */
	struct error wrong = {0};
	bool proved = generator_alive(generator) && generator_prove(generator, &wrong);
	if (wrong.code != ERROR_NONE)
		*error = wrong;
	else if (!all_alive() || error_is_stop(found))
		*error = *found;
	return good && proved;
}

/* A point that cannot be measured says so itself, for the others' sake; false when none can be any more. */
static bool measure_point(size_t number, uint64_t seed, struct error *error)
{
	struct point *point = &sweep.points[number];
	struct error found = {0};
	if (run_load(point->traffic, point->delay, common.settle_s, common.window_s * (double)common.windows, &found,
	             error) &&
	    keep_run(point, seed, &found))
		return true;
	if (error->code != ERROR_NONE)
		return false;
	point->error = found;
	return true;
}

static bool look(void *context, uint64_t delay, double *rate, struct error *error)
{
	const struct traffic *traffic = context;
	double rates[LOOK_WINDOWS] = {0};
	if (stop_error(error) || !run_load(traffic, delay, LOOK_SETTLE_S, LOOK_WINDOWS * LOOK_WINDOW_S, error, error))
		return false;
	generator_add_rates(&sweep.generator, rates, NULL, LOOK_WINDOWS, LOOK_WINDOW_S * clock_now_used.hz);
	*rate = statistics_median(rates, LOOK_WINDOWS);
	return true;
}

/* Finds the delays of the shares of a mix, with the probes running as they will be. */
static bool find_shares(struct traffic *traffic, struct error *error)
{
	traffic->search.measure = look;
	traffic->search.context = traffic;
	for (unsigned pass = 1; pass <= options.share_passes; pass++)
		for (size_t i = 0; i < options.share_percents.count; i++)
			if (!shares_find(&traffic->search, (double)options.share_percents.values[i] / 100, pass, &traffic->found[i],
			                 error))
				return false;
	return true;
}

static bool find_all_shares(struct error *error)
{
	for (size_t k = 0; k < options.mixes.count; k++)
		if (!find_shares(&sweep.traffic[k], error))
			return false;
	return true;
}

/* All mixes and delays in a random order, so that drift and warmth do not follow them. */
static bool measure_points(uint64_t number, uint64_t seed, struct error *error)
{
	const size_t count = points();
	uint32_t *order = random_order(count, seed);
	bool good = measure_zero(START, error) && (number > 0 || time_points(error));
	for (size_t i = 0; good && i < count; i++) {
		if (i == count / 2)
			good = measure_zero(MIDDLE, error);
		good = good && !stop_error(error);
		good = good && (sweep.points[order[i]].error.code != ERROR_NONE || measure_point(order[i], seed, error));
	}
	good = good && measure_zero(END, error);
	free(order);
	return good;
}

/* One placement: buffers and chains allocated once, for all delays or for the search. */
static bool measure_placement(uint64_t number, struct error *error)
{
	uint64_t seed = random_derive(common.seed, 0, number);
	set_chains(seed);
	if (!admit(error) || !generator_open(&sweep.generator, error))
		return false;
	if (!open_probes(error)) {
		generator_close(&sweep.generator);
		return false;
	}
	struct error wrong = {0};
	bool good = options.choose ? find_all_shares(error) : measure_points(number, seed, error);
	for (size_t i = 0; i < options.probes.count; i++)
		probe_close(&sweep.probes[i], &wrong);
	/* Work that proves wrong says more than that it was told to stop. */
	generator_close(&sweep.generator);
	if (wrong.code != ERROR_NONE || !generator_has(&sweep.generator, &sweep.generator.groups[0], &wrong)) {
		*error = wrong;
		good = false;
	}
	return good;
}

/* Told to stop: each point keeps what it has, and where it has nothing it says why. False when none has anything. */
static bool keep_complete(void)
{
	bool any = false;
	for (size_t i = 0; i < points(); i++) {
		struct point *point = &sweep.points[i];
		if (point->error.code != ERROR_NONE)
			continue;
		if (point->count == 0)
			stop_error(&point->error);
		any = any || point->count > 0;
	}
	return any;
}

/* MB/s of one line per tick. */
static double mb_s(const struct traffic *traffic)
{
	return load_model_bytes(traffic->shape.mix) * clock_now_used.hz / 1e6;
}

/* The object is left open. */
static void probe_begin_write(struct json *json, const struct probe *probe)
{
	json_object_begin(json, NULL);
	json_u64(json, "cpu", probe->cpu);
	json_u64(json, "node", probe->node);
}

static void placement_write(struct json *json, const struct placement *placement, double unit_mb_s)
{
	const struct evidence *evidence = &placement->evidence;
	evidence_begin_write(json, NULL, evidence);
	json_f64s(json, "windows_mb_s", placement->window_rates, common.windows, unit_mb_s);
	json_array_begin(json, "probes");
	for (size_t i = 0; i < options.probes.count; i++) {
		const struct probe_windows *windows = &placement->probes[i];
		probe_begin_write(json, &sweep.probes[i]);
		json_f64s(json, "windows_ns", windows->ticks, common.windows, clock_ns(1));
		json_f64(json, "probe_mb_s", windows->hops_per_tick * (double)memory_line_bytes() * clock_now_used.hz / 1e6);
		json_object_end(json);
	}
	json_array_end(json);
	evidence_write(json, evidence, &sweep.cpus);
	evidence_counted_write(json, evidence, sweep.generator.sampled);
	json_object_end(json);
}

static void point_write(struct json *json, size_t number)
{
	const struct point *point = &sweep.points[number];
	bool good = point->error.code == ERROR_NONE;
	json_object_begin(json, NULL);
	json_text(json, "mix", load_mixes[point->traffic->shape.mix].name);
	json_u64(json, "inject_delay", point->delay);
	json_f64(json, "delay_ns", clock_ns(point->delay_ticks));
	load_accounting_write(json, point->traffic->shape.mix);
	/* The load's work was proved after each run; had it not been, there would be no result. */
	json_bool(json, "checked", good && point->count > 0);
	json_text(json, "stopped", good ? stopped_by(point->count, common.placements) : NULL);
	error_write(json, &point->error);
	if (json_array_known(json, "placements", good)) {
		for (size_t k = 0; k < point->count; k++)
			placement_write(json, &point->placements[k], mb_s(point->traffic));
		json_array_end(json);
	}
	json_object_end(json);
}

static void zero_load_write(struct json *json)
{
	static const char *const keys[MOMENTS] = {
		[START] = "windows_ns_start", [MIDDLE] = "windows_ns_middle", [END] = "windows_ns_end"};
	json_array_begin(json, "zero_load");
	for (size_t i = 0; i < options.probes.count; i++) {
		const struct zero_load *zero = &sweep.zero[i];
		probe_begin_write(json, &sweep.probes[i]);
		for (int m = 0; m < MOMENTS; m++)
			json_f64s(json, keys[m], zero->ticks[m], zero->count[m], clock_ns(1));
		json_object_end(json);
	}
	json_array_end(json);
}

static void shares_write(struct json *json, const struct traffic *traffic)
{
	for (size_t i = 0; i < options.share_percents.count; i++) {
		json_object_begin(json, NULL);
		json_text(json, "mix", load_mixes[traffic->shape.mix].name);
		json_u64(json, "share_percent", options.share_percents.values[i]);
		json_u64(json, "inject_delay", traffic->found[i]);
		json_f64(json, "share_found", shares_of(&traffic->search, traffic->found[i]));
		json_object_end(json);
	}
}

static void looks_write(struct json *json, const struct traffic *traffic)
{
	for (size_t i = 0; i < traffic->search.count; i++) {
		const struct shares_look *look = &traffic->search.looks[i];
		json_object_begin(json, NULL);
		json_text(json, "mix", load_mixes[traffic->shape.mix].name);
		json_u64(json, "inject_delay", look->delay);
		json_u64(json, "times", look->times);
		json_f64(json, "best_mb_s", look->rate * mb_s(traffic));
		json_object_end(json);
	}
}

static void choice_write(struct json *json)
{
	json_object_begin(json, NULL);
	json_array_begin(json, "chosen");
	for (size_t k = 0; k < options.mixes.count; k++) {
		const struct traffic *traffic = &sweep.traffic[k];
		for (size_t i = 0; i < sweep.delays; i++)
			json_u64(json, NULL, traffic->delays[i]);
		for (size_t i = 0; i < options.share_percents.count; i++)
			json_u64(json, NULL, traffic->found[i]);
	}
	json_array_end(json);
	json_array_begin(json, "shares");
	for (size_t k = 0; k < options.mixes.count; k++)
		shares_write(json, &sweep.traffic[k]);
	json_array_end(json);
	json_array_begin(json, "looks");
	for (size_t k = 0; k < options.mixes.count; k++)
		looks_write(json, &sweep.traffic[k]);
	json_array_end(json);
	json_object_end(json);
}

static bool points_write(struct json *json, struct error *error)
{
	size_t failed = 0, count = points();
	json_object_begin(json, NULL);
	json_array_begin(json, "points");
	for (size_t i = 0; i < count; i++) {
		point_write(json, i);
		failed += sweep.points[i].error.code != ERROR_NONE;
	}
	json_array_end(json);
	zero_load_write(json);
	json_object_end(json);
	return error_of_parts(error, "point", failed, count, &sweep.points[0].error);
}

/* Nothing is chosen by a search that failed or was cut short. */
static bool choose(struct json *result, struct error *error)
{
	if (options.share_percents.count && !measure_placement(0, error))
		return false;
	clock_finish();
	choice_write(result);
	return true;
}

static bool measure(struct json *result, struct error *error)
{
	if (!set_up(error))
		return false;
	supervise_avoid(&sweep.cpus);
	if (options.choose)
		return choose(result, error);
	pmu_background(sweep.generator.pmu, common.background_s);
	bool good = true;
	for (uint64_t number = 0; good && number < common.placements; number++)
		good = measure_placement(number, error);
	if (!good && error_is_stop(error) && keep_complete()) {
		*error = (struct error){0};
		good = true;
	}
	clock_finish();
	return good && points_write(result, error);
}

SUBCOMMAND(loaded) = {
	"loaded", "latency seen by probes while other CPUs load memory", SUBCOMMAND_OPTIONS(table), prepare, measure,
};
