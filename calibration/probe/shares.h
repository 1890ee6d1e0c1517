/* SPDX-License-Identifier: Apache-2.0 */
/* The delays at which a load moves given shares of what it moves without any, found by looking at a few. */
#pragma once

#include "error.h"

/* The longest delay looked at: Intel MLC's longest, at which loads of every machine tried move next to nothing. */
#define SHARES_DELAY_MAX 20000u

struct shares_look {
	uint64_t delay;
	double rate; /* the most seen: whatever disturbs a look takes bandwidth away */
	unsigned times;
};

struct shares {
	/* to be set */
	bool (*measure)(void *context, uint64_t delay, double *rate, struct error *error);
	void *context;
	struct shares_look *looks; /* room for shares_looks_max() */
	/* state: looks by rising delay, the first at delay 0 */
	size_t count;
};

/* Each share is found once, and looked at again when all have been: what disturbed the first look is over by then. The
 * third pass is for what the second one refuted, and else costs nothing. */
#define SHARES_PASSES 3u

/* Looks that so many shares take at most. */
size_t shares_looks_max(size_t shares);
/* Looks at delays until one moves `share`, in (0, 1], of the rate without any, or no better one can be found; `nearest` is
 * the best. `pass` counts from 1; after the first, one look is not enough. Delays that were looked at for other shares
 * serve this one too. False where a look fails. */
bool shares_find(struct shares *search, double share, unsigned pass, uint64_t *nearest, struct error *error);
/* What a look shows as a share of the rate without delay. */
double shares_of(const struct shares *search, uint64_t delay);
