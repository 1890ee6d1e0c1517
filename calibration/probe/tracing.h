/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's tracing of a few CPUs, in an instance of its own: nobody else's tracing is touched, and nothing stays behind
 * on whatever way the process ends. */
#pragma once

#include <dirent.h>
#include <stdio.h>
#include <sys/types.h>

#include "affinity.h"
#include "causes.h"
#include "clock.h"

/* -- the files of tracefs, by a directory that is open: it need not be mounted anywhere (tracefs.c) -- */

/* Writes the text in one piece; false with errno set. */
bool tracefs_put(int directory, const char *path, const char *text);
/* Reads the beginning of a file, as far as it fits; false when there is none. */
bool tracefs_get(int directory, const char *path, char *text, size_t size);
/* Whether a list of words, which the kernel separates by blanks, has one. */
bool tracefs_lists(int directory, const char *path, const char *word);
/* Lists a directory from its beginning; NULL where it cannot be read. */
DIR *tracefs_open(int directory);
/* Removes an instance of tracing; true also where there is none. */
bool tracefs_remove(int instances, const char *name);

/* A tracer whose settings are the machine's: they are changed while it runs, and only where nobody else uses it. All that
 * have the directory of tracefs's instances return false with `refused`. */
struct tracer {
	char refused[256]; /* why it is not used; empty: it is */
	int settings;      /* their directory, locked while it is open; negative: none */
	/* An instance that exists as long as the settings are changed: whoever finds it can put them back, whatever became of
	 * this process. */
	char name[96];
	int held; /* a file of it: what is open cannot be removed by others; negative: the settings are as they were */
};
#define TRACER_CLOSED {.settings = -1, .held = -1}

bool tracer_refuse(struct tracer *tracer, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Makes it the tracer of an instance; false with errno set. */
bool tracer_set(int instances, const char *name, const char *tracer);
/* Whether no instance has the tracer `one`, or `other` (NULL: only one). */
bool tracer_unused(struct tracer *tracer, int instances, const char *one, const char *other);
/* Locks its settings, a directory. */
bool tracer_lock(struct tracer *tracer, int instances, const char *settings, const char *name);
/* Makes the instance that tells of changed settings. */
bool tracer_remember(struct tracer *tracer, int instances);
/* Closes what is open; the settings stay as they are. */
void tracer_close(struct tracer *tracer);

/* -- the tracing -- */

/* Kernel memory for the events of one CPU: some 150,000 events, a quarter of an hour of a quiet CPU. */
#define TRACING_BYTES (8u << 20)
/* For those of all CPUs together. */
#define TRACING_BYTES_ALL (512u << 20)

struct hwlat_settings {
	uint64_t width_us;  /* a thread looks for so long, */
	uint64_t window_us; /* once in each of these */
	char mode[16];
};

struct tracing {
	char refused[320];          /* why there is no tracing; empty: there is */
	int instances, instance;    /* directories */
	int on;                     /* `tracing_on`: held open, it keeps others from removing the instance */
	char name[32];              /* of the instance */
	char tracers[160];          /* those of the kernel that look for noise, separated by blanks */
	size_t events;              /* of ours that the kernel has */
	bool counter;               /* the events' clock is the processor's counter; else the raw clock in whole us */
	struct clock_bracket began; /* ties the raw clock to ours */
	struct tracer osnoise;      /* while something is recorded */
	bool firmware;              /* no events are recorded, but what hwlat sees */
	struct tracer hwlat;
	struct hwlat_settings wanted;
	pid_t guardian;
	int guardian_socket;
};

/* Sets everything up but turns nothing on; false with `refused`. To be called before memory is touched that is measured
 * with: the guardian is forked. Removes what killed processes left. For events where `hwlat` is NULL, else for the tracer
 * hwlat with such settings. */
bool tracing_open(struct tracing *tracing, const struct cpu_list *cpus, const struct hwlat_settings *hwlat);
/* Kernel memory for each of so many CPUs. */
size_t tracing_bytes(size_t cpus);
/* Enables the events, or hwlat, and records, appending to what was recorded; false with `refused`. */
bool tracing_start(struct tracing *tracing);
/* Stops recording and disables the events, so that they cost nothing. */
void tracing_stop(struct tracing *tracing);
/* How the events' times become ticks of our clock. */
struct trace_clock tracing_clock(const struct tracing *tracing);
/* What was recorded of one CPU, as text; NULL with errno set. */
FILE *tracing_text(const struct tracing *tracing, unsigned cpu);
/* Events of that CPU that did not fit; negative where the kernel does not tell. */
int64_t tracing_lost(const struct tracing *tracing, unsigned cpu);
void tracing_close(struct tracing *tracing);
/* Part of tracing_open: starts the process that puts everything right when this one has ended. */
bool tracing_guard(struct tracing *tracing, const struct cpu_list *cpus);

/* -- the kernel's tracer osnoise, run without its own workload, so that it accounts for what interrupts ours (osnoise.c).
 * The instance that it runs in is apart from the recording one, which a change of tracer would empty. `instances` is the
 * directory of tracefs's instances, in which the recording one is called `own`. -- */

/* Looks whether it can be used for those CPUs; changes nothing. */
void osnoise_open(struct tracer *osnoise, int instances, const char *own, const struct cpu_list *cpus);
/* Turns the workload off and the tracer on; false with `refused`, and all as it was. */
bool osnoise_take(struct tracer *osnoise, int instances);
/* Turns the tracer off and the workload on; false where that is not what is read back. */
bool osnoise_give_back(struct tracer *osnoise, int instances);
/* Does what osnoise_give_back does for an instance that another process left, if there is one of that name. */
bool osnoise_mend(int instances, const char *name);

/* -- the kernel's tracer hwlat: a thread on each CPU reads the clock with interrupts off, so that a gap is not the operating
 * system's (hwlat.c). It runs in the instance `own`; that which remembers has the settings before in its name. -- */

/* Looks whether it can be used; changes nothing. */
void hwlat_open(struct tracer *hwlat, int instances, const char *own);
/* Changes the settings and makes it the tracer of `own`; false with `refused`. hwlat_mend undoes what was done. */
bool hwlat_take(struct tracer *hwlat, int instances, const char *own, const struct hwlat_settings *wanted);
/* Gaps shorter than this are not recorded, while it is taken; 0 with `refused` where the kernel does not tell. */
uint64_t hwlat_threshold_ns(struct tracer *hwlat, int instances);
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
