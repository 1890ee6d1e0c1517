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

void histogram_write(struct json *json, const char *key, const struct histogram *histogram)
{
	static const char *const keys[] = {"starts", "widths", "counts"};
	json_object_begin(json, key);
	json_u64(json, "longest", histogram->longest);
	for (unsigned k = 0; k < 3; k++) {
		json_array_begin(json, keys[k]);
		for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++)
			if (histogram->counts[i])
				json_u64(json, NULL, k == 0 ? histogram_from(i) : k == 1 ? histogram_width(i) : histogram->counts[i]);
		json_array_end(json);
	}
	json_object_end(json);
}
