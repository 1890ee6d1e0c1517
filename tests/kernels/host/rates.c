// SPDX-License-Identifier: Apache-2.0
/* Rates of gaps that the look for them is ended by. The source itself is compiled here. */
#include "jitter_watch.c"

#include "host.h"

/* The CPU whose rate is known least decides, wherever it stands; one that lost its views does not. */
static bool case_widest(struct error *error)
{
	enum { CPUS = 3, SLICES = 6 };
	static const double steady[SLICES] = {10, 10, 10, 10, 10, 10}, wide[SLICES] = {10, 11, 9, 10, 10, 10},
						wild[SLICES] = {1, 100, 1, 100, 1, 100};
	static struct station stations[CPUS];
	struct rates rates = {.list = allocate(CPUS * SLICES_MAX, sizeof(double)), .slices = SLICES};
	bool right = true;
	jitter.stations = stations;
	jitter.cpus.count = CPUS;
	for (unsigned lost = 0; lost < CPUS; lost++)
		for (unsigned widest = 0; widest < CPUS; widest++) {
			for (unsigned i = 0; i < CPUS; i++) {
				stations[i].worker.error.code = i == lost ? ERROR_CPU_LEFT : ERROR_NONE;
				memcpy(rates.list + (size_t)i * SLICES_MAX,
				       i == lost     ? wild
				       : i == widest ? wide
				                     : steady,
				       sizeof(steady));
			}
			double expected = widest == lost ? 0 : 0.1;
			right = right && fabs(rates_half_width(&rates) - expected) < 1e-12;
		}
	free(rates.list);
	EXPECT(right);
	return true;
}

static const struct host_case cases[] = {
	{"widest", case_widest},
};

int main(void)
{
	return host_run(cases, sizeof(cases) / sizeof(cases[0]));
}
