/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's tracer hwlat: a thread on each CPU reads the clock with interrupts off, so that a gap is not the operating
 * system's. Its settings are the machine's: they are changed while it runs, and only where nobody else uses it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct hwlat_settings {
	uint64_t width_us;  /* a thread looks for so long, */
	uint64_t window_us; /* once in each of these */
	char mode[16];
};

struct hwlat {
	char refused[256]; /* why it is not used; empty: it is */
	int settings;      /* their directory, locked while it is open; negative: none */
	struct hwlat_settings wanted;
	/* An instance that does nothing. It exists as long as the settings are changed, and its name tells what they were: whoever
	 * finds it can put them back, whatever became of this process. */
	char name[96];
	int held; /* a file of it: what is open cannot be removed by others */
};

/* Looks whether it can be used with such settings; changes nothing. `instances` is the directory of tracefs's instances, in
 * which the one that it is to run in is called `own`. */
void hwlat_open(struct hwlat *hwlat, int instances, const char *own, const struct hwlat_settings *wanted);
/* Changes the settings and makes it the tracer of `own`; false with `refused`. hwlat_mend undoes what was done. */
bool hwlat_take(struct hwlat *hwlat, int instances, const char *own);
/* Gaps shorter than this are not recorded, while it is taken; 0 with `refused` where the kernel does not tell. */
uint64_t hwlat_threshold_ns(struct hwlat *hwlat, int instances);
/* Closes what is open; the settings stay as they are. */
void hwlat_close(struct hwlat *hwlat);
/* Where an instance of this name says that settings were changed: ends the tracer and puts them back, then removes the
 * instance. False where that is not what is read back. */
bool hwlat_mend(int instances, const char *name);

/* One line of the trace: what was seen in one window. */
struct hwlat_window {
	int64_t at_unix_ns; /* when its first gap was over */
	uint64_t longest_us;
	uint64_t gaps;
	uint64_t nmis; /* those take the CPU too */
};
/* False where the line is none of the tracer's. */
bool hwlat_line(const char *line, struct hwlat_window *window);
