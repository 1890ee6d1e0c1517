// SPDX-License-Identifier: Apache-2.0
/* Idle latency: the time of one load that waits for the one before, at any size, stride and order. */
#include <stdlib.h>
#include <string.h>

#include "affinity.h"
#include "chain.h"
#include "clock.h"
#include "corefreq.h"
#include "interference.h"
#include "memory.h"
#include "place.h"
#include "random.h"
#include "statistics.h"
#include "stopping.h"
#include "subcommand.h"
#include "worker.h"

/* 200,000 hops are 25 ms from memory and 0.25 ms from L1: clock reads stay below 0.1 % of a window, and a window is
 * short enough that most windows of an idle machine see no interruption. Fewer makes DRAM medians wander. */
#define HOPS_DEFAULT 200000u
/* A walk over the whole buffer before the first window, for buffers that a cache might hold: up to 64 MiB of lines.
 * Larger ones were walked by the proof just before, and a lap would cost more than all windows together. */
#define WARM_LAP_NODES (1u << 20)
#define WARM_HOPS 50000u
#define OVERHEAD_HOPS 64000u

static struct {
	struct word_list at;
	struct u64_list sizes;
	struct u64_list strides;
	const char *order;
	uint64_t window_bytes;
	const char *pages;
	uint64_t placements;
	uint64_t windows;
	uint64_t hops;
	uint64_t seed;
	double budget_s;
	double target_half_width;
	uint64_t payload_bytes;
} options;

static const struct option table[] = {
	{"--at", OPTION_REPEATED, &options.at, "CPU@NODE", "measure from this CPU to memory of this node", NULL, NULL, 0, 0,
	 false},
	{"--size-bytes", OPTION_U64_LIST, &options.sizes, "B[,B...]", "buffer sizes", NULL, NULL, 64, 1ull << 40, false},
	/* One node per line: several nodes in a line would make part of the loads cache hits. */
	{"--stride-bytes", OPTION_U64_LIST, &options.strides, "B[,B...]", "distance of nodes", "64", NULL, 8, 1ull << 30,
	 false},
	/* Random over the whole buffer is the only order that no prefetcher and no TLB makes faster than memory is. */
	{"--order", OPTION_WORD, &options.order, NULL, "order of visits", "random", CHAIN_ORDER_CHOICES, 0, 0, false},
	/* 64 base pages: what a second-level TLB holds many times over, so that translation costs nothing. */
	{"--window-bytes", OPTION_U64, &options.window_bytes, "B", "extent of each window of order window", "262144", NULL,
	 64, 1ull << 40, false},
	/* auto: hugetlb pages where reserved, else transparent ones: translation is not what is to be measured. */
	{"--pages", OPTION_WORD, &options.pages, NULL, "pages wanted", "auto", MEMORY_PAGE_CHOICES, 0, 0, false},
	/* Six is the smallest number whose [min, max] covers the median with more than 95 %. */
	{"--placements", OPTION_U64, &options.placements, "K", "allocations, at least", "6", NULL, 1,
	 STOPPING_PLACEMENTS_MAX, false},
	/* Nine windows give a median that one or two disturbed windows cannot move. */
	{"--windows", OPTION_U64, &options.windows, "N", "timed windows in each placement", "9", NULL, 1, 10000, false},
	{"--hops", OPTION_U64, &options.hops, "H", "loads per window; 0: 200000, or whole laps of small chains", "0", NULL,
	 0, 1ull << 40, false},
	/* A fixed seed makes two runs walk the same chains; each placement derives its own, which is printed. */
	{"--seed", OPTION_U64, &options.seed, "S", "seed of the permutations", "1", NULL, 0, 1ull << 53, false},
	{"--budget-s", OPTION_F64, &options.budget_s, "S",
	 "seconds per point during which placements beyond K are added until the target is met; 0: just K", "0", NULL, 0,
	 1000000, false},
	/* 1 % is what tells one DIMM population from another; tighter costs placements without end on busy machines. */
	{"--target-half-width", OPTION_F64, &options.target_half_width, "R",
	 "relative half-width of the median's interval at which a point is converged", "0.01", NULL, 0, 1, false},
	{"--payload-bytes", OPTION_U64, &options.payload_bytes, "P", "bytes of each node read besides its link", "0", NULL,
	 0, 4096, false},
};

struct placement {
	uint64_t seed;
	struct pages pages;
	bool cpu_verified;
	double *window_ticks; /* per hop */
	bool *dirty;
	double core_before, core_after; /* per tick */
	struct interference interference;
};

struct point {
	unsigned cpu, node;
	size_t size_bytes, stride_bytes;
	size_t nodes, touched_bytes;
	bool proved;
	uint64_t hops;
	double overhead_ticks;
	struct stopping stopping;
	struct error error;
	struct placement *placements;
	size_t count;
	/* of the placement in hand */
	struct chain chain;
	struct region region;
	enum page_kind pages;
	struct cpu_list cpus;
};

static bool prepare(struct error *error)
{
	enum chain_order order;
	unsigned cpu, node;
	size_t line = memory_line_bytes();
	chain_order_parse(options.order, &order);
	bool shuffled = order == CHAIN_RANDOM || order == CHAIN_WINDOW;
	for (size_t i = 0; i < options.at.count; i++)
		if (!place_parse_one(options.at.words[i], &cpu, &node, error))
			return false;
	for (size_t k = 0; k < options.strides.count; k++) {
		uint64_t stride = options.strides.values[k];
		if (stride % 8 || (shuffled && stride % line))
			return error_set(error, ERROR_USAGE, "--stride-bytes: expected a multiple of %zu for order %s, found %llu",
			                 shuffled ? line : (size_t)8, options.order, (unsigned long long)stride);
		if (options.payload_bytes % 8 || options.payload_bytes + 8 > (stride < line ? stride : line))
			return error_set(error, ERROR_USAGE,
			                 "--payload-bytes: expected a multiple of 8 that fits beside the link in "
			                 "%llu bytes, found %llu",
			                 (unsigned long long)(stride < line ? stride : line),
			                 (unsigned long long)options.payload_bytes);
		if (order == CHAIN_WINDOW && (options.window_bytes < stride || options.window_bytes % stride))
			return error_set(error, ERROR_USAGE, "--window-bytes: expected a multiple of the stride %llu, found %llu",
			                 (unsigned long long)stride, (unsigned long long)options.window_bytes);
		for (size_t i = 0; i < options.sizes.count; i++) {
			uint64_t size = options.sizes.values[i];
			if (size < stride || size / stride > UINT32_MAX)
				return error_set(error, ERROR_USAGE,
				                 "--size-bytes: expected from one to 2^32-1 strides of %llu, found %llu",
				                 (unsigned long long)stride, (unsigned long long)size);
		}
	}
	return true;
}

/* One line that links to itself: what is left is the load from L1 and the loop around it. */
static double measure_overhead(void *line)
{
	double best = 0;
	*(void **)line = line;
	for (int i = 0; i < 3; i++) {
		uint64_t before = clock_start();
		(void)arch_chase_pointers(line, OVERHEAD_HOPS / 64);
		uint64_t after = clock_stop();
		double ticks = (double)(after - before) / OVERHEAD_HOPS;
		if (i == 0 || ticks < best)
			best = ticks;
	}
	return best;
}

static uint64_t choose_hops(size_t nodes)
{
	uint64_t hops = options.hops ? options.hops : HOPS_DEFAULT;
	if (!options.hops && nodes < HOPS_DEFAULT)
		hops = (HOPS_DEFAULT + nodes - 1) / nodes * nodes;
	return (hops + 63) / 64 * 64;
}

static bool setup(struct point *point, struct placement *placement, struct error *error)
{
	struct chain *chain = &point->chain;
	placement->core_before = corefreq_settle();
	if (!region_map(&point->region, point->size_bytes, point->node, point->pages, error))
		return false;
	point->overhead_ticks = measure_overhead(point->region.start);
	*chain = (struct chain){.base = point->region.start,
	                        .size_bytes = point->size_bytes,
	                        .stride_bytes = point->stride_bytes,
	                        .line_bytes = memory_line_bytes(),
	                        .window_bytes = options.window_bytes,
	                        .seed = placement->seed};
	chain_order_parse(options.order, &chain->order);
	if (!chain_build(chain, error))
		return false;
	point->proved = chain->proved;
	return pages_read_back(&placement->pages, &point->region, 1, point->pages, error);
}

static void walk(struct chain *chain, uint64_t hops, size_t words)
{
	if (words)
		chain_walk_payload(chain, hops, words);
	else
		chain_walk(chain, hops / 64);
}

/* No allocation, no input or output; the thread's own counts are read between windows, not in them. */
static void run(struct point *point, struct placement *placement)
{
	struct chain *chain = &point->chain;
	size_t words = options.payload_bytes / 8;
	struct thread_counts first, before, after = {0};
	uint64_t warm = chain->nodes <= WARM_LAP_NODES ? chain->nodes : WARM_HOPS;
	walk(chain, (warm + 63) / 64 * 64, words);
	placement->core_before = corefreq_per_tick();
	thread_counts_read(&first);
	before = first;
	for (uint64_t i = 0; i < options.windows; i++) {
		uint64_t start = clock_start();
		walk(chain, point->hops, words);
		uint64_t stop = clock_stop();
		thread_counts_read(&after);
		struct thread_counts during = thread_counts_since(&after, &before);
		placement->window_ticks[i] = (double)(stop - start) / (double)point->hops;
		placement->dirty[i] = during.involuntary || during.voluntary || during.minor_faults || during.major_faults;
		before = after;
	}
	placement->interference.thread = thread_counts_since(&after, &first);
	placement->core_after = corefreq_per_tick();
}

static bool check(struct point *point, struct placement *placement, struct error *error)
{
	placement->cpu_verified = affinity_verify(point->cpu);
	if (!placement->cpu_verified)
		return error_set(error, ERROR_PIN_FAILED, "expected to be on CPU %u after measuring, found to be elsewhere",
		                 point->cpu);
	struct pages again;
	return pages_read_back(&again, &point->region, 1, point->pages, error);
}

static void body(struct worker *worker)
{
	struct point *point = worker->context;
	struct placement *placement = &point->placements[point->count];
	if (setup(point, placement, &worker->error)) {
		worker_pause(worker);
		run(point, placement);
		worker_pause(worker);
		check(point, placement, &worker->error);
	}
	region_unmap(&point->region);
}

static bool measure_placement(struct point *point, uint64_t seed)
{
	struct placement *placement = &point->placements[point->count];
	*placement = (struct placement){.seed = seed};
	placement->window_ticks = calloc(options.windows, sizeof(double));
	placement->dirty = calloc(options.windows, sizeof(bool));
	struct worker worker;
	if (!placement->window_ticks || !placement->dirty)
		return error_set(&point->error, ERROR_INTERNAL, "no memory for %llu windows",
		                 (unsigned long long)options.windows);
	if (!worker_start(&worker, point->cpu, body, point, &point->error))
		return false;
	if (worker_wait(&worker)) {
		snapshot_take(&placement->interference.before, &point->cpus);
		worker_continue(&worker);
		worker_wait(&worker);
		snapshot_take(&placement->interference.after, &point->cpus);
	}
	worker_join(&worker);
	if (worker.error.code != ERROR_NONE)
		point->error = worker.error;
	return worker.error.code == ERROR_NONE;
}

static void measure_point(struct point *point, uint64_t number)
{
	double medians[STOPPING_PLACEMENTS_MAX];
	point->placements = calloc(STOPPING_PLACEMENTS_MAX, sizeof(*point->placements));
	if (!point->placements) {
		error_set(&point->error, ERROR_INTERNAL, "no memory for placements");
		return;
	}
	point->nodes = chain_nodes(point->size_bytes, point->stride_bytes);
	point->touched_bytes = chain_touched_bytes(point->nodes, point->stride_bytes, memory_line_bytes());
	point->hops = choose_hops(point->nodes);
	page_kind_parse(options.pages, &point->pages);
	supervise_avoid(&point->cpus);
	stopping_begin(&point->stopping);
	while (measure_placement(point, random_derive(options.seed, number, point->count))) {
		medians[point->count] = statistics_median(point->placements[point->count].window_ticks, options.windows);
		point->count++;
		if (stopping_done(&point->stopping, medians, point->count))
			return;
	}
}

static void placement_write(struct json *json, const struct point *point, const struct placement *placement)
{
	json_object_begin(json, NULL);
	json_u64(json, "seed", placement->seed);
	pages_write(json, "pages", &placement->pages);
	json_bool(json, "cpu_verified", placement->cpu_verified);
	json_array_begin(json, "windows_ns");
	for (uint64_t i = 0; i < options.windows; i++)
		json_f64(json, NULL, clock_ns(placement->window_ticks[i]));
	json_array_end(json);
	json_f64(json, "core_hz_before", corefreq_hz(placement->core_before));
	json_f64(json, "core_hz_after", corefreq_hz(placement->core_after));
	json_array_begin(json, "dirty_windows");
	for (uint64_t i = 0; i < options.windows; i++)
		if (placement->dirty[i])
			json_u64(json, NULL, i);
	json_array_end(json);
	interference_write(json, "interference", &placement->interference.thread, &placement->interference.before,
	                   &placement->interference.after, &point->cpus);
	json_object_end(json);
}

static void point_write(struct json *json, const struct point *point)
{
	bool good = point->error.code == ERROR_NONE;
	json_object_begin(json, NULL);
	json_u64(json, "cpu", point->cpu);
	json_u64(json, "node", point->node);
	json_u64(json, "size_bytes", point->size_bytes);
	json_u64(json, "stride_bytes", point->stride_bytes);
	json_text(json, "order", options.order);
	json_u64(json, "chain_nodes", point->nodes);
	json_u64(json, "touched_bytes", point->touched_bytes);
	json_bool(json, "chain_proved", good && point->proved);
	json_u64(json, "hops_per_window", point->hops);
	if (good)
		json_f64(json, "loop_overhead_ns", clock_ns(point->overhead_ticks));
	else
		json_null(json, "loop_overhead_ns");
	json_text(json, "stopped", good ? point->stopping.reason : NULL);
	if (good) {
		json_null(json, "error");
		json_array_begin(json, "placements");
		for (size_t i = 0; i < point->count; i++)
			placement_write(json, point, &point->placements[i]);
		json_array_end(json);
	} else {
		error_write(json, &point->error);
		json_null(json, "placements");
	}
	json_object_end(json);
}

static bool measure(struct json *result, struct error *error)
{
	size_t per_place = options.sizes.count * options.strides.count;
	size_t count = options.at.count * per_place;
	struct point *points = calloc(count, sizeof(*points));
	if (!points)
		return error_set(error, ERROR_INTERNAL, "no memory for %zu points", count);
	size_t failed = 0;
	for (size_t i = 0; i < count; i++) {
		struct point *point = &points[i];
		*point = (struct point){.size_bytes = options.sizes.values[i % per_place / options.strides.count],
		                        .stride_bytes = options.strides.values[i % options.strides.count],
		                        .stopping = {.placements = options.placements,
		                                     .budget_s = options.budget_s,
		                                     .target = options.target_half_width}};
		if (!place_parse_one(options.at.words[i / per_place], &point->cpu, &point->node, error) ||
		    !cpu_list_add(&point->cpus, point->cpu))
			return error_set(error, ERROR_INTERNAL, "no memory for a point");
		measure_point(point, i);
		failed += point->error.code != ERROR_NONE;
	}
	clock_finish();
	json_object_begin(result, NULL);
	json_array_begin(result, "points");
	for (size_t i = 0; i < count; i++)
		point_write(result, &points[i]);
	json_array_end(result);
	json_object_end(result);
	if (failed == count)
		error_set(error, points[0].error.code, "no point could be measured; the first: %s", points[0].error.message);
	for (size_t i = 0; i < count; i++) {
		for (size_t k = 0; points[i].placements && k <= points[i].count && k < STOPPING_PLACEMENTS_MAX; k++) {
			free(points[i].placements[k].window_ticks);
			free(points[i].placements[k].dirty);
			interference_free(&points[i].placements[k].interference);
		}
		free(points[i].placements);
		cpu_list_free(&points[i].cpus);
	}
	free(points);
	return failed < count;
}

const struct subcommand latency_subcommand = {
	.name = "latency",
	.summary = "time of one load that waits for the one before",
	.options = table,
	.option_count = sizeof(table) / sizeof(table[0]),
	.prepare = prepare,
	.run = measure,
};
