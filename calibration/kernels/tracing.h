/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's tracing of a few CPUs, in an instance of its own: nobody else's tracing is touched, and nothing stays behind
 * on whatever way the process ends. */
#pragma once

#include <stdio.h>
#include <sys/types.h>

#include "affinity.h"
#include "causes.h"
#include "clock.h"
#include "hwlat.h"
#include "osnoise.h"

/* Kernel memory for the events of one CPU: some 150,000 events, a quarter of an hour of a quiet CPU. */
#define TRACING_BYTES (8u << 20)
/* For those of all CPUs together. */
#define TRACING_BYTES_ALL (512u << 20)

struct tracing {
	char refused[320];          /* why there is no tracing; empty: there is */
	int instances, instance;    /* directories */
	int on;                     /* `tracing_on`: held open, it keeps others from removing the instance */
	char name[32];              /* of the instance */
	char tracers[160];          /* those of the kernel that look for noise, separated by blanks */
	size_t events;              /* of ours that the kernel has */
	bool counter;               /* the events' clock is the processor's counter; else the raw clock in whole us */
	struct clock_bracket began; /* ties the raw clock to ours */
	struct osnoise osnoise;     /* while something is recorded */
	bool firmware;              /* no events are recorded, but what hwlat sees */
	struct hwlat hwlat;
	pid_t guardian;
	int guardian_socket;
};

/* Sets everything up but turns nothing on; false with `refused`. To be called before memory is touched that is measured
 * with: the guardian is forked. Removes what killed processes left. */
bool tracing_open(struct tracing *tracing, const struct cpu_list *cpus);
/* The same for the tracer hwlat with such settings, in place of events. */
bool tracing_open_hwlat(struct tracing *tracing, const struct cpu_list *cpus, const struct hwlat_settings *settings);
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
