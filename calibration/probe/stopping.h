/* SPDX-License-Identifier: Apache-2.0 */
/* Stopping early, on a signal or at the deadline. */
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
 * complete placement; one that has keeps its placements and has no error. */
bool stop_error(struct error *error);
/* Sleeps, but not beyond a request to stop; returns whether there is one. */
bool stop_sleep_ns(uint64_t ns);

/* For the supervising thread alone: makes it possible to be told, and tells. The first cause stays. */
bool stop_begin(struct error *error);
void stop_request(enum error_code cause);

/* Why a point ended that has so many complete placements. */
static inline const char *stopped_by(uint64_t complete, uint64_t wanted)
{
	return complete >= wanted ? "placements" : "interrupted";
}
