// SPDX-License-Identifier: Apache-2.0
#include "shares.h"

#include <math.h>
#include <string.h>

/* Near enough, of the rate without delay: half of what readers of a curve would call the same point, so that the other
 * half is left to what changes between the look and the measurement. */
#define TOLERANCE 0.02
/* Looks for one share in one pass: three usually do; more never helped where these had not. */
#define TRIES 6u
/* Looks that are enough to believe a delay, and at most at one beside which there is no other. */
#define LOOKS_MIN 2u
#define LOOKS_MAX 3u
/* The first delay tried, at which small loads move half. */
#define FIRST_DELAY 64u
/* So much further at least and at most where all delays so far move more than the share. */
#define STEP_MIN 2.0
#define STEP_MAX 16.0

size_t shares_looks_max(size_t shares)
{
	return LOOKS_MIN + 1 + SHARES_PASSES * TRIES * shares;
}

static double share_at(const struct shares *search, size_t number)
{
	return search->looks[number].rate / search->looks[0].rate;
}

double shares_of(const struct shares *search, uint64_t delay)
{
	size_t number = 0;
	while (number + 1 < search->count && search->looks[number].delay < delay)
		number++;
	return share_at(search, number);
}

static bool look(struct shares *search, uint64_t delay, struct error *error)
{
	double rate;
	if (!search->measure(search->context, delay, &rate, error))
		return false;
	size_t at = 0;
	while (at < search->count && search->looks[at].delay < delay)
		at++;
	struct shares_look *seen = &search->looks[at];
	if (at == search->count || seen->delay != delay) {
		memmove(seen + 1, seen, (search->count++ - at) * sizeof(*seen));
		*seen = (struct shares_look){.delay = delay};
	}
	seen->rate = fmax(seen->rate, rate);
	seen->times++;
	return true;
}

/* Where to look next: between the delays around the share, where one line would take so long if time grew evenly with
 * the delay; false where there is nothing left to look at. */
static bool next_delay(const struct shares *search, double share, unsigned enough, unsigned tried, uint64_t *delay)
{
	size_t number = 0;
	while (number + 1 < search->count && share_at(search, number + 1) >= share)
		number++;
	const struct shares_look *shorter = &search->looks[number], *longer = shorter + 1;
	double time = 1 / share, least = 1 / share_at(search, number);
	if (number + 1 == search->count) {
		double further = (double)shorter->delay * fmin(fmax(time / least, STEP_MIN), STEP_MAX);
		*delay = (uint64_t)fmin(fmax(further, FIRST_DELAY), SHARES_DELAY_MAX);
		return shorter->delay < SHARES_DELAY_MAX;
	}
	uint64_t apart = longer->delay - shorter->delay;
	*delay = longer->delay;
	/* A disturbed look would bar the way to all longer delays. */
	if (apart == 1 || longer->times < enough)
		return longer->times < LOOKS_MAX;
	/* Every third look halves: where time does not grow evenly, one end would stay for ever. */
	double most = 1 / fmax(share_at(search, number + 1), 1e-3);
	double part = tried % 3 == 2 ? 0.5 : (time - least) / (most - least);
	*delay = shorter->delay + (uint64_t)fmin(fmax(round(part * (double)apart), 1), (double)(apart - 1));
	return true;
}

static double distance(const struct shares *search, size_t number, double share)
{
	return fabs(share_at(search, number) - share);
}

bool shares_find(struct shares *search, double share, unsigned pass, uint64_t *nearest, struct error *error)
{
	const unsigned enough = pass < LOOKS_MIN ? pass : LOOKS_MIN;
	/* All others are compared with this one, so it is looked at once more than they. */
	while (search->count == 0 || search->looks[0].times <= enough)
		if (!look(search, 0, error))
			return false;
	if (search->looks[0].rate <= 0)
		return error_set(error, ERROR_CHECK_FAILED, "the load moved nothing");
	for (unsigned tried = 0;; tried++) {
		size_t best = 0;
		for (size_t i = 1; i < search->count; i++)
			if (distance(search, i, share) < distance(search, best, share))
				best = i;
		uint64_t delay = *nearest = search->looks[best].delay;
		bool near = distance(search, best, share) <= TOLERANCE;
		if ((near && search->looks[best].times >= enough) || tried == TRIES ||
		    (!near && !next_delay(search, share, enough, tried, &delay)))
			return true;
		if (!look(search, delay, error))
			return false;
	}
}
