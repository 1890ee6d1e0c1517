// SPDX-License-Identifier: Apache-2.0
#include "realtime.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "files.h"
#include "warning.h"

#define RUNTIME "/proc/sys/kernel/sched_rt_runtime_us"
#define PERIOD "/proc/sys/kernel/sched_rt_period_us"
/* What the kernel's period is unless it says otherwise. */
#define PERIOD_DEFAULT_US 1000000

struct realtime_limit realtime_limit(void)
{
	struct realtime_limit limit = {.period_us = PERIOD_DEFAULT_US};
	(void)file_number(PERIOD, &limit.period_us);
	limit.known = file_number(RUNTIME, &limit.runtime_us);
	return limit;
}

bool realtime_throttled(const struct realtime_limit *limit)
{
	return limit->known && limit->runtime_us >= 0 && limit->runtime_us < limit->period_us;
}

bool realtime_thread(void)
{
	/* The C library's own call refuses by design. */
	long policy = syscall(SYS_sched_getscheduler, 0);
	return policy == SCHED_FIFO || policy == SCHED_RR;
}

void realtime_check(void)
{
	if (!realtime_thread())
		return;
	struct realtime_limit limit = realtime_limit();
	if (realtime_throttled(&limit))
		warning_add(
			"RT_THROTTLE_POSSIBLE",
			"a measuring thread ran under a real-time policy, of which the kernel allows %lld us in %lld: it takes "
			"the CPU from the thread for the rest of each period, and that was measured too",
			limit.runtime_us, limit.period_us);
	else if (!limit.known)
		warning_add("RT_THROTTLE_POSSIBLE",
		            "a measuring thread ran under a real-time policy, and " RUNTIME
		            " cannot be read (%s): the kernel may have taken the CPU from it",
		            strerror(errno));
}
