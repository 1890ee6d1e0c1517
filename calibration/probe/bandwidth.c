// SPDX-License-Identifier: Apache-2.0
/* Bandwidth: what a group of CPUs moves to and from memory in the windows when all of them were running. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocate.h"
#include "clock.h"
#include "generator.h"
#include "load.h"
#include "option_rows.h"
#include "pmu.h"
#include "random.h"
#include "statistics.h"
#include "stopping.h"
#include "subcommand.h"
#include "telemetry.h"
#include "text.h"

/* Time given to caches, page tables, prefetchers and the chunk length to settle before the first window. What the last run
 * left in a cache was read, and the rate steady, after 4 ms of two busy CPUs; 100 times as many have as much more bandwidth
 * for their caches. */
#define SETTLE_S 0.015
/* A search looks at each setting this long; three windows of 15 ms rank settings that differ by 2 % or more. */
#define SCAN_WINDOWS 3u
#define SCAN_WINDOW_S 0.015
#define SCAN_SETTLE_S 0.01
#define BUFFER_BYTES_MAX (1ull << 40)
/* A window has so many entries of the log at least where chunks allow: what is interpolated at its edges stays below 2 %. */
#define LOG_PER_WINDOW 50

static struct {
	struct word_list groups;
	struct word_list mixes;
	struct u64_list buffer_bytes;
	struct u64_list streams;
	struct u64_list prefetch_bytes;
	struct word_list hints;
	struct u64_list visit_lines;
	struct word_list instructions;
	struct word_list shapes;
	struct u64_list delays;
	uint64_t keep_best;
	struct u64_list only;
	double telemetry_interval_s;
} options;

static const struct option table[] = {
	OPTION_ROW_REPEATED(
		"--group", &options.groups, "CPULIST@NODE[*W,NODE*W...][:B][+...]",
		"one thread per CPU, its buffers on that node; the parts of a group run together, groups one "
		"after another; *W: pages on several nodes by weights, without weights by the kernel's; :B: the "
		"size of a part's arrays in place of --buffer-bytes"),
	OPTION_ROW_WORDS("--mix", &options.mixes, LOAD_MIX_CHOICES, NULL, "traffic"),
	/* From one page, so that every cache level can be measured as memory is. */
	OPTION_ROW_LIST("--buffer-bytes", &options.buffer_bytes, "B[,B...]", NULL, 4096, BUFFER_BYTES_MAX,
	                "sizes of each array of each thread, one after another; a mix has up to three arrays"),
	/* Four streams keep four times as many page-bound prefetchers busy; one is what other tools print. */
	OPTION_ROW_LIST("--streams", &options.streams, "S[,S...]", "4", 1, LOAD_STREAMS_MAX,
	                "places of each array worked on in turn: 1, 2, 4 or 8"),
	/* Off by default: with four streams it changed less than the noise of a few percent where it was tried (two cores of
	 * an EPYC 7003 under a hypervisor, 512 to 4096), and with one or two it cost 4 to 16 % of reads. Other cores may
	 * differ, so the search of a platform tries it. */
	OPTION_ROW_LIST("--prefetch-bytes", &options.prefetch_bytes, "P[,P...]", "0", 0, LOAD_PREFETCH_BYTES_MAX,
	                "distance of software prefetches; 0: none"),
	OPTION_ROW_WORDS("--hint", &options.hints, LOAD_HINT_CHOICES, "t0", LOAD_HINT_HELP),
	OPTION_ROW_LIST("--visit-lines", &options.visit_lines, "L[,L...]", "0", 0, LOAD_VISIT_LINES_MAX, LOAD_VISIT_HELP),
	OPTION_ROW_WORDS(
		"--instruction", &options.instructions, LOAD_INSTRUCTION_CHOICES, "vector",
		"what moves a line: vectors, or for write_nt clzero, movdir64b, rep_stosb, dc_zva, for reads ldnp"),
	OPTION_ROW_OPTIONAL_REPEATED("--shape", &options.shapes, "MIX=S/P/HINT/L/INSTRUCTION",
	                             "settings of this mix, in place of those of the lists above but for delays"),
	OPTIONS_WIDTH,
	OPTION_ROW_LIST("--delay", &options.delays, "D[,D...]", "0", 0, 1000000,
	                "dependent additions, no-ops for line_reads and random_reads, after every four lines"),
	OPTIONS_PLACEMENTS,
	OPTION_ROW_U64("--windows", &common.windows, "N", "9", 1, 10000, "timed windows in each placement"),
	/* 100 ms hold hundreds of chunks and many refresh intervals, and nine of them still take less than a second. */
	OPTION_ROW_F64("--window-s", &common.window_s, "S", "0.1", 0, 3600, "length of a window"),
	OPTIONS_PAGES,
	OPTIONS_SEED("the order of points in each placement"),
	/* 0: no search. What it finds is to be measured by another command: the best of many looks is partly luck. */
	OPTION_ROW_U64(
		"--keep-best", &options.keep_best, "M", "0", 0, 1000,
		"only look at settings, briefly, and choose the best M and the best without delay for --only; of hints, lines "
		"and instructions the first of each is looked at with everything, others with what was best; 0: measure all"),
	OPTION_ROW_OPTIONAL_LIST(
		"--only", &options.only, "N[,N...]", 0, UINT32_MAX,
		"measure the settings of these numbers, counted from 0 by group, mix, size, streams, prefetch distance, hint, "
		"lines, instruction and delay, the last fastest"),
	/* 0: not at all. A reading takes tens of microseconds for each sensor, on the supervisor's CPU. */
	OPTION_ROW_F64("--telemetry-interval-s", &options.telemetry_interval_s, "S", "0", 0, 3600,
	               "seconds between readings of clock, energy and temperatures in the windows; 0: none"),
	OPTIONS_SAMPLE,
	OPTIONS_EVENT,
	OPTIONS_BACKGROUND,
};

struct placement {
	struct evidence evidence;
	double *window_rates;  /* lines of each array per tick, all threads */
	double *thread_rates;  /* the same of each thread, mean over the windows */
	struct cpu_list nodes; /* that buffers are spread over */
	uint64_t *shares;      /* pages of these buffers on each of them; NULL: none is spread */
	struct telemetry *telemetry;
};

struct point {
	const struct group *group;
	size_t buffer_bytes;
	struct load_shape shape;
	size_t search;   /* settings of one group, mix and size belong together */
	uint64_t number; /* of the setting, among all */
	uint64_t skew_ticks;
	struct error error;
	struct placement *placements;
	size_t wanted, count; /* placements */
	bool done;            /* nothing more is to be measured, be it for an error */
};

/* Values beyond the first of these three are looked at only beside what was found best. */
enum extra { EXTRA_HINT, EXTRA_VISIT, EXTRA_INSTRUCTION, EXTRAS };

/* A shape that may be measured, without its delay. */
struct candidate {
	struct load_shape shape;
	size_t base;          /* place of streams and prefetch distance among all pairs */
	size_t extra[EXTRAS]; /* places in their lists */
};

struct candidates {
	struct candidate *list;
	size_t count;
};

/* Settings of one group, mix and size. */
struct search {
	const struct group *group;
	const struct candidates *candidates;
	size_t buffer_bytes;
	uint64_t first; /* number of the first setting */
};

static struct {
	struct generator generator;
	struct candidates *mixes; /* in the order of --mix */
	struct search *searches;
	size_t search_count;
	struct point **points;
	size_t count;
	uint64_t *chosen; /* numbers of the settings that the search has chosen */
	size_t chosen_count;
	bool admitted; /* what is kept to the end was asked for */
} results;

/* --buffer-bytes says nothing to a group whose parts all have a size. */
static size_t sizes_of(const struct group *group)
{
	for (size_t i = 0; i < group->count; i++)
		if (!group->bytes[i])
			return options.buffer_bytes.count;
	return 1;
}

static void add_candidate(struct candidates *to, const struct candidate *candidate)
{
	to->list = reallocate(to->list, to->count + 1, sizeof(*to->list));
	to->list[to->count++] = *candidate;
}

/* A shape has to have kernels for every delay. */
static uint64_t longest_delay(void)
{
	uint64_t longest = 0;
	for (size_t i = 0; i < options.delays.count; i++)
		longest = options.delays.values[i] > longest ? options.delays.values[i] : longest;
	return longest;
}

static bool same_kernel(const struct load_shape *a, const struct load_shape *b)
{
	bool prefetch = load_fetches(a->mix) && (a->prefetch_bytes || b->prefetch_bytes);
	return a->streams == b->streams && load_visit_lines(a) == load_visit_lines(b) && a->instruction == b->instruction &&
	       (!prefetch || (a->prefetch_bytes == b->prefetch_bytes && a->hint == b->hint));
}

/* Whether an earlier one does the same: a hint or a distance without prefetches, or lines that are those of 0. */
static bool is_there(const struct candidates *candidates, const struct load_shape *shape)
{
	for (size_t i = 0; i < candidates->count; i++)
		if (same_kernel(&candidates->list[i].shape, shape))
			return true;
	return false;
}

/* Shapes from the lists of options. A mix has those that it has kernels for; with none at all, the reason is an error. */
static bool list_candidates(struct candidates *to, enum load_mix mix, struct error *error)
{
	size_t hints = options.hints.count, visits = options.visit_lines.count, kinds = options.instructions.count;
	size_t pairs = options.streams.count * options.prefetch_bytes.count, each = hints * visits * kinds;
	struct error unknown = {0};
	for (size_t i = 0; i < pairs * each; i++) {
		struct candidate candidate = {.base = i / each,
		                              .extra = {i % each / visits / kinds, i / kinds % visits, i % kinds}};
		struct load_shape *shape = &candidate.shape;
		*shape = (struct load_shape){
			.mix = mix,
			.streams = (unsigned)options.streams.values[candidate.base / options.prefetch_bytes.count],
			.prefetch_bytes = options.prefetch_bytes.values[candidate.base % options.prefetch_bytes.count],
			.visit_lines = (unsigned)options.visit_lines.values[candidate.extra[EXTRA_VISIT]],
			.delay = longest_delay()};
		load_hint_parse(options.hints.words[candidate.extra[EXTRA_HINT]], &shape->hint);
		load_instruction_parse(options.instructions.words[candidate.extra[EXTRA_INSTRUCTION]], &shape->instruction);
		if (!load_numbers_good(shape, options.buffer_bytes.values[0], error))
			return false;
		bool known = load_shape_known(shape, &unknown);
		if (known && !is_there(to, shape))
			add_candidate(to, &candidate);
		/* Single values are meant for every mix; of several, a mix has those that it can have. */
		if (!known && each == 1)
			break;
	}
	if (to->count && (each > 1 || unknown.code == ERROR_NONE))
		return true;
	*error = unknown;
	return false;
}

/* The shapes of each mix: its --shape rows, or those of the lists. */
static bool prepare_candidates(struct error *error)
{
	size_t used = 0;
	results.mixes = allocate(options.mixes.count, sizeof(*results.mixes));
	for (size_t k = 0; k < options.mixes.count; k++) {
		enum load_mix mix;
		load_mix_parse(options.mixes.words[k], &mix);
		for (size_t i = 0; i < options.shapes.count; i++) {
			struct candidate candidate = {.base = i};
			if (!load_shape_parse(options.shapes.words[i], &candidate.shape, error))
				return false;
			candidate.shape.delay = longest_delay();
			if (candidate.shape.mix != mix)
				continue;
			if (!load_numbers_good(&candidate.shape, options.buffer_bytes.values[0], error) ||
			    !load_shape_known(&candidate.shape, error))
				return false;
			add_candidate(&results.mixes[k], &candidate);
			used++;
		}
		if (!results.mixes[k].count && !list_candidates(&results.mixes[k], mix, error))
			return false;
	}
	return used == options.shapes.count || error_set(error, ERROR_USAGE, "--shape: of a mix that is not in --mix");
}

static size_t settings_of(size_t mix)
{
	return results.mixes[mix].count * options.delays.count;
}

/* Whether settings are only looked at. */
static bool is_search(void)
{
	return options.keep_best > 0;
}

static uint64_t windows(void)
{
	return is_search() ? SCAN_WINDOWS : common.windows;
}

static double window_s(void)
{
	return is_search() ? SCAN_WINDOW_S : common.window_s;
}

static bool prepare_only(struct error *error)
{
	uint64_t count = 0;
	if (is_search() && options.only.count)
		return error_set(error, ERROR_USAGE, "--only: not with --keep-best");
	for (size_t i = 0; i < options.groups.count; i++)
		for (size_t k = 0; k < options.mixes.count; k++)
			count += sizes_of(&results.generator.groups[i]) * settings_of(k);
	for (size_t i = 0; i < options.only.count; i++) {
		uint64_t number = options.only.values[i];
		if (number >= count || (i > 0 && number <= options.only.values[i - 1]))
			return error_set(error, ERROR_USAGE, "--only: must be rising numbers of the %llu settings from 0, not %llu",
			                 (unsigned long long)count, (unsigned long long)number);
	}
	return true;
}

/* Whether every part's size is one that arrays can have, and those of --buffer-bytes. */
static bool sizes_good(struct error *error)
{
	for (size_t i = 0; i < options.buffer_bytes.count; i++)
		if (!option_multiple("--buffer-bytes", options.buffer_bytes.values[i], 4096, error))
			return false;
	for (size_t g = 0; g < results.generator.group_count; g++)
		for (size_t i = 0; i < results.generator.groups[g].count; i++) {
			size_t bytes = results.generator.groups[g].bytes[i];
			if (bytes % 4096 || (uint64_t)bytes > BUFFER_BYTES_MAX)
				return error_set(error, ERROR_USAGE, "--group: must be a multiple of 4096 up to %llu: '%s'",
				                 BUFFER_BYTES_MAX, options.groups.words[g]);
		}
	return true;
}

static bool group_sizes_known(enum load_mix mix, const struct group *group, size_t common_bytes, struct error *error)
{
	for (size_t i = 0; i < group->count; i++)
		if (!load_size_known(mix, generator_thread_bytes(group, i, common_bytes), error))
			return false;
	return true;
}

/* Whether every size, common or of a part, is one that the mixes can have. */
static bool prepare_sizes(struct error *error)
{
	for (size_t k = 0; k < options.mixes.count; k++) {
		enum load_mix mix = results.mixes[k].list[0].shape.mix;
		for (size_t s = 0; s < options.buffer_bytes.count; s++) {
			size_t common_bytes = options.buffer_bytes.values[s];
			if (!load_size_known(mix, common_bytes, error))
				return false;
			for (size_t g = 0; g < results.generator.group_count; g++)
				if (!group_sizes_known(mix, &results.generator.groups[g], common_bytes, error))
					return false;
		}
	}
	return true;
}

static bool prepare(struct error *error)
{
	for (size_t i = 0; i < options.groups.count; i++)
		if (!generator_parse_group(&results.generator, options.groups.words[i], true, error))
			return false;
	return sizes_good(error) && prepare_candidates(error) && prepare_sizes(error) && prepare_only(error) &&
	       option_positive("--window-s", common.window_s, error) &&
	       common_parse(false, &results.generator.sampled, &results.generator.pmu, error);
}

static void add_point(size_t number, const struct candidate *candidate, uint64_t delay)
{
	const struct search *search = &results.searches[number];
	struct point *point = allocate(1, sizeof(*point));
	size_t place = 0;
	while (options.delays.values[place] != delay)
		place++;
	point->group = search->group;
	point->shape = candidate->shape;
	point->shape.delay = delay;
	point->search = number;
	point->number = search->first + (uint64_t)(candidate - search->candidates->list) * options.delays.count + place;
	point->buffer_bytes = search->buffer_bytes;
	point->wanted = is_search() ? 1 : common.placements;
	point->placements = allocate(point->wanted, sizeof(*point->placements));
	generator_need(&results.generator, search->group, load_mixes[point->shape.mix].arrays, search->buffer_bytes);
	results.points = reallocate(results.points, results.count + 1, sizeof(*results.points));
	results.points[results.count++] = point;
}

/* Cuts the windows out of the last run and keeps them as the next placement of the point. */
static void keep_run(struct point *point, uint64_t seed)
{
	struct generator *generator = &results.generator;
	struct placement *placement = &point->placements[point->count];
	struct evidence *evidence = &placement->evidence;
	placement->window_rates = allocate(windows(), sizeof(double));
	placement->thread_rates = allocate(point->group->count, sizeof(double));
	generator_add_rates(generator, placement->window_rates, placement->thread_rates, windows(),
	                    window_s() * clock_now_used.hz);
	generator_take_evidence(generator, evidence);
	placement->shares = generator_shares(generator, &placement->nodes);
	evidence->seed = seed;
	evidence->counters = pmu_take(generator->pmu, PMU_ALL, generator_progress, generator);
	uint64_t skew = generator_start_skew(generator);
	if (skew > point->skew_ticks)
		point->skew_ticks = skew;
	point->count++;
}

/* What is read meanwhile is the placement's, kept or not. */
static void open_telemetry(struct point *point, double windows_s)
{
	struct generator *generator = &results.generator;
	generator->telemetry = NULL;
	if (options.telemetry_interval_s <= 0 || is_search())
		return;
	generator->telemetry_interval_s = options.telemetry_interval_s;
	generator->telemetry = telemetry_open(&point->group->cpus, (size_t)(windows_s / options.telemetry_interval_s) + 2);
	point->placements[point->count].telemetry = generator->telemetry;
}

/* One run, and the proof of its work; false with the reason, and nothing kept of it, where either could not be. */
static bool measure_point(struct point *point, uint64_t seed, struct error *error)
{
	struct generator *generator = &results.generator;
	double settle_s = is_search() ? SCAN_SETTLE_S : SETTLE_S, windows_s = window_s() * (double)windows();
	size_t complete = point->count;
	if (stop_error(error) || !load_instruction_there(point->shape.instruction, error) ||
	    !generator_select(generator, point->group, &point->shape, point->buffer_bytes, error))
		return false;
	supervise_avoid(&point->group->cpus);
	open_telemetry(point, windows_s);
	bool good = generator_run_windows(generator, settle_s, windows_s, error);
	if (good)
		keep_run(point, seed);
	/* Whatever became of the run, the next one needs the buffers as they were; told to stop, there is none. */
	struct error wrong = {0};
	if ((good || !stop_requested()) && generator_alive(generator) && !generator_prove(generator, &wrong)) {
		*error = wrong;
		good = false;
	}
	if (!good)
		point->count = complete;
	return good;
}

/* Nothing more of a point: it has its error, unless it was only told to stop and has something to show. */
static void end_point(struct point *point, const struct error *error)
{
	point->done = true;
	if (!error_is_stop(error) || point->count == 0)
		point->error = *error;
}

/* Values of hints, lines and instructions beyond the first. */
static size_t extra_values(void)
{
	return options.hints.count + options.visit_lines.count + options.instructions.count - EXTRAS;
}

/* The placements of all points. */
static void demand_results(struct demand *demand)
{
	for (size_t i = 0; i < results.count; i++) {
		const struct point *point = results.points[i];
		/* A point of a search stands for those looked at after it. */
		uint64_t numbers = 2 * windows() + point->group->count, points = is_search() ? 1 + extra_values() : 1;
		uint64_t runs = points * point->wanted;
		demand_other(demand, sizeof(*point), points);
		demand_other(demand, sizeof(*point->placements), runs);
		demand_other(demand, numbers * sizeof(double), runs);
		snapshots_demand(&point->group->cpus, 2 * runs, demand);
		demand_document(demand, runs * (numbers + EVIDENCE_NUMBERS));
	}
}

/* Asks for everything; where a node has too little, for what is left without it. */
static bool admit(struct error *error)
{
	struct generator *generator = &results.generator;
	generator->log_every_s = window_s() / LOG_PER_WINDOW;
	generator_begin(generator);
	for (;;) {
		struct error refused = {0};
		struct demand demand = {.pages = generator->chosen, .again = results.admitted};
		if (!demand.again)
			demand_results(&demand);
		generator_demand(generator, SETTLE_S + window_s() * (double)windows(), &demand);
		if (generator_admit(generator, &demand, &refused)) {
			results.admitted = true;
			return true;
		}
		if (demand.refused_node < 0 || !generator_refuse(generator, (unsigned)demand.refused_node, &refused)) {
			*error = refused;
			return false;
		}
	}
}

static double scanned_rate(const struct point *point)
{
	return statistics_median(point->placements[0].window_rates, windows());
}

/* The best of what was looked at of a candidate; NULL where that gave nothing. */
static const struct point *look_at(size_t search, size_t candidate)
{
	const struct point *best = NULL;
	uint64_t first = results.searches[search].first + candidate * options.delays.count;
	for (size_t i = 0; i < results.count; i++) {
		const struct point *point = results.points[i];
		if (point->search == search && point->number >= first && point->number < first + options.delays.count &&
		    point->error.code == ERROR_NONE && point->count && (!best || scanned_rate(point) > scanned_rate(best)))
			best = point;
	}
	return best;
}

static unsigned extras_of(const struct candidate *candidate)
{
	unsigned extras = 0;
	for (unsigned i = 0; i < EXTRAS; i++)
		extras += candidate->extra[i] > 0;
	return extras;
}

/* The place of `candidate` without that extra; the count of all where there is none. */
static size_t without(const struct candidates *candidates, const struct candidate *candidate, unsigned extra)
{
	for (size_t i = 0; i < candidates->count; i++) {
		const struct candidate *other = &candidates->list[i];
		bool same = other->base == candidate->base && other->extra[extra] == 0;
		for (unsigned k = 0; k < EXTRAS; k++)
			same = same && (k == extra || other->extra[k] == candidate->extra[k]);
		if (same)
			return i;
	}
	return candidates->count;
}

static const struct point *best_look(size_t search)
{
	const struct point *best = NULL;
	for (size_t i = 0; i < results.searches[search].candidates->count; i++) {
		const struct point *look = look_at(search, i);
		if (look && (!best || scanned_rate(look) > scanned_rate(best)))
			best = look;
	}
	return best;
}

/* Whether it is looked at already, or will be. */
static bool is_point(size_t search, const struct candidate *candidate)
{
	for (size_t i = 0; i < results.count; i++)
		if (results.points[i]->search == search && same_kernel(&results.points[i]->shape, &candidate->shape))
			return true;
	return false;
}

/* Adds a look at one value of an extra: beside the best of what was looked at without it, with so many extras. */
static void add_neighbours(size_t number, unsigned extra, size_t value, unsigned extras)
{
	const struct candidates *candidates = results.searches[number].candidates;
	const struct point *best = NULL;
	size_t chosen = 0;
	for (size_t i = 0; i < candidates->count; i++) {
		const struct candidate *candidate = &candidates->list[i];
		if (candidate->extra[extra] != value || extras_of(candidate) != extras)
			continue;
		size_t base = without(candidates, candidate, extra);
		const struct point *look = base < candidates->count ? look_at(number, base) : NULL;
		if (look && (!best || scanned_rate(look) > scanned_rate(best))) {
			best = look;
			chosen = i;
		}
	}
	/* With one extra, each is tried where it does best; with more, only on top of what is best of all. */
	if (best && (extras == 1 || best == best_look(number)) && !is_point(number, &candidates->list[chosen]))
		add_point(number, &candidates->list[chosen], best->shape.delay);
}

/* Looks at what has so many extras. */
static void add_looks(unsigned extras)
{
	const size_t counts[EXTRAS] = {options.hints.count, options.visit_lines.count, options.instructions.count};
	for (size_t i = 0; i < results.search_count; i++)
		for (unsigned extra = 0; extra < EXTRAS; extra++)
			for (size_t value = 1; value < counts[extra]; value++)
				add_neighbours(i, extra, value, extras);
}

static void measure_in_order(struct point *const *points, size_t count, uint64_t seed)
{
	uint32_t *order = random_order(count, seed);
	for (size_t i = 0; i < count; i++) {
		struct error found = {0};
		if (!measure_point(points[order[i]], seed, &found))
			end_point(points[order[i]], &found);
	}
	free(order);
}

/* One placement: buffers mapped and filled once, and every point that is not done measured on them, in a random order, so
 * that drift and warmth do not follow the setting; in a search also looks that follow from these. A thread that could not
 * be pinned, or a buffer that did not stay in place, is wrong with the points that use it. */
static void measure_placement(struct point **points, size_t count, uint64_t seed)
{
	struct generator *generator = &results.generator;
	struct error error = {0};
	size_t added = results.count;
	bool opened = !stop_error(&error) && admit(&error);
	if (opened) {
		pmu_threads(generator->pmu, generator->count);
		opened = generator_open(generator, &error);
	}
	if (opened)
		measure_in_order(points, count, seed);
	for (unsigned extras = 1; opened && is_search() && extras <= EXTRAS && !stop_requested(); extras++) {
		size_t first = results.count;
		add_looks(extras);
		if (results.count == first)
			break;
		measure_in_order(results.points + first, results.count - first, random_derive(seed, extras, 0));
	}
	if (opened)
		generator_close(generator);
	for (size_t i = 0; i < count + results.count - added; i++) {
		struct point *point = i < count ? points[i] : results.points[added + i - count];
		struct error own = {0};
		if ((!generator_has(generator, point->group, &own) || !error_take(&own, &error)) && !point->done)
			end_point(point, &own);
	}
}

/* Measures all points until each has what was asked for. */
static void measure_points(void)
{
	size_t count = results.count;
	struct point **left = allocate(count, sizeof(*left));
	for (uint64_t number = 0;; number++) {
		size_t todo = 0;
		uint64_t seed = random_derive(common.seed, 0, number);
		for (size_t i = 0; i < count; i++) {
			struct point *point = results.points[i];
			if (!point->done && point->count < point->wanted)
				left[todo++] = point;
		}
		if (!todo)
			break;
		measure_placement(left, todo, seed);
	}
	free(left);
}

/* Marks the best `keep` of the scanned points, and the best without delay when there is one. */
static void choose_best(struct point *const *points, size_t count, uint64_t keep, bool *chosen)
{
	bool undelayed = false;
	for (uint64_t k = 0; k <= keep; k++) {
		size_t best = count;
		for (size_t i = 0; i < count; i++) {
			bool wanted = points[i]->error.code == ERROR_NONE && !chosen[i] &&
			              (k < keep || (!undelayed && points[i]->shape.delay == 0));
			if (wanted && (best == count || scanned_rate(points[i]) > scanned_rate(points[best])))
				best = i;
		}
		if (best == count)
			return;
		chosen[best] = true;
		undelayed = undelayed || points[best]->shape.delay == 0;
	}
}

static bool is_wanted(uint64_t number)
{
	bool wanted = options.only.count == 0;
	for (size_t i = 0; i < options.only.count; i++)
		wanted = wanted || options.only.values[i] == number;
	return wanted;
}

/* The settings of a group, mix and size; in a search those with extras follow from looks at the others. */
static void add_settings(size_t number)
{
	const struct search *search = &results.searches[number];
	for (size_t i = 0; i < search->candidates->count; i++)
		for (size_t d = 0; d < options.delays.count; d++)
			if (is_wanted(search->first + i * options.delays.count + d) &&
			    (!is_search() || extras_of(&search->candidates->list[i]) == 0))
				add_point(number, &search->candidates->list[i], options.delays.values[d]);
}

static int by_number(const void *a, const void *b)
{
	const struct point *const *left = a, *const *right = b;
	return (*left)->number<(*right)->number ? -1 : (*left)->number>(*right)->number;
}

/* Chooses the best of the settings of a search, in their order. */
static void choose(size_t number)
{
	struct point **points = allocate(results.count, sizeof(*points));
	bool *chosen = allocate(results.count, sizeof(*chosen));
	size_t count = 0;
	for (size_t i = 0; i < results.count; i++)
		if (results.points[i]->search == number)
			points[count++] = results.points[i];
	qsort(points, count, sizeof(struct point *), by_number);
	choose_best(points, count, options.keep_best, chosen);
	for (size_t i = 0; i < count; i++)
		if (chosen[i]) {
			results.chosen = reallocate(results.chosen, results.chosen_count + 1, sizeof(*results.chosen));
			results.chosen[results.chosen_count++] = points[i]->number;
		}
	free(chosen);
	free(points);
}

/* Measures the points of every group, mix and size, or looks at them on one placement. */
static void measure_all(void)
{
	uint64_t number = 0;
	for (size_t i = 0; i < options.groups.count; i++) {
		size_t sizes = sizes_of(&results.generator.groups[i]);
		for (size_t k = 0; k < options.mixes.count * sizes; k++) {
			results.searches = reallocate(results.searches, results.search_count + 1, sizeof(*results.searches));
			results.searches[results.search_count++] =
				(struct search){.group = &results.generator.groups[i],
				                .candidates = &results.mixes[k / sizes],
				                .buffer_bytes = options.buffer_bytes.values[k % sizes],
				                .first = number};
			number += settings_of(k / sizes);
		}
	}
	for (size_t i = 0; i < results.search_count; i++)
		add_settings(i);
	measure_points();
	/* A search that was cut short chooses nothing. */
	for (size_t i = 0; is_search() && !stop_requested() && i < results.search_count; i++)
		choose(i);
}

/* MB/s, 1 MB = 10^6 bytes, from lines per tick. */
static double mb_s(double rate, unsigned bytes)
{
	return rate * bytes * clock_now_used.hz / 1e6;
}

static void placement_write(struct json *json, const struct point *point, const struct placement *placement)
{
	const struct evidence *evidence = &placement->evidence;
	double model = mb_s(1, load_model_bytes(point->shape.mix)), program = mb_s(1, load_program_bytes(point->shape.mix));
	evidence_begin_write(json, NULL, evidence);
	json_f64s(json, "windows_mb_s", placement->window_rates, windows(), model);
	json_f64s(json, "program_windows_mb_s", placement->window_rates, windows(), program);
	json_f64s(json, "per_thread_mb_s", placement->thread_rates, point->group->count, model);
	if (placement->shares) {
		json_object_begin(json, "node_pages");
		for (size_t i = 0; i < placement->nodes.count; i++) {
			char node[16];
			snprintf(node, sizeof(node), "%u", placement->nodes.cpus[i]);
			json_u64(json, node, placement->shares[i]);
		}
		json_object_end(json);
	}
	evidence_write(json, evidence, &point->group->cpus);
	telemetry_write(json, "telemetry", placement->telemetry);
	evidence_counted_write(json, evidence, results.generator.sampled);
	json_object_end(json);
}

/* Of the threads with the largest arrays. */
static size_t largest_bytes(const struct point *point)
{
	size_t largest = 0;
	for (size_t i = 0; i < point->group->count; i++) {
		size_t bytes = generator_thread_bytes(point->group, i, point->buffer_bytes);
		largest = bytes > largest ? bytes : largest;
	}
	return largest;
}

static void point_write(struct json *json, const struct point *point)
{
	bool good = point->error.code == ERROR_NONE;
	json_object_begin(json, NULL);
	json_text(json, "group", point->group->text);
	cpu_list_write(json, "cpus", &point->group->cpus);
	cpu_list_write(json, "nodes", &point->group->nodes);
	json_text(json, "mix", load_mixes[point->shape.mix].name);
	json_u64(json, "streams", point->shape.streams);
	json_u64(json, "prefetch_bytes", point->shape.prefetch_bytes);
	json_text(json, "hint", load_hint_name(&point->shape));
	json_u64(json, "visit_lines", load_visit_lines(&point->shape));
	json_text(json, "instruction", load_instruction_name(point->shape.instruction));
	json_text(json, "width", results.generator.width->name);
	json_u64(json, "delay", point->shape.delay);
	json_u64(json, "buffer_bytes", largest_bytes(point));
	json_u64(json, "threads", point->group->count);
	load_accounting_write(json, point->shape.mix);
	/* A run whose work was not proved is none. */
	json_bool(json, "checked", good && point->count > 0);
	json_f64_known(json, "start_skew_ns", good, clock_ns((double)point->skew_ticks));
	json_text(json, "stopped", good ? stopped_by(point->count, point->wanted) : NULL);
	error_write(json, &point->error);
	if (json_array_known(json, "placements", good)) {
		for (size_t i = 0; i < point->count; i++)
			placement_write(json, point, &point->placements[i]);
		json_array_end(json);
	}
	json_object_end(json);
}

static bool write_results(struct json *result, struct error *error)
{
	size_t failed = 0;
	json_object_begin(result, NULL);
	json_array_begin(result, "points");
	for (size_t i = 0; i < results.count; i++) {
		point_write(result, results.points[i]);
		failed += results.points[i]->error.code != ERROR_NONE;
	}
	json_array_end(result);
	if (json_known(result, "chosen", results.chosen_count > 0))
		json_u64s(result, "chosen", results.chosen, results.chosen_count);
	json_object_end(result);
	return error_of_parts(error, "point", failed, results.count, &results.points[0]->error);
}

static bool set_up(struct error *error)
{
	struct generator *generator = &results.generator;
	generator->width = load_width_find(common.width, error);
	if (!generator->width)
		return false;
	pmu_open(generator->pmu);
	generator->page_kind = page_kind_of(common.pages);
	pmu_background(generator->pmu, common.background_s);
	return true;
}

static bool measure(struct json *result, struct error *error)
{
	if (!set_up(error))
		return false;
	measure_all();
	clock_finish();
	return write_results(result, error);
}

SUBCOMMAND(bandwidth) = {
	"bandwidth", "what a group of CPUs moves to and from memory", SUBCOMMAND_OPTIONS(table), prepare, measure,
};
