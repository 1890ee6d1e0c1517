// SPDX-License-Identifier: Apache-2.0
/* Known answers: each case computes something whose answer is known by other means, and several break it on purpose
 * to see that the break is found. No case asserts how long anything takes. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/perf_event.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "affinity.h"
#include "attribution.h"
#include "causes.h"
#include "cgroup.h"
#include "chain.h"
#include "clock.h"
#include "corefreq.h"
#include "csv.h"
#include "decode.h"
#include "gaps.h"
#include "generator.h"
#include "injection.h"
#include "load.h"
#include "memory.h"
#include "osnoise.h"
#include "periods.h"
#include "planting.h"
#include "pmu.h"
#include "random.h"
#include "statistics.h"
#include "stopping.h"
#include "subcommand.h"
#include "tracefs.h"
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

static bool case_random(struct error *error)
{
	uint64_t state = 0;
	EXPECT(random_mix(&state) == 0xe220a8397b1dcdafu); /* first output of splitmix64 from 0, as published */
	struct random one, two;
	random_seed(&one, 7);
	random_seed(&two, 7);
	uint64_t sum = 0;
	for (int i = 0; i < 1000; i++) {
		uint32_t value = random_below(&one, 10);
		EXPECT(value < 10 && value == random_below(&two, 10));
		sum += value;
	}
	EXPECT(sum > 4000 && sum < 5000);
	EXPECT(random_derive(1, 2, 3) == random_derive(1, 2, 3) && random_derive(1, 2, 3) != random_derive(1, 3, 2));
	EXPECT(random_derive(UINT64_MAX, 9, 9) < 1ull << 53);
	return true;
}

static bool case_statistics(struct error *error)
{
	const double odd[] = {3, 1, 2}, even[] = {4, 1, 2, 3}, six[] = {10, 11, 9, 10, 10, 10};
	double half;
	EXPECT(statistics_median(odd, 3) == 2 && statistics_median(even, 4) == 2.5);
	EXPECT(statistics_interval_rank(5) == 0 && statistics_interval_rank(6) == 1 && statistics_interval_rank(8) == 1);
	EXPECT(statistics_interval_rank(9) == 2 && statistics_interval_rank(11) == 2 && statistics_interval_rank(15) == 4);
	EXPECT(statistics_interval_rank(31) == 10);
	EXPECT(statistics_half_width(six, 6, &half) && fabs(half - 0.1) < 1e-12);
	EXPECT(!statistics_half_width(six, 5, &half));
	struct stopping stopping = {.placements = 6, .target = 0.2};
	stopping_begin(&stopping);
	EXPECT(!stopping_done(&stopping, six, 5));
	EXPECT(stopping_done(&stopping, six, 6) && !strcmp(stopping.reason, "converged"));
	stopping = (struct stopping){.placements = 6, .target = 0.01};
	EXPECT(stopping_done(&stopping, six, 6) && !strcmp(stopping.reason, "placements"));
	stopping = (struct stopping){.placements = 6, .target = 0.01, .budget_s = 1e9};
	stopping_begin(&stopping);
	EXPECT(!stopping_done(&stopping, six, 6));
	stopping.budget_s = 1e-12;
	EXPECT(stopping_done(&stopping, six, 6) && !strcmp(stopping.reason, "budget"));
	return true;
}

static bool case_counters(struct error *error)
{
	const struct pmu_reading before = {1000, 500, 400};
	struct pmu_reading all = {1100, 700, 600}, quarter = {1050, 1500, 650}, never = {1000, 900, 400}, idle = before;
	double scaled, fraction;
	EXPECT(pmu_scale(&before, &all, &scaled, &fraction) && scaled == 100 && fraction == 1);
	EXPECT(pmu_scale(&before, &quarter, &scaled, &fraction) && scaled == 200 && fraction == 0.25);
	EXPECT(!pmu_scale(&before, &never, &scaled, &fraction) && scaled == 0 && fraction == 0);
	EXPECT(!pmu_scale(&before, &idle, &scaled, &fraction) && scaled == 0 && fraction == 0);
	const struct pmu_reading last = {UINT64_MAX - 9, 0, 0}, wrapped = {10, 3, 3};
	EXPECT(pmu_scale(&last, &wrapped, &scaled, &fraction) && scaled == 20);
	const char *words[] = {
		"a.b_1=uncore_cha-0/config=0x1,config1=0xffffFFFFffffffff,config2=0x0,config3=0x2,group=63,user/@0-3,7",
		"probe.a=hardware/group=0/"};
	const struct word_list both = {words, 2}, first = {words, 1};
	struct error refused = {0};
	EXPECT(pmu_parse(&both, true, error) && pmu_parse(&first, false, error));
	EXPECT(!pmu_parse(&both, false, &refused) && refused.code == ERROR_USAGE);
	return true;
}

static bool case_json(struct error *error)
{
	struct json json = {0};
	json_object_begin(&json, NULL);
	json_text(&json, "a\"\\\n", "b\t\x7f\xff\xc3\xa4\xed\xa0\x80");
	json_array_begin(&json, "n");
	json_f64(&json, NULL, 0.1);
	json_i64(&json, NULL, INT64_MIN);
	json_u64(&json, NULL, UINT64_MAX);
	json_null(&json, NULL);
	json_array_end(&json);
	json_object_end(&json);
	bool same = !strcmp(json.text, "{\"a\\\"\\\\\\u000a\":\"b\\u0009\\u007f\\ufffd\xc3\xa4\\ufffd\\ufffd\\ufffd\","
	                               "\"n\":[0.1,-9223372036854775808,18446744073709551615,null]}");
	bool sound = !json.spoilt;
	json_f64(&json, "x", NAN);
	bool refused = json.spoilt && !strcmp(json.spoilt_key, "x");
	json_free(&json);
	json_f64(&json, NULL, INFINITY);
	refused = refused && json.spoilt;
	json_free(&json);
	EXPECT(same && sound && refused);
	return true;
}

static bool case_csv(struct error *error)
{
	struct csv_row read = {.size_bytes = 33000, .operation = "read", .bandwidth_mb_s = 1234.567, .threads = 2};
	struct csv_row latency = {.size_bytes = 1u << 30,
	                          .operation = "latency",
	                          .latency_ns = 101.005001,
	                          .latency_stddev_ns = 0.5,
	                          .latency_samples = 54,
	                          .threads = 1,
	                          .iterations = 54,
	                          .elapsed_s = 1.5};
	struct error refused = {0};
	csv_add(&read);
	csv_add(&latency);
	char *text = csv_text(error);
	bool right = text && !strcmp(text, "size_kb,operation,bandwidth_mb_s,latency_ns,latency_stddev_ns,latency_samples,"
	                                   "threads,iterations,elapsed_s\n"
	                                   "32,read,1234.57,0.00,0.00,0,2,0,0.000000\n"
	                                   "1048576,latency,0.00,101.01,0.50,54,1,54,1.500000\n");
	free(text);
	latency.latency_ns = NAN;
	csv_add(&latency);
	text = csv_text(&refused);
	bool spoilt = text == NULL && refused.code == ERROR_INTERNAL;
	free(text);
	EXPECT(right);
	EXPECT(spoilt);
	return true;
}

static bool case_options(struct error *error)
{
	static uint64_t number;
	static bool flag, other;
	static struct word_list words;
	const struct option table[] = {
		{"--number", OPTION_U64, &number, "N", "", "7", NULL, 1, 9, false},
		{"--flag", OPTION_FLAG, &flag, NULL, "", NULL, NULL, 0, 0, false},
		{"--other", OPTION_FLAG, &other, NULL, "", NULL, NULL, 0, 0, false},
		{"--word", OPTION_REPEATED, &words, "W", "", NULL, NULL, 0, 0, false},
	};
	const size_t count = sizeof(table) / sizeof(table[0]);
	char *good[] = {"--word", "--flag", "--flag", "--word", "b"}, *twice[] = {"--word", "a", "--flag", "--flag"},
		 *value[] = {"--word", "a", "--flag", "true"}, *none[] = {"--flag"};
	struct error refused = {0};
	other = true;
	EXPECT(options_parse(table, count, 5, good, error));
	EXPECT(number == 7 && flag && !other);
	EXPECT(words.count == 2 && !strcmp(words.words[0], "--flag") && !strcmp(words.words[1], "b"));
	EXPECT(!options_parse(table, count, 4, twice, &refused) && strstr(refused.message, "twice") != NULL);
	refused = (struct error){0};
	EXPECT(!options_parse(table, count, 4, value, &refused) && strstr(refused.message, "'true'") != NULL);
	refused = (struct error){0};
	EXPECT(!options_parse(table, count, 1, none, &refused) && strstr(refused.message, "--word") != NULL);
	struct json json = {0};
	json_object_begin(&json, NULL);
	options_write(table, count, &json);
	json_object_end(&json);
	/* as the last good parse and the refused ones before their fault left them */
	bool written = json.text && strstr(json.text, "\"number\":7,\"flag\":true,\"other\":false,") != NULL;
	json_free(&json);
	EXPECT(written);
	return true;
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
	if (!cpu_list_add(&both, 0) || !cpu_list_add(&both, 1023) ||
	    !admit_and_map(&region, 4u << 20, 0, PAGES_BASE, error)) {
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
	EXPECT(arch_delay(5, 10) == 60 && arch_delay(0, 1) == 1);
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

static bool case_gap_buckets(struct error *error)
{
	for (unsigned power = 0; power < 62; power++)
		for (uint64_t extra = 0; extra < 9; extra++) {
			uint64_t value = (1ull << power) + (extra << (power > 3 ? power - 3 : 0));
			unsigned bucket = gaps_bucket(value);
			uint64_t from = gaps_bucket_from(bucket), to = gaps_bucket_from(bucket + 1);
			EXPECT(bucket + 1 < GAP_BUCKETS && from <= value && value < to);
			EXPECT(to - from <= 1 || (double)(to - from) <= 0.125 * (double)from);
		}
	return true;
}

/* Of the clock of made gaps: with the machine's own, what is found among them would differ from machine to machine. */
#define MADE_HZ 1e9

/* A ring as if a timer of `period` had fired, each time late by up to `late`, among `others` at random times. */
static void make_ring(struct gaps *gaps, double period, double late, size_t timer, size_t others, uint64_t seed)
{
	struct random random;
	random_seed(&random, seed);
	double span = period * (double)timer;
	size_t next = 0;
	uint64_t *noise = calloc(others + 1, sizeof(*noise));
	for (size_t i = 0; noise && i < others; i++)
		noise[i] = (uint64_t)(span * (double)random_below(&random, 1u << 30) / (double)(1u << 30));
	for (size_t i = 0; noise && i < others; i++) /* small counts: sorting by insertion will do */
		for (size_t k = i; k > 0 && noise[k - 1] > noise[k]; k--) {
			uint64_t kept = noise[k];
			noise[k] = noise[k - 1];
			noise[k - 1] = kept;
		}
	gaps->kept = 0;
	for (size_t i = 0; noise && i < timer; i++) {
		uint64_t at = (uint64_t)(period * (double)i + late * (double)random_below(&random, 1000) / 1000);
		while (next < others && noise[next] <= at)
			gaps->ring[gaps->kept++] = (struct gap){noise[next++] + 1000, 100};
		gaps->ring[gaps->kept++] = (struct gap){at + 1000, 100};
	}
	gaps->count = gaps->kept;
	free(noise);
}

/* Whether one of the periods found is this one, with so many gaps of this length. */
static bool has_period(const struct period *found, size_t count, double ticks, double gaps, double length)
{
	for (size_t i = 0; i < count; i++)
		if (fabs(found[i].ticks / ticks - 1) < 0.001 && fabs((double)found[i].gaps / gaps - 1) < 0.01 &&
		    fabs(found[i].median_ticks / length - 1) < 0.05)
			return true;
	return false;
}

static int compare_gaps(const void *left, const void *right)
{
	const struct gap *a = left, *b = right;
	return (a->at > b->at) - (a->at < b->at);
}

/* Three timers at once among 40,000 random gaps: each is found with its period, number and length, although 8 % of its
 * gaps are shorter than a floor that keeps out all the random ones. */
static bool mixed_periods(struct gaps *gaps, uint8_t *owner)
{
	static const struct {
		double period_us, length_us, late_us;
	} timers[] = {{1000, 5, 2}, {4000, 20, 15}, {100000, 200, 15}};
	double us = MADE_HZ / 1e6;
	struct random random;
	random_seed(&random, 17);
	gaps->kept = 0;
	for (unsigned t = 0; t < 3; t++)
		for (unsigned i = 0; 370.0 * t + i * timers[t].period_us < 20e6; i++) {
			double at_us = 370.0 * t + i * timers[t].period_us + timers[t].late_us * random_below(&random, 1000) / 1e3;
			double length_us = timers[t].length_us * (0.992 + 1e-4 * random_below(&random, 1000));
			gaps->ring[gaps->kept++] = (struct gap){(uint64_t)(at_us * us), (uint64_t)(length_us * us)};
		}
	for (unsigned i = 0; i < 40000; i++)
		gaps->ring[gaps->kept++] = (struct gap){(uint64_t)(20e3 * random_below(&random, 1000000) / 1e3 * us),
		                                        (uint64_t)((0.3 + 1e-3 * random_below(&random, 3000)) * us)};
	gaps->count = gaps->kept;
	qsort(gaps->ring, gaps->kept, sizeof(*gaps->ring), compare_gaps);
	struct period found[PERIODS_MAX];
	size_t count = periods_find(gaps->ring, gaps->kept, us, found, owner);
	bool good = count == 3;
	for (unsigned t = 0; t < 3; t++)
		good = good &&
		       has_period(found, count, timers[t].period_us * us, 20e6 / timers[t].period_us, timers[t].length_us * us);
	/* The marks say the same as the sums. */
	uint64_t marked[PERIODS_MAX] = {0};
	for (size_t i = 0; i < gaps->kept; i++)
		if (owner[i] != PERIODS_NONE)
			marked[owner[i]]++;
	for (size_t i = 0; good && i < count; i++)
		good = marked[i] == found[i].gaps;
	return good;
}

/* A timer that has its gap in few of its cycles more than half, late and among others. */
static void thin_timer(struct gaps *gaps, unsigned round, struct random *random)
{
	double us = MADE_HZ / 1e6;
	unsigned kept = 50 + round % 30, others = round % 7 * 40, late = 1 + round % 11 * 20;
	gaps->kept = 0;
	for (unsigned i = 0; i < 100; i++)
		if (random_below(random, 100) < kept)
			gaps->ring[gaps->kept++] = (struct gap){
				(uint64_t)((20e3 * i + 1e-3 * late * random_below(random, 1000)) * us), (uint64_t)(20 * us)};
	for (unsigned i = 0; i < others; i++)
		gaps->ring[gaps->kept++] = (struct gap){(uint64_t)(2.0 * random_below(random, 1000000) * us),
		                                        (uint64_t)(5 * us * (1 + random_below(random, 400)))};
	gaps->count = gaps->kept;
	qsort(gaps->ring, gaps->kept, sizeof(*gaps->ring), compare_gaps);
}

/* A timer that stops, after most of the gaps that are searched and before half of all. */
static void stopping_timer(struct gaps *gaps, struct random *random)
{
	double us = MADE_HZ / 1e6;
	gaps->kept = 0;
	for (unsigned i = 0; i < 20000; i++)
		gaps->ring[gaps->kept++] =
			(struct gap){(uint64_t)((1e3 * i + (i < 8000 ? 0 : random_below(random, 900))) * us), (uint64_t)(us)};
	gaps->count = gaps->kept;
}

/* Whether every period has its gap in more than half of the cycles that are told, and most of the thin timers are found. */
static bool thin_periods(struct gaps *gaps, uint8_t *owner)
{
	const unsigned rounds = 30;
	struct random random;
	struct period found[PERIODS_MAX];
	unsigned seen = 0;
	bool good = true;
	random_seed(&random, 1480);
	for (unsigned round = 0; round <= rounds; round++) {
		if (round < rounds)
			thin_timer(gaps, round, &random);
		else
			stopping_timer(gaps, &random);
		size_t count = periods_find(gaps->ring, gaps->kept, MADE_HZ / 1e6, found, owner);
		for (size_t i = 0; i < count; i++)
			good = good && found[i].gaps <= found[i].cycles && 2 * found[i].gaps > found[i].cycles;
		seen += count > 0;
		good = good && (round < rounds || count > 0);
	}
	return good && 2 * seen > rounds;
}

static bool case_gap_period(struct error *error)
{
	static struct gaps gaps;
	struct period found[PERIODS_MAX];
	uint8_t *owner = malloc(100000);
	if (!owner || !gaps_open(&gaps, GAP_RING, 0, error)) {
		free(owner);
		return error_set(error, ERROR_NO_MEMORY, "no memory for gaps");
	}
	double hz = MADE_HZ, us = hz / 1e6, periods[] = {0.004 * hz, 0.001 * hz, 0.0101 * hz, 0.0013 * hz};
	bool good = true;
	for (unsigned i = 0; good && i < 4; i++) {
		make_ring(&gaps, periods[i], 1e-6 * hz, 800, 300, i + 1);
		size_t count = periods_find(gaps.ring, gaps.kept, us, found, owner);
		good =
			count == 1 && fabs(found[0].ticks / periods[i] - 1) < 0.001 && fabs((double)found[0].gaps / 800 - 1) < 0.02;
		if (!good)
			error_set(error, ERROR_CHECK_FAILED,
			          "expected 800 gaps of period %g, found %zu periods, the first %g with %llu", periods[i], count,
			          count ? found[0].ticks : 0, count ? (unsigned long long)found[0].gaps : 0);
	}
	/* Noise alone, sparse and dense, has none. */
	size_t none = 0;
	for (unsigned i = 0; i < 5; i++) {
		make_ring(&gaps, 0.001 * hz, 0, 3, i < 4 ? 900 : 3000, 9 + i);
		none += periods_find(gaps.ring, gaps.kept, us, found, owner);
	}
	bool mixed = good && mixed_periods(&gaps, owner);
	bool thin = good && thin_periods(&gaps, owner);
	gaps_free(&gaps);
	free(owner);
	if (!good)
		return false;
	EXPECT(none == 0);
	EXPECT(mixed);
	EXPECT(thin);
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

/* Sources with known shares in the gaps of 200 slices: each is given its own, the steady one is not guessed. */
static bool case_gap_attribution(struct error *error)
{
	enum { SLICES = 200, RES = 0, SOURCES = 5 };
	static uint64_t bounds[SLICES + 1];
	static double counts[SLICES], lost[SLICES], rows[SOURCES][SLICES];
	struct random random;
	random_seed(&random, 5);
	struct source sources[SOURCES - RES] = {{.label = "RES"},
	                                        {.label = "CAL"},
	                                        {.label = "EVEN"},
	                                        {.label = "IDLE"},
	                                        {.label = "TIMER", .class = SOURCE_SOFTIRQ}};
	struct attribution made = {.slices = SLICES, .bounds = bounds, .sources = sources, .source_count = SOURCES - RES};
	for (unsigned i = 0; i < SOURCES - RES; i++)
		sources[i].slices = rows[i];
	double res = 0, cal = 0, all = 0;
	for (size_t r = 0; r < SLICES; r++) {
		double noise = random_below(&random, 30);
		bounds[r + 1] = bounds[r] + (uint64_t)(0.1 * clock_now_used.hz);
		rows[0][r] = random_below(&random, 60);
		rows[1][r] = random_below(&random, 100) < 20 ? random_below(&random, 300) : 0;
		rows[2][r] = 25;
		rows[3][r] = random_below(&random, 200);
		rows[4][r] = random_below(&random, 40);
		/* Each RES makes a gap of 5000 ticks, two CAL make one of 3000, each softirq makes some other 2000 longer; 40 in each
		 * slice and the noise come from elsewhere. */
		counts[r] = rows[0][r] + floor(rows[1][r] / 2) + 40 + noise;
		lost[r] = 5000 * rows[0][r] + 3000 * floor(rows[1][r] / 2) + 2000 * rows[4][r] + 1000 * (40 + noise);
		res += rows[0][r];
		cal += floor(rows[1][r] / 2);
		all += counts[r];
		made.gaps += (uint64_t)counts[r];
		made.lost_ticks += (uint64_t)lost[r];
	}
	EXPECT(attribution_solve(&made, counts, lost));
	EXPECT(sources[0].gaps_told && fabs(sources[0].gaps / res - 1) < 0.1);
	EXPECT(sources[0].lost_told && fabs(sources[0].lost_ticks / (5000 * res) - 1) < 0.1);
	EXPECT(sources[1].gaps_told && fabs(sources[1].gaps / cal - 1) < 0.1);
	EXPECT(!sources[2].gaps_told && sources[2].reason);
	EXPECT(sources[3].gaps_told && sources[3].gaps < 0.05 * all);
	EXPECT(!sources[4].gaps_told && sources[4].lost_told && sources[4].lost_ticks > 0);
	EXPECT(fabs(made.unattributed_gaps / (all - res - cal) - 1) < 0.1);
	/* The same without slices to compare: nothing is told. */
	struct source few[SOURCES - RES];
	memcpy(few, sources, sizeof(few));
	for (unsigned i = 0; i < SOURCES - RES; i++) {
		few[i].gaps_told = few[i].lost_told = false;
		few[i].gaps = few[i].lost_ticks = 0;
	}
	struct attribution short_look = made;
	short_look.slices = 1;
	short_look.sources = few;
	EXPECT(attribution_solve(&short_look, counts, lost));
	EXPECT(!few[0].gaps_told && few[0].reason && short_look.unattributed_gaps == (double)made.gaps);
	return true;
}

/* More gaps than the ring holds, with the longest among those that come after it is full. */
static bool case_gap_longest(struct error *error)
{
	static struct gaps gaps;
	const size_t wanted = 100, ring = 4096, count = ring + 20000;
	if (!gaps_open(&gaps, ring, wanted, error))
		return false;
	struct random random;
	random_seed(&random, 3);
	for (size_t i = 0; i < count; i++) {
		/* 200 distinct long ones, the second hundred in falling order and after the ring is full; ties below. */
		uint64_t ticks = 100 + random_below(&random, 1000);
		if (i >= 500 && i < 600)
			ticks = 5000 + i;
		if (i >= ring + 100 && i < ring + 200)
			ticks = 9000 - (i - ring);
		gaps_record(&gaps, i, ticks);
	}
	bool full = gaps.kept == ring && gaps.count == count;
	gaps_close(&gaps);
	bool right = gaps.longest_kept == wanted;
	for (size_t i = 0; right && i < wanted; i++)
		right = gaps.longest[i].ticks == 8900 - i && gaps.longest[i].at == ring + 100 + i;
	gaps_free(&gaps);
	/* Fewer gaps than asked for are all kept; and none when none is asked for. */
	gaps = (struct gaps){0};
	if (!gaps_open(&gaps, ring, wanted, error))
		return false;
	for (uint64_t i = 1; i <= 10; i++)
		gaps_record(&gaps, i, i * 7 % 11);
	gaps_close(&gaps);
	bool few = gaps.longest_kept == 10;
	for (uint64_t i = 0; few && i < 10; i++)
		few = gaps.longest[i].ticks == 10 - i;
	gaps_free(&gaps);
	gaps = (struct gaps){0};
	if (!gaps_open(&gaps, ring, 0, error))
		return false;
	gaps_record(&gaps, 1, 1);
	bool none = gaps.longest_kept == 0 && gaps.count == 1;
	gaps_free(&gaps);
	EXPECT(full);
	/* Rings of hundreds of CPUs are shorter, so that all together take no more than is allowed. */
	EXPECT(gaps_capacity(1) == GAP_RING);
	EXPECT(255 * gaps_bytes(gaps_capacity(255), 0) <= GAP_RINGS_BYTES && gaps_capacity(255) >= 100000);
	EXPECT(right);
	EXPECT(few);
	EXPECT(none);
	return true;
}

/* What is undisturbed after so many runs that all were interrupted, each for another time. */
struct crowd {
	unsigned interrupted, asked;
};

static double crowded_run(void *context)
{
	struct crowd *crowd = context;
	unsigned number = crowd->asked++;
	return number < crowd->interrupted ? 1.2 / (1.1 + 0.03 * (number * 7 % 257)) : 1.2;
}

static double falling_run(void *context)
{
	double *rate = context;
	return *rate *= 0.98;
}

static bool case_core_clock(struct error *error)
{
	struct crowd calm = {0}, busy = {.interrupted = 60}, last_moment = {.interrupted = COREFREQ_RUNS_MAX - 3},
				 never = {.interrupted = UINT32_MAX};
	EXPECT(fabs(corefreq_search(crowded_run, &calm) - 1.2) < 1e-12 && calm.asked == COREFREQ_RUNS_MIN);
	EXPECT(fabs(corefreq_search(crowded_run, &busy) - 1.2) < 1e-12 && busy.asked == 63);
	EXPECT(fabs(corefreq_search(crowded_run, &last_moment) - 1.2) < 1e-12);
	/* No answer but the fastest where all are interrupted; and an end. */
	EXPECT(corefreq_search(crowded_run, &never) < 1.2 && never.asked == COREFREQ_RUNS_MAX);
	double rate = 1;
	EXPECT(fabs(corefreq_search(falling_run, &rate) - 0.98) < 1e-12);
	/* The real one, twice: the clock of a core may change, but not without end. */
	double first = corefreq_settle(), second = corefreq_per_tick();
	EXPECT(isfinite(first) && isfinite(second) && first > 0 && second > 0);
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
	                         .delay = delay ? 3 : 0,
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
	right = right && sum == expected && call.carry == (delay && !a->sparse ? 4 * units * 6 : 0);
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

static bool case_accounting(struct error *error)
{
	/* lines read, written, allocated by the declared rule; by hand from what the loops do */
	static const struct {
		const char *name;
		unsigned reads, writes, allocates, program_bytes;
	} known[] = {{"reads", 1, 0, 0, 64},    {"3:1", 3, 1, 0, 256},          {"2:1", 2, 1, 0, 192},
	             {"1:1", 1, 1, 0, 128},     {"stream_triad", 2, 1, 0, 192}, {"write", 0, 1, 1, 64},
	             {"write_nt", 0, 1, 0, 64}, {"copy", 1, 1, 1, 128},         {"copy_nt", 1, 1, 0, 128},
	             {"triad", 2, 1, 1, 192},   {"line_reads", 1, 0, 0, 8}};
	EXPECT(sizeof(known) / sizeof(known[0]) == MIXES);
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		enum load_mix mix;
		EXPECT(load_mix_parse(known[i].name, &mix));
		unsigned allocates = load_write_allocates(mix);
#if defined(__x86_64__)
		EXPECT(allocates == known[i].allocates);
#else
		EXPECT(allocates == 0);
#endif
		EXPECT(load_mixes[mix].reads == known[i].reads && load_mixes[mix].stores == known[i].writes);
		EXPECT(load_program_bytes(mix) == known[i].program_bytes);
		EXPECT(load_model_bytes(mix) == 64 * (known[i].reads + known[i].writes + allocates));
	}
	const struct log_entry log[] = {{100, 0}, {200, 1000}, {400, 1000}, {500, 2000}};
	EXPECT(log_at(log, 4, 50) == 0 && log_at(log, 4, 150) == 500 && log_at(log, 4, 300) == 1000);
	EXPECT(log_at(log, 4, 450) == 1500 && log_at(log, 4, 900) == 2000);
	return true;
}

/* A whole run of real threads on a small buffer, proved; then the same with a word spoilt under its hands. */
static bool case_generator(struct error *error)
{
	const enum load_mix mixes[] = {MIX_READS,        MIX_3_1,   MIX_1_1,       MIX_COPY_NT,
	                               MIX_STREAM_TRIAD, MIX_WRITE, MIX_LINE_READS};
	const uint64_t delays[] = {0, 1000, 20000};
	for (unsigned i = 0; i < 2 * sizeof(mixes) / sizeof(mixes[0]); i++) {
		double delay_ticks[3] = {0};
		bool sparse = load_mixes[mixes[i / 2]].sparse;
		struct generator generator = {.shape = {.mix = mixes[i / 2], .streams = sparse ? 1 : 2},
		                              .buffer_bytes = 65536,
		                              .page_kind = PAGES_BASE,
		                              .delays = delays,
		                              .delay_count = i == 0 || sparse ? 3 : 0,
		                              .delay_ticks = delay_ticks,
		                              .width = load_width_find("auto", error)};
		struct generator_shape eight = {
			.mix = mixes[i / 2], .streams = sparse ? 1 : 8, .prefetch_bytes = sparse ? 0 : 256, .delay = 1};
		struct error spoilt = {0};
		char group[64];
		const struct cpu_list *allowed = affinity_allowed();
		snprintf(group, sizeof(group), allowed->count > 1 ? "%u@0+%u@0" : "%u@0", allowed->cpus[0],
		         allowed->cpus[allowed->count - 1]);
		bool good = generator.width && generator_parse_group(&generator, group, error);
		struct demand demand = {0};
		generator_demand(&generator, generator_thread_bytes(generator.shape.mix, generator.buffer_bytes), 0.005,
		                 &demand);
		good = good && generator_admit(&generator, &demand, error) && generator_open(&generator, error);
		if (good) {
			good = generator_run(&generator, 0.005, error);
			generator_reshape(&generator, &eight);
			good = good && generator_run(&generator, 0.005, error);
			bool spoil = i & 1;
			if (good && spoil) { /* a run that was told to end has given its buffers back */
				const struct generator_thread *last = &generator.threads[generator.count - 1];
				const struct load_accounting *a = &load_mixes[generator.shape.mix];
				/* A read array is proved by the sum of what was read, so that sum is spoilt; a written one by its words. */
				if (a->updates || a->writes)
					last->call.arrays[a->arrays - 1][1000] ^= 4;
				else
					generator.threads[generator.count - 1].sum ^= 4;
			}
			bool closed = generator_close(&generator, spoil ? &spoilt : error);
			good = good && (generator.delay_count == 0 ||
			                (delay_ticks[0] == 0 && delay_ticks[1] > 0 && delay_ticks[2] > delay_ticks[1]));
			good = good && closed == !spoil && (!spoil || spoilt.code == ERROR_CHECK_FAILED);
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

static bool case_memory(struct error *error)
{
	/* An eighth may be wasted, and whatever is less than a huge page of x86. */
	const size_t huge = 512u << 20;
	EXPECT(pages_fit(1, 2u << 20) && pages_fit((2u << 20) + 1, 2u << 20));
	EXPECT(!pages_fit(1u << 20, huge) && !pages_fit(huge + 1, huge) && pages_fit(huge, huge));
	EXPECT(pages_fit(huge / 9 * 8 + 8, huge) && !pages_fit(huge / 9 * 8, huge) && pages_fit(8 * huge + 1, huge));
	uint64_t bytes = 0;
	EXPECT(memory_usable_bytes("Node 0 MemTotal: 900 kB\nNode 0 MemFree:  100 kB\nNode 0 Active(file): 30 kB\n"
	                           "Node 0 Inactive(file):   20 kB\nNode 0 SReclaimable: 7 kB\n",
	                           &bytes));
	EXPECT(bytes == 120 * 1024);
	EXPECT(!memory_usable_bytes("MemTotal: 900 kB\n", &bytes));
	struct error refused = {0};
	struct demand much = {0};
	demand_other(&much, 1ull << 46, 1);
	EXPECT(!demand_admit(&much, &refused) && refused.code == ERROR_NO_MEMORY && much.refused_node == -1);
	return true;
}

/* Files of a made-up machine, under a directory of their own. */
static bool put(const char *root, const char *path, const char *text)
{
	char whole[256];
	snprintf(whole, sizeof(whole), "%s%s", root, path);
	for (char *at = strchr(whole + strlen(root) + 1, '/'); at; at = strchr(at + 1, '/')) {
		*at = '\0';
		if (mkdir(whole, 0700) != 0 && errno != EEXIST)
			return false;
		*at = '/';
	}
	FILE *file = fopen(whole, "w");
	if (!file)
		return false;
	bool good = fputs(text, file) >= 0;
	return fclose(file) == 0 && good;
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
	(void)status;
	(void)kind;
	(void)place;
	return remove(path);
}

#define MOUNT_1 "30 25 0:26 / /cg/memory rw,nosuid - cgroup cgroup rw,memory\n"
#define MOUNT_2 "31 25 0:27 / /cg/two rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
#define MOUNT_INSIDE "31 25 0:27 /host/job /cg/two rw,nosuid - cgroup2 cgroup2 rw\n"

static bool case_control_groups(struct error *error)
{
	/* files of one machine, and the room they leave */
	static const struct {
		const char *files[8][2];
		uint64_t room;
		const char *where;
	} machines[] = {
		{{{"/proc/self/cgroup", "0::/\n"}, {"/proc/self/mountinfo", MOUNT_2}}, CGROUP_NO_LIMIT, ""},
		/* version 2: the parent's limit is the tighter one; cache not used lately is given back */
		{{{"/proc/self/cgroup", "0::/a/b\n"},
		  {"/proc/self/mountinfo", MOUNT_1 MOUNT_2},
		  {"/cg/two/a/b/memory.max", "max\n"},
		  {"/cg/two/a/memory.max", "1000000\n"},
		  {"/cg/two/a/memory.current", "600000\n"},
		  {"/cg/two/a/memory.stat", "anon 1\nactive_file 70000\ninactive_file 50000\n"}},
		 450000,
		 "/cg/two/a"},
		/* version 1, beside an empty version 2; the top says no limit in its own way */
		{{{"/proc/self/cgroup", "5:cpuset,memory:/job\n4:cpu:/other\n0::/\n"},
		  {"/proc/self/mountinfo", MOUNT_2 MOUNT_1},
		  {"/cg/memory/memory.limit_in_bytes", "9223372036854771712\n"},
		  {"/cg/memory/memory.usage_in_bytes", "5\n"},
		  {"/cg/memory/job/memory.limit_in_bytes", "4096\n"},
		  {"/cg/memory/job/memory.usage_in_bytes", "8192\n"},
		  {"/cg/memory/job/memory.stat", "inactive_file 9\ntotal_inactive_file 4000\n"}},
		 0,
		 "/cg/memory/job"},
		/* a container sees its own group as the top, under the host's name */
		{{{"/proc/self/cgroup", "0::/host/job\n"},
		  {"/proc/self/mountinfo", MOUNT_INSIDE},
		  {"/cg/two/memory.max", "5000\n"},
		  {"/cg/two/memory.current", "1000\n"}},
		 4000,
		 "/cg/two"},
	};
	for (size_t i = 0; i < sizeof(machines) / sizeof(machines[0]); i++) {
		char root[] = "/tmp/sutprobe-XXXXXX", where[256] = "";
		if (!mkdtemp(root))
			return error_set(error, ERROR_INTERNAL, "a directory for files in /tmp: %s", strerror(errno));
		bool made = true;
		for (size_t f = 0; made && f < 8 && machines[i].files[f][0]; f++)
			made = put(root, machines[i].files[f][0], machines[i].files[f][1]);
		uint64_t room = made ? cgroup_room(root, where, sizeof(where)) : 0;
		nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
		if (!made || room != machines[i].room ||
		    (room != CGROUP_NO_LIMIT && strcmp(where + strlen(root), machines[i].where) != 0))
			return error_set(error, ERROR_CHECK_FAILED, "machine %zu: expected room %llu in %s, found %llu in '%s'", i,
			                 (unsigned long long)machines[i].room, machines[i].where, (unsigned long long)room, where);
	}
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

/* Bytes as the kernel or the hardware would have left them in a ring, which they may fill and wrap around. */
struct made {
	unsigned char *bytes;
	size_t size;
	uint64_t tail, head;
};

static void made_add(struct made *made, const void *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++)
		memcpy(&made->bytes[made->head++ % made->size], (const unsigned char *)bytes + i, 1);
}

static void made_record(struct made *made, uint32_t type, uint16_t mode, const void *body, size_t size)
{
	struct perf_event_header header = {.type = type, .misc = mode, .size = (uint16_t)(sizeof(header) + size)};
	made_add(made, &header, sizeof(header));
	made_add(made, body, size);
}

static void made_pebs(struct made *made, uint64_t weight, union perf_mem_data_src source)
{
	uint64_t body[2] = {weight, source.val};
	made_record(made, PERF_RECORD_SAMPLE, PERF_RECORD_MISC_USER, body, sizeof(body));
}

static void made_ibs(struct made *made, uint32_t caps, uint64_t data2, uint64_t data3)
{
	struct {
		uint32_t raw_bytes, caps;
		uint64_t registers[8];
	} body = {.raw_bytes = 4 + 8 * 8, .caps = caps, .registers = {[3] = data2, [4] = data3}};
	made_record(made, PERF_RECORD_SAMPLE, PERF_RECORD_MISC_USER, &body, sizeof(body));
}

/* A load of `latency` clocks: address, context, operation, events, counters, data source, time stamp. */
static void made_spe(struct made *made, unsigned operation, unsigned events, unsigned source, unsigned latency)
{
	// clang-format off: a packet a line
	const unsigned char packets[] = {
		0xb0, 1, 2, 3, 4, 5, 6, 7, 0x80, /* address of the instruction */
		0x65, 9, 0, 0, 0,                /* context */
		0x49, (unsigned char)operation,  /* load or store */
		0x52, (unsigned char)events, (unsigned char)(events >> 8),
		0x99, 7, 0,                      /* latency until it was issued */
		0x98, (unsigned char)latency, (unsigned char)(latency >> 8),
		0x43, (unsigned char)source,
		0x21, 0x98, 1, 2,                /* a counter with an index of two bytes */
		0x00, 0x00,                      /* padding */
		0x71, 1, 0, 0, 0, 0, 0, 0, 0,    /* time stamp */
	};
	// clang-format on
	made_add(made, packets, sizeof(packets));
}

static struct decoded made_decode(const struct made *made, enum decode_method method)
{
	const struct decode_ring ring = {made->bytes, made->size, made->tail, made->head};
	struct decoded decoded = {0};
	if (method == DECODE_SPE)
		decode_spe(&ring, 0xe, &decoded);
	else
		decode_records(&ring, method, &decoded);
	return decoded;
}

static bool pebs_as_known(struct made *made, struct error *error)
{
	const union perf_mem_data_src local = {.mem_op = PERF_MEM_OP_LOAD,
	                                       .mem_lvl = PERF_MEM_LVL_HIT | PERF_MEM_LVL_LOC_RAM,
	                                       .mem_lvl_num = PERF_MEM_LVLNUM_RAM,
	                                       .mem_dtlb = PERF_MEM_TLB_HIT | PERF_MEM_TLB_L1};
	union perf_mem_data_src remote = local, walked = local, cached = local, store = local;
	remote.mem_lvl = PERF_MEM_LVL_HIT | PERF_MEM_LVL_REM_RAM1;
	remote.mem_remote = 1;
	walked.mem_dtlb = PERF_MEM_TLB_MISS | PERF_MEM_TLB_L2;
	cached.mem_lvl = PERF_MEM_LVL_HIT | PERF_MEM_LVL_L3;
	cached.mem_lvl_num = PERF_MEM_LVLNUM_L3;
	store.mem_op = PERF_MEM_OP_STORE;
	const uint64_t lost[2] = {1, 17}, body[2] = {300, local.val}, cut = 5;
	made_pebs(made, 301, local);
	made_pebs(made, 302, remote);
	made_pebs(made, 303, walked);
	made_record(made, PERF_RECORD_LOST, 0, lost, sizeof(lost));
	made_pebs(made, 304, cached);
	made_pebs(made, 305, store);
	made_pebs(made, 0, local);
	made_record(made, PERF_RECORD_SAMPLE, PERF_RECORD_MISC_KERNEL, body, sizeof(body));
	made_record(made, PERF_RECORD_SAMPLE, PERF_RECORD_MISC_USER, &cut, sizeof(cut));
	made_record(made, PERF_RECORD_THROTTLE, 0, lost, sizeof(lost));
	made_record(made, PERF_RECORD_LOST_SAMPLES, 0, &cut, sizeof(cut));
	made_pebs(made, 306, local);
	struct decoded got = made_decode(made, DECODE_PEBS);
	bool right =
		got.taken == 9 && got.lost == 22 && got.count == 2 && got.latencies[0] == 301 && got.latencies[1] == 306;
	for (int i = 0; i < DECODE_REASONS; i++)
		right = right && got.reasons[i] == (i == DECODE_NOT_LOCAL ? 2 : 1);
	decoded_free(&got);
	EXPECT(right);
	return true;
}

static bool ibs_as_known(struct made *made, struct error *error)
{
	/* load, miss, address valid, miss in L2 too */
	const uint64_t data3 = 1 | 1 << 7 | 1 << 17 | 1 << 20;
	const uint32_t zen3 = 0x3ff, zen4 = 0xfff;
	made_ibs(made, zen3, 3, data3 | 400ull << 32);
	made_ibs(made, zen4, 3, data3 | 401ull << 32);
	made_ibs(made, zen4, 3 | 1 << 6, data3 | 402ull << 32);          /* data source 11, by its high bits */
	made_ibs(made, zen3, 3 | 1 << 6, data3 | 403ull << 32);          /* which are none there */
	made_ibs(made, zen4, 3 | 1 << 4, data3 | 404ull << 32);          /* another node */
	made_ibs(made, zen4, 3, (data3 & ~(1ull << 7)) | 405ull << 32);  /* in L1 */
	made_ibs(made, zen4, 3, (data3 & ~(1ull << 20)) | 406ull << 32); /* in L2 */
	made_ibs(made, zen3, 3, data3 | 1 << 16 | 407ull << 32);         /* joined another's miss */
	made_ibs(made, zen4, 3, data3 | 1 << 16 | 408ull << 32);
	made_ibs(made, zen4, 3, data3 | 1 << 2 | 409ull << 32);           /* found in the second TLB */
	made_ibs(made, zen4, 3, data3 | 1 << 2 | 1 << 3 | 410ull << 32);  /* in none */
	made_ibs(made, zen4, 3, (data3 & ~1ull) | 1 << 1 | 411ull << 32); /* a store */
	made_ibs(made, zen4, 3, data3 | 1 << 21 | 412ull << 32);          /* a prefetch */
	made_ibs(made, zen4, 3, data3);
	struct decoded got = made_decode(made, DECODE_IBS);
	const uint32_t kept[] = {400, 401, 403, 408, 409};
	bool right = got.taken == 14 && got.lost == 0 && got.count == 5 && !memcmp(got.latencies, kept, sizeof(kept)) &&
	             got.reasons[DECODE_NOT_LOCAL] == 5 && got.reasons[DECODE_TLB_MISS] == 1 &&
	             got.reasons[DECODE_NOT_LOAD] == 2 && got.reasons[DECODE_NO_LATENCY] == 1;
	decoded_free(&got);
	EXPECT(right);
	return true;
}

static bool spe_as_known(struct made *made, struct error *error)
{
	const unsigned hit = 0x1e; /* retired, L1 access and refill, TLB access */
	const unsigned char aligned[] = {0x25, 0x00}, padding[64] = {0}, end = 0x01, unfinished[] = {0x49, 0x00};
	uint16_t local = 0;
	made_spe(made, 0, hit, 0xe, 500);
	made_spe(made, 1, hit, 0xe, 501);         /* a store */
	made_spe(made, 0, hit | 0x20, 0xe, 502);  /* walked the page tables */
	made_spe(made, 0, hit, 0xd, 503);         /* another chip */
	made_spe(made, 0, hit, 0xb, 504);         /* system cache */
	made_spe(made, 0, hit | 0x400, 0xe, 505); /* remote, as an event */
	made_spe(made, 0, hit, 0xe, 0);
	made_add(made, aligned, sizeof(aligned)); /* to the next multiple of 64, over what is not packets */
	made_add(made, "\xff\xff", 2);
	made->head = (made->head + 63) / 64 * 64;
	made_add(made, padding, sizeof(padding));
	made_add(made, &end, 1); /* ends nothing */
	made_spe(made, 0, hit, 0xe, 506);
	struct decoded got = made_decode(made, DECODE_SPE);
	bool right = got.taken == 8 && got.count == 2 && got.latencies[0] == 500 && got.latencies[1] == 506 &&
	             got.reasons[DECODE_NOT_LOAD] == 1 && got.reasons[DECODE_TLB_MISS] == 1 &&
	             got.reasons[DECODE_NOT_LOCAL] == 3 && got.reasons[DECODE_NO_LATENCY] == 1;
	decoded_free(&got);
	EXPECT(right);
	/* A record without an end, and a byte that begins no packet: counted, and nothing after it is. */
	made_add(made, unfinished, sizeof(unfinished));
	got = made_decode(made, DECODE_SPE);
	right = got.taken == 9 && got.count == 2 && got.reasons[DECODE_DAMAGED] == 1;
	decoded_free(&got);
	EXPECT(right);
	made_add(made, "\xff", 1);
	made_spe(made, 0, hit, 0xe, 507);
	got = made_decode(made, DECODE_SPE);
	right = got.taken == 9 && got.count == 2 && got.reasons[DECODE_DAMAGED] == 1;
	decoded_free(&got);
	EXPECT(right);
	EXPECT(decode_spe_local(0x410fd0c1, &local) && local == 0xe && decode_spe_local(0xc00fac40, &local) && local == 7);
	EXPECT(!decode_spe_local(0x480fd010, &local));
	return true;
}

/* Every cut of what is right, and what is random: no more is found than there can be, and nothing outside is read, as a
 * sanitizer would say. */
static bool nonsense_is_survived(struct made *made, enum decode_method method, struct error *error)
{
	uint64_t head = made->head;
	for (uint64_t shorter = made->tail; shorter <= head; shorter++) {
		made->head = shorter;
		struct decoded got = made_decode(made, method);
		uint64_t told = got.count;
		for (int i = 0; i < DECODE_REASONS; i++)
			told += got.reasons[i];
		bool right = told == got.taken && got.reasons[DECODE_DAMAGED] <= 2 && !got.no_memory;
		decoded_free(&got);
		EXPECT(right);
	}
	struct random random;
	random_seed(&random, 7);
	for (int i = 0; i < 2000; i++) {
		for (size_t k = 0; k < made->size; k++)
			made->bytes[k] = (unsigned char)(i % 2 ? random_below(&random, 256) : 0x40 + random_below(&random, 0x60));
		made->tail = random_below(&random, 1000);
		made->head = made->tail + random_below(&random, made->size + 2);
		struct decoded got = made_decode(made, method);
		bool right = got.taken <= made->size;
		decoded_free(&got);
		EXPECT(right);
	}
	return true;
}

static bool case_samples(struct error *error)
{
	bool (*const known[DECODE_METHODS])(struct made *, struct error *) = {
		[DECODE_PEBS] = pebs_as_known, [DECODE_IBS] = ibs_as_known, [DECODE_SPE] = spe_as_known};
	for (int method = 0; method < DECODE_METHODS; method++)
		/* A ring that is large enough, entered so that what is written wraps around its end. */
		for (uint64_t start = 0; start < 4096; start += 960) {
			struct made made = {.bytes = calloc(1, 2048), .size = 2048, .tail = start, .head = start};
			if (!made.bytes)
				return error_set(error, ERROR_INTERNAL, "no memory");
			bool good = known[method](&made, error) && nonsense_is_survived(&made, (enum decode_method)method, error);
			free(made.bytes);
			if (!good)
				return false;
		}
	struct decoded none = {0}, one = {.taken = 3, .lost = 2, .reasons = {[DECODE_TLB_MISS] = 2}}, sum = {0};
	uint32_t latency = 9;
	one.latencies = &latency;
	one.count = 1;
	decoded_add(&sum, &one);
	decoded_add(&sum, &one);
	decoded_add(&sum, &none);
	bool right =
		sum.taken == 6 && sum.lost == 4 && sum.count == 2 && sum.latencies[1] == 9 && sum.reasons[DECODE_TLB_MISS] == 4;
	decoded_free(&sum);
	EXPECT(right);
	/* Bins: each begins where the one before ends, is no wider than a quarter of where it begins, and holds its own. */
	for (uint32_t from = 0; from < 100000; from = decode_bin_next(from)) {
		EXPECT(decode_bin(from) == from && decode_bin(decode_bin_next(from) - 1) == from);
		EXPECT(decode_bin_next(from) - from <= 1 + from / 4);
	}
	EXPECT(decode_bin_next(UINT32_MAX) == UINT32_MAX);
	return true;
}

static const struct cause *caused(const struct causes *causes, const char *name, const char *function)
{
	static const struct cause none;
	for (size_t i = 0; i < causes->count; i++)
		if (!strcmp(causes->each[i].name, name) && !strcmp(causes->each[i].function, function))
			return &causes->each[i];
	return &none;
}

/* Text as kernels of several versions print it, with gaps of known causes: time inside of other work is counted once, and what
 * a task calls itself misleads nobody. */
static bool case_trace_text(struct error *error)
{
	static char text[] =
		"# tracer: nop\n#\n"
		"CPU:1 [LOST 12 EVENTS]\n"
		/* 1: a tick with what it calls, a softirq after it with a timer of the wheel */
		"        sutprobe-77      [001] d.h1. 1000100: local_timer_entry: vector=236\n"
		"        sutprobe-77      [001] d.h1. 1000200: hrtimer_expire_entry: hrtimer=00000000b1 "
		"function=tick_nohz_handler now=1\n"
		"        sutprobe-77      [001] d.h1. 1000500: hrtimer_expire_exit: hrtimer=00000000b1\n"
		"        sutprobe-77      [001] d.h1. 1000690: irq_noise: local_timer:236 start 5.000000110 duration 500 ns\n"
		"        sutprobe-77      [001] d.h1. 1000700: local_timer_exit: vector=236\n"
		"        sutprobe-77      [001] ..s1. 1000800: softirq_entry: vec=1 [action=TIMER]\n"
		"        sutprobe-77      [001] ..s1. 1000900: timer_expire_entry: timer=0 function=delayed_work_timer_fn "
		"now=4 baseclk=4\n"
		"        sutprobe-77      [001] ..s1. 1000950: timer_expire_exit: timer=0\n"
		"        sutprobe-77      [001] ..s1. 1000990: softirq_noise:    TIMER:1 start 5.000000810 duration 180 ns\n"
		"        sutprobe-77      [001] ..s1. 1001000: softirq_exit: vec=1 [action=TIMER]\n"
		/* 2: a task with a name that looks like fields, a worker after it, an interrupt in that. osnoise knows no start of what
	       ran when it began to watch, and tells of the measuring thread too. */
		"        sutprobe-77      [001] d..2. 2000090: thread_noise: sutprobe:77 start 4.000000000 duration 999 ns\n"
		"        sutprobe-77      [001] d..2. 2000100: sched_switch: prev_comm=sutprobe prev_pid=77 prev_prio=120 "
		"prev_state=R "
		"==> next_comm=a next_pid=77 = next_pid=9 next_prio=120\n"
		" a next_pid=77 =-9       [001] d..2. 2003090: thread_noise: a start 5.0 duration 7 ns:9 start 5.001000110 "
		"duration "
		"2900 ns\n"
		" a next_pid=77 =-9       [001] d..2. 2003090: thread_noise:   before:8 start 0.000000000 duration 800 ns\n"
		" a next_pid=77 =-9       [001] d..2. 2003090: thread_noise:     long:8 start 5.000000000 duration 4001 ns\n"
		" a next_pid=77 =-9       [001] d..2. 2003100: sched_switch: prev_comm=a next_pid=77 = prev_pid=9 "
		"prev_prio=120 "
		"prev_state=S ==> next_comm=kworker/1:2 next_pid=41 next_prio=120\n"
		"     kworker/1:2-41      [001] ..... 2003200: workqueue_execute_start: work struct 0000000034: function "
		"vmstat_update\n"
		"     kworker/1:2-41      [001] d.h1. 2003300: irq_handler_entry: irq=36 name=virtio1-req.0\n"
		"     kworker/1:2-41      [001] d.h1. 2003390: irq_noise: virtio1-req.0:36 start 5.001003310 duration 80 ns\n"
		"     kworker/1:2-41      [001] d.h1. 2003400: irq_handler_exit: irq=36 ret=handled\n"
		"     kworker/1:2-41      [001] ..... 2003700: workqueue_execute_end: work struct 0000000034: function "
		"vmstat_update\n"
		"     kworker/1:2-41      [001] d..2. 2003790: thread_noise: kworker/1:2:41 start 5.001003110 duration 580 ns\n"
		"     kworker/1:2-41      [001] d..2. 2003800: sched_switch: prev_comm=kworker/1:2 prev_pid=41 prev_prio=120 "
		"prev_state=I ==> next_comm=sutprobe next_pid=77 next_prio=120\n"
		/* between gaps: of no gap */
		"        sutprobe-77      [001] d.h1. 2400000: irq_noise: reschedule:253 start 5.001400000 duration 10 ns\n"
		"        sutprobe-77      [001] d.h1. 2500000: reschedule_entry: vector=253\n"
		"        sutprobe-77      [001] d.h1. 2500010: reschedule_exit: vector=253\n"
		/* 3: an NMI told of at its end; and an end whose beginning was lost. Without flags, as where irq-info is off. */
		"        sutprobe-77      [001]  3000500: nmi_handler: perf_event_nmi_handler() delta_ns: 100 handled: 1\n"
		"        sutprobe-77      [001]  3000550: nmi_noise: start 5.003000400 duration 120 ns\n"
		"        sutprobe-77      [001]  3000560: irq_noise: nothing that it is known by\n"
		"        sutprobe-77      [001]  3000600: irq_handler_exit: irq=36 ret=handled\n"
		"no event at all\n"
		/* 5: a late tick that does not explain a gap of a million ticks */
		"        sutprobe-77      [001] d.h1. 5900000: local_timer_entry: vector=236\n"
		"        sutprobe-77      [001] d.h1. 5900100: local_timer_exit: vector=236\n";
	const struct gap gaps[] = {{1000000, 1100}, {2000000, 4000}, {3000000, 700}, {4000000, 600}, {5000000, 901000}};
	const struct trace_clock ticks = {.counter = true};
	static struct causes causes;
	struct clock kept = clock_now_used;
	FILE *file = fmemopen(text, sizeof(text) - 1, "r");
	EXPECT(file);
	clock_now_used.hz = 1e9;
	bool read = causes_read(&causes, file, gaps, 5, 77, &ticks, false);
	(void)fclose(file);
	double unexplained = clock_ns(causes.unexplained.ticks);
	clock_now_used = kept;
	EXPECT(read && causes.gaps == 5 && causes.unreadable == 2 && causes.ticks == 907400);
	EXPECT(caused(&causes, "local timer", "")->ticks == 400 && caused(&causes, "local timer", "")->gaps == 2);
	EXPECT(caused(&causes, "hrtimer", "tick_nohz_handler")->ticks == 300);
	EXPECT(caused(&causes, "TIMER", "")->ticks == 150);
	EXPECT(caused(&causes, "timer wheel", "delayed_work_timer_fn")->ticks == 50);
	EXPECT(caused(&causes, "a next_pid=77 =", "")->ticks == 3000 && caused(&causes, "a next_pid=77 =", "")->owned == 1);
	EXPECT(caused(&causes, "kworker/1:2", "")->ticks == 200 && caused(&causes, "kworker/1:2", "")->number == 41);
	EXPECT(caused(&causes, "kworker/1:2", "vmstat_update")->ticks == 400);
	EXPECT(caused(&causes, "virtio1-req.0", "")->ticks == 100 && caused(&causes, "virtio1-req.0", "")->number == 36);
	EXPECT(caused(&causes, "perf_event_nmi_handler", "")->ticks == 100);
	EXPECT(caused(&causes, "reschedule", "")->events == 0);
	EXPECT(causes.edges.gaps == 3 && causes.edges.ticks == 300 + 300 + 600);
	EXPECT(causes.unexplained.gaps == 2 && causes.unexplained_whole == 1 && unexplained == 600 + 900900);
	const struct noise *irqs = &causes.noise[0], *nmis = &causes.noise[1], *softirqs = &causes.noise[2];
	const struct noise *threads = &causes.noise[3];
	EXPECT(irqs->count == 2 && !strcmp(irqs->each[0].name, "local_timer") && irqs->each[0].number == 236);
	EXPECT(irqs->each[0].ticks == 500 && !strcmp(irqs->each[1].name, "virtio1-req.0") && irqs->each[1].ticks == 80);
	EXPECT(nmis->count == 1 && nmis->each[0].events == 1 && nmis->each[0].ticks == 120);
	EXPECT(softirqs->count == 1 && !strcmp(softirqs->each[0].name, "TIMER") && softirqs->each[0].ticks == 180);
	EXPECT(threads->count == 2 && !strcmp(threads->each[0].name, "a start 5.0 duration 7 ns") &&
	       threads->each[0].number == 9 && threads->each[0].ticks == 2900);
	EXPECT(!strcmp(threads->each[1].name, "kworker/1:2") && threads->each[1].longest == 580);
	/* Whole microseconds of the raw clock, and only what came after the first event that is left is told of. */
	static char coarse[] =
		"        sutprobe-77      [001] d.h1.   99.999950: reschedule_exit: vector=253\n"
		"        sutprobe-77      [001] d.h1.  100.000002: irq_handler_entry: irq=3 name=arch_timer\n"
		"        sutprobe-77      [001] d.h1.  100.000007: irq_handler_exit: irq=3 ret=handled\n";
	const struct gap later[] = {{0, 900}, {1002, 6}};
	const struct trace_clock raw = {.raw_ns = 100e9, .ticks = 1000, .per_ns = 1e-3, .tolerance = 1};
	file = fmemopen(coarse, sizeof(coarse) - 1, "r");
	EXPECT(file && causes_read(&causes, file, later, 2, 77, &raw, true));
	(void)fclose(file);
	EXPECT(causes.gaps == 1 && fabs(caused(&causes, "arch_timer", "")->ticks - 5) < 1e-3);
	return true;
}

#define WORKLOAD_ON "DEFAULTS OSNOISE_WORKLOAD NO_PANIC_ON_STOP \n"

static bool option_is(int instances, const char *option)
{
	return tracefs_lists(instances, "../osnoise/options", option);
}

/* Takes the tracer and is killed: what it leaves is the guardian's. */
static _Noreturn void take_and_die(int instances, const struct cpu_list *cpus)
{
	struct tracing tracing = {.instances = instances, .name = "own", .guardian_socket = -1};
	osnoise_open(&tracing.osnoise, instances, tracing.name, cpus);
	if (tracing_guard(&tracing, cpus) && osnoise_take(&tracing.osnoise, instances) &&
	    option_is(instances, "NO_OSNOISE_WORKLOAD"))
		(void)raise(SIGKILL);
	_exit(1);
}

/* A made tracefs, whose options are a file: what is written replaces them. */
static bool osnoise_checks(const char *root, int instances, struct error *error)
{
	unsigned numbers[] = {1, 3};
	struct cpu_list cpus = {numbers, 2};
	struct osnoise osnoise, second;
	int status = 0;
	osnoise_open(&osnoise, instances, "own", &cpus);
	EXPECT(!strcmp(osnoise.refused, "this kernel has no osnoise tracer") && osnoise.settings < 0);
	EXPECT(put(root, "/available_tracers", "timerlat osnoise nop\n") && put(root, "/osnoise/cpus", "0-2\n"));
	osnoise_open(&osnoise, instances, "own", &cpus);
	EXPECT(strstr(osnoise.refused, "cannot leave its workload out"));
	EXPECT(put(root, "/osnoise/options", WORKLOAD_ON));
	osnoise_open(&osnoise, instances, "own", &cpus);
	EXPECT(strstr(osnoise.refused, "'0-2'"));
	/* Whoever else uses it, or is about to, is left alone. */
	EXPECT(put(root, "/osnoise/cpus", "0-3\n") && put(root, "/current_tracer", "timerlat\n"));
	osnoise_open(&osnoise, instances, "own", &cpus);
	EXPECT(strstr(osnoise.refused, "somebody else uses"));
	EXPECT(put(root, "/current_tracer", "nop\n") && put(root, "/instances/other/current_tracer", "osnoise\n"));
	osnoise_open(&osnoise, instances, "own", &cpus);
	EXPECT(strstr(osnoise.refused, "instances/other"));
	EXPECT(put(root, "/instances/other/current_tracer", "nop\n") &&
	       put(root, "/osnoise/options", "NO_DEFAULTS NO_OSNOISE_WORKLOAD \n"));
	osnoise_open(&osnoise, instances, "own", &cpus);
	EXPECT(strstr(osnoise.refused, "has set osnoise up") && option_is(instances, "NO_DEFAULTS"));
	EXPECT(put(root, "/osnoise/options", WORKLOAD_ON));
	osnoise_open(&osnoise, instances, "own", &cpus);
	EXPECT(!osnoise.refused[0] && option_is(instances, "DEFAULTS"));
	osnoise_open(&second, instances, "own", &cpus);
	EXPECT(strstr(second.refused, "locked"));
	/* Taken, given back, and taken no more where somebody else came meanwhile. */
	EXPECT(put(root, "/instances/own-osnoise/current_tracer", "nop\n") &&
	       put(root, "/instances/own-osnoise/tracing_on", "1\n"));
	EXPECT(osnoise_take(&osnoise, instances) && option_is(instances, "NO_OSNOISE_WORKLOAD"));
	EXPECT(tracefs_lists(instances, "own-osnoise/current_tracer", "osnoise"));
	/* A directory of ordinary files is not removed as an instance is; everything else is as it was. */
	EXPECT(!osnoise_give_back(&osnoise, instances) && option_is(instances, "OSNOISE_WORKLOAD"));
	EXPECT(tracefs_lists(instances, "own-osnoise/current_tracer", "nop"));
	EXPECT(put(root, "/instances/other/current_tracer", "timerlat\n") && !osnoise_take(&osnoise, instances));
	EXPECT(strstr(osnoise.refused, "instances/other") && option_is(instances, "OSNOISE_WORKLOAD"));
	osnoise_close(&osnoise);
	EXPECT(put(root, "/instances/other/current_tracer", "nop\n"));
	pid_t child = fork();
	if (child == 0)
		take_and_die(instances, &cpus);
	EXPECT(child > 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	/* The guardian has the lock until it is done. */
	int settings = openat(instances, "../osnoise", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	EXPECT(settings >= 0);
	int locked = flock(settings, LOCK_EX);
	close(settings);
	EXPECT(locked == 0 && option_is(instances, "OSNOISE_WORKLOAD"));
	EXPECT(tracefs_lists(instances, "own-osnoise/current_tracer", "nop"));
	/* What a guardian that was killed too left is put right by its name; an instance of another name is not touched. */
	EXPECT(put(root, "/osnoise/options", "NO_OSNOISE_WORKLOAD\n"));
	EXPECT(osnoise_mend(instances, "own") && osnoise_mend(instances, "gone-osnoise"));
	EXPECT(option_is(instances, "NO_OSNOISE_WORKLOAD"));
	(void)osnoise_mend(instances, "own-osnoise");
	EXPECT(option_is(instances, "OSNOISE_WORKLOAD"));
	return true;
}

static bool case_trace_osnoise(struct error *error)
{
	char root[] = "/tmp/sutprobe-selftest-XXXXXX", path[64];
	if (!mkdtemp(root))
		return error_set(error, ERROR_UNSUPPORTED, "a directory in /tmp: %s", strerror(errno));
	snprintf(path, sizeof(path), "%s/instances", root);
	int instances = put(root, "/instances/other/current_tracer", "nop\n") && put(root, "/current_tracer", "nop\n")
	                    ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
	                    : -1;
	bool good = instances >= 0 ? osnoise_checks(root, instances, error)
	                           : error_set(error, ERROR_UNSUPPORTED, "files in %s: %s", root, strerror(errno));
	if (instances >= 0)
		close(instances);
	nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	return good;
}

static bool case_trace_planted(struct error *error)
{
	return planting_check(injection_s, noted, sizeof(noted), error);
}

static const struct {
	const char *name;
	bool (*run)(struct error *error);
} cases[] = {
	{"random", case_random},
	{"statistics", case_statistics},
	{"json", case_json},
	{"csv", case_csv},
	{"counters", case_counters},
	{"options", case_options},
	{"clock", case_clock},
	{"instructions", case_instructions},
	{"chain", case_chain},
	{"large_chain", case_large_chain},
	{"order", case_order},
	{"interleave", case_interleave},
	{"gap_buckets", case_gap_buckets},
	{"gap_books", case_gap_books},
	{"gap_period", case_gap_period},
	{"gap_longest", case_gap_longest},
	{"gap_attribution", case_gap_attribution},
	{"gap_injection", injection_by_signal},
	{"gap_rival", injection_by_rival},
	{"trace_text", case_trace_text},
	{"trace_osnoise", case_trace_osnoise},
	{"trace_planted", case_trace_planted},
	{"core_clock", case_core_clock},
	{"core_work", case_core_work},
	{"kernels", case_kernels},
	{"accounting", case_accounting},
	{"affinity", case_affinity},
	{"placement", case_placement},
	{"memory", case_memory},
	{"control_groups", case_control_groups},
	{"generator", case_generator},
	{"samples", case_samples},
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
