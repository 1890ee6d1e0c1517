// SPDX-License-Identifier: Apache-2.0
#include "planting.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "affinity.h"
#include "allocate.h"
#include "causes.h"
#include "clock.h"
#include "injection.h"
#include "realtime.h"
#include "tracing.h"

/* Shorter than anything planted, and longer than turns of the loop with a slow clock. */
#define THRESHOLD_NS 1000.0
#define THRESHOLD_TURNS 4.0
/* Of what was planted so much must be found, and no more than so much; one at each end may be cut off. */
#define FOUND_MIN 0.9
#define FOUND_MAX 1.1
#define CUT_OFF 2.0

enum plant_kind { PLANT_TIMER, PLANT_TASK, PLANT_IPI, PLANTS };

static const struct {
	const char *what, *task;
	double busy_ns, period_ns;
	enum cause_class class;
	const char *name, *function; /* how it is found; the function where the kernel tells any */
} plants[PLANTS] = {
	[PLANT_TIMER] = {"timer that signals a bound thread", "planted-timer", 50e3, 10e6, CAUSE_TIMER, "hrtimer",
	                 "posix_timer_fn"},
	[PLANT_TASK] = {"bound thread", "planted-task", 300e3, 25e6, CAUSE_TASK, "planted-task", NULL},
	[PLANT_IPI] = {"interrupts by another CPU (counter read)", "planted-ipi", 0, 5e6, CAUSE_IPI, "function call",
	               "__perf_event_read"},
};

static struct plant {
	pthread_t thread;
	bool started;
	struct made_gaps made;
	/* results */
	uint64_t planted, found;
	bool ours; /* nobody else's can be among the found */
	double planted_ns, found_ns;
} running[PLANTS];

static struct {
	unsigned cpu;
	struct cpu_list measured;
	bool made, other_cpu;
	_Atomic bool over;
	struct gaps gaps;
	int thread;
	struct tracing tracing;
	struct causes causes;
	double busy;
	struct error error;
} fixture;

static void spin(struct plant *plant, double ns)
{
	make_gap(&plant->made, (uint64_t)(ns * clock_now_used.hz / 1e9));
}

static void run_timer(struct plant *plant)
{
	struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN};
	struct itimerspec every = {clock_timespec((uint64_t)plants[PLANT_TIMER].period_ns),
	                           clock_timespec((uint64_t)plants[PLANT_TIMER].period_ns)};
	const struct timespec longest = {.tv_sec = 1};
	sigset_t set;
	timer_t timer;
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN);
	event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
	if (pthread_sigmask(SIG_BLOCK, &set, NULL) != 0 || timer_create(CLOCK_MONOTONIC, &event, &timer) != 0)
		return;
	bool running = timer_settime(timer, 0, &every, NULL) == 0;
	while (running && !atomic_load(&fixture.over))
		if (sigtimedwait(&set, NULL, &longest) == SIGRTMIN && !atomic_load(&fixture.over))
			spin(plant, plants[PLANT_TIMER].busy_ns);
	timer_delete(timer);
}

static void run_task(struct plant *plant)
{
	const struct timespec pause = clock_timespec((uint64_t)plants[PLANT_TASK].period_ns);
	while (!atomic_load(&fixture.over)) {
		nanosleep(&pause, NULL);
		if (!atomic_load(&fixture.over))
			spin(plant, plants[PLANT_TASK].busy_ns);
	}
}

/* A counter of a CPU is read there: the kernel interrupts it whatever it runs, and waits for the answer. */
static void run_ipi(struct plant *plant)
{
	const struct timespec pause = clock_timespec((uint64_t)plants[PLANT_IPI].period_ns);
	struct perf_event_attr counter = {
		.type = PERF_TYPE_SOFTWARE, .size = sizeof(counter), .config = PERF_COUNT_SW_DUMMY};
	int descriptor = (int)syscall(SYS_perf_event_open, &counter, -1, (int)fixture.cpu, -1, PERF_FLAG_FD_CLOEXEC);
	uint64_t value;
	if (descriptor < 0)
		return;
	while (!atomic_load(&fixture.over)) {
		nanosleep(&pause, NULL);
		if (read(descriptor, &value, sizeof(value)) == (ssize_t)sizeof(value))
			spin(plant, 0);
	}
	close(descriptor);
}

static void *grow(void *argument)
{
	struct plant *plant = argument;
	size_t kind = (size_t)(plant - running);
	struct error ignored = {0};
	(void)prctl(PR_SET_NAME, plants[kind].task);
	if (kind == PLANT_IPI) {
		affinity_avoid(0, &fixture.measured);
		run_ipi(plant);
		return NULL;
	}
	if (!affinity_pin(fixture.cpu, &ignored) || !realtime_begin(1, &ignored))
		return NULL;
	if (kind == PLANT_TIMER)
		run_timer(plant);
	else
		run_task(plant);
	return NULL;
}

static void *watch(void *argument)
{
	double seconds = *(double *)argument;
	fixture.thread = (int)syscall(SYS_gettid);
	if (affinity_pin(fixture.cpu, &fixture.error))
		gaps_run(&fixture.gaps, (uint64_t)(seconds * clock_now_used.hz));
	return NULL;
}

static bool play(double seconds, struct error *error)
{
	pthread_t watching;
	int reason = 0;
	double shortest = THRESHOLD_NS * clock_now_used.hz / 1e9, turns = THRESHOLD_TURNS * gaps_turns().median;
	fixture.gaps.threshold_ticks = (uint64_t)(turns > shortest ? turns : shortest);
	for (size_t i = 0; i < PLANTS; i++) {
		running[i].made.capacity = (size_t)(seconds * 1e9 / plants[i].period_ns * 1.1) + 16;
		running[i].made.list = allocate(running[i].made.capacity, sizeof(struct gap));
	}
	for (size_t i = 0; i < PLANTS && reason == 0; i++)
		if ((i != PLANT_IPI || fixture.other_cpu) &&
		    (reason = pthread_create(&running[i].thread, NULL, grow, &running[i])) == 0)
			running[i].started = true;
	if (reason == 0 && (reason = pthread_create(&watching, NULL, watch, &seconds)) == 0)
		pthread_join(watching, NULL);
	atomic_store(&fixture.over, true);
	for (size_t i = 0; i < PLANTS; i++)
		if (running[i].started)
			pthread_join(running[i].thread, NULL);
	if (reason)
		return error_set(error, ERROR_INTERNAL, "a thread: %s", strerror(reason));
	if (fixture.error.code != ERROR_NONE)
		*error = fixture.error;
	return error->code == ERROR_NONE;
}

/* The sums of what was planted while gaps were watched, and of what was found under its name. */
static void compare(void)
{
	for (size_t p = 0; p < PLANTS; p++) {
		struct plant *plant = &running[p];
		size_t count = atomic_load(&plant->made.count);
		bool functions = false;
		for (size_t i = 0; i < count; i++) {
			const struct gap *gap = &plant->made.list[i];
			if (gap->at < fixture.gaps.begin || gap->at + gap->ticks > fixture.gaps.end)
				continue;
			plant->planted++;
			plant->planted_ns += clock_ns((double)gap->ticks);
		}
		for (size_t i = 0; i < fixture.causes.count && plants[p].function; i++)
			functions = functions || !strcmp(fixture.causes.list[i].function, plants[p].function);
		for (size_t i = 0; i < fixture.causes.count; i++) {
			const struct cause *cause = &fixture.causes.list[i];
			/* Older kernels tell no functions. Other architectures have "Function call interrupts"; POWER has one IPI
			 * for everything. */
			bool same = functions ? !strcmp(cause->function, plants[p].function)
			                      : strcasestr(cause->name, plants[p].name) || !strncmp(cause->name, "IPI", 3);
			if (cause->class == plants[p].class && same) {
				plant->found += cause->events;
				/* Several threads of one name have no number; and timers and interrupts are of whoever asks. */
				plant->ours = cause->class == CAUSE_TASK && cause->number >= 0;
				plant->found_ns += clock_ns(cause->ticks);
			}
		}
	}
	for (size_t i = 0; i < fixture.causes.count; i++)
		if (fixture.causes.list[i].class == CAUSE_TASK && strncmp(fixture.causes.list[i].name, "planted-", 8) != 0)
			fixture.busy += fixture.causes.list[i].ticks / (double)(fixture.gaps.end - fixture.gaps.begin);
}

static bool judge(char *note, size_t size, struct error *error)
{
	for (size_t p = 0; p < PLANTS; p++) {
		double planted = (double)running[p].planted, found = (double)running[p].found;
		if (!running[p].planted)
			snprintf(note, size, "nothing was planted of: %s", plants[p].what);
		else if (found < FOUND_MIN * planted - CUT_OFF || (running[p].ours && found > FOUND_MAX * planted + CUT_OFF))
			return error_set(error, ERROR_CHECK_FAILED, "%s: %.0f planted, %.0f traced", plants[p].what, planted,
			                 found);
	}
	return true;
}

bool planting_check(double seconds, char *note, size_t size, struct error *error)
{
	const struct cpu_list *allowed = affinity_allowed();
	fixture.cpu = allowed->cpus[allowed->count - 1];
	fixture.other_cpu = allowed->count > 1;
	cpu_list_add(&fixture.measured, fixture.cpu);
	if (!tracing_open(&fixture.tracing, &fixture.measured, NULL)) {
		snprintf(note, size, "nothing was planted: %s", fixture.tracing.refused);
		return true;
	}
	bool good = gaps_open(&fixture.gaps, GAP_RING, 0, error);
	if (good && tracing_start(&fixture.tracing)) {
		good = play(seconds, error);
		tracing_stop(&fixture.tracing);
		struct trace_clock clock = tracing_clock(&fixture.tracing);
		FILE *text = good ? tracing_text(&fixture.tracing, fixture.cpu) : NULL;
		if (good && (!text || !causes_read(&fixture.causes, text, fixture.gaps.ring, fixture.gaps.kept, fixture.thread,
		                                   false, &clock, tracing_lost(&fixture.tracing, fixture.cpu) > 0)))
			good = error_set(error, ERROR_INTERNAL, "reading what was traced: %s", strerror(errno));
		if (text)
			(void)fclose(text);
		if (good) {
			fixture.made = true;
			compare();
			good = judge(note, size, error);
		}
	} else if (good) {
		snprintf(note, size, "nothing was planted: %s", fixture.tracing.refused);
	}
	tracing_close(&fixture.tracing);
	return good;
}

void planting_write(struct json *json)
{
	if (!json_object_known(json, "plantings", fixture.made))
		return;
	json_u64(json, "cpu", fixture.cpu);
	json_f64(json, "wall_s", clock_ns((double)(fixture.gaps.end - fixture.gaps.begin)) / 1e9);
	json_array_begin(json, "plants");
	for (size_t p = 0; p < PLANTS; p++) {
		const struct plant *plant = &running[p];
		json_object_begin(json, NULL);
		json_text(json, "planted", plants[p].what);
		json_u64(json, "planted_events", plant->planted);
		json_f64_known(json, "planted_ns", plants[p].busy_ns > 0, plant->planted_ns);
		json_u64(json, "found_events", plant->found);
		json_f64(json, "found_ns", plant->found_ns);
		json_object_end(json);
	}
	json_array_end(json);
	json_f64(json, "other_threads_share", fixture.busy);
	json_u64(json, "explained_gaps", fixture.causes.gaps);
	json_f64(json, "explained_ns", clock_ns(fixture.causes.ticks));
	causes_write(json, &fixture.causes);
	json_object_end(json);
}
