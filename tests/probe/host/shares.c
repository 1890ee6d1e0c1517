// SPDX-License-Identifier: Apache-2.0
/* The search for delays by shares, over loads whose bandwidth by delay is known. */
#include <math.h>

#include "host.h"
#include "random.h"
#include "shares.h"

struct load {
	double knee;       /* delay that memory hides */
	double thinned_by; /* delay beyond that for which one line takes twice as long */
	double power;      /* how time grows there; 0: evenly */
	double step;       /* what any delay takes away at once */
	unsigned disturbs; /* one of so many looks sees half */
	uint64_t seed;
	unsigned fails; /* so does this look */
	unsigned looks;
};

static double moved(const struct load *load, uint64_t delay)
{
	double beyond = fmax(0, ((double)delay - load->knee) / load->thinned_by);
	return 25e9 / (1 + pow(beyond, load->power > 0 ? load->power : 1)) * (delay ? 1 - load->step : 1);
}

static bool measure(void *context, uint64_t delay, double *rate, struct error *error)
{
	struct load *load = context;
	if (++load->looks == load->fails)
		return error_set(error, ERROR_DEADLINE, "told to stop");
	bool disturbed = load->disturbs && random_derive(load->seed, 0, load->looks) % load->disturbs == 0;
	*rate = moved(load, delay) * (disturbed ? 0.5 : 1);
	return true;
}

static const double shares[] = {0.25, 0.5, 0.75, 0.9};
#define SHARES (sizeof(shares) / sizeof(shares[0]))

/* The delays of all shares in as many passes as the program makes; false where a look fails. */
static bool found(struct load *load, uint64_t *delays, struct error *error)
{
	struct shares_look looks[128];
	struct shares search = {.measure = measure, .context = load, .looks = looks};
	bool good = shares_looks_max(SHARES) <= sizeof(looks) / sizeof(looks[0]);
	for (unsigned pass = 1; good && pass <= SHARES_PASSES; pass++)
		for (size_t i = 0; good && i < SHARES; i++)
			good = shares_find(&search, shares[i], pass, &delays[i], error);
	for (size_t i = 1; good && i < search.count; i++)
		good = looks[0].delay == 0 && looks[i].delay > looks[i - 1].delay && looks[i].delay <= SHARES_DELAY_MAX;
	return good && load->looks <= shares_looks_max(SHARES);
}

static bool near(const struct load *load, const uint64_t *delays)
{
	for (size_t i = 0; i < SHARES; i++)
		if (fabs(moved(load, delays[i]) / moved(load, 0) - shares[i]) > 0.02)
			return false;
	return true;
}

static bool case_reached(struct error *error)
{
	/* From one thread on a small machine to hundreds on a large one. */
	static const struct load loads[] = {{.thinned_by = 40},
	                                    {.knee = 10, .thinned_by = 50},
	                                    {.knee = 300, .thinned_by = 300},
	                                    {.knee = 1200, .thinned_by = 1200},
	                                    {.thinned_by = 6000},
	                                    {.thinned_by = 900, .power = 6}};
	for (size_t i = 0; i < sizeof(loads) / sizeof(loads[0]); i++) {
		struct load load = loads[i];
		uint64_t delays[SHARES];
		EXPECT(found(&load, delays, error));
		EXPECT(near(&load, delays));
		EXPECT(load.looks <= 4 * (SHARES + 1) + 4);
		EXPECT(delays[0] > delays[1] && delays[1] > delays[2] && delays[2] > delays[3]);
	}
	return true;
}

static bool case_disturbed(struct error *error)
{
	unsigned missed = 0;
	for (unsigned seed = 0; seed < 200; seed++) {
		struct load load = {.knee = 10, .thinned_by = 50, .disturbs = 6, .seed = seed};
		uint64_t delays[SHARES];
		EXPECT(found(&load, delays, error));
		missed += !near(&load, delays);
	}
	EXPECT(missed < 16);
	return true;
}

static bool case_out_of_reach(struct error *error)
{
	/* Any delay at all takes 30 % away: of 90 % that is the nearest, and of the others nothing changes. */
	struct load coarse = {.thinned_by = 40, .step = 0.3};
	uint64_t delays[SHARES];
	EXPECT(found(&coarse, delays, error));
	EXPECT(delays[3] == 0 || delays[3] == 1);
	EXPECT(fabs(moved(&coarse, delays[1]) / moved(&coarse, 0) - 0.5) <= 0.02);
	/* No delay thins it out, and the search ends at the longest. */
	struct load firm = {.knee = 1e9, .thinned_by = 1};
	EXPECT(found(&firm, delays, error));
	return true;
}

static bool case_ended(struct error *error)
{
	uint64_t delays[SHARES];
	for (unsigned fails = 1; fails < 8; fails++) {
		struct error told = {0};
		struct load load = {.thinned_by = 40, .fails = fails};
		EXPECT(!found(&load, delays, &told) && told.code == ERROR_DEADLINE && load.looks == fails);
	}
	struct error nothing = {0};
	struct load none = {.thinned_by = 40, .step = 1, .disturbs = 0};
	EXPECT(found(&none, delays, &nothing));
	none = (struct load){.knee = -INFINITY, .thinned_by = 1};
	EXPECT(!found(&none, delays, &nothing) && nothing.code == ERROR_CHECK_FAILED);
	return true;
}

HOST_CASES(CASE(reached), CASE(disturbed), CASE(out_of_reach), CASE(ended))
