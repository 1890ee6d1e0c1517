// SPDX-License-Identifier: Apache-2.0
/* The settings of hwlat, put back where the kernel refuses a width that is not below the window, and a window that is not
 * above the width. The source itself is compiled here. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tracing.h"

static uint64_t width_us, window_us;
static char mode[16];

static bool put(int directory, const char *path, const char *value)
{
	const uint64_t number = strtoull(value, NULL, 10);
	const char *name = strrchr(path, '/') + 1;
	(void)directory;
	errno = EINVAL;
	if (!strcmp(name, "mode"))
		return strlen(value) < sizeof(mode) && strcpy(mode, value);
	bool width = !strcmp(name, "width");
	if (width ? number >= window_us : number <= width_us)
		return false;
	*(width ? &width_us : &window_us) = number;
	return true;
}

static bool get(int directory, const char *path, char *text, size_t size)
{
	const char *name = strrchr(path, '/') + 1;
	(void)directory;
	if (!strcmp(name, "mode"))
		return snprintf(text, size, "none [%s]", mode) < (int)size;
	return snprintf(text, size, "%llu", (unsigned long long)(!strcmp(name, "width") ? width_us : window_us)) <
	       (int)size;
}
#define tracefs_put put
#define tracefs_get get
#include "hwlat.c"

#include "host.h"

static bool case_either_order(struct error *error)
{
	static const struct hwlat_settings settings[] = {
		{400000, 800000, "round-robin"}, {90000, 100000, "per-cpu"}, {1000, 2000, "none"}};
	const size_t count = sizeof(settings) / sizeof(settings[0]);
	for (size_t from = 0; from < count; from++)
		for (size_t to = 0; to < count; to++) {
			width_us = settings[from].width_us;
			window_us = settings[from].window_us;
			EXPECT(settings_put(-1, &settings[to]) && width_us == settings[to].width_us &&
			       window_us == settings[to].window_us && !strcmp(mode, settings[to].mode));
		}
	return true;
}

HOST_CASES(CASE(either_order))
