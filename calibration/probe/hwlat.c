// SPDX-License-Identifier: Apache-2.0
#include "tracing.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "text.h"

#define TRACER "hwlat"
/* From the directory of the instances. */
#define SETTINGS "../hwlat_detector"
/* Between the name of the instance that it runs in and the settings to be put back. */
#define INFIX "-" TRACER "-"
#define NUMBER_BYTES 24

static bool number_get(int instances, const char *path, uint64_t *value)
{
	char text[NUMBER_BYTES];
	const char *at = text;
	return tracefs_get(instances, path, text, sizeof(text)) && text_decimal(&at, value);
}

static bool number_put(int instances, const char *path, uint64_t value)
{
	char text[NUMBER_BYTES];
	snprintf(text, sizeof(text), "%" PRIu64, value);
	return tracefs_put(instances, path, text);
}

/* The kernel lists the modes with the one in use in brackets. */
static bool mode_get(int instances, char mode[16])
{
	char text[128];
	if (!tracefs_get(instances, SETTINGS "/mode", text, sizeof(text)))
		return false;
	const char *open = strchr(text, '[');
	return sscanf(open ? open + 1 : text, "%15[a-z-]", mode) == 1;
}

static bool settings_get(int instances, struct hwlat_settings *settings)
{
	return number_get(instances, SETTINGS "/width", &settings->width_us) &&
	       number_get(instances, SETTINGS "/window", &settings->window_us) && mode_get(instances, settings->mode);
}

static bool settings_put(int instances, const struct hwlat_settings *wanted)
{
	struct hwlat_settings found = {0};
	/* The kernel refuses a width that is not below the window: whichever order of the two is refused, the other is not. */
	bool width = number_put(instances, SETTINGS "/width", wanted->width_us);
	(void)number_put(instances, SETTINGS "/window", wanted->window_us);
	if (!width)
		(void)number_put(instances, SETTINGS "/width", wanted->width_us);
	(void)tracefs_put(instances, SETTINGS "/mode", wanted->mode);
	return settings_get(instances, &found) && found.width_us == wanted->width_us &&
	       found.window_us == wanted->window_us && !strcmp(found.mode, wanted->mode);
}

void hwlat_open(struct tracer *hwlat, int instances, const char *own)
{
	struct hwlat_settings found = {0};
	*hwlat = (struct tracer)TRACER_CLOSED;
	if (!tracefs_lists(instances, "../available_tracers", TRACER))
		(void)tracer_refuse(hwlat, "this kernel has no tracer hwlat (CONFIG_HWLAT_TRACER)");
	else if (!settings_get(instances, &found))
		(void)tracer_refuse(hwlat,
		                    "this kernel's hwlat has no threads per CPU (hwlat_detector/mode, from Linux 5.14 on)");
	/* Only when it is locked: who had the lock until then has put back what it changed. */
	else if (tracer_lock(hwlat, instances, SETTINGS, TRACER) && tracer_unused(hwlat, instances, TRACER, NULL) &&
	         !settings_get(instances, &found))
		(void)tracer_refuse(hwlat, "reading hwlat_detector: %s", strerror(errno));
	snprintf(hwlat->name, sizeof(hwlat->name), "%s" INFIX "%" PRIu64 "-%" PRIu64 "-%s", own, found.width_us,
	         found.window_us, found.mode);
	if (hwlat->refused[0])
		tracer_close(hwlat);
}

bool hwlat_take(struct tracer *hwlat, int instances, const char *own, const struct hwlat_settings *wanted)
{
	if (hwlat->refused[0] || !tracer_remember(hwlat, instances))
		return false;
	if (!settings_put(instances, wanted))
		return tracer_refuse(hwlat, "its width, window and mode could not be set (hwlat_detector)");
	return tracer_set(instances, own, TRACER) || tracer_refuse(hwlat, "turning hwlat on: %s", strerror(errno));
}

uint64_t hwlat_threshold_ns(struct tracer *hwlat, int instances)
{
	uint64_t threshold_us = 0;
	if (!number_get(instances, "../tracing_thresh", &threshold_us) || !threshold_us)
		(void)tracer_refuse(hwlat,
		                    "the kernel does not tell from which length on hwlat records a gap (tracing_thresh)");
	return threshold_us * 1000;
}

/* The number after `word` and blanks at *at, which moves past it. */
static bool number_after(const char **at, const char *word, uint64_t *value)
{
	const char *number = text_after(text_skip_blanks(*at), word);
	if (!number)
		return false;
	*at = text_skip_blanks(number);
	return text_decimal(at, value);
}

bool hwlat_mend(int instances, const char *name)
{
	char own[sizeof(((struct tracer *)NULL)->name)];
	struct hwlat_settings before = {0};
	const char *infix = strstr(name, INFIX);
	if (!infix || strlen(name) >= sizeof(own) || faccessat(instances, name, F_OK, 0) != 0)
		return true;
	snprintf(own, sizeof(own), "%.*s", (int)(infix - name), name);
	const char *at = infix;
	if (!number_after(&at, INFIX, &before.width_us) || !number_after(&at, "-", &before.window_us) || *at != '-')
		return false;
	snprintf(before.mode, sizeof(before.mode), "%s", at + 1);
	bool off = tracer_set(instances, own, "nop") || errno == ENOENT;
	return off && settings_put(instances, &before) && tracefs_remove(instances, name);
}

bool hwlat_line(const char *line, struct hwlat_window *window)
{
	uint64_t inner, outer, seconds, nanoseconds;
	const char *at = strstr(line, "inner/outer(us):"), *nmis = strstr(line, "nmi-count:");
	*window = (struct hwlat_window){0};
	if (!at || !number_after(&at, "inner/outer(us):", &inner) || !number_after(&at, "/", &outer) ||
	    !number_after(&at, "ts:", &seconds) || !number_after(&at, ".", &nanoseconds) ||
	    !number_after(&at, "count:", &window->gaps))
		return false;
	window->longest_us = inner > outer ? inner : outer;
	window->at_unix_ns = (int64_t)(seconds * 1000000000 + nanoseconds);
	return !nmis || number_after(&nmis, "nmi-count:", &window->nmis);
}
