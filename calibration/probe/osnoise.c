// SPDX-License-Identifier: Apache-2.0
#include "tracing.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* From the directory of the instances. */
#define SETTINGS "../osnoise"
#define OPTIONS SETTINGS "/options"
/* Follows the name of the recording instance. */
#define SUFFIX "-osnoise"
#define WORKLOAD "OSNOISE_WORKLOAD"
#define NO_WORKLOAD "NO_" WORKLOAD

static bool option_set(int instances, const char *option)
{
	return tracefs_put(instances, OPTIONS, option) && tracefs_lists(instances, OPTIONS, option);
}

/* Nothing is changed where somebody else would notice. */
static bool refuse_others(struct tracer *osnoise, int instances)
{
	return tracer_unused(osnoise, instances, "osnoise", "timerlat") &&
	       (tracefs_lists(instances, OPTIONS, WORKLOAD) ||
	        tracer_refuse(osnoise, "osnoise is configured otherwise (" NO_WORKLOAD " in osnoise/options)"));
}

/* The tracer watches the CPUs of a list that is the machine's, all of them unless somebody has changed it. */
static bool watches(struct tracer *osnoise, int instances, const struct cpu_list *cpus)
{
	char text[4096] = "";
	struct cpu_list watched = {0};
	struct error error = {0};
	(void)tracefs_get(instances, SETTINGS "/cpus", text, sizeof(text));
	text[strcspn(text, "\n")] = '\0';
	bool all = cpu_list_parse(&watched, text, &error);
	for (size_t i = 0; all && i < cpus->count; i++)
		all = cpu_list_has(&watched, cpus->cpus[i]);
	cpu_list_free(&watched);
	return all ||
	       tracer_refuse(osnoise, "it is set not to watch all of the measured CPUs (osnoise/cpus has '%.80s')", text);
}

void osnoise_open(struct tracer *osnoise, int instances, const char *own, const struct cpu_list *cpus)
{
	*osnoise = (struct tracer)TRACER_CLOSED;
	snprintf(osnoise->name, sizeof(osnoise->name), "%s" SUFFIX, own);
	if (!tracefs_lists(instances, "../available_tracers", "osnoise"))
		(void)tracer_refuse(osnoise, "this kernel has no osnoise tracer");
	else if (!tracefs_lists(instances, OPTIONS, WORKLOAD) && !tracefs_lists(instances, OPTIONS, NO_WORKLOAD))
		(void)tracer_refuse(osnoise,
		                    "this kernel's osnoise cannot leave its workload out (no " WORKLOAD " in osnoise/options)");
	else
		(void)(tracer_lock(osnoise, instances, SETTINGS, "osnoise") && watches(osnoise, instances, cpus) &&
		       refuse_others(osnoise, instances));
	if (osnoise->refused[0])
		tracer_close(osnoise);
}

bool osnoise_take(struct tracer *osnoise, int instances)
{
	if (osnoise->refused[0] || !refuse_others(osnoise, instances))
		return false;
	if (tracer_remember(osnoise, instances)) {
		if (!option_set(instances, NO_WORKLOAD))
			(void)tracer_refuse(osnoise, "its workload could not be turned off (osnoise/options)");
		else if (!tracer_set(instances, osnoise->name, "osnoise"))
			(void)tracer_refuse(osnoise, "turning it on: %s", strerror(errno));
	}
	return !osnoise->refused[0] || (osnoise_give_back(osnoise, instances), false);
}

/* In this order: a tracer that still runs when its workload comes back starts it. */
static bool restore(int instances, const char *name)
{
	bool off = tracer_set(instances, name, "nop") || errno == ENOENT;
	return off && option_set(instances, WORKLOAD) && tracefs_remove(instances, name);
}

bool osnoise_give_back(struct tracer *osnoise, int instances)
{
	if (osnoise->held < 0)
		return true;
	close(osnoise->held);
	osnoise->held = -1;
	return restore(instances, osnoise->name);
}

bool osnoise_mend(int instances, const char *name)
{
	size_t length = strlen(name), end = strlen(SUFFIX);
	if (length <= end || strcmp(name + length - end, SUFFIX) != 0 || faccessat(instances, name, F_OK, 0) != 0)
		return true;
	return restore(instances, name);
}
