// SPDX-License-Identifier: Apache-2.0
/* Cache to cache: the time of a load whose line another core's cache holds. The writer puts many lines into the wanted
 * state, hands over, and the reader walks a chain over them once: load to use per line, not the hand-shake of one. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "affinity.h"
#include "chain.h"
#include "clock.h"
#include "corefreq.h"
#include "files.h"
#include "interference.h"
#include "memory.h"
#include "place.h"
#include "random.h"
#include "statistics.h"
#include "stopping.h"
#include "subcommand.h"
#include "worker.h"

/* Hops in a window: some 1 ms at 100 ns, of many rounds, so that one late hand-over does not make a window. */
#define WINDOW_HOPS 16384u
#define WARM_ROUNDS 8u
#define LINES_MIN 64u
#define LINES_MAX (1u << 20)
#define HOME_MAX 1023u

static struct {
	struct word_list pairs;
	uint64_t home;
	const char *state;
	uint64_t lines;
	uint64_t placements;
	uint64_t windows;
	const char *pages;
	uint64_t seed;
	double budget_s;
	double target_half_width;
} options;

static const struct option table[] = {
	{"--pair", OPTION_REPEATED, &options.pairs, "WRITER@READER[:HOME[:STATE]]",
	 "CPU that holds the lines, and CPU that loads them; home and state where they are not those of all", NULL, NULL, 0,
	 0, false},
	/* Nearly every machine has memory on node 0; where it has none, binding to it is refused and says so. */
	{"--home", OPTION_U64, &options.home, "NODE", "node of the memory behind the lines, of pairs that name none", "0",
	 NULL, 0, HOME_MAX, false},
	/* hitm: modified in the writer's cache; hit: clean there. */
	{"--state", OPTION_WORD, &options.state, NULL, "state of the lines in the writer's cache, of pairs that name none",
	 "hitm", "hit|hitm", 0, 0, false},
	/* Half the writer's second-level cache: all lines stay in it, and not just in the first level. */
	{"--lines", OPTION_U64, &options.lines, "N", "lines handed over at a time; 0: half of the writer's L2 cache", "0",
	 NULL, 0, LINES_MAX, false},
	{"--placements", OPTION_U64, &options.placements, "K", "allocations, at least", "6", NULL, 1,
	 STOPPING_PLACEMENTS_MAX, false},
	{"--windows", OPTION_U64, &options.windows, "N", "timed windows in each placement", "9", NULL, 1, 10000, false},
	{"--pages", OPTION_WORD, &options.pages, NULL, "pages wanted", "auto", MEMORY_PAGE_CHOICES, 0, 0, false},
	{"--seed", OPTION_U64, &options.seed, "S", "seed of the permutations", "1", NULL, 0, 1ull << 53, false},
	{"--budget-s", OPTION_F64, &options.budget_s, "S",
	 "seconds per pair during which placements beyond K are added until the target is met; 0: just K", "0", NULL, 0,
	 1000000, false},
	/* 3 %: transfers are few and depend on where the home agent of each line lies. */
	{"--target-half-width", OPTION_F64, &options.target_half_width, "R",
	 "relative half-width of the median's interval at which a pair is converged", "0.03", NULL, 0, 1, false},
};

struct placement {
	uint64_t seed;
	struct pages pages;
	bool verified;
	double *window_ticks; /* per load */
	double core_before, core_after;
	struct thread_counts counts;
	struct snapshot before, after;
};

/* What one pair is asked to do. */
struct transfer {
	unsigned writer, reader;
	uint64_t home;
	bool dirty;
};

struct pair {
	struct transfer transfer;
	uint64_t lines;
	struct cpu_list cpus;
	struct stopping stopping;
	struct error error;
	struct placement *placements;
	size_t count;
	/* of the placement in hand */
	struct region region;
	struct chain chain;
	uint64_t rounds; /* in all: warm-up and windows */
	uint64_t rounds_per_window;
	struct thread_counts counts[2];
	bool verified[2];
	/* Whose turn it is, on a line of its own: 2*round: the writer's, 2*round+1: the reader's. */
	_Alignas(256) _Atomic uint64_t turn;
	_Alignas(256) _Atomic bool failed;
};

static bool parse_home(const char *text, uint64_t *home)
{
	return options_u64(text, home) && *home <= HOME_MAX;
}

/* WRITER@READER[:HOME[:STATE]]: the form of a place, with the reader where a node would be; then what is its own. */
static bool parse_pair(const char *text, struct transfer *transfer, struct error *error)
{
	char *cpus = strdup(text);
	if (!cpus)
		return error_set(error, ERROR_INTERNAL, "no memory for a pair");
	*transfer = (struct transfer){.home = options.home, .dirty = !strcmp(options.state, "hitm")};
	char *home = strchr(cpus, ':');
	if (home)
		*home++ = '\0';
	char *state = home ? strchr(home, ':') : NULL;
	if (state)
		*state++ = '\0';
	bool good = place_parse_one(cpus, &transfer->writer, &transfer->reader, error);
	if (good && transfer->writer == transfer->reader)
		good = error_set(error, ERROR_USAGE, "--pair: expected two CPUs, found '%s'", text);
	if (good && home && !parse_home(home, &transfer->home))
		good =
			error_set(error, ERROR_USAGE, "--pair: expected a node up to %u as the home, found '%s'", HOME_MAX, text);
	if (good && state) {
		transfer->dirty = !strcmp(state, "hitm");
		if (!transfer->dirty && strcmp(state, "hit") != 0)
			good = error_set(error, ERROR_USAGE, "--pair: expected the state hit or hitm, found '%s'", text);
	}
	free(cpus);
	return good;
}

static bool prepare(struct error *error)
{
	struct transfer transfer;
	for (size_t i = 0; i < options.pairs.count; i++)
		if (!parse_pair(options.pairs.words[i], &transfer, error))
			return false;
	if (options.lines && options.lines < LINES_MIN)
		return error_set(error, ERROR_USAGE, "--lines: expected 0 or at least %u, found %llu", LINES_MIN,
		                 (unsigned long long)options.lines);
	return true;
}

/* Half the lines of the writer's L2 cache; 128 KiB of lines where the kernel does not say. */
static uint64_t choose_lines(unsigned cpu)
{
	char path[128], size[32];
	uint64_t bytes = 256u << 10;
	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%u/cache/index2/size", cpu);
	if (file_line(path, size, sizeof(size))) {
		char *unit;
		uint64_t value = strtoull(size, &unit, 10);
		if (value && *unit == 'K')
			bytes = value << 10;
		else if (value && *unit == 'M')
			bytes = value << 20;
	}
	uint64_t lines = bytes / 2 / memory_line_bytes();
	return lines < LINES_MIN ? LINES_MIN : lines > LINES_MAX ? LINES_MAX : lines / 64 * 64;
}

static void wait_turn(struct pair *pair, uint64_t turn)
{
	while (atomic_load_explicit(&pair->turn, memory_order_acquire) != turn &&
	       !atomic_load_explicit(&pair->failed, memory_order_relaxed))
		continue; /* no pause: its length differs between processors by a factor of four */
}

/* Puts every line into the wanted state in this core's caches. The first word is the link, the second is free. */
static void prepare_lines(const struct pair *pair)
{
	unsigned char *base = pair->chain.base;
	size_t line = pair->chain.line_bytes;
	if (!pair->transfer.dirty) {
		for (uint64_t i = 0; i < pair->lines; i++)
			arch_flush_line(base + i * line);
		arch_full_fence();
	}
	for (uint64_t i = 0; i < pair->lines; i++) {
		volatile uint64_t *word = (volatile uint64_t *)(void *)(base + i * line);
		if (pair->transfer.dirty)
			word[1] = word[1] + 1;
		else
			(void)word[0];
	}
	arch_full_fence();
}

static void write_lines(struct worker *worker)
{
	struct pair *pair = worker->context;
	struct placement *placement = &pair->placements[pair->count];
	struct thread_counts before = {0}, after = {0};
	bool good = region_map(&pair->region, pair->lines * memory_line_bytes(), (unsigned)pair->transfer.home,
	                       pair->region.kind, &worker->error);
	if (good) {
		pair->chain = (struct chain){.base = pair->region.start,
		                             .size_bytes = pair->lines * memory_line_bytes(),
		                             .stride_bytes = memory_line_bytes(),
		                             .line_bytes = memory_line_bytes(),
		                             .order = CHAIN_RANDOM,
		                             .seed = placement->seed};
		good = chain_build(&pair->chain, &worker->error);
		for (uint64_t i = 0; good && i < pair->lines; i++)
			((uint64_t *)(void *)(pair->chain.base + i * memory_line_bytes()))[1] = 0;
		good = good && pages_read_back(&placement->pages, &pair->region, 1, placement->pages.wanted, &worker->error);
	}
	if (good) {
		worker_pause(worker);
		thread_counts_read(&before);
		for (uint64_t round = 0; round < pair->rounds; round++) {
			wait_turn(pair, 2 * round);
			prepare_lines(pair);
			atomic_store_explicit(&pair->turn, 2 * round + 1, memory_order_release);
		}
		wait_turn(pair, 2 * pair->rounds);
		thread_counts_read(&after);
		pair->counts[0] = thread_counts_since(&after, &before);
		pair->verified[0] = affinity_verify(pair->transfer.writer);
		worker_pause(worker);
		/* Every line was written once a round, or never. */
		uint64_t expected = pair->transfer.dirty ? pair->rounds : 0;
		for (uint64_t i = 0; i < pair->lines; i++)
			if (((uint64_t *)(void *)(pair->chain.base + i * memory_line_bytes()))[1] != expected)
				error_set(&worker->error, ERROR_CHECK_FAILED,
				          "expected every line written %llu times, found one that was not",
				          (unsigned long long)expected);
		struct pages again;
		pages_read_back(&again, &pair->region, 1, placement->pages.wanted, &worker->error);
	}
	region_unmap(&pair->region);
}

static void read_lines(struct worker *worker)
{
	struct pair *pair = worker->context;
	struct placement *placement = &pair->placements[pair->count];
	struct thread_counts before = {0}, after = {0};
	corefreq_settle();
	worker_pause(worker);
	placement->core_before = corefreq_per_tick();
	thread_counts_read(&before);
	uint64_t window_ticks = 0, in_window = 0, window = 0;
	for (uint64_t round = 0; round < pair->rounds; round++) {
		wait_turn(pair, 2 * round + 1);
		uint64_t first = pair->chain.at;
		uint64_t start = clock_start();
		chain_walk(&pair->chain, pair->lines / 64);
		uint64_t stop = clock_stop();
		if (pair->chain.at != first)
			error_set(&worker->error, ERROR_CHECK_FAILED, "expected a walk over all lines to end where it began");
		if (round >= WARM_ROUNDS) {
			/* A round is short, so the clock's own cost, known from the start, is taken off. */
			window_ticks += stop - start;
			if (++in_window == pair->rounds_per_window) {
				double net = (double)window_ticks - (double)in_window * clock_now_used.read_cost_ticks;
				placement->window_ticks[window++] = net / (double)(in_window * pair->lines);
				window_ticks = in_window = 0;
			}
		}
		atomic_store_explicit(&pair->turn, 2 * round + 2, memory_order_release);
	}
	thread_counts_read(&after);
	pair->counts[1] = thread_counts_since(&after, &before);
	placement->core_after = corefreq_per_tick();
	pair->verified[1] = affinity_verify(pair->transfer.reader);
	worker_pause(worker);
}

static bool measure_placement(struct pair *pair, uint64_t seed)
{
	struct placement *placement = &pair->placements[pair->count];
	struct worker writer, reader;
	enum page_kind kind;
	page_kind_parse(options.pages, &kind);
	*placement = (struct placement){.seed = seed, .pages = {.wanted = kind}};
	placement->window_ticks = calloc(options.windows, sizeof(double));
	if (!placement->window_ticks)
		return error_set(&pair->error, ERROR_INTERNAL, "no memory for windows");
	pair->region = (struct region){.kind = kind};
	atomic_store(&pair->turn, 0);
	atomic_store(&pair->failed, false);
	if (!worker_start(&writer, pair->transfer.writer, write_lines, pair, &pair->error))
		return false;
	bool ready = worker_wait(&writer);
	bool started = ready && worker_start(&reader, pair->transfer.reader, read_lines, pair, &pair->error);
	if (started && worker_wait(&reader)) {
		snapshot_take(&placement->before, &pair->cpus);
		worker_continue(&writer);
		worker_continue(&reader);
		worker_wait(&writer);
		worker_wait(&reader);
		snapshot_take(&placement->after, &pair->cpus);
	} else {
		atomic_store(&pair->failed, true); /* lets a thread that waits for its turn run to its end */
	}
	worker_join(&writer);
	if (started)
		worker_join(&reader);
	if (writer.error.code != ERROR_NONE && pair->error.code == ERROR_NONE)
		pair->error = writer.error;
	if (started && reader.error.code != ERROR_NONE && pair->error.code == ERROR_NONE)
		pair->error = reader.error;
	placement->counts = pair->counts[0];
	thread_counts_add(&placement->counts, &pair->counts[1]);
	placement->verified = pair->verified[0] && pair->verified[1];
	if (pair->error.code == ERROR_NONE && !placement->verified)
		error_set(&pair->error, ERROR_PIN_FAILED, "expected CPUs %u and %u after measuring, found others",
		          pair->transfer.writer, pair->transfer.reader);
	return pair->error.code == ERROR_NONE;
}

static void measure_pair(struct pair *pair, uint64_t number)
{
	double medians[STOPPING_PLACEMENTS_MAX];
	pair->lines = options.lines ? (options.lines + 63) / 64 * 64 : choose_lines(pair->transfer.writer);
	pair->rounds_per_window = (WINDOW_HOPS + pair->lines - 1) / pair->lines;
	pair->rounds = WARM_ROUNDS + pair->rounds_per_window * options.windows;
	pair->stopping = (struct stopping){
		.placements = options.placements, .budget_s = options.budget_s, .target = options.target_half_width};
	if (!affinity_usable(pair->transfer.writer, &pair->error) || !affinity_usable(pair->transfer.reader, &pair->error))
		return;
	supervise_avoid(&pair->cpus);
	stopping_begin(&pair->stopping);
	while (measure_placement(pair, random_derive(options.seed, number, pair->count))) {
		medians[pair->count] = statistics_median(pair->placements[pair->count].window_ticks, options.windows);
		pair->count++;
		if (stopping_done(&pair->stopping, medians, pair->count))
			return;
	}
}

static void placement_write(struct json *json, const struct pair *pair, const struct placement *placement)
{
	json_object_begin(json, NULL);
	json_u64(json, "seed", placement->seed);
	pages_write(json, "pages", &placement->pages);
	json_bool(json, "cpus_verified", placement->verified);
	json_array_begin(json, "windows_ns");
	for (uint64_t i = 0; i < options.windows; i++)
		json_f64(json, NULL, clock_ns(placement->window_ticks[i]));
	json_array_end(json);
	json_f64(json, "core_hz_before", corefreq_hz(placement->core_before));
	json_f64(json, "core_hz_after", corefreq_hz(placement->core_after));
	interference_write(json, "interference", &placement->counts, &placement->before, &placement->after, &pair->cpus);
	json_object_end(json);
}

static void pair_write(struct json *json, const struct pair *pair)
{
	bool good = pair->error.code == ERROR_NONE;
	json_object_begin(json, NULL);
	json_u64(json, "writer", pair->transfer.writer);
	json_u64(json, "reader", pair->transfer.reader);
	json_u64(json, "home", pair->transfer.home);
	json_text(json, "state", pair->transfer.dirty ? "hitm" : "hit");
	json_u64(json, "lines", pair->lines);
	json_bool(json, "checked", good);
	json_text(json, "stopped", good ? pair->stopping.reason : NULL);
	if (good) {
		json_null(json, "error");
		json_array_begin(json, "placements");
		for (size_t i = 0; i < pair->count; i++)
			placement_write(json, pair, &pair->placements[i]);
		json_array_end(json);
	} else {
		error_write(json, &pair->error);
		json_null(json, "placements");
	}
	json_object_end(json);
}

static void pair_free(struct pair *pair)
{
	for (size_t k = 0; pair->placements && k < STOPPING_PLACEMENTS_MAX; k++) {
		free(pair->placements[k].window_ticks);
		snapshot_free(&pair->placements[k].before);
		snapshot_free(&pair->placements[k].after);
	}
	free(pair->placements);
	cpu_list_free(&pair->cpus);
	free(pair);
}

static bool measure(struct json *result, struct error *error)
{
	struct pair **pairs = calloc(options.pairs.count, sizeof(*pairs));
	size_t failed = 0, count = 0;
	bool good = pairs != NULL;
	for (; good && count < options.pairs.count; count++) {
		struct pair *pair = aligned_alloc(256, (sizeof(*pair) + 255) / 256 * 256);
		good = pair != NULL;
		if (!good)
			break;
		memset(pair, 0, sizeof(*pair));
		pairs[count] = pair;
		pair->placements = calloc(STOPPING_PLACEMENTS_MAX, sizeof(*pair->placements));
		good = pair->placements && parse_pair(options.pairs.words[count], &pair->transfer, error) &&
		       cpu_list_add(&pair->cpus, pair->transfer.writer) && cpu_list_add(&pair->cpus, pair->transfer.reader);
		if (good)
			measure_pair(pair, count);
		failed += pair->error.code != ERROR_NONE;
	}
	clock_finish();
	if (good) {
		json_object_begin(result, NULL);
		json_array_begin(result, "pairs");
		for (size_t i = 0; i < count; i++)
			pair_write(result, pairs[i]);
		json_array_end(result);
		json_object_end(result);
		if (failed == count)
			good = error_set(error, pairs[0]->error.code, "no pair could be measured; the first: %s",
			                 pairs[0]->error.message);
	} else {
		error_set(error, ERROR_INTERNAL, "no memory for pairs");
	}
	for (size_t i = 0; i < count; i++)
		pair_free(pairs[i]);
	free(pairs);
	return good;
}

const struct subcommand c2c_subcommand = {
	.name = "c2c",
	.summary = "time of a load whose line another core's cache holds",
	.options = table,
	.option_count = sizeof(table) / sizeof(table[0]),
	.prepare = prepare,
	.run = measure,
};
