// SPDX-License-Identifier: Apache-2.0
/* Latency: the time of one load that waits for the one before, at any sizes, strides and orders, of one copy or of several
 * at the same time. Each round maps each memory afresh, once for all CPUs that measure it, and measures one placement of
 * every point that wants one more. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "affinity.h"
#include "allocate.h"
#include "chain.h"
#include "chase.h"
#include "clock.h"
#include "memory.h"
#include "option_rows.h"
#include "place.h"
#include "pmu.h"
#include "random.h"
#include "single.h"
#include "stopping.h"
#include "subcommand.h"
#include "text.h"

/* 200,000 hops are 25 ms from memory and 0.25 ms from L1: clock reads stay below 0.1 % of a window, and a window is
 * short enough that most windows of an idle machine see no interruption. Fewer makes DRAM medians wander. */
#define HOPS_DEFAULT 200000u
/* A chain that L1 or L2 serves takes no fewer, whatever --hops says: asking the kernel between windows costs it some of
 * its lines, and 10,000 hops then read 1 to 4 % too high. */
#define CACHED_HOPS_MIN 200000u

static struct {
	struct word_list at;
	struct u64_list sizes;
	struct u64_list strides;
	struct word_list orders;
	bool together;
	uint64_t line_bytes;
	uint64_t window_bytes;
	uint64_t hops;
	uint64_t payload_bytes;
	uint64_t single_loads;
	struct word_list keep_awake;
	struct word_list pages;
	struct u64_list hugetlb;
	struct u64_list chains;
} options;

static const struct option table[] = {
	OPTION_ROW_REPEATED("--at", &options.at, "CPU@NODE[+NODE...][:BYTES[/STRIDE]]",
	                    "measure from this CPU to memory of this node, or with pages interleaved over these nodes, at "
	                    "a size and a stride of its own"),
	/* One after another is idle latency; together is what copies cost one another. */
	OPTION_ROW_FLAG("--together", &options.together, "measure all --at at the same time, one copy on each CPU"),
	OPTION_ROW_LIST("--size-bytes", &options.sizes, "B[,B...]", NULL, 64, 1ull << 40, "buffer sizes"),
	/* One node per line: several nodes in a line make part of the loads cache hits. Sizes are combined with the strides
	 * that fit into them. */
	OPTION_ROW_LIST("--stride-bytes", &options.strides, "B[,B...]", "64", 8, 1ull << 30, "distance of nodes"),
	/* Random over the whole buffer is the only order that no prefetcher and no TLB makes faster than memory is. */
	OPTION_ROW_WORDS("--order", &options.orders, CHAIN_ORDER_CHOICES, "random", "orders of visits"),
	/* What the kernel reports decides; a hypervisor may not say, or a prefetcher may fetch lines in pairs. */
	OPTION_ROW_U64("--line-bytes", &options.line_bytes, "B", "0", 0, 4096,
	               "size of a cache line; 0: as the kernel reports, else 64"),
	/* 64 base pages: what a second-level TLB holds many times over, so that translation costs nothing. */
	OPTION_ROW_U64("--window-bytes", &options.window_bytes, "B", "262144", 64, 1ull << 40,
	               "extent of each window of order window"),
	/* One after another in memory of its own each, with the same chains: what differs is the pages. */
	OPTION_ROW_WORDS("--pages", &options.pages, MEMORY_PAGE_CHOICES, "auto",
	                 "pages wanted; everything is measured on each kind in turn"),
	OPTION_ROW_OPTIONAL_LIST("--hugetlb-bytes", &options.hugetlb, "B[,B...]", 4096, 1ull << 40,
	                         "sizes of the kind hugetlb, each measured in turn; else the first that is available"),
	OPTIONS_PLACEMENTS,
	/* Nine windows give a median that one or two disturbed windows cannot move. */
	OPTION_ROW_U64("--windows", &common.windows, "N", "9", 1, 10000, "timed windows in each placement"),
	OPTION_ROW_U64("--hops", &options.hops, "H", "0", 0, 1ull << 40,
	               "loads per window, of chains in L1 or L2 at least 200000; 0: 200000, or whole laps of small chains"),
	OPTIONS_SEED("the permutations"),
	OPTION_ROW_U64("--payload-bytes", &options.payload_bytes, "P", "0", 0, 4096,
	               "bytes of each node read besides its link"),
	/* Timing a load costs what a load from an inner cache costs: windows say how long a load takes, single ones how that
	 * varies. */
	OPTION_ROW_U64("--single-loads", &options.single_loads, "N", "0", 0, 1ull << 32,
	               "after its windows, walk on with N loads timed one by one, in turn with as many of a line in L1"),
	/* A thread's loads that do not wait for one another, up to more than any core has under way. */
	OPTION_ROW_OPTIONAL_LIST(
		"--chains", &options.chains, "N[,N...]", 1, CHAIN_CURSORS_MAX,
		"walk so many chains at the same time in one thread, each in its own part of the nodes, one "
		"number after another (default: one chain, its loop unrolled)"),
	OPTION_ROW_OPTIONAL_REPEATED(
		"--keep-awake", &options.keep_awake, "CPU@NODE",
		"measure every placement a second time while this CPU reads 300 MB/s from this node, which keeps both awake"),
	OPTIONS_EVENT,
	OPTIONS_BACKGROUND,
	OPTIONS_SAMPLE,
};

/* Pages to measure everything on. */
struct page_request {
	const char *name;
	enum page_kind kind;
	size_t hugetlb_bytes; /* 0: whichever can be had */
};

struct point {
	const struct page_request *pages;
	size_t place; /* of the --at given */
	struct chase_task task;
	const char *order_name;
	size_t nodes, touched_bytes;
	struct error error;
	struct chase_sample *samples[CHASE_CONDITIONS]; /* of CHASE_PACKAGE_ACTIVE only where there are readers */
	size_t count;
	bool fresh; /* has a placement of the round in hand */
};

/* One --at. */
struct place {
	unsigned cpu;
	struct cpu_list nodes;
	uint64_t size_bytes;   /* its own, or 0 */
	uint64_t stride_bytes; /* likewise */
	size_t memory;         /* the first place that walks the same chains: itself, where it does not share them */
};

static struct {
	struct page_request *requests;
	size_t request_count, request; /* in hand */
	struct place *places;
	struct point *points; /* all combinations of the first place, then those of the next; all that for the next pages */
	size_t count, per_place;
	struct cpu_list cpus; /* of all places */
	struct paced_reader *readers;
	const struct sample_request *sampled;
	struct pmu *pmu;
} work;

static size_t line_bytes(void)
{
	return options.line_bytes ? options.line_bytes : memory_line_bytes();
}

static enum chain_order order_of(const char *word)
{
	return (enum chain_order)option_choice(CHAIN_ORDER_CHOICES, word);
}

static bool shuffled(enum chain_order order)
{
	return order == CHAIN_RANDOM || order == CHAIN_WINDOW;
}

static bool prepare_stride(uint64_t stride, struct error *error)
{
	size_t line = line_bytes();
	uint64_t room = stride < line ? stride : line;
	for (size_t i = 0; i < options.orders.count; i++) {
		enum chain_order order = order_of(options.orders.words[i]);
		if (stride % 8 || (shuffled(order) && stride % line && line % stride))
			return error_set(error, ERROR_USAGE,
			                 "--stride-bytes: must be a multiple or a divisor of %zu for order %s, not %llu",
			                 shuffled(order) ? line : (size_t)8, options.orders.words[i], (unsigned long long)stride);
		if (order == CHAIN_WINDOW && !option_multiple("--window-bytes", options.window_bytes, stride, error))
			return false;
	}
	if (options.payload_bytes % 8 || options.payload_bytes + 8 > room)
		return error_set(error, ERROR_USAGE,
		                 "--payload-bytes: must be a multiple of 8 that fits beside the link in %llu bytes, not %llu",
		                 (unsigned long long)room, (unsigned long long)options.payload_bytes);
	return true;
}

static bool parse_place(const char *word, struct place *place, struct error *error)
{
	char *stride = allocate_text(word, strlen(word)), *copy = stride;
	bool good = place_parse_nodes(text_cut(&stride, ':'), &place->cpu, &place->nodes, error);
	const char *size = stride ? text_cut(&stride, '/') : NULL;
	if (good && size && (!options_u64(size, &place->size_bytes) || place->size_bytes == 0))
		good = error_set(error, ERROR_USAGE, "--at: no size after the colon of '%s'", word);
	if (good && stride && (!options_u64(stride, &place->stride_bytes) || place->stride_bytes < 8))
		good = error_set(error, ERROR_USAGE, "--at: no stride of at least 8 after the slash of '%s'", word);
	free(copy);
	return good;
}

static bool prepare_nodes(uint64_t size, uint64_t stride, struct error *error)
{
	return size / stride <= UINT32_MAX ||
	       error_set(error, ERROR_USAGE, "--size-bytes: must be at most 2^32-1 strides of %llu, not %llu",
	                 (unsigned long long)stride, (unsigned long long)size);
}

static bool prepare_size(uint64_t size, uint64_t least, struct error *error)
{
	if (size < least)
		return error_set(error, ERROR_USAGE, "--size-bytes: must be at least one stride of %llu, not %llu",
		                 (unsigned long long)least, (unsigned long long)size);
	for (size_t k = 0; k < options.strides.count; k++)
		if (!prepare_nodes(size, options.strides.values[k], error))
			return false;
	return true;
}

static bool prepare_place(const struct place *place, uint64_t longest, struct error *error)
{
	if (!place->size_bytes)
		return true;
	if (options.together || options.sizes.count != 1 || options.sizes.values[0] < longest)
		return error_set(
			error, ERROR_USAGE,
			"--at: a size of its own, %llu, needs one --size-bytes that holds every stride, and no --together",
			(unsigned long long)place->size_bytes);
	if (!place->stride_bytes)
		return prepare_size(place->size_bytes, longest, error);
	if (options.strides.count != 1 || place->size_bytes < place->stride_bytes)
		return error_set(error, ERROR_USAGE,
		                 "--at: a stride of its own, %llu, needs one --stride-bytes and a size that holds it",
		                 (unsigned long long)place->stride_bytes);
	return prepare_stride(place->stride_bytes, error) && prepare_nodes(place->size_bytes, place->stride_bytes, error);
}

static bool same_memory(const struct place *one, const struct place *other)
{
	return one->size_bytes == other->size_bytes && one->stride_bytes == other->stride_bytes &&
	       one->nodes.count == other->nodes.count &&
	       !memcmp(one->nodes.cpus, other->nodes.cpus, one->nodes.count * sizeof(*one->nodes.cpus));
}

/* The numbers share a cycle, of which each has a part, and every chain in it begins at a node of its own. */
static bool prepare_chains(uint64_t shortest, uint64_t longest, struct error *error)
{
	if (!options.chains.count)
		return true;
	if (options.together || options.payload_bytes || options.single_loads || shortest < CHAIN_NUMBERED_STRIDE_MIN)
		return error_set(error, ERROR_USAGE,
		                 "--chains: cannot be combined with --together, --payload-bytes or --single-loads, and needs "
		                 "--stride-bytes of at least %u",
		                 CHAIN_NUMBERED_STRIDE_MIN);
	if (options.chains.count > CHAIN_PARTS_MAX)
		return error_set(error, ERROR_USAGE, "--chains: must be at most %u numbers, not %zu", CHAIN_PARTS_MAX,
		                 options.chains.count);
	for (size_t i = 0; i < options.sizes.count; i++)
		if (options.sizes.values[i] / longest < CHAIN_MARKS)
			return error_set(error, ERROR_USAGE, "--chains: needs a --size-bytes of at least %u nodes", CHAIN_MARKS);
	for (size_t i = 0; i < options.at.count; i++) {
		if (work.places[i].stride_bytes)
			return error_set(error, ERROR_USAGE, "--chains: cannot be combined with a stride in --at");
		if (work.places[i].size_bytes && work.places[i].size_bytes / longest < CHAIN_MARKS)
			return error_set(error, ERROR_USAGE, "--chains: needs a size in --at of at least %u nodes", CHAIN_MARKS);
	}
	return true;
}

static bool prepare_places(uint64_t longest, struct error *error)
{
	work.places = allocate(options.at.count, sizeof(*work.places));
	for (size_t i = 0; i < options.at.count; i++) {
		struct place *place = &work.places[i];
		if (!parse_place(options.at.words[i], place, error) || !prepare_place(place, longest, error))
			return false;
		if (options.together && cpu_list_has(&work.cpus, place->cpu))
			return error_set(error, ERROR_USAGE, "--at: CPU %u is given twice with --together", place->cpu);
		cpu_list_add(&work.cpus, place->cpu);
		for (place->memory = 0; place->memory < i; place->memory++)
			if (!options.together && same_memory(place, &work.places[place->memory]))
				break;
	}
	return true;
}

/* A reader on a measured CPU would take its time, and two on one CPU each other's. */
static bool prepare_keep_awake(struct error *error)
{
	struct cpu_list others = {0};
	work.readers = allocate(options.keep_awake.count, sizeof(*work.readers));
	for (size_t i = 0; i < options.keep_awake.count; i++) {
		struct paced_reader *reader = &work.readers[i];
		if (!place_parse_one(options.keep_awake.words[i], &reader->cpu, &reader->node, error))
			return false;
		if (cpu_list_has(&work.cpus, reader->cpu) || cpu_list_has(&others, reader->cpu))
			return error_set(error, ERROR_USAGE, "--keep-awake: CPU %u is measured or is one already", reader->cpu);
		cpu_list_add(&others, reader->cpu);
	}
	cpu_list_free(&others);
	return true;
}

/* A row for each kind of pages, and for each size of those that have several. */
static bool prepare_pages(struct error *error)
{
	size_t sizes = options.hugetlb.count ? options.hugetlb.count : 1;
	bool any = false;
	work.requests = allocate(options.pages.count * sizes, sizeof(*work.requests));
	for (size_t i = 0; i < options.pages.count; i++) {
		struct page_request request = {.name = options.pages.words[i]};
		request.kind = page_kind_of(request.name);
		bool several = request.kind == PAGES_HUGETLB;
		any = any || several;
		for (size_t k = 0; k < (several ? sizes : 1); k++) {
			request.hugetlb_bytes = several && options.hugetlb.count ? options.hugetlb.values[k] : 0;
			for (size_t n = 0; n < work.request_count; n++)
				if (work.requests[n].kind == request.kind && work.requests[n].hugetlb_bytes == request.hugetlb_bytes)
					return error_set(error, ERROR_USAGE, "--pages: '%s' is given twice", request.name);
			work.requests[work.request_count++] = request;
		}
	}
	return any || !options.hugetlb.count || error_set(error, ERROR_USAGE, "--hugetlb-bytes: needs --pages hugetlb");
}

static bool prepare(struct error *error)
{
	size_t line = line_bytes();
	uint64_t shortest = UINT64_MAX, longest = 1; /* a divisor, so never 0 */
	if (line < 16 || line & (line - 1))
		return error_set(error, ERROR_USAGE, "--line-bytes: must be a power of two from 16 to 4096, not %llu",
		                 (unsigned long long)options.line_bytes);
	for (size_t k = 0; k < options.strides.count; k++) {
		uint64_t stride = options.strides.values[k];
		if (!prepare_stride(stride, error))
			return false;
		shortest = stride < shortest ? stride : shortest;
		longest = stride > longest ? stride : longest;
	}
	for (size_t i = 0; i < options.sizes.count; i++)
		if (!prepare_size(options.sizes.values[i], shortest, error))
			return false;
	if (options.together && options.single_loads)
		return error_set(error, ERROR_USAGE, "--single-loads: cannot be combined with --together");
	return prepare_places(longest, error) && prepare_chains(shortest, longest, error) && prepare_keep_awake(error) &&
	       prepare_pages(error) && common_parse(false, &work.sampled, &work.pmu, error);
}

static uint64_t choose_hops(const struct point *point)
{
	size_t nodes = point->nodes;
	uint64_t hops = options.hops ? options.hops : HOPS_DEFAULT;
	if (!options.hops && nodes < HOPS_DEFAULT)
		hops = (HOPS_DEFAULT + nodes - 1) / nodes * nodes;
	if (hops < CACHED_HOPS_MIN && point->touched_bytes <= memory_l2_bytes(work.places[point->place].cpu))
		hops = CACHED_HOPS_MIN;
	uint64_t unit = chase_hops_unit(&point->task);
	return (hops + unit - 1) / unit * unit;
}

static size_t chain_counts(void)
{
	return options.chains.count ? options.chains.count : 1;
}

static void list_point(const struct page_request *pages, size_t place, const char *order, uint64_t size,
                       uint64_t stride, size_t count, struct point *point)
{
	*point = (struct point){.pages = pages,
	                        .place = place,
	                        .task = {.size_bytes = size,
	                                 .stride_bytes = stride,
	                                 .line_bytes = line_bytes(),
	                                 .order = order_of(order),
	                                 .window_bytes = options.window_bytes,
	                                 .windows = common.windows,
	                                 .payload_words = options.payload_bytes / 8,
	                                 .single_loads = options.single_loads,
	                                 .chains = options.chains.count ? (unsigned)options.chains.values[count] : 0,
	                                 .part = count,
	                                 .parts = chain_counts()},
	                        .order_name = order,
	                        .nodes = size / stride};
	point->touched_bytes = chain_touched_bytes(point->nodes, stride, line_bytes());
	point->task.hops = choose_hops(point);
}

/* The points of one place on some pages: those combinations whose size holds a stride. Those that differ in the number of
 * chains follow one another, and share a cycle. */
static void list_points(const struct page_request *pages, size_t place, struct point *points)
{
	for (size_t o = 0; o < options.orders.count; o++)
		for (size_t s = 0; s < options.sizes.count; s++)
			for (size_t k = 0; k < options.strides.count; k++) {
				uint64_t size = options.sizes.values[s], stride = options.strides.values[k];
				if (size < stride)
					continue;
				if (work.places[place].size_bytes)
					size = work.places[place].size_bytes;
				if (work.places[place].stride_bytes)
					stride = work.places[place].stride_bytes;
				for (size_t c = 0; c < chain_counts(); c++)
					list_point(pages, place, options.orders.words[o], size, stride, c, points++);
			}
}

static void list_all_points(void)
{
	for (size_t s = 0; s < options.sizes.count; s++)
		for (size_t k = 0; k < options.strides.count; k++)
			work.per_place +=
				options.sizes.values[s] >= options.strides.values[k] ? options.orders.count * chain_counts() : 0;
	work.count = work.per_place * options.at.count * work.request_count;
	work.points = allocate(work.count, sizeof(*work.points));
	for (size_t i = 0; i < options.at.count * work.request_count; i++)
		list_points(&work.requests[i / options.at.count], i % options.at.count, &work.points[i * work.per_place]);
	size_t conditions = options.keep_awake.count ? CHASE_CONDITIONS : 1;
	for (size_t i = 0; i < work.count; i++)
		for (size_t k = 0; k < conditions; k++)
			work.points[i].samples[k] = allocate(common.placements, sizeof(*work.points[i].samples[k]));
}

/* A combination in one place, on the pages in hand. */
static struct point *point_of(size_t place, size_t combination)
{
	return &work.points[(work.request * options.at.count + place) * work.per_place + combination];
}

static bool wants_more(const struct point *point)
{
	return point->error.code == ERROR_NONE && point->count < common.placements;
}

/* Whether a combination is measured once more in this place: together, in all places or in none. */
static bool takes_part(size_t place, size_t combination)
{
	if (!options.together)
		return wants_more(point_of(place, combination));
	for (size_t i = 0; i < options.at.count; i++)
		if (!wants_more(point_of(i, combination)))
			return false;
	return true;
}

/* In turn, so that what drifts from the first walk of a placement to the second favours neither. */
static bool active_first(size_t placement)
{
	return placement % 2 == 1;
}

static void measure_combination(struct chase_group *group, size_t combination)
{
	bool any = false;
	for (size_t i = 0; i < group->count; i++) {
		struct point *point = point_of(i, combination);
		struct chase *chase = &group->chases[i];
		chase->task = NULL;
		if (!chase->bytes || !takes_part(i, combination))
			continue;
		chase->task = &point->task;
		for (size_t k = 0; k < CHASE_CONDITIONS && point->samples[k]; k++) {
			chase->samples[k] = &point->samples[k][point->count];
			*chase->samples[k] = (struct chase_sample){0};
		}
		group->active_first = active_first(point->count);
		chase->samples[CHASE_PACKAGE_IDLE]->evidence.seed =
			random_derive(common.seed, chase->memory * work.per_place + combination - point->task.part, point->count);
		any = true;
	}
	if (!any)
		return;
	chase_measure(group);
	for (size_t i = 0; i < group->count; i++) {
		struct chase *chase = &group->chases[i];
		struct point *point = point_of(i, combination);
		if (chase->task && chase->error.code == ERROR_NONE) {
			point->count++;
			point->fresh = true;
		} else if (chase->task && !stop_requested()) {
			error_take(&point->error, &chase->error);
		}
	}
}

/* One placement more of each point that wants one. False when none did, or nothing can go on. */
static bool measure_round(struct chase_group *group)
{
	bool any = false;
	for (size_t i = 0; i < group->count; i++) {
		struct chase *chase = &group->chases[i];
		chase->bytes = chase->building_bytes = 0;
		chase->longest_s = 0;
		for (size_t c = 0; c < work.per_place; c++) {
			const struct chase_task *task = &point_of(i, c)->task;
			if (!takes_part(i, c))
				continue;
			size_t building =
				chain_building_bytes(task->size_bytes, task->stride_bytes, task->order, task->window_bytes);
			chase->bytes = task->size_bytes > chase->bytes ? task->size_bytes : chase->bytes;
			chase->building_bytes = building > chase->building_bytes ? building : chase->building_bytes;
			chase->longest_s = fmax(chase->longest_s, chase_seconds(common.windows, task->hops));
		}
		any = any || chase->bytes;
	}
	if (!any || stop_requested())
		return false;
	chase_open(group);
	bool whole = true;
	for (size_t i = 0; i < group->count; i++) {
		struct chase *chase = &group->chases[i];
		if (!chase->bytes || chase->error.code == ERROR_NONE)
			continue;
		/* What could not be mapped takes the largest sizes with it; smaller ones may still fit, in the next round. */
		for (size_t k = 0; k < group->count; k++)
			for (size_t c = 0; (k == i || options.together) && c < work.per_place; c++)
				if (chase->error.code != ERROR_NO_MEMORY || point_of(k, c)->task.size_bytes == chase->bytes)
					error_take(&point_of(k, c)->error, &chase->error);
		chase->bytes = 0;
		whole = false;
	}
	for (size_t i = 0; i < work.count; i++)
		work.points[i].fresh = false;
	for (size_t c = 0; c < work.per_place && (whole || !options.together) && !stop_requested(); c++)
		measure_combination(group, c);
	chase_close(group);
	/* Pages that moved meanwhile may have moved under any of them. */
	for (size_t i = 0; i < group->count; i++)
		for (size_t c = 0; group->chases[i].error.code != ERROR_NONE && c < work.per_place; c++)
			for (size_t k = 0; k < group->count; k++)
				if ((k == i || options.together) && point_of(k, c)->fresh)
					error_take(&point_of(k, c)->error, &group->chases[i].error);
	return true;
}

/* What was told to end keeps its placements, or says why it has none. */
static void finish_point(struct point *point)
{
	if (point->count == 0)
		stop_error(&point->error);
	if (wants_more(point) && !stop_requested())
		error_set(&point->error, ERROR_INTERNAL, "stopped without a reason");
}

/* The points' samples, and the counters around each pass over the places. */
static uint64_t kept_bytes(void)
{
	struct demand kept = {0};
	uint64_t conditions = options.keep_awake.count ? CHASE_CONDITIONS : 1;
	uint64_t most = conditions * common.placements, samples = work.count * most;
	demand_other(&kept, sizeof(struct point), work.count);
	demand_other(&kept, sizeof(struct chase_sample) + common.windows * (sizeof(double) + sizeof(bool)), samples);
	if (options.single_loads)
		demand_other(&kept, sizeof(struct single_loads), samples);
	snapshots_demand(&work.cpus, 2 * most * work.per_place * work.request_count, &kept);
	uint64_t numbers = common.windows + EVIDENCE_NUMBERS;
	numbers += options.single_loads ? single_loads_numbers(options.single_loads) : 0;
	demand_document(&kept, numbers * samples + EVIDENCE_NUMBERS * work.count);
	return kept.other_bytes;
}

/* What is kept to the end was asked for with the first pages. */
static void measure_on(const struct page_request *pages)
{
	bool first = work.request == 0;
	struct chase_group group = {.count = options.at.count,
	                            .pages = pages->kind,
	                            .hugetlb_bytes = pages->hugetlb_bytes,
	                            .together = options.together,
	                            .pmu = work.pmu,
	                            .cpus = &work.cpus,
	                            .sampled = work.sampled,
	                            .kept_bytes = first ? kept_bytes() : 0,
	                            .readers = work.readers,
	                            .reader_count = options.keep_awake.count};
	group.chases = allocate(group.count, sizeof(*group.chases));
	for (size_t i = 0; i < group.count; i++)
		group.chases[i] = (struct chase){.cpu = work.places[i].cpu,
		                                 .nodes = &work.places[i].nodes,
		                                 .memory = work.places[i].memory,
		                                 .windows = common.windows};
	while (measure_round(&group))
		continue;
	free(group.chases);
}

static void measure_all(void)
{
	supervise_avoid(&work.cpus);
	for (work.request = 0; work.request < work.request_count; work.request++)
		measure_on(&work.requests[work.request]);
	for (size_t i = 0; i < work.count; i++)
		finish_point(&work.points[i]);
}

/* What one walk of a placement gave. */
static void walk_write(struct json *json, const struct point *point, const struct chase_sample *sample)
{
	const struct evidence *evidence = &sample->evidence;
	const struct cpu_list self = {&work.places[point->place].cpu, 1};
	json_f64s(json, "windows_ns", sample->window_ticks, common.windows, clock_ns(1));
	json_places(json, "dirty_windows", sample->dirty, common.windows);
	json_bool(json, "cpu_verified", evidence->threads.verified);
	evidence_write(json, evidence, &self);
	evidence_counted_write(json, evidence, work.sampled);
	single_loads_write(json, "single_loads", sample->single);
}

static void package_active_write(struct json *json, const struct point *point, size_t number)
{
	if (!json_object_known(json, "package_active", point->samples[CHASE_PACKAGE_ACTIVE]))
		return;
	const struct chase_sample *sample = &point->samples[CHASE_PACKAGE_ACTIVE][number];
	json_bool(json, "first", active_first(number));
	walk_write(json, point, sample);
	json_array_begin(json, "keep_awake");
	for (size_t i = 0; i < options.keep_awake.count; i++) {
		json_object_begin(json, NULL);
		json_u64(json, "cpu", work.readers[i].cpu);
		json_u64(json, "node", work.readers[i].node);
		json_f64(json, "mb_s", sample->reader_rates[i] * 1e3 / clock_ns(1));
		json_object_end(json);
	}
	json_array_end(json);
	json_object_end(json);
}

static void placement_write(struct json *json, const struct point *point, size_t number)
{
	const struct chase_sample *sample = &point->samples[CHASE_PACKAGE_IDLE][number];
	const struct evidence *evidence = &sample->evidence;
	json_object_begin(json, NULL);
	json_u64(json, "seed", evidence->seed);
	pages_write(json, "pages", &evidence->pages);
	json_array_begin(json, "pages_by_node");
	for (size_t i = 0; i < work.places[point->place].nodes.count; i++)
		json_u64(json, NULL, sample->shares ? sample->shares[i] : evidence->pages.on_node);
	json_array_end(json);
	walk_write(json, point, sample);
	package_active_write(json, point, number);
	json_object_end(json);
}

/* The most that any placement's order showed. */
static struct order_check worst_order(const struct point *point)
{
	struct order_check worst = point->samples[CHASE_PACKAGE_IDLE][0].order;
	for (size_t i = 1; i < point->count; i++) {
		const struct order_check *check = &point->samples[CHASE_PACKAGE_IDLE][i].order;
		worst.repeated_share = fmax(worst.repeated_share, check->repeated_share);
		worst.adjacent_share = fmax(worst.adjacent_share, check->adjacent_share);
		worst.recent_page_share = fmax(worst.recent_page_share, check->recent_page_share);
		worst.chi_square = fmax(worst.chi_square, check->chi_square);
		worst.passed = worst.passed && check->passed;
	}
	return worst;
}

static void point_write(struct json *json, const struct point *point)
{
	bool good = point->error.code == ERROR_NONE;
	const struct place *place = &work.places[point->place];
	json_object_begin(json, NULL);
	json_u64(json, "cpu", place->cpu);
	cpu_list_write(json, "nodes", &place->nodes);
	json_text(json, "pages", point->pages->name);
	json_u64_known(json, "hugetlb_bytes", point->pages->hugetlb_bytes, point->pages->hugetlb_bytes);
	json_u64(json, "copies", options.together ? options.at.count : 1);
	json_u64(json, "size_bytes", point->task.size_bytes);
	json_u64(json, "stride_bytes", point->task.stride_bytes);
	json_u64(json, "line_bytes", line_bytes());
	json_text(json, "order", point->order_name);
	json_u64(json, "chains", point->task.chains ? point->task.chains : 1);
	json_u64(json, "chain_nodes", point->nodes);
	json_u64(json, "touched_bytes", point->touched_bytes);
	json_bool(json, "chain_proved", good); /* no chain is timed without the proof */
	json_u64(json, "hops_per_window", point->task.hops);
	if (good) {
		struct order_check order = worst_order(point);
		order_check_write(json, "order_check", &order);
		json_f64(json, "loop_overhead_ns", clock_ns(point->samples[CHASE_PACKAGE_IDLE][0].overhead_ticks));
		json_text(json, "stopped", stopped_by(point->count, common.placements));
		json_array_begin(json, "placements");
		for (size_t i = 0; i < point->count; i++)
			placement_write(json, point, i);
		json_array_end(json);
	} else {
		JSON_NULLS(json, "order_check", "loop_overhead_ns", "stopped", "placements");
	}
	error_write(json, &point->error);
	json_object_end(json);
}

static bool measure(struct json *result, struct error *error)
{
	size_t failed = 0;
	list_all_points();
	pmu_open(work.pmu);
	pmu_threads(work.pmu, work.cpus.count);
	pmu_background(work.pmu, common.background_s);
	if (!paced_readers_open(work.readers, options.keep_awake.count, error))
		return false;
	measure_all();
	paced_readers_close(work.readers, options.keep_awake.count);
	clock_finish();
	json_object_begin(result, NULL);
	json_array_begin(result, "points");
	for (size_t i = 0; i < work.count; i++) {
		failed += work.points[i].error.code != ERROR_NONE;
		point_write(result, &work.points[i]);
	}
	json_array_end(result);
	json_object_end(result);
	return error_of_parts(error, "point", failed, work.count, &work.points[0].error);
}

SUBCOMMAND(latency) = {
	"latency", "time of one load that waits for the one before", SUBCOMMAND_OPTIONS(table), prepare, measure,
};
