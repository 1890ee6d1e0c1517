// SPDX-License-Identifier: Apache-2.0
/* Wake-ups: their histogram, the latest of many, what is missed, and when the first is due. The source itself is compiled
 * here, because none of this is of use to other sources. */
#include <time.h>

#include "worker.h"

static unsigned supervisor_waits_s;

/* The supervising thread, which has to wait for its CPU before it lets a measuring thread go on. */
static void continue_late(struct worker *worker)
{
	nanosleep(&(struct timespec){.tv_sec = supervisor_waits_s}, NULL);
	worker_continue(worker);
}
#define worker_continue continue_late

#include "clock.h"

static unsigned unix_reads, unix_good;

/* A thread that loses its CPU on the way from one clock to the other, but for the reading of one number. */
static uint64_t read_late_ns(clockid_t which)
{
	if (which == CLOCK_REALTIME && unix_good && ++unix_reads != unix_good)
		nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
	return clock_read_ns(which);
}
#define clock_read_ns read_late_ns
#include "housekeeping.c"
#include "wakeup.c"

#include "host.h"
#include "random.h"

/* The books of wake-ups whose lateness is known, against what counting them one by one gives. */
static bool case_wake_books(struct error *error)
{
	enum { WAKES = 20000, KEPT = 7 };
	static struct view view;
	static uint64_t late[WAKES];
	struct wake worst[KEPT];
	struct random random;
	uint64_t above = 0, sum = 0, most = 0;
	random_seed(&random, 3);
	options.worst = KEPT;
	work.period_ns = 1000000;
	view.worst = worst;
	for (size_t i = 0; i < WAKES; i++) {
		uint64_t deadline = 1000000000 + i * 1000000;
		late[i] = random_below(&random, 1u << (10 + i % 15));
		above += late[i] >= 20000;
		most = late[i] > most ? late[i] : most;
		EXPECT(view_take(&view, deadline, deadline + late[i]) == late[i] / 1000000);
	}
	for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++)
		sum += view.late_ns.counts[i];
	EXPECT(sum == WAKES && view.wakes == WAKES && view.above[1] == above && view.late_ns.longest == most &&
	       view.early == 0);
	EXPECT(view.kept == KEPT && worst[0].late_ns == most);
	for (size_t rank = 0; rank < KEPT; rank++) {
		size_t later = 0, same = 0;
		for (size_t i = 0; i < WAKES; i++) {
			later += late[i] > worst[rank].late_ns;
			same += late[i] == worst[rank].late_ns;
		}
		EXPECT(later <= rank && later + same > rank);
	}
	EXPECT(view_take(&view, 2000, 1000) == 0 && view.early == 1 && view.late_ns.counts[0] > 0 && view.min_ns == 0);
	return true;
}

/* As late as a threshold is at least so late, and a ns less is not. */
static bool case_thresholds(struct error *error)
{
	static struct view view;
	struct wake worst;
	options.worst = 1;
	work.period_ns = 1000000000;
	view.worst = &worst;
	for (size_t i = 0; i < THRESHOLDS; i++) {
		const uint64_t before = view.above[i];
		(void)view_take(&view, 1000, 1000 + thresholds_ns[i] - 1);
		EXPECT(view.above[i] == before);
		(void)view_take(&view, 1000, 1000 + thresholds_ns[i]);
		EXPECT(view.above[i] == before + 1);
	}
	return true;
}

/* Wherever the supervising thread waits for its CPU between two clocks, wake-ups have their time. */
static bool case_unix_time(struct error *error)
{
	unix_good = OFFSET_TRIES / 2;
	const uint64_t offset_ns = unix_offset_ns();
	unix_good = 0;
	/* However long these take, the second is between the others. */
	const uint64_t before_ns = clock_read_ns(CLOCK_MONOTONIC), unix_ns = clock_read_ns(CLOCK_REALTIME);
	const uint64_t after_ns = clock_read_ns(CLOCK_MONOTONIC), tolerance_ns = 100000000;
	EXPECT(unix_reads == OFFSET_TRIES && unix_ns - offset_ns + tolerance_ns > before_ns &&
	       unix_ns - offset_ns < after_ns + tolerance_ns);
	return true;
}

/* What the supervising thread waits for is no lateness of the measuring ones. */
static bool case_released_late(struct error *error)
{
	options.worst = 1;
	work.period_ns = 1000000;
	work.seconds_ns = 20000000;
	cpu_list_add(&work.cpus, affinity_allowed()->cpus[0]);
	work.passes = allocate(1, sizeof(*work.passes));
	work.count = 1;
	supervisor_waits_s = 3;
	if (!sleepers_open(error) || !run_passes(error))
		return false;
	EXPECT(work.sleepers[0].views[0].wakes > 0 && work.sleepers[0].views[0].late_ns.longest < 1500000000);
	return true;
}

/* One process of the load that is gone is an error, and the other is not waited for in vain. */
static bool case_lost_forker(struct error *error)
{
	struct error lost = {0};
	unsigned twice[] = {affinity_allowed()->cpus[0], affinity_allowed()->cpus[0]};
	struct housekeeping load = {.cpus = {twice, 2}};
	if (!housekeeping_open(&load, error))
		return false;
	EXPECT(kill(load.forkers[0].process, SIGKILL) == 0 && waitpid(load.forkers[0].process, NULL, 0) > 0);
	alarm(60);
	bool began = housekeeping_begin(&load, &lost);
	(void)housekeeping_end(&load, &lost);
	alarm(0);
	housekeeping_close(&load);
	free(load.forkers);
	EXPECT(!began && lost.code == ERROR_INTERNAL);
	return true;
}

/* Each process of the load sees that its socket is closed, whatever those started after it have inherited. */
static bool case_closed_forkers(struct error *error)
{
	unsigned twice[] = {affinity_allowed()->cpus[0], affinity_allowed()->cpus[0]};
	struct housekeeping load = {.cpus = {twice, 2}};
	if (!housekeeping_open(&load, error))
		return false;
	alarm(60);
	housekeeping_close(&load);
	alarm(0);
	bool gone = kill(load.forkers[0].process, 0) != 0 && kill(load.forkers[1].process, 0) != 0;
	free(load.forkers);
	EXPECT(gone);
	return true;
}

static const struct host_case cases[] = {
	CASE(wake_books), CASE(thresholds), CASE(unix_time), CASE(released_late), CASE(lost_forker), CASE(closed_forkers),
};

int main(int count, char **words)
{
	(void)words;
	/* The load starts this program in place of sutprobe. */
	if (count > 1)
		return 0;
	struct error error = {0};
	clock_begin();
	if (!affinity_begin(&error))
		return 1;
	return host_run(cases, sizeof(cases) / sizeof(cases[0]));
}
