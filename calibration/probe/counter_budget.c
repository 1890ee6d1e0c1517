// SPDX-License-Identifier: Apache-2.0
#include "counter_budget.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>

#include "clock.h"
#include "json.h"
#include "warning.h"

/* Of a command's time without these readings: 3 % in all, half of it for the table of interrupts, which is by far the longest
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
} sources[COUNTER_SOURCES] = {
	[COUNTER_STAT] = {.key = "stat", .name = "/proc/stat"},
	[COUNTER_SOFTIRQS] = {.key = "softirqs", .name = "/proc/softirqs"},
	[COUNTER_VMSTAT] = {.key = "vmstat", .name = "/proc/vmstat"},
	[COUNTER_THROTTLE] = {.key = "throttle", .name = "thermal throttle counts"},
	[COUNTER_SMI] = {.key = "smi", .name = "SMI counts"},
	[COUNTER_INTERRUPTS] = {.key = "interrupts", .name = "/proc/interrupts"},
	[COUNTER_PAGES] = {.key = "pages", .name = "/proc/self/smaps"},
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t began_ns, measurements;

void counter_budget_begin(void)
{
	began_ns = clock_raw_ns();
}

void counter_budget_end(enum counter_source source, uint64_t start_ns, bool whole)
{
	double took_s = (double)(clock_cpu_ns() - start_ns) / 1e9;
	pthread_mutex_lock(&lock);
	sources[source].spent_s += took_s;
	if (whole) {
		sources[source].readings++;
		sources[source].cost_s += (took_s - sources[source].cost_s) / (double)sources[source].readings;
	} else {
		/* So that the next one waits until it may take twice as long. */
		sources[source].cost_s = 4 * took_s;
	}
	pthread_mutex_unlock(&lock);
}

/* Of all readings. */
static double spent_s(void)
{
	double sum = 0;
	for (unsigned i = 0; i < COUNTER_SOURCES; i++)
		sum += sources[i].spent_s;
	return sum;
}

/* Of the command so far, without the readings. */
static double other_s(void)
{
	return (double)(clock_raw_ns() - began_ns) / 1e9 - spent_s();
}

double counter_budget_limit(enum counter_source source, unsigned readings)
{
	pthread_mutex_lock(&lock);
	double interrupts_s = sources[COUNTER_INTERRUPTS].spent_s;
	double left_s = HALF_SHARE * fmax(other_s(), COMMAND_MIN_S) -
	                (source == COUNTER_INTERRUPTS ? interrupts_s : spent_s() - interrupts_s);
	double limit_s = left_s < readings * sources[source].cost_s ? 0
	                 : sources[source].readings                 ? INFINITY
	                                                            : left_s / (2 * readings);
	pthread_mutex_unlock(&lock);
	return fmax(limit_s, 0);
}

void counter_budget_count(void)
{
	measurements++;
}

void counter_budget_leave_out(enum counter_source source)
{
	sources[source].left_out++;
}

uint64_t counter_budget_left_out(enum counter_source source)
{
	return sources[source].left_out;
}

bool counter_budget_any(void)
{
	return measurements > 0;
}

void counter_budget_warn(void)
{
	char text[256] = "";
	size_t length = 0;
	for (enum counter_source source = 0; source < COUNTER_SOURCES && length < sizeof(text); source++) {
		char cost[24] = ""; /* unknown where others left no time for the first reading */
		if (sources[source].cost_s > 0)
			snprintf(cost, sizeof(cost), " (%.2g ms each)", sources[source].cost_s * 1e3);
		if (sources[source].left_out)
			length += (size_t)snprintf(text + length, sizeof(text) - length, "%s%s in %" PRIu64 "%s",
			                           length ? ", " : "", sources[source].name, sources[source].left_out, cost);
	}
	if (length)
		warning_add("COUNTERS_SAMPLED_LESS",
		            "not read in all of %" PRIu64 " measurements, because it takes too long: left out %s", measurements,
		            text);
}

void counter_budget_write(struct json *json)
{
	json_f64(json, "spent_s", spent_s());
	json_f64(json, "share", spent_s() / other_s());
	json_u64(json, "measurements", measurements);
	json_object_begin(json, "left_out");
	for (enum counter_source source = 0; source < COUNTER_SOURCES; source++)
		if (sources[source].left_out)
			json_u64(json, sources[source].key, sources[source].left_out);
	json_object_end(json);
}
