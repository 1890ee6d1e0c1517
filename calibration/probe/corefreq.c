// SPDX-License-Identifier: Apache-2.0
#include "corefreq.h"

#include <math.h>

#include "clock.h"

/* 400 blocks are 25,600 clocks or more, 7 to 10 us: 200 times the cost of a clock read, which is taken off, and shorter than the
 * time between interruptions of even a crowded machine. Of four runs of 40 us all were interrupted there now and then,
 * and the core seemed to speed up by 195 % afterwards. */
#define BLOCKS 400u
/* Runs so near the fastest were undisturbed too. Their mean is the value, because the fastest alone would be too fast
 * by a step of a coarse counter (0.4 % at 25 MHz). */
#define UNDISTURBED 0.99
/* So many must have been undisturbed: that two interrupted runs take the same time happens, three do not. */
#define AGREEING 3u
/* 50 ms let a governor that samples every 10 ms raise the clock; longer would only cost time on busy machines. */
#define SETTLE_NS 50000000u

double corefreq_search(double (*run)(void *context), void *context)
{
	double rates[COREFREQ_RUNS_MAX], fastest = 0;
	for (unsigned count = 0;;) {
		double rate = rates[count++] = run(context), sum = 0;
		unsigned agreeing = 0;
		/* An interruption can only make a run longer, so the largest rate is the undisturbed one. */
		fastest = rate > fastest ? rate : fastest;
		if (count < COREFREQ_RUNS_MIN)
			continue;
		for (unsigned i = 0; i < count; i++)
			if (rates[i] >= UNDISTURBED * fastest) {
				sum += rates[i];
				agreeing++;
			}
		if (agreeing >= AGREEING || count == COREFREQ_RUNS_MAX)
			return sum / agreeing;
	}
}

static double one_run(void *context)
{
	(void)context;
	uint64_t before = clock_start();
	(void)arch_dependent_adds(BLOCKS);
	uint64_t after = clock_stop();
	return (double)BLOCKS * 64 * ARCH_ADDITION_CLOCKS / ((double)(after - before) - clock_now_used.read_cost_ticks);
}

double corefreq_per_tick(void)
{
	return corefreq_search(one_run, NULL);
}

double corefreq_settle(void)
{
	uint64_t begin = clock_raw_ns();
	double last = corefreq_per_tick();
	for (unsigned agreed = 0; agreed < 5 && clock_raw_ns() - begin < SETTLE_NS;) {
		double now = corefreq_per_tick();
		agreed = fabs(now / last - 1) < 0.003 ? agreed + 1 : 0;
		last = now;
	}
	return last;
}

double corefreq_hz(double per_tick)
{
	return per_tick * clock_now_used.hz;
}
