// SPDX-License-Identifier: Apache-2.0
/* Windows of a core clock: which slices count, and which windows all CPUs of a group have. The source itself is compiled
 * here. */
#include "frequency.c"

#include "host.h"

#define CPUS 3u

/* Told to stop, one thread was a window behind: the first, one between, the last. */
static bool case_common_windows(struct error *error)
{
	for (unsigned behind = 0; behind < CPUS; behind++) {
		uint64_t numbers[] = {0, 1, 2};
		struct point points[CPUS] = {0};
		struct group group = {.points = points, .count = CPUS};
		common.windows = 3;
		for (unsigned i = 0; i < CPUS; i++) {
			points[i].ready = true;
			points[i].passed = i == behind ? 2 : 3;
			points[i].windows = (struct windows){.count = points[i].passed, .number = numbers};
		}
		keep_common_windows(&group);
		EXPECT(!strcmp(group.stopped, "interrupted"));
		for (unsigned i = 0; i < CPUS; i++)
			EXPECT(points[i].windows.count == 2 && points[i].passed == 2);
	}
	return true;
}

/* Of windows in which the chain ran alone too, the one between. */
static bool case_chain_ratio(struct error *error)
{
	double loaded[] = {9, 2, 4, 5}, bare[] = {3, 2, 2, 0}, ratio;
	const struct windows windows = {.count = 4, .per_tick = loaded, .bare_per_tick = bare};
	EXPECT(chain_ratio(&windows, &ratio) && ratio == 2);
	return true;
}

HOST_CASES(CASE(common_windows), CASE(chain_ratio))
