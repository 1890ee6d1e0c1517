// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocate.h"
#include "clock.h"
#include "json.h"
#include "pmu_set.h"

struct counted {
	const struct pmu_spec *spec;
	const char **sources;
	size_t source_count;
	unsigned cpu;
	size_t threads;
	uint64_t count;
	bool whole; /* nothing that belongs to it was refused, or never counted */
	double scaled, fraction, wall_ticks, uncertain_ticks;
	struct pmu_work work;
	bool quiet_whole;
	double quiet_scaled, quiet_ticks;
};

struct pmu_counts {
	bool watched;
	double background_s;
	struct counted *events;
	size_t count;
	struct pmu_refusal *refusals;
	size_t refused;
};

bool pmu_scale(const struct pmu_reading *before, const struct pmu_reading *after, double *scaled, double *fraction)
{
	/* Modulo 2^64, so that a counter may wrap. */
	uint64_t value = after->value - before->value, enabled = after->enabled_ns - before->enabled_ns,
			 running = after->running_ns - before->running_ns;
	*scaled = 0;
	*fraction = 0;
	if (enabled == 0 || running == 0)
		return false;
	*scaled = (double)value * ((double)enabled / (double)running);
	*fraction = (double)running / (double)enabled;
	return true;
}

static struct pmu_reading reading(const struct pmu_set *set, const struct pmu_counter *counter, enum pmu_moment moment)
{
	const uint64_t *block = set->words[moment] + set->counters[counter->leader].block;
	return (struct pmu_reading){
		.value = block[PMU_HEAD_WORDS + counter->member], .enabled_ns = block[1], .running_ns = block[2]};
}

/* Whether they are one value: of one name, and both on this CPU or both in threads. */
static bool same(const struct pmu_spec *one, unsigned one_cpu, const struct pmu_spec *other, unsigned other_cpu)
{
	return one->on_cpus == other->on_cpus && one_cpu == other_cpu && !strcmp(one->name, other->name);
}

static void name_source(struct counted *event, const char *source)
{
	for (size_t i = 0; i < event->source_count; i++)
		if (!strcmp(event->sources[i], source))
			return;
	event->sources = reallocate(event->sources, event->source_count + 1, sizeof(*event->sources));
	event->sources[event->source_count++] = source;
}

/* Adds what the counters of one set have counted of an event. */
static void add_set(struct counted *event, const struct pmu *pmu, const struct pmu_set *set, size_t thread,
                    pmu_progress progress, void *context)
{
	double begin = 0, end = 0, quiet = 0, uncertain = 0;
	size_t found = 0;
	for (size_t i = 0; i < set->refused; i++)
		if (same(set->refusals[i].spec, set->refusals[i].cpu, event->spec, event->cpu))
			event->whole = event->quiet_whole = false;
	for (size_t i = 0; i < set->count; i++) {
		const struct pmu_counter *counter = &set->counters[i], *leader = &set->counters[counter->leader];
		double scaled, fraction;
		if (!same(counter->spec, counter->cpu, event->spec, event->cpu))
			continue;
		name_source(event, counter->spec->source);
		if (leader->failed) {
			event->whole = event->quiet_whole = false;
			continue;
		}
		struct pmu_reading before = reading(set, counter, PMU_BEGIN), after = reading(set, counter, PMU_END);
		event->whole = pmu_scale(&before, &after, &scaled, &fraction) && event->whole;
		event->count += after.value - before.value;
		event->scaled += scaled;
		event->fraction = fraction < event->fraction ? fraction : event->fraction;
		begin += (double)(leader->ticks[PMU_BEGIN] - set->counters[0].ticks[PMU_BEGIN]);
		end += (double)(leader->ticks[PMU_END] - set->counters[0].ticks[PMU_BEGIN]);
		uncertain += (double)(leader->width[PMU_BEGIN] + leader->width[PMU_END]) / 2;
		found++;
		if (pmu->watched && event->spec->on_cpus) {
			before = reading(set, counter, PMU_QUIET_BEGIN);
			after = reading(set, counter, PMU_QUIET_END);
			event->quiet_whole = pmu_scale(&before, &after, &scaled, &fraction) && event->quiet_whole;
			event->quiet_scaled += scaled;
			quiet += (double)(leader->ticks[PMU_QUIET_END] - leader->ticks[PMU_QUIET_BEGIN]);
		}
	}
	if (!found)
		return;
	/* Counters are read one after another: what they count together was counted, in the mean, between the means. */
	begin /= (double)found;
	end /= (double)found;
	event->wall_ticks += end - begin;
	event->uncertain_ticks += uncertain / (double)found;
	event->quiet_ticks += quiet / (double)found;
	event->threads++;
	if (progress) {
		uint64_t origin = set->counters[0].ticks[PMU_BEGIN];
		struct pmu_work until = progress(context, thread, origin + (uint64_t)end),
						from = progress(context, thread, origin + (uint64_t)begin);
		event->work.steps = until.steps < 0 ? -1 : event->work.steps + until.steps - from.steps;
		event->work.hops = until.hops < 0 ? -1 : event->work.hops + until.hops - from.hops;
	}
}

static void keep_refusals(struct pmu_counts *counts, const struct pmu_set *set)
{
	for (size_t i = 0; i < set->refused; i++) {
		const struct pmu_refusal *refusal = &set->refusals[i];
		bool known = false; /* threads are refused the same for the same reason, and say it once */
		for (size_t k = 0; !known && !refusal->spec->on_cpus && k < counts->refused; k++)
			known = counts->refusals[k].spec == refusal->spec && counts->refusals[k].code == refusal->code;
		if (!known)
			pmu_refuse(&counts->refusals, &counts->refused, refusal);
	}
	for (size_t i = 0; i < set->count; i++) {
		const struct pmu_counter *counter = &set->counters[i];
		int code = set->counters[counter->leader].failed;
		struct pmu_refusal lost = {.spec = counter->spec, .cpu = counter->cpu, .code = code};
		if (!code)
			continue;
		snprintf(lost.reason, sizeof(lost.reason), "it was opened, and could not be read: %s", strerror(code));
		pmu_refuse(&counts->refusals, &counts->refused, &lost);
	}
}

/* One event on one CPU (or in threads, for which it is 0), unless one asked before it was the same. */
static void take_event(const struct pmu *pmu, const struct pmu_spec *spec, unsigned cpu, size_t thread,
                       pmu_progress progress, void *context, struct pmu_counts *counts)
{
	struct counted event = {.spec = spec, .cpu = cpu, .whole = true, .quiet_whole = true, .fraction = 1};
	if (!progress)
		event.work = (struct pmu_work){-1, -1};
	for (size_t i = 0; i < counts->count; i++)
		if (same(counts->events[i].spec, counts->events[i].cpu, spec, cpu))
			return;
	if (spec->on_cpus)
		add_set(&event, pmu, &pmu->cpus, PMU_ALL, progress, context);
	for (size_t i = 0; !spec->on_cpus && i < pmu->thread_count; i++)
		if (thread == PMU_ALL || thread == i)
			add_set(&event, pmu, &pmu->threads[i], i, progress, context);
	if (!event.threads) {
		free(event.sources);
		return; /* nothing of it was counted, and the refusals say why */
	}
	event.wall_ticks /= (double)event.threads;
	event.uncertain_ticks /= (double)event.threads;
	counts->events = reallocate(counts->events, counts->count + 1, sizeof(*counts->events));
	counts->events[counts->count++] = event;
}

struct pmu_counts *pmu_take(const struct pmu *pmu, size_t thread, pmu_progress progress, void *context)
{
	if (!pmu)
		return NULL;
	struct pmu_counts *counts = allocate(1, sizeof(*counts));
	counts->watched = pmu->watched;
	counts->background_s = pmu->background_s;
	keep_refusals(counts, &pmu->cpus);
	for (size_t i = 0; i < pmu->thread_count; i++)
		if (thread == PMU_ALL || thread == i)
			keep_refusals(counts, &pmu->threads[i]);
	for (size_t i = 0; i < pmu->count; i++) {
		const struct pmu_spec *spec = &pmu->specs[i];
		for (size_t c = 0; c < spec->cpus.count; c++)
			take_event(pmu, spec, spec->cpus.cpus[c], thread, progress, context, counts);
		if (!spec->on_cpus)
			take_event(pmu, spec, 0, thread, progress, context, counts);
	}
	return counts;
}

size_t pmu_counted(const struct pmu_counts *counts)
{
	return counts ? counts->count : 0;
}

const char *pmu_first_refusal(const struct pmu_counts *counts)
{
	return counts && counts->refused ? counts->refusals[0].reason : NULL;
}

static void counted_write(struct json *json, const struct pmu_counts *counts, const struct counted *event)
{
	bool watched = counts->watched && event->spec->on_cpus;
	json_object_begin(json, NULL);
	json_text(json, "name", event->spec->name);
	json_array_begin(json, "pmus");
	for (size_t i = 0; i < event->source_count; i++)
		json_text(json, NULL, event->sources[i]);
	json_array_end(json);
	json_u64_known(json, "cpu", event->spec->on_cpus, event->cpu);
	json_u64_known(json, "threads", !event->spec->on_cpus, event->threads);
	json_u64(json, "count", event->count);
	json_f64_known(json, "scaled", event->whole, event->scaled);
	json_f64(json, "running_fraction", event->fraction);
	json_f64(json, "wall_s", clock_ns(event->wall_ticks) / 1e9);
	json_f64(json, "wall_uncertainty_s", clock_ns(event->uncertain_ticks) / 1e9);
	json_f64_known(json, "steps", event->work.steps >= 0, event->work.steps);
	json_f64_known(json, "hops", event->work.hops >= 0, event->work.hops);
	json_f64_known(json, "background_count", watched && event->quiet_whole, event->quiet_scaled);
	json_f64_known(json, "background_wall_s", watched, clock_ns(event->quiet_ticks) / 1e9);
	json_object_end(json);
}

void pmu_counts_write(struct json *json, const char *key, const struct pmu_counts *counts)
{
	if (!json_object_known(json, key, counts))
		return;
	json_f64_known(json, "background_s", counts->watched, counts->background_s);
	json_array_begin(json, "events");
	for (size_t i = 0; i < counts->count; i++)
		counted_write(json, counts, &counts->events[i]);
	json_array_end(json);
	json_array_begin(json, "refused");
	for (size_t i = 0; i < counts->refused; i++) {
		const struct pmu_refusal *refusal = &counts->refusals[i];
		json_object_begin(json, NULL);
		json_text(json, "name", refusal->spec->name);
		json_text(json, "pmu", refusal->spec->source);
		json_u64_known(json, "cpu", refusal->spec->on_cpus, refusal->cpu);
		json_text(json, "errno", refusal->code ? pmu_errno_name(refusal->code) : NULL);
		json_text(json, "reason", refusal->reason);
		json_object_end(json);
	}
	json_array_end(json);
	json_object_end(json);
}
