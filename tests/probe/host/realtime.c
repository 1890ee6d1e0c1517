// SPDX-License-Identifier: Apache-2.0
/* Whether the kernel would take a CPU from a real-time thread, by files of made machines. */
#include <errno.h>
#include <string.h>

#include "files.h"
#include "host.h"
#include "realtime.h"

#define RUNTIME "/proc/sys/kernel/sched_rt_runtime_us"
#define SERVER(cpu) "/sys/kernel/debug/sched/fair_server/cpu" #cpu "/runtime"

struct made_file {
	const char *path;
	long long number;
};

static const struct made_file *machine; /* ends with no path */

/* In place of files.c. */
bool file_number(const char *path, long long *value)
{
	for (const struct made_file *file = machine; file->path; file++)
		if (!strcmp(file->path, path)) {
			*value = file->number;
			return true;
		}
	errno = ENOENT;
	return false;
}

char *file_read_within(const char *path, double cpu_s)
{
	(void)path;
	(void)cpu_s;
	errno = ENOENT;
	return NULL;
}

char *file_read(const char *path)
{
	return file_read_within(path, 0);
}

bool file_line(const char *path, char *line, size_t size)
{
	(void)line;
	(void)size;
	return file_read(path);
}

bool capability_has(unsigned number)
{
	(void)number;
	return false;
}

static bool case_throttled(struct error *error)
{
	static const struct {
		struct made_file files[4];
		const char *refused; /* part of the message; NULL: not refused */
	} machines[] = {
		{{{RUNTIME, -1}, {SERVER(0), 0}, {SERVER(4), 0}}, NULL},
		{{{RUNTIME, 1000000}, {SERVER(0), 0}, {SERVER(4), 0}}, NULL},
		{{{RUNTIME, 999999}}, "999999 of 1000000"},
		{{{RUNTIME, -1}, {SERVER(0), 50000000}, {SERVER(4), 0}}, "CPU 0 "},
		/* each CPU has a server of its own, and that of a CPU that is not measured takes nothing from it */
		{{{RUNTIME, -1}, {SERVER(0), 0}, {SERVER(4), 40000000}}, "CPU 4 from the measuring thread for 40000000 ns"},
		{{{RUNTIME, -1}, {SERVER(1), 50000000}}, NULL},
	};
	unsigned numbers[] = {0, 4};
	const struct cpu_list cpus = {.cpus = numbers, .count = 2};
	for (size_t i = 0; i < sizeof(machines) / sizeof(machines[0]); i++) {
		struct error refused = {0};
		machine = machines[i].files;
		EXPECT(realtime_refuse_throttling(&cpus, &refused) == !machines[i].refused);
		EXPECT(!machines[i].refused || strstr(refused.message, machines[i].refused) != NULL);
	}
	return true;
}

HOST_CASES(CASE(throttled))
