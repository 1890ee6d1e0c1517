// SPDX-License-Identifier: Apache-2.0
#include "periods.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "allocate.h"

/* Gaps looked at when candidates are sought: a second of the busiest machine, and the search stays below a second. */
#define SEARCH_GAPS 10000u
/* With others between, a gap's partner is rarely more than so many away; with more, it is found among the longer gaps. */
#define LAGS 128u
/* Bins of distances: 256 in an octave, 0.4 % wide at most. Wider merges neighbours, narrower splits a late timer. */
#define BIN_BITS 8u
#define BINS (48u << BIN_BITS)
/* What a peak is compared with: its neighbours so far to both sides, the nearest left out because they belong to it. */
#define NEIGHBOURS 24u
#define OWN_BINS 6u
#define CANDIDATES 40u
#define SEEDS 24u
#define SEED_CYCLES 40u
/* Near the end fewer are left; fewer than this are followed only from before. */
#define SEED_CYCLES_MIN 6u
/* Beyond chance, more than half of the cycles must have their gap. A train at twice the true rate has one in half of
 * them, at other fractions fewer, so that this also tells a period from its parts. */
#define KAPPA_MIN 0.55
/* Where chance alone would fill half of the cycles, nothing can be told. */
#define CHANCE_MAX 0.5
/* Evidence in nats (Chernoff's bound of the binomial tail): 30 is one in 10^13 against some 10^6 trains tried. */
#define EVIDENCE_MIN 30.0
#define CYCLES_MIN 10u
#define LOST_CYCLES 32u
/* A timer's gaps differ in length: a floor is taken only if at least this share of them lies above it. */
#define AS_MUCH 0.995
/* How much of its lateness a gap moves the expected time and the period: slow enough to ignore single late gaps. */
#define PHASE_GAIN 0.2
#define PERIOD_GAIN 0.01
/* A timer's gaps begin within 1 % of the period of their time, on a busy machine within 100 us; below 3 us the machine's
 * own delays count, whatever the period. */
#define LATE_SHARE 0.01
#define LATE_MIN_US 3.0
#define LATE_MAX_US 100.0
/* A window so many times what 99 % of its gaps need keeps the late ones, and few of the others. */
#define NARROW 2.0

/* A timer is lost among thousands of short gaps, so it is looked for among the longer ones too. */
static const double floors_us[] = {0, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000};
#define FLOORS (sizeof(floors_us) / sizeof(floors_us[0]))

/* Gaps under consideration: their place among all of them, in order of time. */
struct subset {
	const struct gap *gaps;
	uint32_t *at;
	size_t count;
};

struct train {
	double period, window;
	double followed; /* the period that following began with: the same gaps are found again from it alone */
	uint64_t matched, cycles;
	double rate;   /* gaps explained beyond chance, per tick */
	double chance; /* that a cycle has a gap on time without any timer */
	size_t floor;
};

static unsigned bin_of(uint64_t ticks)
{
	if (ticks < 1u << BIN_BITS)
		return (unsigned)ticks;
	unsigned power = 63 - (unsigned)__builtin_clzll(ticks);
	unsigned bin =
		((power - BIN_BITS + 1) << BIN_BITS) + ((unsigned)(ticks >> (power - BIN_BITS)) & ((1u << BIN_BITS) - 1));
	return bin < BINS ? bin : BINS - 1;
}

static uint64_t begins(const struct subset *subset, size_t index)
{
	return subset->gaps[subset->at[index]].at;
}

/* First of the subset that begins at or after a time. */
static size_t first_from(const struct subset *subset, double time, size_t low)
{
	size_t high = subset->count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if ((double)begins(subset, middle) < time)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The gap nearest to the expected time within the window; `count` of the subset when there is none. */
static size_t on_time(const struct subset *subset, double expected, double window, size_t from)
{
	size_t best = subset->count;
	double least = window;
	for (size_t i = from; i < subset->count; i++) {
		double late = (double)begins(subset, i) - expected;
		if (late > window)
			break;
		if (fabs(late) <= least) {
			least = fabs(late);
			best = i;
		}
	}
	return best;
}

/* Whether the expected time lies inside a gap that began earlier: what the timer did then cannot be seen. */
static bool hidden(const struct subset *subset, double expected, size_t next)
{
	if (next == 0)
		return false;
	const struct gap *before = &subset->gaps[subset->at[next - 1]];
	return (double)(before->at + before->ticks) > expected;
}

/* How many of the next cycles have their gap when one begins at `seed`. */
static unsigned seed_hits(const struct subset *subset, size_t seed, double period, double window, unsigned cycles)
{
	double expected = (double)begins(subset, seed);
	size_t next = seed;
	unsigned hits = 0;
	for (unsigned cycle = 0; cycle < cycles; cycle++) {
		expected += period;
		next = first_from(subset, expected - window, next);
		if (next == subset->count)
			break;
		size_t match = on_time(subset, expected, window, next);
		if (match < subset->count) {
			hits++;
			expected += PHASE_GAIN * ((double)begins(subset, match) - expected);
		}
	}
	return hits;
}

/* The best of the next gaps to begin a train at; `count` of the subset when none of them has one. */
static size_t acquire(const struct subset *subset, size_t from, double period, double window)
{
	size_t best = subset->count;
	unsigned most = 0;
	double end = (double)begins(subset, subset->count - 1);
	for (size_t seed = from; seed < subset->count && seed < from + SEEDS; seed++) {
		double left = (end + window - (double)begins(subset, seed)) / period;
		unsigned cycles = left < SEED_CYCLES ? (unsigned)left : SEED_CYCLES;
		unsigned found = seed_hits(subset, seed, period, window, cycles);
		if (cycles >= SEED_CYCLES_MIN && found * 2 >= cycles && found > most) {
			most = found;
			best = seed;
		}
	}
	return best;
}

/* Follows a train through the whole subset. Marks what belongs to it, and keeps how late each was, where asked. */
static void follow(const struct subset *subset, struct train *train, uint8_t *owner, uint8_t mark, float *lateness)
{
	double period = train->period, locked_ticks = 0, locked_cycles = 0;
	size_t next = 0;
	train->followed = train->period;
	train->matched = train->cycles = 0;
	while (next < subset->count) {
		size_t seed = acquire(subset, next, period, train->window);
		if (seed == subset->count) {
			uint64_t here = begins(subset, next);
			size_t further = next + SEEDS < subset->count ? next + SEEDS : subset->count - 1;
			train->cycles += (uint64_t)((double)(begins(subset, further) - here) / period);
			next += SEEDS;
			continue;
		}
		double expected = (double)begins(subset, seed), last = expected, first = expected;
		double end = (double)begins(subset, subset->count - 1);
		uint64_t cycles_at_last = 0, cycles = 0;
		unsigned missed = 0;
		next = seed;
		if (owner)
			owner[subset->at[seed]] = mark;
		if (lateness)
			lateness[train->matched] = 0;
		train->matched++;
		train->cycles++;
		for (;;) {
			expected += period;
			cycles++;
			if (expected - train->window > end) {
				next = subset->count;
				break;
			}
			next = first_from(subset, expected - train->window, next);
			size_t match = on_time(subset, expected, train->window, next);
			if (match == subset->count) {
				if (hidden(subset, expected, next))
					continue;
				train->cycles++;
				if (++missed > LOST_CYCLES)
					break;
				continue;
			}
			double late = (double)begins(subset, match) - expected;
			if (owner)
				owner[subset->at[match]] = mark;
			if (lateness)
				lateness[train->matched] = (float)fabs(late);
			train->matched++;
			train->cycles++;
			missed = 0;
			last = (double)begins(subset, match);
			cycles_at_last = cycles;
			next = match + 1;
			expected += PHASE_GAIN * late;
			period += PERIOD_GAIN * late;
			/* A tracked period may follow the timer's drift, not wander off to another one. */
			period = fmin(fmax(period, train->followed * (1 - LATE_SHARE / 2)), train->followed * (1 + LATE_SHARE / 2));
		}
		locked_ticks += last - first;
		locked_cycles += (double)cycles_at_last;
	}
	if (locked_cycles > 0)
		train->period = locked_ticks / locked_cycles;
}

static int compare_float(const void *left, const void *right)
{
	float a = *(const float *)left, b = *(const float *)right;
	return (a > b) - (a < b);
}

static double window_of(double period, double ticks_per_us)
{
	double late = LATE_SHARE * period, most = LATE_MAX_US * ticks_per_us, least = LATE_MIN_US * ticks_per_us;
	/* Never more than a twentieth of the period, or chance fills it. */
	return fmin(fmax(fmin(late, most), least), 0.05 * period);
}

/* Whether a train is more than chance, by the window as it is. */
static bool proved(const struct subset *subset, struct train *train)
{
	if (subset->count < CYCLES_MIN)
		return false;
	double span = (double)(begins(subset, subset->count - 1) - begins(subset, 0));
	if (span <= 0 || train->cycles < CYCLES_MIN || train->matched > train->cycles)
		return false;
	double density = (double)(subset->count - train->matched) / span, cycles = (double)train->cycles;
	double share = (double)train->matched / cycles;
	/* One gap more than there are others keeps the chance above zero where there are none. */
	train->chance = 1 - exp(-2 * train->window * (density + 1 / span));
	double kappa = (share - train->chance) / (1 - train->chance);
	train->rate = kappa * cycles / span;
	if (train->chance > CHANCE_MAX || kappa < KAPPA_MIN)
		return false;
	double rest = share < 1 ? (1 - share) * log((1 - share) / (1 - train->chance)) : 0;
	return cycles * (share * log(share / train->chance) + rest) >= EVIDENCE_MIN;
}

/* Follows a candidate, narrows its window to what its gaps need, and says whether it is more than chance. */
static bool prove(const struct subset *subset, struct train *train, double ticks_per_us, float *lateness)
{
	train->window = window_of(train->period, ticks_per_us);
	/* Most candidates are nothing: some seeds from the start, a quarter and the middle tell cheaply. */
	bool any = false;
	for (size_t part = 0; !any && part < 3; part++)
		any = acquire(subset, part * subset->count / 4, train->period, train->window) < subset->count;
	if (!any)
		return false;
	follow(subset, train, NULL, 0, lateness);
	if (train->matched < CYCLES_MIN)
		return false;
	qsort(lateness, train->matched, sizeof(*lateness), compare_float);
	double needed = NARROW * (double)lateness[(size_t)(0.99 * (double)(train->matched - 1))];
	/* Not below a quarter: what was searched may be a calm second of a busy minute. */
	double narrow = fmax(needed, fmax(LATE_MIN_US * ticks_per_us, train->window / 4));
	if (narrow < train->window) {
		train->window = narrow;
		follow(subset, train, NULL, 0, NULL);
	}
	return proved(subset, train);
}

struct peak {
	double score, period;
};

static int compare_period(const void *left, const void *right)
{
	const struct peak *a = left, *b = right;
	return (a->period > b->period) - (a->period < b->period);
}

/* Distances that occur more often than those a little shorter or longer, the best of them in order of length. */
static size_t find_peaks(const struct subset *subset, uint32_t *bins, double *sums, struct peak *peaks)
{
	memset(bins, 0, BINS * sizeof(*bins));
	memset(sums, 0, BINS * sizeof(*sums));
	for (size_t i = 0; i < subset->count; i++) {
		uint64_t from = begins(subset, i);
		for (size_t lag = 1; lag <= LAGS && i + lag < subset->count; lag++) {
			uint64_t distance = begins(subset, i + lag) - from;
			unsigned bin = bin_of(distance);
			bins[bin]++;
			sums[bin] += (double)distance;
		}
	}
	size_t count = 0;
	for (unsigned bin = 1 + NEIGHBOURS + OWN_BINS; bin + NEIGHBOURS + OWN_BINS + 1 < BINS; bin++) {
		uint64_t here = (uint64_t)bins[bin - 1] + bins[bin] + bins[bin + 1], around = 0;
		if (bins[bin] < bins[bin - 1] || bins[bin] <= bins[bin + 1] || here < CYCLES_MIN / 2)
			continue;
		for (unsigned i = OWN_BINS + 1; i <= OWN_BINS + NEIGHBOURS; i++)
			around += (uint64_t)bins[bin - i] + bins[bin + i];
		double expected = 3.0 * (double)around / (2.0 * NEIGHBOURS);
		struct peak peak = {((double)here - expected) / sqrt(expected + 1),
		                    (sums[bin - 1] + sums[bin] + sums[bin + 1]) / (double)here};
		if (peak.score < 4)
			continue;
		size_t place = count;
		if (count == CANDIDATES) {
			place = 0;
			for (size_t i = 1; i < count; i++)
				if (peaks[i].score < peaks[place].score)
					place = i;
			if (peaks[place].score >= peak.score)
				continue;
		} else {
			count++;
		}
		peaks[place] = peak;
	}
	qsort(peaks, count, sizeof(*peaks), compare_period);
	return count;
}

static bool multiple_of(double period, double of)
{
	double times = period / of;
	return times > 1.5 && fabs(times - round(times)) < 0.005 * times && times < LAGS;
}

/* The train of one subset that explains most gaps. */
static struct train search(const struct subset *subset, double ticks_per_us, void *scratch, float *lateness)
{
	struct peak peaks[CANDIDATES];
	struct train best = {0};
	double *sums = scratch;
	double accepted[CANDIDATES];
	size_t accepted_count = 0, count = find_peaks(subset, (uint32_t *)(sums + BINS), sums, peaks);
	for (size_t i = 0; i < count; i++) {
		struct train train = {.period = peaks[i].period};
		bool known = false;
		/* Every multiple of a period is kept as well as the period itself: the shortest is the cause. */
		for (size_t k = 0; !known && k < accepted_count; k++)
			known = multiple_of(train.period, accepted[k]);
		if (known || !prove(subset, &train, ticks_per_us, lateness))
			continue;
		accepted[accepted_count++] = train.period;
		if (train.rate > best.rate)
			best = train;
	}
	return best;
}

static size_t select_gaps(struct subset *subset, size_t all, const uint8_t *owner, double floor_ticks, size_t most)
{
	subset->count = 0;
	for (size_t i = 0; i < all && subset->count < most; i++)
		if (owner[i] == PERIODS_NONE && (double)subset->gaps[i].ticks >= floor_ticks)
			subset->at[subset->count++] = (uint32_t)i;
	return subset->count;
}

static void summarize(const struct subset *subset, const struct train *train, const uint8_t *owner, uint8_t mark,
                      struct period *period, float *lengths)
{
	size_t count = 0;
	*period = (struct period){.ticks = train->period, .cycles = train->cycles, .window_ticks = train->window};
	for (size_t i = 0; i < subset->count; i++)
		if (owner[subset->at[i]] == mark) {
			uint64_t ticks = subset->gaps[subset->at[i]].ticks;
			period->lost_ticks += ticks;
			lengths[count++] = (float)ticks;
		}
	period->gaps = count;
	qsort(lengths, count, sizeof(*lengths), compare_float);
	if (count)
		period->median_ticks =
			count % 2 ? (double)lengths[count / 2] : ((double)lengths[count / 2 - 1] + (double)lengths[count / 2]) / 2;
}

static int compare_gaps(const void *left, const void *right)
{
	const struct period *a = left, *b = right;
	return (a->gaps < b->gaps) - (a->gaps > b->gaps);
}

size_t periods_bytes(size_t count)
{
	return count * (sizeof(uint8_t) + sizeof(uint32_t) + sizeof(float)) + BINS * (sizeof(double) + sizeof(uint32_t));
}

size_t periods_find(const struct gap *gaps, size_t count, double ticks_per_us, struct period *found, uint8_t *owner)
{
	size_t periods = 0;
	memset(owner, PERIODS_NONE, count);
	struct subset subset = {.gaps = gaps, .at = allocate(count, sizeof(*subset.at))};
	float *numbers = allocate(count, sizeof(*numbers));
	void *scratch = allocate(BINS, sizeof(double) + sizeof(uint32_t));
	while (periods < PERIODS_MAX) {
		struct train best = {0};
		size_t before = 0;
		for (size_t f = 0; f < FLOORS; f++) {
			size_t left = select_gaps(&subset, count, owner, floors_us[f] * ticks_per_us, SEARCH_GAPS);
			if (left < CYCLES_MIN)
				break;
			/* A floor that leaves nothing out has been searched. */
			if (left == before && left < SEARCH_GAPS)
				continue;
			before = left;
			struct train train = search(&subset, ticks_per_us, scratch, numbers);
			train.floor = f;
			/* The train that explains most; of those that explain as much, the one among the fewest others. */
			if (train.rate > AS_MUCH * best.rate && (train.rate * AS_MUCH > best.rate || train.chance < best.chance))
				best = train;
		}
		if (best.rate <= 0)
			break;
		/* Through everything that was kept, not only what was searched, unless it is there no more in most of that. */
		best.period = best.followed;
		struct train whole = best;
		double floor_ticks = floors_us[best.floor] * ticks_per_us;
		select_gaps(&subset, count, owner, floor_ticks, count);
		follow(&subset, &whole, NULL, 0, NULL);
		if (!proved(&subset, &whole))
			select_gaps(&subset, count, owner, floor_ticks, SEARCH_GAPS);
		follow(&subset, &best, owner, (uint8_t)periods, NULL);
		summarize(&subset, &best, owner, (uint8_t)periods, &found[periods], numbers);
		periods++;
	}
	free(subset.at);
	free(numbers);
	free(scratch);
	/* In order of their gaps; the marks follow. */
	uint8_t place[PERIODS_MAX];
	struct period sorted[PERIODS_MAX];
	memcpy(sorted, found, periods * sizeof(*found));
	qsort(sorted, periods, sizeof(*sorted), compare_gaps);
	for (size_t i = 0; i < periods; i++)
		for (size_t k = 0; k < periods; k++)
			if (sorted[k].ticks == found[i].ticks && sorted[k].lost_ticks == found[i].lost_ticks)
				place[i] = (uint8_t)k;
	for (size_t i = 0; i < count; i++)
		if (owner[i] != PERIODS_NONE)
			owner[i] = place[owner[i]];
	memcpy(found, sorted, periods * sizeof(*found));
	return periods;
}
