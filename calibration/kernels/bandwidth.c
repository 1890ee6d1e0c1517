// SPDX-License-Identifier: Apache-2.0
/* Bandwidth: what a group of CPUs moves to and from memory in the windows when all of them were running. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "corefreq.h"
#include "course.h"
#include "csv.h"
#include "generator.h"
#include "load.h"
#include "memory.h"
#include "pmu.h"
#include "random.h"
#include "statistics.h"
#include "stopping.h"
#include "subcommand.h"

/* Time given to caches, page tables, prefetchers and the chunk length to settle before the first window. What the last run
 * left in a cache was read, and the rate steady, after 4 ms of two busy CPUs; 100 times as many have as much more bandwidth
 * for their caches. */
#define SETTLE_S 0.015
/* A search looks at each setting this long; three windows of 30 ms rank settings that differ by 2 % or more. */
#define SCAN_WINDOWS 3u
#define SCAN_WINDOW_S 0.03
#define SCAN_SETTLE_S 0.01
#define BUFFER_BYTES_MAX (1ull << 40)
/* In the document, beside the windows. */
#define NUMBERS_OF_PLACEMENT 100u
/* A window has so many entries of the log at least where chunks allow: what is interpolated at its edges stays below 2 %. */
#define LOG_PER_WINDOW 50

static struct {
	struct word_list groups;
	struct word_list mixes;
	struct u64_list buffer_bytes;
	struct u64_list streams;
	struct u64_list prefetch_bytes;
	const char *width;
	struct u64_list delays;
	uint64_t placements;
	uint64_t windows;
	double window_s;
	const char *pages;
	uint64_t seed;
	double budget_s;
	double target_half_width;
	uint64_t keep_best;
	double course_s;
	const char *sample;
	struct word_list events;
	double background_s;
	bool csv;
} options;

static const struct option table[] = {
	{"--group", OPTION_REPEATED, &options.groups, "CPULIST@NODE[+CPULIST@NODE...][:B]",
	 "one thread per CPU, its buffers on that node; the parts of a group run together, groups one after another; :B: "
	 "the "
	 "size of its arrays in place of --buffer-bytes",
	 NULL, NULL, 0, 0, false},
	{"--mix", OPTION_WORDS, &options.mixes, NULL, "traffic", NULL, LOAD_MIX_CHOICES, 0, 0, false},
	/* From one page, so that every cache level can be measured as memory is. */
	{"--buffer-bytes", OPTION_U64_LIST, &options.buffer_bytes, "B[,B...]",
	 "sizes of each array of each thread, one after another; a mix has up to three arrays", NULL, NULL, 4096,
	 BUFFER_BYTES_MAX, false},
	/* Four streams keep four times as many page-bound prefetchers busy; one is the plain figure other tools print. */
	{"--streams", OPTION_U64_LIST, &options.streams, "S[,S...]", "places of each array worked on in turn: 1, 2, 4 or 8",
	 "4", NULL, 1, LOAD_STREAMS_MAX, false},
	/* Off by default: with four streams it changed less than the noise of a few percent where it was tried (two cores of
	 * an EPYC 7003 under a hypervisor, 512 to 4096), and with one or two it cost 4 to 16 % of reads. Other cores may
	 * differ, so the search of a platform tries it. */
	{"--prefetch-bytes", OPTION_U64_LIST, &options.prefetch_bytes, "P[,P...]",
	 "distance of software prefetches; 0: none", "0", NULL, 0, 1u << 20, false},
	{"--width", OPTION_WORD, &options.width, NULL, "vector width; auto: the widest there is", "auto",
	 LOAD_WIDTH_CHOICES, 0, 0, false},
	{"--delay", OPTION_U64_LIST, &options.delays, "D[,D...]",
	 "dependent additions, no-ops for line_reads, after every four lines", "0", NULL, 0, 1000000, false},
	{"--placements", OPTION_U64, &options.placements, "K", "allocations, at least", "6", NULL, 1,
	 STOPPING_PLACEMENTS_MAX, false},
	{"--windows", OPTION_U64, &options.windows, "N", "timed windows in each placement", "9", NULL, 1, 10000, false},
	/* 100 ms hold hundreds of chunks and many refresh intervals, and nine of them still take less than a second. */
	{"--window-s", OPTION_F64, &options.window_s, "S", "length of a window", "0.1", NULL, 0, 3600, false},
	{"--pages", OPTION_WORD, &options.pages, NULL, "pages wanted", "auto", MEMORY_PAGE_CHOICES, 0, 0, false},
	{"--seed", OPTION_U64, &options.seed, "S", "seed of the order of points in each placement", "1", NULL, 0,
	 1ull << 53, false},
	{"--budget-s", OPTION_F64, &options.budget_s, "S",
	 "seconds for all points during which placements beyond K are added for those that miss the target; 0: just K", "0",
	 NULL, 0, 1000000, false},
	{"--target-half-width", OPTION_F64, &options.target_half_width, "R",
	 "relative half-width of the median's interval at which a point is converged", "0.01", NULL, 0, 1, false},
	/* 0: no search. What a search finds is measured again, because the best of many is partly luck. */
	{"--keep-best", OPTION_U64, &options.keep_best, "M",
	 "look at every setting briefly, then measure the best M and the best without delay; 0: measure every one", "0",
	 NULL, 0, 1000, false},
	/* 0: not at all. A reading takes tens of microseconds for each sensor, on the supervisor's CPU. */
	{"--course-s", OPTION_F64, &options.course_s, "S",
	 "seconds between readings of clock, energy and temperatures in the windows; 0: none", "0", NULL, 0, 3600, false},
	{"--sample", OPTION_TEXT, &options.sample, SAMPLES_NOTATION, SAMPLES_HELP, NULL, NULL, 0, 0, true},
	{"--event", OPTION_REPEATED, &options.events, PMU_NOTATION, PMU_EVENT_HELP, NULL, NULL, 0, 0, true},
	{"--background-s", OPTION_F64, &options.background_s, "S", PMU_BACKGROUND_HELP, PMU_BACKGROUND_DEFAULT, NULL, 0,
	 PMU_BACKGROUND_MAX, false},
	{"--csv", OPTION_FLAG, &options.csv, NULL,
	 "print rows in sc-membench's columns, one for each point measured in full, in place of the document", NULL, NULL,
	 0, 0, false},
};

struct placement {
	uint64_t seed;
	struct pages pages;
	bool verified;
	double *window_rates; /* lines of each array per tick, all threads */
	double *thread_rates; /* the same of each thread, mean over the windows */
	double core_before, core_after;
	struct thread_counts counts;
	struct snapshot before, after;
	struct samples samples;
	struct pmu_counts *counters;
	struct course *course;
};

struct point {
	const struct group *group;
	size_t buffer_bytes;
	struct generator_shape shape;
	bool scan;
	uint64_t windows;
	uint64_t skew_ticks;
	struct stopping stopping;
	struct error error;
	struct placement *placements;
	double medians[STOPPING_PLACEMENTS_MAX];
	size_t count;
	bool done; /* nothing more is to be measured, be it for an error */
};

static struct {
	struct generator generator;
	size_t *group_bytes; /* of each group's arrays; 0: those of --buffer-bytes */
	struct point **points;
	size_t count;
	const struct load_width *width;
	struct sample_request sampled;
	struct pmu *pmu;
	bool admitted; /* what is kept to the end was asked for */
} results;

static bool buffer_bytes_good(uint64_t bytes, struct error *error)
{
	return (bytes >= 4096 && bytes <= BUFFER_BYTES_MAX && bytes % 4096 == 0) ||
	       error_set(error, ERROR_USAGE,
	                 "--buffer-bytes, or the size of a --group: expected a multiple of 4096 up to %llu, found %llu",
	                 BUFFER_BYTES_MAX, (unsigned long long)bytes);
}

/* "0-3@0:65536": the threads, and the size of their arrays where it has one. */
static bool parse_group(struct generator *generator, const char *word, size_t *bytes, struct error *error)
{
	char *text = strdup(word), *size = text ? strchr(text, ':') : NULL;
	uint64_t value = 0;
	bool good = text || error_set(error, ERROR_INTERNAL, "no memory for the group %s", word);
	if (size) {
		*size++ = '\0';
		good = (options_u64(size, &value) && buffer_bytes_good(value, error)) ||
		       error_set(error, ERROR_USAGE, "expected CPULIST@NODE[+CPULIST@NODE...][:B], found '%s'", word);
	}
	good = good && generator_parse_group(generator, text, error);
	*bytes = value;
	free(text);
	return good;
}

static bool prepare(struct error *error)
{
	bool good = true;
	struct generator generator = {0};
	for (size_t i = 0, bytes; good && i < options.groups.count; i++)
		good = parse_group(&generator, options.groups.words[i], &bytes, error);
	generator_free(&generator);
	if (!good)
		return false;
	for (size_t i = 0; i < options.streams.count; i++)
		if (options.streams.values[i] & (options.streams.values[i] - 1))
			return error_set(error, ERROR_USAGE, "--streams: expected 1, 2, 4 or 8, found %llu",
			                 (unsigned long long)options.streams.values[i]);
	for (size_t i = 0; i < options.prefetch_bytes.count; i++)
		if (options.prefetch_bytes.values[i] % LOAD_LINE_BYTES)
			return error_set(error, ERROR_USAGE, "--prefetch-bytes: expected a multiple of %u, found %llu",
			                 LOAD_LINE_BYTES, (unsigned long long)options.prefetch_bytes.values[i]);
	for (size_t i = 0; i < options.buffer_bytes.count; i++)
		if (!buffer_bytes_good(options.buffer_bytes.values[i], error))
			return false;
	for (size_t i = 0; i < options.mixes.count * options.streams.count * options.prefetch_bytes.count; i++) {
		size_t rest = i / options.mixes.count;
		enum load_mix mix;
		if (load_mix_parse(options.mixes.words[i % options.mixes.count], &mix) &&
		    !load_shape_known(mix, options.streams.values[rest % options.streams.count],
		                      options.prefetch_bytes.values[rest / options.streams.count], error))
			return false;
	}
	if (options.window_s <= 0)
		return error_set(error, ERROR_USAGE, "--window-s: expected more than 0, found %g", options.window_s);
	if (options.sample && !sample_parse(options.sample, &results.sampled, error))
		return false;
	return pmu_parse(&options.events, false, error);
}

static struct point *add_point(const struct group *group, const struct generator_shape *shape, size_t buffer_bytes,
                               bool scan)
{
	struct point **grown = realloc(results.points, (results.count + 1) * sizeof(*grown));
	struct point *point = calloc(1, sizeof(*point));
	if (grown)
		results.points = grown;
	if (point)
		point->placements = calloc(STOPPING_PLACEMENTS_MAX, sizeof(*point->placements));
	if (!grown || !point || !point->placements) {
		free(point);
		return NULL;
	}
	point->group = group;
	point->shape = *shape;
	point->buffer_bytes = buffer_bytes;
	point->scan = scan;
	point->windows = scan ? SCAN_WINDOWS : options.windows;
	point->stopping = (struct stopping){.placements = scan ? 1 : options.placements,
	                                    .budget_s = scan ? 0 : options.budget_s,
	                                    .target = options.target_half_width};
	generator_need(&results.generator, group, generator_thread_bytes(shape->mix, buffer_bytes));
	results.points[results.count++] = point;
	return point;
}

/* Cuts the windows out of the last run and keeps them as the next placement of the point. */
static bool keep_run(struct point *point, uint64_t seed, struct error *error)
{
	struct generator *generator = &results.generator;
	const struct group *group = point->group;
	struct placement *placement = &point->placements[point->count];
	double window_s = point->scan ? SCAN_WINDOW_S : options.window_s;
	double window_ticks = window_s * clock_now_used.hz;
	uint64_t begin = generator->begins;
	placement->window_rates = calloc(point->windows, sizeof(double));
	placement->thread_rates = calloc(group->count, sizeof(double));
	if (!placement->window_rates || !placement->thread_rates)
		return error_set(error, ERROR_INTERNAL, "no memory for %llu windows", (unsigned long long)point->windows);
	for (size_t t = 0; t < group->count; t++) {
		const struct generator_thread *thread = &generator->threads[group->threads[t]];
		double last = generator_lines_at(thread, begin);
		placement->thread_rates[t] = -last;
		for (uint64_t i = 0; i < point->windows; i++) {
			double next = generator_lines_at(thread, begin + (uint64_t)(window_ticks * (double)(i + 1)));
			placement->window_rates[i] += (next - last) / window_ticks;
			last = next;
		}
		placement->thread_rates[t] = (placement->thread_rates[t] + last) / (window_ticks * (double)point->windows);
	}
	placement->seed = seed;
	placement->pages = generator_pages(generator);
	placement->verified = generator_verified(generator);
	placement->core_before = generator_core_before(generator);
	placement->core_after = generator_core_after(generator);
	placement->counts = generator_counts(generator);
	placement->before = generator->before;
	placement->after = generator->after;
	/* The snapshots' rows are this placement's now; their CPU list lives as long as the point. */
	placement->before.cpus = placement->after.cpus = &group->cpus;
	generator->before = generator->after = (struct snapshot){0};
	placement->samples = generator->samples;
	generator->samples = (struct samples){0};
	if (!pmu_take(generator->pmu, PMU_ALL, generator_progress, generator, &placement->counters, error))
		return false;
	uint64_t skew = generator_start_skew(generator);
	if (skew > point->skew_ticks)
		point->skew_ticks = skew;
	point->medians[point->count++] = statistics_median(placement->window_rates, point->windows);
	return true;
}

/* What is read meanwhile is the placement's, kept or not. */
static bool open_course(struct point *point, double windows_s, struct error *error)
{
	struct generator *generator = &results.generator;
	struct course **course = &point->placements[point->count].course;
	generator->course = NULL;
	if (options.course_s <= 0 || point->scan)
		return true;
	generator->course_s = options.course_s;
	*course = generator->course = course_open(&point->group->cpus, (size_t)(windows_s / options.course_s) + 2, error);
	return *course != NULL;
}

/* One run, and the proof of its work; false with the reason, and nothing kept of it, where either could not be. */
static bool measure_point(struct point *point, uint64_t seed, struct error *error)
{
	struct generator *generator = &results.generator;
	double settle_s = point->scan ? SCAN_SETTLE_S : SETTLE_S;
	double windows_s = (point->scan ? SCAN_WINDOW_S : options.window_s) * (double)point->windows;
	size_t complete = point->count;
	if (stop_error(error) || !generator_select(generator, point->group, &point->shape, point->buffer_bytes, error))
		return false;
	supervise_avoid(&point->group->cpus);
	generator->log_every_s = (point->scan ? SCAN_WINDOW_S : options.window_s) / LOG_PER_WINDOW;
	bool good = open_course(point, windows_s, error) && generator_run_windows(generator, settle_s, windows_s, error) &&
	            keep_run(point, seed, error);
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
	bool stopped = error->code == ERROR_INTERRUPTED || error->code == ERROR_DEADLINE;
	point->done = true;
	if (stopped && point->count > 0)
		point->stopping.reason = "interrupted";
	else
		point->error = *error;
}

/* The points in a random order, so that drift and warmth do not follow the setting. */
static void shuffle(struct point **points, size_t count, uint64_t seed)
{
	struct random random;
	random_seed(&random, seed);
	for (size_t i = count; i > 1; i--) {
		size_t k = random_below(&random, i);
		struct point *swapped = points[i - 1];
		points[i - 1] = points[k];
		points[k] = swapped;
	}
}

/* The placements of all points. */
static void keeps(struct demand *demand)
{
	uint64_t most = stopping_most(options.placements, options.budget_s);
	for (size_t i = 0; i < results.count; i++) {
		const struct point *point = results.points[i];
		/* A point that is only looked at may be measured in full as well. */
		uint64_t numbers = 2 * options.windows + point->group->count, runs = most + point->scan;
		demand_other(demand, sizeof(*point) + STOPPING_PLACEMENTS_MAX * sizeof(struct placement), 1 + point->scan);
		demand_other(demand, numbers * sizeof(double), runs);
		snapshots_demand(&point->group->cpus, 2 * runs, demand);
		demand_document(demand, runs * (numbers + NUMBERS_OF_PLACEMENT));
	}
}

/* Asks for everything; where a node has too little, for what is left without it. */
static bool admit(struct error *error)
{
	struct generator *generator = &results.generator;
	double window_s = options.window_s, windows_s = window_s * (double)options.windows;
	if (options.keep_best > 0) {
		windows_s = fmax(windows_s, SCAN_WINDOW_S * SCAN_WINDOWS);
		window_s = fmin(window_s, SCAN_WINDOW_S);
	}
	generator->log_every_s = window_s / LOG_PER_WINDOW;
	for (size_t i = 0; i < generator->buffer_count; i++)
		generator->buffers[i].error = (struct error){0};
	for (;;) {
		struct error refused = {0};
		struct demand demand = {.pages = generator->chosen, .again = results.admitted};
		if (!demand.again)
			keeps(&demand);
		generator_demand(generator, SETTLE_S + windows_s, &demand);
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

/* One placement: buffers mapped and filled once, and every point that is not done measured on them. What is wrong with the
 * threads is wrong with every point, and a buffer that did not stay in place with those that used it. */
static void measure_placement(struct point **points, size_t count, uint64_t seed)
{
	struct generator *generator = &results.generator;
	struct error error = {0}, wrong = {0};
	bool opened = !stop_error(&error) && admit(&error) && pmu_threads(results.pmu, generator->count, &error) &&
	              generator_open(generator, &error);
	for (size_t i = 0; opened && i < count; i++) {
		struct error found = {0};
		if (!measure_point(points[i], seed, &found))
			end_point(points[i], &found);
	}
	if (opened && !generator_close(generator, &wrong))
		error = wrong;
	for (size_t i = 0; i < count; i++) {
		struct error moved = error;
		bool good = error.code == ERROR_NONE && generator_has(generator, points[i]->group, &moved);
		if (!good && !points[i]->done)
			end_point(points[i], &moved);
	}
}

/* Measures `points` until each has what was asked for. */
static bool measure_points(struct point *const *points, size_t count)
{
	struct point **left = calloc(count + 1, sizeof(*left));
	if (!left)
		return false;
	for (size_t i = 0; i < count; i++)
		stopping_begin(&points[i]->stopping);
	for (uint64_t number = 0;; number++) {
		size_t todo = 0;
		uint64_t seed = random_derive(options.seed, 0, number);
		for (size_t i = 0; i < count; i++) {
			struct point *point = points[i];
			point->done =
				point->done || (point->count && stopping_done(&point->stopping, point->medians, point->count));
			if (!point->done)
				left[todo++] = point;
		}
		if (!todo)
			break;
		shuffle(left, todo, seed);
		measure_placement(left, todo, seed);
	}
	free(left);
	return true;
}

static double scanned_rate(const struct point *point)
{
	return statistics_median(point->placements[0].window_rates, point->windows);
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

/* Every setting of one mix; `scanned` where they are only looked at first. */
static bool add_settings(const struct group *group, enum load_mix mix, size_t buffer_bytes, bool scanned)
{
	for (size_t i = 0; i < options.streams.count * options.prefetch_bytes.count * options.delays.count; i++) {
		size_t rest = i / options.delays.count;
		struct generator_shape shape = {
			.mix = mix,
			.streams = (unsigned)options.streams.values[rest / options.prefetch_bytes.count],
			.prefetch_bytes = options.prefetch_bytes.values[rest % options.prefetch_bytes.count],
			.delay = options.delays.values[i % options.delays.count]};
		if (!add_point(group, &shape, buffer_bytes, scanned))
			return false;
	}
	return true;
}

/* Adds, to be measured in full, the best of `count` settings that were looked at. */
static bool add_best(size_t first, size_t count)
{
	bool *chosen = calloc(count, sizeof(*chosen)), good = chosen != NULL;
	if (good)
		choose_best(results.points + first, count, options.keep_best, chosen);
	for (size_t i = first; good && i < first + count; i++)
		if (chosen[i - first]) {
			const struct point *scanned = results.points[i];
			good = add_point(scanned->group, &scanned->shape, scanned->buffer_bytes, false) != NULL;
		}
	free(chosen);
	return good;
}

/* Adds the points of every group, mix and size. A search looks at every setting on one placement, then measures the best. */
static bool measure_all(void)
{
	size_t settings = options.streams.count * options.prefetch_bytes.count * options.delays.count;
	bool search = options.keep_best > 0 && settings > 1, good = true;
	for (size_t i = 0; good && i < options.groups.count; i++) {
		const struct group *group = &results.generator.groups[i];
		size_t sizes = results.group_bytes[i] ? 1 : options.buffer_bytes.count;
		for (size_t k = 0; good && k < options.mixes.count * sizes; k++) {
			enum load_mix mix;
			load_mix_parse(options.mixes.words[k / sizes], &mix);
			size_t bytes = results.group_bytes[i] ? results.group_bytes[i] : options.buffer_bytes.values[k % sizes];
			good = add_settings(group, mix, bytes, search);
		}
	}
	size_t first = results.count;
	good = good && measure_points(results.points, first);
	/* A search that was cut short chooses nothing. */
	if (!good || !search || stop_requested())
		return good;
	for (size_t i = 0; good && i < first; i += settings)
		good = add_best(i, settings);
	return good && measure_points(results.points + first, results.count - first);
}

static void numbers_write(struct json *json, const char *key, const struct cpu_list *list)
{
	json_array_begin(json, key);
	for (size_t i = 0; i < list->count; i++)
		json_u64(json, NULL, list->cpus[i]);
	json_array_end(json);
}

/* MB/s, 1 MB = 10^6 bytes, from lines per tick. */
static double mb_s(double rate, unsigned bytes)
{
	return rate * bytes * clock_now_used.hz / 1e6;
}

static void rates_write(struct json *json, const char *key, const double *rates, size_t count, unsigned bytes)
{
	json_array_begin(json, key);
	for (size_t i = 0; i < count; i++)
		json_f64(json, NULL, mb_s(rates[i], bytes));
	json_array_end(json);
}

static void placement_write(struct json *json, const struct point *point, const struct placement *placement)
{
	unsigned model = load_model_bytes(point->shape.mix);
	json_object_begin(json, NULL);
	json_u64(json, "seed", placement->seed);
	pages_write(json, "pages", &placement->pages);
	json_bool(json, "cpus_verified", placement->verified);
	rates_write(json, "windows_mb_s", placement->window_rates, point->windows, model);
	rates_write(json, "program_windows_mb_s", placement->window_rates, point->windows,
	            load_program_bytes(point->shape.mix));
	rates_write(json, "per_thread_mb_s", placement->thread_rates, point->group->count, model);
	json_f64(json, "core_hz_before", corefreq_hz(placement->core_before));
	json_f64(json, "core_hz_after", corefreq_hz(placement->core_after));
	interference_write(json, "interference", &placement->counts, &placement->before, &placement->after,
	                   &point->group->cpus);
	course_write(json, "course", placement->course);
	samples_write(json, "samples", options.sample ? &results.sampled : NULL, &placement->samples);
	pmu_counts_write(json, "counters", placement->counters);
	json_object_end(json);
}

static void point_write(struct json *json, const struct point *point)
{
	bool good = point->error.code == ERROR_NONE;
	json_object_begin(json, NULL);
	json_text(json, "group", point->group->text);
	numbers_write(json, "cpus", &point->group->cpus);
	numbers_write(json, "nodes", &point->group->nodes);
	json_text(json, "mix", load_mixes[point->shape.mix].name);
	json_u64(json, "streams", point->shape.streams);
	json_u64(json, "prefetch_bytes", point->shape.prefetch_bytes);
	json_text(json, "width", results.width->name);
	json_u64(json, "delay", point->shape.delay);
	json_u64(json, "buffer_bytes", point->buffer_bytes);
	json_text(json, "phase", point->scan ? "scan" : "full");
	json_u64(json, "threads", point->group->count);
	load_accounting_write(json, point->shape.mix);
	/* A run whose work was not proved is none. */
	json_bool(json, "checked", good && point->count > 0);
	if (good)
		json_f64(json, "start_skew_ns", clock_ns((double)point->skew_ticks));
	else
		json_null(json, "start_skew_ns");
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

/* sc-membench's names where it measures the same; ours for the others. */
static const char *operation_name(enum load_mix mix)
{
	return mix == MIX_READS ? "read" : load_mixes[mix].name;
}

/* Program bytes, a copy counted once, as sc-membench counts them; the median over all windows of all placements. */
static bool row_add(const struct point *point)
{
	enum load_mix mix = point->shape.mix;
	size_t windows = point->count * point->windows;
	double *rates = calloc(windows, sizeof(*rates)), lines = 0;
	if (!rates)
		return false;
	for (size_t i = 0; i < windows; i++) {
		rates[i] = point->placements[i / point->windows].window_rates[i % point->windows];
		lines += rates[i] * options.window_s * clock_now_used.hz;
	}
	unsigned bytes = load_program_bytes(mix) / (mix == MIX_COPY || mix == MIX_COPY_NT ? 2 : 1);
	csv_add(&(struct csv_row){
		.size_bytes = point->buffer_bytes,
		.operation = operation_name(mix),
		.bandwidth_mb_s = mb_s(statistics_median(rates, windows), bytes),
		.threads = point->group->count,
		.iterations = (uint64_t)(lines * LOAD_LINE_BYTES / (double)(point->group->count * point->buffer_bytes)),
		.elapsed_s = options.window_s * (double)windows,
	});
	free(rates);
	return true;
}

static bool write_rows(struct error *error)
{
	for (size_t i = 0; i < results.count; i++) {
		const struct point *point = results.points[i];
		if (point->error.code != ERROR_NONE)
			csv_lost(operation_name(point->shape.mix), &point->error);
		else if (!point->scan && !row_add(point))
			return error_set(error, ERROR_INTERNAL, "no memory for rows");
	}
	return true;
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
	json_object_end(result);
	if (failed < results.count)
		return true;
	const struct error *first = &results.points[0]->error;
	return error_set(error, first->code, "no point could be measured; the first: %s", first->message);
}

static void teardown(void)
{
	for (size_t i = 0; i < results.count; i++) {
		struct point *point = results.points[i];
		for (size_t k = 0; k < STOPPING_PLACEMENTS_MAX; k++) {
			free(point->placements[k].window_rates);
			free(point->placements[k].thread_rates);
			snapshot_free(&point->placements[k].before);
			snapshot_free(&point->placements[k].after);
			samples_free(&point->placements[k].samples);
			pmu_counts_free(point->placements[k].counters);
			course_free(point->placements[k].course);
		}
		free(point->placements);
		free(point);
	}
	free(results.points);
	generator_free(&results.generator);
	free(results.group_bytes);
	pmu_close(results.pmu);
}

static bool set_up(struct error *error)
{
	struct generator *generator = &results.generator;
	results.group_bytes = calloc(options.groups.count, sizeof(*results.group_bytes));
	if (!results.group_bytes)
		return error_set(error, ERROR_INTERNAL, "no memory for %zu groups", options.groups.count);
	for (size_t i = 0; i < options.groups.count; i++)
		if (!parse_group(generator, options.groups.words[i], &results.group_bytes[i], error))
			return false;
	results.width = generator->width = load_width_find(options.width, error);
	if (!results.width || !pmu_open(&results.pmu, &options.events, error))
		return false;
	page_kind_parse(options.pages, &generator->page_kind);
	generator->sampled = options.sample ? &results.sampled : NULL;
	generator->pmu = results.pmu;
	pmu_background(results.pmu, options.background_s);
	return true;
}

static bool measure(struct json *result, struct error *error)
{
	bool good = set_up(error);
	if (good)
		good = measure_all() || error_set(error, ERROR_INTERNAL, "no memory for points");
	clock_finish();
	good = good && write_results(result, error) && (!options.csv || write_rows(error));
	teardown();
	return good;
}

const struct subcommand bandwidth_subcommand = {
	.name = "bandwidth",
	.summary = "what a group of CPUs moves to and from memory",
	.options = table,
	.option_count = sizeof(table) / sizeof(table[0]),
	.prepare = prepare,
	.run = measure,
	.csv = &options.csv,
};
