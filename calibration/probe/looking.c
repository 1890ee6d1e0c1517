// SPDX-License-Identifier: Apache-2.0
#include "looking.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>

#include "clock.h"
#include "json.h"
#include "warning.h"

/* Of a command's time without its looking: 3 % in all, half of it for the table of interrupts, which is by far the longest
 * where there are many CPUs, and half for everything else, so that the table cannot crowd that out. More would show in the
 * time a plan takes; with less, counters are left out on machines where they cost little. */
#define HALF_SHARE 0.015
/* Shorter commands may look for as long as one of this length: with less, the first placement of a short command would go
 * without the counters that tell whether it was disturbed. */
#define COMMAND_MIN_S 0.2

static struct {
	const char *key, *name;
	double spent_s, cost_s;
	uint64_t readings, left_out;
} looks[LOOKS] = {
	[LOOK_STAT] = {.key = "stat", .name = "/proc/stat"},
	[LOOK_SOFTIRQS] = {.key = "softirqs", .name = "/proc/softirqs"},
	[LOOK_VMSTAT] = {.key = "vmstat", .name = "/proc/vmstat"},
	[LOOK_THROTTLE] = {.key = "throttle", .name = "thermal throttle counts"},
	[LOOK_SMI] = {.key = "smi", .name = "SMI counts"},
	[LOOK_INTERRUPTS] = {.key = "interrupts", .name = "/proc/interrupts"},
	[LOOK_PAGES] = {.key = "pages", .name = "/proc/self/smaps"},
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t began_ns, measurements;

void looking_begin(void)
{
	began_ns = clock_raw_ns();
}

void looking_end(enum look look, uint64_t start_ns, bool whole)
{
	double took_s = (double)(clock_cpu_ns() - start_ns) / 1e9;
	pthread_mutex_lock(&lock);
	looks[look].spent_s += took_s;
	if (whole) {
		looks[look].readings++;
		looks[look].cost_s += (took_s - looks[look].cost_s) / (double)looks[look].readings;
	} else {
		/* So that the next one waits until it may take twice as long. */
		looks[look].cost_s = 4 * took_s;
	}
	pthread_mutex_unlock(&lock);
}

/* Of all looking. */
static double spent_s(void)
{
	double sum = 0;
	for (unsigned i = 0; i < LOOKS; i++)
		sum += looks[i].spent_s;
	return sum;
}

/* Of the command so far, without the looking. */
static double other_s(void)
{
	return (double)(clock_raw_ns() - began_ns) / 1e9 - spent_s();
}

double looking_limit(enum look look, unsigned readings)
{
	pthread_mutex_lock(&lock);
	double interrupts_s = looks[LOOK_INTERRUPTS].spent_s;
	double left_s = HALF_SHARE * fmax(other_s(), COMMAND_MIN_S) -
	                (look == LOOK_INTERRUPTS ? interrupts_s : spent_s() - interrupts_s);
	double limit_s = left_s < readings * looks[look].cost_s ? 0
	                 : looks[look].readings                 ? INFINITY
	                                                        : left_s / (2 * readings);
	pthread_mutex_unlock(&lock);
	return fmax(limit_s, 0);
}

void looking_count(void)
{
	measurements++;
}

void looking_leave_out(enum look look)
{
	looks[look].left_out++;
}

uint64_t looking_left_out(enum look look)
{
	return looks[look].left_out;
}

bool looking_any(void)
{
	return measurements > 0;
}

void looking_warn(void)
{
	char text[256] = "";
	size_t length = 0;
	for (enum look look = 0; look < LOOKS && length < sizeof(text); look++) {
		char cost[24] = ""; /* unknown where others left no time for the first reading */
		if (looks[look].cost_s > 0)
			snprintf(cost, sizeof(cost), " (%.2g ms each)", looks[look].cost_s * 1e3);
		if (looks[look].left_out)
			length += (size_t)snprintf(text + length, sizeof(text) - length, "%s%s in %" PRIu64 "%s",
			                           length ? ", " : "", looks[look].name, looks[look].left_out, cost);
	}
	if (length)
		warning_add("LOOKED_LESS",
		            "not read in all of %" PRIu64 " measurements, because it takes too long: left out %s", measurements,
		            text);
}

void looking_write(struct json *json)
{
	json_f64(json, "spent_s", spent_s());
	json_f64(json, "share", spent_s() / other_s());
	json_u64(json, "measurements", measurements);
	json_object_begin(json, "left_out");
	for (enum look look = 0; look < LOOKS; look++)
		if (looks[look].left_out)
			json_u64(json, looks[look].key, looks[look].left_out);
	json_object_end(json);
}
