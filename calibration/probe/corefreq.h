/* SPDX-License-Identifier: Apache-2.0 */
/* The core clock without a PMU: additions that wait for one another take a known number of clocks each, one on
 * most cores. */
#pragma once

/* Core clocks per tick of the clock, measured on the CPU the caller is pinned to in some 0.2 ms. It is that of the
 * fastest of 20 runs of some 10 us; of more runs, 2.5 ms at most, where not three of them agree on what the fastest is,
 * so that no interruption enters. A core that a sibling thread shares shows what is left to this one. */
double corefreq_per_tick(void);
/* The same after the core has had up to 50 ms to leave its idle state and settle. */
double corefreq_settle(void);
/* Core clocks per second from core clocks per tick. */
double corefreq_hz(double per_tick);
/* The rule by itself: `run` gives the rate of one run. */
double corefreq_search(double (*run)(void *context), void *context);

/* 20 runs are 0.2 ms: long enough for a core that was asleep to speed up, short beside any window. 250 are as long as a
 * time slice of a busy machine; an interruption of any length spoils only one of them. */
#define COREFREQ_RUNS_MIN 20u
#define COREFREQ_RUNS_MAX 250u
