// SPDX-License-Identifier: Apache-2.0
/* A companion stopped right after its start has read memory. */
#include <math.h>

#include "affinity.h"
#include "clock.h"
#include "companion.h"
#include "host.h"

#define RUNS 100u

static bool case_has_read(struct error *error)
{
	struct companion companion = {0};
	unsigned read = 0;
	if (!affinity_begin(error))
		return false;
	companion.cpu = affinity_allowed()->cpus[0];
	if (!companions_open(&companion, 1, error))
		return false;
	for (unsigned run = 0; run < RUNS; run++) {
		companions_begin(&companion, 1);
		read +=
			companions_end(&companion, 1, error) && isfinite(companion.bytes_per_tick) && companion.bytes_per_tick > 0;
	}
	companions_close(&companion, 1);
	EXPECT(read == RUNS);
	return true;
}

static const struct host_case cases[] = {
	{"has_read", case_has_read},
};

int main(void)
{
	clock_begin();
	return host_run(cases, sizeof(cases) / sizeof(cases[0]));
}
