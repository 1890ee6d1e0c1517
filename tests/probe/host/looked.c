// SPDX-License-Identifier: Apache-2.0
/* A look at the bandwidth of a delay, of made windows. The source itself is compiled here. */
#include "generator.h"
#include "statistics.h"

static bool made_select(struct generator *generator, const struct group *group, const struct load_shape *shape,
                        size_t buffer_bytes, struct error *error)
{
	(void)generator, (void)group, (void)buffer_bytes, (void)error;
	return shape->delay == 70;
}

static bool made_run(struct generator *generator, double settle_s, double windows_s, struct error *error)
{
	(void)generator, (void)settle_s, (void)windows_s, (void)error;
	return true;
}

static bool made_prove(struct generator *generator, struct error *error)
{
	(void)generator, (void)error;
	return true;
}

/* An interruption makes a window slow: here the first and the last, and one is twice as fast. */
static void made_add(const struct generator *generator, double *rates, double *threads, size_t windows, double ticks)
{
	(void)generator, (void)threads, (void)ticks;
	for (size_t i = 0; i < windows; i++)
		rates[i] += i == 0 || i + 1 == windows ? 1 : i == 1 ? 20 : 10;
}
#define generator_select made_select
#define generator_run_windows made_run
#define generator_prove made_prove
#define generator_add_rates made_add
#include "loaded.c"

#include "host.h"

static bool case_median(struct error *error)
{
	struct group group = {.count = 0};
	struct error whole = {0};
	double rate = 0;
	sweep.generator.groups = &group;
	sweep.generator.group = &group;
	EXPECT(look(&whole, 70, &rate, error) && rate == 10);
	return true;
}

HOST_CASES(CASE(median))
