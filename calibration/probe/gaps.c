// SPDX-License-Identifier: Apache-2.0
#include "gaps.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "clock.h"
#include "statistics.h"
#include "warning.h"

#define TURN_TRIES 20000u
/* Seconds between two looks at whether to stop: soon enough for anyone who waits, and one look in a million turns. */
#define LOOK_S 0.01

static const double rate_thresholds_ns[GAP_RATES] = {200,     500,     1000,     2000,     5000,   10000,
                                                     20000,   50000,   100000,   200000,   500000, 1000000,
                                                     2000000, 5000000, 10000000, 100000000};
static const double quantile_fractions[] = {0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999, 0.9999999};

size_t gaps_capacity(size_t rings)
{
	size_t capacity = GAP_RINGS_BYTES / sizeof(struct gap) / rings;
	return capacity < GAP_RING ? capacity : GAP_RING;
}

size_t gaps_bytes(size_t capacity, size_t longest)
{
	return (capacity + longest) * sizeof(struct gap);
}

bool gaps_open(struct gaps *gaps, size_t capacity, size_t longest, struct error *error)
{
	size_t bytes = gaps_bytes(capacity, longest);
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return error_set(
			error, ERROR_NO_MEMORY,
			"mapping %zu bytes for the time stamps of gaps: %s; measure fewer CPUs at a time, or list fewer "
			"with --longest",
			bytes, strerror(errno));
	/* Every page is there before the first turn. */
	memset(memory, 0, bytes);
	gaps->capacity = capacity;
	gaps->ring = memory;
	gaps->longest = gaps->ring + capacity;
	gaps->longest_wanted = longest;
	gaps->kept = gaps->longest_kept = 0;
	if (mlock(memory, bytes) != 0)
		warning_add("NOT_LOCKED", "locking the ring of gaps in memory: %s; paging could appear as gaps",
		            strerror(errno));
	return true;
}

unsigned gaps_bucket(uint64_t ticks)
{
	if (ticks < 1u << GAP_SUB_BITS)
		return (unsigned)ticks;
	unsigned power = 63 - (unsigned)__builtin_clzll(ticks);
	unsigned part = (unsigned)(ticks >> (power - GAP_SUB_BITS)) & ((1u << GAP_SUB_BITS) - 1);
	return ((power - GAP_SUB_BITS + 1) << GAP_SUB_BITS) + part;
}

uint64_t gaps_bucket_from(unsigned bucket)
{
	if (bucket < 1u << GAP_SUB_BITS)
		return bucket;
	unsigned power = (bucket >> GAP_SUB_BITS) - 1 + GAP_SUB_BITS;
	uint64_t part = bucket & ((1u << GAP_SUB_BITS) - 1);
	return (1ull << power) + (part << (power - GAP_SUB_BITS));
}

static inline uint64_t read_clock(bool counter)
{
	return counter ? arch_counter_read() : clock_raw_ns();
}

struct gap_turns gaps_turns(void)
{
	static __thread uint64_t turns[TURN_TRIES];
	bool counter = clock_now_used.counter;
	memset(turns, 0, sizeof(turns));
	uint64_t last = read_clock(counter);
	for (size_t i = 0; i < TURN_TRIES; i++) {
		uint64_t now = read_clock(counter);
		turns[i] = now - last;
		last = now;
	}
	/* A coarse counter shows 0 or 1 tick for most turns, so the mean says more than the median there. */
	uint64_t sum = 0, undisturbed = 0;
	qsort(turns, TURN_TRIES, sizeof(turns[0]), compare_u64);
	for (size_t i = 0; i < TURN_TRIES * 9 / 10; i++, undisturbed++)
		sum += turns[i];
	double median = (double)turns[TURN_TRIES / 2];
	return (struct gap_turns){.minimum = (double)turns[0],
	                          .median = median > 1 ? median : (double)sum / (double)undisturbed};
}

/* The heap's rule: no entry is longer than those at twice its place. The new gap moves down to where that holds. */
static void sink(struct gap *heap, size_t count, size_t place, struct gap gap)
{
	for (size_t below; (below = 2 * place + 1) < count; place = below) {
		if (below + 1 < count && heap[below + 1].ticks < heap[below].ticks)
			below++;
		if (gap.ticks <= heap[below].ticks)
			break;
		heap[place] = heap[below];
	}
	heap[place] = gap;
}

static void keep_if_long(struct gaps *gaps, struct gap gap)
{
	struct gap *heap = gaps->longest;
	if (gaps->longest_kept < gaps->longest_wanted) {
		size_t place = gaps->longest_kept++;
		for (; place > 0 && heap[(place - 1) / 2].ticks > gap.ticks; place = (place - 1) / 2)
			heap[place] = heap[(place - 1) / 2];
		heap[place] = gap;
	} else if (gaps->longest_wanted && gap.ticks > heap[0].ticks) {
		sink(heap, gaps->longest_kept, 0, gap);
	}
}

void gaps_record(struct gaps *gaps, uint64_t at, uint64_t ticks)
{
	unsigned bucket = gaps_bucket(ticks);
	gaps->bucket_count[bucket]++;
	gaps->bucket_ticks[bucket] += ticks;
	gaps->count++;
	gaps->lost_ticks += ticks;
	if (ticks > gaps->max_ticks)
		gaps->max_ticks = ticks;
	if (gaps->kept < gaps->capacity)
		gaps->ring[gaps->kept++] = (struct gap){at, ticks};
	keep_if_long(gaps, (struct gap){at, ticks});
}

static inline bool stop_asked(const struct gaps *gaps)
{
	return gaps->stop && atomic_load_explicit(gaps->stop, memory_order_relaxed);
}

/* Compiled once for each clock, so that a turn has no branch but its own two. Between two looks nothing but the clock is
 * read; a look is part of a turn like any other, so that its time is not lost. */
static inline __attribute__((always_inline)) void observe(struct gaps *gaps, uint64_t ticks, bool counter)
{
	const uint64_t threshold = gaps->threshold_ticks, look = (uint64_t)(LOOK_S * clock_now_used.hz);
	bool stopped = stop_asked(gaps);
	uint64_t turns = 0, previous = read_clock(counter), end = previous + ticks;
	gaps->begin = previous;
	while (previous < end && !stopped) {
		uint64_t stretch = end - previous < look ? end : previous + look;
		while (previous < stretch) {
			uint64_t now = read_clock(counter), step = now - previous;
			turns++;
			if (__builtin_expect(step >= threshold, 0)) {
				if ((int64_t)step < 0) {
					gaps->backward++;
					continue;
				}
				gaps_record(gaps, previous, step);
				/* The time of recording is accounted for apart; an interruption during it is a gap like any other. With
				 * a threshold shorter than a turn everything is one, so this loop ends with the stretch too. */
				uint64_t after = read_clock(counter);
				while (after >= now && after - now >= threshold) {
					gaps_record(gaps, now, after - now);
					now = after;
					if (now >= stretch)
						break;
					after = read_clock(counter);
				}
				after = after > now ? after : now;
				gaps->recording_ticks += after - now;
				now = after;
			}
			previous = now;
		}
		stopped = stop_asked(gaps);
	}
	gaps->turns = turns;
	gaps->end = previous;
}

void gaps_run(struct gaps *gaps, uint64_t ticks)
{
	if (clock_now_used.counter)
		observe(gaps, ticks, true);
	else
		observe(gaps, ticks, false);
}

void gaps_warm_up(struct gaps *gaps, double seconds)
{
	const struct gaps before = *gaps;
	const uint64_t half = (uint64_t)(seconds / 2 * clock_now_used.hz);
	gaps->longest_wanted = 0;
	gaps->threshold_ticks = 1; /* every turn is recorded, in the part of the ring that is free */
	gaps_run(gaps, half);
	gaps->threshold_ticks = before.threshold_ticks;
	gaps_run(gaps, half);
	*gaps = before;
}

static int compare_longest(const void *left, const void *right)
{
	const struct gap *a = left, *b = right;
	return (a->ticks < b->ticks) - (a->ticks > b->ticks);
}

/* How many gaps are at least so long: from the ring where it holds all. */
static void count_rates(struct gaps *gaps)
{
	for (size_t i = 0; i < GAP_RATES; i++) {
		uint64_t ticks = (uint64_t)(rate_thresholds_ns[i] * clock_now_used.hz / 1e9), count = 0;
		if (gaps->kept == gaps->count) {
			for (size_t k = 0; k < gaps->kept; k++)
				count += gaps->ring[k].ticks >= ticks;
		} else {
			/* The ring is full: whole buckets, so a gap within 12.5 % above the threshold may be left out. */
			for (unsigned bucket = 0; bucket < GAP_BUCKETS; bucket++)
				count +=
					gaps->bucket_count[bucket] && gaps_bucket_from(bucket) >= ticks ? gaps->bucket_count[bucket] : 0;
		}
		gaps->rate_count[i] = count;
	}
}

void gaps_close(struct gaps *gaps)
{
	if (gaps->longest_kept > 1)
		qsort(gaps->longest, gaps->longest_kept, sizeof(*gaps->longest), compare_longest);
	count_rates(gaps);
}

static void longest_write(struct json *json, const struct gaps *gaps)
{
	json_array_begin(json, "longest");
	for (size_t i = 0; i < gaps->longest_kept; i++) {
		json_object_begin(json, NULL);
		json_f64(json, "at_ns", clock_ns((double)(gaps->longest[i].at - gaps->begin)));
		json_f64(json, "length_ns", clock_ns((double)gaps->longest[i].ticks));
		json_object_end(json);
	}
	json_array_end(json);
}

static void rates_write(struct json *json, const struct gaps *gaps, double wall_s)
{
	double threshold_ns = clock_ns((double)gaps->threshold_ticks);
	json_array_begin(json, "rates_per_s");
	for (size_t i = 0; i < GAP_RATES; i++) {
		/* Below the threshold nothing was recorded, so no rate is known. Half a tick is the rounding of the threshold. */
		if (rate_thresholds_ns[i] < threshold_ns - clock_ns(0.5))
			continue;
		json_object_begin(json, NULL);
		json_f64(json, "threshold_ns", rate_thresholds_ns[i]);
		json_f64(json, "rate", (double)gaps->rate_count[i] / wall_s);
		json_object_end(json);
	}
	json_array_end(json);
}

/* The shortest length such that steps up to it make up a fraction of the wall time; the threshold stands for all
 * steps below it. */
static void quantiles_write(struct json *json, const struct gaps *gaps)
{
	double wall = (double)(gaps->end - gaps->begin);
	json_array_begin(json, "quantiles");
	for (size_t i = 0; i < sizeof(quantile_fractions) / sizeof(quantile_fractions[0]); i++) {
		double reached = wall - (double)gaps->lost_ticks, length = (double)gaps->threshold_ticks;
		for (unsigned bucket = 0; bucket < GAP_BUCKETS && reached < quantile_fractions[i] * wall; bucket++) {
			if (!gaps->bucket_count[bucket])
				continue;
			reached += (double)gaps->bucket_ticks[bucket];
			double upper = bucket + 1 < GAP_BUCKETS ? (double)gaps_bucket_from(bucket + 1) : (double)gaps->max_ticks;
			length = fmin(upper, (double)gaps->max_ticks);
		}
		json_object_begin(json, NULL);
		json_f64(json, "time_fraction", quantile_fractions[i]);
		json_f64(json, "gap_ns", clock_ns(length));
		json_object_end(json);
	}
	json_array_end(json);
}

void gaps_write(struct json *json, const struct gaps *gaps, const struct gap_turns *turns)
{
	double wall = (double)(gaps->end - gaps->begin), wall_s = clock_ns(wall) / 1e9;
	json_f64(json, "wall_s", wall_s);
	json_u64(json, "turns", gaps->turns);
	json_object_begin(json, "turn_ns");
	json_f64(json, "min", clock_ns(turns->minimum));
	json_f64(json, "median", clock_ns(turns->median));
	json_object_end(json);
	json_f64(json, "threshold_ns", clock_ns((double)gaps->threshold_ticks));
	json_f64(json, "coverage_fraction", (wall - (double)gaps->recording_ticks) / wall);
	json_u64(json, "backward_steps", gaps->backward);
	json_u64(json, "count", gaps->count);
	json_f64(json, "max_ns", clock_ns((double)gaps->max_ticks));
	json_f64(json, "lost_ns", clock_ns((double)gaps->lost_ticks));
	json_f64(json, "lost_fraction", (double)gaps->lost_ticks / wall);
	json_array_begin(json, "histogram");
	for (unsigned bucket = 0; bucket < GAP_BUCKETS; bucket++) {
		if (!gaps->bucket_count[bucket])
			continue;
		json_object_begin(json, NULL);
		json_f64(json, "from_ns", clock_ns((double)gaps_bucket_from(bucket)));
		json_f64(json, "to_ns", clock_ns((double)gaps_bucket_from(bucket + 1)));
		json_u64(json, "count", gaps->bucket_count[bucket]);
		json_object_end(json);
	}
	json_array_end(json);
	rates_write(json, gaps, wall_s);
	quantiles_write(json, gaps);
	longest_write(json, gaps);
	json_bool(json, "ring_full", gaps->kept < gaps->count);
}
