// SPDX-License-Identifier: Apache-2.0
/* What is judged and what is not. Whether an interruption lies inside a recorded gap does not depend on the machine's own
 * noise, so that missing more than 1 % of them is always wrong; this also finds gaps that are recorded too short. Noise only
 * makes gaps longer, so that those recorded too long are told by the least disturbed ones, and only as well as the cost of an
 * interruption that does nothing is known. A period is told only as well as the injector kept it, and only where a train made
 * by arithmetic is found among the same gaps. Where that does not suffice the verdict is "inconclusive" and says why. */
#include "injection.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "affinity.h"
#include "allocate.h"
#include "clock.h"
#include "periods.h"
#include "realtime.h"
#include "selftest.h"
#include "statistics.h"
#include "stopping.h"

#define TRAINS 3u
#define EMPTY TRAINS /* one more, which does nothing: what an interruption costs by itself, at that very time */
#define ALL (TRAINS + 1u)
/* Another try has another phase against the machine's own timers, which may have hidden a train, and other neighbours on a
 * busy machine. One fewer let load that came and went look like a fault of the loop. */
#define TRIES 3u
/* How far the number, the length and the period found may be from the truth. */
#define COUNT_TOLERANCE 0.01
#define LENGTH_TOLERANCE 0.05
#define PERIOD_TOLERANCE 0.01
/* Of the gaps of a train, the share that is taken for undisturbed. */
#define UNDISTURBED 0.1
/* A gap that began so long before the injection has something else in it as well. */
#define MERGED_US 3.0
/* The first ones pay for pages and caches that have not been touched yet. */
#define WARM_UP 3u

static const struct {
	double busy_ns, period_ns, offset_ns;
} trains[ALL] = {
	/* Offsets that keep trains, whose periods divide one another, out of each other's way. */
	{5e3, 1e6, 0},
	{20e3, 4e6, 250e3},
	{200e3, 100e6, 400e3},
	{0, 1e6, 800e3},
};

struct log {
	struct made_gaps made;
	uint64_t busy; /* ticks */
};

enum verdict { VERDICT_FOUND, VERDICT_INCONCLUSIVE, VERDICT_MISSED };

struct outcome {
	const char *mechanism;
	unsigned train;
	size_t injected, in_gaps, alone;
	double length_ns, overhead_ns, overhead_spread_ns, period_ns;
	uint64_t period_gaps;
	enum verdict verdict;
	bool hidden; /* another phase may show it */
	char reason[200];
};

double injection_s = 2;
static struct outcome outcomes[2 * TRAINS];
static size_t outcome_count;
static struct log logs[ALL];

void make_gap(struct made_gaps *made, uint64_t ticks)
{
	size_t slot = atomic_load_explicit(&made->count, memory_order_relaxed);
	uint64_t begin = clock_start(), end = begin;
	while (end - begin < ticks)
		end = clock_stop();
	if (slot < made->capacity) {
		made->list[slot] = (struct gap){begin, end - begin};
		atomic_store_explicit(&made->count, slot + 1, memory_order_release);
	}
}

static void busy_wait(struct log *log)
{
	make_gap(&log->made, log->busy);
}

static void handle(int number)
{
	busy_wait(&logs[number - SIGRTMIN]);
}

/* One measured thread and what interrupts it. */
struct fixture {
	bool injector;
	unsigned cpu;
	double seconds;
	struct gaps gaps;
	timer_t timers[ALL];
	size_t timer_count;
	pthread_t injectors[ALL];
	size_t injector_count;
	bool real_time;
	struct timespec from;
	_Atomic bool over;
	struct error error;
};

static struct fixture *injectors_fixture; /* for the injector threads */

static struct timespec later(struct timespec from, double ns)
{
	return clock_timespec((uint64_t)from.tv_sec * 1000000000u + (uint64_t)from.tv_nsec + (uint64_t)ns);
}

static void *injector(void *argument)
{
	unsigned train = (unsigned)(uintptr_t)argument;
	struct error ignored = {0};
	if (!affinity_pin(injectors_fixture->cpu, &ignored) ||
	    (injectors_fixture->real_time && !realtime_begin(1, &ignored)))
		return NULL;
	for (uint64_t cycle = 1; !atomic_load(&injectors_fixture->over); cycle++) {
		struct timespec at =
			later(injectors_fixture->from, trains[train].offset_ns + (double)cycle * trains[train].period_ns);
		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
			continue;
		if (!atomic_load(&injectors_fixture->over))
			busy_wait(&logs[train]);
	}
	return NULL;
}

static bool start_timers(struct fixture *fixture)
{
	for (unsigned i = 0; i < ALL; i++) {
		struct sigaction action = {.sa_handler = handle};
		struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN + (int)i};
		struct itimerspec every = {.it_interval = clock_timespec((uint64_t)trains[i].period_ns),
		                           .it_value = later(fixture->from, trains[i].offset_ns + trains[i].period_ns)};
		/* One at a time: a handler inside another's would be counted in both. */
		sigfillset(&action.sa_mask);
		event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
		if (sigaction(event.sigev_signo, &action, NULL) != 0 ||
		    timer_create(CLOCK_MONOTONIC, &event, &fixture->timers[i]) != 0)
			return error_set(&fixture->error, ERROR_INTERNAL, "a timer: %s", strerror(errno));
		fixture->timer_count++;
		if (timer_settime(fixture->timers[i], TIMER_ABSTIME, &every, NULL) != 0)
			return error_set(&fixture->error, ERROR_INTERNAL, "a timer: %s", strerror(errno));
	}
	return true;
}

static bool start_injectors(struct fixture *fixture)
{
	struct sched_param idle = {0};
	injectors_fixture = fixture;
	/* Any ordinary thread takes the CPU from an idle-class one at once, which an ordinary one it need not. */
	if (!fixture->real_time && pthread_setschedparam(pthread_self(), SCHED_IDLE, &idle) != 0)
		return error_set(&fixture->error, ERROR_UNSUPPORTED, "neither real-time nor idle-class threads are permitted");
	for (unsigned i = 0; i < ALL; i++, fixture->injector_count++) {
		int reason = pthread_create(&fixture->injectors[i], NULL, injector, (void *)(uintptr_t)i);
		if (reason)
			return error_set(&fixture->error, ERROR_INTERNAL, "a injector thread: %s", strerror(reason));
	}
	return true;
}

static void *act(void *argument)
{
	struct fixture *fixture = argument;
	if (!affinity_pin(fixture->cpu, &fixture->error))
		return NULL;
	clock_gettime(CLOCK_MONOTONIC, &fixture->from);
	if (fixture->injector ? start_injectors(fixture) : start_timers(fixture))
		gaps_run(&fixture->gaps, (uint64_t)(fixture->seconds * clock_now_used.hz));
	for (size_t i = 0; i < fixture->timer_count; i++)
		timer_delete(fixture->timers[i]);
	atomic_store(&fixture->over, true);
	for (size_t i = 0; i < fixture->injector_count; i++)
		pthread_join(fixture->injectors[i], NULL);
	return NULL;
}

static void *ask_real_time(void *answer)
{
	struct error refused = {0};
	*(bool *)answer = realtime_begin(1, &refused);
	realtime_end();
	return NULL;
}

static bool play(struct fixture *fixture, struct error *error)
{
	const struct cpu_list *allowed = affinity_allowed();
	pthread_t thread;
	fixture->cpu = allowed->cpus[allowed->count - 1];
	if (!gaps_open(&fixture->gaps, GAP_RING, 0, error))
		return false;
	/* Half of the shortest injection, and well above a turn. */
	fixture->gaps.threshold_ticks = (uint64_t)(1e-6 * clock_now_used.hz);
	for (unsigned i = 0; i < ALL; i++) {
		logs[i].busy = (uint64_t)(trains[i].busy_ns * clock_now_used.hz / 1e9);
		logs[i].made.capacity = (size_t)(fixture->seconds * 1e9 / trains[i].period_ns * 1.1) + 16;
		logs[i].made.list = allocate_touched(logs[i].made.capacity, sizeof(*logs[i].made.list));
		atomic_store(&logs[i].made.count, 0);
	}
	int reason = 0;
	if (fixture->injector && (reason = pthread_create(&thread, NULL, ask_real_time, &fixture->real_time)) == 0)
		pthread_join(thread, NULL);
	if (reason == 0 && (reason = pthread_create(&thread, NULL, act, fixture)) == 0)
		pthread_join(thread, NULL);
	if (reason)
		return error_set(error, ERROR_INTERNAL, "a thread: %s", strerror(reason));
	if (fixture->error.code != ERROR_NONE)
		*error = fixture->error;
	return error->code == ERROR_NONE;
}

static void fixture_free(struct fixture *fixture)
{
	gaps_free(&fixture->gaps);
	for (unsigned i = 0; i < ALL; i++) {
		free(logs[i].made.list);
		logs[i].made.list = NULL;
	}
}

/* The gap that an injection lies in; NULL when there is none. */
static const struct gap *gap_of(const struct gaps *gaps, const struct gap *injected)
{
	size_t low = 0, high = gaps->kept;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (gaps->ring[middle].at <= injected->at)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == 0)
		return NULL;
	const struct gap *gap = &gaps->ring[low - 1];
	return injected->at + injected->ticks <= gap->at + gap->ticks ? gap : NULL;
}

static unsigned injections_in(const struct gap *gap)
{
	unsigned sum = 0;
	for (unsigned t = 0; t < ALL; t++)
		for (size_t i = 0; i < logs[t].made.count; i++)
			sum += logs[t].made.list[i].at >= gap->at &&
			       logs[t].made.list[i].at + logs[t].made.list[i].ticks <= gap->at + gap->ticks;
	return sum;
}

/* Gap lengths less the time that the injector itself was busy, in ticks, of gaps with this one injection in them; returns
 * how many. `beside` and `lengths` may be NULL. */
static size_t beside_of(const struct fixture *fixture, const struct log *log, double *beside, struct outcome *outcome)
{
	size_t alone = 0, count = atomic_load(&log->made.count);
	for (size_t i = WARM_UP; i < count; i++) {
		const struct gap *made = &log->made.list[i];
		if (made->at < fixture->gaps.begin || made->at + made->ticks > fixture->gaps.end)
			continue;
		const struct gap *gap = gap_of(&fixture->gaps, made);
		if (outcome) {
			outcome->injected++;
			outcome->in_gaps += gap != NULL;
		}
		if (gap && injections_in(gap) == 1)
			beside[alone++] = (double)gap->ticks - (double)made->ticks;
	}
	return alone;
}

/* What interruptions cost by themselves, in ticks: in the middle, undisturbed, and the spread between the quartiles. */
struct cost {
	double median, least, spread;
};

/* Of at least one; puts them in order. */
static struct cost cost_of(double *beside, size_t count)
{
	qsort(beside, count, sizeof(*beside), compare_doubles);
	return (struct cost){.median = beside[count / 2],
	                     .least = beside[(size_t)(UNDISTURBED * (double)count)],
	                     .spread = beside[3 * count / 4] - beside[count / 4]};
}

/* What an interruption that does nothing costs. */
static struct cost empty_cost(const struct fixture *fixture)
{
	double *beside = allocate(logs[EMPTY].made.count, sizeof(*beside));
	size_t count = beside_of(fixture, &logs[EMPTY], beside, NULL);
	/* A thread that was hardly given its CPU knows no cost, and then no length is judged. */
	struct cost cost = count ? cost_of(beside, count) : (struct cost){.spread = clock_now_used.hz};
	free(beside);
	return cost;
}

/* The period among those found that is nearest to the one made, when it is near enough. */
static const struct period *matching(const struct period *found, size_t count, double ticks)
{
	for (size_t i = 0; i < count; i++)
		if (fabs(found[i].ticks / ticks - 1) <= PERIOD_TOLERANCE)
			return &found[i];
	return NULL;
}

/* The same train as one of those found, of several with like periods (the machine's own tick may be one): that whose gaps
 * hold most of the injections. */
static const struct period *matching_gaps(const struct fixture *fixture, unsigned train, const struct period *found,
                                          size_t count, const uint8_t *owner)
{
	size_t hits[PERIODS_MAX] = {0}, best = 0;
	for (size_t i = WARM_UP; i < logs[train].made.count; i++) {
		const struct gap *gap = gap_of(&fixture->gaps, &logs[train].made.list[i]);
		if (gap && owner[gap - fixture->gaps.ring] != PERIODS_NONE)
			hits[owner[gap - fixture->gaps.ring]]++;
	}
	for (size_t i = 1; i < count; i++)
		if (hits[i] > hits[best])
			best = i;
	return count && 2 * hits[best] > logs[train].made.count ? &found[best] : NULL;
}

__attribute__((format(printf, 3, 4))) static void judge(struct outcome *outcome, enum verdict verdict,
                                                        const char *format, ...)
{
	va_list arguments;
	if (verdict <= outcome->verdict)
		return;
	outcome->verdict = verdict;
	va_start(arguments, format);
	vsnprintf(outcome->reason, sizeof(outcome->reason), format, arguments);
	va_end(arguments);
}

/* Injections that could not keep their own place in time: what else is in their gap began before them. */
static size_t merged(const struct fixture *fixture, unsigned train, double overhead)
{
	size_t sum = 0;
	double early = overhead + MERGED_US * clock_now_used.hz / 1e6;
	for (size_t i = WARM_UP; i < logs[train].made.count; i++) {
		const struct gap *gap = gap_of(&fixture->gaps, &logs[train].made.list[i]);
		sum += gap && ((double)(logs[train].made.list[i].at - gap->at) > early || injections_in(gap) > 1);
	}
	return sum;
}

/* How many injections kept the injector's period: the detector on the injections themselves, without anything else. */
static size_t kept_time(const struct log *log, double ticks)
{
	size_t count = atomic_load(&log->made.count);
	uint8_t *owner = allocate(count, sizeof(*owner));
	struct period found[PERIODS_MAX];
	size_t periods = periods_find(log->made.list, count, clock_now_used.hz / 1e6, found, owner);
	const struct period *period = matching(found, periods, ticks);
	free(owner);
	return period ? (size_t)period->gaps : 0;
}

static int compare_begin(const void *left, const void *right)
{
	const struct gap *a = left, *b = right;
	return (a->at > b->at) - (a->at < b->at);
}

/* Whether the detector can find such a train on this machine: one by arithmetic, half a period later, in place of the real
 * one among all other gaps. */
static bool findable(const struct fixture *fixture, unsigned train, double period_ticks)
{
	const struct log *log = &logs[train];
	struct gap *gaps = allocate(fixture->gaps.kept + log->made.count, sizeof(*gaps));
	uint8_t *owner = allocate(fixture->gaps.kept + log->made.count, 1);
	struct period found[PERIODS_MAX];
	size_t count = 0;
	for (size_t i = 0; i < log->made.count; i++) {
		const struct gap *gap = gap_of(&fixture->gaps, &log->made.list[i]);
		if (gap)
			owner[gap - fixture->gaps.ring] = 1;
		uint64_t begin = log->made.list[0].at + (uint64_t)(((double)i + 0.5) * period_ticks);
		/* As with the real ones: inside a gap that is already there it would not be a gap of its own. */
		if (!gap_of(&fixture->gaps, &(struct gap){.at = begin}))
			gaps[count++] = (struct gap){begin, log->busy};
	}
	for (size_t i = 0; i < fixture->gaps.kept; i++)
		if (!owner[i])
			gaps[count++] = fixture->gaps.ring[i];
	qsort(gaps, count, sizeof(*gaps), compare_begin);
	count = periods_find(gaps, count, clock_now_used.hz / 1e6, found, owner);
	free(gaps);
	free(owner);
	return matching(found, count, period_ticks) != NULL;
}

static void judge_period(struct outcome *outcome, const struct fixture *fixture, const struct period *found,
                         size_t count, const uint8_t *owner, double overhead)
{
	double ticks = trains[outcome->train].period_ns * clock_now_used.hz / 1e9;
	const struct period *period = matching_gaps(fixture, outcome->train, found, count, owner);
	size_t all = logs[outcome->train].made.count, late = all - kept_time(&logs[outcome->train], ticks);
	if (period) {
		outcome->period_ns = clock_ns(period->ticks);
		outcome->period_gaps = period->gaps;
	}
	if (10 * late > all) {
		judge(outcome, VERDICT_INCONCLUSIVE, "the injector did not keep its period: %zu of %zu injections were late",
		      late, all);
		return;
	}
	size_t hidden = merged(fixture, outcome->train, overhead);
	outcome->hidden = hidden * 20 > outcome->injected;
	if (!period || fabs(period->ticks / ticks - 1) > PERIOD_TOLERANCE) {
		bool told = hidden * 5 <= outcome->injected && findable(fixture, outcome->train, ticks);
		judge(outcome, told ? VERDICT_MISSED : VERDICT_INCONCLUSIVE,
		      "the period is %.0f ns, found %.0f; %zu of %zu injections shared their gap with something earlier%s",
		      trains[outcome->train].period_ns, outcome->period_ns, hidden, outcome->injected,
		      told ? "" : ", or the other gaps hide any such train");
		return;
	}
	double others =
		(double)(fixture->gaps.kept - (size_t)period->gaps) / (double)(fixture->gaps.end - fixture->gaps.begin);
	double chance = 2 * period->window_ticks * others * (double)period->cycles;
	double injected = (double)outcome->injected, gaps = (double)period->gaps;
	double margin = COUNT_TOLERANCE * injected + WARM_UP + 1;
	double least = injected - (double)late - margin, most = injected + margin;
	if (gaps >= least && gaps <= most)
		return;
	judge(outcome, gaps >= least - (double)hidden && gaps <= most + 3 * chance ? VERDICT_INCONCLUSIVE : VERDICT_MISSED,
	      "expected %zu gaps of the period, found %llu; %zu were late, %zu shared their gap with something earlier, "
	      "%.0f may be chance",
	      outcome->injected, (unsigned long long)period->gaps, late, hidden, chance);
}

static void judge_train(struct outcome *outcome, const struct fixture *fixture, const struct period *found,
                        size_t count, const uint8_t *owner, const struct cost *cost)
{
	const struct log *log = &logs[outcome->train];
	double busy = trains[outcome->train].busy_ns * clock_now_used.hz / 1e9;
	double *beside = allocate(log->made.count, sizeof(*beside));
	outcome->overhead_ns = clock_ns(cost->median);
	outcome->overhead_spread_ns = clock_ns(cost->spread);
	outcome->alone = beside_of(fixture, log, beside, outcome);
	if (outcome->injected < 5)
		judge(outcome, VERDICT_INCONCLUSIVE, "only %zu injections in the time watched, at least 5 are needed",
		      outcome->injected);
	if ((double)outcome->in_gaps < (1 - COUNT_TOLERANCE) * (double)outcome->injected)
		judge(outcome, VERDICT_MISSED, "of %zu injections %zu are inside a gap", outcome->injected, outcome->in_gaps);
	if (outcome->alone * 2 < outcome->injected) {
		judge(outcome, VERDICT_INCONCLUSIVE, "%zu of %zu injections had a gap to themselves: too few for a length",
		      outcome->alone, outcome->injected);
	} else if (outcome->alone) {
		struct cost own = cost_of(beside, outcome->alone);
		double most = LENGTH_TOLERANCE * busy, extra = own.median - cost->median, least = own.least - cost->least;
		outcome->length_ns = clock_ns(busy + extra);
		if (fabs(extra) > most)
			judge(outcome, least <= most + cost->spread ? VERDICT_INCONCLUSIVE : VERDICT_MISSED,
			      "expected a median length of %.0f ns, found %.0f, of the undisturbed %.0f; "
			      "an empty interruption's cost spreads by %.0f ns",
			      trains[outcome->train].busy_ns, outcome->length_ns, clock_ns(busy + least),
			      outcome->overhead_spread_ns);
	}
	free(beside);
	judge_period(outcome, fixture, found, count, owner, cost->median);
}

static bool attempt(bool by_injector, struct outcome *made, struct error *error)
{
	struct fixture fixture = {.injector = by_injector, .seconds = injection_s};
	if (play(&fixture, error)) {
		struct cost cost = empty_cost(&fixture);
		struct period found[PERIODS_MAX];
		uint8_t *owner = allocate(fixture.gaps.kept, sizeof(*owner));
		size_t count = periods_find(fixture.gaps.ring, fixture.gaps.kept, clock_now_used.hz / 1e6, found, owner);
		for (unsigned t = 0; t < TRAINS; t++) {
			made[t] = (struct outcome){.mechanism = !by_injector        ? "signal"
			                                        : fixture.real_time ? "injector, real-time"
			                                                            : "injector, over idle class",
			                           .train = t};
			judge_train(&made[t], &fixture, found, count, owner, &cost);
		}
		free(owner);
	}
	fixture_free(&fixture);
	return error->code == ERROR_NONE;
}

static bool inject(bool by_injector, struct error *error)
{
	struct outcome best[TRAINS] = {0};
	bool again = true;
	/* What the loop does wrong it does in every try; a busy machine does not hit the same train each time. */
	for (unsigned number = 0; again && number < TRIES && !stop_error(error); number++) {
		struct outcome made[TRAINS] = {0};
		if (!attempt(by_injector, made, error))
			return false;
		again = false;
		for (unsigned t = 0; t < TRAINS; t++) {
			if (number == 0 || made[t].verdict < best[t].verdict)
				best[t] = made[t];
			again = again || best[t].verdict == VERDICT_MISSED || (best[t].verdict != VERDICT_FOUND && best[t].hidden);
		}
	}
	for (unsigned t = 0; t < TRAINS; t++)
		if (best[t].verdict == VERDICT_MISSED)
			error_set(error, ERROR_CHECK_FAILED, "%s, %.0f us at %.0f Hz, in each of %u tries: %s", best[t].mechanism,
			          trains[t].busy_ns / 1e3, 1e9 / trains[t].period_ns, TRIES, best[t].reason);
	if (error->code != ERROR_NONE && error->code != ERROR_CHECK_FAILED)
		return false;
	memcpy(outcomes + outcome_count, best, sizeof(best));
	outcome_count += TRAINS;
	return error->code == ERROR_NONE;
}

bool injection_by_signal(struct error *error)
{
	return inject(false, error);
}

bool injection_by_injector(struct error *error)
{
	return inject(true, error);
}

void injection_write(struct json *json)
{
	static const char *const verdicts[] = {"found", "inconclusive", "missed"};
	json_array_begin(json, "injections");
	for (size_t i = 0; i < outcome_count; i++) {
		const struct outcome *outcome = &outcomes[i];
		json_object_begin(json, NULL);
		json_text(json, "mechanism", outcome->mechanism);
		json_f64(json, "busy_ns", trains[outcome->train].busy_ns);
		json_f64(json, "period_ns", trains[outcome->train].period_ns);
		json_u64(json, "injected", outcome->injected);
		json_u64(json, "in_gaps", outcome->in_gaps);
		json_u64(json, "alone", outcome->alone);
		json_f64(json, "found_median_ns", outcome->length_ns);
		json_f64(json, "overhead_ns", outcome->overhead_ns);
		json_f64(json, "overhead_spread_ns", outcome->overhead_spread_ns);
		json_f64(json, "found_period_ns", outcome->period_ns);
		json_u64(json, "found_period_gaps", outcome->period_gaps);
		json_text(json, "verdict", verdicts[outcome->verdict]);
		json_text(json, "reason", outcome->verdict == VERDICT_FOUND ? NULL : outcome->reason);
		json_object_end(json);
	}
	json_array_end(json);
}
