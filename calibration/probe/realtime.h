/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel does to a real-time thread that never sleeps, and whether one of ours is such a thread. */
#pragma once

#include "affinity.h"
#include "error.h"

struct realtime_limit {
	bool known;
	long long runtime_us, period_us; /* a real-time thread may run so long of each period; -1: all of it */
};

/* Reads the limit; not known where the file that says it cannot be read. */
struct realtime_limit realtime_limit(void);
/* Whether the kernel stops real-time threads for a part of each period. */
bool realtime_throttled(const struct realtime_limit *limit);
/* Warns (RT_THROTTLE_POSSIBLE) where the calling thread runs under a real-time policy, whoever gave it that, which is
 * throttled. */
void realtime_check(void);
/* Real-time threads on all CPUs would keep the thread that ends them from its own. */
bool realtime_refuse_starving(const struct cpu_list *cpus, struct error *error);
/* False where the kernel would take one of these CPUs from a real-time thread that never sleeps, and so show gaps of its own
 * making. Warns (RT_THROTTLE_POSSIBLE) where that is unknown. */
bool realtime_refuse_throttling(const struct cpu_list *cpus, struct error *error);
/* Puts the calling thread under SCHED_FIFO, and back under the ordinary policy. */
bool realtime_begin(unsigned priority, struct error *error);
void realtime_end(void);
