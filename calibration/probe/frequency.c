// SPDX-License-Identifier: Apache-2.0
/* Core clock while a CPU does one kind of work, alone or while some or all others do the same: licence levels, turbo by
 * active cores, and a slow core. A chain of additions is the clock; vector instructions beside it are the load. */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "affinity.h"
#include "allocate.h"
#include "clock.h"
#include "corefreq.h"
#include "interference.h"
#include "option_rows.h"
#include "statistics.h"
#include "stopping.h"
#include "subcommand.h"
#include "work.h"
#include "worker.h"

/* 400 blocks are 25,600 clocks, 4 to 15 us: 200 times the cost of a clock read, which is taken off, and short enough
 * for an interruption to spoil few of them. */
#define SLICE_BLOCKS 400u
#define SLICE_ADDS (SLICE_BLOCKS * WORK_ADDS_PER_BLOCK)
#define SLICE_CLOCKS (SLICE_ADDS * ARCH_ADDITION_CLOCKS)
/* No core is faster than this, so no window has more slices than fit at this rate. */
#define FASTEST_HZ 8e9
/* One slice in eight is the chain alone. It lasts a hundredth of the time for which processors keep a licence after
 * its last instruction (0.6 ms), so it runs at the clock of the work around it, and the two must agree. */
#define BARE_EVERY 8u
/* A slice up to 5 % longer than the shortest of its window was not interrupted: an interruption takes half a
 * microsecond and more, 5 % of a slice, and a clock that moves less than this within a window is averaged. */
#define UNDISTURBED 1.05
/* So many slices must agree: two interrupted ones take the same time now and then, three do not. */
#define AGREEING 3u
/* In the document, beside the windows. */
#define NUMBERS_OF_POINT 100u

static struct {
	const char *cpus;
	const char *alone_cpus;
	struct word_list together;
	struct word_list work;
	struct word_list active;
} options;

static const struct option table[] = {
	OPTION_ROW_TEXT("--cpus", &options.cpus, "LIST", NULL,
	                "CPUs to measure; one of each core, because siblings share a core"),
	OPTION_ROW_OPTIONAL_TEXT("--alone-cpus", &options.alone_cpus, "LIST",
	                         "those of them that are measured alone too, one after another; without it all of them"),
	OPTION_ROW_OPTIONAL_REPEATED("--together", &options.together, "LIST",
	                             "those of them that are measured at the same time too, the others resting; repeated "
	                             "with more and more CPUs: turbo by active cores"),
	/* The processor's own clock: the one work that every processor can do. */
	OPTION_ROW_WORDS("--work", &options.work, WORK_CHOICES, "scalar", "kinds of work, each in turn"),
	OPTION_ROW_WORDS("--active", &options.active, "alone|all", "alone,all",
	                 "alone: each CPU while the others rest; all: all CPUs at the same time"),
	/* Nine give an interval that covers the median with 96 %, the two extremes left out. */
	OPTION_ROW_U64("--windows", &common.windows, "N", "9", 1, 10000, "timed windows"),
	/* 5 ms hold several steps of a processor that sets its clock every millisecond, and 300 slices and more. */
	OPTION_ROW_F64("--window-s", &common.window_s, "S", "0.005", 0, 1, "length of a window"),
	/* 50 ms of the same work: a governor that samples every 10 ms has raised the clock, and a licence is granted. */
	OPTION_ROW_F64("--settle-s", &common.settle_s, "S", "0.05", 0, 60, "work before the first window"),
};

struct slices {
	uint32_t *ticks;
	size_t count, capacity;
};

/* The windows that show a clock. */
struct windows {
	size_t count;
	double *per_tick;      /* core clocks per tick, of slices that nothing interrupted */
	double *bare_per_tick; /* the same of the chain alone; 0: none ran */
	double *share;         /* of the slices' time that this CPU got */
	uint64_t *number;      /* since the point began, lost ones counted */
	bool *dirty;           /* a context switch or a page fault hit it */
};
#define WINDOW_BYTES (3 * sizeof(double) + sizeof(uint64_t) + sizeof(bool))

struct group;

/* One CPU under one kind of work, alone or with others. */
struct point {
	struct group *group;
	struct worker worker;
	unsigned cpu;
	struct error error;
	bool ready, verified;
	struct slices loaded, bare;
	uint64_t slices; /* since the work began: which of them are bare */
	struct work_lanes *lanes;
	struct windows windows;
	uint64_t passed; /* windows, those counted that show no clock */
	double needed_ticks, taken_ticks;
	struct thread_counts counts;
};

/* The points that are measured at the same time. */
struct group {
	const char *name;
	const struct work *work;
	const char *who; /* alone, all, or how many */
	struct point *points;
	size_t count, active;
	struct cpu_list cpus;
	const char *stopped;
	struct snapshot before, after;
	_Atomic size_t arrived;
	_Atomic uint64_t start;
};

static struct {
	struct cpu_list cpus, alone;
	struct cpu_list *together;
	const char **sizes; /* of these, in digits */
	struct group *groups;
	size_t count;
} plan;

static bool in_cpus(const char *option, const struct cpu_list *list, struct error *error)
{
	for (size_t i = 0; i < list->count; i++)
		if (!cpu_list_has(&plan.cpus, list->cpus[i]))
			return error_set(error, ERROR_USAGE, "%s: CPU %u is not in --cpus %s", option, list->cpus[i], options.cpus);
	return true;
}

/* The number of CPUs tells these groups apart, so it must grow. */
static bool prepare_together(struct error *error)
{
	size_t count = options.together.count, before = 0;
	plan.together = allocate(count, sizeof(*plan.together));
	plan.sizes = allocate(count, sizeof(*plan.sizes));
	for (size_t i = 0; i < count; i++) {
		struct cpu_list *list = &plan.together[i];
		if (!cpu_list_parse(list, options.together.words[i], error) || !in_cpus("--together", list, error))
			return false;
		if (list->count <= before)
			return error_set(error, ERROR_USAGE, "--together: each must have more CPUs than that before, not %s",
			                 options.together.words[i]);
		before = list->count;
		char *digits = allocate(24, 1);
		snprintf(digits, 24, "%zu", before);
		plan.sizes[i] = digits;
	}
	return true;
}

static bool prepare(struct error *error)
{
	if (!cpu_list_parse(&plan.cpus, options.cpus, error) ||
	    !cpu_list_parse(&plan.alone, options.alone_cpus ? options.alone_cpus : options.cpus, error) ||
	    !in_cpus("--alone-cpus", &plan.alone, error) || !prepare_together(error))
		return false;
	return common.window_s >= 0.001 ||
	       error_set(error, ERROR_USAGE, "--window-s: must be at least 0.001, not %g", common.window_s);
}

/* One slice of work, entered into the books where `slices` is not NULL; returns when it ended. */
static uint64_t run_slice(struct point *point, const struct work *work, struct slices *slices)
{
	uint64_t begin = clock_start();
	bool right = work_run(work, SLICE_BLOCKS, point->lanes);
	uint64_t end = clock_stop(), ticks = end - begin;
	if (!right)
		error_set(&point->worker.error, ERROR_CHECK_FAILED,
		          "the sum of %u additions is wrong: the chain was not executed as written", SLICE_ADDS);
	if (slices && slices->count < slices->capacity)
		slices->ticks[slices->count++] = ticks < UINT32_MAX ? (uint32_t)ticks : UINT32_MAX;
	return end;
}

static void check_lanes(struct point *point)
{
	const struct work *work = point->group->work;
	if (!work_lanes_right(work, point->lanes))
		error_set(&point->worker.error, ERROR_CHECK_FAILED, "a lane of %s did not count %llu blocks", work->name,
		          (unsigned long long)point->lanes->blocks);
}

static uint64_t run_next(struct point *point, bool keep)
{
	const struct work *work = point->group->work;
	if (work->vector_bytes && point->lanes->blocks > WORK_BLOCKS_PER_CHECK - SLICE_BLOCKS) {
		check_lanes(point);
		work_begin(point->lanes);
	}
	if (work->vector_bytes && ++point->slices % BARE_EVERY == 0) {
		/* The chain alone leaves the lanes as they are. */
		uint64_t blocks = point->lanes->blocks;
		uint64_t end = run_slice(point, &works[0], keep ? &point->bare : NULL);
		point->lanes->blocks = blocks;
		return end;
	}
	return run_slice(point, work, keep ? &point->loaded : NULL);
}

/* Core clocks per tick of those slices that nothing interrupted; 0: too few agree to tell. */
static double undisturbed_rate(const struct slices *slices)
{
	double cost = clock_now_used.read_cost_ticks, shortest = INFINITY, sum = 0;
	size_t counted = 0;
	/* An interruption can only make a slice longer. The shortest alone would be too fast by a step of a coarse clock. */
	for (size_t i = 0; i < slices->count; i++)
		shortest = slices->ticks[i] < shortest ? slices->ticks[i] : shortest;
	for (size_t i = 0; i < slices->count; i++)
		if (slices->ticks[i] <= UNDISTURBED * shortest) {
			sum += slices->ticks[i] - cost;
			counted++;
		}
	return counted >= AGREEING ? (double)counted * SLICE_CLOCKS / sum : 0;
}

static double share_of(double needed, double taken)
{
	/* Above 1 only by rounding: the undisturbed slices are the shortest ones. */
	return needed < taken ? needed / taken : 1;
}

/* Ticks that the slices would have taken undisturbed, and those that they took. */
static void add_ticks(const struct slices *slices, double rate, double *needed, double *taken)
{
	for (size_t i = 0; i < slices->count; i++) {
		*needed += SLICE_CLOCKS / rate;
		*taken += slices->ticks[i] - clock_now_used.read_cost_ticks;
	}
}

static void close_window(struct point *point, bool dirty)
{
	double rate = undisturbed_rate(&point->loaded), bare = undisturbed_rate(&point->bare), needed = 0, taken = 0;
	uint64_t number = point->passed++;
	if (rate == 0)
		return;
	add_ticks(&point->loaded, rate, &needed, &taken);
	if (bare > 0)
		add_ticks(&point->bare, bare, &needed, &taken);
	point->needed_ticks += needed;
	point->taken_ticks += taken;
	struct windows *windows = &point->windows;
	size_t place = windows->count++;
	windows->per_tick[place] = rate;
	windows->bare_per_tick[place] = bare;
	windows->share[place] = share_of(needed, taken);
	windows->number[place] = number;
	windows->dirty[place] = dirty;
}

/* The time from which all threads of the group count, taken by the last that arrives. */
static uint64_t start_together(struct group *group)
{
	uint64_t start;
	if (atomic_fetch_add(&group->arrived, 1) + 1 == group->active)
		atomic_store_explicit(&group->start, clock_start(), memory_order_release);
	while ((start = atomic_load_explicit(&group->start, memory_order_acquire)) == 0)
		arch_relax();
	return start;
}

/* Settles and then works through the windows. They are cut by time, so they are the same for all threads. */
static void run_windows(struct worker *worker)
{
	struct point *point = worker->context;
	const uint64_t settle = (uint64_t)(common.settle_s * clock_now_used.hz);
	const uint64_t length = (uint64_t)(common.window_s * clock_now_used.hz);
	uint64_t from = start_together(point->group) + settle, now = clock_start();
	while (now < from && !stop_requested())
		now = run_next(point, false);
	for (uint64_t window = 1; window <= common.windows && !stop_requested(); window++) {
		point->loaded.count = point->bare.count = 0;
		struct thread_counts before = thread_counts_now();
		now = clock_start();
		while (now < from + window * length)
			now = run_next(point, true);
		struct thread_counts after = thread_counts_now(), counts = thread_counts_since(&after, &before);
		thread_counts_add(&point->counts, &counts);
		close_window(point, counts.involuntary || counts.minor_faults || counts.major_faults);
	}
}

static void finish(struct worker *worker)
{
	struct point *point = worker->context;
	check_lanes(point);
	point->verified = affinity_stayed(point->cpu, &worker->error);
}

static size_t slices_in_window(void)
{
	return (size_t)(common.window_s * FASTEST_HZ / SLICE_CLOCKS) + 2;
}

/* Touched now, so that no page fault comes into a window. */
static bool start_point(struct point *point)
{
	size_t windows = common.windows;
	point->windows = (struct windows){.per_tick = allocate_touched(windows, sizeof(double)),
	                                  .bare_per_tick = allocate_touched(windows, sizeof(double)),
	                                  .share = allocate_touched(windows, sizeof(double)),
	                                  .number = allocate_touched(windows, sizeof(uint64_t)),
	                                  .dirty = allocate_touched(windows, sizeof(bool))};
	point->loaded.capacity = point->bare.capacity = slices_in_window();
	point->loaded.ticks = allocate_touched(point->loaded.capacity, sizeof(uint32_t));
	point->bare.ticks = allocate_touched(point->bare.capacity, sizeof(uint32_t));
	point->lanes = allocate_aligned(64, sizeof(*point->lanes));
	work_begin(point->lanes);
	return worker_start(&point->worker, point->cpu, NULL, point, &point->error);
}

/* Told to stop, one thread sees it a window before another: only windows that all have passed are common. */
static void keep_common_windows(struct group *group)
{
	uint64_t passed = common.windows;
	for (size_t i = 0; i < group->count; i++)
		if (group->points[i].ready && group->points[i].passed < passed)
			passed = group->points[i].passed;
	group->stopped = passed < common.windows ? "interrupted" : "windows";
	for (size_t i = 0; i < group->count; i++) {
		struct point *point = &group->points[i];
		struct windows *windows = &point->windows;
		while (windows->count && windows->number[windows->count - 1] >= passed)
			windows->count--;
		point->passed = passed;
	}
}

static void begin_point(struct group *group, struct point *point)
{
	point->group = group;
	if (stop_error(&point->error))
		return;
	if (!group->work)
		error_set(&point->error, ERROR_UNSUPPORTED, "this processor has no %s", group->name);
	else if (affinity_usable(point->cpu, &point->error))
		point->ready = start_point(point);
}

static void end_point(struct point *point)
{
	if (point->ready) {
		worker_do(&point->worker, finish);
		error_take(&point->error, &point->worker.error);
		if (point->windows.count == 0 && !stop_error(&point->error))
			error_set(&point->error, ERROR_CHECK_FAILED,
			          "no window of %g s has three slices of %u clocks that agree; use longer ones", common.window_s,
			          SLICE_CLOCKS);
	}
	worker_join(&point->worker);
	free(point->loaded.ticks);
	free(point->bare.ticks);
	free(point->lanes);
}

static void measure_windows(struct group *group)
{
	for (size_t i = 0; i < group->count; i++)
		if (group->points[i].ready)
			worker_begin(&group->points[i].worker, run_windows);
	for (size_t i = 0; i < group->count; i++)
		if (group->points[i].ready)
			worker_wait(&group->points[i].worker);
}

static void run_group(struct group *group)
{
	supervise_avoid(&group->cpus);
	for (size_t i = 0; i < group->count; i++)
		begin_point(group, &group->points[i]);
	for (size_t i = 0; i < group->count; i++) {
		struct point *point = &group->points[i];
		point->ready = point->ready && worker_wait(&point->worker);
		error_take(&point->error, &point->worker.error);
		group->active += point->ready;
	}
	if (group->active > 0) {
		snapshot_take(&group->before, &group->cpus);
		measure_windows(group);
		snapshot_take_again(&group->after, &group->before);
		keep_common_windows(group);
	}
	for (size_t i = 0; i < group->count; i++)
		end_point(&group->points[i]);
}

/* The chain with vector work beside it against the chain alone: 1 where the chain is the critical path. */
static bool chain_ratio(const struct windows *windows, double *ratio)
{
	double *ratios = allocate(windows->count, sizeof(*ratios));
	size_t count = 0;
	for (size_t i = 0; i < windows->count; i++)
		if (windows->bare_per_tick[i] > 0)
			ratios[count++] = windows->per_tick[i] / windows->bare_per_tick[i];
	*ratio = count ? statistics_median(ratios, count) : NAN;
	free(ratios);
	return count > 0;
}

static void windows_write(struct json *json, const struct group *group, const struct point *point)
{
	double ratio;
	const struct windows *windows = &point->windows;
	struct cpu_list self = {(unsigned[]){point->cpu}, 1};
	json_f64s(json, "windows_hz", windows->per_tick, windows->count, corefreq_hz(1));
	json_f64(json, "share", share_of(point->needed_ticks, point->taken_ticks));
	json_f64s(json, "windows_share", windows->share, windows->count, 1);
	json_places(json, "dirty_windows", windows->dirty, windows->count);
	json_u64(json, "lost_windows", point->passed - windows->count);
	bool known = chain_ratio(windows, &ratio);
	json_f64_known(json, "chain_ratio", known, ratio);
	interference_write(json, "interference", &point->counts, &group->before, &group->after, &self);
}

static void point_write(struct json *json, const struct group *group, const struct point *point)
{
	bool good = point->error.code == ERROR_NONE;
	json_object_begin(json, NULL);
	json_u64(json, "cpu", point->cpu);
	json_text(json, "active", group->who);
	json_u64(json, "active_cpus", group->active);
	json_text(json, "work", group->name);
	json_bool(json, "cpu_verified", point->verified);
	json_bool(json, "checked", good);
	json_text(json, "stopped", good ? group->stopped : NULL);
	error_write(json, &point->error);
	if (good)
		windows_write(json, group, point);
	else
		JSON_NULLS(json, "windows_hz", "share", "windows_share", "dirty_windows", "lost_windows", "chain_ratio",
		           "interference");
	json_object_end(json);
}

static void add_group(const char *name, const char *who, const unsigned *cpus, size_t count)
{
	struct group *group = &plan.groups[plan.count++];
	*group = (struct group){.name = name,
	                        .work = work_find(name),
	                        .who = who,
	                        .points = allocate(count, sizeof(*group->points)),
	                        .count = count};
	for (size_t i = 0; i < count; i++) {
		group->points[i].cpu = cpus[i];
		cpu_list_add(&group->cpus, cpus[i]);
	}
}

static bool is_all(size_t active)
{
	return strcmp(options.active.words[active], "all") == 0;
}

/* Groups in the order work x active: each CPU alone is a group, all CPUs together are one, and so are some. */
static void make_plan(void)
{
	size_t per_work = options.together.count;
	for (size_t i = 0; i < options.active.count; i++)
		per_work += is_all(i) ? 1 : plan.alone.count;
	plan.groups = allocate(options.work.count * per_work, sizeof(*plan.groups));
	for (size_t work = 0; work < options.work.count; work++) {
		const char *name = options.work.words[work];
		for (size_t i = 0; i < options.active.count; i++) {
			const char *who = options.active.words[i];
			if (is_all(i))
				add_group(name, who, plan.cpus.cpus, plan.cpus.count);
			for (size_t k = 0; !is_all(i) && k < plan.alone.count; k++)
				add_group(name, who, &plan.alone.cpus[k], 1);
		}
		for (size_t i = 0; i < options.together.count; i++)
			add_group(name, plan.sizes[i], plan.together[i].cpus, plan.together[i].count);
	}
}

/* What groups of the same CPUs need: their windows are kept. */
static void demand_groups(const struct cpu_list *cpus, uint64_t groups, struct demand *demand)
{
	uint64_t points = groups * cpus->count;
	demand_other(demand, sizeof(struct point) + common.windows * WINDOW_BYTES, points);
	snapshots_demand(cpus, 2 * groups, demand);
	demand_document(demand, points * (3 * common.windows + NUMBERS_OF_POINT));
}

/* Groups are measured one after another. */
static bool admit(struct error *error)
{
	struct demand demand = {0};
	const struct cpu_list one = {.count = 1};
	size_t largest = 0;
	for (size_t i = 0; i < options.active.count; i++) {
		const struct cpu_list *cpus = is_all(i) ? &plan.cpus : &one;
		demand_groups(cpus, options.work.count * (is_all(i) ? 1 : plan.alone.count), &demand);
		largest = cpus->count > largest ? cpus->count : largest;
	}
	for (size_t i = 0; i < options.together.count; i++) {
		demand_groups(&plan.together[i], options.work.count, &demand);
		largest = plan.together[i].count > largest ? plan.together[i].count : largest;
	}
	demand_threads(&demand, largest);
	demand_other(&demand, slices_in_window() * sizeof(uint32_t), 2 * largest);
	demand_other(&demand, sizeof(struct work_lanes), largest);
	return demand_admit(&demand, error);
}

static bool measure(struct json *result, struct error *error)
{
	const struct error *first = NULL;
	size_t points = 0, failed = 0;
	if (!admit(error))
		return false;
	make_plan();
	for (size_t i = 0; i < plan.count; i++)
		run_group(&plan.groups[i]);
	clock_finish();
	json_object_begin(result, NULL);
	json_array_begin(result, "points");
	for (size_t i = 0; i < plan.count; i++)
		for (size_t k = 0; k < plan.groups[i].count; k++, points++) {
			const struct point *point = &plan.groups[i].points[k];
			point_write(result, &plan.groups[i], point);
			failed += point->error.code != ERROR_NONE;
			first = first || point->error.code == ERROR_NONE ? first : &point->error;
		}
	json_array_end(result);
	json_object_end(result);
	return error_of_parts(error, "point", failed, points, first);
}

SUBCOMMAND(frequency) = {
	"frequency",
	"core clock under scalar and vector work, each CPU alone and all at once",
	SUBCOMMAND_OPTIONS(table),
	prepare,
	measure,
};
