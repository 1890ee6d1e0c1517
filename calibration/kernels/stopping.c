// SPDX-License-Identifier: Apache-2.0
#include "stopping.h"

#include "clock.h"
#include "statistics.h"

void stopping_begin(struct stopping *stopping)
{
	stopping->began_ns = clock_raw_ns();
	stopping->reason = NULL;
}

bool stopping_done(struct stopping *stopping, const double *medians, size_t count)
{
	double half_width;
	if (count < stopping->placements)
		return false;
	if (statistics_half_width(medians, count, &half_width) && half_width <= stopping->target)
		stopping->reason = "converged";
	else if (stopping->budget_s <= 0 || count >= STOPPING_PLACEMENTS_MAX)
		stopping->reason = "placements";
	else if ((double)(clock_raw_ns() - stopping->began_ns) / 1e9 >= stopping->budget_s)
		stopping->reason = "budget";
	return stopping->reason != NULL;
}
