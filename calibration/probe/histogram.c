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

static uint64_t count_of(const struct histogram *histogram, size_t bucket)
{
	return histogram->counts[bucket];
}

static uint64_t from_of(const struct histogram *histogram, size_t bucket)
{
	(void)histogram;
	return histogram_from(bucket);
}

static uint64_t width_of(const struct histogram *histogram, size_t bucket)
{
	(void)histogram;
	return histogram_width(bucket);
}

static void list_write(struct json *json, const char *key, const struct histogram *histogram,
                       uint64_t (*of)(const struct histogram *, size_t))
{
	json_array_begin(json, key);
	for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++)
		if (histogram->counts[i])
			json_u64(json, NULL, of(histogram, i));
	json_array_end(json);
}

void histogram_write(struct json *json, const char *key, const struct histogram *histogram)
{
	json_object_begin(json, key);
	json_u64(json, "longest", histogram->longest);
	list_write(json, "starts", histogram, from_of);
	list_write(json, "widths", histogram, width_of);
	list_write(json, "counts", histogram, count_of);
	json_object_end(json);
}
