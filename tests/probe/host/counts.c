// SPDX-License-Identifier: Apache-2.0
/* Counts of several CPUs, of made files. The source itself is compiled here. */
#include <string.h>

#include "files.h"

static const char *made_text;

static char *made_file(const char *path)
{
	(void)path;
	return strdup(made_text);
}
#define file_read made_file
#include "interference.c"

#include "host.h"

/* Those of some of the CPUs, added up; unknown where one of them is. */
static bool case_sums(struct error *error)
{
	unsigned numbers[] = {0, 4, 5}, outer[] = {0, 5}, all[] = {0, 4, 5};
	const struct cpu_list cpus = {numbers, 3}, some = {outer, 2}, every = {all, 3};
	int64_t steal[2][3] = {{1, 50, 3}, {3, 99, 8}}, smi[2][3] = {{7, -1, 9}, {8, -1, 11}}, found;
	const struct snapshot before = {.cpus = &cpus, .counts = {[COUNT_STEAL] = steal[0], [COUNT_SMI] = smi[0]}};
	const struct snapshot after = {.cpus = &cpus, .counts = {[COUNT_STEAL] = steal[1], [COUNT_SMI] = smi[1]}};
	double ms, tick_ms = 1000.0 / (double)sysconf(_SC_CLK_TCK);
	interference_sums(&before, &after, &some, &ms, &found);
	EXPECT(ms == 7 * tick_ms && found == 3);
	interference_sums(&before, &after, &every, &ms, &found);
	EXPECT(ms == 56 * tick_ms && found == -1);
	return true;
}

/* Time that a hypervisor took, the eighth of a CPU's numbers; kernels that have fewer say nothing of it. */
static bool case_steal(struct error *error)
{
	unsigned numbers[] = {0, 4, 5};
	const struct cpu_list cpus = {numbers, 3};
	struct snapshot snapshot;
	made_text = "cpu  900 901 902 903 904 905 906 907 908 909\n"
				"cpu0 10 11 12 13 14 15 16 17 18 19\n"
				"cpu1 20 21 22 23 24 25 26 27 28 29\n"
				"cpu4 30 31 32 33 34 35 36 37 38 39\n"
				"cpu5 40 41 42 43 44 45 46\n"
				"intr 7\n";
	snapshot_begin(&snapshot, &cpus);
	steal_read(&snapshot);
	const int64_t *steal = snapshot.counts[COUNT_STEAL];
	bool right = steal[0] == 17 && steal[1] == 37 && steal[2] == -1;
	snapshot_free(&snapshot);
	EXPECT(right);
	return true;
}

HOST_CASES(CASE(sums), CASE(steal))
