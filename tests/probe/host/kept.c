// SPDX-License-Identifier: Apache-2.0
/* What is kept of the runs of a group. The source itself is compiled here. */
#include "generator.h"

static uint64_t made_skew;

static uint64_t made_start(const struct generator *generator)
{
	(void)generator;
	return made_skew;
}

static void made_take(struct generator *generator, struct evidence *evidence)
{
	(void)generator;
	*evidence = (struct evidence){0};
}

static void made_add(const struct generator *generator, double *rates, double *threads, size_t windows, double ticks)
{
	(void)generator, (void)rates, (void)threads, (void)windows, (void)ticks;
}

static uint64_t *made_shares(const struct generator *generator, struct cpu_list *nodes)
{
	(void)generator;
	*nodes = (struct cpu_list){0};
	return NULL;
}
#define generator_start_skew made_start
#define generator_take_evidence made_take
#define generator_add_rates made_add
#define generator_shares made_shares
#include "bandwidth.c"

#include "host.h"

/* Of all placements, the latest start. */
static bool case_skew(struct error *error)
{
	static const uint64_t skews[] = {30, 50, 40};
	enum { PLACEMENTS = 3 };
	struct group group = {.count = 1};
	struct placement placements[PLACEMENTS] = {0};
	struct point point = {.group = &group, .placements = placements};
	common.windows = 1;
	for (unsigned i = 0; i < PLACEMENTS; i++) {
		made_skew = skews[i];
		keep_run(&point, 7 + i);
		free(placements[i].window_rates);
		free(placements[i].thread_rates);
	}
	EXPECT(point.count == PLACEMENTS && point.skew_ticks == 50);
	EXPECT(placements[0].evidence.seed == 7 && placements[2].evidence.seed == 9);
	return true;
}

HOST_CASES(CASE(skew))
