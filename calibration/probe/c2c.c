// SPDX-License-Identifier: Apache-2.0
/* Cache to cache, two quantities. transfer: the time of a load whose line another core's cache holds; the writer puts
 * many lines into the wanted state, hands over, and the reader walks a chain over them once: load to use per line.
 * pingpong: half the round trip of a hand-shake over two lines, each written by one side only. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocate.h"
#include "clock.h"
#include "interference.h"
#include "memory.h"
#include "option_rows.h"
#include "stopping.h"
#include "subcommand.h"
#include "transfer.h"

/* The estimate is made from so many pairs: one alone may have been interrupted. */
#define ESTIMATE_PAIRS 3u
#define PROGRESS_NS 10000000000u
/* In the document, beside the windows. */
#define NUMBERS_OF_CELL 40u
/* What the heap takes for an allocation of its own. */
#define ALLOCATION_BYTES 32u

static const char *const method_names[] = {"transfer", "pingpong"};

static struct {
	struct word_list pairs;
	struct word_list all_pairs;
	const char *method;
	const char *home;
	const char *state;
	uint64_t lines;
	uint64_t hops;
	double matrix_budget_s;
	struct u64_list matrix_pairs;
} options;

static const struct option table[] = {
	OPTION_ROW_OPTIONAL_REPEATED(
		"--pair", &options.pairs, "WRITER@READER[:HOME[:STATE]]",
		"CPU that holds the lines, and CPU that loads them; home and state where they are not those of all"),
	OPTION_ROW_OPTIONAL_REPEATED(
		"--all-pairs", &options.all_pairs, "CPUS[@READERS][:HOME[:STATE]]",
		"a matrix: every ordered pair of these CPUs, or of these and those readers; reported in short form"),
	/* Two quantities, never mixed: a hand-shake holds a store, and the way there and back, beside the load. */
	OPTION_ROW_WORD("--method", &options.method, "transfer|pingpong", "transfer",
	                "transfer: one load of each of many lines; pingpong: half the round trip of a hand-shake"),
	/* The writer's own node is where a program that fills a buffer has it; a fixed node need not have memory. */
	OPTION_ROW_TEXT(
		"--home", &options.home, "NODE|writer|reader", "writer",
		"node of the memory behind the lines, of pairs that name none: a number, or the node of one of the two"),
	/* hitm: modified in the writer's cache; hit: clean there, and nowhere else. */
	OPTION_ROW_WORD("--state", &options.state, "hit|hitm", "hitm",
	                "state of the lines in the writer's cache, of pairs that name none"),
	/* So many stay in the writer's second-level cache; more would be found in the third level, or in memory. */
	OPTION_ROW_U64("--lines", &options.lines, "N", "0", 0, TRANSFER_LINES_MAX,
	               "lines handed over at a time; 0: an eighth of the writer's L2 cache, and of a matrix at most 1024"),
	/* One window is then some 1 ms, and 0.2 ms in a matrix: far longer than a clock read. */
	OPTION_ROW_U64("--hops", &options.hops, "N", "0", 0, 1u << 30,
	               "loads or round trips in a window; 0: 16384 loads or 10000 trips, of a matrix 2048 or 1000"),
	OPTIONS_PLACEMENTS,
	OPTION_ROW_U64("--windows", &common.windows, "N", "0", 0, 10000,
	               "timed windows in each placement; 0: 9, of a matrix 3"),
	OPTIONS_PAGES,
	OPTIONS_SEED("the permutations, and of the order and choice of pairs"),
	/* None: who asks for all pairs gets all, and reads beforehand how long that takes. */
	OPTION_ROW_F64("--matrix-budget-s", &options.matrix_budget_s, "S", "0", 0, 1000000,
	               "only time the first of --all-pairs, and choose for --matrix-pairs as many as take so many seconds; "
	               "0: measure"),
	OPTION_ROW_OPTIONAL_LIST("--matrix-pairs", &options.matrix_pairs, "N[,SEED]", 0, 1ull << 53,
	                         "a balanced sample: the first N pairs in the order of this seed, else of --seed"),
};

/* A pair of a matrix that was measured, without what only a pair of its own has. */
struct cell {
	struct transfer transfer;
	uint64_t lines;
	struct error *error; /* NULL: none */
	size_t count;
	uint64_t windows;     /* in each placement */
	double *window_ticks; /* of all placements, one after another */
	uint64_t seed;        /* of the first placement */
	struct pages pages;   /* of all placements: they share one mapping */
	struct stretch threads;
};

/* Whether pairs are only timed. */
static bool is_search(void)
{
	return options.matrix_budget_s > 0;
}

static enum method method_wanted(void)
{
	return strcmp(options.method, "pingpong") ? METHOD_TRANSFER : METHOD_PINGPONG;
}

/* A matrix: how many of its pairs, and what is kept of each. */
struct matrix {
	struct block *blocks;
	size_t block_count;
	struct sampler sampler;
	struct cpu_list cpus;
	struct cell *cells;
	size_t count, chosen;
	uint64_t seed; /* of the order of the pairs */
	struct thread_counts counts;
	struct snapshot before, after;
	uint64_t began_ns;
	/* the estimate: of pairs that could be measured */
	size_t estimated_on;
	double pair_s, expected_s;
	struct error stopped; /* what ended it early */
};

static struct {
	struct transfer_settings settings;
	struct transfer *transfers; /* one for each --pair */
	struct pair **pairs;
	size_t count;
	struct matrix matrix;
} work;

static void prepare_settings(void)
{
	work.settings = (struct transfer_settings){
		.method = method_wanted(),
		.lines = options.lines,
		.hops = options.hops,
		.windows = common.windows,
		.seed = common.seed,
		.placements = common.placements,
		.pages = page_kind_of(common.pages),
	};
}

static bool prepare(struct error *error)
{
	struct matrix *matrix = &work.matrix;
	struct transfer asked;
	const struct pair_defaults defaults = {
		.home = options.home, .dirty = !strcmp(options.state, "hitm"), .stateless = method_wanted() == METHOD_PINGPONG};
	if (!options.pairs.count && !options.all_pairs.count)
		return error_set(error, ERROR_USAGE, "give --pair or --all-pairs; --help explains them");
	if (options.matrix_pairs.count && (!options.all_pairs.count || options.matrix_pairs.count > 2))
		return error_set(error, ERROR_USAGE, "--matrix-pairs: must be a number and a seed, with --all-pairs");
	if (is_search() && (!options.all_pairs.count || options.pairs.count || options.matrix_pairs.count))
		return error_set(error, ERROR_USAGE, "--matrix-budget-s: must be with --all-pairs alone");
	if (!home_parse(options.home, &asked.home, &asked.node))
		return error_set(error, ERROR_USAGE, "--home: must be a node up to %u, writer or reader, not '%s'",
		                 PAIRS_HOME_MAX, options.home);
	work.transfers = allocate(options.pairs.count, sizeof(*work.transfers));
	for (size_t i = 0; i < options.pairs.count; i++)
		if (!transfer_parse(options.pairs.words[i], &defaults, &work.transfers[i], error))
			return false;
	matrix->blocks = allocate(options.all_pairs.count, sizeof(*matrix->blocks));
	for (; matrix->block_count < options.all_pairs.count; matrix->block_count++) {
		struct block *block = &matrix->blocks[matrix->block_count];
		if (!block_parse("--all-pairs", options.all_pairs.words[matrix->block_count], &defaults, block, error))
			return false;
		for (size_t i = 0; i < block->writers.count; i++)
			cpu_list_add(&matrix->cpus, block->writers.cpus[i]);
		for (size_t i = 0; i < block->readers.count; i++)
			cpu_list_add(&matrix->cpus, block->readers.cpus[i]);
	}
	if (options.lines && options.lines < TRANSFER_LINES_MIN)
		return error_set(error, ERROR_USAGE, "--lines: must be 0 or at least %u, not %llu", TRANSFER_LINES_MIN,
		                 (unsigned long long)options.lines);
	prepare_settings();
	return true;
}

static void transfer_write(struct json *json, const struct transfer *transfer, uint64_t lines, bool good,
                           size_t placements)
{
	json_u64(json, "writer", transfer->writer);
	json_u64(json, "reader", transfer->reader);
	/* Not the node of a CPU on which no thread ran. */
	json_u64_known(json, "home", transfer->home == HOME_NODE || good, transfer->node);
	json_text(json, "state", method_wanted() == METHOD_PINGPONG ? NULL : transfer->dirty ? "hitm" : "hit");
	json_text(json, "method", method_names[method_wanted()]);
	json_u64(json, "lines", lines);
	json_bool(json, "checked", good);
	json_text(json, "stopped", good ? stopped_by(placements, common.placements) : NULL);
}

static void placement_write(struct json *json, const struct pair *pair, const struct placement *placement)
{
	evidence_begin_write(json, NULL, &placement->evidence);
	json_f64s(json, "windows_ns", placement->window_ticks, pair->extent.windows, clock_ns(1));
	evidence_write(json, &placement->evidence, &pair->cpus);
	json_object_end(json);
}

static void pair_write(struct json *json, const struct pair *pair)
{
	bool good = pair->error.code == ERROR_NONE;
	json_object_begin(json, NULL);
	transfer_write(json, &pair->transfer, pair->lines, good, pair->count);
	error_write(json, &pair->error);
	if (json_array_known(json, "placements", good)) {
		for (size_t i = 0; i < pair->count; i++)
			placement_write(json, pair, &pair->placements[i]);
		json_array_end(json);
	}
	json_object_end(json);
}

/* -- the matrix -- */

static int compare_cells(const void *left, const void *right)
{
	const struct cell *a = left, *b = right;
	return pairs_compare(a->transfer.writer, a->transfer.reader, b->transfer.writer, b->transfer.reader);
}

static void cell_keep(struct matrix *matrix, const struct pair *pair)
{
	struct cell *cell = &matrix->cells[matrix->count++];
	*cell = (struct cell){.transfer = pair->transfer, .lines = pair->lines};
	if (pair->error.code != ERROR_NONE) {
		cell->error = allocate(1, sizeof(*cell->error));
		*cell->error = pair->error;
		return;
	}
	uint64_t windows = pair->extent.windows;
	const struct placement *placements = pair->placements;
	cell->window_ticks = allocate(pair->count * windows, sizeof(double));
	cell->count = pair->count;
	cell->windows = windows;
	cell->seed = placements[0].evidence.seed;
	cell->pages = placements[0].evidence.pages;
	cell->threads = placements[0].evidence.threads;
	cell->threads.core_after = placements[pair->count - 1].evidence.threads.core_after;
	for (size_t k = 0; k < pair->count; k++) {
		memcpy(cell->window_ticks + k * windows, placements[k].window_ticks, windows * sizeof(double));
		if (k > 0)
			thread_counts_add(&cell->threads.counts, &placements[k].evidence.threads.counts);
	}
	thread_counts_add(&matrix->counts, &cell->threads.counts);
}

/* After the first pairs: how long all will take, and how many of them the budget allows. */
static void estimate(struct matrix *matrix)
{
	size_t all = matrix->sampler.count;
	matrix->pair_s /= (double)matrix->estimated_on;
	matrix->expected_s = matrix->pair_s * (double)all;
	if (is_search() && matrix->expected_s > options.matrix_budget_s)
		matrix->chosen = (size_t)(options.matrix_budget_s / matrix->pair_s);
	if (matrix->chosen < matrix->count)
		matrix->chosen = matrix->count;
	fprintf(stderr, "sutprobe: c2c: %zu pairs, %.4f s each by the first %zu: %.1f s; %zu chosen\n", all, matrix->pair_s,
	        matrix->estimated_on, matrix->expected_s, matrix->chosen);
}

static void measure_cell(struct matrix *matrix, struct request *request)
{
	const struct block *block = &matrix->blocks[request->block];
	struct transfer transfer = {request->writer, request->reader, block->home, block->node, block->dirty};
	uint64_t begin_ns = clock_raw_ns();
	struct pair *pair = pair_new(&work.settings, &transfer, true);
	pair_measure(pair, (uint64_t)request->writer << 20 | request->reader);
	bool good = pair->error.code == ERROR_NONE;
	if (!good && stop_requested())
		request->taken = false; /* it was begun, and has no value */
	else
		cell_keep(matrix, pair);
	pair_free(pair);
	if (good && !matrix->expected_s) {
		matrix->pair_s += (double)(clock_raw_ns() - begin_ns) / 1e9;
		matrix->estimated_on++;
		/* Of so few pairs that three are all of them, the first speaks. */
		if (matrix->estimated_on == (matrix->sampler.count > ESTIMATE_PAIRS ? ESTIMATE_PAIRS : 1))
			estimate(matrix);
	}
}

static void measure_cells(struct matrix *matrix)
{
	uint64_t reported_ns = clock_raw_ns();
	matrix->chosen = options.matrix_pairs.count ? options.matrix_pairs.values[0] : matrix->sampler.count;
	matrix->began_ns = reported_ns;
	while (matrix->count < matrix->chosen && !(is_search() && matrix->expected_s > 0) &&
	       !stop_error(&matrix->stopped)) {
		struct request *request = sampler_next(&matrix->sampler);
		if (!request)
			break;
		measure_cell(matrix, request);
		uint64_t now_ns = clock_raw_ns();
		double spent_s = (double)(now_ns - matrix->began_ns) / 1e9;
		if (now_ns - reported_ns >= PROGRESS_NS) {
			reported_ns = now_ns;
			fprintf(stderr, "sutprobe: c2c: %zu of %zu pairs after %.0f s\n", matrix->count, matrix->chosen, spent_s);
		}
	}
}

static void cell_write(struct json *json, const struct cell *cell)
{
	bool good = cell->error == NULL;
	json_object_begin(json, NULL);
	transfer_write(json, &cell->transfer, cell->lines, good, cell->count);
	if (!good) {
		error_write(json, cell->error);
		JSON_NULLS(json, "placements", "evidence");
		json_object_end(json);
		return;
	}
	unsigned writer = cell->transfer.writer, reader = cell->transfer.reader;
	unsigned cpus[2] = {writer < reader ? writer : reader, writer < reader ? reader : writer};
	struct cpu_list both = {cpus, 2};
	/* Counters were read for all pairs together. */
	const struct snapshot none = {.cpus = &both, .pages_migrated = -1};
	const struct evidence evidence = {
		.seed = cell->seed, .pages = cell->pages, .threads = cell->threads, .before = none, .after = none};
	json_null(json, "error");
	json_array_begin(json, "placements");
	for (size_t k = 0; k < cell->count; k++)
		json_f64s(json, NULL, cell->window_ticks + k * cell->windows, cell->windows, clock_ns(1));
	json_array_end(json);
	evidence_begin_write(json, "evidence", &evidence);
	evidence_write(json, &evidence, &both);
	json_object_end(json);
	json_object_end(json);
}

/* "WRITER@READERS" of those among the requests of one writer that were not measured; empty where all were. To be freed. */
static char *left_readers(const struct request *requests, size_t count)
{
	/* "4294967295-4294967295," for each at most */
	size_t room = (count + 1) * 24;
	char *text = allocate(room, 1), separator = '@';
	int length = 0;
	for (size_t at = 0, last; at < count; at = last + 1) {
		last = at;
		if (requests[at].taken)
			continue;
		while (last + 1 < count && !requests[last + 1].taken && requests[last + 1].reader == requests[last].reader + 1)
			last++;
		if (length == 0)
			length += snprintf(text, room, "%u", requests[at].writer);
		length += snprintf(text + length, room - (size_t)length, "%c%u", separator, requests[at].reader);
		if (last > at)
			length += snprintf(text + length, room - (size_t)length, "-%u", requests[last].reader);
		separator = ',';
	}
	return text;
}

/* The pairs that were not measured, as WRITER@READERS: the form in which they can be asked for. */
static void not_measured_write(struct json *json, const struct matrix *matrix)
{
	const struct request *requests = matrix->sampler.requests;
	size_t count = matrix->sampler.count, left = 0;
	struct error why = matrix->stopped;
	for (size_t i = 0; i < count; i++)
		left += !requests[i].taken;
	json_array_begin(json, "not_measured");
	if (left) {
		json_object_begin(json, NULL);
		json_text(json, "code", why.code == ERROR_NONE ? "sampled" : error_name(why.code));
		if (why.code == ERROR_NONE)
			error_set(&why, ERROR_DEADLINE, "%zu of %zu pairs were left out", left, count);
		json_text(json, "message", why.message);
		json_array_begin(json, "pairs");
		for (size_t i = 0, next; i < count; i = next) {
			for (next = i; next < count && requests[next].writer == requests[i].writer; next++)
				continue;
			char *text = left_readers(requests + i, next - i);
			if (*text)
				json_text(json, NULL, text);
			free(text);
		}
		json_array_end(json);
		json_object_end(json);
	}
	json_array_end(json);
}

static void matrix_write(struct json *json, struct matrix *matrix)
{
	if (matrix->count)
		qsort(matrix->cells, matrix->count, sizeof(*matrix->cells), compare_cells);
	json_array_begin(json, "cells");
	for (size_t i = 0; i < matrix->count; i++)
		cell_write(json, &matrix->cells[i]);
	json_array_end(json);
	not_measured_write(json, matrix);
	if (json_known(json, "interference", options.all_pairs.count > 0))
		interference_write(json, "interference", &matrix->counts, &matrix->before, &matrix->after, &matrix->cpus);
}

static bool measure_matrix(struct matrix *matrix, struct error *error)
{
	if (!matrix->block_count)
		return true;
	const struct u64_list *wanted = &options.matrix_pairs;
	matrix->seed = wanted->count > 1 ? wanted->values[1] : common.seed;
	if (!sampler_begin(&matrix->sampler, matrix->blocks, matrix->block_count, matrix->seed, error))
		return false;
	if (wanted->count && (wanted->values[0] == 0 || wanted->values[0] > matrix->sampler.count))
		return error_set(error, ERROR_USAGE, "--matrix-pairs: must be 1 to %zu for this matrix, not %llu",
		                 matrix->sampler.count, (unsigned long long)wanted->values[0]);
	matrix->cells = allocate(matrix->sampler.count, sizeof(*matrix->cells));
	snapshot_take(&matrix->before, &matrix->cpus);
	measure_cells(matrix);
	snapshot_take_again(&matrix->after, &matrix->before);
	return true;
}

/* Pairs are measured one after another: the largest of them, and what all keep. */
static bool admit(struct error *error)
{
	const struct transfer_settings *settings = &work.settings;
	const struct matrix *matrix = &work.matrix;
	struct demand demand = {.wanted = settings->pages};
	struct cpu_list two = {.count = 2};
	uint64_t lines = 0, lines_of_matrix = 0, cells = 0, placements = settings->placements;
	for (size_t i = 0; i < options.pairs.count; i++) {
		uint64_t here = pair_lines(settings, work.transfers[i].writer, false);
		lines = here > lines ? here : lines;
		pair_demand_results(settings, false, &two, &demand);
	}
	for (size_t i = 0; i < matrix->block_count; i++) {
		const struct block *block = &matrix->blocks[i];
		for (size_t w = 0; w < block->writers.count; w++) {
			uint64_t here = pair_lines(settings, block->writers.cpus[w], true);
			lines_of_matrix = here > lines_of_matrix ? here : lines_of_matrix;
		}
		cells += (uint64_t)block->writers.count * block->readers.count;
		/* Those of a matrix are read for all of it. */
		snapshots_demand(&block->readers, 2, &demand);
	}
	if (cells) {
		uint64_t windows = placements * pair_windows(settings, true);
		pair_demand_results(settings, true, &two, &demand);
		demand_other(&demand, cells * (sizeof(struct request) + sizeof(uint32_t)), 1);
		demand_other(&demand, cells * (sizeof(struct cell) + windows * sizeof(double) + ALLOCATION_BYTES), 1);
		demand_document(&demand, cells * (windows + NUMBERS_OF_CELL));
	}
	demand_document(&demand, options.pairs.count * placements * (pair_windows(settings, false) + EVIDENCE_NUMBERS));
	demand_threads(&demand, 2);
	/* The node of a pair may be that of a CPU on which no thread has run yet: pairs ask for their own. */
	bool brief = lines_of_matrix * placements > lines;
	pair_demand(settings, brief ? lines_of_matrix : lines, brief, DEMAND_ANY_NODE, &demand);
	return demand_admit(&demand, error);
}

/* How many pairs to measure, by pairs that could be. */
static bool choice_write(struct json *result, struct error *error)
{
	struct matrix *matrix = &work.matrix;
	const struct error *stopped = &matrix->stopped;
	if (stopped->code != ERROR_NONE || !matrix->estimated_on)
		return error_take(error, stopped->code != ERROR_NONE ? stopped : matrix->cells[0].error);
	if (!matrix->expected_s)
		estimate(matrix); /* from fewer pairs: no others could be measured */
	json_object_begin(result, NULL);
	json_array_begin(result, "chosen");
	json_u64(result, NULL, matrix->chosen);
	json_u64(result, NULL, matrix->seed);
	json_array_end(result);
	json_object_begin(result, "estimate");
	json_u64(result, "pairs", matrix->sampler.count);
	json_u64(result, "measured_on", matrix->estimated_on);
	json_f64(result, "pair_s", matrix->pair_s);
	json_f64(result, "expected_s", matrix->expected_s);
	json_f64(result, "budget_s", options.matrix_budget_s);
	json_u64(result, "chosen", matrix->chosen);
	json_object_end(result);
	json_object_end(result);
	return true;
}

static bool write_results(struct json *result, struct error *error)
{
	struct matrix *matrix = &work.matrix;
	const struct error *first = work.count      ? &work.pairs[0]->error
	                            : matrix->count ? matrix->cells[0].error
	                                            : &matrix->stopped;
	size_t measured = 0;
	for (size_t i = 0; i < work.count; i++)
		measured += work.pairs[i]->error.code == ERROR_NONE;
	for (size_t i = 0; i < matrix->count; i++)
		measured += matrix->cells[i].error == NULL;
	json_object_begin(result, NULL);
	json_array_begin(result, "pairs");
	for (size_t i = 0; i < work.count; i++)
		pair_write(result, work.pairs[i]);
	json_array_end(result);
	matrix_write(result, matrix);
	json_object_end(result);
	return error_of_parts(error, "pair", !measured, 1, first);
}

static bool measure(struct json *result, struct error *error)
{
	if (!admit(error))
		return false;
	work.pairs = allocate(options.pairs.count, sizeof(struct pair *));
	for (; work.count < options.pairs.count; work.count++) {
		work.pairs[work.count] = pair_new(&work.settings, &work.transfers[work.count], false);
		pair_measure(work.pairs[work.count], work.count);
	}
	if (!measure_matrix(&work.matrix, error))
		return false;
	clock_finish();
	return is_search() ? choice_write(result, error) : write_results(result, error);
}

SUBCOMMAND(c2c) = {
	"c2c",
	"time of a load whose line another core's cache holds; of a hand-shake",
	SUBCOMMAND_OPTIONS(table),
	prepare,
	measure,
};
