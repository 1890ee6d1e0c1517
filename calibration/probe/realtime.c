// SPDX-License-Identifier: Apache-2.0
#include "realtime.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "files.h"
#include "warning.h"

#define RUNTIME "/proc/sys/kernel/sched_rt_runtime_us"
#define FAIR_SERVER "/sys/kernel/debug/sched/fair_server"
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

void realtime_check(void)
{
	/* The C library's own call refuses by design. */
	long policy = syscall(SYS_sched_getscheduler, 0);
	if (policy != SCHED_FIFO && policy != SCHED_RR)
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

/* Whether a deadline server takes the CPU from a real-time thread when an ordinary one waits; `seen`: the kernel tells. */
static bool served(unsigned cpu, bool *seen, struct error *error)
{
	char path[96];
	long long fair_ns = 0;
	snprintf(path, sizeof(path), FAIR_SERVER "/cpu%u/runtime", cpu);
	if (!file_number(path, &fair_ns)) {
		*seen = *seen && errno == ENOENT && access("/sys/kernel/debug/sched", F_OK) == 0;
		return false;
	}
	if (fair_ns <= 0)
		return false;
	warning_add("RT_THROTTLE_POSSIBLE",
	            "a deadline server takes the CPU from a real-time thread for %lld ns of each period (%s)", fair_ns,
	            path);
	error_set(
		error, ERROR_UNSUPPORTED,
		"--fifo: the deadline server would take CPU %u from the measuring thread for %lld ns of each period (%s); "
		"write 0 to it, or leave --fifo out",
		cpu, fair_ns, path);
	return true;
}

bool realtime_refuse_starving(const struct cpu_list *cpus, struct error *error)
{
	return affinity_spares(cpus) ||
	       error_set(
			   error, ERROR_UNSUPPORTED,
			   "--fifo: all %zu allowed CPUs would run real-time threads and none the thread that ends them; leave "
			   "one out of --cpus, widen the affinity mask (taskset, cpuset), or leave --fifo out",
			   affinity_allowed()->count);
}

bool realtime_refuse_throttling(const struct cpu_list *cpus, struct error *error)
{
	const struct realtime_limit limit = realtime_limit();
	const long long runtime = limit.runtime_us, period = limit.period_us;
	if (realtime_throttled(&limit)) {
		warning_add("RT_THROTTLE_POSSIBLE",
		            "the kernel takes the CPU from a real-time thread for %lld us in %lld (sched_rt_runtime_us)",
		            period - runtime, period);
		return error_set(error, ERROR_UNSUPPORTED,
		                 "--fifo: sched_rt_runtime_us is %lld of %lld: the kernel would stop the measuring thread for "
		                 "%lld us each period; write -1 to " RUNTIME ", or leave --fifo out",
		                 runtime, period, period - runtime);
	}
	bool seen = limit.known;
	for (size_t i = 0; i < cpus->count; i++)
		if (served(cpus->cpus[i], &seen, error))
			return false;
	if (!seen)
		warning_add("RT_THROTTLE_POSSIBLE",
		            "unknown whether the kernel may stop a real-time thread (sched_rt_runtime_us %s, " FAIR_SERVER
		            " not readable): gaps of some 50 ms may be of its own making",
		            limit.known ? "allows it to run" : "not readable");
	return true;
}

bool realtime_begin(unsigned priority, struct error *error)
{
	struct sched_param parameter = {.sched_priority = (int)priority};
	/* musl's sched_setscheduler refuses by design; the thread function reaches the kernel. */
	int reason = pthread_setschedparam(pthread_self(), SCHED_FIFO, &parameter);
	return reason == 0 || error_set(error, reason == EPERM ? ERROR_NO_PERMISSION : ERROR_UNSUPPORTED,
	                                "SCHED_FIFO %u: %s; run as root, with CAP_SYS_NICE or a real-time limit, or leave "
	                                "--fifo out",
	                                priority, strerror(reason));
}

void realtime_end(void)
{
	struct sched_param none = {0};
	(void)pthread_setschedparam(pthread_self(), SCHED_OTHER, &none); /* always allowed */
}
