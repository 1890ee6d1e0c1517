/* SPDX-License-Identifier: Apache-2.0 */
/* The time source of every value: the processor's counter where it can be trusted, else CLOCK_MONOTONIC_RAW.
 * Samples are kept in ticks and converted at the end, when the calibration has its longest base line. */
#pragma once

#include <stdbool.h>
#include <time.h>

#include "arch/arch.h"

struct json;

struct clock {
	bool counter; /* the processor's counter, else CLOCK_MONOTONIC_RAW in ns */
	double hz;
	double hz_uncertainty_ppm;
	bool invariant;
	double read_cost_ticks;
	double resolution_ticks;
	const char *reason; /* why the fall-back, or NULL */
};

extern struct clock clock_now_used;

static inline uint64_t clock_read_ns(clockid_t which)
{
	struct timespec now;
	clock_gettime(which, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline uint64_t clock_raw_ns(void)
{
	return clock_read_ns(CLOCK_MONOTONIC_RAW);
}

/* CPU time of the calling thread. */
static inline uint64_t clock_cpu_ns(void)
{
	return clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
}

static inline struct timespec clock_timespec(uint64_t ns)
{
	return (struct timespec){.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
}

static inline uint64_t clock_start(void)
{
	return clock_now_used.counter ? arch_counter_start() : clock_raw_ns();
}

static inline uint64_t clock_stop(void)
{
	return clock_now_used.counter ? arch_counter_stop() : clock_raw_ns();
}

/* One reading of the raw clock between two of the counter: it was made within `width` ticks around `ticks`. */
struct clock_bracket {
	uint64_t ticks;
	uint64_t width;
	uint64_t raw_ns;
};

/* The narrowest of a hundred. */
struct clock_bracket clock_bracket_take(void);

/* What the bound of hz may be: a hundredth of the 0.1 % to which any value here is repeatable. */
#define CLOCK_BOUND_PPM 10.0

/* Chooses the source and takes the first calibration bracket: call it first in the process. */
void clock_begin(void);
/* A first hz, good to some 30 ppm after 2 ms: enough to plan windows and deadlines. */
void clock_settle(void);
/* Takes the last bracket, at least 10 ms after the first, and fixes hz and its uncertainty: at most CLOCK_BOUND_PPM
 * where up to 200 ms allow that, else with a warning. */
void clock_finish(void);
double clock_ns(double ticks);
/* Writes null when not even a first hz was had. */
void clock_write(struct json *json, const char *key);
