// SPDX-License-Identifier: Apache-2.0
/* Histograms: every value in the one bucket that holds it; and loads timed one by one, each node of a chain once. */
#include <stdint.h>
#include <string.h>

#include "clock.h"

static uint64_t seen_start(void);
#define clock_start seen_start
#include "single.c"
#undef clock_start

#include <sys/mman.h>

#include "host.h"

static struct chain *hidden;
static uint64_t reads;

/* While the loads from L1 are timed, the chain's memory is not there. */
static uint64_t seen_start(void)
{
	if (hidden && reads++ % BLOCK == 0)
		(void)mprotect(hidden->base, hidden->size_bytes, reads / BLOCK % 2 ? PROT_NONE : PROT_READ | PROT_WRITE);
	return clock_start();
}

static bool holds(uint64_t value)
{
	size_t bucket = histogram_bucket(value);
	if (bucket >= HISTOGRAM_BUCKETS)
		return false;
	uint64_t from = histogram_from(bucket), width = histogram_width(bucket);
	return value >= from && value - from < width && (value >= HISTOGRAM_EXACT || width == 1) && width - 1 <= from / 64;
}

static bool case_buckets(struct error *error)
{
	for (uint64_t value = 0; value < 1u << 20; value++)
		EXPECT(holds(value));
	for (unsigned bit = 1; bit < 64; bit++)
		EXPECT(holds((1ull << bit) - 1) && holds(1ull << bit) && holds((1ull << bit) + 1));
	EXPECT(holds(UINT64_MAX));
	for (size_t i = 0; i + 1 < HISTOGRAM_BUCKETS; i++)
		EXPECT(histogram_from(i) + histogram_width(i) == histogram_from(i + 1));
	EXPECT(histogram_bucket(UINT64_MAX) == HISTOGRAM_BUCKETS - 1);
	return true;
}

static bool case_written(struct error *error)
{
	static struct histogram histogram;
	const uint64_t values[] = {7, 7, 0, 2047, 2048, 2111, 2112, 1000000};
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
		histogram_add(&histogram, values[i]);
	struct json json = {0};
	histogram_write(&json, NULL, &histogram, true);
	bool as_known = json.text && !strcmp(json.text, "{\"longest\":1000000,\"starts\":[0,7,2047,2048,2080,2112,999424],"
	                                                "\"widths\":[1,1,1,32,32,32,8192],\"counts\":[1,2,1,1,1,1,1]}");
	json_free(&json);
	EXPECT(as_known);
	histogram_add(&histogram, 2033);
	json = (struct json){0};
	histogram_write(&json, NULL, &histogram, false);
	as_known = json.text && !strcmp(json.text, "{\"longest\":1000000,\"starts\":[0,7,2032,2048,2080,2112,999424],"
	                                           "\"widths\":[1,1,16,32,32,32,8192],\"counts\":[1,2,2,1,1,1,1]}");
	json_free(&json);
	EXPECT(as_known);
	return true;
}

static uint64_t total(const struct histogram *histogram)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++)
		sum += histogram->counts[i];
	return sum;
}

/* As many loads as nodes end where they began, and fewer do not. */
static bool case_singles(struct error *error)
{
	const size_t nodes = 3000, sizes[] = {nodes * 64, (CHAIN_OFFSETS_ABOVE_BYTES / 64 + nodes) * 64};
	static _Alignas(4096) unsigned char memory[CHAIN_OFFSETS_ABOVE_BYTES + 3000 * 64];
	static struct single_loads found;
	uint64_t wanted = 0;
	for (size_t i = 0; i < 2; i++) {
		struct chain chain = {.size_bytes = sizes[i], .stride_bytes = 64, .line_bytes = 64, .seed = i};
		chain.base = memory;
		if (!chain_build(&chain, error))
			return false;
		EXPECT(chain.offsets == (i == 1));
		uint64_t first = chain.at;
		single_loads_run(&chain, chain.nodes - 1, &found);
		EXPECT(chain.at != first);
		single_loads_run(&chain, 1, &found);
		EXPECT(chain.at == first);
		wanted += chain.nodes;
		EXPECT(total(&found.memory) == wanted && total(&found.reference) == wanted);
	}
	return true;
}

/* What a load from memory is compared with is no load from memory. */
static bool case_reference(struct error *error)
{
	static struct single_loads found;
	struct chain chain = {.size_bytes = 1u << 20, .stride_bytes = 64, .line_bytes = 64};
	chain.base = mmap(NULL, chain.size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (chain.base == MAP_FAILED || !chain_build(&chain, error))
		return false;
	hidden = &chain;
	single_loads_run(&chain, 3 * BLOCK, &found);
	hidden = NULL;
	EXPECT(munmap(chain.base, chain.size_bytes) == 0 && reads == 6 * BLOCK && total(&found.reference) == 3 * BLOCK);
	return true;
}

static bool case_faults(struct error *error)
{
	static struct single_loads found = {.counts = {.minor_faults = 2, .major_faults = 3, .involuntary = 7}};
	struct json json = {0};
	single_loads_write(&json, NULL, &found);
	bool both = json.text && strstr(json.text, "\"involuntary_switches\":7,\"page_faults\":5");
	json_free(&json);
	EXPECT(both);
	return true;
}

HOST_CASES(CASE(buckets), CASE(written), CASE(singles), CASE(reference), CASE(faults))
