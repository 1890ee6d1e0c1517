// SPDX-License-Identifier: Apache-2.0
/* What this binary finds on this machine: vector widths, page sizes, privileges. The build and the clock are in the
 * envelope of every document. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "affinity.h"
#include "files.h"
#include "load.h"
#include "memory.h"
#include "subcommand.h"

static bool may_be_fifo(void)
{
	struct sched_param wanted = {.sched_priority = 1}, ordinary = {0};
	if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &wanted) != 0)
		return false;
	return pthread_setschedparam(pthread_self(), SCHED_OTHER, &ordinary) == 0;
}

static bool readable(const char *path)
{
	return access(path, R_OK) == 0;
}

static bool measure(struct json *result, struct error *error)
{
	char line[256];
	struct rlimit locked = {0};
	(void)error;
	json_object_begin(result, NULL);
	json_array_begin(result, "widths");
	for (const struct load_width *width = load_widths; width->name; width++)
		if (width->supported())
			json_text(result, NULL, width->name);
	json_array_end(result);
	json_array_begin(result, "allowed_cpus");
	for (size_t i = 0; i < affinity_allowed()->count; i++)
		json_u64(result, NULL, affinity_allowed()->cpus[i]);
	json_array_end(result);
	json_u64(result, "line_bytes", memory_line_bytes());
	json_u64(result, "base_page_bytes", memory_base_page_bytes());
	if (memory_thp_bytes())
		json_u64(result, "thp_bytes", memory_thp_bytes());
	else
		json_null(result, "thp_bytes");
	json_text(result, "thp_enabled",
	          file_line("/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof(line)) ? line : NULL);
	json_text(result, "clocksource",
	          file_line("/sys/devices/system/clocksource/clocksource0/current_clocksource", line, sizeof(line)) ? line
	                                                                                                            : NULL);
	json_object_begin(result, "privileges");
	json_u64(result, "uid", geteuid());
	json_bool(result, "fifo", may_be_fifo());
	json_bool(result, "msr", readable("/dev/cpu/0/msr"));
	if (getrlimit(RLIMIT_MEMLOCK, &locked) == 0 && locked.rlim_cur != RLIM_INFINITY)
		json_u64(result, "locked_memory_bytes", locked.rlim_cur);
	else
		json_null(result, "locked_memory_bytes");
	json_object_end(result);
	json_object_end(result);
	return true;
}

const struct subcommand info_subcommand = {
	.name = "info",
	.summary = "build, clock, vector widths, page sizes and privileges found",
	.run = measure,
};
