// SPDX-License-Identifier: Apache-2.0
/* Bandwidth: what a group of CPUs moves to and from memory in the windows when all of them were running. */
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

/* Time given to page tables, prefetchers and the chunk length to settle before the first window. */
#define SETTLE_S 0.03
/* A search looks at each setting this long; three windows of 30 ms rank settings that differ by 2 % or more. */
#define SCAN_WINDOWS 3u
#define SCAN_WINDOW_S 0.03
#define SCAN_SETTLE_S 0.01
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
	{"--group", OPTION_REPEATED, &options.groups, "CPULIST@NODE[+CPULIST@NODE...]",
	 "one thread per CPU, its buffers on that node; the parts of a group run together, groups one after another", NULL,
	 NULL, 0, 0, false},
	{"--mix", OPTION_WORDS, &options.mixes, NULL, "traffic", NULL, LOAD_MIX_CHOICES, 0, 0, false},
	/* From one page, so that every cache level can be measured as memory is. */
	{"--buffer-bytes", OPTION_U64_LIST, &options.buffer_bytes, "B[,B...]",
	 "sizes of each array of each thread, one after another; a mix has up to three arrays", NULL, NULL, 4096,
	 1ull << 40, false},
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
	{"--seed", OPTION_U64, &options.seed, "S", "seed recorded with each placement", "1", NULL, 0, 1ull << 53, false},
	{"--budget-s", OPTION_F64, &options.budget_s, "S",
	 "seconds per point during which placements beyond K are added until the target is met; 0: just K", "0", NULL, 0,
	 1000000, false},
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
	const char *group;
	const struct cpu_list *cpus, *nodes;
	size_t threads;
	size_t buffer_bytes;
	struct generator_shape shape;
	bool scan;
	uint64_t windows;
	bool checked;
	uint64_t skew_ticks;
	struct stopping stopping;
	struct error error;
	struct placement *placements;
	size_t count;
};

static struct {
	struct point **points;
	size_t count;
	const struct load_width *width;
	struct sample_request sampled;
	struct pmu *pmu;
	bool admitted; /* what is kept to the end was asked for */
} results;

static bool prepare(struct error *error)
{
	for (size_t i = 0; i < options.groups.count; i++) {
		struct generator generator = {0};
		bool good = generator_parse_group(&generator, options.groups.words[i], error);
		generator_free(&generator);
		if (!good)
			return false;
	}
	for (size_t i = 0; i < options.streams.count; i++)
		if (options.streams.values[i] & (options.streams.values[i] - 1))
			return error_set(error, ERROR_USAGE, "--streams: expected 1, 2, 4 or 8, found %llu",
			                 (unsigned long long)options.streams.values[i]);
	for (size_t i = 0; i < options.prefetch_bytes.count; i++)
		if (options.prefetch_bytes.values[i] % LOAD_LINE_BYTES)
			return error_set(error, ERROR_USAGE, "--prefetch-bytes: expected a multiple of %u, found %llu",
			                 LOAD_LINE_BYTES, (unsigned long long)options.prefetch_bytes.values[i]);
	for (size_t i = 0; i < options.buffer_bytes.count; i++)
		if (options.buffer_bytes.values[i] % 4096)
			return error_set(error, ERROR_USAGE, "--buffer-bytes: expected a multiple of 4096, found %llu",
			                 (unsigned long long)options.buffer_bytes.values[i]);
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

static struct point *add_point(const struct generator *generator, const struct generator_shape *shape,
                               size_t buffer_bytes, bool scan)
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
	point->group = generator->group;
	point->cpus = &generator->cpus;
	point->nodes = &generator->nodes;
	point->threads = generator->count;
	point->shape = *shape;
	point->buffer_bytes = buffer_bytes;
	point->scan = scan;
	point->windows = scan ? SCAN_WINDOWS : options.windows;
	point->stopping = (struct stopping){.placements = scan ? 1 : options.placements,
	                                    .budget_s = scan ? 0 : options.budget_s,
	                                    .target = options.target_half_width};
	results.points[results.count++] = point;
	return point;
}

/* Cuts the windows out of the last run and keeps them as the next placement of the point. */
static bool keep_run(struct point *point, struct generator *generator, double window_s, struct error *error)
{
	struct placement *placement = &point->placements[point->count];
	double window_ticks = window_s * clock_now_used.hz;
	uint64_t begin = generator->begins;
	placement->window_rates = calloc(point->windows, sizeof(double));
	placement->thread_rates = calloc(generator->count, sizeof(double));
	if (!placement->window_rates || !placement->thread_rates)
		return error_set(error, ERROR_INTERNAL, "no memory for %llu windows", (unsigned long long)point->windows);
	for (size_t t = 0; t < generator->count; t++) {
		const struct generator_thread *thread = &generator->threads[t];
		double last = generator_lines_at(thread, begin);
		placement->thread_rates[t] = -last;
		for (uint64_t i = 0; i < point->windows; i++) {
			double next = generator_lines_at(thread, begin + (uint64_t)(window_ticks * (double)(i + 1)));
			placement->window_rates[i] += (next - last) / window_ticks;
			last = next;
		}
		placement->thread_rates[t] = (placement->thread_rates[t] + last) / (window_ticks * (double)point->windows);
	}
	placement->pages = generator->pages;
	placement->verified = generator_verified(generator);
	placement->core_before = generator_core_before(generator);
	placement->core_after = generator_core_after(generator);
	placement->counts = generator_counts(generator);
	placement->before = generator->before;
	placement->after = generator->after;
	/* The snapshots' rows are this placement's now; their CPU list lives as long as the point. */
	placement->before.cpus = placement->after.cpus = point->cpus;
	generator->before = generator->after = (struct snapshot){0};
	placement->samples = generator->samples;
	generator->samples = (struct samples){0};
	if (!pmu_take(generator->pmu, PMU_ALL, generator_progress, generator, &placement->counters, error))
		return false;
	uint64_t skew = generator_start_skew(generator);
	if (skew > point->skew_ticks)
		point->skew_ticks = skew;
	point->count++;
	return true;
}

static bool new_generator(struct generator *generator, const struct point *point, struct error *error)
{
	*generator = (struct generator){.shape = point->shape, .width = results.width, .buffer_bytes = point->buffer_bytes};
	page_kind_parse(options.pages, &generator->page_kind);
	generator->sampled = options.sample ? &results.sampled : NULL;
	generator->pmu = results.pmu;
	generator->log_every_s = options.window_s / LOG_PER_WINDOW;
	return generator_parse_group(generator, point->group, error) && pmu_threads(results.pmu, generator->count, error);
}

/* The placements of all points of all groups. */
static bool keeps(struct demand *demand, struct error *error)
{
	uint64_t shapes = options.streams.count * options.prefetch_bytes.count * options.delays.count;
	uint64_t points = options.mixes.count * options.buffer_bytes.count * shapes;
	uint64_t most = stopping_most(options.placements, options.budget_s) + (options.keep_best > 0);
	for (size_t i = 0; i < options.groups.count; i++) {
		struct generator group = {0};
		bool good = generator_parse_group(&group, options.groups.words[i], error);
		uint64_t numbers = 2 * options.windows + group.count;
		demand_other(demand, 2 * (sizeof(struct point) + STOPPING_PLACEMENTS_MAX * sizeof(struct placement)), points);
		demand_other(demand, numbers * sizeof(double), points * most);
		snapshots_demand(&group.cpus, 2 * points * most, demand);
		demand_document(demand, points * most * (numbers + NUMBERS_OF_PLACEMENT));
		generator_free(&group);
		if (!good)
			return false;
	}
	return true;
}

static bool open_generator(struct generator *generator, double seconds, struct error *error)
{
	struct demand demand = {.again = results.admitted};
	if (!demand.again && !keeps(&demand, error))
		return false;
	generator_demand(generator, generator_thread_bytes(generator->shape.mix, generator->buffer_bytes), seconds,
	                 &demand);
	if (!generator_admit(generator, &demand, error))
		return false;
	results.admitted = true;
	return generator_open(generator, error);
}

/* One placement, measured and proved; false with the reason, and nothing kept of it, where that could not be. */
static bool measure_placement(struct point *point, struct error *error)
{
	struct generator generator;
	if (stop_error(error) || !new_generator(&generator, point, error))
		return false;
	double windows_s = options.window_s * (double)point->windows;
	bool good = true;
	if (options.course_s > 0) {
		generator.course_s = options.course_s;
		generator.course = course_open(point->cpus, (size_t)(windows_s / options.course_s) + 2, error);
		point->placements[point->count].course = generator.course;
		good = generator.course != NULL;
	}
	good = good && open_generator(&generator, SETTLE_S + windows_s, error);
	if (good) {
		good = generator_run_windows(&generator, SETTLE_S, windows_s, error);
		if (good) {
			point->placements[point->count].seed = random_derive(options.seed, 0, point->count);
			good = keep_run(point, &generator, options.window_s, error);
		}
		good = generator_close(&generator, error) && good;
	}
	generator_free(&generator);
	return good;
}

static void measure_full(struct point *point)
{
	double medians[STOPPING_PLACEMENTS_MAX];
	stopping_begin(&point->stopping);
	do {
		struct error error = {0};
		size_t complete = point->count;
		point->checked = measure_placement(point, &error);
		if (!point->checked) {
			/* Told to stop: what was complete before is as good as ever. */
			bool stopped = error.code == ERROR_INTERRUPTED || error.code == ERROR_DEADLINE;
			point->count = complete;
			if (stopped && complete > 0) {
				point->checked = true;
				point->stopping.reason = "interrupted";
			} else {
				point->error = error;
			}
			return;
		}
		medians[point->count - 1] = statistics_median(point->placements[point->count - 1].window_rates, point->windows);
	} while (!stopping_done(&point->stopping, medians, point->count));
}

/* Looks at every setting on one set of buffers. False when the search could not be made; the points say why. */
static bool scan(struct point **points, size_t count)
{
	struct generator generator;
	struct error error = {0};
	size_t done = 0;
	bool good = new_generator(&generator, points[0], &error);
	generator.log_every_s = SCAN_WINDOW_S / LOG_PER_WINDOW;
	good = good && open_generator(&generator, SCAN_SETTLE_S + SCAN_WINDOW_S * SCAN_WINDOWS, &error);
	if (good) {
		for (; good && done < count; done += good) {
			generator_reshape(&generator, &points[done]->shape);
			good = generator_run_windows(&generator, SCAN_SETTLE_S, SCAN_WINDOW_S * SCAN_WINDOWS, &error);
			if (good) {
				points[done]->placements[0].seed = random_derive(options.seed, 0, 0);
				good = keep_run(points[done], &generator, SCAN_WINDOW_S, &error);
			}
			points[done]->stopping.reason = "placements";
		}
		/* Told to stop, the settings looked at before are as good as ever, once their work is proved. */
		struct error wrong = {0};
		bool proved = generator_close(&generator, &wrong), stopped = false;
		if (!good)
			stopped = error.code == ERROR_INTERRUPTED || error.code == ERROR_DEADLINE;
		if (!proved)
			error = wrong;
		if (!proved || (!good && !stopped))
			done = 0;
		good = good && proved;
	}
	generator_free(&generator);
	for (size_t i = 0; i < count; i++) {
		points[i]->checked = i < done;
		if (i >= done)
			points[i]->error = error;
	}
	return good;
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
			bool wanted = !chosen[i] && (k < keep || (!undelayed && points[i]->shape.delay == 0));
			if (wanted && (best == count || scanned_rate(points[i]) > scanned_rate(points[best])))
				best = i;
		}
		if (best == count)
			return;
		chosen[best] = true;
		undelayed = undelayed || points[best]->shape.delay == 0;
	}
}

static bool measure_mix(struct generator *group, enum load_mix mix, size_t buffer_bytes, struct error *error)
{
	size_t count = options.streams.count * options.prefetch_bytes.count * options.delays.count;
	struct generator_shape *shapes = calloc(count, sizeof(*shapes));
	struct point **scanned = calloc(count, sizeof(*scanned));
	bool *chosen = calloc(count, sizeof(*chosen));
	bool search = options.keep_best > 0 && count > 1, good = shapes && scanned && chosen;
	for (size_t i = 0; good && i < count; i++) {
		size_t rest = i / options.delays.count;
		shapes[i] = (struct generator_shape){
			.mix = mix,
			.streams = (unsigned)options.streams.values[rest / options.prefetch_bytes.count],
			.prefetch_bytes = options.prefetch_bytes.values[rest % options.prefetch_bytes.count],
			.delay = options.delays.values[i % options.delays.count]};
		chosen[i] = !search;
		if (search)
			good = (scanned[i] = add_point(group, &shapes[i], buffer_bytes, true)) != NULL;
	}
	bool ranked = good && search && scan(scanned, count);
	if (ranked)
		choose_best(scanned, count, options.keep_best, chosen);
	for (size_t i = 0; good && i < count; i++) {
		if (!chosen[i])
			continue;
		struct point *point = add_point(group, &shapes[i], buffer_bytes, false);
		good = point != NULL;
		if (good)
			measure_full(point);
	}
	free(shapes);
	free(scanned);
	free(chosen);
	return good || error_set(error, ERROR_INTERNAL, "no memory for points");
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
	rates_write(json, "per_thread_mb_s", placement->thread_rates, point->threads, model);
	json_f64(json, "core_hz_before", corefreq_hz(placement->core_before));
	json_f64(json, "core_hz_after", corefreq_hz(placement->core_after));
	interference_write(json, "interference", &placement->counts, &placement->before, &placement->after, point->cpus);
	course_write(json, "course", placement->course);
	samples_write(json, "samples", options.sample ? &results.sampled : NULL, &placement->samples);
	pmu_counts_write(json, "counters", placement->counters);
	json_object_end(json);
}

static void point_write(struct json *json, const struct point *point)
{
	bool good = point->error.code == ERROR_NONE;
	json_object_begin(json, NULL);
	json_text(json, "group", point->group);
	numbers_write(json, "cpus", point->cpus);
	numbers_write(json, "nodes", point->nodes);
	json_text(json, "mix", load_mixes[point->shape.mix].name);
	json_u64(json, "streams", point->shape.streams);
	json_u64(json, "prefetch_bytes", point->shape.prefetch_bytes);
	json_text(json, "width", results.width->name);
	json_u64(json, "delay", point->shape.delay);
	json_u64(json, "buffer_bytes", point->buffer_bytes);
	json_text(json, "phase", point->scan ? "scan" : "full");
	json_u64(json, "threads", point->threads);
	load_accounting_write(json, point->shape.mix);
	json_bool(json, "checked", good && point->checked);
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
		.threads = point->threads,
		.iterations = (uint64_t)(lines * LOAD_LINE_BYTES / (double)(point->threads * point->buffer_bytes)),
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

static void teardown(struct generator *groups)
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
	for (size_t i = 0; i < options.groups.count; i++)
		generator_free(&groups[i]);
	free(groups);
	pmu_close(results.pmu);
}

static bool measure(struct json *result, struct error *error)
{
	struct generator *groups = calloc(options.groups.count, sizeof(*groups));
	if (!groups)
		return error_set(error, ERROR_INTERNAL, "no memory for %zu groups", options.groups.count);
	results.width = load_width_find(options.width, error);
	bool good = results.width != NULL && pmu_open(&results.pmu, &options.events, error);
	if (good)
		pmu_background(results.pmu, options.background_s);
	for (size_t i = 0; good && i < options.groups.count; i++) {
		good = generator_parse_group(&groups[i], options.groups.words[i], error);
		supervise_avoid(&groups[i].cpus);
		for (size_t k = 0; good && k < options.mixes.count; k++) {
			enum load_mix mix;
			load_mix_parse(options.mixes.words[k], &mix);
			for (size_t b = 0; good && b < options.buffer_bytes.count; b++)
				good = measure_mix(&groups[i], mix, options.buffer_bytes.values[b], error);
		}
	}
	clock_finish();
	good = good && write_results(result, error) && (!options.csv || write_rows(error));
	teardown(groups);
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
