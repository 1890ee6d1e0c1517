// SPDX-License-Identifier: Apache-2.0
/* Gaps: buckets, periods among made gaps, the longest. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "host.h"
#include "periods.h"
#include "random.h"

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
	clock_now_used.hz = MADE_HZ;
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
	/* Of an even number of gaps, half of them short. */
	make_ring(&gaps, 0.001 * hz, 0, 800, 0, 1);
	for (size_t i = 0; i < gaps.kept; i++)
		gaps.ring[i].ticks = i % 2 ? 100 : 300;
	bool median = periods_find(gaps.ring, gaps.kept, us, found, owner) == 1 && found[0].gaps == 800 &&
	              found[0].median_ticks == 200;
	bool mixed = good && mixed_periods(&gaps, owner);
	bool thin = good && thin_periods(&gaps, owner);
	gaps_free(&gaps);
	free(owner);
	if (!good)
		return false;
	EXPECT(none == 0);
	EXPECT(median);
	EXPECT(mixed);
	EXPECT(thin);
	return true;
}

/* More gaps than the ring holds, with the longest among those that come after it is full. */
static bool case_gap_longest(struct error *error)
{
	clock_now_used.hz = MADE_HZ;
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
	gaps_record(&gaps, 1, 200);
	gaps_close(&gaps);
	/* A rate is of gaps at least so long. */
	bool none = gaps.longest_kept == 0 && gaps.count == 1 && gaps.rate_count[0] == 1 && gaps.rate_count[1] == 0;
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

HOST_CASES(CASE(gap_buckets), CASE(gap_period), CASE(gap_longest))
