// SPDX-License-Identifier: Apache-2.0
/* Burn-in: all CPUs at full load for a time, half of it vector arithmetic whose results are known, half a march over memory
 * that is verified word by word. What differs is counted, listed and warned of; it never ends the load. */
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "affinity.h"
#include "allocate.h"
#include "clock.h"
#include "corefreq.h"
#include "interference.h"
#include "march.h"
#include "option_rows.h"
#include "place.h"
#include "random.h"
#include "statistics.h"
#include "stopping.h"
#include "subcommand.h"
#include "telemetry.h"
#include "warning.h"
#include "work.h"
#include "worker.h"

/* A chunk of memory takes 50 to 500 us: threads change between memory and arithmetic too often for all of them to be at the
 * same, so that the load of the machine is steady, and seldom enough that the vector units are warm. */
#define CHUNK_LINES 8192u
#define SLICE_BLOCKS 400u
#define SLICE_CLOCKS (SLICE_BLOCKS * WORK_ADDS_PER_BLOCK * ARCH_ADDITION_CLOCKS)
/* The clock of a window is the median of so many slices at most, the last ones. */
#define SLICES_KEPT 1024u
#define REGION_STEP (2ull << 20)
#define REGION_BYTES_MAX (1ull << 44)
/* What differs is listed so often for each thread; all of it is counted. */
#define LISTED_OF_THREAD 8u
/* Of an entry of /proc/self/pagemap. */
#define FRAME_MASK ((1ull << 55) - 1)
#define NUMBERS_OF_CPU 20u
#define NUMBERS_OF_WINDOW (5u + 64u)
#define NUMBERS_OF_MISMATCH 12u

static struct {
	struct word_list groups;
	const char *work;
	double seconds;
	uint64_t windows, listed;
} options;

static const struct option table[] = {
	OPTION_ROW_REPEATED("--group", &options.groups, "CPULIST@NODE:B",
	                    "one thread per CPU, which verifies B bytes of memory of that node; a CPU may be in several"),
	OPTION_ROW_WORD("--work", &options.work, WORK_CHOICES, "scalar", "arithmetic beside it"),
	/* A minute is long enough for power limits; heat takes ten. */
	OPTION_ROW_F64("--seconds", &options.seconds, "S", "60", 0, 86400,
	               "length of the load, without filling the memory before and verifying it once more after it"),
	OPTION_ROW_U64("--windows", &options.windows, "N", "60", 1, 1000,
	               "parts of equal length, each with its rates, clock and telemetry"),
	OPTION_ROW_U64("--listed", &options.listed, "N", "20", 1, 1000, "first words that differ to list"),
	OPTIONS_PAGES,
	OPTIONS_SEED("the patterns"),
};

struct mismatch {
	unsigned cpu, node;
	uint64_t offset, pass, expected, found, again, at_unix_ns;
	uint64_t physical; /* 0: unknown */
};

struct window {
	uint64_t verified, blocks; /* lines and blocks of the thread */
	double per_tick;           /* median of the clock; 0: unknown */
};

struct piece {
	struct region region;
	unsigned node;
	size_t bytes;
	uint64_t number; /* of its first line, among all of the machine */
	uint64_t verified, wrong;
	struct pages pages;
};

/* One CPU with its memory. */
struct burner {
	struct worker worker;
	unsigned cpu;
	struct error error;
	bool ready, verified_cpu;
	struct piece *pieces;
	size_t count;
	/* where the march is: the pass, the piece in its direction, and the lines of it that are done */
	uint64_t pass, done;
	size_t turn;
	struct march_pattern held, next;
	const struct piece *current; /* for reports */
	uint64_t current_pass;       /* that wrote what is read */
	uint64_t wrong_words, wrong_bits, wrong_sums, wrong_lanes, blocks, wrong_unix_ns;
	struct mismatch listed[LISTED_OF_THREAD];
	size_t kept;
	struct work_lanes *lanes;
	double *slices; /* ticks */
	uint64_t sliced;
	struct window *windows;
	uint64_t passed; /* windows */
	struct thread_counts counts;
};

static struct {
	const struct work *work;
	struct cpu_list cpus, nodes;
	struct burner *burners;
	size_t count, active;
	struct page_choice pages;
	struct telemetry *telemetry;
	struct snapshot before, after;
	_Atomic size_t arrived;
	_Atomic uint64_t start;
	double fill_s, load_s;
	uint64_t passed;
	int pagemap;
} state;

static struct burner *burner_of(unsigned cpu)
{
	return &state.burners[cpu_list_place(&state.cpus, cpu)];
}

static bool split(const char *text, struct cpu_list *cpus, unsigned *node, uint64_t *bytes, struct error *error)
{
	size_t length = 0;
	while (text[length] && text[length] != ':')
		length++;
	if (!text[length] || !options_u64(text + length + 1, bytes) || !*bytes || *bytes % REGION_STEP ||
	    *bytes > REGION_BYTES_MAX)
		return error_set(error, ERROR_USAGE,
		                 "--group: not CPUS@NODE:BYTES, whole 2 MiB, such as 0-3@0:1073741824: '%s'", text);
	return place_parse_list(text, length, cpus, node, error);
}

static bool prepare(struct error *error)
{
	struct cpu_list cpus;
	unsigned node;
	uint64_t bytes;
	for (size_t i = 0; i < options.groups.count; i++) {
		if (!split(options.groups.words[i], &cpus, &node, &bytes, error))
			return false;
		for (size_t k = 0; k < cpus.count; k++)
			if (!cpu_list_has(&state.cpus, cpus.cpus[k]))
				cpu_list_add(&state.cpus, cpus.cpus[k]);
		if (!cpu_list_has(&state.nodes, node))
			cpu_list_add(&state.nodes, node);
		cpu_list_free(&cpus);
	}
	return option_positive("--seconds", options.seconds, error);
}

static void add_piece(unsigned cpu, unsigned node, size_t bytes)
{
	struct burner *burner = burner_of(cpu);
	burner->pieces = reallocate(burner->pieces, burner->count + 1, sizeof(*burner->pieces));
	burner->pieces[burner->count++] = (struct piece){.node = node, .bytes = bytes};
}

static void make_plan(void)
{
	struct error none = {0};
	uint64_t number = 0;
	state.count = state.cpus.count;
	state.burners = allocate(state.count, sizeof(*state.burners));
	for (size_t i = 0; i < state.count; i++)
		state.burners[i].cpu = state.cpus.cpus[i];
	for (size_t i = 0; i < options.groups.count; i++) {
		struct cpu_list cpus = {0};
		unsigned node;
		uint64_t bytes;
		if (!split(options.groups.words[i], &cpus, &node, &bytes, &none))
			continue; /* it was read before */
		for (size_t k = 0; k < cpus.count; k++)
			add_piece(cpus.cpus[k], node, bytes);
		cpu_list_free(&cpus);
	}
	for (size_t i = 0; i < state.count; i++)
		for (size_t k = 0; k < state.burners[i].count; k++) {
			state.burners[i].pieces[k].number = number;
			number += state.burners[i].pieces[k].bytes / MARCH_LINE_BYTES;
		}
}

/* Where a page is in the machine's memory, by which firmware and EDAC name a module; the kernel gives it to root only. */
static uint64_t physical_address(const unsigned char *at)
{
	const size_t page = memory_base_page_bytes();
	const uintptr_t address = (uintptr_t)at;
	uint64_t entry;
	if (state.pagemap < 0 ||
	    pread(state.pagemap, &entry, sizeof(entry), (off_t)(address / page * sizeof(entry))) != sizeof(entry))
		return 0;
	const uint64_t frame = entry & FRAME_MASK;
	return frame ? frame * page + address % page : 0;
}

static void report(void *context, const unsigned char *word, uint64_t expected, uint64_t found, uint64_t again)
{
	struct burner *burner = context;
	struct piece *piece = &burner->pieces[burner->current - burner->pieces];
	burner->wrong_words++;
	piece->wrong++;
	burner->wrong_bits += (uint64_t)__builtin_popcountll(expected ^ found);
	if (burner->kept == LISTED_OF_THREAD)
		return;
	burner->listed[burner->kept++] = (struct mismatch){.cpu = burner->cpu,
	                                                   .node = piece->node,
	                                                   .offset = (uint64_t)(word - piece->region.start),
	                                                   .pass = burner->current_pass,
	                                                   .expected = expected,
	                                                   .found = found,
	                                                   .again = again,
	                                                   .at_unix_ns = clock_read_ns(CLOCK_REALTIME),
	                                                   .physical = physical_address(word)};
}

static struct march march_of(struct burner *burner, struct piece *piece, uint64_t pass)
{
	burner->current = piece;
	burner->current_pass = pass;
	return (struct march){piece->region.start, piece->number, report, burner};
}

static uint64_t lines_of(const struct piece *piece)
{
	return piece->bytes / MARCH_LINE_BYTES;
}

static bool upwards(const struct burner *burner)
{
	return burner->pass % 2 == 0;
}

/* The pieces in the direction of the pass. */
static size_t nth(const struct burner *burner, size_t turn)
{
	return upwards(burner) ? turn : burner->count - 1 - turn;
}

static void verified(struct burner *burner, struct piece *piece, uint64_t lines, uint64_t window)
{
	piece->verified += lines;
	if (window < options.windows)
		burner->windows[window].verified += lines;
}

static void march_chunk(struct burner *burner, uint64_t window)
{
	struct piece *piece = &burner->pieces[nth(burner, burner->turn)];
	uint64_t lines = lines_of(piece), rest = lines - burner->done;
	uint64_t count = rest < CHUNK_LINES ? rest : CHUNK_LINES;
	const struct march march = march_of(burner, piece, burner->pass);
	march_turn(&march, upwards(burner) ? burner->done : rest - count, count, &burner->held, &burner->next,
	           upwards(burner));
	verified(burner, piece, count, window);
	burner->done += count;
	if (burner->done < lines)
		return;
	burner->done = 0;
	if (++burner->turn < burner->count)
		return;
	burner->turn = 0;
	burner->pass++;
	burner->held = burner->next;
	burner->next = march_pattern_of(common.seed, burner->pass + 1);
}

/* Everything once more: lines that the pass has reached hold its pattern, others the one before. */
static void verify_all(struct worker *worker)
{
	struct burner *burner = worker->context;
	for (size_t turn = 0; turn < burner->count; turn++) {
		struct piece *piece = &burner->pieces[nth(burner, turn)];
		uint64_t lines = lines_of(piece);
		uint64_t done = turn < burner->turn ? lines : turn == burner->turn ? burner->done : 0;
		for (uint64_t first = 0; first < lines && !stop_requested();) {
			/* upwards the lines below `done` are new, downwards the last ones */
			uint64_t border = upwards(burner) ? done : lines - done, end = first < border ? border : lines;
			bool new = upwards(burner) ? first < border : first >= border;
			uint64_t count = end - first < CHUNK_LINES ? end - first : CHUNK_LINES;
			const struct march march = march_of(burner, piece, burner->pass + new);
			march_verify(&march, first, count, new ? &burner->next : &burner->held);
			verified(burner, piece, count, UINT64_MAX);
			first += count;
		}
	}
}

static void arithmetic_wrong(struct burner *burner, uint64_t *count)
{
	++*count;
	if (!burner->wrong_unix_ns)
		burner->wrong_unix_ns = clock_read_ns(CLOCK_REALTIME);
}

static void check_lanes(struct burner *burner)
{
	if (!work_lanes_right(state.work, burner->lanes))
		arithmetic_wrong(burner, &burner->wrong_lanes);
	work_begin(burner->lanes);
}

/* Work until `end`, a slice at least; the last is the chain alone, for the clock. Returns when it was over. */
static uint64_t work_until(struct burner *burner, uint64_t end, uint64_t window)
{
	uint64_t now;
	do {
		if (burner->lanes->blocks > WORK_BLOCKS_PER_CHECK - SLICE_BLOCKS)
			check_lanes(burner);
		if (!work_run(state.work, SLICE_BLOCKS, burner->lanes))
			arithmetic_wrong(burner, &burner->wrong_sums);
		burner->blocks += SLICE_BLOCKS;
		burner->windows[window].blocks += SLICE_BLOCKS;
		now = clock_stop();
	} while (now < end);
	uint64_t begin = clock_start();
	if (!work_sum_right(work_scalar(SLICE_BLOCKS, burner->lanes), SLICE_BLOCKS))
		arithmetic_wrong(burner, &burner->wrong_sums);
	now = clock_stop();
	burner->slices[burner->sliced++ % SLICES_KEPT] = (double)(now - begin) - clock_now_used.read_cost_ticks;
	return now;
}

static void close_window(struct burner *burner, struct window *window)
{
	size_t count = burner->sliced < SLICES_KEPT ? burner->sliced : SLICES_KEPT;
	window->per_tick = count ? SLICE_CLOCKS / statistics_median(burner->slices, count) : 0;
	burner->sliced = 0;
	burner->passed++;
}

static uint64_t start_together(void)
{
	uint64_t start;
	if (atomic_fetch_add(&state.arrived, 1) + 1 == state.active)
		atomic_store_explicit(&state.start, clock_start(), memory_order_release);
	while ((start = atomic_load_explicit(&state.start, memory_order_acquire)) == 0)
		arch_relax();
	return start;
}

static void burn(struct worker *worker)
{
	struct burner *burner = worker->context;
	const uint64_t length = (uint64_t)(options.seconds * clock_now_used.hz / (double)options.windows);
	const struct thread_counts before = thread_counts_now();
	const uint64_t start = start_together();
	for (uint64_t window = 0; window < options.windows && !stop_requested(); window++) {
		const uint64_t end = start + (window + 1) * length;
		uint64_t now = clock_start();
		/* Once at least, however late the window before ended. */
		do {
			uint64_t begin = now;
			march_chunk(burner, window);
			now = clock_stop();
			now = work_until(burner, now + (now - begin), window);
		} while (now < end && !stop_requested());
		if (now >= end)
			close_window(burner, &burner->windows[window]);
	}
	const struct thread_counts after = thread_counts_now();
	burner->counts = thread_counts_since(&after, &before);
}

static void set_up(struct worker *worker)
{
	struct burner *burner = worker->context;
	burner->held = march_pattern_of(common.seed, 0);
	burner->next = march_pattern_of(common.seed, 1);
	for (size_t i = 0; i < burner->count; i++) {
		struct piece *piece = &burner->pieces[i];
		if (!region_map(&piece->region, piece->bytes, piece->node, state.pages, &worker->error))
			return;
		const struct march march = march_of(burner, piece, 0);
		for (uint64_t first = 0; first < lines_of(piece) && !stop_error(&worker->error);) {
			uint64_t rest = lines_of(piece) - first, count = rest < CHUNK_LINES ? rest : CHUNK_LINES;
			march_write(&march, first, count, &burner->held);
			first += count;
		}
	}
	for (size_t i = 0; i < burner->count; i++)
		pages_read_nodes(&burner->pieces[i].pages, &burner->pieces[i].region, &worker->error);
}

static void finish(struct worker *worker)
{
	struct burner *burner = worker->context;
	check_lanes(burner);
	burner->verified_cpu = affinity_stayed(burner->cpu, &worker->error);
	for (size_t i = 0; i < burner->count; i++) {
		struct pages again = {0};
		pages_read_nodes(&again, &burner->pieces[i].region, &worker->error);
	}
}

static void start_burner(struct burner *burner)
{
	if (stop_error(&burner->error) || !affinity_usable(burner->cpu, &burner->error))
		return;
	burner->lanes = allocate_aligned(64, sizeof(*burner->lanes));
	work_begin(burner->lanes);
	burner->slices = allocate_touched(SLICES_KEPT, sizeof(*burner->slices));
	burner->windows = allocate_touched(options.windows, sizeof(*burner->windows));
	burner->ready = worker_start(&burner->worker, burner->cpu, NULL, burner, &burner->error);
}

/* Lets all threads that are ready do a job together; those with an error afterwards are ready no more. */
static void together(worker_job job)
{
	for (size_t i = 0; i < state.count; i++)
		if (state.burners[i].ready)
			worker_begin(&state.burners[i].worker, job);
	for (size_t i = 0; i < state.count; i++) {
		struct burner *burner = &state.burners[i];
		if (burner->ready)
			burner->ready = worker_wait(&burner->worker);
		error_take(&burner->error, &burner->worker.error);
	}
}

/* Reads telemetry in the middle of each window, from the supervising thread. */
static void watch(void)
{
	const double window_s = options.seconds / (double)options.windows;
	const uint64_t began_ns = clock_raw_ns();
	for (uint64_t window = 0; window < options.windows; window++) {
		uint64_t at_ns = (uint64_t)(((double)window + 0.5) * window_s * 1e9), now_ns = clock_raw_ns() - began_ns;
		if (now_ns < at_ns && stop_sleep_ns(at_ns - now_ns))
			return;
		telemetry_read(state.telemetry);
	}
}

static void load_together(void)
{
	state.telemetry = telemetry_open(&state.cpus, options.windows);
	snapshot_take(&state.before, &state.cpus);
	uint64_t began_ns = clock_raw_ns();
	for (size_t i = 0; i < state.count; i++)
		if (state.burners[i].ready)
			worker_begin(&state.burners[i].worker, burn);
	watch();
	state.passed = options.windows;
	for (size_t i = 0; i < state.count; i++) {
		struct burner *burner = &state.burners[i];
		if (!burner->ready)
			continue;
		burner->ready = worker_wait(&burner->worker);
		error_take(&burner->error, &burner->worker.error);
		state.passed = burner->passed < state.passed ? burner->passed : state.passed;
	}
	state.load_s = (double)(clock_raw_ns() - began_ns) / 1e9;
	snapshot_take_again(&state.after, &state.before);
	together(verify_all);
}

/* The regions of all threads in a row, as pages_write wants them. */
static struct pages pages_of_all(void)
{
	size_t count = 0, at = 0;
	for (size_t i = 0; i < state.count; i++)
		count += state.burners[i].count;
	struct region *regions = allocate(count, sizeof(*regions));
	struct pages pages = {.wanted = page_kind_of(common.pages)};
	for (size_t i = 0; i < state.count; i++)
		for (size_t k = 0; k < state.burners[i].count; k++) {
			const struct piece *piece = &state.burners[i].pieces[k];
			if (!piece->region.start)
				continue;
			regions[at++] = piece->region;
			pages.checked += piece->pages.checked;
			pages.on_node += piece->pages.on_node;
			pages.elsewhere += piece->pages.elsewhere;
		}
	pages_read_sizes(&pages, regions, at);
	free(regions);
	return pages;
}

static int compare_times(const void *left, const void *right)
{
	return compare_u64(&((const struct mismatch *)left)->at_unix_ns, &((const struct mismatch *)right)->at_unix_ns);
}

static void hex_write(struct json *json, const char *key, uint64_t value)
{
	char text[24];
	snprintf(text, sizeof(text), "0x%016" PRIx64, value);
	json_text(json, key, text);
}

static void mismatches_write(struct json *json)
{
	size_t count = 0;
	struct mismatch *all = allocate(state.count * LISTED_OF_THREAD, sizeof(*all));
	for (size_t i = 0; i < state.count; i++)
		for (size_t k = 0; k < state.burners[i].kept; k++)
			all[count++] = state.burners[i].listed[k];
	qsort(all, count, sizeof(*all), compare_times);
	json_array_begin(json, "mismatches");
	for (size_t i = 0; i < count && i < options.listed; i++) {
		json_object_begin(json, NULL);
		json_u64(json, "at_unix_ns", all[i].at_unix_ns);
		json_u64(json, "cpu", all[i].cpu);
		json_u64(json, "node", all[i].node);
		json_u64(json, "offset_bytes", all[i].offset);
		if (all[i].physical)
			hex_write(json, "physical_address", all[i].physical);
		else
			json_null(json, "physical_address");
		json_u64(json, "in_pass", all[i].pass);
		hex_write(json, "expected", all[i].expected);
		hex_write(json, "found", all[i].found);
		hex_write(json, "found_again", all[i].again);
		json_object_end(json);
	}
	json_array_end(json);
	free(all);
}

/* The clocks of all threads in a window, and the CPU with the lowest; false where none is known. */
static bool clocks_of(uint64_t window, double *clocks, size_t *count, unsigned *lowest)
{
	*count = 0;
	double least = INFINITY;
	for (size_t i = 0; i < state.count; i++) {
		double clock = state.burners[i].windows ? state.burners[i].windows[window].per_tick : 0;
		if (clock <= 0)
			continue;
		clocks[(*count)++] = clock;
		if (clock < least) {
			least = clock;
			*lowest = state.burners[i].cpu;
		}
	}
	return *count > 0;
}

static void windows_write(struct json *json)
{
	const double window_s = options.seconds / (double)options.windows;
	double *clocks = allocate(state.count, sizeof(*clocks));
	json_f64(json, "window_s", window_s);
	json_array_begin(json, "windows");
	for (uint64_t window = 0; window < state.passed; window++) {
		uint64_t lines = 0, blocks = 0;
		size_t count;
		unsigned cpu = 0;
		for (size_t i = 0; i < state.count; i++) {
			lines += state.burners[i].windows ? state.burners[i].windows[window].verified : 0;
			blocks += state.burners[i].windows ? state.burners[i].windows[window].blocks : 0;
		}
		bool known = clocks_of(window, clocks, &count, &cpu);
		double median = known ? statistics_median(clocks, count) : 0;
		json_object_begin(json, NULL);
		json_f64(json, "verified_mb_s", (double)lines * MARCH_LINE_BYTES / window_s / 1e6);
		json_f64(json, "blocks_per_s", (double)blocks / window_s);
		json_f64_known(json, "median_hz", known, corefreq_hz(median));
		json_f64_known(json, "lowest_hz", known, known ? corefreq_hz(burner_of(cpu)->windows[window].per_tick) : 0);
		json_u64_known(json, "lowest_cpu", known, cpu);
		json_object_end(json);
	}
	json_array_end(json);
	free(clocks);
}

static void cpu_write(struct json *json, const struct burner *burner)
{
	uint64_t bytes = 0, lines = 0;
	double lowest = INFINITY, fastest = 0;
	for (size_t i = 0; i < burner->count; i++) {
		bytes += burner->pieces[i].bytes;
		lines += burner->pieces[i].verified;
	}
	for (uint64_t window = 0; window < burner->passed; window++) {
		double clock = burner->windows[window].per_tick;
		lowest = clock > 0 && clock < lowest ? clock : lowest;
		fastest = clock > fastest ? clock : fastest;
	}
	json_object_begin(json, NULL);
	json_u64(json, "cpu", burner->cpu);
	json_bool(json, "cpu_verified", burner->verified_cpu);
	error_write(json, &burner->error);
	json_u64(json, "bytes", bytes);
	json_u64(json, "verified_bytes", lines * MARCH_LINE_BYTES);
	json_u64(json, "passes", burner->pass);
	json_u64(json, "wrong_words", burner->wrong_words);
	json_u64(json, "wrong_bits", burner->wrong_bits);
	json_u64(json, "blocks", burner->blocks);
	json_u64(json, "wrong_sums", burner->wrong_sums);
	json_u64(json, "wrong_lanes", burner->wrong_lanes);
	json_u64_known(json, "wrong_at_unix_ns", burner->wrong_unix_ns > 0, burner->wrong_unix_ns);
	json_f64_known(json, "lowest_hz", fastest > 0, fastest > 0 ? corefreq_hz(lowest) : 0);
	json_f64_known(json, "highest_hz", fastest > 0, corefreq_hz(fastest));
	json_object_end(json);
}

static void nodes_write(struct json *json)
{
	json_array_begin(json, "nodes");
	for (size_t n = 0; n < state.nodes.count; n++) {
		uint64_t bytes = 0, lines = 0, wrong = 0;
		for (size_t i = 0; i < state.count; i++)
			for (size_t k = 0; k < state.burners[i].count; k++) {
				const struct piece *piece = &state.burners[i].pieces[k];
				bool here = piece->node == state.nodes.cpus[n];
				bytes += here ? piece->bytes : 0;
				lines += here ? piece->verified : 0;
				wrong += here ? piece->wrong : 0;
			}
		json_object_begin(json, NULL);
		json_u64(json, "node", state.nodes.cpus[n]);
		json_u64(json, "bytes", bytes);
		json_u64(json, "verified_bytes", lines * MARCH_LINE_BYTES);
		json_u64(json, "wrong_words", wrong);
		json_object_end(json);
	}
	json_array_end(json);
}

/* In the document's warnings, and on the terminal. */
static void warn(void)
{
	char message[200];
	uint64_t words = 0, work = 0, cpus = 0;
	for (size_t i = 0; i < state.count; i++) {
		const struct burner *burner = &state.burners[i];
		words += burner->wrong_words;
		work += burner->wrong_sums + burner->wrong_lanes;
		cpus += burner->wrong_words + burner->wrong_sums + burner->wrong_lanes > 0;
	}
	if (!cpus)
		return;
	snprintf(message, sizeof(message),
	         "wrong: %" PRIu64 " words of memory, %" PRIu64 " results of arithmetic; found by %" PRIu64 " of %zu CPUs",
	         words, work, cpus, state.count);
	warning_add("DATA_WRONG", "%s", message);
	fprintf(stderr, "sutprobe: %s\n", message);
}

static void result_write(struct json *json)
{
	const struct pages pages = pages_of_all();
	struct thread_counts counts = {0};
	for (size_t i = 0; i < state.count; i++)
		thread_counts_add(&counts, &state.burners[i].counts);
	json_object_begin(json, NULL);
	json_text(json, "work", state.work->name);
	json_text(json, "stopped", state.passed < options.windows ? "interrupted" : "time");
	json_f64(json, "fill_s", state.fill_s);
	json_f64(json, "load_s", state.load_s);
	windows_write(json);
	json_array_begin(json, "cpus");
	for (size_t i = 0; i < state.count; i++)
		cpu_write(json, &state.burners[i]);
	json_array_end(json);
	nodes_write(json);
	mismatches_write(json);
	pages_write(json, "pages", &pages);
	interference_write(json, "interference", &counts, &state.before, &state.after, &state.cpus);
	telemetry_write(json, "telemetry", state.telemetry);
	json_object_end(json);
}

static bool admit(struct error *error)
{
	struct demand demand = {.wanted = page_kind_of(common.pages)};
	size_t pieces = 0;
	for (size_t i = 0; i < state.count; i++)
		for (size_t k = 0; k < state.burners[i].count; k++, pieces++)
			demand_regions(&demand, state.burners[i].pieces[k].bytes, 1, state.burners[i].pieces[k].node);
	demand_threads(&demand, state.count);
	demand_other(&demand, sizeof(struct work_lanes) + SLICES_KEPT * sizeof(double), state.count);
	demand_other(&demand, sizeof(struct burner) + options.windows * sizeof(struct window), state.count);
	snapshots_demand(&state.cpus, 2, &demand);
	demand_document(&demand, state.count * NUMBERS_OF_CPU + options.windows * NUMBERS_OF_WINDOW +
	                             options.listed * NUMBERS_OF_MISMATCH);
	bool good = demand_admit(&demand, error);
	state.pages = demand.pages;
	return good;
}

static bool run(struct json *result, struct error *error)
{
	state.work = work_find(options.work);
	if (!state.work)
		return error_set(error, ERROR_UNSUPPORTED, "this processor has no %s", options.work);
	make_plan();
	if (!admit(error))
		return false;
	state.pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	supervise_avoid(&state.cpus);
	uint64_t began_ns = clock_raw_ns();
	for (size_t i = 0; i < state.count; i++)
		start_burner(&state.burners[i]);
	for (size_t i = 0; i < state.count; i++) {
		struct burner *burner = &state.burners[i];
		burner->ready = burner->ready && worker_wait(&burner->worker);
		error_take(&burner->error, &burner->worker.error);
	}
	together(set_up);
	state.fill_s = (double)(clock_raw_ns() - began_ns) / 1e9;
	for (size_t i = 0; i < state.count; i++)
		state.active += state.burners[i].ready;
	if (state.active)
		load_together();
	together(finish);
	clock_finish();
	warn();
	const struct error *first = NULL;
	size_t failed = 0;
	for (size_t i = 0; i < state.count; i++) {
		worker_join(&state.burners[i].worker);
		failed += state.burners[i].error.code != ERROR_NONE;
		first = first || state.burners[i].error.code == ERROR_NONE ? first : &state.burners[i].error;
	}
	if (state.active)
		result_write(result);
	return error_of_parts(error, "CPU", failed, state.count, first);
}

SUBCOMMAND(burn) = {
	"burn", "full load of CPUs and memory, every result verified", SUBCOMMAND_OPTIONS(table), prepare, run,
};
