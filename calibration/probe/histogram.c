// SPDX-License-Identifier: Apache-2.0
#include "histogram.h"

#include "json.h"

static unsigned shift_of(size_t bucket)
{
	if (bucket < HISTOGRAM_EXACT)
		return 0;
	return (unsigned)((bucket - HISTOGRAM_EXACT) / HISTOGRAM_PARTS) + HISTOGRAM_EXACT_BITS - HISTOGRAM_PART_BITS;
}

uint64_t histogram_from(size_t bucket)
{
	if (bucket < HISTOGRAM_EXACT)
		return bucket;
	return (HISTOGRAM_PARTS + (uint64_t)(bucket - HISTOGRAM_EXACT) % HISTOGRAM_PARTS) << shift_of(bucket);
}

uint64_t histogram_width(size_t bucket)
{
	return 1ull << shift_of(bucket);
}

/* Width of the bucket that begins with this value, where none is exact. */
static uint64_t coarse_width(uint64_t from)
{
	return from < HISTOGRAM_PARTS ? 1 : 1ull << (63 - (unsigned)__builtin_clzll(from) - HISTOGRAM_PART_BITS);
}

static void columns_write(struct json *json, const struct histogram *histogram, bool exact, unsigned column)
{
	for (size_t i = 0, next; i < HISTOGRAM_BUCKETS; i = next) {
		const uint64_t from = histogram_from(i),
					   width = exact || i >= HISTOGRAM_EXACT ? histogram_width(i) : coarse_width(from);
		uint64_t count = 0;
		for (next = i; next < HISTOGRAM_BUCKETS && (next == i || histogram_from(next) < from + width); next++)
			count += histogram->counts[next];
		if (count)
			json_u64(json, NULL, column == 0 ? from : column == 1 ? width : count);
	}
}

void histogram_write(struct json *json, const char *key, const struct histogram *histogram, bool exact)
{
	static const char *const keys[] = {"starts", "widths", "counts"};
	json_object_begin(json, key);
	json_u64(json, "longest", histogram->longest);
	for (unsigned k = 0; k < 3; k++) {
		json_array_begin(json, keys[k]);
		columns_write(json, histogram, exact, k);
		json_array_end(json);
	}
	json_object_end(json);
}
