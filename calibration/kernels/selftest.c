// SPDX-License-Identifier: Apache-2.0
/* Known answers: each case computes something whose answer is known by other means, and several break it on purpose
 * to see that the break is found. No case asserts how long anything takes. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chain.h"
#include "corefreq.h"
#include "gaps.h"
#include "generator.h"
#include "injection.h"
#include "planting.h"
#include "random.h"
#include "stopping.h"
#include "subcommand.h"
#include "tracing.h"
#include "work.h"

#define EXPECT(condition)                                                                                              \
	do {                                                                                                               \
		if (!(condition))                                                                                              \
			return error_set(error, ERROR_CHECK_FAILED, "line %d: expected %s", __LINE__, #condition);                 \
	} while (0)

/* What a case has to say beside its outcome. */
static char noted[320];

static void note(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void note(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(noted, sizeof(noted), format, arguments);
	va_end(arguments);
}

/* Whether the counter at `hz` and the system's raw clock say the same of the time between two brackets: how far they
 * may be apart is bounded by the brackets' widths and by the bound of hz. */
static bool clocks_agree(const struct clock_bracket *from, const struct clock_bracket *to, double hz, double bound_ns)
{
	double by_counter = (double)(to->ticks - from->ticks) * 1e9 / hz, by_system = (double)(to->raw_ns - from->raw_ns);
	return fabs(by_counter - by_system) <= bound_ns;
}

static bool case_clock(struct error *error)
{
	clock_finish();
	if (!clock_now_used.counter) {
		note("the system's raw clock is the time source itself: %s", clock_now_used.reason);
		struct clock_bracket from = clock_bracket_take(), to = clock_bracket_take();
		EXPECT(to.raw_ns > from.raw_ns);
		return true;
	}
	struct clock_bracket from = clock_bracket_take();
	/* Not the stretch it was calibrated on, and as long: what the two clocks say of it was not made to agree. */
	if (stop_sleep_ns(200000000u) && stop_error(error))
		return false;
	struct clock_bracket to = clock_bracket_take();
	double length_ns = (double)(to.raw_ns - from.raw_ns), hz = clock_now_used.hz;
	/* Two readings of a clock that counts in ns are each rounded by less than one. */
	double bound_ns =
		clock_ns((double)(from.width + to.width) / 2) + length_ns * clock_now_used.hz_uncertainty_ppm * 1e-6 + 2;
	note("the counter's frequency is known within %.2g ppm; over %.0f ms the system's raw clock agrees within %.2g ppm",
	     clock_now_used.hz_uncertainty_ppm, length_ns / 1e6, bound_ns / length_ns * 1e6);
	EXPECT(clocks_agree(&from, &to, hz, bound_ns));
	EXPECT(!clocks_agree(&from, &to, hz * (1 + 3 * bound_ns / length_ns), bound_ns));
	EXPECT(!clocks_agree(&from, &to, hz * (1 - 3 * bound_ns / length_ns), bound_ns));
	if (clock_now_used.hz_uncertainty_ppm > CLOCK_BOUND_PPM)
		return error_set(error, ERROR_UNSUPPORTED,
		                 "expected the counter's frequency known within %g ppm, found %.2g ppm: the system's clock can "
		                 "only be read within %.0f ns here",
		                 CLOCK_BOUND_PPM, clock_now_used.hz_uncertainty_ppm, clock_ns((double)to.width));
	return true;
}

/* Walks the chain link by link and counts the nodes until it is back. */
static size_t lap(struct chain *chain, size_t limit)
{
	uint64_t first = chain->at;
	size_t count = 0;
	do {
		chain_walk_payload(chain, 1, 0);
		count++;
	} while (chain->at != first && count < limit);
	return count;
}

static bool check_chain(struct region *region, enum chain_order order, size_t size, size_t stride, struct error *error)
{
	struct chain chain = {.base = region->start,
	                      .size_bytes = size,
	                      .stride_bytes = stride,
	                      .line_bytes = 64,
	                      .order = order,
	                      .window_bytes = 4096 > stride ? 4096 : stride,
	                      .seed = size + stride};
	memset(region->start, 0xff, size);
	if (!chain_build(&chain, error))
		return false;
	EXPECT(chain.proved && chain.nodes == size / stride);
	uint64_t first = chain.at;
	EXPECT(lap(&chain, 2 * chain.nodes) == chain.nodes);
	/* The unrolled walk, which is what is timed, ends where the plain one does. */
	size_t hops = (chain.nodes % 64 ? 64 : 1) * chain.nodes;
	chain_walk(&chain, hops / 64 ? hops / 64 : 1);
	chain_walk_payload(&chain, hops / 64 ? 0 : (64 / chain.nodes * chain.nodes + chain.nodes - 64) % chain.nodes, 0);
	EXPECT(chain.at == first);
	return true;
}

static bool admit_and_map(struct region *region, size_t bytes, unsigned node, enum page_kind wanted,
                          struct error *error)
{
	struct demand demand = {.wanted = wanted};
	demand_regions(&demand, bytes, 1, node);
	return demand_admit(&demand, error) && region_map(region, bytes, node, demand.pages, error);
}

static bool case_chain(struct error *error)
{
	struct region region;
	unsigned char visited[8] = {0};
	uint32_t order[64];
	if (!admit_and_map(&region, 4u << 20, 0, PAGES_BASE, error))
		return false;
	bool good = true;
	const size_t sizes[] = {64, 4096, 40960, 1u << 20, 3u << 20, 4u << 20}, strides[] = {64, 128, 4096};
	for (size_t s = 0; good && s < sizeof(sizes) / sizeof(sizes[0]); s++)
		for (size_t k = 0; good && k < sizeof(strides) / sizeof(strides[0]); k++)
			for (int o = CHAIN_RANDOM; good && o <= CHAIN_BACKWARD && sizes[s] >= strides[k]; o++)
				good = check_chain(&region, (enum chain_order)o, sizes[s], strides[k], error);
	good = good && check_chain(&region, CHAIN_FORWARD, 4096, 8, error);
	/* One seed makes one chain; another seed another. */
	struct chain one = {.base = region.start, .size_bytes = 65536, .stride_bytes = 64, .line_bytes = 64, .seed = 5};
	uint64_t ends[3] = {0};
	for (unsigned i = 0; good && i < 3; i++) {
		one.seed = i < 2 ? 5 : 6;
		good = chain_build(&one, error);
		if (good)
			chain_walk(&one, 3);
		ends[i] = one.at;
	}
	bool seeds = ends[0] == ends[1] && ends[1] != ends[2];
	/* Three ways to be no single cycle, and the proof finds each. */
	struct chain small = {.base = region.start, .size_bytes = 4096, .stride_bytes = 64, .line_bytes = 64, .nodes = 64};
	for (uint32_t i = 0; i < 64; i++)
		order[i] = i;
	chain_link(&small, order);
	bool proved = chain_prove(&small, order, visited);
	uint64_t *link = (uint64_t *)(void *)(region.start + 640);
	uint64_t sound = *link;
	*link = (uint64_t)(uintptr_t)region.start; /* node 10 closes a short cycle */
	memset(visited, 0, sizeof(visited));
	bool short_cycle = chain_prove(&small, order, visited);
	*link = sound;
	order[3] = 4; /* node 3 is never visited, node 4 twice */
	chain_link(&small, order);
	memset(visited, 0, sizeof(visited));
	bool twice = chain_prove(&small, order, visited);
	order[3] = 64; /* outside the buffer */
	memset(visited, 0, sizeof(visited));
	bool outside = chain_prove(&small, order, visited);
	region_unmap(&region);
	if (!good)
		return false;
	EXPECT(seeds);
	EXPECT(proved && !short_cycle && !twice && !outside);
	return true;
}

/* An order of visits as a fault in the shuffle might give it, and whether the check lets it pass. */
static bool order_passes(const struct chain *chain, uint32_t *order, unsigned fault)
{
	struct order_check check;
	struct random random;
	random_seed(&random, 3);
	for (size_t i = 0; i < chain->nodes; i++) {
		size_t page = i / 64 * 64;
		switch (fault) {
		case 0: /* none: a shuffle, below */
		case 1: /* forward */
			order[i] = (uint32_t)i;
			break;
		case 2: /* a constant jump that visits every node */
			order[i] = (uint32_t)(i * 4099 % chain->nodes);
			break;
		case 3: /* two jumps in turn, backward and forward */
			order[i] = (uint32_t)(i % 2 ? chain->nodes - 1 - i / 2 : i / 2);
			break;
		case 4:  /* pages in a random order, lines inside each forward */
		default: /* pages in order, lines inside each at random */
			order[i] = (uint32_t)(fault == 4 ? page * 67 % chain->nodes + i % 64 : page + (i * 37 + 11) % 64);
			break;
		}
	}
	for (size_t i = chain->nodes; fault == 0 && i > 1; i--) {
		uint32_t k = random_below(&random, i), kept = order[i - 1];
		order[i - 1] = order[k];
		order[k] = kept;
	}
	return chain_check_order(chain, order, &check) && check.judged && check.passed;
}

static bool case_order(struct error *error)
{
	struct chain chain = {.stride_bytes = 64, .line_bytes = 64, .nodes = 1u << 14};
	uint32_t *order = malloc(chain.nodes * sizeof(*order));
	if (!order)
		return error_set(error, ERROR_INTERNAL, "no memory for an order");
	unsigned passed = 0, unjudged = 0;
	for (unsigned fault = 0; fault < 6; fault++)
		passed |= (unsigned)order_passes(&chain, order, fault) << fault;
	/* A window is no promise of randomness over the buffer, and few nodes tell nothing: reported, not judged. */
	for (unsigned i = 0; i < 2; i++) {
		struct order_check check;
		chain.order = i ? CHAIN_RANDOM : CHAIN_WINDOW;
		chain.nodes = i ? ORDER_CHECK_NODES_MIN - 1 : 1u << 14;
		for (uint32_t k = 0; k < chain.nodes; k++)
			order[k] = k;
		unjudged += chain_check_order(&chain, order, &check) && !check.judged && check.repeated_share > 0.9 &&
		            check.adjacent_share == 1;
	}
	free(order);
	EXPECT(passed == 1 && unjudged == 2);
	return true;
}

/* Large shuffles, dealt into classes first, are permutations too, and their chains pass the check. */
static bool case_large_chain(struct error *error)
{
	struct region region;
	if (!admit_and_map(&region, 16u << 20, 0, PAGES_AUTO, error))
		return false;
	bool good = true;
	for (size_t nodes = (1u << 16) - 1; good && nodes <= 1u << 18; nodes += (1u << 17) - 37) {
		struct chain chain = {
			.base = region.start, .size_bytes = nodes * 64, .stride_bytes = 64, .line_bytes = 64, .seed = nodes};
		good =
			chain_build(&chain, error) && chain.check.judged && chain.check.passed && lap(&chain, 2 * nodes) == nodes;
	}
	region_unmap(&region);
	if (error->code != ERROR_NONE)
		return false;
	EXPECT(good);
	return true;
}

/* Even and uneven shares, and a buffer on one node that is claimed to be spread over two. */
static bool case_interleave(struct error *error)
{
	const uint64_t even[] = {8250, 8134}, full[] = {33, 31}, uneven[] = {9000, 7384}, lopsided[] = {64, 0},
				   three[] = {40, 41, 39}, half[] = {48, 16};
	EXPECT(shares_even(even, 2, 1) && shares_even(full, 2, 1) && shares_even(three, 3, 1));
	EXPECT(!shares_even(uneven, 2, 1) && !shares_even(lopsided, 2, 1) && !shares_even(half, 2, 1));
	/* Two huge pages of 512 counted pages each on one node, one on the other: no closer to even can be. */
	const uint64_t odd[] = {1024, 512};
	EXPECT(shares_even(odd, 2, 512));
	struct cpu_list both = {0};
	struct region region;
	struct pages pages = {0};
	struct error wrong = {0}, refused = {0};
	cpu_list_add(&both, 0);
	cpu_list_add(&both, 1023);
	if (!admit_and_map(&region, 4u << 20, 0, PAGES_BASE, error)) {
		cpu_list_free(&both);
		return false;
	}
	region.nodes = &both;
	bool fooled = pages_read_nodes(&pages, &region, &wrong);
	region_unmap(&region);
	struct demand demand = {0};
	demand_region_over(&demand, 4u << 20, &both);
	bool admitted = demand_admit(&demand, &refused);
	cpu_list_free(&both);
	/* Where pages cannot be read back (a user-mode emulator), that alone refuses a buffer that is to be spread. */
	EXPECT(!fooled && wrong.code != ERROR_NONE && (pages.checked == 0 || strstr(wrong.message, "even shares")));
	EXPECT(!admitted && refused.code == ERROR_BIND_FAILED && demand.refused_node == 1023);
	return true;
}

static bool case_instructions(struct error *error)
{
	EXPECT(arch_dependent_adds(10) == 641);
	EXPECT(arch_delay(5, 10) == 15 && arch_delay(0, 1) == 1 && arch_delay(0, 32) == 32 && arch_delay(7, 97) == 104);
	const uint32_t starts[] = {0, 1, 0x12345678, 0xffffffff};
	for (unsigned s = 0; s < 4; s++) {
		uint32_t loops = 1000 + s, sum = starts[s];
		for (uint32_t i = 0; i < loops; i++) {
			sum += 3 * i + loops;
			sum &= 0x7f0f0000;
		}
		EXPECT(arch_pma_work(loops, starts[s]) == sum);
	}
	uint64_t last = clock_start();
	for (int i = 0; i < 10000; i++) {
		uint64_t now = i % 2 ? clock_start() : clock_stop();
		EXPECT(now >= last);
		last = now;
	}
	double rate = corefreq_per_tick();
	EXPECT(isfinite(rate) && rate > 0);
	return true;
}

/* The real loop, whatever the machine makes of it: every sum must agree with the list. */
static bool case_gap_books(struct error *error)
{
	static struct gaps gaps;
	if (!gaps_open(&gaps, GAP_RING, 1, error))
		return false;
	gaps.threshold_ticks = (uint64_t)(200e-9 * clock_now_used.hz);
	gaps_run(&gaps, (uint64_t)(0.1 * clock_now_used.hz));
	uint64_t lost = 0, in_buckets = 0, longest = 0, before = 0;
	bool ordered = true;
	for (size_t k = 0; k < gaps.kept; k++) {
		lost += gaps.ring[k].ticks;
		longest = gaps.ring[k].ticks > longest ? gaps.ring[k].ticks : longest;
		ordered = ordered && gaps.ring[k].at >= before && gaps.ring[k].ticks >= gaps.threshold_ticks;
		before = gaps.ring[k].at + gaps.ring[k].ticks;
	}
	for (unsigned b = 0; b < GAP_BUCKETS; b++)
		in_buckets += gaps.bucket_count[b];
	bool books =
		lost == gaps.lost_ticks && gaps.kept == gaps.count && in_buckets == gaps.count && longest == gaps.max_ticks;
	books = books && gaps.longest_kept == (gaps.count > 0) && (gaps.count == 0 || gaps.longest[0].ticks == longest);
	books = books && gaps.watched_count == gaps.count && gaps.watched_at == gaps.end;
	gaps_free(&gaps);
	EXPECT(ordered);
	EXPECT(books);
	return true;
}

static bool case_core_work(struct error *error)
{
	static struct work_lanes lanes;
	EXPECT(work_find("scalar") == &works[0] && !work_find("mmx"));
	for (const struct work *work = works; work->name; work++) {
		if (!work->supported())
			continue;
		work_begin(&lanes);
		EXPECT(work_lanes_right(work, &lanes));
		EXPECT(work_run(work, 3, &lanes) && work_run(work, 40, &lanes) && work_lanes_right(work, &lanes));
		EXPECT(!work_sum_right(work->run(3, &lanes), 4));
		/* That call was not entered into the books: every lane has done more than they say. */
		EXPECT(!work->vector_bytes || !work_lanes_right(work, &lanes));
		if (!work->vector_bytes)
			continue;
		const size_t last = WORK_ACCUMULATORS * work->vector_bytes() / sizeof(float) - 1;
		work_begin(&lanes);
		EXPECT(work_run(work, 1, &lanes) && lanes.lanes[0] == 1 + 1.0f / 2048 && lanes.lanes[last] == lanes.lanes[0]);
		lanes.lanes[last] = 1;
		EXPECT(!work_lanes_right(work, &lanes));
		/* The lane after the last belongs to no vector, so nothing may have written there. */
		EXPECT(work->vector_bytes() == WORK_VECTOR_BYTES_MAX || lanes.lanes[last + 1] == WORK_LANE_BEGIN);
	}
	return true;
}

#define TEST_BYTES 32768u

static uint64_t pattern(unsigned array, size_t word)
{
	return (word + 1) * 0x9e3779b97f4a7c15u + array;
}

/* What four passes over the arrays must leave, computed word by word. */
static bool one_variant(const struct load_width *width, enum load_mix mix, unsigned streams, bool prefetch, bool delay,
                        unsigned char *memory, struct error *error)
{
	const struct load_accounting *a = &load_mixes[mix];
	struct load_call call = {.stream_bytes = TEST_BYTES / streams,
	                         .prefetch_bytes = prefetch ? 512 : 0,
	                         .delay = delay ? 35 : 0,
	                         .passes = 1,
	                         .mark = 77};
	uint64_t *words[LOAD_ARRAYS_MAX], sum = 0, expected = 0;
	for (unsigned k = 0; k < LOAD_ARRAYS_MAX; k++) {
		call.arrays[k] = memory + k * TEST_BYTES;
		words[k] = (uint64_t *)(void *)call.arrays[k];
		for (size_t i = 0; i < TEST_BYTES / 8; i++)
			words[k][i] = pattern(k, i);
	}
	load_kernel kernel = load_kernel_find(width, mix, streams, prefetch, delay);
	/* Two calls: a quarter of each stream, then the rest. What follows the first must be untouched after it. */
	size_t lines = call.stream_bytes / LOAD_LINE_BYTES, first = lines / 4 / LOAD_STEPS_PER_DELAY * LOAD_STEPS_PER_DELAY;
	call.steps = first;
	sum += kernel(&call);
	unsigned written = a->arrays - 1;
	bool stores = a->updates || a->writes, untouched = true;
	for (size_t i = first * LOAD_LINE_BYTES / 8; stores && i < call.stream_bytes / 8; i++)
		untouched = untouched && words[written][i] == pattern(written, i);
	call.offset = first * LOAD_LINE_BYTES;
	call.steps = lines - first;
	sum += kernel(&call);
	/* Three passes more in one call: each counts, and writes its own number. */
	call.offset = 0;
	call.steps = lines;
	call.passes = 3;
	call.mark = 78;
	sum += kernel(&call);
	bool right = untouched;
	for (size_t i = 0; i < TEST_BYTES / 8; i++) {
		for (unsigned k = 0; k < a->summed; k++)
			expected += a->sparse && i % 8 ? 0 : 4 * pattern(k, i);
		if (a->updates)
			right = right && words[written][i] == pattern(written, i) + 4;
		if (a->writes) {
			uint64_t value = 80;
			for (unsigned k = 0; k < written; k++)
				value += pattern(k, i);
			right = right && words[written][i] == value;
		}
	}
	uint64_t units = TEST_BYTES / LOAD_LINE_BYTES / LOAD_STEPS_PER_DELAY;
	right = right && sum == expected && call.carry == (delay && !a->sparse ? 4 * units * call.delay : 0);
	return right || error_set(error, ERROR_CHECK_FAILED, "%s %s streams %u prefetch %d delay %d: wrong result",
	                          width->name, a->name, streams, prefetch, delay);
}

/* Two triads with the places of source and target exchanged between, and what lies beyond each array. */
static bool doubles_right(const struct load_width *width, unsigned char *memory, struct error *error)
{
	const size_t bytes = TEST_BYTES - 2 * LOAD_LINE_BYTES;
	unsigned char *arrays[] = {memory, memory + TEST_BYTES, memory + 2 * (size_t)TEST_BYTES};
	const double last[] = {3.25, 2, 2.5};
	bool right = true;
	memset(memory, 0xdb, 3 * (size_t)TEST_BYTES);
	for (unsigned k = 0; k < 3; k++)
		width->doubles->fill(arrays[k] + LOAD_LINE_BYTES, k == 1 ? 2 : 1 - (double)k, bytes);
	width->doubles->triad(arrays[2] + LOAD_LINE_BYTES, arrays[1] + LOAD_LINE_BYTES, arrays[0] + LOAD_LINE_BYTES, 0.5,
	                      bytes);
	width->doubles->triad(arrays[0] + LOAD_LINE_BYTES, arrays[1] + LOAD_LINE_BYTES, arrays[2] + LOAD_LINE_BYTES, 0.5,
	                      bytes);
	for (unsigned k = 0; k < 3; k++)
		for (size_t i = 0; i < TEST_BYTES; i += sizeof(double)) {
			double value, poison;
			bool within = i >= LOAD_LINE_BYTES && i < TEST_BYTES - LOAD_LINE_BYTES;
			memcpy(&value, arrays[k] + i, sizeof(value));
			memset(&poison, 0xdb, sizeof(poison));
			right = right && value == (within ? last[k] : poison);
		}
	return right || error_set(error, ERROR_CHECK_FAILED, "%s: wrong doubles", width->name);
}

static bool case_kernels(struct error *error)
{
	unsigned char *memory = aligned_alloc(64, LOAD_ARRAYS_MAX * TEST_BYTES);
	bool good = memory != NULL;
	unsigned widths = 0;
	for (const struct load_width *width = load_widths; good && width->name; width++) {
		if (!width->supported())
			continue;
		widths++;
		good = doubles_right(width, memory, error);
		for (int mix = 0; mix < MIXES; mix++)
			for (unsigned streams = 1; streams <= LOAD_STREAMS_MAX; streams *= 2)
				for (unsigned flags = 0; good && flags < 4; flags++) {
					struct error unknown = {0};
					bool known = load_shape_known((enum load_mix)mix, streams, flags & 1 ? 512 : 0, &unknown);
					if (known == (load_kernel_find(width, (enum load_mix)mix, streams, flags & 1, flags >> 1) == NULL))
						good = error_set(error, ERROR_CHECK_FAILED, "%s streams %u: a kernel is missing, or too much",
						                 load_mixes[mix].name, streams);
					else if (known)
						good = one_variant(width, (enum load_mix)mix, streams, flags & 1, flags >> 1, memory, error);
				}
	}
	free(memory);
	if (!good)
		return error_set(error, ERROR_INTERNAL, "no memory");
	EXPECT(widths > 0);
	return true;
}

/* A whole run of real threads on a small buffer, proved; then the same with a word spoilt under its hands. */
static bool case_generator(struct error *error)
{
	const enum load_mix mixes[] = {MIX_READS,        MIX_3_1,   MIX_1_1,       MIX_COPY_NT,
	                               MIX_STREAM_TRIAD, MIX_WRITE, MIX_LINE_READS};
	for (unsigned i = 0; i < 2 * sizeof(mixes) / sizeof(mixes[0]); i++) {
		bool sparse = load_mixes[mixes[i / 2]].sparse;
		struct generator_shape shapes[] = {
			{.mix = mixes[i / 2], .streams = sparse ? 1 : 2},
			{.mix = mixes[i / 2], .streams = sparse ? 1 : 8, .prefetch_bytes = sparse ? 0 : 256, .delay = 1}};
		struct generator generator = {
			.shape = shapes[0], .page_kind = PAGES_BASE, .width = load_width_find("auto", error)};
		struct error spoilt = {0};
		char group[64];
		const struct cpu_list *allowed = affinity_allowed();
		snprintf(group, sizeof(group), allowed->count > 1 ? "%u@0+%u@0" : "%u@0", allowed->cpus[0],
		         allowed->cpus[allowed->count - 1]);
		bool good = generator.width && generator_parse_group(&generator, group, error), spoil = i & 1;
		if (good)
			generator_need(&generator, generator.groups, generator_thread_bytes(mixes[i / 2], 65536));
		struct demand demand = {0};
		generator_demand(&generator, 0.005, &demand);
		good = good && generator_admit(&generator, &demand, error) && generator_open(&generator, error);
		if (good) {
			/* The second run needs the buffers as they were before the first. */
			for (unsigned k = 0; good && k < 2; k++)
				good = generator_select(&generator, generator.groups, &shapes[k], k ? 65536 : 32768, error) &&
				       generator_run(&generator, 0.005, error) && (k == 1 || generator_prove(&generator, error));
			if (good && spoil) { /* a run that was told to end has given its buffers back */
				struct generator_thread *last = &generator.threads[generator.count - 1];
				const struct load_accounting *a = &load_mixes[generator.shape.mix];
				/* A read array is proved by the sum of what was read, so that sum is spoilt; a written one by its words. */
				if (a->updates || a->writes)
					last->call.arrays[a->arrays - 1][1000] ^= 4;
				else
					last->sum ^= 4;
			}
			bool proved = good && generator_prove(&generator, spoil ? &spoilt : error);
			double delay_ticks = generator_delay_ticks(mixes[i / 2], 1000);
			good = good && generator_delay_ticks(mixes[i / 2], 0) == 0 && delay_ticks > 0 &&
			       generator_delay_ticks(mixes[i / 2], 20000) > delay_ticks;
			good = good && proved == !spoil && (!spoil || spoilt.code == ERROR_CHECK_FAILED);
			/* What was spoilt is found once: the proof has made the buffers whole. */
			good = good && generator_run(&generator, 0.005, error) && generator_prove(&generator, error);
			good = generator_close(&generator, error) && good;
		}
		generator_free(&generator);
		if (!good)
			return error_set(error, ERROR_CHECK_FAILED, "%s %s: %s", load_mixes[mixes[i / 2]].name,
			                 i & 1 ? "with a word spoilt" : "whole", spoilt.message);
	}
	return true;
}

static bool case_placement(struct error *error)
{
	const enum page_kind kinds[] = {PAGES_BASE, PAGES_THP, PAGES_AUTO};
	for (unsigned i = 0; i < 3; i++) {
		struct region region;
		struct pages pages, elsewhere = {0};
		struct error wrong = {0};
		if (!admit_and_map(&region, 4u << 20, 0, kinds[i], error))
			return false;
		bool good = pages_read_back(&pages, &region, 1, kinds[i], error);
		/* Claim another node than the one bound to: the read-back must contradict. */
		region.node = 1;
		bool fooled = pages_read_nodes(&elsewhere, &region, &wrong);
		region_unmap(&region);
		if (!good)
			return false;
		EXPECT(pages.on_node == pages.checked && pages.elsewhere == 0);
		EXPECT(pages.total == (4u << 20) / memory_base_page_bytes());
		EXPECT(pages.checked == 0 || pages.checked == pages.total);
		EXPECT(kinds[i] != PAGES_BASE || pages.huge_fraction == 0);
		EXPECT(!fooled && wrong.code != ERROR_NONE && elsewhere.on_node == 0);
	}
	/* Two regions of hugetlb pages are that; one of them and another are mixed. */
	const struct region both[] = {{.bytes = 4u << 20, .kind = PAGES_HUGETLB, .hugetlb_bytes = 2u << 20},
	                              {.bytes = 4u << 20, .kind = PAGES_HUGETLB, .hugetlb_bytes = 2u << 20}};
	struct region one[] = {both[0], {0}};
	struct pages alike = {0}, unlike = {0};
	pages_read_sizes(&alike, both, 2);
	if (!admit_and_map(&one[1], 4u << 20, 0, PAGES_THP, error))
		return false;
	pages_read_sizes(&unlike, one, 2);
	region_unmap(&one[1]);
	EXPECT(!strcmp(pages_obtained(&alike), "hugetlb_2m") && !strcmp(pages_obtained(&unlike), "mixed"));
	struct region region;
	struct error refused = {0};
	EXPECT(!admit_and_map(&region, 1u << 20, 1000, PAGES_BASE, &refused) && refused.code == ERROR_BIND_FAILED);
	refused = (struct error){0};
	EXPECT(!admit_and_map(&region, 1ull << 46, 0, PAGES_BASE, &refused) && refused.code == ERROR_NO_MEMORY);
	return true;
}

static bool case_affinity(struct error *error)
{
	const struct cpu_list *allowed = affinity_allowed();
	struct cpu_list list;
	EXPECT(cpu_list_parse(&list, "0-2,7,1", error) && list.count == 4 && list.cpus[3] == 7);
	cpu_list_free(&list);
	const char *const wrong[] = {"", "a", "1-", "3-1", "1,,2", "1 ", "-1", "0x1", "99999999"};
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct error refused = {0};
		EXPECT(!cpu_list_parse(&list, wrong[i], &refused) && refused.code == ERROR_USAGE);
	}
	for (size_t i = 0; i < allowed->count; i++) {
		if (!affinity_pin(allowed->cpus[i], error))
			return false;
		EXPECT(affinity_verify(allowed->cpus[i]));
		EXPECT(!affinity_verify(allowed->cpus[(i + 1) % allowed->count]) || allowed->count == 1);
	}
	struct error refused = {0};
	EXPECT(!affinity_pin(1000000, &refused) && refused.code != ERROR_NONE);
	struct cpu_list none = {0};
	affinity_avoid(0, &none); /* back to all CPUs, for the cases that follow */
	return true;
}

static bool case_trace_planted(struct error *error)
{
	return planting_check(injection_s, noted, sizeof(noted), error);
}

static const struct {
	const char *name;
	bool (*run)(struct error *error);
} cases[] = {
	{"clock", case_clock},
	{"instructions", case_instructions},
	{"chain", case_chain},
	{"large_chain", case_large_chain},
	{"order", case_order},
	{"interleave", case_interleave},
	{"gap_books", case_gap_books},
	{"gap_injection", injection_by_signal},
	{"gap_rival", injection_by_rival},
	{"trace_planted", case_trace_planted},
	{"core_work", case_core_work},
	{"kernels", case_kernels},
	{"affinity", case_affinity},
	{"placement", case_placement},
	{"generator", case_generator},
};

/* A wrong answer is worse than a case that this machine cannot do, and that worse than one that was not begun. */
static int gravity(enum error_code code)
{
	switch (code) {
	case ERROR_NONE:
		return 0;
	case ERROR_INTERRUPTED:
	case ERROR_DEADLINE:
		return 1;
	case ERROR_CHECK_FAILED:
		return 3;
	default:
		return 2;
	}
}

static const char *wanted;

static bool measure(struct json *result, struct error *error)
{
	size_t begun = 0;
	json_object_begin(result, NULL);
	json_array_begin(result, "cases");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct error found = {0}, named = {0};
		if (strcmp(wanted, "all") != 0 && strcmp(wanted, cases[i].name) != 0)
			continue;
		noted[0] = '\0';
		if (!stop_error(&found)) {
			begun++;
			if (!cases[i].run(&found) && found.code == ERROR_NONE)
				error_set(&found, ERROR_INTERNAL, "failed without a reason");
		}
		json_object_begin(result, NULL);
		json_text(result, "name", cases[i].name);
		json_bool(result, "passed", found.code == ERROR_NONE);
		error_write(result, &found);
		json_text(result, "note", noted[0] ? noted : NULL);
		json_object_end(result);
		if (gravity(found.code) > gravity(error->code)) {
			error_set(&named, found.code, "case %s: %s", cases[i].name, found.message);
			*error = named;
		}
	}
	json_array_end(result);
	injection_write(result);
	planting_write(result);
	json_object_end(result);
	return begun > 0;
}

static const struct option table[] = {
	/* Two seconds have twenty of the rarest injection; a minute has enough of them to see 1 % missing. */
	{"--injection-s", OPTION_F64, &injection_s, "S", "seconds that injected gaps are watched, for each mechanism", "2",
	 NULL, 0, 600, false},
	{"--case", OPTION_TEXT, &wanted, "NAME|all", "the case to ask, by its name", "all", NULL, 0, 0, false},
};

static bool prepare(struct error *error)
{
	bool known = !strcmp(wanted, "all");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		known = known || !strcmp(wanted, cases[i].name);
	return known || error_set(error, ERROR_USAGE, "--case: expected all or the name of a case, found '%s'", wanted);
}

const struct subcommand selftest_subcommand = {
	.name = "selftest",
	.summary = "known answers of every part",
	.options = table,
	.option_count = sizeof(table) / sizeof(table[0]),
	.prepare = prepare,
	.run = measure,
};
