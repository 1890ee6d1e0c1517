/* SPDX-License-Identifier: Apache-2.0 */
/* When to stop adding placements. The physical placement is the unit of replication: never fewer than asked. */
#ifndef SUTPROBE_STOPPING_H
#define SUTPROBE_STOPPING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stopping {
	uint64_t placements; /* at least this many */
	double budget_s;     /* time for one point after which no further placement is begun; 0: only those asked */
	double target;       /* relative half-width of the interval of the median */
	uint64_t began_ns;
	const char *reason; /* "converged", "placements" or "budget", once stopped */
};

/* More placements than this never narrow an interval enough to be worth the time. */
#define STOPPING_PLACEMENTS_MAX 31u

void stopping_begin(struct stopping *stopping);
/* `medians` has one value per placement made so far. */
bool stopping_done(struct stopping *stopping, const double *medians, size_t count);

#endif
