// SPDX-License-Identifier: Apache-2.0
#include "transfer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "allocate.h"
#include "clock.h"
#include "corefreq.h"
#include "random.h"
#include "stopping.h"
#include "subcommand.h"

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
/* Of larger caches no more than this, which is soon read; 256 to 1024 lines gave the same value. */
#define LINES_OF_MATRIX 1024u
#define WARM_ROUNDS 8u
/* Both cores have just settled, and the lines of a matrix are few: the second round finds them where the first left them. */
#define WARM_ROUNDS_OF_MATRIX 2u
/* A tenth of a window more, not counted: the two threads are in step by then. */
#define WARM_TRIPS_PER_WINDOW 10u
/* One line used of every four, at random among them: a prefetcher that fetches the other half of a line pair, or the next
 * line, then never fetches one that is still to be loaded. */
#define SPACING_LINES 4u
/* A pair of a matrix may wait so long for its cores to settle; 50 ms, as elsewhere, would be three times its own cost. */
#define SETTLE_NS_OF_MATRIX 3000000u

#define TURN_NONE UINT64_MAX

/* A share of the writer's L2 cache. */
static uint64_t choose_lines(unsigned cpu, uint64_t most)
{
	uint64_t lines = memory_l2_bytes(cpu) / L2_SHARE / memory_line_bytes();
	lines = lines > most ? most : lines;
	return lines < TRANSFER_LINES_MIN ? TRANSFER_LINES_MIN : lines / 64 * 64;
}

uint64_t pair_windows(const struct transfer_settings *settings, bool brief)
{
	return settings->windows ? settings->windows : brief ? WINDOWS_OF_MATRIX : WINDOWS;
}

uint64_t pair_lines(const struct transfer_settings *settings, unsigned writer, bool brief)
{
	return settings->lines ? (settings->lines + 63) / 64 * 64
	                       : choose_lines(writer, brief ? LINES_OF_MATRIX : TRANSFER_LINES_MAX);
}

static size_t placement_bytes(uint64_t lines)
{
	return lines * SPACING_LINES * memory_line_bytes();
}

/* A pair of a matrix maps memory for all its placements at once. */
static size_t mapped_bytes(const struct transfer_settings *settings, uint64_t lines, bool brief)
{
	return placement_bytes(lines) * (brief ? settings->placements : 1);
}

void pair_demand(const struct transfer_settings *settings, uint64_t lines, bool brief, unsigned node,
                 struct demand *demand)
{
	size_t bytes = placement_bytes(lines);
	demand_regions(demand, mapped_bytes(settings, lines, brief), 1, node);
	demand_other(demand, chain_building_bytes(bytes, bytes / lines, CHAIN_RANDOM, 0), 1);
}

void pair_demand_results(const struct transfer_settings *settings, bool brief, const struct cpu_list *cpus,
                         struct demand *demand)
{
	demand_other(demand, sizeof(struct pair), 1);
	demand_other(demand, sizeof(struct placement) + pair_windows(settings, brief) * sizeof(double),
	             settings->placements);
	if (!brief)
		snapshots_demand(cpus, 2 * settings->placements, demand);
}

/* -- the jobs of the two threads of a pair -- */

static void settle(struct worker *worker)
{
	struct pair *pair = worker->context;
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

static void clock_core(struct worker *worker)
{
	struct pair *pair = worker->context;
	pair->core_now = corefreq_per_tick();
}

static uint64_t *node_word(const struct pair *pair, uint64_t node, unsigned word)
{
	return (uint64_t *)(void *)(pair->chain.base + chain_position(&pair->chain, node)) + word;
}

/* In the writer's thread, so that what the kernel needs beside the lines lies near it too. A pair of a matrix maps memory
 * for all its placements at once: each has lines of its own as well, and mapping them one by one took most of the time. */
static void place(struct worker *worker)
{
	struct pair *pair = worker->context;
	struct evidence *evidence = &pair->placements[pair->count].evidence;
	size_t stride = SPACING_LINES * memory_line_bytes(), bytes = pair->lines * stride;
	size_t shares = mapped_bytes(pair->settings, pair->lines, pair->extent.brief) / bytes;
	if (!pair->region.start) {
		struct demand demand = {.wanted = evidence->pages.wanted, .pages = pair->chosen, .again = true};
		pair_demand(pair->settings, pair->lines, pair->extent.brief, pair->transfer.node, &demand);
		if (!demand_admit(&demand, &worker->error))
			return;
		pair->chosen = demand.pages;
		if (!region_map(&pair->region, shares * bytes, pair->transfer.node, pair->chosen, &worker->error) ||
		    !pages_read_back(&evidence->pages, &pair->region, 1, evidence->pages.wanted, &worker->error))
			return;
	}
	pair->chain = (struct chain){.base = pair->region.start + pair->count % shares * bytes,
	                             .size_bytes = bytes,
	                             .stride_bytes = stride,
	                             .line_bytes = memory_line_bytes(),
	                             .order = CHAIN_RANDOM,
	                             .seed = evidence->seed};
	if (!chain_build(&pair->chain, &worker->error))
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
	struct thread_counts after = thread_counts_now();
	pair->sides[side] = (struct stretch){
		.verified = affinity_verify(side ? pair->transfer.reader : pair->transfer.writer),
		.counts = thread_counts_since(&after, before),
	};
}

static void write_lines(struct worker *worker)
{
	struct pair *pair = worker->context;
	struct thread_counts before = thread_counts_now();
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

static void read_lines(struct worker *worker)
{
	struct pair *pair = worker->context;
	struct placement *placement = &pair->placements[pair->count];
	struct thread_counts before = thread_counts_now();
	uint64_t window_ticks = 0, in_window = 0, window = 0;
	for (uint64_t round = 0; round < pair->rounds && wait_turn(pair, 2 * round + 1); round++) {
		uint64_t first = pair->chain.at;
		uint64_t start = clock_start();
		chain_walk(&pair->chain, pair->lines / 64);
		uint64_t stop = clock_stop();
		if (pair->chain.at != first)
			error_set(&worker->error, ERROR_CHECK_FAILED, "a walk over all lines did not end where it began");
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
static _Atomic uint64_t *handshake_word(const struct pair *pair, uint64_t window, bool answer)
{
	uint64_t half = pair->lines / 2, step = half / pair->extent.windows;
	uint64_t node = window * (step ? step : 1) % half;
	return (_Atomic uint64_t *)node_word(pair, answer ? node + half : node, 2);
}

static uint64_t warm_trips(const struct pair *pair)
{
	return (pair->extent.hops + WARM_TRIPS_PER_WINDOW - 1) / WARM_TRIPS_PER_WINDOW;
}

static void shake(struct worker *worker)
{
	struct pair *pair = worker->context;
	struct placement *placement = &pair->placements[pair->count];
	struct thread_counts before = thread_counts_now();
	uint64_t trips = pair->extent.hops, warm = warm_trips(pair);
	for (uint64_t window = 0; window < pair->extent.windows; window++) {
		_Atomic uint64_t *mine = handshake_word(pair, window, false), *theirs = handshake_word(pair, window, true);
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

static void shake_back(struct worker *worker)
{
	struct pair *pair = worker->context;
	struct thread_counts before = thread_counts_now();
	uint64_t trips = pair->extent.hops, warm = warm_trips(pair);
	for (uint64_t window = 0; window < pair->extent.windows; window++) {
		_Atomic uint64_t *mine = handshake_word(pair, window, true), *theirs = handshake_word(pair, window, false);
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

/* What a job has done, or the error of its thread. */
static bool wait_side(struct pair *pair, unsigned side)
{
	return worker_wait(&pair->workers[side]) || (error_take(&pair->error, &pair->workers[side].error), false);
}

/* One thread alone, while the other sleeps. */
static bool do_alone(struct pair *pair, unsigned side, worker_job job)
{
	worker_begin(&pair->workers[side], job);
	return wait_side(pair, side);
}

static bool do_both(struct pair *pair, worker_job writer, worker_job reader)
{
	worker_begin(&pair->workers[0], writer);
	worker_begin(&pair->workers[1], reader);
	bool first = wait_side(pair, 0);
	return wait_side(pair, 1) && first;
}

/* Every line was written once a round, or never; or as often as hands were shaken over it. */
static bool check_lines(struct pair *pair)
{
	uint64_t shaken_lines = 0;
	bool pingpong = pair->settings->method == METHOD_PINGPONG;
	uint64_t expected = !pingpong && pair->transfer.dirty ? pair->rounds : 0, shakes = 0;
	for (uint64_t node = 0; node < pair->lines; node++) {
		if (*node_word(pair, node, 1) != expected)
			return error_set(&pair->error, ERROR_CHECK_FAILED, "a line was written %llu times, not %llu",
			                 (unsigned long long)*node_word(pair, node, 1), (unsigned long long)expected);
		shakes += *node_word(pair, node, 2);
		shaken_lines += *node_word(pair, node, 2) > 0;
	}
	uint64_t wanted = pingpong ? 2 * pair->extent.windows * (warm_trips(pair) + pair->extent.hops) : 0;
	return shakes == wanted ||
	       error_set(&pair->error, ERROR_CHECK_FAILED, "the hand-shake made %llu stores on %llu lines, not %llu",
	                 (unsigned long long)shakes, (unsigned long long)shaken_lines, (unsigned long long)wanted);
}

static bool run_placement(struct pair *pair)
{
	struct evidence *evidence = &pair->placements[pair->count].evidence;
	bool pingpong = pair->settings->method == METHOD_PINGPONG, brief = pair->extent.brief;
	if (!do_alone(pair, 0, place) || ((!brief || pair->count == 0) && !do_alone(pair, 1, clock_core)))
		return false;
	evidence->threads.core_before = pair->core_now;
	atomic_store(&pair->turn, 0);
	if (!brief)
		snapshot_take(&evidence->before, &pair->cpus);
	if (!do_both(pair, pingpong ? shake : write_lines, pingpong ? shake_back : read_lines))
		return false;
	if (!brief)
		snapshot_take_again(&evidence->after, &evidence->before);
	if (atomic_load(&pair->turn) == TURN_NONE)
		return false; /* told to stop within the placement, which is then not complete */
	if ((!brief && !do_alone(pair, 1, clock_core)) || !check_lines(pair))
		return false;
	evidence->threads.core_after = pair->core_now;
	evidence->threads.counts = pair->sides[0].counts;
	thread_counts_add(&evidence->threads.counts, &pair->sides[1].counts);
	evidence->threads.verified = pair->sides[0].verified && pair->sides[1].verified;
	return evidence->threads.verified ||
	       affinity_left(pair->sides[0].verified ? pair->transfer.reader : pair->transfer.writer, &pair->error);
}

/* The pages must still lie where they were found before. */
static bool release_pages(struct pair *pair)
{
	struct pages again = {0};
	mappings_forget();
	bool good = !pair->region.start || pages_read_nodes(&again, &pair->region, &pair->error);
	region_unmap(&pair->region);
	return good;
}

static bool measure_placement(struct pair *pair, uint64_t seed)
{
	struct placement *placement = &pair->placements[pair->count];
	*placement = (struct placement){.evidence = {.seed = seed, .pages = {.wanted = pair->settings->pages}}};
	placement->window_ticks = allocate(pair->extent.windows, sizeof(double));
	bool good = run_placement(pair);
	return (pair->extent.brief || release_pages(pair)) && good;
}

static void measure_placements(struct pair *pair, uint64_t number)
{
	while (pair->count < pair->settings->placements && !stop_requested() &&
	       measure_placement(pair, random_derive(pair->settings->seed, number, pair->count)))
		pair->count++;
	/* Told to stop, a pair keeps what is complete. */
	if (pair->count == 0)
		stop_error(&pair->error);
	if (pair->extent.brief && pair->count && do_alone(pair, 1, clock_core))
		pair->placements[pair->count - 1].evidence.threads.core_after = pair->core_now;
}

static bool start_threads(struct pair *pair)
{
	const unsigned cpus[2] = {pair->transfer.writer, pair->transfer.reader};
	for (unsigned side = 0; side < 2; side++)
		if (!worker_start(&pair->workers[side], cpus[side], NULL, pair, &pair->error))
			return false;
	bool first = wait_side(pair, 0);
	return wait_side(pair, 1) && first;
}

/* The node of a CPU is that of the thread that is pinned to it. */
static void find_home(struct worker *worker)
{
	struct pair *pair = worker->context;
	unsigned cpu, node;
	if (syscall(SYS_getcpu, &cpu, &node, NULL) != 0)
		error_set(&worker->error, ERROR_INTERNAL, "getcpu: %s", strerror(errno));
	else
		pair->transfer.node = node;
}

void pair_measure(struct pair *pair, uint64_t number)
{
	struct extent *extent = &pair->extent;
	pair->lines = pair_lines(pair->settings, pair->transfer.writer, extent->brief);
	pair->rounds_per_window = (extent->hops + pair->lines - 1) / pair->lines;
	pair->rounds = extent->warm_rounds + pair->rounds_per_window * extent->windows;
	if (stop_error(&pair->error) || !affinity_usable(pair->transfer.writer, &pair->error) ||
	    !affinity_usable(pair->transfer.reader, &pair->error))
		return;
	supervise_avoid(&pair->cpus);
	bool good = start_threads(pair);
	if (good && pair->transfer.home != HOME_NODE)
		good = do_alone(pair, pair->transfer.home == HOME_READER, find_home);
	if (good && do_both(pair, settle, settle))
		measure_placements(pair, number);
	release_pages(pair);
	for (unsigned side = 0; side < 2; side++)
		worker_join(&pair->workers[side]);
}

struct pair *pair_new(const struct transfer_settings *settings, const struct transfer *transfer, bool brief)
{
	bool pingpong = settings->method == METHOD_PINGPONG;
	struct pair *pair = allocate_aligned(256, sizeof(*pair));
	pair->settings = settings;
	pair->transfer = *transfer;
	uint64_t hops =
		pingpong ? (brief ? WINDOW_TRIPS_OF_MATRIX : WINDOW_TRIPS) : (brief ? WINDOW_HOPS_OF_MATRIX : WINDOW_HOPS);
	pair->extent = (struct extent){
		.brief = brief,
		.windows = pair_windows(settings, brief),
		.hops = settings->hops ? settings->hops : hops,
		.warm_rounds = brief ? WARM_ROUNDS_OF_MATRIX : WARM_ROUNDS,
	};
	pair->placements = allocate(settings->placements, sizeof(*pair->placements));
	cpu_list_add(&pair->cpus, transfer->writer);
	cpu_list_add(&pair->cpus, transfer->reader);
	return pair;
}

void pair_free(struct pair *pair)
{
	for (size_t k = 0; k < pair->settings->placements; k++) {
		free(pair->placements[k].window_ticks);
		snapshot_free(&pair->placements[k].evidence.before);
		snapshot_free(&pair->placements[k].evidence.after);
	}
	free(pair->placements);
	cpu_list_free(&pair->cpus);
	free(pair);
}
