// SPDX-License-Identifier: Apache-2.0
#include "corefreq.h"

#include <math.h>

#include "clock.h"

/* 1600 blocks are 102,400 clocks, some 40 us: 1000 times the cost of a clock read, short enough to dodge most ticks. */
#define BLOCKS 1600u
#define TRIES 4
/* 50 ms let a governor that samples every 10 ms raise the clock; longer would only cost time on busy machines. */
#define SETTLE_NS 50000000u

double corefreq_per_tick(void)
{
	double best = 0;
	for (int i = 0; i < TRIES; i++) {
		uint64_t before = clock_start();
		(void)arch_dependent_adds(BLOCKS);
		uint64_t after = clock_stop();
		/* An interruption can only make a try longer, so the largest rate is the undisturbed one. */
		double rate = (double)BLOCKS * 64 / ((double)(after - before) - clock_now_used.read_cost_ticks);
		if (rate > best)
			best = rate;
	}
	return best;
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
