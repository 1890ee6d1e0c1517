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
#include "wakeup.c"

#include "host.h"
#include "random.h"

/* Main's, which has a main of its own. */
void supervise_avoid(const struct cpu_list *measured)
{
	(void)measured;
}

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
static bool case_lost_chore(struct error *error)
{
	struct error lost = {0};
	unsigned twice[] = {affinity_allowed()->cpus[0], affinity_allowed()->cpus[0]};
	work.housekeeping = (struct cpu_list){twice, 2};
	if (!chores_open(error))
		return false;
	EXPECT(kill(work.chores[0].process, SIGKILL) == 0 && waitpid(work.chores[0].process, NULL, 0) > 0);
	alarm(60);
	bool began = chores_begin(&lost);
	(void)chores_end(&lost);
	alarm(0);
	chores_close();
	EXPECT(!began && lost.code == ERROR_INTERNAL);
	return true;
}

static const struct host_case cases[] = {
	{"wake_books", case_wake_books},
	{"released_late", case_released_late},
	{"lost_chore", case_lost_chore},
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
