// SPDX-License-Identifier: Apache-2.0
/* Cache to cache, two quantities. transfer: the time of a load whose line another core's cache holds; the writer puts
 * many lines into the wanted state, hands over, and the reader walks a chain over them once: load to use per line.
 * pingpong: half the round trip of a hand-shake over two lines, each written by one side only. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "affinity.h"
#include "chain.h"
#include "clock.h"
#include "corefreq.h"
#include "files.h"
#include "interference.h"
#include "memory.h"
#include "options.h"
#include "random.h"
#include "statistics.h"
#include "stopping.h"
#include "subcommand.h"
#include "worker.h"

/* Loads in a window of --pair: some 1 ms at 100 ns, of many rounds, so that one late hand-over does not make a window. */
#define WINDOW_HOPS 16384u
/* The same in a matrix: two rounds of its lines. What a pair costs decides there how many are measured. */
#define WINDOW_HOPS_OF_MATRIX 2048u
/* Round trips in a window: some 1 ms; fewer would leave a window to a single interruption. */
#define WINDOW_TRIPS 10000u
#define WINDOW_TRIPS_OF_MATRIX 1000u
#define WINDOWS 9u
/* With six placements these are 18 samples, the fewest that can tell two levels from one. */
#define WINDOWS_OF_MATRIX 3u
/* Of the second-level cache an eighth: half of it is too much. Lines are spread over its sets at random and a neighbouring
 * thread takes its share, so that some are pushed out and found in the third level: 25 ns instead of 32 on one machine. */
#define L2_SHARE 8u
/* Of larger caches no more than this, which is soon read; 256 to 1024 lines gave the same figure. */
#define LINES_OF_MATRIX 1024u
#define WARM_ROUNDS 8u
/* Both cores have just settled, and the lines of a matrix are few: the second round finds them where the first left them. */
#define WARM_ROUNDS_OF_MATRIX 2u
/* A tenth of a window more, not counted: the two threads are in step by then. */
#define WARM_TRIPS_PER_WINDOW 10u
#define LINES_MIN 64u
#define LINES_MAX (1u << 20)
#define HOME_MAX 1023u
/* One line used of every four, at random among them: a prefetcher that fetches the other half of a line pair, or the next
 * line, then never fetches one that is still to be loaded. */
#define SPACING_LINES 4u
/* A pair of a matrix may wait so long for its cores to settle; 50 ms, as elsewhere, would be three times its own cost. */
#define SETTLE_NS_OF_MATRIX 3000000u
/* The estimate is made from so many pairs: one alone may have been interrupted. */
#define ESTIMATE_PAIRS 3u
#define PROGRESS_NS 10000000000u

#define TURN_NONE UINT64_MAX

enum method { METHOD_TRANSFER, METHOD_PINGPONG };
static const char *const method_names[] = {"transfer", "pingpong"};

static struct {
	struct word_list pairs;
	struct word_list all_pairs;
	const char *method;
	const char *home;
	const char *state;
	uint64_t lines;
	uint64_t hops;
	uint64_t placements;
	uint64_t windows;
	const char *pages;
	uint64_t seed;
	double budget_s;
	double target_half_width;
	double matrix_budget_s;
} options;

static const struct option table[] = {
	{"--pair", OPTION_REPEATED, &options.pairs, "WRITER@READER[:HOME[:STATE]]",
	 "CPU that holds the lines, and CPU that loads them; home and state where they are not those of all", NULL, NULL, 0,
	 0, true},
	{"--all-pairs", OPTION_REPEATED, &options.all_pairs, "CPUS[@READERS][:HOME[:STATE]]",
	 "a matrix: every ordered pair of these CPUs, or of these and those readers; told in short form", NULL, NULL, 0, 0,
	 true},
	/* Two quantities, never mixed: a hand-shake holds a store, and the way there and back, beside the load. */
	{"--method", OPTION_WORD, &options.method, NULL,
	 "transfer: one load of each of many lines; pingpong: half the round trip of a hand-shake", "transfer",
	 "transfer|pingpong", 0, 0, false},
	/* The writer's own node is where a program that fills a buffer has it; a fixed node need not have memory. */
	{"--home", OPTION_TEXT, &options.home, "NODE|writer|reader",
	 "node of the memory behind the lines, of pairs that name none: a number, or the node of one of the two", "writer",
	 NULL, 0, 0, false},
	/* hitm: modified in the writer's cache; hit: clean there, and nowhere else. */
	{"--state", OPTION_WORD, &options.state, NULL, "state of the lines in the writer's cache, of pairs that name none",
	 "hitm", "hit|hitm", 0, 0, false},
	/* So many stay in the writer's second-level cache; more would be found in the third level, or in memory. */
	{"--lines", OPTION_U64, &options.lines, "N",
	 "lines handed over at a time; 0: an eighth of the writer's L2 cache, and of a matrix at most 1024", "0", NULL, 0,
	 LINES_MAX, false},
	/* One window is then some 1 ms, and 0.2 ms in a matrix: far longer than a clock read. */
	{"--hops", OPTION_U64, &options.hops, "N",
	 "loads or round trips in a window; 0: 16384 loads or 10000 trips, of a matrix 2048 or 1000", "0", NULL, 0,
	 1u << 30, false},
	{"--placements", OPTION_U64, &options.placements, "K", "allocations, at least", "6", NULL, 1,
	 STOPPING_PLACEMENTS_MAX, false},
	{"--windows", OPTION_U64, &options.windows, "N", "timed windows in each placement; 0: 9, of a matrix 3", "0", NULL,
	 0, 10000, false},
	{"--pages", OPTION_WORD, &options.pages, NULL, "pages wanted", "auto", MEMORY_PAGE_CHOICES, 0, 0, false},
	{"--seed", OPTION_U64, &options.seed, "S", "seed of the permutations, and of the order and choice of pairs", "1",
	 NULL, 0, 1ull << 53, false},
	{"--budget-s", OPTION_F64, &options.budget_s, "S",
	 "seconds per pair during which placements beyond K are added until the target is met; 0: just K", "0", NULL, 0,
	 1000000, false},
	/* 3 %: transfers are few and depend on where the home agent of each line lies. */
	{"--target-half-width", OPTION_F64, &options.target_half_width, "R",
	 "relative half-width of the median's interval at which a pair is converged", "0.03", NULL, 0, 1, false},
	/* None: who asks for all pairs gets all, and reads beforehand how long that takes. */
	{"--matrix-budget-s", OPTION_F64, &options.matrix_budget_s, "S",
	 "seconds for all of --all-pairs; where more are expected, a balanced sample is measured; 0: all pairs", "0", NULL,
	 0, 1000000, false},
};

enum home { HOME_NODE, HOME_WRITER, HOME_READER };

/* One --pair or --all-pairs, as it was asked for. */
struct block {
	struct cpu_list writers, readers;
	enum home home;
	unsigned node;
	bool dirty;
};

/* What one pair is asked to do. */
struct transfer {
	unsigned writer, reader;
	enum home home;
	unsigned node;
	bool dirty;
};

struct placement {
	uint64_t seed;
	struct pages pages;
	bool verified;
	double *window_ticks; /* per load, or per half round trip */
	double core_before, core_after;
	struct thread_counts counts;
	struct snapshot before, after;
};

struct role {
	struct pair *pair;
	void (*act)(struct pair *pair, struct error *error); /* NULL: there is nothing more to do */
};

/* How much is done with each pair. */
struct extent {
	bool brief; /* of a matrix: counters of the machine are read for all pairs together, the core clock once a pair */
	uint64_t windows;
	uint64_t hops;
	uint64_t lines_max;
	uint64_t warm_rounds;
};

struct pair {
	struct transfer transfer;
	struct extent extent;
	uint64_t lines;
	struct cpu_list cpus;
	struct stopping stopping;
	struct error error;
	struct placement *placements;
	size_t count;
	struct worker workers[2];
	struct role roles[2];
	/* of the placement in hand */
	struct region region;
	struct chain chain;
	uint64_t rounds; /* in all: warm-up and windows */
	uint64_t rounds_per_window;
	struct thread_counts counts[2];
	bool verified[2];
	double core_now; /* core clocks per tick, as last measured by the thread that was told to */
	/* Whose turn it is, on a line of its own: 2*round: the writer's, 2*round+1: the reader's, or TURN_NONE. */
	_Alignas(256) _Atomic uint64_t turn;
};

/* A pair of a matrix that was measured, without what only a pair of its own has. */
struct cell {
	struct transfer transfer;
	uint64_t lines;
	const char *stopped;
	struct error *error; /* NULL: none */
	size_t count;
	double *window_ticks; /* of all placements, one after another */
	uint64_t seed;        /* of the first placement */
	struct pages pages;   /* of all placements: they share one mapping */
	double core_before, core_after;
	struct thread_counts counts;
};

static bool parse_home(const char *text, enum home *home, unsigned *node)
{
	uint64_t value;
	if (!strcmp(text, "writer")) {
		*home = HOME_WRITER;
	} else if (!strcmp(text, "reader")) {
		*home = HOME_READER;
	} else if (options_u64(text, &value) && value <= HOME_MAX) {
		*home = HOME_NODE;
		*node = (unsigned)value;
	} else {
		return false;
	}
	return true;
}

static void block_free(struct block *block)
{
	cpu_list_free(&block->writers);
	cpu_list_free(&block->readers);
}

/* CPUS[@READERS][:HOME[:STATE]]; without readers the CPUs are both. */
static bool parse_block(const char *option, const char *text, struct block *block, struct error *error)
{
	struct error part = {0};
	*block = (struct block){.dirty = !strcmp(options.state, "hitm")};
	char *writers = strdup(text);
	if (!writers)
		return error_set(error, ERROR_INTERNAL, "no memory for %s", option);
	char *home = strchr(writers, ':');
	if (home)
		*home++ = '\0';
	char *state = home ? strchr(home, ':') : NULL;
	if (state)
		*state++ = '\0';
	char *readers = strchr(writers, '@');
	if (readers)
		*readers++ = '\0';
	bool good = cpu_list_parse(&block->writers, writers, &part) &&
	            cpu_list_parse(&block->readers, readers ? readers : writers, &part);
	if (!good)
		error_set(error, ERROR_USAGE, "%s: expected CPUs such as 0@1, found '%s'; %s", option, text, part.message);
	if (good && !parse_home(home ? home : options.home, &block->home, &block->node))
		good = error_set(error, ERROR_USAGE, "%s: expected a node up to %u, writer or reader as the home, found '%s'",
		                 option, HOME_MAX, home ? text : options.home);
	if (good && state) {
		block->dirty = !strcmp(state, "hitm");
		if (!block->dirty && strcmp(state, "hit") != 0)
			good = error_set(error, ERROR_USAGE, "%s: expected the state hit or hitm, found '%s'", option, text);
		else if (!strcmp(options.method, "pingpong"))
			good =
				error_set(error, ERROR_USAGE, "%s: a hand-shake has no state, found '%s'; leave it out", option, text);
	}
	if (good && block->writers.count == 1 && block->readers.count == 1 &&
	    block->writers.cpus[0] == block->readers.cpus[0])
		good = error_set(error, ERROR_USAGE, "%s: expected two CPUs, found '%s'", option, text);
	free(writers);
	if (!good)
		block_free(block);
	return good;
}

static bool parse_pair(const char *text, struct transfer *transfer, struct error *error)
{
	struct block block;
	if (!parse_block("--pair", text, &block, error))
		return false;
	bool one = block.writers.count == 1 && block.readers.count == 1 && strchr(text, '@');
	if (one)
		*transfer =
			(struct transfer){block.writers.cpus[0], block.readers.cpus[0], block.home, block.node, block.dirty};
	block_free(&block);
	return one || error_set(error, ERROR_USAGE, "--pair: expected one CPU on each side of an @, found '%s'", text);
}

static bool prepare(struct error *error)
{
	struct transfer transfer;
	struct block block;
	if (!options.pairs.count && !options.all_pairs.count)
		return error_set(error, ERROR_USAGE, "expected --pair or --all-pairs, found neither; --help explains them");
	if (!parse_home(options.home, &transfer.home, &transfer.node))
		return error_set(error, ERROR_USAGE, "--home: expected a node up to %u, writer or reader, found '%s'", HOME_MAX,
		                 options.home);
	for (size_t i = 0; i < options.pairs.count; i++)
		if (!parse_pair(options.pairs.words[i], &transfer, error))
			return false;
	for (size_t i = 0; i < options.all_pairs.count; i++) {
		if (!parse_block("--all-pairs", options.all_pairs.words[i], &block, error))
			return false;
		block_free(&block);
	}
	if (options.lines && options.lines < LINES_MIN)
		return error_set(error, ERROR_USAGE, "--lines: expected 0 or at least %u, found %llu", LINES_MIN,
		                 (unsigned long long)options.lines);
	return true;
}

static enum method method_wanted(void)
{
	return strcmp(options.method, "pingpong") ? METHOD_TRANSFER : METHOD_PINGPONG;
}

/* An eighth of the writer's L2 cache; 32 KiB of lines where the kernel does not say. */
static uint64_t choose_lines(unsigned cpu, uint64_t most)
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
	uint64_t lines = bytes / L2_SHARE / memory_line_bytes();
	lines = lines > most ? most : lines;
	return lines < LINES_MIN ? LINES_MIN : lines / 64 * 64;
}

/* -- what the two threads of a pair do, one act at a time -- */

/* The body of both threads: acts as it is told, and sleeps between. */
static void serve(struct worker *worker)
{
	struct role *role = worker->context;
	for (;;) {
		worker_pause(worker);
		if (!role->act)
			return;
		role->act(role->pair, &worker->error);
	}
}

static void settle(struct pair *pair, struct error *error)
{
	(void)error;
	if (!pair->extent.brief) {
		corefreq_settle();
		return;
	}
	uint64_t begin = clock_raw_ns();
	for (double last = 0; clock_raw_ns() - begin < SETTLE_NS_OF_MATRIX;) {
		double now = corefreq_per_tick();
		if (now < 1.003 * last && last < 1.003 * now)
			return;
		last = now;
	}
}

static void clock_core(struct pair *pair, struct error *error)
{
	(void)error;
	pair->core_now = corefreq_per_tick();
}

static uint64_t *node_word(const struct pair *pair, uint64_t node, unsigned word)
{
	return (uint64_t *)(void *)(pair->chain.base + chain_position(&pair->chain, node)) + word;
}

/* In the writer's thread, so that what the kernel needs beside the lines lies near it too. A pair of a matrix maps memory
 * for all its placements at once: each has lines of its own as well, and mapping them one by one took most of the time. */
static void place(struct pair *pair, struct error *error)
{
	struct placement *placement = &pair->placements[pair->count];
	size_t stride = SPACING_LINES * memory_line_bytes(), bytes = pair->lines * stride;
	size_t shares = pair->extent.brief ? options.placements : 1;
	if (!pair->region.start) {
		if (!region_map(&pair->region, shares * bytes, pair->transfer.node, placement->pages.wanted, error) ||
		    !pages_read_back(&placement->pages, &pair->region, 1, placement->pages.wanted, error))
			return;
	}
	pair->chain = (struct chain){.base = pair->region.start + pair->count % shares * bytes,
	                             .size_bytes = bytes,
	                             .stride_bytes = stride,
	                             .line_bytes = memory_line_bytes(),
	                             .order = CHAIN_RANDOM,
	                             .seed = placement->seed};
	if (!chain_build(&pair->chain, error))
		return;
	for (uint64_t node = 0; node < pair->lines; node++)
		*node_word(pair, node, 1) = *node_word(pair, node, 2) = 0;
}

/* False when there will be no such turn, because the work was told to stop. */
static bool wait_turn(struct pair *pair, uint64_t turn)
{
	uint64_t now;
	do
		now = atomic_load_explicit(&pair->turn, memory_order_acquire);
	while (now != turn && now != TURN_NONE); /* no pause: its length differs between processors by a factor of four */
	return now == turn;
}

/* Puts every line into the wanted state in this core's caches. The first word is the link, the second is free. */
static void prepare_lines(const struct pair *pair)
{
	if (!pair->transfer.dirty) {
		for (uint64_t node = 0; node < pair->lines; node++)
			arch_flush_line(node_word(pair, node, 0));
		arch_full_fence();
	}
	for (uint64_t node = 0; node < pair->lines; node++) {
		volatile uint64_t *word = node_word(pair, node, 1);
		if (pair->transfer.dirty)
			*word = *word + 1;
		else
			(void)*word;
	}
	arch_full_fence();
}

static void counts_end(struct pair *pair, unsigned side, const struct thread_counts *before)
{
	struct thread_counts after = {0};
	thread_counts_read(&after);
	pair->counts[side] = thread_counts_since(&after, before);
	pair->verified[side] = affinity_verify(side ? pair->transfer.reader : pair->transfer.writer);
}

static void write_lines(struct pair *pair, struct error *error)
{
	(void)error;
	struct thread_counts before = {0};
	thread_counts_read(&before);
	for (uint64_t round = 0; round < pair->rounds; round++) {
		(void)wait_turn(pair, 2 * round);
		if (stop_requested()) {
			atomic_store_explicit(&pair->turn, TURN_NONE, memory_order_release);
			break;
		}
		prepare_lines(pair);
		atomic_store_explicit(&pair->turn, 2 * round + 1, memory_order_release);
	}
	(void)wait_turn(pair, 2 * pair->rounds);
	counts_end(pair, 0, &before);
}

static void read_lines(struct pair *pair, struct error *error)
{
	struct placement *placement = &pair->placements[pair->count];
	struct thread_counts before = {0};
	thread_counts_read(&before);
	uint64_t window_ticks = 0, in_window = 0, window = 0;
	for (uint64_t round = 0; round < pair->rounds && wait_turn(pair, 2 * round + 1); round++) {
		uint64_t first = pair->chain.at;
		uint64_t start = clock_start();
		chain_walk(&pair->chain, pair->lines / 64);
		uint64_t stop = clock_stop();
		if (pair->chain.at != first)
			error_set(error, ERROR_CHECK_FAILED, "expected a walk over all lines to end where it began");
		if (round >= pair->extent.warm_rounds) {
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
	counts_end(pair, 1, &before);
}

/* The two lines of a window, half the lines apart: another two in each, so that no one home agent speaks for all. */
static _Atomic uint64_t *shaken(const struct pair *pair, uint64_t window, bool answer)
{
	uint64_t half = pair->lines / 2, step = half / pair->extent.windows;
	uint64_t node = window * (step ? step : 1) % half;
	return (_Atomic uint64_t *)node_word(pair, answer ? node + half : node, 2);
}

static void shake(struct pair *pair, struct error *error)
{
	(void)error;
	struct placement *placement = &pair->placements[pair->count];
	struct thread_counts before = {0};
	thread_counts_read(&before);
	uint64_t trips = pair->extent.hops, warm = (trips + WARM_TRIPS_PER_WINDOW - 1) / WARM_TRIPS_PER_WINDOW;
	for (uint64_t window = 0; window < pair->extent.windows; window++) {
		_Atomic uint64_t *mine = shaken(pair, window, false), *theirs = shaken(pair, window, true);
		uint64_t first = atomic_load_explicit(mine, memory_order_relaxed), start = 0;
		if (stop_requested()) {
			/* The other side waits for the first of these hand-shakes, and looks at the turn then. */
			atomic_store_explicit(&pair->turn, TURN_NONE, memory_order_relaxed);
			atomic_store_explicit(mine, first + 1, memory_order_release);
			break;
		}
		for (uint64_t trip = 0; trip < warm + trips; trip++) {
			if (trip == warm)
				start = clock_start();
			atomic_store_explicit(mine, first + trip + 1, memory_order_release);
			while (atomic_load_explicit(theirs, memory_order_acquire) != first + trip + 1)
				continue;
		}
		double net = (double)(clock_stop() - start) - clock_now_used.read_cost_ticks;
		placement->window_ticks[window] = net / (double)(2 * trips);
	}
	counts_end(pair, 0, &before);
}

static void shake_back(struct pair *pair, struct error *error)
{
	(void)error;
	struct thread_counts before = {0};
	thread_counts_read(&before);
	uint64_t trips = pair->extent.hops, warm = (trips + WARM_TRIPS_PER_WINDOW - 1) / WARM_TRIPS_PER_WINDOW;
	for (uint64_t window = 0; window < pair->extent.windows; window++) {
		_Atomic uint64_t *mine = shaken(pair, window, true), *theirs = shaken(pair, window, false);
		uint64_t first = atomic_load_explicit(mine, memory_order_relaxed);
		for (uint64_t trip = 0; trip < warm + trips; trip++) {
			while (atomic_load_explicit(theirs, memory_order_acquire) != first + trip + 1)
				continue;
			if (trip == 0 && atomic_load_explicit(&pair->turn, memory_order_relaxed) == TURN_NONE)
				goto done;
			atomic_store_explicit(mine, first + trip + 1, memory_order_release);
		}
	}
done:
	counts_end(pair, 1, &before);
}

/* -- what the supervising thread makes of them -- */

static void act(struct pair *pair, unsigned side, void (*what)(struct pair *pair, struct error *error))
{
	pair->roles[side].act = what;
	worker_continue(&pair->workers[side]);
}

static bool acted(struct pair *pair, unsigned side)
{
	if (worker_wait(&pair->workers[side]))
		return true;
	if (pair->error.code == ERROR_NONE)
		pair->error = pair->workers[side].error;
	return false;
}

/* One thread alone, while the other sleeps. */
static bool act_alone(struct pair *pair, unsigned side, void (*what)(struct pair *pair, struct error *error))
{
	act(pair, side, what);
	return acted(pair, side);
}

static bool act_both(struct pair *pair, void (*writer)(struct pair *pair, struct error *error),
                     void (*reader)(struct pair *pair, struct error *error))
{
	act(pair, 0, writer);
	act(pair, 1, reader);
	bool first = acted(pair, 0);
	return acted(pair, 1) && first;
}

/* Every line was written once a round, or never; or as often as hands were shaken over it. */
static bool check_lines(struct pair *pair)
{
	uint64_t shaken_lines = 0, warm = (pair->extent.hops + WARM_TRIPS_PER_WINDOW - 1) / WARM_TRIPS_PER_WINDOW;
	bool pingpong = method_wanted() == METHOD_PINGPONG;
	uint64_t expected = !pingpong && pair->transfer.dirty ? pair->rounds : 0, shakes = 0;
	for (uint64_t node = 0; node < pair->lines; node++) {
		if (*node_word(pair, node, 1) != expected)
			return error_set(&pair->error, ERROR_CHECK_FAILED, "expected every line written %llu times, found %llu",
			                 (unsigned long long)expected, (unsigned long long)*node_word(pair, node, 1));
		shakes += *node_word(pair, node, 2);
		shaken_lines += *node_word(pair, node, 2) > 0;
	}
	uint64_t wanted = pingpong ? 2 * pair->extent.windows * (warm + pair->extent.hops) : 0;
	return shakes == wanted ||
	       error_set(&pair->error, ERROR_CHECK_FAILED, "expected %llu stores of a hand-shake, found %llu on %llu lines",
	                 (unsigned long long)wanted, (unsigned long long)shakes, (unsigned long long)shaken_lines);
}

static bool run_placement(struct pair *pair)
{
	struct placement *placement = &pair->placements[pair->count];
	bool pingpong = method_wanted() == METHOD_PINGPONG, brief = pair->extent.brief;
	if (!act_alone(pair, 0, place) || ((!brief || pair->count == 0) && !act_alone(pair, 1, clock_core)))
		return false;
	placement->core_before = pair->core_now;
	atomic_store(&pair->turn, 0);
	if (!brief)
		snapshot_take(&placement->before, &pair->cpus);
	if (!act_both(pair, pingpong ? shake : write_lines, pingpong ? shake_back : read_lines))
		return false;
	if (!brief)
		snapshot_take(&placement->after, &pair->cpus);
	if (atomic_load(&pair->turn) == TURN_NONE)
		return false; /* told to stop within the placement, which is then not complete */
	if ((!brief && !act_alone(pair, 1, clock_core)) || !check_lines(pair))
		return false;
	placement->core_after = pair->core_now;
	placement->counts = pair->counts[0];
	thread_counts_add(&placement->counts, &pair->counts[1]);
	placement->verified = pair->verified[0] && pair->verified[1];
	return placement->verified ||
	       error_set(&pair->error, ERROR_PIN_FAILED, "expected CPUs %u and %u after measuring, found others",
	                 pair->transfer.writer, pair->transfer.reader);
}

/* The pages must still lie where they were found before. */
static bool leave(struct pair *pair)
{
	struct pages again = {0};
	bool good = !pair->region.start || pages_read_nodes(&again, &pair->region, &pair->error);
	region_unmap(&pair->region);
	return good;
}

static bool measure_placement(struct pair *pair, uint64_t seed)
{
	struct placement *placement = &pair->placements[pair->count];
	enum page_kind kind;
	page_kind_parse(options.pages, &kind);
	*placement = (struct placement){.seed = seed, .pages = {.wanted = kind}};
	placement->window_ticks = calloc(pair->extent.windows, sizeof(double));
	if (!placement->window_ticks)
		return error_set(&pair->error, ERROR_INTERNAL, "no memory for windows");
	bool good = run_placement(pair);
	return (pair->extent.brief || leave(pair)) && good;
}

static void measure_placements(struct pair *pair, uint64_t number)
{
	double medians[STOPPING_PLACEMENTS_MAX];
	stopping_begin(&pair->stopping);
	do {
		if (pair->count == 0 && stop_error(&pair->error))
			return;
		if (!measure_placement(pair, random_derive(options.seed, number, pair->count))) {
			if (pair->count && stop_requested() && pair->error.code == ERROR_NONE)
				pair->stopping.reason = "interrupted";
			else
				stop_error(&pair->error);
			break;
		}
		medians[pair->count] = statistics_median(pair->placements[pair->count].window_ticks, pair->extent.windows);
		pair->count++;
	} while (!stopping_done(&pair->stopping, medians, pair->count));
	if (pair->extent.brief && pair->count && act_alone(pair, 1, clock_core))
		pair->placements[pair->count - 1].core_after = pair->core_now;
}

static bool start_threads(struct pair *pair, unsigned *started)
{
	unsigned cpus[2] = {pair->transfer.writer, pair->transfer.reader};
	for (*started = 0; *started < 2; (*started)++) {
		unsigned side = *started;
		pair->roles[side] = (struct role){.pair = pair};
		if (!worker_start(&pair->workers[side], cpus[side], serve, &pair->roles[side], &pair->error))
			return false;
	}
	bool first = acted(pair, 0);
	return acted(pair, 1) && first;
}

/* The node of a CPU is that of the thread that is pinned to it. */
static void find_home(struct pair *pair, struct error *error)
{
	unsigned cpu, node;
	if (syscall(SYS_getcpu, &cpu, &node, NULL) != 0)
		error_set(error, ERROR_INTERNAL, "expected the kernel to tell the node of this CPU, found that it does not");
	else
		pair->transfer.node = node;
}

static void measure_pair(struct pair *pair, uint64_t number)
{
	struct extent *extent = &pair->extent;
	unsigned started = 0;
	pair->lines =
		options.lines ? (options.lines + 63) / 64 * 64 : choose_lines(pair->transfer.writer, extent->lines_max);
	pair->rounds_per_window = (extent->hops + pair->lines - 1) / pair->lines;
	pair->rounds = extent->warm_rounds + pair->rounds_per_window * extent->windows;
	pair->stopping = (struct stopping){
		.placements = options.placements, .budget_s = options.budget_s, .target = options.target_half_width};
	if (stop_error(&pair->error) || !affinity_usable(pair->transfer.writer, &pair->error) ||
	    !affinity_usable(pair->transfer.reader, &pair->error))
		return;
	supervise_avoid(&pair->cpus);
	bool good = start_threads(pair, &started);
	if (good && pair->transfer.home != HOME_NODE)
		good = act_alone(pair, pair->transfer.home == HOME_READER, find_home);
	if (good && act_both(pair, settle, settle))
		measure_placements(pair, number);
	leave(pair);
	for (unsigned side = 0; side < started; side++) {
		pair->roles[side].act = NULL;
		worker_join(&pair->workers[side]);
	}
}

static struct pair *pair_new(const struct transfer *transfer, bool brief)
{
	bool pingpong = method_wanted() == METHOD_PINGPONG;
	struct pair *pair = aligned_alloc(256, (sizeof(*pair) + 255) / 256 * 256);
	if (!pair)
		return NULL;
	memset(pair, 0, sizeof(*pair));
	pair->transfer = *transfer;
	uint64_t hops =
		pingpong ? (brief ? WINDOW_TRIPS_OF_MATRIX : WINDOW_TRIPS) : (brief ? WINDOW_HOPS_OF_MATRIX : WINDOW_HOPS);
	pair->extent = (struct extent){
		.brief = brief,
		.windows = options.windows ? options.windows
		           : brief         ? WINDOWS_OF_MATRIX
		                           : WINDOWS,
		.hops = options.hops ? options.hops : hops,
		.lines_max = brief ? LINES_OF_MATRIX : LINES_MAX,
		.warm_rounds = brief ? WARM_ROUNDS_OF_MATRIX : WARM_ROUNDS,
	};
	pair->placements = calloc(STOPPING_PLACEMENTS_MAX, sizeof(*pair->placements));
	if (pair->placements && cpu_list_add(&pair->cpus, transfer->writer) && cpu_list_add(&pair->cpus, transfer->reader))
		return pair;
	free(pair->placements);
	cpu_list_free(&pair->cpus);
	free(pair);
	return NULL;
}

static void pair_free(struct pair *pair)
{
	for (size_t k = 0; k < STOPPING_PLACEMENTS_MAX; k++) {
		free(pair->placements[k].window_ticks);
		snapshot_free(&pair->placements[k].before);
		snapshot_free(&pair->placements[k].after);
	}
	free(pair->placements);
	cpu_list_free(&pair->cpus);
	free(pair);
}

static void transfer_write(struct json *json, const struct transfer *transfer, uint64_t lines, bool good,
                           const char *stopped)
{
	json_u64(json, "writer", transfer->writer);
	json_u64(json, "reader", transfer->reader);
	if (transfer->home == HOME_NODE || good)
		json_u64(json, "home", transfer->node);
	else
		json_null(json, "home"); /* the node of a CPU on which no thread ran */
	json_text(json, "state", method_wanted() == METHOD_PINGPONG ? NULL : transfer->dirty ? "hitm" : "hit");
	json_text(json, "method", method_names[method_wanted()]);
	json_u64(json, "lines", lines);
	json_bool(json, "checked", good);
	json_text(json, "stopped", good ? stopped : NULL);
}

static void windows_write(struct json *json, const char *key, const double *ticks, uint64_t windows)
{
	json_array_begin(json, key);
	for (uint64_t i = 0; i < windows; i++)
		json_f64(json, NULL, clock_ns(ticks[i]));
	json_array_end(json);
}

static void placement_write(struct json *json, const struct pair *pair, const struct placement *placement)
{
	json_object_begin(json, NULL);
	json_u64(json, "seed", placement->seed);
	pages_write(json, "pages", &placement->pages);
	json_bool(json, "cpus_verified", placement->verified);
	windows_write(json, "windows_ns", placement->window_ticks, pair->extent.windows);
	json_f64(json, "core_hz_before", corefreq_hz(placement->core_before));
	json_f64(json, "core_hz_after", corefreq_hz(placement->core_after));
	interference_write(json, "interference", &placement->counts, &placement->before, &placement->after, &pair->cpus);
	json_object_end(json);
}

static void pair_write(struct json *json, const struct pair *pair)
{
	bool good = pair->error.code == ERROR_NONE;
	json_object_begin(json, NULL);
	transfer_write(json, &pair->transfer, pair->lines, good, pair->stopping.reason);
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

/* -- the matrix: which pairs, in which order, and how many -- */

struct request {
	unsigned writer, reader;
	uint32_t block;
	bool taken;
};

/* Hands out the pairs of a matrix, each once, in an order of which every beginning is a balanced sample: seeded, a pair
 * followed by its reverse, and no CPU ahead of another by more than a few pairs. */
struct sampler {
	struct request *requests; /* by writer, then reader */
	size_t count;
	uint32_t *rest; /* those not handed out, shuffled */
	size_t left, at, kept;
	uint32_t level;         /* how often a CPU may write, and how often read, by now */
	uint32_t *wrote, *read; /* by CPU */
	size_t pending;         /* the reverse of the last one; `count`: none */
};

struct matrix {
	struct block *blocks;
	size_t block_count;
	struct sampler sampler;
	struct cpu_list cpus;
	struct cell *cells;
	size_t count, capacity, chosen;
	struct thread_counts counts;
	struct snapshot before, after;
	uint64_t began_ns;
	/* the estimate: of pairs that could be measured */
	size_t estimated_on;
	double pair_s, expected_s;
	struct error stopped; /* what ended it early */
};

static int by_pair(unsigned writer, unsigned reader, unsigned other_writer, unsigned other_reader)
{
	if (writer != other_writer)
		return writer < other_writer ? -1 : 1;
	return (reader > other_reader) - (reader < other_reader);
}

static int compare_requests(const void *left, const void *right)
{
	const struct request *a = left, *b = right;
	int order = by_pair(a->writer, a->reader, b->writer, b->reader);
	return order ? order : (a->block > b->block) - (a->block < b->block);
}

static int compare_cells(const void *left, const void *right)
{
	const struct cell *a = left, *b = right;
	return by_pair(a->transfer.writer, a->transfer.reader, b->transfer.writer, b->transfer.reader);
}

static bool no_memory(struct error *error)
{
	return error_set(error, ERROR_NO_MEMORY, "no memory for the pairs of a matrix; name fewer CPUs");
}

/* All pairs of all blocks, each once. The same pair twice, and not with the same home and state, would be two figures. */
static bool list_requests(struct matrix *matrix, struct error *error)
{
	struct sampler *sampler = &matrix->sampler;
	size_t most = 0;
	for (size_t b = 0; b < matrix->block_count; b++)
		most += matrix->blocks[b].writers.count * matrix->blocks[b].readers.count;
	sampler->requests = malloc((most ? most : 1) * sizeof(*sampler->requests));
	if (!sampler->requests || most > UINT32_MAX)
		return no_memory(error);
	for (size_t b = 0; b < matrix->block_count; b++) {
		const struct block *block = &matrix->blocks[b];
		for (size_t w = 0; w < block->writers.count; w++)
			for (size_t r = 0; r < block->readers.count; r++)
				if (block->writers.cpus[w] != block->readers.cpus[r])
					sampler->requests[sampler->count++] = (struct request){
						.writer = block->writers.cpus[w], .reader = block->readers.cpus[r], .block = (uint32_t)b};
	}
	qsort(sampler->requests, sampler->count, sizeof(*sampler->requests), compare_requests);
	size_t kept = 0;
	for (size_t i = 0; i < sampler->count; i++) {
		const struct request *now = &sampler->requests[i], *last = kept ? &sampler->requests[kept - 1] : NULL;
		if (last && now->writer == last->writer && now->reader == last->reader) {
			const struct block *a = &matrix->blocks[now->block], *b = &matrix->blocks[last->block];
			if (a->home != b->home || a->node != b->node || a->dirty != b->dirty)
				return error_set(
					error, ERROR_USAGE,
					"--all-pairs: expected each pair with one home and state, found CPUs %u and %u with two",
					now->writer, now->reader);
			continue;
		}
		sampler->requests[kept++] = *now;
	}
	sampler->count = kept;
	return true;
}

static bool sampler_begin(struct sampler *sampler, struct error *error)
{
	unsigned last = 0;
	for (size_t i = 0; i < sampler->count; i++) {
		const struct request *request = &sampler->requests[i];
		last = request->writer > last ? request->writer : last;
		last = request->reader > last ? request->reader : last;
	}
	sampler->rest = malloc((sampler->count + 1) * sizeof(*sampler->rest));
	sampler->wrote = calloc(last + 1u, sizeof(*sampler->wrote));
	sampler->read = calloc(last + 1u, sizeof(*sampler->read));
	if (!sampler->rest || !sampler->wrote || !sampler->read)
		return no_memory(error);
	struct random random;
	random_seed(&random, options.seed);
	for (size_t i = 0; i < sampler->count; i++) {
		size_t k = random_below(&random, i + 1);
		sampler->rest[i] = sampler->rest[k];
		sampler->rest[k] = (uint32_t)i;
	}
	sampler->left = sampler->count;
	sampler->pending = sampler->count;
	sampler->level = 1;
	return true;
}

static struct request *sampler_take(struct sampler *sampler, size_t index)
{
	struct request *request = &sampler->requests[index];
	request->taken = true;
	sampler->wrote[request->writer]++;
	sampler->read[request->reader]++;
	return request;
}

/* The next pair; NULL after the last. */
static struct request *sampler_next(struct sampler *sampler)
{
	if (sampler->pending < sampler->count) {
		size_t index = sampler->pending;
		sampler->pending = sampler->count;
		return sampler_take(sampler, index);
	}
	for (;;) {
		if (sampler->at == sampler->left) {
			if (!sampler->kept)
				return NULL;
			sampler->left = sampler->kept;
			sampler->at = sampler->kept = 0;
			sampler->level++;
		}
		uint32_t index = sampler->rest[sampler->at++];
		const struct request *request = &sampler->requests[index];
		if (request->taken)
			continue;
		if (sampler->wrote[request->writer] >= sampler->level || sampler->read[request->reader] >= sampler->level) {
			sampler->rest[sampler->kept++] = index;
			continue;
		}
		struct request reverse = {.writer = request->reader, .reader = request->writer};
		for (size_t low = 0, high = sampler->count; low < high;) {
			size_t middle = low + (high - low) / 2;
			const struct request *found = &sampler->requests[middle];
			int order = by_pair(found->writer, found->reader, reverse.writer, reverse.reader);
			if (order == 0) {
				sampler->pending = found->taken ? sampler->count : middle;
				break;
			}
			if (order < 0)
				low = middle + 1;
			else
				high = middle;
		}
		return sampler_take(sampler, index);
	}
}

static bool cell_keep(struct matrix *matrix, const struct pair *pair)
{
	if (matrix->count == matrix->capacity) {
		size_t capacity = matrix->capacity ? 2 * matrix->capacity : 256;
		struct cell *grown = realloc(matrix->cells, capacity * sizeof(*grown));
		if (!grown)
			return false;
		matrix->cells = grown;
		matrix->capacity = capacity;
	}
	struct cell *cell = &matrix->cells[matrix->count++];
	*cell = (struct cell){.transfer = pair->transfer, .lines = pair->lines, .stopped = pair->stopping.reason};
	if (pair->error.code != ERROR_NONE) {
		cell->error = malloc(sizeof(*cell->error));
		if (cell->error)
			*cell->error = pair->error;
		return cell->error != NULL;
	}
	uint64_t windows = pair->extent.windows;
	cell->window_ticks = malloc(pair->count * windows * sizeof(double));
	if (!cell->window_ticks)
		return false;
	cell->count = pair->count;
	cell->seed = pair->placements[0].seed;
	cell->pages = pair->placements[0].pages;
	cell->core_before = pair->placements[0].core_before;
	cell->core_after = pair->placements[pair->count - 1].core_after;
	for (size_t k = 0; k < pair->count; k++) {
		const struct placement *placement = &pair->placements[k];
		memcpy(cell->window_ticks + k * windows, placement->window_ticks, windows * sizeof(double));
		thread_counts_add(&cell->counts, &placement->counts);
	}
	thread_counts_add(&matrix->counts, &cell->counts);
	return true;
}

/* After the first pairs: how long all will take, and how many of them the budget allows. */
static void estimate(struct matrix *matrix)
{
	size_t all = matrix->sampler.count;
	matrix->pair_s /= (double)matrix->estimated_on;
	matrix->expected_s = matrix->pair_s * (double)all;
	if (options.matrix_budget_s > 0 && matrix->expected_s > options.matrix_budget_s)
		matrix->chosen = (size_t)(options.matrix_budget_s / matrix->pair_s);
	if (matrix->chosen < matrix->count)
		matrix->chosen = matrix->count;
	fprintf(stderr, "sutprobe: c2c: %zu pairs, %.4f s each by the first %zu: %.1f s; %zu will be measured\n", all,
	        matrix->pair_s, matrix->estimated_on, matrix->expected_s, matrix->chosen);
}

static bool measure_cell(struct matrix *matrix, struct request *request, struct error *error)
{
	const struct block *block = &matrix->blocks[request->block];
	struct transfer transfer = {request->writer, request->reader, block->home, block->node, block->dirty};
	uint64_t begin_ns = clock_raw_ns();
	struct pair *pair = pair_new(&transfer, true);
	if (!pair)
		return no_memory(error);
	measure_pair(pair, (uint64_t)request->writer << 20 | request->reader);
	bool good = pair->error.code == ERROR_NONE, kept = true;
	if (!good && stop_requested())
		request->taken = false; /* it was begun, and has no value */
	else
		kept = cell_keep(matrix, pair);
	pair_free(pair);
	if (good && !matrix->expected_s) {
		matrix->pair_s += (double)(clock_raw_ns() - begin_ns) / 1e9;
		matrix->estimated_on++;
		/* Of so few pairs that three are all of them, the first speaks. */
		if (matrix->estimated_on == (matrix->sampler.count > ESTIMATE_PAIRS ? ESTIMATE_PAIRS : 1))
			estimate(matrix);
	}
	return kept || no_memory(error);
}

static bool measure_cells(struct matrix *matrix, struct error *error)
{
	uint64_t told_ns = clock_raw_ns();
	matrix->chosen = matrix->sampler.count;
	matrix->began_ns = told_ns;
	while (matrix->count < matrix->chosen && !stop_error(&matrix->stopped)) {
		struct request *request = sampler_next(&matrix->sampler);
		if (!request)
			break;
		if (!measure_cell(matrix, request, error))
			return false;
		uint64_t now_ns = clock_raw_ns();
		double spent_s = (double)(now_ns - matrix->began_ns) / 1e9;
		if (options.matrix_budget_s > 0 && spent_s >= options.matrix_budget_s)
			matrix->chosen = matrix->count; /* later pairs took longer than the first */
		if (now_ns - told_ns >= PROGRESS_NS) {
			told_ns = now_ns;
			fprintf(stderr, "sutprobe: c2c: %zu of %zu pairs after %.0f s\n", matrix->count, matrix->chosen, spent_s);
		}
	}
	return true;
}

static bool matrix_prepare(struct matrix *matrix, struct error *error)
{
	matrix->blocks = calloc(options.all_pairs.count, sizeof(*matrix->blocks));
	if (!matrix->blocks)
		return no_memory(error);
	for (; matrix->block_count < options.all_pairs.count; matrix->block_count++) {
		struct block *block = &matrix->blocks[matrix->block_count];
		if (!parse_block("--all-pairs", options.all_pairs.words[matrix->block_count], block, error))
			return false;
		for (size_t i = 0; i < block->writers.count; i++)
			if (!cpu_list_add(&matrix->cpus, block->writers.cpus[i]))
				return no_memory(error);
		for (size_t i = 0; i < block->readers.count; i++)
			if (!cpu_list_add(&matrix->cpus, block->readers.cpus[i]))
				return no_memory(error);
	}
	return list_requests(matrix, error) && sampler_begin(&matrix->sampler, error);
}

static void matrix_free(struct matrix *matrix)
{
	for (size_t i = 0; i < matrix->block_count; i++)
		block_free(&matrix->blocks[i]);
	for (size_t i = 0; i < matrix->count; i++) {
		free(matrix->cells[i].error);
		free(matrix->cells[i].window_ticks);
	}
	free(matrix->blocks);
	free(matrix->cells);
	free(matrix->sampler.requests);
	free(matrix->sampler.rest);
	free(matrix->sampler.wrote);
	free(matrix->sampler.read);
	cpu_list_free(&matrix->cpus);
	snapshot_free(&matrix->before);
	snapshot_free(&matrix->after);
}

static void cell_write(struct json *json, const struct cell *cell)
{
	bool good = cell->error == NULL;
	json_object_begin(json, NULL);
	transfer_write(json, &cell->transfer, cell->lines, good, cell->stopped);
	if (!good) {
		error_write(json, cell->error);
		json_null(json, "placements");
		json_null(json, "evidence");
		json_object_end(json);
		return;
	}
	uint64_t windows = options.windows ? options.windows : WINDOWS_OF_MATRIX;
	unsigned cpus[2] = {cell->transfer.writer, cell->transfer.reader};
	struct cpu_list both = {cpus, 2};
	struct snapshot none = {.cpus = &both, .pages_migrated = -1}; /* counters were read for all pairs together */
	json_null(json, "error");
	json_array_begin(json, "placements");
	for (size_t k = 0; k < cell->count; k++)
		windows_write(json, NULL, cell->window_ticks + k * windows, windows);
	json_array_end(json);
	json_object_begin(json, "evidence");
	json_u64(json, "seed", cell->seed);
	pages_write(json, "pages", &cell->pages);
	json_bool(json, "cpus_verified", true); /* a pair whose CPUs could not be verified is an error */
	json_f64(json, "core_hz_before", corefreq_hz(cell->core_before));
	json_f64(json, "core_hz_after", corefreq_hz(cell->core_after));
	interference_write(json, "interference", &cell->counts, &none, &none, &both);
	json_object_end(json);
	json_object_end(json);
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
			error_set(&why, ERROR_DEADLINE,
			          "%zu of %zu pairs were left out: all were expected to take %.1f s, found --matrix-budget-s %g",
			          left, count, matrix->expected_s, options.matrix_budget_s);
		json_text(json, "message", why.message);
		json_array_begin(json, "pairs");
		for (size_t i = 0, next; i < count; i = next) {
			for (next = i; next < count && requests[next].writer == requests[i].writer; next++)
				continue;
			/* "4294967295-4294967295," for each at most */
			size_t room = (next - i + 1) * 24, length;
			char *text = malloc(room);
			if (!text) {
				json->spoilt = true;
				break;
			}
			length = (size_t)snprintf(text, room, "%u@", requests[i].writer);
			size_t empty = length;
			for (size_t at = i; at < next; at++) {
				size_t last = at;
				if (requests[at].taken)
					continue;
				while (last + 1 < next && !requests[last + 1].taken &&
				       requests[last + 1].reader == requests[last].reader + 1)
					last++;
				length += (size_t)snprintf(text + length, room - length, "%s%u", length > empty ? "," : "",
				                           requests[at].reader);
				if (last > at)
					length += (size_t)snprintf(text + length, room - length, "-%u", requests[last].reader);
				at = last;
			}
			if (length > empty)
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
	bool asked = options.all_pairs.count > 0;
	qsort(matrix->cells, matrix->count, sizeof(*matrix->cells), compare_cells);
	if (matrix->expected_s > 0) {
		json_object_begin(json, "estimate");
		json_u64(json, "pairs", matrix->sampler.count);
		json_u64(json, "measured_on", matrix->estimated_on);
		json_f64(json, "pair_s", matrix->pair_s);
		json_f64(json, "expected_s", matrix->expected_s);
		json_f64(json, "budget_s", options.matrix_budget_s);
		json_u64(json, "chosen", matrix->chosen);
		json_object_end(json);
	} else {
		json_null(json, "estimate"); /* no matrix, or no pair of it could be measured */
	}
	json_array_begin(json, "cells");
	for (size_t i = 0; i < matrix->count; i++)
		cell_write(json, &matrix->cells[i]);
	json_array_end(json);
	not_measured_write(json, matrix);
	if (asked)
		interference_write(json, "interference", &matrix->counts, &matrix->before, &matrix->after, &matrix->cpus);
	else
		json_null(json, "interference");
}

static bool measure_matrix(struct matrix *matrix, struct error *error)
{
	if (!options.all_pairs.count)
		return true;
	if (!matrix_prepare(matrix, error))
		return false;
	snapshot_take(&matrix->before, &matrix->cpus);
	bool good = measure_cells(matrix, error);
	snapshot_take(&matrix->after, &matrix->cpus);
	return good;
}

/* Of the first pair that has one. */
static const struct error *first_error(struct pair **pairs, size_t count, const struct matrix *matrix)
{
	if (count)
		return &pairs[0]->error;
	return matrix->count ? matrix->cells[0].error : &matrix->stopped;
}

static bool measure(struct json *result, struct error *error)
{
	struct pair **pairs = calloc(options.pairs.count + 1, sizeof(*pairs));
	if (!pairs)
		return no_memory(error);
	struct matrix matrix = {0};
	size_t count = 0, measured = 0;
	bool good = true;
	for (; good && count < options.pairs.count; count++) {
		struct transfer transfer = {0};
		struct pair *pair =
			parse_pair(options.pairs.words[count], &transfer, error) ? pair_new(&transfer, false) : NULL;
		if (!pair) {
			good = no_memory(error);
			break;
		}
		pairs[count] = pair;
		measure_pair(pairs[count], count);
		measured += pairs[count]->error.code == ERROR_NONE;
	}
	good = good && measure_matrix(&matrix, error);
	clock_finish();
	if (good) {
		json_object_begin(result, NULL);
		json_array_begin(result, "pairs");
		for (size_t i = 0; i < count; i++)
			pair_write(result, pairs[i]);
		json_array_end(result);
		matrix_write(result, &matrix);
		json_object_end(result);
		for (size_t i = 0; i < matrix.count; i++)
			measured += matrix.cells[i].error == NULL;
		if (!measured) {
			const struct error *first = first_error(pairs, count, &matrix);
			good = error_set(error, first->code, "no pair could be measured; the first: %s", first->message);
		}
	}
	for (size_t i = 0; i < count; i++)
		pair_free(pairs[i]);
	free(pairs);
	matrix_free(&matrix);
	return good;
}

const struct subcommand c2c_subcommand = {
	.name = "c2c",
	.summary = "time of a load whose line another core's cache holds; of a hand-shake",
	.options = table,
	.option_count = sizeof(table) / sizeof(table[0]),
	.prepare = prepare,
	.run = measure,
};
