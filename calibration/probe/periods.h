/* SPDX-License-Identifier: Apache-2.0 */
/* Which gaps keep time: trains of gaps at equal distances, several at once, among gaps that come at random.
 *
 * The gaps are a point process. Candidates are distances that occur more often than their neighbours do; each is proved
 * by epoch folding along a phase that is tracked, because a timer drifts against the clock and may be set anew: the share
 * of cycles in which a gap comes on time, against the share that chance would give at the density of the other gaps.
 * The train that explains most gaps is taken out, and what is left is searched again. */
#pragma once

#include "gaps.h"

/* More sources than a machine has timers; the search ends long before. */
#define PERIODS_MAX 8u
#define PERIODS_NONE 0xffu

struct period {
	double ticks;
	uint64_t gaps;       /* that belong to it */
	uint64_t cycles;     /* watched: those that fell into a longer gap are left out */
	double median_ticks; /* length of its gaps */
	uint64_t lost_ticks; /* sum of their lengths */
	double window_ticks; /* its gaps begin within so much of their time, before or after */
};

/* Finds at most PERIODS_MAX trains among gaps in order of time, the one with most gaps first, and returns how many.
 * `owner`, of `count` bytes, gets for each gap the number of its train or PERIODS_NONE. `ticks_per_us` is the clock's. */
size_t periods_find(const struct gap *gaps, size_t count, double ticks_per_us, struct period *found, uint8_t *owner);

/* Bytes that it takes meanwhile, `owner` with them. */
size_t periods_bytes(size_t count);
