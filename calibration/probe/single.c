// SPDX-License-Identifier: Apache-2.0
#include "single.h"

#include "clock.h"
#include "stopping.h"

/* Loads from memory, then as many from L1: some 50 us in turn, so that whatever comes and goes with the tick or with the
 * core's clock hits both. Much shorter, and the first loads after each change would count. */
#define BLOCK 256u

uint64_t single_loads_numbers(uint64_t loads)
{
	uint64_t buckets = loads < HISTOGRAM_BUCKETS ? loads : HISTOGRAM_BUCKETS;
	return 2 * (3 * buckets + 1) + 2;
}

/* The clock's barriers are around the load: it begins after the first reading, and the second waits for its value. */
static inline uint64_t timed_load(const volatile uint64_t *from, uint64_t *value)
{
	uint64_t before = clock_start();
	*value = *from;
	return clock_stop() - before;
}

void single_loads_run(struct chain *chain, uint64_t loads, struct single_loads *found)
{
	_Alignas(256) volatile uint64_t line[32] = {0};
	uint64_t at = chain->at, origin = chain->offsets ? 0 : (uint64_t)(uintptr_t)chain->base, ignored;
	struct thread_counts before = thread_counts_now();
	for (uint64_t done = 0; done < loads && !stop_requested(); done += BLOCK) {
		uint64_t block = loads - done < BLOCK ? loads - done : BLOCK;
		for (uint64_t i = 0; i < block; i++) {
			histogram_add(&found->memory, timed_load((const volatile uint64_t *)(chain->base + at), &at));
			at -= origin;
		}
		for (uint64_t i = 0; i < block; i++)
			histogram_add(&found->reference, timed_load(line, &ignored));
	}
	struct thread_counts after = thread_counts_now();
	found->counts = thread_counts_since(&after, &before);
	chain->at = at;
}

void single_loads_write(struct json *json, const char *key, const struct single_loads *found)
{
	if (!json_object_known(json, key, found))
		return;
	json_f64(json, "tick_ns", clock_ns(1));
	histogram_write(json, "memory", &found->memory, true);
	histogram_write(json, "reference", &found->reference, true);
	json_u64(json, "involuntary_switches", found->counts.involuntary);
	json_u64(json, "page_faults", found->counts.minor_faults + found->counts.major_faults);
	json_object_end(json);
}
