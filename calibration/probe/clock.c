// SPDX-License-Identifier: Apache-2.0
#include "clock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "files.h"
#include "json.h"
#include "statistics.h"
#include "warning.h"

/* 10 ms keep the bound on the counter's frequency at some 5 ppm with brackets of 50 ns. A command that measures for longer
 * has a longer base line and a smaller bound; a longer minimum would be waited for by every short command of a run. */
#define CALIBRATION_NS 10000000u
/* Wider brackets (a clock read through a system call, a slow counter) need a longer base line; beyond 200 ms the wait would
 * cost a short command more than the ppm are worth, and the bound is printed and warned of instead. */
#define CALIBRATION_LONGEST_NS 200000000u
#define ROUGH_NS 2000000u
#define BRACKET_TRIES 100
#define READ_TRIES 1000

struct clock clock_now_used;

static struct clock_bracket first;
static char reason_text[200];
/* Whoever prints the clock may do so while the working thread, given up, still calibrates. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool settled;

struct clock_bracket clock_bracket_take(void)
{
	struct clock_bracket best = {.width = UINT64_MAX};
	for (int i = 0; i < BRACKET_TRIES; i++) {
		uint64_t before = arch_counter_start();
		uint64_t raw = clock_raw_ns();
		uint64_t after = arch_counter_stop();
		if (after - before < best.width)
			best = (struct clock_bracket){before + (after - before) / 2, after - before, raw};
	}
	return best;
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
	while (b) {
		uint64_t rest = a % b;
		a = b;
		b = rest;
	}
	return a;
}

/* Median cost of a start/stop pair, and the step of the counter: the common divisor of what successive reads show. */
static void measure_reads(void)
{
	static uint64_t costs[READ_TRIES];
	uint64_t step = 0;
	for (int i = 0; i < READ_TRIES; i++) {
		uint64_t before = clock_start();
		uint64_t after = clock_stop();
		costs[i] = after - before;
		step = common_divisor(step, after - before);
	}
	qsort(costs, READ_TRIES, sizeof(costs[0]), compare_u64);
	clock_now_used.read_cost_ticks = (double)costs[READ_TRIES / 2];
	clock_now_used.resolution_ticks = step ? (double)step : 1;
}

void clock_begin(void)
{
	char current[64];
	const char *reason = NULL;
	clock_now_used = (struct clock){0};
	clock_now_used.invariant = arch_counter_invariant(&reason);
	if (clock_now_used.invariant) {
		if (!file_line("/sys/devices/system/clocksource/clocksource0/current_clocksource", current, sizeof(current))) {
			reason = "the kernel's current clock source cannot be read";
		} else if (!arch_counter_clocksource(current)) {
			snprintf(reason_text, sizeof(reason_text),
			         "the kernel's current clock source is %s: it does not trust the counter either", current);
			reason = reason_text;
		}
	}
	clock_now_used.reason = reason;
	clock_now_used.counter = reason == NULL;
	if (clock_now_used.counter)
		first = clock_bracket_take();
	else
		first = (struct clock_bracket){.raw_ns = clock_raw_ns()};
	clock_now_used.hz = 1e9;
	measure_reads();
}

static void wait_since_first(uint64_t ns)
{
	for (;;) {
		uint64_t passed = clock_raw_ns() - first.raw_ns;
		if (passed >= ns)
			return;
		struct timespec rest = {.tv_nsec = (long)(ns - passed)};
		nanosleep(&rest, NULL);
	}
}

static void set_hz(uint64_t base_line_ns)
{
	if (!clock_now_used.counter)
		return; /* the raw clock is the reference itself */
	wait_since_first(base_line_ns);
	struct clock_bracket last = clock_bracket_take();
	double ticks = (double)(last.ticks - first.ticks);
	pthread_mutex_lock(&lock);
	clock_now_used.hz = ticks * 1e9 / (double)(last.raw_ns - first.raw_ns);
	clock_now_used.hz_uncertainty_ppm = (double)(first.width + last.width) / 2 / ticks * 1e6;
	settled = true;
	pthread_mutex_unlock(&lock);
}

void clock_settle(void)
{
	set_hz(ROUGH_NS);
}

void clock_finish(void)
{
	/* Once: every value of a document is converted with the same hz, and the document prints that one. */
	static atomic_flag finished = ATOMIC_FLAG_INIT;
	if (atomic_flag_test_and_set(&finished))
		return;
	set_hz(CALIBRATION_NS);
	double excess = clock_now_used.hz_uncertainty_ppm / CLOCK_BOUND_PPM;
	if (excess > 1) {
		/* The bound falls with the base line; a tenth more, because the next bracket may be wider than the last. */
		double wanted_ns = (double)(clock_raw_ns() - first.raw_ns) * excess * 1.1;
		set_hz(wanted_ns < CALIBRATION_LONGEST_NS ? (uint64_t)wanted_ns : CALIBRATION_LONGEST_NS);
	}
	if (clock_now_used.hz_uncertainty_ppm > CLOCK_BOUND_PPM)
		warning_add("CLOCK_UNCERTAIN",
		            "the counter's frequency is known within %.2g ppm only, not %g ppm: the system's clock can only be "
		            "read within %.0f ns",
		            clock_now_used.hz_uncertainty_ppm, CLOCK_BOUND_PPM, clock_ns((double)first.width));
}

double clock_ns(double ticks)
{
	return ticks * 1e9 / clock_now_used.hz;
}

void clock_write(struct json *json, const char *key)
{
	pthread_mutex_lock(&lock);
	struct clock used = clock_now_used;
	bool known = settled || !used.counter;
	pthread_mutex_unlock(&lock);
	if (!json_object_known(json, key, known))
		return;
	json_text(json, "source", used.counter ? ARCH_COUNTER : "monotonic_raw");
	json_f64(json, "hz", used.hz);
	json_f64(json, "hz_uncertainty_ppm", used.hz_uncertainty_ppm);
	json_bool(json, "invariant", used.invariant);
	json_f64(json, "read_cost_ns", used.read_cost_ticks * 1e9 / used.hz);
	json_f64(json, "resolution_ns", used.resolution_ticks * 1e9 / used.hz);
	json_text(json, "reason", used.reason);
	json_object_end(json);
}
