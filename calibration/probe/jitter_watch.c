// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "allocate.h"
#include "clock.h"
#include "jitter.h"
#include "stopping.h"

/* Counters are read often enough to separate causes that come and go, and no more often than keeps the reading CPU
 * 97 % idle; more slices than this add memory and no knowledge. */
#define SLICE_MIN_S 0.1
#define SLICE_COST 40.0
#define SLICES_MAX 600u
/* Of all CPUs together: 60 slices of 504, whose answer is then a third as long as with 600. The rounds of a long run add up. */
#define SLICES_OF_ALL_MAX 30000u
/* What the readings of all slices take at most: 128 of 1000 rows and 255 CPUs. */
#define READINGS_BYTES (256u << 20)
/* Rows of /proc/interrupts and /proc/softirqs that count something, of large servers; of more there are fewer readings. */
#define READINGS_ROWS 1024u
/* Of the time without tracing, for each part with it. */
#define TRACED_SHARE 0.25
/* The interrupts that enabling an event sends to all CPUs are over by then. */
#define TRACE_SETTLE_NS 50000000u

size_t jitter_readings_bytes(void)
{
	size_t bytes = jitter.cpus.count * SLICES_MAX * READINGS_ROWS * sizeof(uint64_t);
	return bytes < READINGS_BYTES ? bytes : READINGS_BYTES;
}

/* As many as are worth their place in the document. */
static uint64_t slices_most(void)
{
	const uint64_t share = SLICES_OF_ALL_MAX / jitter.cpus.count;
	return share > SLICES_MAX ? SLICES_MAX : share < SLICES_MIN ? SLICES_MIN : share;
}

uint64_t jitter_slices(void)
{
	const uint64_t most = slices_most();
	return jitter_options.gap_s < (double)most * SLICE_MIN_S ? (uint64_t)(jitter_options.gap_s / SLICE_MIN_S) + 1
	                                                         : most;
}

void jitter_continue_all(void)
{
	for (size_t i = 0; i < jitter.cpus.count; i++)
		if (!jitter.stations[i].lost)
			worker_continue(&jitter.stations[i].worker);
}

static void stop_all(bool stop)
{
	for (size_t i = 0; i < jitter.cpus.count; i++) {
		struct station *station = &jitter.stations[i];
		atomic_store(&station->stop, stop || station->worker.error.code != ERROR_NONE);
	}
}

/* Whether a CPU's views count. A thread that is found elsewhere has lost them and stops: where it is now it would disturb
 * another. */
static bool counts(struct station *station)
{
	struct error *error = &station->worker.error;
	if (error->code != ERROR_NONE || affinity_kept(station->thread, station->cpu))
		return error->code == ERROR_NONE;
	atomic_store(&station->stop, true);
	return affinity_left(station->cpu, error);
}

static bool any_counts(void)
{
	bool any = false;
	for (size_t i = 0; i < jitter.cpus.count; i++)
		any = counts(&jitter.stations[i]) || any;
	return any;
}

static void wait_all(void)
{
	for (size_t i = 0; i < jitter.cpus.count; i++)
		if (!jitter.stations[i].lost)
			worker_wait(&jitter.stations[i].worker);
}

/* How long an interval of the slowest CPU will be, by its warm-up. */
static uint64_t expected_interval_ns(void)
{
	double most = 0;
	for (size_t i = 0; i < jitter.cpus.count; i++)
		most = fmax(most, jitter.stations[i].pma.expected_ticks);
	return (uint64_t)clock_ns(most);
}

/* Takes a snapshot when the slowest CPU has finished each interval. Sleeps until the end is due rather than asking
 * again and again, because on a small machine asking would be the interference. */
static void watch_intervals(void)
{
	uint64_t last_ns = clock_raw_ns(), length_ns = 0, number = 0;
	for (bool over = !any_counts(); !over && number <= jitter_options.intervals; number += !over) {
		for (size_t i = 0; !over && i < jitter.cpus.count; i++) {
			struct pma *pma = &jitter.stations[i].pma;
			while (counts(&jitter.stations[i]) && !over &&
			       atomic_load_explicit(&pma->finished, memory_order_acquire) <= number) {
				uint64_t passed = clock_raw_ns() - last_ns;
				/* Over, unless the interval was finished between the two looks. */
				over = atomic_load_explicit(&pma->over, memory_order_acquire) &&
				       atomic_load_explicit(&pma->finished, memory_order_acquire) <= number;
				uint64_t wait_ns = passed < length_ns ? length_ns - passed + 1000000 : 2000000 + length_ns / 200;
				if (!over && stop_sleep_ns(wait_ns))
					nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
			}
		}
		over = over || !any_counts();
		if (over)
			break;
		snapshot_take_quietly(&jitter.snapshots[number], &jitter.cpus);
		uint64_t now = clock_raw_ns();
		length_ns = number == 0 ? expected_interval_ns() : now - last_ns;
		last_ns = now;
	}
	jitter.reported = number > 0 ? number - 1 : 0;
	jitter.pma_stopped = number > jitter_options.intervals ? "intervals" : "interrupted";
}

static double seconds_since(uint64_t ticks)
{
	return (double)(clock_stop() - ticks) / clock_now_used.hz;
}

/* Watches gaps while the kernel is traced. Where tracing cannot be turned on, or the work is to end, the threads go through
 * their part at once. */
static void watch_traced(unsigned part)
{
	struct snapshot *before = &jitter.watch.traced_before[part], *after = &jitter.watch.traced_after[part];
	bool on = !stop_requested() && tracing_start(&jitter.watch.tracing);
	jitter.watch.parts += on;
	(void)stop_sleep_ns(TRACE_SETTLE_NS);
	stop_all(!on || stop_requested());
	snapshot_take(before, &jitter.cpus);
	jitter_continue_all();
	if (on && stop_sleep_ns((uint64_t)clock_ns((double)jitter.traced_ticks)))
		stop_all(true);
	wait_all();
	snapshot_take_again(after, before);
	if (on)
		tracing_stop(&jitter.watch.tracing);
	(void)stop_sleep_ns(TRACE_SETTLE_NS);
	stop_all(false);
}

/* Reads counters in slices while the gaps are watched. */
static void watch_gaps(void)
{
	const double seconds = jitter_options.gap_s;
	size_t cpus = jitter.cpus.count;
	int *threads = allocate(cpus, sizeof(*threads));
	for (size_t i = 0; i < cpus; i++)
		threads[i] = jitter.stations[i].thread;
	readings_open(&jitter.watch.readings, &jitter.cpus, threads, SLICES_MAX + 2);
	jitter.gap_ticks = (uint64_t)(seconds * clock_now_used.hz);
	snapshot_take(&jitter.watch.before, &jitter.cpus);
	/* The first readings tell what one costs. */
	double cost = 0;
	for (unsigned i = 0; i < 2; i++) {
		uint64_t before = clock_start();
		readings_take(&jitter.watch.readings);
		cost = seconds_since(before);
		if (i == 0)
			readings_forget(&jitter.watch.readings);
	}
	jitter_continue_all();
	bool spare = affinity_spares(&jitter.cpus);
	if (spare && !stop_sleep_ns((uint64_t)(GAPS_WARM_UP_S * 1e9))) {
		/* The first slice begins with the observation. */
		readings_forget(&jitter.watch.readings);
		readings_take(&jitter.watch.readings);
	}
	double most = (double)readings_room(&jitter.watch.readings, jitter_readings_bytes(), slices_most());
	double slice = SLICE_COST * cost;
	slice = slice > SLICE_MIN_S ? slice : SLICE_MIN_S;
	slice = slice > seconds / most ? slice : seconds / most;
	/* Where all CPUs are measured a look would interrupt one of them. */
	slice = spare ? slice : seconds;
	for (uint64_t began = clock_stop();;) {
		double left = seconds - seconds_since(began);
		if (left <= 0 || stop_sleep_ns((uint64_t)((slice < left ? slice : left) * 1e9)))
			break;
		if (seconds_since(began) >= seconds || !any_counts())
			break;
		if (spare)
			readings_take(&jitter.watch.readings);
	}
	jitter.watch.stopped = stop_requested() ? "interrupted" : "time";
	if (stop_requested())
		stop_all(true);
	wait_all();
	readings_take(&jitter.watch.readings);
	snapshot_take_again(&jitter.watch.after, &jitter.watch.before);
}

void jitter_watch(void)
{
	if (jitter.pma) {
		jitter_continue_all();
		watch_intervals();
		wait_all();
	}
	/* Told to stop already, the second view is not begun: its threads go through what is left together, at once. */
	unsigned parts = !jitter.gaps ? 0 : jitter.watch.traced ? 1 + TRACED_PARTS : 1;
	jitter.traced_ticks = (uint64_t)(TRACED_SHARE * jitter_options.gap_s * clock_now_used.hz);
	if (jitter.watch.traced && !stop_requested()) {
		watch_traced(0);
		parts--;
	}
	if (jitter.gaps && !stop_requested()) {
		watch_gaps();
		if (jitter.watch.traced)
			watch_traced(1);
		parts = 0;
	}
	stop_all(true);
	for (; parts > 0; parts--) {
		jitter_continue_all();
		wait_all();
	}
}
