/* SPDX-License-Identifier: Apache-2.0 */
/* When to stop: adding placements to a point, and the work as a whole. The physical placement is the unit of
 * replication: never fewer than asked, unless the work was told to end. */
#pragma once

#include <stdatomic.h>

#include "error.h"

/* Set once, by the thread that supervises; ERROR_NONE until then. */
extern _Atomic int stop_cause;

/* Whether the work was told to end: by a signal or by the deadline. Looked at between windows, placements and points and
 * in loops that wait, never in a timed stretch. What is complete then is handed over, what is not begun is not begun. */
static inline bool stop_requested(void)
{
	return atomic_load_explicit(&stop_cause, memory_order_relaxed) != ERROR_NONE;
}

/* True when a stop was requested, and then `error` says so: ERROR_INTERRUPTED or ERROR_DEADLINE. For a point that has no
 * complete placement; one that has keeps its placements and has no error, and stopping_done gives its reason. */
bool stop_error(struct error *error);
/* Sleeps, but not beyond a request to stop; returns whether there is one. */
bool stop_sleep_ns(uint64_t ns);

/* For the supervising thread alone: makes it possible to be told, and tells. The first cause stays. */
bool stop_begin(struct error *error);
void stop_request(enum error_code cause);

struct stopping {
	uint64_t placements; /* at least this many */
	double budget_s;     /* time for one point after which no further placement is begun; 0: only those asked */
	double target;       /* relative half-width of the interval of the median */
	uint64_t began_ns;
	const char *reason; /* "converged", "placements", "budget" or "interrupted", once stopped */
};

/* More placements than this never narrow an interval enough to be worth the time. */
#define STOPPING_PLACEMENTS_MAX 31u

/* Placements that may be made of one point. */
uint64_t stopping_max(uint64_t placements, double budget_s);
void stopping_begin(struct stopping *stopping);
/* `medians` has one value per complete placement, at least one. Done early, as "interrupted", when told to stop. */
bool stopping_done(struct stopping *stopping, const double *medians, size_t count);
