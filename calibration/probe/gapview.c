// SPDX-License-Identifier: Apache-2.0
#include "jitter.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocate.h"
#include "warning.h"

/* Gaps shorter than 200 ns are cache misses and clock reads, not interruptions; four turns keep a slow clock's own
 * steps out. */
#define THRESHOLD_MIN_NS 200.0
#define THRESHOLD_TURNS 4.0
#define COARSE_TICKS_MIN 3.0

static size_t rings(size_t cpus, bool traced)
{
	return traced ? 2 * cpus : cpus;
}

size_t gap_view_bytes(size_t cpus, size_t longest, bool traced)
{
	size_t capacity = gaps_capacity(rings(cpus, traced));
	size_t bytes = gaps_bytes(capacity, longest) + periods_bytes(capacity);
	return bytes + (traced ? gaps_bytes(capacity, 0) + tracing_bytes(cpus) + sizeof(struct causes) : 0);
}

bool gap_view_open(struct gap_view *view, size_t cpus, size_t longest, bool traced, double threshold_ns,
                   struct error *error)
{
	size_t capacity = gaps_capacity(rings(cpus, traced));
	if (!gaps_open(&view->gaps, capacity, longest, error))
		return false;
	view->turns = gaps_turns();
	double automatic = THRESHOLD_TURNS * view->turns.median * 1e9 / clock_now_used.hz;
	double coarse = COARSE_TICKS_MIN * clock_now_used.resolution_ticks * 1e9 / clock_now_used.hz;
	if (threshold_ns == 0) {
		threshold_ns = THRESHOLD_MIN_NS;
		threshold_ns = automatic > threshold_ns ? automatic : threshold_ns;
		threshold_ns = coarse > threshold_ns ? coarse : threshold_ns;
	}
	view->gaps.threshold_ticks = (uint64_t)(threshold_ns * clock_now_used.hz / 1e9 + 0.5);
	view->traced.threshold_ticks = view->gaps.threshold_ticks;
	return !traced || gaps_open(&view->traced, capacity, 0, error);
}

bool gap_view_seen(const struct gap_view *view)
{
	return view->gaps.end > view->gaps.begin;
}

static bool traced_whole(const struct gap_view *view, const struct gap_watch *watch)
{
	return watch->parts == TRACED_PARTS && view->traced_ticks > 0;
}

static void read_causes(struct gap_view *view, const struct gap_watch *watch, unsigned cpu, int thread)
{
	const struct tracing *tracing = &watch->tracing;
	view->clock = tracing_clock(tracing);
	view->causes = allocate(1, sizeof(*view->causes));
	FILE *text = tracing_text(tracing, cpu);
	view->lost_events = tracing_lost(tracing, cpu);
	if (!text || !causes_read(view->causes, text, view->traced.ring, view->traced.kept, thread, false, &view->clock,
	                          view->lost_events > 0))
		snprintf(view->unread, sizeof(view->unread), "reading what was traced of CPU %u: %s", cpu, strerror(errno));
	else if (view->lost_events > 0)
		warning_add("TRACE_LOST", "%lld events of CPU %u did not fit into the tracing's buffer of %zu KiB",
		            (long long)view->lost_events, cpu, tracing_bytes(watch->readings.cpus->count) >> 10);
	if (text)
		(void)fclose(text);
}

void gap_view_digest(struct gap_view *view, const struct gap_watch *watch, size_t number, unsigned cpu, int thread)
{
	struct gaps *gaps = &view->gaps;
	gaps_close(gaps);
	view->number = number;
	view->owner = allocate(gaps->kept, sizeof(*view->owner));
	view->period_count = periods_find(gaps->ring, gaps->kept, clock_now_used.hz / 1e6, view->periods, view->owner);
	if (watch->asked && traced_whole(view, watch))
		read_causes(view, watch, cpu, thread);
}

static void periods_write(struct json *json, const struct gap_view *view)
{
	json_array_begin(json, "periods");
	for (size_t i = 0; i < view->period_count; i++) {
		const struct period *period = &view->periods[i];
		json_object_begin(json, NULL);
		json_f64(json, "period_ns", clock_ns(period->ticks));
		json_f64(json, "hz", clock_now_used.hz / period->ticks);
		json_f64(json, "share_of_gaps", (double)period->gaps / (double)view->gaps.kept);
		json_u64(json, "gaps", period->gaps);
		json_u64(json, "cycles", period->cycles);
		json_f64(json, "median_ns", clock_ns(period->median_ticks));
		json_f64(json, "lost_ns", clock_ns((double)period->lost_ticks));
		json_f64(json, "window_ns", clock_ns(period->window_ticks));
		json_object_end(json);
	}
	json_array_end(json);
}

/* How often and how long the CPU was interrupted, with tracing or without. */
static void rate_write(struct json *json, const char *key, const struct gaps *gaps, uint64_t ticks)
{
	json_object_begin(json, key);
	json_f64(json, "wall_s", clock_ns((double)ticks) / 1e9);
	json_u64(json, "gaps", gaps->count);
	json_f64(json, "rate_per_s", (double)gaps->count * clock_now_used.hz / (double)ticks);
	json_f64(json, "lost_fraction", (double)gaps->lost_ticks / (double)ticks);
	json_f64_known(json, "mean_ns", gaps->count, clock_ns((double)gaps->lost_ticks / (double)gaps->count));
	json_object_end(json);
}

static void steal_and_smi_write(struct json *json, const struct gap_watch *watch, const struct cpu_list *self)
{
	double steal = 0;
	int64_t interrupts = 0;
	for (size_t i = 0; i < TRACED_PARTS; i++) {
		double more_steal;
		int64_t more;
		interference_sums(&watch->traced_before[i], &watch->traced_after[i], self, &more_steal, &more);
		steal = steal < 0 || more_steal < 0 ? -1 : steal + more_steal;
		interrupts = interrupts < 0 || more < 0 ? -1 : interrupts + more;
	}
	json_f64_known(json, "steal_ms", steal >= 0, steal);
	json_i64_known(json, "smi", interrupts >= 0, interrupts);
}

/* When a gap began, in ns of the time that was watched while the kernel was traced. */
static double traced_at(const void *of, uint64_t ticks)
{
	const struct gap_view *view = of;
	unsigned part = TRACED_PARTS - 1;
	while (part > 0 && ticks - view->traced_begin[part] > view->traced_ticks)
		part--;
	return clock_ns((double)(ticks - view->traced_begin[part]));
}

static void traced_view_write(struct json *json, const struct gap_view *view, const struct gap_watch *watch,
                              const struct cpu_list *self)
{
	struct causes *causes = view->causes;
	json_object_begin(json, "view");
	json_text(json, "clock", view->clock.counter ? "x86-tsc" : "mono_raw");
	json_u64(json, "kinds_of_events", watch->tracing.events);
	json_u64(json, "lines", causes->lines);
	json_u64(json, "unreadable", causes->unreadable);
	json_i64_known(json, "lost_events", view->lost_events >= 0, view->lost_events);
	rate_write(json, "with_tracing", &view->traced, view->traced_ticks);
	rate_write(json, "without_tracing", &view->gaps, view->gaps.end - view->gaps.begin);
	json_u64(json, "explained_gaps", causes->gaps);
	json_f64(json, "explained_ns", clock_ns(causes->ticks));
	causes_longest_write(json, "longest", causes, traced_at, view);
	causes_write(json, causes);
	steal_and_smi_write(json, watch, self);
	json_object_end(json);
}

static void traced_write(struct json *json, const struct gap_view *view, const struct gap_watch *watch,
                         const struct cpu_list *self)
{
	const struct tracing *tracing = &watch->tracing;
	const char *refused = NULL;
	if (!traced_whole(view, watch))
		refused = tracing->refused[0] ? tracing->refused : "interrupted before it was complete";
	else if (view->unread[0])
		refused = view->unread;
	if (!json_object_known(json, "traced", watch->asked))
		return;
	json_text(json, "refused", refused);
	json_text(json, "tracers", tracing->tracers);
	/* What the kernel itself accounts for, or why that could not be read. */
	json_text(json, "osnoise_refused", tracing->osnoise.refused[0] ? tracing->osnoise.refused : NULL);
	if (json_known(json, "osnoise", !refused && !tracing->osnoise.refused[0]))
		noise_write(json, "osnoise", view->causes);
	if (json_known(json, "view", !refused))
		traced_view_write(json, view, watch, self);
	json_object_end(json);
}

void gap_view_write(struct json *json, const char *key, const struct gap_view *view, const struct gap_watch *watch,
                    const struct cpu_list *self)
{
	double steal_ms;
	int64_t smi;
	interference_sums(&watch->before, &watch->after, self, &steal_ms, &smi);
	json_object_begin(json, key);
	json_text(json, "stopped", watch->stopped);
	gaps_write(json, &view->gaps, &view->turns);
	periods_write(json, view);
	const struct sliced sliced = {view->number, &view->gaps, view->periods, view->period_count, view->owner};
	slices_write(json, "slices", &watch->readings, &sliced, steal_ms, smi);
	traced_write(json, view, watch, self);
	stretch_write(json, &view->stretch, &watch->before, &watch->after, self);
	json_object_end(json);
}
