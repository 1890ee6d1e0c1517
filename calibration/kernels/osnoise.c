// SPDX-License-Identifier: Apache-2.0
#include "osnoise.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tracefs.h"

/* From the directory of the instances. */
#define SETTINGS "../osnoise"
#define OPTIONS SETTINGS "/options"
/* Follows the name of the recording instance. */
#define SUFFIX "-osnoise"
#define WORKLOAD "OSNOISE_WORKLOAD"
#define NO_WORKLOAD "NO_" WORKLOAD

__attribute__((format(printf, 2, 3))) static bool refuse(struct osnoise *osnoise, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(osnoise->refused, sizeof(osnoise->refused), format, arguments);
	va_end(arguments);
	return false;
}

static bool option_set(int instances, const char *option)
{
	return tracefs_put(instances, OPTIONS, option) && tracefs_lists(instances, OPTIONS, option);
}

static bool tracer_set(int instances, const char *name, const char *tracer)
{
	char path[320];
	snprintf(path, sizeof(path), "%s/current_tracer", name);
	return tracefs_put(instances, path, tracer);
}

/* Whether one of the tracers runs there that the settings are for. */
static bool used_by(int instances, const char *name)
{
	char path[320];
	snprintf(path, sizeof(path), "%s/current_tracer", name);
	return tracefs_lists(instances, path, "osnoise") || tracefs_lists(instances, path, "timerlat");
}

/* Nothing is changed where somebody else would notice. */
static bool refuse_others(struct osnoise *osnoise, int instances)
{
	DIR *directory = tracefs_open(instances);
	if (!directory)
		return refuse(osnoise, "the instances of tracing cannot be listed, one of which may use it");
	for (const struct dirent *entry; (entry = readdir(directory));)
		/* The parent directory is that of the tracing that is no instance. */
		if (strcmp(entry->d_name, ".") != 0 && used_by(instances, entry->d_name))
			(void)refuse(osnoise, "osnoise or timerlat is in use (current_tracer in instances/%s)", entry->d_name);
	closedir(directory);
	if (!osnoise->refused[0] && !tracefs_lists(instances, OPTIONS, WORKLOAD))
		(void)refuse(osnoise, "osnoise is configured otherwise (" NO_WORKLOAD " in osnoise/options)");
	return !osnoise->refused[0];
}

/* The tracer watches the CPUs of a list that is the machine's, all of them unless somebody has changed it. */
static bool watches(struct osnoise *osnoise, int instances, const struct cpu_list *cpus)
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
	return all || refuse(osnoise, "it is set not to watch all of the measured CPUs (osnoise/cpus has '%.80s')", text);
}

void osnoise_open(struct osnoise *osnoise, int instances, const char *own, const struct cpu_list *cpus)
{
	*osnoise = (struct osnoise){.settings = -1, .held = -1};
	snprintf(osnoise->name, sizeof(osnoise->name), "%s" SUFFIX, own);
	if (!tracefs_lists(instances, "../available_tracers", "osnoise"))
		(void)refuse(osnoise, "this kernel has no osnoise tracer");
	else if (!tracefs_lists(instances, OPTIONS, WORKLOAD) && !tracefs_lists(instances, OPTIONS, NO_WORKLOAD))
		(void)refuse(osnoise,
		             "this kernel's osnoise cannot leave its workload out (no " WORKLOAD " in osnoise/options)");
	else if ((osnoise->settings = openat(instances, SETTINGS, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
		(void)refuse(osnoise, "opening its settings: %s", strerror(errno));
	else if (flock(osnoise->settings, LOCK_EX | LOCK_NB) != 0)
		(void)refuse(osnoise, "osnoise is in use, for example by another sutprobe (its settings are locked)");
	else
		(void)(watches(osnoise, instances, cpus) && refuse_others(osnoise, instances));
	if (osnoise->refused[0])
		osnoise_close(osnoise);
}

bool osnoise_take(struct osnoise *osnoise, int instances)
{
	char path[96];
	if (osnoise->refused[0] || !refuse_others(osnoise, instances))
		return false;
	/* One that is there already stands for nothing: the workload is on. */
	if (mkdirat(instances, osnoise->name, 0700) != 0 && errno != EEXIST)
		return refuse(osnoise, "an instance of tracing for it: %s", strerror(errno));
	/* It records nothing. */
	snprintf(path, sizeof(path), "%s/buffer_size_kb", osnoise->name);
	(void)tracefs_put(instances, path, "4");
	snprintf(path, sizeof(path), "%s/tracing_on", osnoise->name);
	osnoise->held = openat(instances, path, O_RDONLY | O_CLOEXEC);
	if (osnoise->held < 0)
		(void)refuse(osnoise, "opening the instance of tracing for it: %s", strerror(errno));
	else if (!option_set(instances, NO_WORKLOAD))
		(void)refuse(osnoise, "its workload could not be turned off (osnoise/options)");
	else if (!tracer_set(instances, osnoise->name, "osnoise"))
		(void)refuse(osnoise, "turning it on: %s", strerror(errno));
	return !osnoise->refused[0] || (osnoise_give_back(osnoise, instances), false);
}

/* In this order: a tracer that still runs when its workload comes back starts it. */
static bool restore(int instances, const char *name)
{
	bool off = tracer_set(instances, name, "nop") || errno == ENOENT;
	return off && option_set(instances, WORKLOAD) && tracefs_remove(instances, name);
}

bool osnoise_give_back(struct osnoise *osnoise, int instances)
{
	if (osnoise->held < 0)
		return true;
	close(osnoise->held);
	osnoise->held = -1;
	return restore(instances, osnoise->name);
}

void osnoise_close(struct osnoise *osnoise)
{
	if (osnoise->settings >= 0)
		close(osnoise->settings);
	osnoise->settings = -1;
}

bool osnoise_mend(int instances, const char *name)
{
	size_t length = strlen(name), end = strlen(SUFFIX);
	if (length <= end || strcmp(name + length - end, SUFFIX) != 0 || faccessat(instances, name, F_OK, 0) != 0)
		return true;
	return restore(instances, name);
}
